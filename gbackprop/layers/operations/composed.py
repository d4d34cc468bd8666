"""Rows that are composed of other layers; `op` makes the layer of a row."""

from __future__ import annotations

from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Shape
from gbackprop.layers.elementwise.activation import Sigmoid
from gbackprop.layers.operations.axes import axes_of, axis_of, broadcast, reduced
from gbackprop.layers.operations.copies import places_of
from gbackprop.layers.operations.row import Bound, ComposedRow, bound, inputs, numbers, only, table

Parts = list[tuple[Any, ...]]

SMOOTH = "none: smooth where it is finite"


def _pair(shapes: tuple[Shape, ...]) -> Bound:
    only(shapes, 2)
    return bound(shapes, broadcast(shapes))


def _over(shapes: tuple[Shape, ...], axis: Any = None, keepdims: bool = False) -> Bound:
    only(shapes)
    axes = axes_of(axis, shapes[0])
    return bound(shapes, reduced(shapes[0], axes, keepdims), axis=axes, keepdims=keepdims)


def _spread(shapes: tuple[Shape, ...], axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Bound:
    o = _over(shapes, axis, keepdims)
    count = prod(shapes[0][each] for each in o.axis)
    if isinstance(ddof, bool) or not isinstance(ddof, Integral) or not 0 <= ddof < count:
        raise ValueError(f"ddof: expected an integer from 0 to less than {count} numbers, got {ddof!r}")
    return bound(shapes, o.shape, axis=o.axis, keepdims=keepdims, ddof=int(ddof), count=count)


def _quotient(o: Bound, op: Any) -> Parts:
    return [("reciprocal", op("reciprocal"), 1), ("product", op("multiply"), 0, "reciprocal")]


def _power(o: Bound, op: Any) -> Parts:
    return [("log", op("log"), 0), ("exponent", op("multiply"), "log", 1), ("power", op("exp"), "exponent")]


def _variance(o: Bound, op: Any) -> Parts:
    return [
        ("mean", op("mean", axis=o.axis, keepdims=True), 0),
        ("deviation", op("subtract"), 0, "mean"),
        ("square", op("square"), "deviation"),
        ("sum", op("sum", axis=o.axis, keepdims=o.keepdims), "square"),
        ("variance", op("affine", factor=1 / (o.count - o.ddof)), "sum"),
    ]


def _norm(o: Bound, op: Any) -> Parts:
    summed = op("sum", axis=o.axis, keepdims=o.keepdims)
    return [("square", op("square"), 0), ("sum", summed, "square"), ("root", op("root"), "sum")]


def _logsumexp(o: Bound, op: Any) -> Parts:
    return [
        ("largest", op("max", axis=o.axis, keepdims=True), 0),
        ("shifted", op("subtract"), 0, "largest"),
        ("exp", op("exp"), "shifted"),
        ("sum", op("sum", axis=o.axis, keepdims=True), "exp"),
        ("log", op("log"), "sum"),
        ("whole", op("add"), "log", "largest"),
        ("shape", op("reshape", shape=o.shape), "whole"),
    ]


def _product(o: Bound, op: Any) -> Parts:
    """Multiply halves, and halves of these: no number is divided by, so that zeros are no special case."""
    parts: Parts = []
    places, rest = places_of(o.shapes[0]), tuple(size for i, size in enumerate(o.shapes[0])
                                                 if i - len(o.shapes[0]) not in o.axis)  # fmt: skip
    front = np.moveaxis(places, o.axis, range(-len(o.axis), 0)).reshape(*rest, -1)
    parts.append(("rows", op("gather", places=front), 0))
    size, last, k = front.shape[-1], "rows", 0
    while size > 1:
        half = size // 2
        parts += [
            (f"first{k}", op("getitem", index=(..., slice(0, half))), last),
            (f"second{k}", op("getitem", index=(..., slice(half, 2 * half))), last),
            (f"product{k}", op("multiply"), f"first{k}", f"second{k}"),
        ]
        name = f"product{k}"
        if size % 2:
            parts.append((f"odd{k}", op("getitem", index=(..., slice(2 * half, None))), last))
            parts.append((f"joined{k}", op("concatenate", axis=-1), name, f"odd{k}"))
            name = f"joined{k}"
        size, last, k = half + size % 2, name, k + 1
    parts.append(("shape", op("reshape", shape=o.shape), last))
    return parts


def _likeness(shapes: tuple[Shape, ...], axis: Any = 1, eps: float = 1e-8) -> Bound:
    only(shapes, 2)
    whole = broadcast(shapes)
    at = axis_of(axis, whole)
    return bound(shapes, reduced(whole, (at,), False), axis=at, eps=eps, wide=whole)


def _cosine(o: Bound, op: Any) -> Parts:
    wide = op("broadcast_to", shape=o.wide)
    parts: Parts = []
    for i in range(2):
        norm = op("norm", axis=o.axis, keepdims=True)
        parts += [(f"wide{i}", wide, i), (f"norm{i}", norm, f"wide{i}"),
                  (f"clipped{i}", op("clip", least=o.eps), f"norm{i}"),
                  (f"unit{i}", op("divide"), f"wide{i}", f"clipped{i}")]  # fmt: skip
    return [*parts, ("product", op("multiply"), "unit0", "unit1"), ("sum", op("sum", axis=o.axis), "product")]


def _gate(shapes: tuple[Shape, ...], axis: Any = -1) -> Bound:
    only(shapes)
    at = axis_of(axis, shapes[0])
    if shapes[0][at] % 2:
        raise ValueError(f"expected features with an even axis {axis}, got {shapes[0]}")
    shape = list(shapes[0])
    shape[at] //= 2
    return bound(shapes, tuple(shape), axis=at, half=shape[at])


def _gated(o: Bound, op: Any) -> Parts:
    after = (slice(None),) * (-o.axis - 1)
    return [
        ("value", op("getitem", index=(..., slice(0, o.half), *after)), 0),
        ("gate", op("getitem", index=(..., slice(o.half, None), *after)), 0),
        ("sigmoid", Sigmoid(), "gate"),
        ("product", op("multiply"), "value", "sigmoid"),
    ]


def _stacked(shapes: tuple[Shape, ...], axis: Any) -> Bound:
    if len(set(shapes)) != 1:
        raise ValueError(f"expected features of equal shape, got {list(shapes)}")
    at = axis_of(axis, (1, *shapes[0]))
    split = len(shapes[0]) + 1 + at
    shape, wide = [(*shapes[0][:split], size, *shapes[0][split:]) for size in (len(shapes), 1)]
    return bound(shapes, shape, axis=at, wide=wide)


def _stack(o: Bound, op: Any) -> Parts:
    wide = [(f"wide{i}", op("reshape", shape=o.wide), i) for i in range(len(o.shapes))]
    if len(wide) == 1:
        return wide
    return [*wide, ("stack", op("concatenate", axis=o.axis), *[name for name, *_ in wide])]


COMPOSED = table(
    ComposedRow("divide", "{0} / {1}", SMOOTH, numbers(2), _pair, _quotient),
    ComposedRow("pow", "np.power({0}, {1})", "not a number where the base is negative", numbers(20), _pair, _power),
    ComposedRow(
        "var", "np.var({0}, axis={axis}, ddof={ddof}, keepdims={keepdims})", SMOOTH, inputs(4), _spread, _variance
    ),
    ComposedRow(
        "std", "np.std({0}, axis={axis}, ddof={ddof}, keepdims={keepdims})",
        "0 where all numbers are equal, as in torch", inputs(4), _spread,
        lambda o, op: [*_variance(o, op), ("root", op("root"), "variance")],
    ),
    ComposedRow(
        "norm", "np.sqrt(np.sum({0} ** 2, axis={axis}, keepdims={keepdims}))", "0 at 0, as in torch", inputs(2), _over,
        _norm,
    ),
    ComposedRow(
        "logsumexp", "scipy.special.logsumexp({0}, axis={axis}, keepdims={keepdims})", SMOOTH, inputs(10), _over,
        _logsumexp,
    ),
    ComposedRow("prod", "np.prod({0}, axis={axis}, keepdims={keepdims})", SMOOTH, inputs(2), _over, _product),
    ComposedRow(
        "cosine_similarity",
        "np.sum({0} * {1}, {axis}) / np.maximum(np.sqrt(np.sum(np.square({0}), {axis})), {eps})"
        " / np.maximum(np.sqrt(np.sum(np.square({1}), {axis})), {eps})",
        "0 of a norm at 0, as in torch", inputs(4), _likeness, _cosine,
    ),
    ComposedRow(
        "glu", "np.split({0}, 2, {axis})[0] / (1 + np.exp(-np.split({0}, 2, {axis})[1]))", SMOOTH, numbers(10), _gate,
        _gated,
    ),
    ComposedRow("stack", "np.stack([{all}], axis={axis})", "none: linear", numbers(), _stacked, _stack),
)  # fmt: skip
"""The composed rows, by name."""
