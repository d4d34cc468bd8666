"""Statements of Python: each thing that is done to arrays, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any, cast

import numpy as np

from gbackprop.array import ModuleArray
from gbackprop.base.recording.tape import mapped

ERRORS = {"divide": "call", "over": "call", "under": "call", "invalid": "call"}
"""The treatment of errors of arithmetic while statements are written; another one belongs to a statement."""


VIEWS = ("getitem", "reshape", "ravel", "transpose", "swapaxes", "squeeze", "ascontiguousarray")
"""Functions that only look at an array: those that return all of it, as it is, need no statement."""

FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, np.ufunc)
"""Classes of functions that are one if they are equal, such as the methods of `numpy.add`."""

CONSTANT = np.arange, np.eye, np.zeros, np.ones, np.full
"""Functions that make an array of numbers alone."""

EXACT = 1 << 24
"""Integers below this one are numbers of float32."""


class CannotWriteError(Exception):
    """A number is read, or something is done outside of NumPy."""


@dataclass(frozen=True, slots=True)
class Named:
    """An array of a statement by its name.

    `memory` is the name of the array in whose memory it lies; `whole` says whether it has each number of that array
    once, `flat` whether they lie there in its order, `dense` whether in its order or that of its transpose.
    """

    name: str
    memory: str
    whole: bool
    flat: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dense: bool = False

    @property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)


@dataclass(slots=True)
class Statement:
    """A call of a function, its arrays replaced by their names.

    Attributes
    ----------
    made : list of Named
        The arrays that it returns, in a tuple if `several`.
    writes : set of str
        The memory of given arrays into which it writes.
    errors : dict
        How errors of arithmetic are treated there, where that was given.
    value : ndarray, optional
        What it returns, if that is the same in each call.
    given : list of Named
        The arrays in the arguments.
    """

    function: Callable[..., Any]
    args: list[Any]
    named: dict[str, Any]
    made: list[Named]
    several: bool
    writes: set[str]
    errors: dict[str, str]
    value: Any = None
    given: list[Named] = field(init=False)

    def __post_init__(self) -> None:
        self.given = [*inside([self.args, self.named], Named)]

    def names(self) -> set[str]:
        """Return the names of all arrays."""
        return {each.name for each in (*self.made, *self.given)}

    def target(self) -> str:
        """Return what stands left of the sign of equality."""
        names = [each.name for each in self.made]
        return "".join([f"{name}, " for name in names]) if self.several else "".join(names)

    def renamed(self, same: Mapping[str, Any]) -> Statement:
        """Return the statement with other arrays in place of those whose names are in `same`."""
        if same.keys().isdisjoint(each.name for each in self.given):
            return self

        def change(value: Any) -> Any:
            return same.get(value.name, value) if isinstance(value, Named) else mapped(change, value)

        return replace(self, args=change(self.args), named=change(self.named))


class Statements:
    """The statements so far.

    Parameters
    ----------
    kind : type
        The class of arrays that write down what is done to them.

    Attributes
    ----------
    lines : list of Statement
    scope : dict of str to object
        What statements refer to by name: functions and constants.
    """

    def __init__(self, kind: type[Any]) -> None:
        self.kind, self.made = kind, count()
        self.lines: list[Statement] = []
        self.scope: dict[str, Any] = {}
        self.names: dict[Any, str] = {}  # of objects in the scope, which keeps them
        self.constants: dict[Any, np.ndarray] = {}

    def array(self, value: Any, name: str, of: Any = None) -> Any:
        """Return an array that statements call by a name; `of` is the one of which it may be a view."""
        array = np.asarray(value).view(self.kind)
        array.writer, array.name, array.scalar = self, name, not isinstance(value, np.ndarray)
        memory, whole = (name, True) if of is None else (of.memory, of.whole and of.size == array.size)
        flags = plain(array).flags
        array.named = Named(name, memory, whole, flags.c_contiguous, array.shape, array.dtype, flags.forc)
        return array

    def do(self, function: Any, args: Sequence[Any], named: Any = None, out: Any = None, into: Any = None) -> Any:
        """Call a function, and write that down; return its results, or `out`, into which it writes its result.

        One that returns nothing may write into each array that it is given, a kernel into those of `into`.
        """
        named = named or {}
        result = function(*plain(list(args)), **plain(named))
        is_view = getattr(function, "__name__", "") in VIEWS
        if is_view and is_written(args[0]) and _is_all(result, plain(args[0])):
            return args[0]
        several = isinstance(result, tuple | list)
        found = [] if result is None or out is not None else [*result] if several else [result]
        given = list(inside([args, named], ModuleArray))
        arrays = []
        for each in found:
            of = next((array.named for array in given if np.may_share_memory(plain(array), each)), None)
            if of is not None and not is_view:  # such as windows, which may have a number twice
                of = replace(of, whole=False)
            arrays.append(self.array(each, f"t{next(self.made)}", of))
        into = (given if result is None else []) if into is None else [*inside(into, ModuleArray)]
        targets = [out] if out is not None else into
        written = {each.named.memory for each in targets}
        errors = {key: str(value) for key, value in np.geterr().items() if value != ERRORS[key]}
        made, value = [each.named for each in arrays], found[0] if function in CONSTANT and not given else None
        given_names = self.refs([*args]), self.refs(named)
        self.lines.append(Statement(function, *given_names, made, several, written, errors, value))
        if out is not None or not several:
            return arrays[0] if arrays else out
        return type(result)(*arrays) if hasattr(result, "_fields") else type(result)(arrays)

    def refs(self, value: Any) -> Any:
        """Return arguments with names in place of arrays."""
        if is_written(value):
            if value.writer is not self:
                raise CannotWriteError("an array was made outside of what is written down")
            return value.named
        return mapped(self.refs, value)

    def text(self, value: Any) -> str:
        """Return an argument as text."""
        if isinstance(value, Named):
            return value.name
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return repr(value)
        arrays = any(True for _ in inside(value, Named))
        if arrays and kind in (tuple, list):
            parts = "".join([f"{self.text(each)}, " for each in value])
            return f"[{parts}]" if kind is list else f"({parts})"
        if arrays and kind is slice:
            return f"slice({', '.join([self.text(each) for each in (value.start, value.stop, value.step)])})"
        key = (kind, repr(value)) if _is_index(value) else value if kind in FUNCTIONS else id(value)
        name = self.names.setdefault(key, f"k{len(self.names)}")
        self.scope.setdefault(name, value)
        return name

    def call(self, line: Statement) -> str:
        """Return the right side of a statement; a constant that is added to floats, or the like, is an array."""
        args, floats = line.args, {each.dtype for each in line.given}
        if isinstance(line.function, np.ufunc) and len(floats) == 1 and len(args) == 2 and line.named.keys() <= {"out"}:
            (dtype,) = floats
            args = [self.constant(each, dtype) for each in args] if dtype.kind == "f" else args
        given = [*map(self.text, args), *[f"{key}={self.text(value)}" for key, value in line.named.items()]]
        return f"{self.text(line.function)}({', '.join(given)})"

    def constant(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """Return a number as an array, which NumPy need not convert in each call; what is computed is the same."""
        limits = np.finfo(dtype)
        if type(value) is float:  # beyond the range NumPy reports an error, in each call
            is_exact = value == 0 or limits.tiny <= abs(value) <= limits.max
        else:
            is_exact = type(value) is int and abs(value) < EXACT
        if is_exact:
            return self.shared(np.array(value, dtype))
        return value

    def shared(self, value: np.ndarray) -> np.ndarray:
        """Return a constant, or an equal one that was there before."""
        return self.constants.setdefault((value.dtype, value.shape, value.strides, value.tobytes()), value)

    def function(self, names: Sequence[str], result: str, used: Sequence[str], lines: Sequence[Statement]) -> str:
        """Return the text of a function of arrays by name; each other one is deleted after its last use."""
        last = {name: i for i, line in enumerate(lines) for name in line.names()}
        text, before = [f"def run({', '.join(names)}):"], {}  # type: ignore[var-annotated]
        for i, line in enumerate(lines):
            if line.errors and line.errors != before:
                text.append(f"    with {self.text(np.errstate)}(**{line.errors}):")
            before, pad = line.errors, "        " if line.errors else "    "
            ends = sorted({name for name in line.names() if last[name] == i} - {*names, *used})
            text.append(pad + (f"{target} = " if (target := line.target()) else "") + self.call(line))
            text += [f"{pad}del {', '.join(ends)}"] * bool(ends)
        return "\n".join([*text, f"    return {result}", ""])


def is_written(value: Any) -> bool:
    """Return whether a value is an array that writes down what is done to it."""
    return isinstance(value, ModuleArray)


def plain(value: Any) -> Any:
    """Return arguments with arrays of NumPy."""
    if isinstance(value, ModuleArray):
        return cast(Any, np.ndarray).view(value, np.ndarray)
    return mapped(plain, value)


def inside(value: Any, kind: type[Any]) -> Iterator[Any]:
    """Yield the arrays, or their names, in arguments."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, slice):
        yield from inside((value.start, value.stop, value.step), kind)
    elif isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from inside(each, kind)


def _is_index(value: Any) -> bool:
    """Return whether a value is made of numbers, slices, tuples and the like alone, so that its text says all of it."""
    if isinstance(value, list | tuple):
        return all(map(_is_index, value))
    return value is None or type(value) in (bool, int, float, str, slice, type(...))


def _is_all(value: Any, array: np.ndarray) -> bool:
    """Return whether a value is all of an array, as it is."""
    if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (array.shape, array.dtype):
        return False
    return value.__array_interface__["data"] == array.__array_interface__["data"] and value.strides == array.strides
