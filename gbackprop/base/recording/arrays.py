"""Arrays that compute as NumPy does and write down what is done to them; what is made of the record is elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gbackprop.array import RecordedArray
from gbackprop.base.recording.refused import (
    BroadcastError,
    InPlaceError,
    LeakedArrayError,
    MissingFunctionError,
    NumberReadError,
    PlainArrayError,
    called,
    user_line,
)
from gbackprop.base.recording.tape import (
    How,
    Ref,
    Tape,
    assigned,
    assigned_wide,
    cast,
    cast_wide,
    indexed,
    mapped,
    refs,
)

PLAIN = ("shape", "ndim", "size", "result_type", "can_cast", "iscomplexobj", "isrealobj", "shares_memory",
         "may_share_memory", "broadcast_shapes", "array_repr", "array_str", "array2string")  # fmt: skip
"""Functions that return no array, and need no record."""

SHAPING = ("repeat", "tile", "pad", "resize", "split", "array_split", "delete")
CHOOSE = "np.where(condition, a, b) chooses number by number"
ROWS = "for a[i] of a plain array a: (np.arange(len(a)) == i[:, None]) @ a"

WRITING = ("copyto", "put", "put_along_axis", "place", "putmask", "fill_diagonal")
READING = ("item", "tolist", "tobytes", "tofile", "dump", "dumps", "data")
COUNTING = ("nonzero", "flatnonzero", "argwhere", "unique", "unique_values", "compress", "extract", "trim_zeros")
"""Functions whose result has a shape that depends on numbers."""

DEFAULTS = {"out": None, "dtype": None, "where": True}
"""Arguments that readers of functions need not know where they are as NumPy has them."""

FILLED = {"zeros_like": 0.0, "empty_like": 0.0, "ones_like": 1.0}
TURNS = ("transpose", "swapaxes", "moveaxis", "permute_dims", "matrix_transpose")
SHAPED = ("reshape", "ravel", "squeeze", "expand_dims", "atleast_1d", "atleast_2d", "atleast_3d")


class Recorded(NDArrayOperatorsMixin, RecordedArray):
    """An array that computes and writes down what is done to it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tape: Tape, number: int) -> None:
        self.tape, self.number, self.version = tape, number, 0
        self.base: Recorded | None = None
        # of a view: the base's version, and the function's name, itself, and its arguments after the base
        self.seen, self.how = 0, How("", None, (), {})

    # ------------------------------------------------------------------------------------------------------- calls

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        tape = tape_of((args, kwargs, out))
        if method not in ("__call__", "reduce"):
            tape.refuse(MissingFunctionError, f"np.{ufunc.__name__}.{method} is not in the table")
        if method == "__call__" and kwargs.get("where", True) is not True:
            tape.refuse(MissingFunctionError, f"np.{ufunc.__name__} with where= leaves numbers as they are; {CHOOSE}")
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.reduce"
        found = call(tape, name, getattr(ufunc, method), args, kwargs)
        return found if out is None else _written(tape, out[0], found)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        tape, out = tape_of((args, kwargs)), kwargs.get("out")
        name = f"{function.__module__}.{function.__name__}".removeprefix("numpy.").removeprefix("lib.stride_tricks.")
        if name in PLAIN:
            return function(*mapped_values(args), **mapped_values(kwargs))
        if name == "put_along_axis" and isinstance(args[0], Recorded):
            return _put_along_axis(*args, **kwargs)
        if name in WRITING:
            tape.refuse(InPlaceError, f"np.{name} writes into an array; use np.where, or `a[index] = value`")
        if _counts(name, args, kwargs):
            tape.refuse(NumberReadError, f"{called(name)} gives a shape that depends on numbers; {CHOOSE}")
        if name in SHAPING:  # places where to split are numbers, not an array that is computed with
            args = (args[0], *(each.tolist() if isinstance(each, np.ndarray) else each for each in args[1:]))
        if name in FILLED or name == "full_like":
            return _filled(tape, function, args, kwargs, FILLED.get(name))
        if out is None:
            return call(tape, name, function, args, kwargs)
        return _written(tape, out, call(tape, name, function, args, {k: v for k, v in kwargs.items() if k != "out"}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in READING:
            self.tape.refuse(NumberReadError, f"`.{name}` reads numbers from an array, which must stay one")
        function = getattr(np, name, None)
        if not hasattr(np.ndarray, name) or not callable(function) or name in ("sort", "resize", "partition"):
            self.tape.refuse(MissingFunctionError, f"`.{name}` of an array is not in the table")
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, Recorded) and part.dtype.kind == "b" for part in parts):
            self.tape.refuse(NumberReadError, f"an index of booleans gives a shape that depends on numbers; {CHOOSE}")
        return call(tape_of((self, index)), "getitem", indexed, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        tape_of((self, value, index))
        same_place = isinstance(value, Recorded) and value.base is self and value.how[::2] == ("getitem", (index,))
        if same_place:
            return  # `a[i] += b` has written into a[i] already
        self.write(index, value)

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("iteration over an array without axes")
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Return the array in another shape."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Any) -> Any:
        """Return the array with its axes in another order."""
        return np.transpose(self, None if not axes else axes[0] if len(axes) == 1 else axes)

    def flatten(self, order: Any = "C") -> Any:
        """Return a copy with one axis."""
        return np.ravel(self, order=order).copy()

    def copy(self, order: Any = "C") -> Any:
        """Return a copy, in the order of rows as NumPy's method does."""
        return np.copy(self, order=order)

    def clip(self, *bounds: Any, **kwargs: Any) -> Any:
        """Return the array within bounds, of which the second may be left out."""
        return np.clip(self, *bounds, *(None,) * (len(bounds) == 1), **kwargs)

    def astype(self, dtype: Any, copy: bool = True, **kwargs: Any) -> Any:
        """Return the array in another dtype."""
        return call(self.tape, "astype", cast_wide if self.tape.wide else cast, (self, np.dtype(dtype)), {})

    def __array_namespace__(self) -> Any:
        """Return the module that makes new arrays of this kind."""
        return Namespace(self.tape)

    # ------------------------------------------------------------------------------------------------- plain values

    value = property(lambda self: self.tape.values[self.current()])
    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    dtype = property(lambda self: self.value.dtype)
    itemsize = property(lambda self: self.value.itemsize)
    nbytes = property(lambda self: self.value.nbytes)
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.swapaxes(self, -1, -2))
    real = property(lambda self: self)

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"recorded array of shape {self.shape}"

    # --------------------------------------------------------------------------------------------------- refused

    def _read(self, how: str) -> NoReturn:
        line = user_line()
        if re.search(r"\]\s*=[^=]", line.source) and how != "bool":
            self.tape.refuse(PlainArrayError, ASSIGNED)
        instead = ROWS if how == "index" else CHOOSE
        words = f"{how}() of an array reads a number, and what follows would be a constant; {instead}"
        self.tape.refuse(NumberReadError, words)

    def __bool__(self) -> bool:
        self._read("bool")

    def __float__(self) -> float:
        self._read("float")

    def __int__(self) -> int:
        self._read("int")

    def __index__(self) -> int:
        self._read("index")

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        if re.search(r"\]\s*=[^=]", user_line().source):
            self.tape.refuse(PlainArrayError, ASSIGNED)
        self.tape.refuse(PlainArrayError, "a recorded array would become a plain one, and lose its derivative; leave "
                         f"out np.asarray, write np.stack([a, b]) for np.array([a, b]), a @ b for a.dot(b), {ROWS}")

    # --------------------------------------------------------------------------------------------------- writes

    def current(self) -> int:
        """Return the number of the value; a view whose base was written since is taken again."""
        if not self.tape.open:
            raise LeakedArrayError(f"{user_line()}: {LEAKED}")
        if self.base is not None and self.base.tape.open:
            self.base.current()
            if self.base.version != self.seen:
                name, function, args, kwargs = self.how
                if not name:
                    self.tape.refuse(InPlaceError, "a part of an array is used after the array was written; copy it")
                self.number = call(self.tape, name, function, (self.base, *args), kwargs).number
                self.seen, self.version = self.base.version, self.version + 1  # views of this are taken again, too
        return self.number

    def write(self, index: Any, value: Any) -> None:
        """Make `a[index] = value` functional: the array, and all views of it, have a new value from now on."""
        tape = self.tape
        assign = assigned_wide if tape.wide else assigned
        if self.base is None:
            if self.number < tape.leaves:
                tape.refuse(InPlaceError, "the function writes into its input or a parameter; write `a = a + b` for "
                            "`a += b`, or take a copy first")  # fmt: skip
            self.number = call(tape, "setitem", assign, (self, index, value), {}).number
            self.version += 1
            return
        new = call(tape, "setitem", assign, (self, index, value), {})
        name, _, args, kwargs = self.how
        base = self.base
        if name == "getitem":
            base.write(args[0], new)
        elif name in SHAPED:
            base.write(..., np.reshape(new, base.shape))
        elif name in TURNS:
            order = self.how.function(np.empty(range(base.ndim)), *args, **kwargs).shape
            base.write(..., np.transpose(new, np.argsort(order).tolist()))
        elif name == "flip":
            base.write(..., np.flip(new, *args, **kwargs))
        else:
            tape.refuse(InPlaceError, f"the function writes into a view made by {name or 'a split'}; copy it first")


