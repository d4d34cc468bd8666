"""Readers of NumPy's moves of numbers: shapes, indices, assignments, and arrays beside each other."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gbackprop.base.recording.arrays import SHAPED, TURNS
from gbackprop.base.recording.refused import BatchSizeError, MissingFunctionError, NoDerivativeError
from gbackprop.base.recording.tape import mapped, refs
from gbackprop.interop.recording.elementwise import Reader
from gbackprop.interop.recording.steps import ROWS, StepReader, Value
from gbackprop.layers.embedding import OneHot


def places_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return the number of each place of an array."""
    return np.arange(prod(shape)).reshape(shape)


def fixed(value: Any) -> Any:
    """Return an argument with plain arrays; one that was computed is an error."""
    if not isinstance(value, Value):
        return mapped(fixed, value)
    if value.constant is None:
        raise TypeError("an array that was computed is an index or a size")
    return value.constant


def index_of(c: StepReader, x: Value, index: Any) -> Any:
    """Return an index with plain arrays; a slice of the samples that ends at a fixed number is an error."""
    parts = fixed(index if isinstance(index, tuple) else (index,))
    axes = [0 if p is None or p is Ellipsis else np.ndim(p) if np.asarray(p).dtype.kind == "b" else 1 for p in parts]
    for i, part in enumerate(parts):
        rest = any(p is Ellipsis for p in parts[:i])
        at = len(x.shape) - sum(axes[i:]) if rest else sum(axes[:i])
        if x.batch and at == x.batch[0] and isinstance(part, slice):
            count = x.batch[1]
            if part.start not in (None, 0, -count) or part.stop not in (None, count):
                c.refuse(BatchSizeError, "a slice of the samples begins or ends at a fixed number; write len(x)")
    return parts if isinstance(index, tuple) else parts[0]


def move(c: StepReader, x: Value, *args: Any, **kwargs: Any) -> Any:
    """Read any function that only moves numbers, by what it does to the numbers of places."""
    function = c.step.function
    given = (index_of(c, x, args[0]),) if c.step.name == "getitem" else fixed(args)
    named = fixed(kwargs)
    if c.step.name in SHAPED and "F" not in [part for part in (*given, *named.values()) if isinstance(part, str)]:
        places = places_of(c.out.shape)
    else:
        found = function(places_of(x.shape), *given, **named)
        places = found[c.k] if isinstance(found, list | tuple) else found
    if x.places is not None:
        return placed(c, x, x.places[places.ravel()])
    if c.step.name in TURNS:
        order = function(np.empty(range(len(x.shape))), *given, **named).shape
        c.whole = order[:1] != (0,) or not x.batch
        ndim = len(order)
        return c.op("transpose", c.operand(x), axes=tuple(i - ndim for i in (order[1:] if c.plain else order)))
    c.among(x)
    name = c.reading.node(x, x.features)
    if c.step.name == "getitem":
        index = _basic(given[0], len(x.shape))
        if index is not None and not np.array_equal(places.ravel(), np.arange(prod(x.shape))):
            plain = c.plain and x.batch == (0, 1) and isinstance(index[0], slice)
            whole = c.reading.shaped(name, x.features if plain else x.shape)
            return c.op("getitem", whole, index=index[1:] if plain else index)
    return c.reading.gathered(name, places, c.shape)


