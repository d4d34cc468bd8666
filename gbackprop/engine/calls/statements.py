"""Statements of Python: a line for each thing that is done to arrays, in its order, and nothing left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from gbackprop.array import ModuleArray
from gbackprop.base.recording.tape import mapped

ERRORS = {"divide": "call", "over": "call", "under": "call", "invalid": "call"}
"""The treatment of errors of arithmetic while statements are written; another one belongs to a statement."""


VIEWS = ("getitem", "reshape", "ravel", "transpose", "swapaxes", "squeeze", "ascontiguousarray")
"""Functions that only look at an array: those that return all of it, as it is, need no statement."""


class CannotWriteError(Exception):
    """A number is read, or something is done outside of NumPy."""


class Statements:
    """The statements so far.

    Parameters
    ----------
    kind : type
        The class of arrays that write down what is done to them.

    Attributes
    ----------
    lines : list of (errors, text, names)
        How errors of arithmetic are treated there, where that is told; the arrays that it makes or takes.
    scope : dict of str to object
        What statements refer to by name: functions and constants.
    """

    def __init__(self, kind: type[Any]) -> None:
        self.kind, self.made = kind, 0
        self.lines: list[tuple[dict[str, str], str, list[str]]] = []
        self.scope: dict[str, Any] = {}
        self.names: dict[int, str] = {}  # of objects in the scope, which keeps them

    def array(self, value: Any, name: str) -> Any:
        """Return an array that statements call by a name."""
        array = np.asarray(value).view(self.kind)
        array.writer, array.name, array.scalar = self, name, not isinstance(value, np.ndarray)
        return array

    def do(self, function: Callable[..., Any], args: Sequence[Any], named: Any = None, out: Any = None) -> Any:
        """Call a function, and write that down; return its results, or `out`, into which it writes its result."""
        named = named or {}
        result = function(*plain(list(args)), **plain(named))
        if getattr(function, "__name__", "") in VIEWS and is_written(args[0]) and _is_all(result, plain(args[0])):
            return args[0]
        several = isinstance(result, tuple | list)
        found = [] if result is None or out is not None else [*result] if several else [result]
        arrays = []
        for each in found:
            self.made += 1
            arrays.append(self.array(each, f"t{self.made}"))
        used: list[str] = [each.name for each in arrays]
        target = "".join([f"{name}, " for name in used]) if several else "".join(used)
        given = [self.text(each, used) for each in args]
        given += [f"{key}={self.text(value, used)}" for key, value in named.items()]
        text = f"{self.text(function, used)}({', '.join(given)})"
        errors = {key: str(value) for key, value in np.geterr().items() if value != ERRORS[key]}
        self.lines.append((errors, f"{target} = {text}" if target else text, used))
        if out is not None or not several:
            return arrays[0] if arrays else out
        return type(result)(*arrays) if hasattr(result, "_fields") else type(result)(arrays)

    def text(self, value: Any, used: list[str]) -> str:
        """Return an argument as text; names of arrays are added to `used`."""
        if is_written(value):
            if value.writer is not self:
                raise CannotWriteError("an array was made outside of what is written down")
            used.append(value.name)
            return str(value.name)
        kind, before = type(value), len(used)
        if kind in (tuple, list):
            inside = "".join([f"{self.text(each, used)}, " for each in value])
            text = f"[{inside}]" if kind is list else f"({inside})"
        elif kind is slice:
            text = f"slice({', '.join([self.text(each, used) for each in (value.start, value.stop, value.step)])})"
        else:
            text = repr(value) if value is None or kind in (bool, int, str) else ""
        if text and (len(used) > before or kind not in (tuple, list, slice)):
            return text
        name = self.names.setdefault(id(value), f"k{len(self.names)}")
        self.scope[name] = value
        return name

    def function(self, names: Sequence[str], result: str, used: Sequence[str]) -> str:
        """Return the text of a function of arrays by name; each other one is deleted after its last use."""
        last = {name: i for i, (_, _, names) in enumerate(self.lines) for name in names}
        lines, before = [f"def run({', '.join(names)}):"], {}  # type: ignore[var-annotated]
        for i, (errors, text, here) in enumerate(self.lines):
            if errors and errors != before:
                lines.append(f"    with {self.text(np.errstate, [])}(**{errors}):")
            before, pad = errors, "        " if errors else "    "
            ends = sorted({name for name in here if last[name] == i} - {*names, *used})
            lines += [pad + text, *[f"{pad}del {', '.join(ends)}"] * bool(ends)]
        return "\n".join([*lines, f"    return {result}", ""])


def is_written(value: Any) -> bool:
    """Return whether a value is an array that writes down what is done to it."""
    return isinstance(value, ModuleArray)


def plain(value: Any) -> Any:
    """Return arguments with arrays of NumPy."""
    if isinstance(value, ModuleArray):
        return cast(Any, np.ndarray).view(value, np.ndarray)
    return mapped(plain, value)


def _is_all(value: Any, array: np.ndarray) -> bool:
    """Return whether a value is all of an array, as it is."""
    if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (array.shape, array.dtype):
        return False
    return value.__array_interface__["data"] == array.__array_interface__["data"] and value.strides == array.strides