LEAKED = "an array of an earlier call is used; compute it anew in each call"

ASSIGNED = (
    "a recorded array is assigned to places of a plain one, which would make it a constant; collect the parts in a "
    "list and np.stack(parts, axis), or preallocate by np.zeros_like(x, shape=…) of an array that was computed"
)


def _put_along_axis(array: Any, indices: Any, values: Any, axis: int) -> None:
    """Write values at indices along an axis."""
    axis %= array.ndim
    across = np.indices(np.shape(indices), sparse=True)
    array[tuple(indices if i == axis else each for i, each in enumerate(across))] = values


class Namespace:
    """NumPy, but that new arrays are recorded ones."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def __getattr__(self, name: str) -> Any:
        name = {"empty": "zeros"}.get(name, name)  # what is in memory is no number to write down
        found = getattr(np, name)
        return partial(self._made, name, found) if name in MAKING else found

    def _made(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.tape.add(name, function(*args, **kwargs), args, kwargs, function)

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        """Return an array as a recorded one."""
        if not isinstance(x, Recorded):
            return Recorded(self.tape, self.tape.ref(np.asarray(x, dtype)).number)
        return x if dtype is None or x.dtype == np.dtype(dtype) else x.astype(dtype)

    ascontiguousarray = asarray


MAKING = ("zeros", "ones", "full", "arange", "eye", "identity", "linspace")
"""Functions of NumPy that make an array of no other."""


def recorded_in(value: Any) -> list[Recorded]:
    """Return the recorded arrays in arguments."""
    if isinstance(value, Recorded):
        return [value]
    inner = value.values() if type(value) is dict else value if isinstance(value, list | tuple) else ()
    return [each for part in inner for each in recorded_in(part)]


def mapped_values(value: Any) -> Any:
    """Return arguments with plain arrays."""
    return value.value if isinstance(value, Recorded) else mapped(mapped_values, value)


def tape_of(args: Any) -> Tape:
    """Return the tape of the arrays in arguments, all of which must be of this call."""
    tapes = [each.tape for each in recorded_in(args)]
    if any(tape is not tapes[0] or not tape.open for tape in tapes):
        tape = next((tape for tape in tapes if tape.open), Tape(Recorded))
        tape.refuse(LeakedArrayError, LEAKED)
    return tapes[0]


def call(tape: Tape, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute with the arrays' values and write the call down."""
    kwargs = {key: value for key, value in kwargs.items() if key not in DEFAULTS or value is not DEFAULTS[key]}
    given, named = tape.ref(args), tape.ref(kwargs)
    try:
        with np.errstate(all="ignore"):
            value = function(*tape.lowered(given), **tape.lowered(named))
    except (TypeError, ValueError, IndexError) as error:
        shapes = " and ".join(str(tape.values[number].shape) for number in refs((given, named)))
        kind = MissingFunctionError if isinstance(error, TypeError) else BroadcastError
        tape.refuse(kind, f"{called(name)} of shapes {shapes}: {str(error).strip()}")
    found = tape.add(name, value, given, named, function)
    base = args[0] if args and isinstance(args[0], Recorded) else None
    for each in found if isinstance(found, list) else [found]:
        part = tape.values[each.number]
        if base is not None and name != "setitem" and np.may_share_memory(part, base.value):
            each.base, each.seen = base, base.version
            each.how = each.how if isinstance(found, list) else How(name, function, args[1:], kwargs)
    return found


