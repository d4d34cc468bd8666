"""Rows of linear functions: sums, maps along an axis, joins, and choices among numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, is_array, like
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
from gbackprop.layers.operations.copies import integers
from gbackprop.layers.operations.row import Bound, LinearRow, bound, inputs, numbers, only, strict, table

NONE = "none: linear"


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


# ----------------------------------------------------------------------------------------------- maps along an axis


def _along(shapes: tuple[Shape, ...], axis: Any) -> Bound:
    only(shapes)
    return bound(shapes, shapes[0], axis=axis_of(axis, shapes[0]))


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
    return bound(shapes, shapes[0], k=integers("k", k)[0])


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
"""The linear rows that are no moves, by name."""
