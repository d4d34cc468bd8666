"""Rows of moves: numbers in another order or shape, some of them, or several times."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, like
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.axes import aligned, axes_of, axis_of, broadcast, summed_to
from gbackprop.layers.operations.row import Bound, LinearRow, bound, inputs, numbers, only, strict, table

NONE = "none: linear"


def integers(name: str, value: Any) -> tuple[int, ...]:
    """Return one integer or several as a tuple."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not all(isinstance(each, Integral) and not isinstance(each, bool) for each in given):
        raise ValueError(f"{name}: expected integers, got {value!r}")
    return tuple(map(int, given))


def _to_shape(shapes: tuple[Shape, ...], shape: Any) -> Bound:
    only(shapes)
    sizes, total = integers("shape", shape), prod(shapes[0])
    if sizes.count(-1) == 1:
        known = prod(size for size in sizes if size != -1)
        sizes = tuple(total // known if size == -1 and known else size for size in sizes)
    if prod(sizes) != total or min(sizes, default=1) < 0:
        raise ValueError(f"shape: expected one of {total} numbers for features {shapes[0]}, got {shape!r}")
    return bound(shapes, sizes)


def _reshape(o: Bound, x: Array, before: Shape, after: Shape) -> Array:
    return x.reshape(*x.shape[: x.ndim - len(before)], *after)


def _ordered(shapes: tuple[Shape, ...], axes: Any = None) -> Bound:
    only(shapes)
    ndim = len(shapes[0])
    given = tuple(range(-1, -ndim - 1, -1)) if axes is None else tuple(axis_of(a, shapes[0]) for a in axes)
    if sorted(given) != list(range(-ndim, 0)):
        raise ValueError(f"axes: expected all axes after the batch axis of features {shapes[0]}, got {axes!r}")
    back = tuple(given.index(axis) - ndim for axis in range(-ndim, 0))
    return bound(shapes, tuple(shapes[0][axis] for axis in given), axes=given, back=back)


def _transpose(x: Array, axes: tuple[int, ...]) -> Array:
    lead = x.ndim - len(axes)
    return x.transpose(*range(lead), *(axis + x.ndim for axis in axes))


def _wider(shapes: tuple[Shape, ...], shape: Any) -> Bound:
    only(shapes)
    sizes = integers("shape", shape)
    if broadcast([shapes[0], sizes]) != sizes:
        raise ValueError(f"shape: expected one to which features {shapes[0]} broadcast, got {sizes}")
    return bound(shapes, sizes)


def _broadcast_to(o: Bound, x: Array) -> Array:
    lead = x.shape[: x.ndim - len(o.shapes[0])]
    return array_module(x).broadcast_to(aligned(x, o.shapes[0], len(o.shape)), lead + o.shape)


def _indexed(shapes: tuple[Shape, ...], index: Any) -> Bound:
    only(shapes)
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is None or part is Ellipsis or isinstance(part, slice | Integral) for part in parts):
        raise ValueError(f"index: expected integers, slices, None or … of the features, got {index!r} (use 'gather')")
    if Ellipsis not in parts:
        parts = (*parts, Ellipsis)
    try:
        shape = np.empty(shapes[0], bool)[parts].shape
    except IndexError as error:
        raise ValueError(f"index: expected one of features {shapes[0]}, got {index!r} ({error})") from None
    return bound(shapes, shape, index=parts)


def _at(o: Bound, ndim: int, features: int) -> tuple[Any, ...]:
    return (*(slice(None),) * (ndim - features), *o.index)


def _placed(o: Bound, g: Array) -> Array:
    whole = array_module(g).zeros(g.shape[: g.ndim - len(o.shape)] + o.shapes[0], dtype=g.dtype)
    whole[_at(o, whole.ndim, len(o.shapes[0]))] = g
    return whole


# A move of any kind is what it does to the numbers of the places.


def _moving(places: np.ndarray, shapes: tuple[Shape, ...], **options: Any) -> Bound:
    """Return a move that takes the numbers at some places of the flat features."""
    index = np.ascontiguousarray(places)
    return bound(shapes, index.shape, places=index, **options)


