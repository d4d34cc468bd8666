"""Arrays that compute as NumPy's and write down, as statements of Python, what is done to them.

They are arrays in the memory of others: what is written in place, and what is a view, is so in the statements, too. A
statement that is run again does the same to other numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinMethodType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gbackprop.array import RecordedArray
from gbackprop.base.recording.arrays import MAKING

VIEWS = ("reshape", "transpose", "swapaxes", "squeeze", "ravel", "diagonal")
"""Methods whose result may be a view."""

METHODS = (*VIEWS, "astype", "copy", "flatten", "repeat", "take", "argmax", "argmin", "cumsum", "nonzero", "fill", "dot")
"""Methods that are written down; others that NumPy computes by its functions are so anyway."""

ERRORS = {"divide": "call", "over": "call", "under": "call", "invalid": "call"}
"""How errors of arithmetic are treated while statements are written: what differs belongs to a statement."""


class CannotWriteError(Exception):
    """What is done reads a number, or is done outside of NumPy."""


class Constant(NamedTuple):
    """An argument that is the same in each call."""

    value: Any


class Statement(NamedTuple):
    """A line, with the names that it gives and takes, and how errors of arithmetic are treated there."""

    given: list[str]
    text: str
    taken: list[str]
    errors: tuple[tuple[str, str], ...]
    writes: bool


class Writer:
    """The statements so far.

    Attributes
    ----------
    statements : list of Statement
    scope : dict of str to object
        What statements refer to by name: functions and constants.
    """

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.scope: dict[str, Any] = {}
        self.names: dict[Any, str] = {}  # of objects in the scope
        self.roots: dict[str, str] = {}  # of each array, that in whose memory it is
        self.bytes: dict[str, int] = {}
        self.written: Counter[str] = Counter()  # how often each root was written to
        # by its root, an array that is the outer product of two, and how often these three were written to
        self.products: dict[str, tuple[Written, Written, list[int]]] = {}
        self.scalars: set[str] = set()  # results that are numbers, not arrays
        self.count = 0

    def input(self, value: np.ndarray, name: str) -> Written:
        """Return an array that statements call by a name."""
        array = value.view(Written)
        array.writer, array.name = self, name
        self.roots[name], self.bytes[name] = name, value.nbytes
        return array

    def constant(self, value: np.ndarray) -> Written:
        """Return an array that is the same in each call, but for its numbers."""
        self.scope[name := f"c{len(self.scope)}"] = value
        return self.input(value.copy(), name)

    def do(self, text: str, function: Any, args: Sequence[Any], named: Any = None, writes: Any = ()) -> Any:
        """Call a function, and write that down; `text` says how, with braces where its name and arguments stand."""
        named = named or {}
        taken: list[str] = []
        given = [self.text(each, taken) for each in args]
        given += [f"{key}={self.text(value, taken)}" for key, value in named.items()]
        result = function(*plain(list(args)), **plain(named))
        found = [*result] if isinstance(result, tuple | list) else [] if result is None else [result]
        bases = [each for each in args if isinstance(each, Written)]
        if bases and len(found) == 1 and (view := self._view(found[0], bases[0])) is not None:
            return view
        arrays = [self._wrapped(each, bases) for each in found]
        line = text.format(self.text(function, []) if "{0}" in text else "", *given, all=", ".join(given))
        names = [each.name for each in arrays]
        if names:
            line = f"{', '.join(names)}{',' if isinstance(result, tuple | list) else ''} = {line}"
        errors = tuple((k, v) for k, v in np.geterr().items() if v != ERRORS[k])
        self.statements.append(Statement(names, line, taken, errors, bool(writes)))
        self.write(writes)
        if len(writes) == 3:
            self.note(function, args, args[2])
        if result is None or writes:
            return None
        if not isinstance(result, tuple | list):
            return arrays[0]
        return type(result)(*arrays) if hasattr(result, "_fields") else type(result)(arrays)

    def _view(self, value: Any, base: Written) -> Written | None:
        """Return a result that has all numbers of an array, in their order in memory, as that array in another shape."""
        base = base if base.whole is None else base.whole
        own = plain(base)
        if not isinstance(value, np.ndarray) or not (value.flags.c_contiguous and own.flags.c_contiguous):
            return None
        if value.nbytes != own.nbytes or value.dtype != own.dtype or not own.nbytes or base.name in self.scalars:
            return None
        if value.__array_interface__["data"] != own.__array_interface__["data"]:
            return None
        if value.shape == own.shape:
            return base
        array = self._wrapped(value, [base])
        array.whole = base
        text = f"{array.name} = {base.name}.reshape({', '.join(map(str, value.shape)) or '()'})"
        self.statements.append(Statement([array.name], text, [base.name], (), False))
        return array

    def write(self, arrays: Sequence[Any]) -> None:
        """Note that arrays are written to."""
        for each in arrays:
            if not isinstance(each, Written):
                raise CannotWriteError("a constant is written to")
            self.written[self.roots[each.name]] += 1

    def note(self, function: Any, args: Sequence[Any], out: Any) -> None:
        """Note that an array was written, if it was, that is the outer product of two."""
        a, b = (*args, None, None)[:2]
        if getattr(function, "__name__", "") in ("multiply", "outer") and is_written(a) and is_written(b):
            if a.size * b.size == out.size:
                self.products[self.roots[out.name]] = a, b, self._times(a, b, out)

    def factors(self, array: Written) -> tuple[Written, Written] | None:
        """Return two arrays whose outer product is all of an array; None if none are known."""
        a, b, times = self.products.get(self.roots[array.name], (array, array, []))
        return (a, b) if times == self._times(a, b, array) and a.size * b.size == array.size else None

    def _times(self, *arrays: Written) -> list[int]:
        return [self.written[self.roots[each.name]] for each in arrays]

    def _wrapped(self, value: Any, bases: Sequence[Written]) -> Written:
        self.count += 1
        array = self.input(np.asarray(value), f"t{self.count}")
        if not isinstance(value, np.ndarray):
            self.scalars.add(array.name)
        for base in bases:
            if np.may_share_memory(plain(array), plain(base)):
                self.roots[array.name] = self.roots[base.name]
        return array

    def text(self, value: Any, taken: list[str]) -> str:
        """Return an argument as text; names of arrays are added to `taken`."""
        kind = type(value)
        if kind is Written:
            if value.writer is not self:
                raise CannotWriteError("an array was made outside of what is written down")
            taken.append(value.name)
            return value.name
        if value is None or kind in (bool, int, str) or (kind is float and np.isfinite(value)):
            return repr(value)
        if value is Ellipsis:
            return "..."
        if kind in (tuple, list):
            inside = ", ".join(self.text(each, taken) for each in value)
            return f"[{inside}]" if kind is list else f"({inside}{',' if len(value) == 1 else ''})"
        if kind is Constant:
            value = value.value
        elif kind is slice:
            return f"slice({', '.join(self.text(each, taken) for each in (value.start, value.stop, value.step))})"
        elif kind is dict:
            return "{" + ", ".join(f"{self.text(k, taken)}: {self.text(v, taken)}" for k, v in value.items()) + "}"
        if isinstance(value, RecordedArray):
            raise CannotWriteError("an array of another kind")
        key = value if isinstance(value, BuiltinMethodType | MethodType) else id(value)  # `np.add.reduce` is made anew
        name = self.names.setdefault(key, f"k{len(self.names)}")
        self.scope[name] = value
        return name


class Written(np.ndarray, RecordedArray):
    """An array that computes and writes down what is done to it."""

    writer: Any = None  # of views that NumPy makes by itself there is none: they cannot be used
    name = ""
    whole: Any = None  # the array of which this one is all numbers, in another shape

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, out: Any = (), **named: Any) -> Any:
        writer = writer_of([*args, *out, *named.values()])
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        named = {key: value for key, value in named.items() if (key, value) not in DEFAULTS}
        if out:
            if len(out) > 1:
                raise CannotWriteError("several results are written")
            return self._into(writer, function, args, named, out[0])
        sign = INFIX.get(ufunc.__name__) if method == "__call__" and not named else None
        args = _typed(args) if method == "__call__" else args
        text = f"{{1}} {sign} {{2}}" if sign else "{0}({all})"
        return writer.do(text, function, args, named, args[:1] if method == "at" else ())

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name in PLAIN:
            return function(*plain(list(args)), **plain(kwargs))
        out, writer = kwargs.get("out"), writer_of([*args, *kwargs.values()])
        if name in WRITING:
            return writer.do("{0}({all})", function, args, kwargs, args[:1])
        if out is None:
            return writer.do("{0}({all})", function, args, kwargs)
        named = {key: value for key, value in kwargs.items() if key != "out"}
        return self._into(writer, function, args, named, out)

    @staticmethod
    def _into(writer: Writer, function: Any, args: Any, named: Any, out: Any) -> Any:
        if not isinstance(out, Written):
            raise CannotWriteError("a constant is written to")
        if out.name in writer.scalars:  # numbers cannot be written to: `a += b` makes another one
            return writer.do("{0}({all})", function, args, named)
        line = writer.text(function, [])
        taken: list[str] = []
        sign = INFIX.get(function.__name__) if args and args[0] is out and not named else None
        args = _typed(args) if isinstance(function, np.ufunc) else args
        given = [writer.text(each, taken) for each in args]
        if sign:
            function(*plain(list(args)), out=plain(out))
            errors = tuple((k, v) for k, v in np.geterr().items() if v != ERRORS[k])
            writer.write([out])
            writer.statements.append(Statement([], f"{out.name} {sign}= {given[1]}", taken, errors, True))
            return out
        given += [f"{key}={writer.text(value, taken)}" for key, value in {**named, "out": out}.items()]
        function(*plain(list(args)), **plain(named), out=plain(out))
        errors = tuple((k, v) for k, v in np.geterr().items() if v != ERRORS[k])
        writer.write([out])
        writer.statements.append(Statement([], f"{line}({', '.join(given)})", taken, errors, True))
        writer.note(function, args, out)
        return out

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS:
            return partial(self._method, name)
        if name in ("T", "mT"):
            return object.__getattribute__(self, "writer").do(f"{{1}}.{name}", lambda x: getattr(x, name), (self,))
        if name == "real":
            return self
        if name in READING:
            _read(name)
        return super().__getattribute__(name)

    def _method(self, name: str, *args: Any, **named: Any) -> Any:
        if any(isinstance(each, Written) for each in [*args, *named.values()]):
            raise CannotWriteError(f"an array is an argument of .{name}")
        if name == "fill":
            return self.writer.do("{1}.fill({2})", np.ndarray.fill, (self, *args), named, (self,))
        if name == "reshape" and not named:
            found = super().reshape(*args)
            if found.shape == self.shape and found.strides == self.strides:
                return self
        function = getattr(np.ndarray, name)
        given: list[str] = [self.writer.text(each, []) for each in args]
        given += [f"{key}={self.writer.text(value, [])}" for key, value in named.items()]
        text = f"{{1}}.{name}({', '.join(given).replace('{', '{{').replace('}', '}}')})"
        return self.writer.do(text, lambda x: function(x, *args, **named), (self,))

    def __getitem__(self, index: Any) -> Any:
        if not _is_basic(index):
            return writer_of([self, index]).do("{1}[{2}]", lambda x, i: x[i], (self, index))
        found = plain(self)[index]
        if isinstance(found, np.ndarray) and (found.shape, found.strides) == (self.shape, self.strides):
            return self
        return self.writer.do("{1}[{2}]", lambda x, i: x[i], (self, Constant(index)))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, Written) and value.base is not None and _is_part(self, index, value):
            return  # a[i] += b has written into a[i] already
        given = Constant(index) if _is_basic(index) else index
        writer_of([self, index, value]).do("{1}[{2}] = {3}", _put, (self, given, value), {}, (self,))

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __array_namespace__(self) -> Any:
        """Return NumPy, but that new arrays are written down."""
        return Namespace(self.writer)

    def module(self, functions: ModuleType) -> Any:
        """Return a module whose functions, which write into arrays, are written down as calls."""
        return Calls(self.writer, functions)

    def made(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a new array of a function, written down as a call."""
        return self.writer.do("{0}({all})", function, args)

    def _refused(self, *args: Any) -> NoReturn:
        _read("a number")

    __bool__ = __float__ = __int__ = __index__ = __complex__ = __contains__ = _refused
    __reduce__ = __reduce_ex__ = __deepcopy__ = __copy__ = _refused


