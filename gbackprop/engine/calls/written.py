"""Arrays that compute as NumPy's and write down what is done to them.

They are arrays in the memory of others: what is written in place, and what is a view, is so in the statements, too. A
statement that is run again does the same to other numbers. What reads a number raises an error. (Arrays of
`gbackprop.base.recording` have neither memory nor strides, by which forms choose what they do.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from gbackprop.array import ModuleArray
from gbackprop.base.recording.arrays import MAKING, PLAIN
from gbackprop.engine.calls.statements import CannotWriteError, Statements, is_written, plain

METHODS = ("reshape", "transpose", "swapaxes", "squeeze", "ravel", "diagonal", "astype", "copy", "flatten", "repeat",
           "take", "argmax", "argmin", "cumsum", "nonzero", "dot")  # fmt: skip
"""Methods that are written down here."""

HARMLESS = ("writer", "name", "named", "scalar", "module", "made", "shape", "ndim", "size", "dtype", "itemsize",
            "nbytes", "strides", "flags", "sum", "prod", "max", "min", "mean", "any", "all", "clip")  # fmt: skip
"""Other attributes: those that read no number, and methods that NumPy computes by its functions."""

DEFAULTS = (("dtype", None), ("where", True), ("keepdims", False))
"""Arguments that say what holds without them."""


class Written(np.ndarray, ModuleArray):
    """An array that computes and writes down what is done to it."""

    writer: Any = None  # views that NumPy makes by itself have none: they cannot be used
    name = ""
    named: Any = None
    scalar = False  # whether it stands for a number

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, out: Any = (), **named: Any) -> Any:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        named = {key: value for key, value in named.items() if (key, value) not in DEFAULTS}
        writer = writer_of([*args, *out, *named.values()])
        if not out or (len(out) == 1 and getattr(out[0], "scalar", False)):  # `a += b` of a number makes another one
            return writer.do(function, args, named)
        if len(out) > 1 or not is_written(out[0]):
            raise CannotWriteError("a constant is written to")
        return writer.do(function, args, {**named, "out": out[0]}, out[0])

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ in PLAIN:
            return function(*plain(list(args)), **plain(kwargs))
        out = kwargs.get("out")
        if out is not None and not is_written(out):
            raise CannotWriteError("a constant is written to")
        return writer_of([*args, *kwargs.values()]).do(function, args, kwargs, out)

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS:
            return partial(_method, self, name)
        if name in ("T", "mT"):
            return self.swapaxes(-1, -2) if name == "mT" else self.transpose()
        if name == "real":
            return self
        if name not in HARMLESS and not name.startswith("__"):
            raise CannotWriteError(f".{name}")
        return super().__getattribute__(name)

    def __getitem__(self, index: Any) -> Any:
        return writer_of([self, index]).do(operator.getitem, (self, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        writer_of([self, index, value]).do(operator.setitem, (self, index, value))

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __array_namespace__(self) -> Any:  # type: ignore[override]
        """Return NumPy, but that new arrays are written down."""
        return WritingModule(self.writer)

    def module(self, functions: ModuleType) -> Any:
        """Return a module whose functions, which write into arrays, are written down as calls."""
        return WritingKernels(self.writer, functions)

    def made(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a new array of a function, written down as a call."""
        return self.writer.do(function, args)

    def _refused(self, *args: Any) -> NoReturn:
        raise CannotWriteError("a number is read")

    __bool__ = __float__ = __int__ = __index__ = __complex__ = __contains__ = _refused
    __reduce__ = __reduce_ex__ = __deepcopy__ = __copy__ = __format__ = __str__ = __repr__ = _refused


class WritingModule:
    """NumPy, but that new arrays are written down."""

    def __init__(self, writer: Statements) -> None:
        self.writer = writer

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in MAKING or name in ("empty", "ascontiguousarray"):
            return lambda *args, **named: self.writer.do(found, args, named)
        return found

    @property
    def lib(self) -> Any:
        """Return views of any strides, which NumPy makes without asking an array."""
        as_strided = lambda *args: self.writer.do(np.lib.stride_tricks.as_strided, args)  # noqa: E731
        return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        """Return an array that is written down as it is or in another dtype, and what else is given as NumPy does."""
        if not is_written(x):
            return np.asarray(x, dtype)
        return x if dtype is None or x.dtype == np.dtype(dtype) else x.astype(dtype)


class WritingKernels:
    """A module whose functions, which write into their last arguments, are written down as calls."""

    def __init__(self, writer: Statements, functions: ModuleType) -> None:
        self.writer, self.functions = writer, functions

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        return lambda *args: self.writer.do(function, args, into=args[-1])


def writer_of(values: Any) -> Statements:
    """Return the writer of the arrays in arguments."""
    found = _writer_in(values)
    if found is None:
        raise CannotWriteError("an array was made outside of what is written down")
    return found


def _writer_in(values: Any) -> Any:
    for value in values:
        found = value.writer if is_written(value) else _writer_in(value) if isinstance(value, list | tuple) else None
        if found is not None:
            return found
    return None


def _method(array: Any, name: str, *args: Any, **named: Any) -> Any:
    """Call a method, and write that down."""
    return writer_of([array]).do(getattr(np.ndarray, name), (array, *args), named)
