"""Rows of moves: numbers in another order or shape, some of them, or several times."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, like
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.axes import aligned, axis_of, broadcast, each_axis, integers, lead_of, summed_to
from gbackprop.layers.operations.row import Bound, LinearRow, inputs, numbers, strict, table

FREE = numbers(0)

# ---------------------------------------------------------------------------------------------- views of the same array


def _view(of: Callable[[Bound, Array], Array]) -> Any:
    """Return the rules of a view of an array, whose transpose writes through such a view of zeros."""

    def back(o: Bound, g: Array) -> Array:
        whole = array_module(g).zeros(lead_of(g, o.shape) + o.shapes[0], dtype=g.dtype)
        of(o, whole)[...] = g
        return whole

    return strict(of, back)


def _to_shape(of: Shape, *, shape: Any) -> Bound:
    sizes, total = integers("shape", shape), prod(of)
    if sizes.count(-1) == 1:
        known = prod(size for size in sizes if size != -1)
        sizes = tuple(total // known if size == -1 and known else size for size in sizes)
    if prod(sizes) != total or min(sizes, default=1) < 0:
        raise ValueError(f"shape: expected one of {total} numbers for features {of}, got {shape!r}")
    return Bound(shape=sizes)


def _ordered(of: Shape, *, axes: Any = None) -> Bound:
    given = tuple(range(-1, -len(of) - 1, -1)) if axes is None else each_axis(axes, of)
    if len(given) != len(of):
        raise ValueError(f"axes: expected all axes after the batch axis of features {of}, got {axes!r}")
    back = tuple(given.index(axis) - len(of) for axis in range(-len(of), 0))
    return Bound(shape=tuple(of[axis] for axis in given), axes=given, back=back)


def _transpose(x: Array, axes: tuple[int, ...]) -> Array:
    lead = x.ndim - len(axes)
    return x.transpose(*range(lead), *(axis + x.ndim for axis in axes))


def _wider(of: Shape, *, shape: Any) -> Bound:
    sizes = integers("shape", shape)
    if broadcast(of, sizes) != sizes:
        raise ValueError(f"shape: expected one to which features {of} broadcast, got {sizes}")
    return Bound(shape=sizes)


def _broadcast_to(o: Bound, x: Array) -> Array:
    wide = aligned(x, o.shapes[0], len(o.shape))
    return array_module(x).broadcast_to(wide, lead_of(x, o.shapes[0]) + o.shape)


def _indexed(of: Shape, *, index: Any) -> Bound:
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is None or part is Ellipsis or isinstance(part, slice | Integral) for part in parts):
        raise ValueError(f"index: expected integers, slices, None or … of the features, got {index!r} (use 'gather')")
    parts = parts if Ellipsis in parts else (*parts, Ellipsis)
    try:
        return Bound(shape=np.empty(of, bool)[parts].shape, index=parts)
    except IndexError as error:
        raise ValueError(f"index: expected one of features {of}, got {index!r} ({error})") from None


def _at(o: Bound, x: Array, features: Shape) -> tuple[Any, ...]:
    return (*(slice(None),) * (x.ndim - len(features)), *o.index)


def _flipped(of: Shape, *, axis: Any = None) -> Bound:
    return Bound(shape=of, axis=each_axis(axis, of))


# ------------------------------------------------------------- other moves: what they do to the numbers of the places


def places_of(shape: Shape) -> np.ndarray:
    """Return the number of each place of features."""
    return np.arange(prod(shape)).reshape(shape)


def _moving(places: np.ndarray, **options: Any) -> Bound:
    """Return a move that takes the numbers at some places of the flat features."""
    return Bound(shape=places.shape, places=np.array(places, order="C"), **options)


def _gather(x: Array, shape: Shape, places: np.ndarray) -> Array:
    return x.reshape(*lead_of(x, shape), -1)[..., like(places, x)]


def _scatter(g: Array, shape: Shape, places: np.ndarray) -> Array:
    """Add each number to its place in features of a shape: the transpose of `_gather`."""
    xp, lead, size = array_module(g), lead_of(g, places.shape), prod(shape)
    flat, at = g.reshape(*lead, -1), places.ravel()
    counts = np.bincount(at, minlength=size)
    if counts.max(initial=0) <= 1:
        whole = xp.zeros((*lead, size), dtype=g.dtype)
        whole[..., like(at, g)] = flat
        return whole.reshape(*lead, *shape)
    order = np.argsort(at, kind="stable")
    added = np.full((counts.max(), size), at.size)  # for each place what is added there; one past the end is 0
    added[np.arange(at.size) - np.repeat(np.cumsum(counts) - counts, counts), at[order]] = order
    more = xp.concatenate([flat, xp.zeros((*lead, 1), dtype=g.dtype)], axis=-1)
    total = more[..., like(added[0], g)]
    for row in added[1:]:
        total = total + more[..., like(row, g)]
    return total.reshape(*lead, *shape)


def _checked(name: str, value: Any, size: int) -> np.ndarray:
    index = asnumpy(value)
    if index.dtype.kind not in "iu" or (index.size and not (-size <= index.min() and index.max() < size)):
        raise ValueError(f"{name}: expected integers from {-size} to {size - 1}, got {value!r:.80}")
    return index % max(size, 1)


def _gathered(of: Shape, *, places: Any) -> Bound:
    return _moving(_checked("places", places, prod(of)))


def _scattered(of: Shape, *, places: Any, shape: Any) -> Bound:
    sizes = integers("shape", shape)
    index = _checked("places", places, prod(sizes))
    if index.shape != of:
        raise ValueError(f"places: expected one for each number of features {of}, got shape {index.shape}")
    return Bound(shape=sizes, places=index)


def _taken(of: Shape, *, indices: Any, axis: Any) -> Bound:
    at = axis_of(axis, of)
    index = _checked("indices", indices, of[at])
    return _moving(np.take(places_of(of), index, at), indices=index, axis=at)


def _rolled(of: Shape, *, shift: Any, axis: Any = None) -> Bound:
    axes, shifts = each_axis(axis, of), integers("shift", shift)
    if axis is None or len(shifts) != len(axes):
        raise ValueError(f"axis, shift: expected axes and a shift for each, got {axis!r} and {shift!r}")
    return _moving(np.roll(places_of(of), shifts, axes), shift=shifts, axis=axes)


def _repeated(of: Shape, *, repeats: int, axis: Any) -> Bound:
    at, (count,) = axis_of(axis, of), integers("repeats", repeats)
    if count < 1:
        raise ValueError(f"repeats: expected a positive integer, got {repeats!r}")
    return _moving(np.repeat(places_of(of), count, at), repeats=count, axis=at)


MODES = ("constant", "reflect", "edge", "wrap", "symmetric")


def _padded(of: Shape, *, widths: Any, mode: Any = "constant", value: float = 0) -> Bound:
    pairs = tuple(tuple(integers("widths", pair)) for pair in widths)
    if len(pairs) != len(of) or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ValueError(f"widths: expected (before, after) for each axis of features {of}, got {widths!r}")
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {MODES}, got {mode!r}")
    if mode != "constant":
        return _moving(np.pad(places_of(of), pairs, mode), pairs=pairs, arguments=repr(mode), frame=False)
    inside = tuple(slice(before, before + size) for (before, _), size in zip(pairs, of, strict=True))
    shape = tuple(size + sum(pair) for size, pair in zip(of, pairs, strict=True))
    arguments = f"'constant', constant_values={value}"
    return Bound(shape=shape, index=inside, value=value, pairs=pairs, arguments=arguments, frame=True)


def _pad(o: Bound, x: Array, value: float) -> Array:
    if not o.frame:
        return _gather(x, o.shapes[0], o.places)
    whole = array_module(x).full(lead_of(x, o.shapes[0]) + o.shape, value, dtype=x.dtype)
    whole[_at(o, whole, o.shape)] = x
    return whole


MOVE = strict(lambda o, x: _gather(x, o.shapes[0], o.places), lambda o, g: _scatter(g, o.shapes[0], o.places))

MOVES = table(
    LinearRow("reshape", "np.reshape({0}, {shape})",
              *strict(lambda o, x: x.reshape(*lead_of(x, o.shapes[0]), *o.shape),
                      lambda o, g: g.reshape(*lead_of(g, o.shape), *o.shapes[0])), cost=FREE, bind=_to_shape),
    LinearRow("transpose", "np.transpose({0}, {axes})",
              *strict(lambda o, x: _transpose(x, o.axes), lambda o, g: _transpose(g, o.back)),
              cost=FREE, bind=_ordered),
    LinearRow("broadcast_to", "np.broadcast_to({0}, {shape})",
              *strict(_broadcast_to, lambda o, g: summed_to(g, o.shapes[0], len(o.shape))), bind=_wider),
    LinearRow("getitem", "{0}[{index}]", *_view(lambda o, x: x[_at(o, x, o.shapes[0])]), bind=_indexed),
    LinearRow("flip", "np.flip({0}, {axis})", *_view(lambda o, x: array_module(x).flip(x, o.axis)), bind=_flipped),
    LinearRow("gather", "np.ravel({0})[{places}]", *MOVE, bind=_gathered),
    LinearRow("take", "np.take({0}, {indices}, axis={axis})", *MOVE, bind=_taken),
    LinearRow("roll", "np.roll({0}, {shift}, {axis})", *MOVE, bind=_rolled),
    LinearRow("repeat", "np.repeat({0}, {repeats}, axis={axis})", *MOVE, bind=_repeated),
    LinearRow("scatter_add", "np.bincount(np.ravel({places}), np.ravel({0}), math.prod({shape})).reshape({shape})",
              *strict(lambda o, x: _scatter(x, o.shape, o.places), lambda o, g: _gather(g, o.shape, o.places)),
              cost=inputs(), bind=_scattered),
    LinearRow("pad", "np.pad({0}, {pairs}, {arguments})",
              lambda o, x: (_pad(o, x, o.value if o.frame else 0), None), lambda o, chosen, mat: _pad(o, mat, 0),
              lambda o, chosen, g: g[_at(o, g, o.shape)] if o.frame else _scatter(g, o.shapes[0], o.places),
              bind=_padded),
)  # fmt: skip
"""The rows of moves, by name."""
