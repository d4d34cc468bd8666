"""Statements of Python: a record of each thing that is done to arrays, in its order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from types import BuiltinMethodType, MethodType
from typing import Any, NamedTuple, cast

import numpy as np

from gbackprop.array import RecordedArray

ERRORS = {"divide": "call", "over": "call", "under": "call", "invalid": "call"}
"""The treatment of errors of arithmetic while statements are written; another one belongs to a statement."""

NAME = re.compile(r"\bt\d+\b")
"""The name of an array that a statement makes."""


class CannotWriteError(Exception):
    """A number is read, or something is done outside of NumPy."""


class Argument(NamedTuple):
    """An argument that is the same in each call."""

    value: Any


class Statement(NamedTuple):
    """A line, with the names that it makes and takes, and how errors of arithmetic are treated there."""

    made: list[str]
    text: str
    taken: list[str]
    errors: tuple[tuple[str, str], ...]
    writes: bool


class Statements:
    """The statements so far.

    Parameters
    ----------
    kind : type
        The class of arrays that write down what is done to them.

    Attributes
    ----------
    statements : list of Statement
    scope : dict of str to object
        What statements refer to by name: functions and constants.
    roots : dict of str to str
        For each array, that in whose memory it is.
    written : Counter
        How often each root was written to.
    """

    def __init__(self, kind: type[Any]) -> None:
        self.kind, self.count = kind, 0
        self.statements: list[Statement] = []
        self.scope: dict[str, Any] = {}
        self.names: dict[Any, str] = {}  # of objects in the scope
        self.roots: dict[str, str] = {}
        self.bytes: dict[str, int] = {}
        self.written: Counter[str] = Counter()
        self.scalars: set[str] = set()  # results that are numbers, not arrays
        # by its root, an array that is the outer product of two, and how often these three were written to
        self.products: dict[str, tuple[Any, Any, list[int]]] = {}

    def input(self, value: np.ndarray, name: str) -> Any:
        """Return an array that statements call by a name."""
        array = value.view(self.kind)
        array.writer, array.name = self, name
        self.roots[name], self.bytes[name] = name, value.nbytes
        return array

    def constant(self, value: np.ndarray) -> Any:
        """Return an array that is the same object in each call, with other numbers."""
        self.scope[name := f"c{len(self.scope)}"] = value
        return self.input(value.copy(), name)

    def do(self, text: str, function: Any, args: Sequence[Any], named: Any = None, writes: Sequence[Any] = ()) -> Any:
        """Call a function, and write that down; `text` says how, with braces where its name and arguments stand."""
        result = function(*plain(list(args)), **plain(named or {}))
        several = isinstance(result, tuple | list)
        found = [*result] if several else [] if result is None else [result]
        bases = [each for each in args if is_written(each)]
        if bases and len(found) == 1 and (view := self._view(found[0], bases[0])) is not None:
            return view
        arrays = [self._made(each, bases) for each in found]
        self.add([each.name for each in arrays], several, text, (function, args, named or {}), writes)
        if not several:
            return arrays[0] if arrays else None
        return type(result)(*arrays) if hasattr(result, "_fields") else type(result)(arrays)

    def add(self, made: list[str], several: bool, text: str, called: tuple[Any, Any, Any], writes: Any) -> None:
        """Append a statement: a call of a function with arguments, that makes arrays and writes to others."""
        function, args, named = called
        taken: list[str] = []
        given = [self.text(each, taken) for each in args]
        given += [f"{key}={self.text(value, taken)}" for key, value in named.items()]
        line = text.format(self.text(function, []) if "{0}" in text else "", *given, all=", ".join(given))
        line = f"{', '.join(made)}{',' * several} = {line}" if made else line
        errors = tuple((key, str(value)) for key, value in np.geterr().items() if value != ERRORS[key])
        self.statements.append(Statement(made, line, taken, errors, bool(writes)))
        for each in writes:
            if not is_written(each):
                raise CannotWriteError("a constant is written to")
            self.written[self.roots[each.name]] += 1
            self._note(function, args, each)

    def _made(self, value: Any, bases: Sequence[Any]) -> Any:
        self.count += 1
        array = self.input(np.asarray(value), f"t{self.count}")
        if not isinstance(value, np.ndarray):
            self.scalars.add(array.name)
        for base in bases:
            if np.may_share_memory(plain(array), plain(base)):
                self.roots[array.name] = self.roots[base.name]
        return array

    def _view(self, value: Any, base: Any) -> Any:
        """Return a result that is all of an array, in its order in memory: as that array, or in another shape of it."""
        base = base if base.whole is None else base.whole
        own = plain(base)
        if not isinstance(value, np.ndarray) or not (value.flags.c_contiguous and own.flags.c_contiguous):
            return None
        if (value.nbytes, value.dtype) != (own.nbytes, own.dtype) or not own.nbytes or base.name in self.scalars:
            return None
        if value.__array_interface__["data"] != own.__array_interface__["data"]:
            return None
        if value.shape == own.shape:
            return base
        array = self._made(value, [base])
        array.whole = base
        text = f"{array.name} = {base.name}.reshape({', '.join(map(str, value.shape)) or '()'})"
        self.statements.append(Statement([array.name], text, [base.name], (), False))
        return array

    def _note(self, function: Any, args: Sequence[Any], out: Any) -> None:
        """Note that an array is the outer product of two, if it is."""
        a, b = (*args, None, None)[:2]
        two = is_written(a) and is_written(b) and getattr(function, "__name__", "") in ("multiply", "outer")
        if two and a.size * b.size == out.size and self.bytes[self.roots[out.name]] == out.nbytes:
            self.products[self.roots[out.name]] = a, b, self._times(a, b, out)

    def factors(self, array: Any) -> list[Any]:
        """Return two arrays whose outer product is all of an array; or that array, where none are known."""
        root = self.roots[array.name]
        a, b, times = self.products.get(root, (array, array, []))
        return [a, b] if times == self._times(a, b, array) and array.nbytes == self.bytes[root] else [array]

    def _times(self, *arrays: Any) -> list[int]:
        return [self.written[self.roots[each.name]] for each in arrays]

    def text(self, value: Any, taken: list[str]) -> str:
        """Return an argument as text; names of arrays are added to `taken`."""
        if is_written(value):
            if value.writer is not self:
                raise CannotWriteError("an array was made outside of what is written down")
            taken.append(value.name)
            return str(value.name)
        kind = type(value)
        if value is None or kind in (bool, int, str) or (kind is float and np.isfinite(value)):
            return repr(value)
        if kind in (tuple, list):
            inside = ", ".join(self.text(each, taken) for each in value)
            return f"[{inside}]" if kind is list else f"({inside}{',' if len(value) == 1 else ''})"
        if kind is slice:
            return f"slice({', '.join(self.text(each, taken) for each in (value.start, value.stop, value.step))})"
        if kind is dict:
            return "{" + ", ".join(f"{self.text(k, taken)}: {self.text(v, taken)}" for k, v in value.items()) + "}"
        value = value.value if kind is Argument else value
        key = value if isinstance(value, BuiltinMethodType | MethodType) else id(value)  # `np.add.reduce` is made anew
        name = self.names.setdefault(key, f"k{len(self.names)}")
        self.scope[name] = value
        return name

    # --------------------------------------------------------------------------------------------------- statements

    def needed(self, wanted: Sequence[str]) -> list[Statement]:
        """Return the statements on which arrays depend, without those whose result is there already, or a constant."""
        return _needed(self._once(_needed(self.statements, wanted), wanted), wanted)

    def _once(self, statements: list[Statement], wanted: Sequence[str]) -> list[Statement]:
        roots, results = self.roots, {self.roots[name] for name in wanted}
        same: dict[str, str] = {}
        seen: dict[Any, list[str]] = {}
        times: Counter[str] = Counter()  # how often each root was written to so far
        found = []
        for each in statements:
            text = NAME.sub(lambda name: same.get(name[0], name[0]), each.text)
            taken = [same.get(name, name) for name in each.taken]
            each = each._replace(text=text, taken=taken)
            own = [name for name in each.made if roots[name] == name]
            written = any(self.written[name] or name in results for name in own)
            if each.writes or written or not {*wanted}.isdisjoint(each.made):
                times.update({roots[name] for name in taken} if each.writes else ())
                found.append(each)
            elif not taken:
                exec(text, self.scope)
            else:
                key = text.partition(" = ")[2], each.errors, *[times[roots[name]] for name in taken]
                if key in seen:
                    same.update(zip(each.made, seen[key], strict=True))
                else:
                    seen[key] = each.made
                    found.append(each)
        return found


def _needed(statements: list[Statement], wanted: Sequence[str]) -> list[Statement]:
    live, found = set(wanted), []
    for each in reversed(statements):
        if each.writes or live.intersection(each.made):
            live.update(each.taken)
            found.append(each)
    return found[::-1]


def is_written(value: Any) -> bool:
    """Return whether a value is an array that writes down what is done to it."""
    return isinstance(value, RecordedArray)


def plain(value: Any) -> Any:
    """Return arguments with arrays of NumPy."""
    if isinstance(value, RecordedArray):
        return cast(Any, np.ndarray).view(value, np.ndarray)
    if isinstance(value, Argument):
        return value.value
    if isinstance(value, list | tuple):
        return type(value)(plain(each) for each in value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value