def _basic(index: Any, ndim: int) -> tuple[Any, ...] | None:
    """Return an index of integers, slices and None with its … written out, or None."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(p is None or p is Ellipsis or isinstance(p, int | np.integer | slice) for p in parts):
        return None
    if any(isinstance(p, bool) for p in parts):
        return None
    parts = [int(p) if isinstance(p, np.integer) else p for p in parts]
    count = ndim - sum(p is not None and p is not Ellipsis for p in parts)
    at = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
    return (*parts[:at], *[slice(None)] * count, *parts[at + 1 :])


def _indexed(c: StepReader, x: Value, index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    computed = [i for i, p in enumerate(parts) if isinstance(p, Value) and p.constant is None]
    if not computed:
        return move(c, x, index)
    if len(computed) == 1 and parts[computed[0]].kind in "iu":
        (i,) = computed
        if i == 0 and len(parts) == 1 and not x.batch:  # a table of vectors
            flat = c.reading.node(x, (x.shape[0], prod(x.shape[1:])))
            c.among(parts[0])
            hot = _is_at(c, parts[0], x.shape[0])
            return c.op("matmul", _checked(c, hot, hot, keepdims=True), flat)
        own = isinstance(parts[0], Value) and parts[0].kind == ROWS
        if own and i == 1 and len(parts) == 2 and len(x.shape) == 2 and parts[1].batch == (0, 1):
            return _chosen(c, x, parts[1])
    c.refuse(MissingFunctionError, "an index that was computed is not in the table: multiply by `i[..., None] == "
             "np.arange(size)`, or choose by np.where")  # fmt: skip


def _taken(c: StepReader, x: Value, indices: Any, axis: Any = None) -> Any:
    if isinstance(indices, Value) and indices.constant is None and axis in (0, -len(x.shape)):
        return _indexed(c, x, indices)
    return move(c, x, indices, axis)


def _is_at(c: StepReader, index: Value, size: int) -> str:
    """Append nodes that are 1 at an index and 0 elsewhere; all are 0 where it is none of -size to size − 1."""
    if index.kind in "iu" and len(index.pieces) == 1 and index.pieces[0] in c.reading.integers:
        return c.add(OneHot(size), index.pieces[0])
    name = c.operand(index)
    wide = c.reading.shaped(name, (*c.reading.shapes[name], 1))
    found = []
    for first in (0, -size):
        numbers = c.operand(np.arange(first, first + size, dtype="float64"))
        found.append(c.op("equal", wide, numbers))
    return c.op("add", *found)


def _checked(c: StepReader, found: str, hot: str, **keep: bool) -> str:
    """Append what is not a number where `hot` is 0 everywhere; a `OneHot` checks its indices."""
    sure = isinstance(c.reading.nodes[hot][0], OneHot)
    return found if sure else c.op("divide", found, c.op("sum", hot, axis=-1, **keep))


def _chosen(c: StepReader, x: Value, index: Value) -> str:
    c.among(x, index)
    hot = _is_at(c, index, x.shape[-1])
    one = c.op("where", hot, c.operand(x), c.operand(np.zeros(())))  # 0 times the infinite others is no number
    return _checked(c, c.op("sum", one, axis=-1), hot)


def _along(c: StepReader, x: Value, indices: Any, axis: Any = -1) -> Any:
    if c.value(indices).constant is not None:
        return move(c, x, indices, axis)
    if c.axis(x, axis) != -1 or indices.shape[-1] != 1 or not x.batch:
        raise TypeError("expected one index along the last axis, of each sample")
    squeezed = replace(indices, shape=indices.shape[:-1], places=None)
    squeezed.pieces = [c.reading.node(indices, squeezed.features)]
    found = _chosen(c, x, squeezed)
    return c.reading.shaped(found, c.shape)


def placed(c: StepReader, like: Value, places: np.ndarray) -> Value:
    """Return the result as the numbers at places of the pieces of another value."""
    sizes = [prod(c.reading.shapes[name]) for name in like.pieces]
    ends = np.cumsum(sizes)
    owner = np.searchsorted(ends, places, side="right")
    used = np.unique(owner)
    pieces, shift = [], np.zeros(len(sizes), int)
    start = 0
    for i in used.tolist():
        shift[i] = start - (ends[i] - sizes[i])
        start += sizes[i]
        pieces.append(like.pieces[i])
    new = c.out
    new.pieces, new.places = pieces, places + shift[owner]
    if len(pieces) == 1 and np.array_equal(new.places, np.arange(start)):
        new.places = None
    return new


KINDS = {"f": "floats", "i": "integers", "u": "integers", "b": "booleans"}
"""Words for kinds of numbers."""


def _check_assigned(c: StepReader, b: Value) -> None:
    """Refuse what an array of integers or booleans takes as other numbers: floats, or integers beyond its range."""
    (array,), given = ([c.reading.two.values[each].dtype for each in refs([part])] for part in c.step.args[::2])
    same = b.constant is not None and (b.constant == b.constant.astype(array)).all()
    if array.kind in "iub" and not same and not any(np.can_cast(each, array) for each in given):
        kinds = KINDS[b.kind], KINDS[array.kind]
        one, other = kinds if kinds[0] != kinds[1] else (given[0], array)
        c.refuse(NoDerivativeError, f"an assignment of {one} to an array of {other} makes other numbers of them")


def _assigned(c: StepReader, x: Value, index: Any, value: Any) -> Value:
    """Read `x[index] = value`: the result has the numbers of x, and those of the value at the index."""
    target = places_of(x.shape)[index_of(c, x, index)]
    if not target.size:  # nothing is written
        c.out.pieces, c.out.places, c.out.constant = x.pieces, x.places, x.constant
        return c.out
    b = c.value(value)
    _check_assigned(c, b)
    source = np.broadcast_to(places_of(b.shape), target.shape)
    for each in (x, b):
        if not each.pieces:
            c.reading.node(each, each.features)
    before = np.arange(prod(x.shape)) if x.places is None else x.places
    given = np.arange(prod(b.shape)) if b.places is None else b.places
    both = Value(x.shape, x.batch, True, "f", pieces=x.pieces + b.pieces)
    places = before.copy()
    places[target.ravel()] = sum(prod(c.reading.shapes[name]) for name in x.pieces) + given[source.ravel()]
    return placed(c, both, places)


def _padded(c: StepReader, x: Value, pad_width: Any, mode: str = "constant", constant_values: float = 0) -> str:
    widths = [tuple(map(int, pair)) for pair in np.broadcast_to(pad_width, (len(x.shape), 2))]
    c.among(x)
    more = {"value": float(constant_values)} if mode == "constant" else {}
    return c.op("pad", c.operand(x), widths=tuple(widths[1:] if c.plain else widths), mode=mode, **more)


def beside(row: str) -> Reader:
    """Return a reader of concatenate or stack."""

    def read(c: StepReader, arrays: Any, axis: Any = 0) -> str:
        values = [c.value(each) for each in arrays]
        c.among(*values)
        at = c.axes(c.out, axis)[0] if row == "concatenate" else int(axis) - len(c.out.shape) * (axis >= 0)
        taken = [c.operand(each) for each in values]
        return taken[0] if row == "concatenate" and len(taken) == 1 else c.op(row, *taken, axis=at)

    return read


def _hstack(c: StepReader, arrays: Any) -> str:
    return beside("concatenate")(c, arrays, 0 if len(c.out.shape) == 1 else 1)


PLACING: dict[str, Reader] = {
    **dict.fromkeys((*SHAPED, *TURNS, "broadcast_to", "flip", "fliplr", "flipud", "roll", "rot90", "repeat", "tile",
                     "diagonal", "linalg.diagonal", "rollaxis", "sliding_window_view", "split", "array_split",
                     "hsplit", "vsplit", "dsplit", "unstack"), move),
    "getitem": _indexed, "setitem": _assigned, "take": _taken, "take_along_axis": _along, "pad": _padded,
    **dict.fromkeys(("concatenate", "concat"), beside("concatenate")), "stack": beside("stack"), "hstack": _hstack,
}  # fmt: skip
"""The readers by the functions' names."""
