"""Rows of linear functions: sums, maps along an axis, joins, and choices among numbers."""

from __future__ import annotations

from functools import reduce
from math import prod
from operator import add
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, is_array, like
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.axes import (
    aligned,
    along,
    axis_of,
    broadcast,
    each_axis,
    integers,
    lead_of,
    reduced,
    resized,
    summed_to,
)
from gbackprop.layers.operations.row import Bound, LinearRow, inputs, strict, table

# ------------------------------------------------------------------------------------------------------------- sums


def over(of: Shape, *, axis: Any = None, keepdims: bool = False) -> Bound:
    """Bind a reduction over axes."""
    axes = tuple(sorted(each_axis(axis, of)))
    if not isinstance(keepdims, bool):
        raise ValueError(f"keepdims: expected True or False, got {keepdims!r}")
    count, kept = prod(of[each] for each in axes), reduced(of, axes, True)
    return Bound(shape=reduced(of, axes, keepdims), axis=axes, keepdims=keepdims, count=count, kept=kept)


def _sum(o: Bound, x: Array) -> Array:
    return x.sum(o.axis, keepdims=o.keepdims) if o.axis else x


def _widened(o: Bound, g: Array) -> Array:
    """Return what was reduced with axes of length 1 in their places."""
    return g.reshape(*lead_of(g, o.shape), *o.kept)


def _spread(o: Bound, g: Array) -> Array:
    """Return the transpose of a sum: each number, at all places that were added."""
    return array_module(g).broadcast_to(_widened(o, g), lead_of(g, o.shape) + o.shapes[0])


def _extreme_over(of: Shape, *, first: bool = False, **more: Any) -> Bound:
    o = over(of, **more)
    if first and len(o.axis) != 1:
        raise ValueError(f"first: expected one axis, got {len(o.axis)}")
    o.first = first
    return o


def _chosen_max(o: Bound, x: Array, sign: int) -> tuple[Array, Array]:
    """Return the largest numbers (the smallest for −1), and the share of each of those that are equal to it."""
    xp, real = array_module(x), sign * x.real
    equal = real == real.max(o.axis, keepdims=True)
    equal = equal & (equal.cumsum(*o.axis) == 1) if o.first else equal
    share = (equal / equal.sum(o.axis, keepdims=True)).astype(real.dtype)
    if x.dtype.kind != "c":
        return sign * real.max(o.axis, keepdims=o.keepdims), share
    return (share * xp.where(equal, x, 0)).sum(o.axis, keepdims=o.keepdims), share