def places_of(shape: Shape) -> np.ndarray:
    """Return the number of each place of features."""
    return np.arange(prod(shape)).reshape(shape)


def _gather(o: Bound, x: Array) -> Array:
    flat = x.reshape(*x.shape[: x.ndim - len(o.shapes[0])], -1)
    return flat[..., like(o.places, x)]


def _scatter(o: Bound, g: Array, shape: Shape, places: np.ndarray) -> Array:
    """Add each number to its place in features of a shape: the transpose of `_gather`."""
    xp, lead, size = array_module(g), g.shape[: g.ndim - places.ndim], prod(shape)
    flat, at = g.reshape(*lead, -1), places.ravel()
    counts = np.bincount(at, minlength=size)
    if counts.max(initial=0) <= 1:
        whole = xp.zeros((*lead, size), dtype=g.dtype)
        whole[..., like(at, g)] = flat
        return whole.reshape(*lead, *shape)
    order = np.argsort(at, kind="stable")
    table = np.full((size, counts.max()), at.size)  # for each place what is added there; one past the end is 0
    table[at[order], np.arange(at.size) - np.repeat(np.cumsum(counts) - counts, counts)] = order
    more = xp.concatenate([flat, xp.zeros((*lead, 1), dtype=g.dtype)], axis=-1)
    return more[..., like(table, g)].sum(-1).reshape(*lead, *shape)


def _taken_from(o: Bound, g: Array) -> Array:
    flat = g.reshape(*g.shape[: g.ndim - len(o.shape)], -1)
    return flat[..., like(o.places, g)]


def _gathered(shapes: tuple[Shape, ...], places: Any) -> Bound:
    only(shapes)
    return _moving(_places("places", places, prod(shapes[0])), shapes)


def _scattered(shapes: tuple[Shape, ...], places: Any, shape: Any) -> Bound:
    only(shapes)
    sizes = integers("shape", shape)
    index = _places("places", places, prod(sizes))
    if index.shape != shapes[0]:
        raise ValueError(f"places: expected one for each number of features {shapes[0]}, got shape {index.shape}")
    return bound(shapes, sizes, places=index)


def _places(name: str, value: Any, size: int) -> np.ndarray:
    index = asnumpy(value)
    if index.dtype.kind not in "iu" or (index.size and not (-size <= index.min() and index.max() < size)):
        raise ValueError(f"{name}: expected integers from {-size} to {size - 1}, got {value!r:.80}")
    return index % max(size, 1)


def _taken(shapes: tuple[Shape, ...], indices: Any, axis: Any) -> Bound:
    only(shapes)
    at = axis_of(axis, shapes[0])
    index = _places("indices", indices, shapes[0][at])
    return _moving(np.take(places_of(shapes[0]), index, at), shapes, indices=index, axis=at)


def _flipped(shapes: tuple[Shape, ...], axis: Any = None) -> Bound:
    only(shapes)
    axes = axes_of(axis, shapes[0])
    return _moving(np.flip(places_of(shapes[0]), axes), shapes, axis=axes)


def _rolled(shapes: tuple[Shape, ...], shift: Any, axis: Any = None) -> Bound:
    only(shapes)
    axes, shifts = axes_of(axis, shapes[0]), integers("shift", shift)
    if axis is None:
        raise ValueError("axis: expected the axes to roll, got None")
    order = axis if isinstance(axis, Sequence) else (axis,)
    if len(shifts) != len(axes):
        raise ValueError(f"shift: expected one for each of {len(axes)} axes, got {shift!r}")
    axes = tuple(axis_of(each, shapes[0]) for each in order)
    return _moving(np.roll(places_of(shapes[0]), shifts, axes), shapes, shift=shifts, axis=axes)


def _repeated(shapes: tuple[Shape, ...], repeats: int, axis: Any) -> Bound:
    only(shapes)
    at, (count,) = axis_of(axis, shapes[0]), integers("repeats", repeats)
    if count < 1:
        raise ValueError(f"repeats: expected a positive integer, got {repeats!r}")
    return _moving(np.repeat(places_of(shapes[0]), count, at), shapes, repeats=count, axis=at)


