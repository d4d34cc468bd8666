"""The record of a function: its steps in order, with the value of each array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gbackprop.base.recording.refused import TraceError, UserLine, user_line


class Ref(NamedTuple):
    """An array in the arguments of a step, by its number."""

    number: int


class How(NamedTuple):
    """A function of the base that made a view."""

    name: str
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class TapeStep:
    """A call: the function's name, its arguments with `Ref` for arrays, and the numbers of its results."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[int]
    line: UserLine
    function: Any = None
    section: Any = None


@dataclass
class Tape:
    """The steps of a function in order, and the value of each array by its number.

    `array` is the arrays' class; `section` is whatever the caller says of the steps that follow; `wide` says that
    float32 is recorded as float64.
    """

    array: type[Any]
    steps: list[TapeStep] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    open: bool = True
    refused: TraceError | None = None
    constants: dict[int, tuple[Any, int]] = field(default_factory=dict)
    leaves: int = 0
    section: Any = None
    wide: bool = False

    def add(self, name: str, value: Any, args: tuple[Any, ...] = (), kwargs: Any = None, function: Any = None) -> Any:
        """Append a step; return its result, or the list of them, as recorded arrays."""
        many = isinstance(value, tuple | list)
        arrays = [np.asarray(each) for each in (value if many else [value])]
        start = len(self.values)
        self.values += arrays
        numbers = list(range(start, len(self.values)))
        self.steps.append(TapeStep(name, args, kwargs or {}, numbers, user_line(), function, self.section))
        found = [self.array(self, number) for number in numbers]
        return found if many else found[0]

    def ref(self, value: Any) -> Any:
        """Return arguments with `Ref` for arrays; a plain array becomes a constant, once as long as it stays equal."""
        if isinstance(value, self.array):
            return Ref(value.current())
        if isinstance(value, np.ndarray):
            held, number = self.constants.get(id(value), (None, 0))
            if held is not value or not same(self.values[number], value):
                number = self.add("constant", value.copy()).number
                self.constants[id(value)] = (value, number)
            return Ref(number)
        return mapped(self.ref, value)

    def lowered(self, value: Any) -> Any:
        """Return arguments with values for `Ref`."""
        return self.values[value.number] if isinstance(value, Ref) else mapped(self.lowered, value)

    def refuse(self, kind: type[TraceError], words: str) -> NoReturn:
        """Raise an error that begins with the user's line; it is kept, as NumPy replaces some errors by its own."""
        self.refused = self.refused or kind(f"{user_line()}: {words}")
        raise self.refused


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to what is inside lists, tuples, dictionaries and slices; return other values as they are."""
    if isinstance(value, Ref):
        return value
    if isinstance(value, list | tuple):
        return type(value)([change(each) for each in value])
    if isinstance(value, dict):
        return {key: change(each) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(change(value.start), change(value.stop), change(value.step))
    return value


def refs(value: Any) -> list[int]:
    """Return the numbers of arrays in arguments."""
    found: list[int] = []

    def look(each: Any) -> Any:
        if isinstance(each, Ref):
            found.append(each.number)
            return each
        return mapped(look, each)

    look(list(value))
    return found


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays are equal, NaN included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def indexed(x: np.ndarray, index: Any) -> Any:
    """Return `x[index]`."""
    return x[index]


def assigned(x: np.ndarray, index: Any, value: Any) -> np.ndarray:
    """Return the array that `x[index] = value` leaves."""
    new = x.copy()
    new[index] = value
    return new


def assigned_wide(x: np.ndarray, index: Any, value: Any) -> np.ndarray:
    """Return the array that `x[index] = value` leaves, in a dtype for both."""
    return assigned(x.astype(np.result_type(x, np.asarray(value))), index, value)


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a copy in a dtype."""
    return x.astype(dtype)


def cast_wide(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a copy in a dtype; float64 where float32 is asked for."""
    return x.astype(np.result_type(x, dtype) if dtype == np.float32 else dtype)