def _extreme(name: str, sign: int) -> LinearRow:
    return LinearRow(
        name, f"np.{name}({{0}}, axis={{axis}}, keepdims={{keepdims}})",
        lambda o, x: _chosen_max(o, x, sign), lambda o, share, mat: _sum(o, share * mat),
        lambda o, share, mat: share * _widened(o, mat),
        ties="equal numbers share the derivative equally, as torch.amax, or the first has it, as torch.max of an axis",
        cost=inputs(2), bind=_extreme_over,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------- maps along an axis


def _one_axis(of: Shape, *, axis: Any) -> Bound:
    return Bound(shape=of, axis=axis_of(axis, of))


def _mapped(of: Shape, *, matrix: Any, axis: Any) -> Bound:
    at = axis_of(axis, of)
    if not is_array(matrix) or matrix.ndim != 2 or matrix.shape[1] != of[at]:
        raise ValueError(f"matrix: expected an array of shape (…, {of[at]}), got {matrix!r:.80}")
    return Bound(shape=resized(of, at, matrix.shape[0]), matrix=matrix, axis=at)


def _map(x: Array, matrix: Array, axis: int) -> Array:
    xp = array_module(x)
    rows = xp.moveaxis(x, axis, -1)
    y = rows.reshape(-1, rows.shape[-1]) @ like(matrix, x, x.real.dtype).T
    return xp.moveaxis(y.reshape(*rows.shape[:-1], -1), -1, axis)


def _triangle(of: Shape, *, k: int = 0) -> Bound:
    if len(of) < 2:
        raise ValueError(f"expected features of matrices (…, T, S), got {of}")
    return Bound(shape=of, k=integers("k", k)[0])


def _triangular(name: str) -> LinearRow:
    rules = strict(*[lambda o, x: getattr(array_module(x), name)(x, o.k)] * 2)
    return LinearRow(name, f"np.{name}({{0}}, {{k}})", *rules, bind=_triangle)


def _reverse_cumsum(o: Bound, g: Array) -> Array:
    xp = array_module(g)
    return xp.flip(xp.cumsum(xp.flip(g, o.axis), o.axis), o.axis)


# ------------------------------------------------------------------------------------------------------------ joins


def pair(a: Shape, b: Shape) -> Bound:
    """Bind two inputs that are broadcast."""
    return Bound(shape=broadcast(a, b))


def _several(a: Shape, b: Shape, *more: Shape) -> Bound:
    return Bound(shape=broadcast(a, b, *more))


def _triple(condition: Shape, a: Shape, b: Shape) -> Bound:
    return Bound(shape=broadcast(condition, a, b))


def _all(o: Bound, *arrays: Array) -> list[Array]:
    return [aligned(x, shape, len(o.shape)) for x, shape in zip(arrays, o.shapes, strict=True)]


def _to(o: Bound, *columns: Array) -> tuple[Array, ...]:
    return tuple(summed_to(g, shape, len(o.shape)) for g, shape in zip(columns, o.shapes, strict=True))


def _add(o: Bound, *arrays: Array) -> Array:
    return reduce(add, _all(o, *arrays))


def _difference(o: Bound, a: Array, b: Array) -> Array:
    a, b = _all(o, a, b)
    return a - b


def _compared(name: str, text: str) -> LinearRow:
    def forward(o: Bound, *arrays: Array) -> tuple[Array, None]:
        a, b = _all(o, *arrays)
        return getattr(array_module(a), name)(a.real, b.real).astype(np.result_type(a.dtype, b.dtype)), None

    return LinearRow(
        name, f"1.0 * ({{0}} {text} {{1}})", forward, lambda o, chosen, *mats: 0 * _add(o, *mats),
        lambda o, chosen, g: _to(o, 0 * g, 0 * g), ties="0 everywhere", bind=pair,
    )  # fmt: skip


def _pick(share: Array, a: Any, b: Any) -> Array:
    return array_module(share).where(share, a, b)


def _shares(o: Bound, *arrays: Array) -> tuple[Array, Array]:
    condition, a, b = _all(o, *arrays)
    share = condition.real != 0
    return _pick(share, a, b), share


def _larger(o: Bound, sign: int, *arrays: Array) -> tuple[Array, Array]:
    """Return the larger numbers (the smaller for −1), NaN beside NaN, and the share of the first: 1/2 of equal ones."""
    a, b = _all(o, *arrays)
    over, under = sign * a.real > sign * b.real, sign * a.real < sign * b.real
    share = 0.5 + 0.5 * over - 0.5 * under
    larger = array_module(a).where(under | (b.real != b.real), b, a)
    return larger, share.astype(np.result_type(a.real.dtype, b.real.dtype))


def _extreme_of_two(name: str, sign: int) -> LinearRow:
    return LinearRow(
        name, f"np.{name}({{0}}, {{1}})", lambda o, a, b: _larger(o, sign, a, b),
        lambda o, share, *mats: sum(w * mat for w, mat in zip((share, 1 - share), _all(o, *mats), strict=True)),
        lambda o, share, g: _to(o, share * g, (1 - share) * g),
        ties="half to each of equal numbers, as in torch", bind=pair,
    )  # fmt: skip


def _beside(a: Shape, b: Shape, *more: Shape, axis: Any) -> Bound:
    shapes, at = (a, b, *more), axis_of(axis, a)
    if {resized(each, at, 0) for each in shapes} != {resized(a, at, 0)}:
        raise ValueError(f"expected features of equal shape but for axis {axis}, got {list(shapes)}")
    ends = np.cumsum([each[at] for each in shapes]).tolist()
    spans = [slice(end - each[at], end) for end, each in zip(ends, shapes, strict=True)]
    return Bound(shape=resized(a, at, ends[-1]), axis=at, parts=[along(at, span) for span in spans])


def _concatenate(o: Bound, *arrays: Array) -> Array:
    xp, lead = array_module(arrays[0]), max(len(x) for x in arrays)
    rows = [x if len(x) == lead or x.ndim > len(o.shape) + 1 else xp.repeat(x, lead, 0) for x in arrays]
    return xp.concatenate(rows, axis=o.axis)


LINEARS = table(
    LinearRow("sum", "np.sum({0}, axis={axis}, keepdims={keepdims})", *strict(_sum, _spread),
              cost=inputs(), bind=over),
    LinearRow("mean", "np.mean({0}, axis={axis}, keepdims={keepdims})",
              *strict(lambda o, x: _sum(o, x) / o.count, lambda o, g: _spread(o, g / o.count)),
              cost=inputs(), bind=over),
    _extreme("max", 1),
    _extreme("min", -1),
    LinearRow("along", "np.moveaxis(np.tensordot({0}, {matrix}, ({axis}, 1)), -1, {axis})",
              *strict(lambda o, x: _map(x, o.matrix, o.axis), lambda o, g: _map(g, o.matrix.T, o.axis)),
              cost=lambda o: prod(o.shape) * o.matrix.shape[1], bind=_mapped),
    LinearRow("cumsum", "np.cumsum({0}, axis={axis})",
              *strict(lambda o, x: array_module(x).cumsum(x, o.axis), _reverse_cumsum), bind=_one_axis),
    _triangular("tril"),
    _triangular("triu"),
    LinearRow("add", "{0} + {1}", lambda o, *x: (_add(o, *x), None), lambda o, chosen, *mats: _add(o, *mats),
              lambda o, chosen, g: _to(o, *(g,) * len(o.shapes)), bind=_several),
    LinearRow("subtract", "{0} - {1}", lambda o, a, b: (_difference(o, a, b), None),
              lambda o, chosen, a, b: _difference(o, a, b), lambda o, chosen, g: _to(o, g, -g), bind=pair),
    _extreme_of_two("maximum", 1),
    _extreme_of_two("minimum", -1),
    LinearRow("where", "np.where({0} != 0, {1}, {2})", _shares,
              lambda o, share, *mats: _pick(share, *_all(o, *mats)[1:]),
              lambda o, share, g: _to(o, 0 * g, _pick(share, g, 0), _pick(share, 0, g)),
              ties="0 in the condition", bind=_triple),
    LinearRow("concatenate", "np.concatenate([{all}], axis={axis})", lambda o, *x: (_concatenate(o, *x), None),
              lambda o, chosen, *mats: _concatenate(o, *mats),
              lambda o, chosen, g: tuple(g[part] for part in o.parts), bind=_beside),
    *[_compared(*each) for each in (
        ("greater", ">"), ("greater_equal", ">="), ("less", "<"), ("less_equal", "<="), ("equal", "=="),
        ("not_equal", "!="),
    )],
)  # fmt: skip
"""The linear rows that are no moves, by name."""