MODES = ("constant", "reflect", "edge", "wrap", "symmetric")


def _padded(shapes: tuple[Shape, ...], widths: Any, mode: str = "constant", value: float = 0) -> Bound:
    only(shapes)
    pairs = tuple(tuple(integers("widths", pair)) for pair in widths)
    if len(pairs) != len(shapes[0]) or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ValueError(f"widths: expected (before, after) for each axis of features {shapes[0]}, got {widths!r}")
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {MODES}, got {mode!r}")
    more: dict[str, Any] = {"constant_values": -1} if mode == "constant" else {}
    places = np.pad(places_of(shapes[0]), pairs, mode, **more)  # type: ignore[call-overload]
    arguments = repr(mode) + (f", constant_values={value}" if mode == "constant" else "")
    inside = tuple(slice(before, before + size) for (before, _), size in zip(pairs, shapes[0], strict=True))
    frame = mode == "constant"
    return _moving(places, shapes, pairs=pairs, arguments=arguments, index=inside, value=value, frame=frame)


def _pad(o: Bound, x: Array, value: float) -> Array:
    if not o.frame:
        return _gather(o, x)
    lead = x.shape[: x.ndim - len(o.shape)]
    whole = array_module(x).full(lead + o.shape, value, dtype=x.dtype)
    whole[_at(o, whole.ndim, len(o.shape))] = x
    return whole


def _cropped(o: Bound, g: Array) -> Array:
    return g[_at(o, g.ndim, len(o.shape))] if o.frame else _scatter(o, g, o.shapes[0], o.places)


MOVE = strict(_gather, lambda o, g: _scatter(o, g, o.shapes[0], o.places))


MOVES = table(
    LinearRow(
        "reshape", "np.reshape({0}, {shape})", NONE, lambda o: 0, _to_shape,
        *strict(
            lambda o, x: _reshape(o, x, o.shapes[0], o.shape), lambda o, g: _reshape(o, g, o.shape, o.shapes[0])
        ),
    ),
    LinearRow(
        "transpose", "np.transpose({0}, {axes})", NONE, lambda o: 0, _ordered,
        *strict(lambda o, x: _transpose(x, o.axes), lambda o, g: _transpose(g, o.back)),
    ),
    LinearRow(
        "broadcast_to", "np.broadcast_to({0}, {shape})", NONE, numbers(), _wider,
        *strict(_broadcast_to, lambda o, g: summed_to(g, o.shapes[0], len(o.shape))),
    ),
    LinearRow(
        "getitem", "{0}[{index}]", NONE, numbers(), _indexed,
        *strict(lambda o, x: x[_at(o, x.ndim, len(o.shapes[0]))], _placed),
    ),
    LinearRow("gather", "np.ravel({0})[{places}]", NONE, numbers(), _gathered, *MOVE),
    LinearRow("take", "np.take({0}, {indices}, axis={axis})", NONE, numbers(), _taken, *MOVE),
    LinearRow("flip", "np.flip({0}, {axis})", NONE, numbers(), _flipped, *MOVE),
    LinearRow("roll", "np.roll({0}, {shift}, {axis})", NONE, numbers(), _rolled, *MOVE),
    LinearRow("repeat", "np.repeat({0}, {repeats}, axis={axis})", NONE, numbers(), _repeated, *MOVE),
    LinearRow(
        "scatter_add", "np.bincount(np.ravel({places}), np.ravel({0}), math.prod({shape})).reshape({shape})", NONE,
        inputs(), _scattered, *strict(lambda o, x: _scatter(o, x, o.shape, o.places), _taken_from),
    ),
    LinearRow(
        "pad", "np.pad({0}, {pairs}, {arguments})", NONE, numbers(), _padded,
        lambda o, x: (_pad(o, x, o.value), None), lambda o, chosen, mat: _pad(o, mat, 0),
        lambda o, chosen, mat: _cropped(o, mat),
    ),
)  # fmt: skip
"""The rows of moves, by name."""