def _counts(name: str, args: Any, kwargs: Any) -> bool:
    """Return whether the shape of a function's result depends on numbers."""
    if name in SHAPING:
        return bool(recorded_in(args[1:2]))
    fewest = {"where": 1, "bincount": 2}.get(name, -1)  # with further arguments the shape follows from them
    return name in COUNTING or (len(args) <= fewest and "minlength" not in kwargs)


def _filled(tape: Tape, function: Any, args: Any, kwargs: Any, fill: float | None) -> Any:
    if fill is None and recorded_in((args[1:], kwargs)):
        tape.refuse(PlainArrayError, "np.full_like would make a constant of what was computed; use np.broadcast_to")
    value = function(*mapped_values(args), **mapped_values(kwargs))
    return tape.add("constant", value if fill is None else np.full_like(value, fill))


def _written(tape: Tape, target: Any, found: Any) -> Any:
    """Return what an in-place operation leaves: a recorded array is written, a plain one is replaced by the result."""
    if not isinstance(target, Recorded):
        if target.base is not None or target.shape != found.shape:
            tape.refuse(PlainArrayError, f"{ASSIGNED}; `a = a + b` for `a += b`")
        return found
    target.write(..., found)
    return target


def record(call_it: Callable[[dict[str, Recorded]], Any], leaves: Mapping[str, np.ndarray]) -> tuple[Tape, Any]:
    """Run a function of named arrays, those of floats in float64; return what it did, and its result."""
    tape = Tape(Recorded, wide=True)
    given = {name: tape.add("leaf", value, (name,)) for name, value in leaves.items()}
    tape.leaves = len(given)
    try:
        result = call_it(given)
        if tape.refused is not None:  # the function went on after an error
            raise tape.refused
        tape_of([result, *given.values()])
        return tape, Ref(result.current()) if isinstance(result, Recorded) else result
    except Exception:
        if tape.refused is not None:
            raise tape.refused from None
        raise
    finally:
        tape.open = False