DEFAULTS = (("dtype", None), ("where", True), ("keepdims", False))
"""Arguments that say what holds without them."""

INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "matmul": "@"}

PLAIN = ("shape", "ndim", "size", "result_type", "can_cast", "may_share_memory", "shares_memory", "iscomplexobj")
WRITING = ("copyto", "put", "put_along_axis", "place", "putmask", "fill_diagonal")
READING = ("item", "tolist", "tobytes", "data", "ctypes", "view", "sort", "partition", "resize", "setfield", "put")


class Namespace:
    """NumPy, but that new arrays are written down."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in MAKING or name == "ascontiguousarray":
            return lambda *args, **named: self.writer.do("{0}({all})", found, args, named)
        return found

    @property
    def lib(self) -> Any:
        """Return views of any strides, which NumPy makes without asking an array."""
        as_strided = partial(self.writer.do, "{0}({all})", np.lib.stride_tricks.as_strided)
        return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=lambda *args: as_strided(args)))

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        """Return an array that is written down as it is or in another dtype, and what else is given as NumPy does."""
        if not isinstance(x, Written):
            return np.asarray(x, dtype)
        return x if dtype is None or x.dtype == np.dtype(dtype) else x.astype(dtype)


class Calls:
    """A module whose functions, which write into arrays, are written down as calls."""

    def __init__(self, writer: Writer, functions: ModuleType) -> None:
        self.writer, self.functions = writer, functions

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        return lambda *args: self.writer.do("{0}({all})", function, args, {}, [a for a in args if is_written(a)])


def _is_basic(index: Any) -> bool:
    """Return whether an index has no array in it."""
    parts = index if type(index) is tuple else (index,)
    return all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts)


def _typed(args: Sequence[Any]) -> Sequence[Any]:
    """Return arguments with arrays for numbers, in the dtype that all others have: NumPy finds it anew each time."""
    dtypes = {each.dtype for each in args if isinstance(each, np.ndarray)}
    if len(dtypes) != 1 or not (dtype := dtypes.pop()).kind == "f":
        return args
    return [Constant(np.array(each, dtype)) if type(each) in (int, float) else each for each in args]


def is_written(value: Any) -> bool:
    """Return whether a value is an array that writes down what is done to it."""
    return isinstance(value, Written)


def writer_of(values: Any) -> Writer:
    """Return the writer of the arrays in arguments."""
    for value in values:
        if isinstance(value, Written):
            if value.writer is None:
                raise CannotWriteError("an array was made outside of what is written down")
            return value.writer
        if isinstance(value, list | tuple) and (found := _inside(value)):
            return found
    raise CannotWriteError("no array is written down")


def _inside(values: Any) -> Any:
    try:
        return writer_of(values)
    except CannotWriteError:
        return None


def plain(value: Any) -> Any:
    """Return arguments with arrays of NumPy."""
    if isinstance(value, Written):
        return np.ndarray.view(value, np.ndarray)
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, list | tuple):
        return type(value)(plain(each) for each in value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


def _put(array: np.ndarray, index: Any, value: Any) -> None:
    array[index] = value


def _is_part(array: Written, index: Any, value: Written) -> bool:
    """Return whether a value is the very part of an array to which it is assigned."""
    try:
        part = plain(array)[plain(index)]
    except IndexError:
        return False
    own = plain(value)
    return (
        isinstance(part, np.ndarray)
        and part.__array_interface__["data"] == own.__array_interface__["data"]
        and (part.shape, part.strides, part.dtype) == (own.shape, own.strides, own.dtype)
        and np.may_share_memory(part, plain(array))
    )


def _read(name: str) -> NoReturn:
    raise CannotWriteError(f"{name} is read")
