"""Arrays that compute as NumPy's and write down what is done to them.

They are arrays in the memory of others: what is written in place, and what is a view, is so in the statements, too. A
statement that is run again does the same to other numbers. What reads a number raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from gbackprop.array import RecordedArray
from gbackprop.base.recording.arrays import MAKING, PLAIN, WRITING
from gbackprop.engine.calls.statements import Argument, CannotWriteError, Statements, is_written, plain

METHODS = ("reshape", "transpose", "swapaxes", "squeeze", "ravel", "diagonal", "astype", "copy", "flatten", "repeat",
           "take", "argmax", "argmin", "cumsum", "nonzero", "dot")  # fmt: skip
"""Methods that are written down here; those that NumPy computes by its functions are so anyway."""

READING = ("item", "tolist", "tobytes", "data", "ctypes", "view", "sort", "partition", "resize", "setfield", "put",
           "fill", "dump", "dumps", "tofile", "byteswap", "setflags")  # fmt: skip

DEFAULTS = (("dtype", None), ("where", True), ("keepdims", False))
"""Arguments that say what holds without them."""

INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "matmul": "@"}


class Written(np.ndarray, RecordedArray):
    """An array that computes and writes down what is done to it."""

    writer: Any = None  # views that NumPy makes by itself have none: they cannot be used
    name = ""
    whole: Any = None  # the array of which this one is all numbers, in another shape

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, out: Any = (), **named: Any) -> Any:
        writer = writer_of([*args, *out, *named.values()])
        named = {key: value for key, value in named.items() if (key, value) not in DEFAULTS}
        if method != "__call__" or len(out) > 1:
            if method not in ("reduce", "outer", "accumulate"):
                raise CannotWriteError(f"{ufunc.__name__}.{method}")
            function = getattr(ufunc, method)
            return _into(writer, (function, args, named), out[0]) if out else writer.do(CALL, function, args, named)
        args = _typed(args)
        sign = None if named else INFIX.get(ufunc.__name__)
        if out:
            return _into(writer, (ufunc, args, named), out[0], sign if args[0] is out[0] else None)
        return writer.do(f"{{1}} {sign} {{2}}" if sign else CALL, ufunc, args, named)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ in PLAIN:
            return function(*plain(list(args)), **plain(kwargs))
        out, writer = kwargs.get("out"), writer_of([*args, *kwargs.values()])
        if function.__name__ in WRITING:
            return writer.do(CALL, function, args, kwargs, args[:1])
        if out is None:
            return writer.do(CALL, function, args, kwargs)
        named = {key: value for key, value in kwargs.items() if key != "out"}
        return _into(writer, (function, args, named), out)

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS:
            return partial(_method, self, name)
        if name in ("T", "mT"):
            return writer_of([self]).do(f"{{1}}.{name}", lambda x: getattr(x, name), (self,))
        if name == "real":
            return self
        if name in READING:
            raise CannotWriteError(f".{name}")
        return super().__getattribute__(name)

    def __getitem__(self, index: Any) -> Any:
        found = plain(self)[plain(index)]
        basic = _is_basic(index)
        if basic and isinstance(found, np.ndarray) and (found.shape, found.strides) == (self.shape, self.strides):
            return self
        given = Argument(index) if basic else index
        return writer_of([self, index]).do("{1}[{2}]", lambda x, i: x[i], (self, given))

    def __setitem__(self, index: Any, value: Any) -> None:
        if is_written(value) and _is_part(plain(self)[plain(index)], plain(value)):
            return  # a[i] += b has written into a[i] already
        given = Argument(index) if _is_basic(index) else index
        writer_of([self, index, value]).do("{1}[{2}] = {3}", _put, (self, given, value), {}, (self,))

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
        return self.writer.do(CALL, function, args)

    def _refused(self, *args: Any) -> NoReturn:
        raise CannotWriteError("a number is read")

    __bool__ = __float__ = __int__ = __index__ = __complex__ = __contains__ = _refused
    __reduce__ = __reduce_ex__ = __deepcopy__ = __copy__ = _refused


CALL = "{0}({all})"
"""A call in a statement."""


class WritingModule:
    """NumPy, but that new arrays are written down."""

    def __init__(self, writer: Statements) -> None:
        self.writer = writer

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in MAKING or name in ("empty", "ascontiguousarray"):
            return lambda *args, **named: self.writer.do(CALL, found, args, named)
        return found

    @property
    def lib(self) -> Any:
        """Return views of any strides, which NumPy makes without asking an array."""
        strided = np.lib.stride_tricks.as_strided
        as_strided = lambda *args: self.writer.do(CALL, strided, args)  # noqa: E731
        return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        """Return an array that is written down as it is or in another dtype, and what else is given as NumPy does."""
        if not is_written(x):
            return np.asarray(x, dtype)
        return x if dtype is None or x.dtype == np.dtype(dtype) else x.astype(dtype)


class WritingKernels:
    """A module whose functions, which write into arrays, are written down as calls."""

    def __init__(self, writer: Statements, functions: ModuleType) -> None:
        self.writer, self.functions = writer, functions

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        return lambda *args: self.writer.do(CALL, function, args, {}, [each for each in args if is_written(each)])


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


def _into(writer: Statements, called: tuple[Any, Any, Any], out: Any, sign: str | None = None) -> Any:
    """Call a function with arguments, that writes its result into an array."""
    function, args, named = called
    if not is_written(out):
        raise CannotWriteError("a constant is written to")
    if out.name in writer.scalars:  # numbers cannot be written to: `a += b` makes another one
        return writer.do(CALL, function, args, named)
    function(*plain(list(args)), **plain(named), out=plain(out))
    named = named if sign else {**named, "out": out}
    writer.add([], False, f"{{1}} {sign}= {{2}}" if sign else CALL, (function, args, named), [out])
    return out


def _method(self: Any, name: str, *args: Any, **named: Any) -> Any:
    """Call a method, and write that down."""
    if any(map(is_written, [*args, *named.values()])):
        raise CannotWriteError(f"an array is an argument of .{name}")
    writer, function = writer_of([self]), getattr(np.ndarray, name)
    given = [writer.text(each, []) for each in args]
    given += [f"{key}={writer.text(value, [])}" for key, value in named.items()]
    return writer.do(f"{{1}}.{name}({', '.join(given)})", lambda x: function(x, *args, **named), (self,))


def _typed(args: Sequence[Any]) -> Any:
    """Return arguments with arrays for numbers, in the dtype that all others have: NumPy finds it anew each time."""
    dtypes = {each.dtype for each in args if isinstance(each, np.ndarray)}
    if len(dtypes) != 1 or (dtype := dtypes.pop()).kind != "f":
        return args
    return [Argument(np.array(each, dtype)) if type(each) in (int, float) else each for each in args]


def _is_basic(index: Any) -> bool:
    """Return whether an index has no array in it."""
    parts = index if type(index) is tuple else (index,)
    return all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts)


def _put(array: np.ndarray, index: Any, value: Any) -> None:
    array[index] = value


def _is_part(part: Any, value: np.ndarray) -> bool:
    """Return whether an array is the very part of another one to which it is assigned."""
    if not isinstance(part, np.ndarray) or (part.shape, part.strides) != (value.shape, value.strides):
        return False
    return part.dtype == value.dtype and part.__array_interface__["data"] == value.__array_interface__["data"]
