"""Rows of linear functions: sums, moves of numbers, maps along an axis, joins, and choices among numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, is_array, like
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.axes import (
    aligned,
    axes_of,
    axis_of,
    broadcast,
    reduced,
    summed_to,
    widened,
)
from gbackprop.layers.operations.row import Bound, LinearRow, bound, inputs, numbers, only, table

NONE = "none: linear"


def strict(apply: Callable[[Bound, Array], Array], adjoint: Callable[[Bound, Array], Array]) -> Any:
    """Return the rules of a linear function y = A x of one input, from A and its transpose."""
    return (
        lambda o, x: (apply(o, x), None),
        lambda o, chosen, mat: apply(o, mat),
        lambda o, chosen, mat: adjoint(o, mat),
    )


# ------------------------------------------------------------------------------------------------------------- sums


def _over(shapes: tuple[Shape, ...], axis: Any = None, keepdims: bool = False) -> Bound:
    only(shapes)
    axes, keep = axes_of(axis, shapes[0]), _flag("keepdims", keepdims)
    return bound(shapes, reduced(shapes[0], axes, keep), axis=axes, keepdims=keep)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected True or False, got {value!r}")
    return value


def _sum(o: Bound, x: Array) -> Array:
    return x.sum(o.axis, keepdims=o.keepdims) if o.axis else x


def _spread(o: Bound, g: Array) -> Array:
    """Return the transpose of a sum: each number, at all places that were added."""
    wide = widened(g, o.axis, o.keepdims, o.shapes[0])
    shape = g.shape[: g.ndim - len(o.shape)] + o.shapes[0]
    return array_module(g).broadcast_to(wide, shape).copy()


def _count(o: Bound) -> int:
    return prod(o.shapes[0][axis] for axis in o.axis)


def _chosen_max(o: Bound, x: Array, sign: int) -> tuple[Array, Array]:
    """Return the largest numbers (the smallest for −1), and the share of each of those that are equal to it."""
    xp, real = array_module(x), sign * x.real
    equal = real == real.max(o.axis, keepdims=True)
    share = (equal / equal.sum(o.axis, keepdims=True)).astype(real.dtype)
    if x.dtype.kind != "c":
        return sign * real.max(o.axis, keepdims=o.keepdims), share
    return (share * xp.where(equal, x, 0)).sum(o.axis, keepdims=o.keepdims), share


def _extreme(name: str, sign: int) -> LinearRow:
    return LinearRow(
        name, f"np.{name}({{0}}, axis={{axis}}, keepdims={{keepdims}})",
        "equal numbers share the derivative equally, as torch.amax", inputs(2), _over,
        lambda o, x: _chosen_max(o, x, sign),
        lambda o, share, mat: (share * mat).sum(o.axis, keepdims=o.keepdims),
        lambda o, share, mat: share * widened(mat, o.axis, o.keepdims, o.shapes[0]),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ moves


def _along(shapes: tuple[Shape, ...], axis: Any) -> Bound:
    only(shapes)
    return bound(shapes, shapes[0], axis=axis_of(axis, shapes[0]))


def _integers(name: str, value: Any) -> tuple[int, ...]:
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not all(isinstance(each, Integral) and not isinstance(each, bool) for each in given):
        raise ValueError(f"{name}: expected integers, got {value!r}")
    return tuple(map(int, given))


def _to_shape(shapes: tuple[Shape, ...], shape: Any) -> Bound:
    only(shapes)
    sizes, total = _integers("shape", shape), prod(shapes[0])
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
    sizes = _integers("shape", shape)
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
    sizes = _integers("shape", shape)
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
    axes, shifts = axes_of(axis, shapes[0]), _integers("shift", shift)
    if axis is None:
        raise ValueError("axis: expected the axes to roll, got None")
    order = axis if isinstance(axis, Sequence) else (axis,)
    if len(shifts) != len(axes):
        raise ValueError(f"shift: expected one for each of {len(axes)} axes, got {shift!r}")
    axes = tuple(axis_of(each, shapes[0]) for each in order)
    return _moving(np.roll(places_of(shapes[0]), shifts, axes), shapes, shift=shifts, axis=axes)


def _repeated(shapes: tuple[Shape, ...], repeats: int, axis: Any) -> Bound:
    only(shapes)
    at, (count,) = axis_of(axis, shapes[0]), _integers("repeats", repeats)
    if count < 1:
        raise ValueError(f"repeats: expected a positive integer, got {repeats!r}")
    return _moving(np.repeat(places_of(shapes[0]), count, at), shapes, repeats=count, axis=at)


MODES = ("constant", "reflect", "edge", "wrap", "symmetric")


def _padded(shapes: tuple[Shape, ...], widths: Any, mode: str = "constant", value: float = 0) -> Bound:
    only(shapes)
    pairs = tuple(tuple(_integers("widths", pair)) for pair in widths)
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


# ----------------------------------------------------------------------------------------------- maps along an axis


def _mapped(shapes: tuple[Shape, ...], matrix: Any, axis: Any) -> Bound:
    only(shapes)
    at = axis_of(axis, shapes[0])
    if not is_array(matrix) or matrix.ndim != 2 or matrix.shape[1] != shapes[0][at]:
        raise ValueError(f"matrix: expected an array of shape (…, {shapes[0][at]}), got {matrix!r:.80}")
    shape = list(shapes[0])
    shape[at] = matrix.shape[0]
    return bound(shapes, tuple(shape), matrix=matrix, axis=at)


def _map(x: Array, matrix: Array, axis: int) -> Array:
    xp = array_module(x)
    own = like(matrix, x, x.real.dtype)
    return xp.moveaxis(xp.moveaxis(x, axis, -1) @ own.T, -1, axis)


def _triangle(shapes: tuple[Shape, ...], k: int = 0) -> Bound:
    only(shapes)
    if len(shapes[0]) < 2:
        raise ValueError(f"expected features of matrices (…, T, S), got {shapes[0]}")
    return bound(shapes, shapes[0], k=_integers("k", k)[0])


def _reverse_cumsum(o: Bound, g: Array) -> Array:
    xp = array_module(g)
    return xp.flip(xp.cumsum(xp.flip(g, o.axis), o.axis), o.axis)


# ------------------------------------------------------------------------------------------------------------ joins


def _terms(shapes: tuple[Shape, ...]) -> Bound:
    if len(shapes) < 2:
        raise ValueError(f"expected at least two inputs, got {len(shapes)}")
    return bound(shapes, broadcast(shapes))


def _pair(shapes: tuple[Shape, ...]) -> Bound:
    only(shapes, 2)
    return bound(shapes, broadcast(shapes))


def _triple(shapes: tuple[Shape, ...]) -> Bound:
    only(shapes, 3)
    return bound(shapes, broadcast(shapes))


def _all(o: Bound, arrays: Sequence[Array]) -> list[Array]:
    return [aligned(x, shape, len(o.shape)) for x, shape in zip(arrays, o.shapes, strict=True)]


def _add(o: Bound, *arrays: Array) -> Array:
    first, *rest = _all(o, arrays)
    for x in rest:
        first = first + x
    return first


def _difference(o: Bound, a: Array, b: Array) -> Array:
    a, b = _all(o, (a, b))
    return a - b


def _to(o: Bound, *columns: Array) -> tuple[Array, ...]:
    return tuple(summed_to(g, shape, len(o.shape)) for g, shape in zip(columns, o.shapes, strict=True))


def _choose(o: Bound, a: Array, b: Array, sign: int) -> tuple[Array, Array]:
    """Return the larger numbers (the smaller for −1), and the share of the first: 1/2 where both are equal."""
    a, b = _all(o, (a, b))
    xp, real = array_module(a), np.result_type(a.real.dtype, b.real.dtype)
    over, under = sign * a.real > sign * b.real, sign * a.real < sign * b.real
    share = xp.where(over, 1, xp.where(under, 0, 0.5)).astype(real)
    return xp.where(under, b, a), share


def _mix(o: Bound, share: Array, *columns: Array) -> Array:
    a, b = _all(o, columns)
    return share * a + (1 - share) * b


def _extreme_of_two(name: str, sign: int) -> LinearRow:
    return LinearRow(
        name, f"np.{name}({{0}}, {{1}})", "half to each of equal numbers, as in torch", numbers(), _pair,
        lambda o, a, b: _choose(o, a, b, sign), _mix,
        lambda o, share, g: _to(o, share * g, (1 - share) * g),
    )  # fmt: skip


def _where(o: Bound, *arrays: Array) -> tuple[Array, Array]:
    condition, a, b = _all(o, arrays)
    chosen = condition.real != 0
    return array_module(chosen).where(chosen, a, b), chosen


def _where_columns(o: Bound, chosen: Array, *columns: Array) -> Array:
    _, a, b = _all(o, columns)
    return array_module(a).where(chosen, a, b)


def _where_back(o: Bound, chosen: Array, g: Array) -> tuple[Array, ...]:
    xp = array_module(g)
    return _to(o, xp.zeros_like(g), xp.where(chosen, g, 0), xp.where(chosen, 0, g))


def _beside(shapes: tuple[Shape, ...], axis: Any) -> Bound:
    if len(shapes) < 2:
        raise ValueError(f"expected at least two inputs, got {len(shapes)}")
    at = axis_of(axis, shapes[0])
    others = {(*s[: at + len(s)], *s[at + len(s) + 1 :]) for s in shapes}
    if len({len(shape) for shape in shapes}) > 1 or len(others) > 1:
        raise ValueError(f"expected features of equal shape but for axis {axis}, got {list(shapes)}")
    shape = list(shapes[0])
    shape[at] = sum(each[at] for each in shapes)
    return bound(shapes, tuple(shape), axis=at, sizes=tuple(each[at] for each in shapes))


def _concatenate(o: Bound, *arrays: Array) -> Array:
    xp, most = array_module(arrays[0]), max(len(x) for x in arrays)
    rows = [x if len(x) == most or x.ndim > len(o.shape) + 1 else xp.repeat(x, most, 0) for x in arrays]
    return xp.concatenate(rows, axis=o.axis)


def _parts(o: Bound, g: Array) -> tuple[Array, ...]:
    ends = np.cumsum(o.sizes).tolist()
    after = (slice(None),) * (-o.axis - 1)
    return tuple(g[(..., slice(end - size, end), *after)] for size, end in zip(o.sizes, ends, strict=True))


LINEARS = table(
    LinearRow("sum", "np.sum({0}, axis={axis}, keepdims={keepdims})", NONE, inputs(), _over, *strict(_sum, _spread)),
    LinearRow(
        "mean", "np.mean({0}, axis={axis}, keepdims={keepdims})", NONE, inputs(), _over,
        *strict(lambda o, x: _sum(o, x) / _count(o), lambda o, g: _spread(o, g / _count(o))),
    ),
    _extreme("max", 1),
    _extreme("min", -1),
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
    LinearRow(
        "along", "np.moveaxis(np.tensordot({0}, {matrix}, ({axis}, 1)), -1, {axis})", NONE,
        lambda o: prod(o.shape) * o.matrix.shape[1], _mapped,
        *strict(lambda o, x: _map(x, o.matrix, o.axis), lambda o, g: _map(g, o.matrix.T, o.axis)),
    ),
    LinearRow(
        "cumsum", "np.cumsum({0}, axis={axis})", NONE, numbers(), _along,
        *strict(lambda o, x: array_module(x).cumsum(x, o.axis), _reverse_cumsum),
    ),
    LinearRow(
        "tril", "np.tril({0}, {k})", NONE, numbers(), _triangle,
        *strict(lambda o, x: array_module(x).tril(x, o.k), lambda o, g: array_module(g).tril(g, o.k)),
    ),
    LinearRow(
        "triu", "np.triu({0}, {k})", NONE, numbers(), _triangle,
        *strict(lambda o, x: array_module(x).triu(x, o.k), lambda o, g: array_module(g).triu(g, o.k)),
    ),
    LinearRow(
        "add", "{0} + {1}", NONE, numbers(), _terms, lambda o, *x: (_add(o, *x), None),
        lambda o, chosen, *mats: _add(o, *mats), lambda o, chosen, g: _to(o, *(g,) * len(o.shapes)),
    ),
    LinearRow(
        "subtract", "{0} - {1}", NONE, numbers(), _pair, lambda o, a, b: (_difference(o, a, b), None),
        lambda o, chosen, a, b: _difference(o, a, b), lambda o, chosen, g: _to(o, g, -g),
    ),
    _extreme_of_two("maximum", 1),
    _extreme_of_two("minimum", -1),
    LinearRow(
        "where", "np.where({0} != 0, {1}, {2})", "0 in the condition", numbers(), _triple,
        _where, _where_columns, _where_back,
    ),
    LinearRow(
        "concatenate", "np.concatenate([{all}], axis={axis})", NONE, numbers(), _beside,
        lambda o, *x: (_concatenate(o, *x), None), lambda o, chosen, *mats: _concatenate(o, *mats),
        lambda o, chosen, g: _parts(o, g),
    ),
)  # fmt: skip
"""The linear rows, by name."""
