"""Rows that are composed of other layers: ``op(row or layer, *inputs, **options)`` applies one of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Shape
from gbackprop.layers.elementwise.activation import Sigmoid
from gbackprop.layers.elementwise.softmax import LogSoftmax, Softmax
from gbackprop.layers.operations.axes import along, axis_of, broadcast, integers, reduced, resized
from gbackprop.layers.operations.copies import places_of
from gbackprop.layers.operations.linears import over, pair
from gbackprop.layers.operations.row import Bound, ComposedRow, inputs, numbers, table

Op = Callable[..., Any]


# ------------------------------------------------------------------------------------------------------- statistics


def _spread(of: Shape, *, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Bound:
    o = over(of, axis=axis, keepdims=keepdims)
    if isinstance(ddof, bool) or not isinstance(ddof, Integral) or not 0 <= ddof < o.count:
        raise ValueError(f"ddof: expected an integer from 0 to less than {o.count} numbers, got {ddof!r}")
    o.ddof = int(ddof)
    return o


def _variance(o: Bound, op: Op, x: Any) -> Any:
    squares = op("square", op("subtract", x, op("mean", x, axis=o.axis, keepdims=True)))
    return op("divided_by", op("sum", squares, axis=o.axis, keepdims=o.keepdims), number=o.count - o.ddof)


def _norm(o: Bound, op: Op, x: Any) -> Any:
    return op("root", op("sum", op("square", x), axis=o.axis, keepdims=o.keepdims))


def _logsumexp(o: Bound, op: Op, x: Any) -> Any:
    largest = op("max", x, axis=o.axis, keepdims=True)
    total = op("sum", op("exp", op("subtract", x, largest)), axis=o.axis, keepdims=True)
    return op("reshape", op("add", op("log", total), largest), shape=o.shape)


def _product(o: Bound, op: Op, x: Any) -> Any:
    """Multiply halves, and halves of these: no number is divided by, so that zeros are no special case."""
    front = np.moveaxis(places_of(o.shapes[0]), o.axis, range(-len(o.axis), 0))
    size = o.count
    x = op("gather", x, places=front.reshape(*front.shape[: front.ndim - len(o.axis)], size))
    while size > 1:
        half = size // 2
        first, second, odd = (op("getitem", x, index=(..., part)) if part.start < size else None
                              for part in (slice(0, half), slice(half, 2 * half), slice(2 * half, size)))  # fmt: skip
        x, size = op("multiply", first, second), half + size % 2
        x = x if odd is None else op("concatenate", x, odd, axis=-1)
    return op("reshape", x, shape=o.shape)


def _likeness(a: Shape, b: Shape, *, axis: Any = 1, eps: float = 1e-8) -> Bound:
    wide = broadcast(a, b)
    at = axis_of(axis, wide)
    return Bound(shape=reduced(wide, (at,), False), axis=at, eps=eps, wide=wide)


def _cosine(o: Bound, op: Op, *both: Any) -> Any:
    wide = [op("broadcast_to", x, shape=o.wide) for x in both]
    norms = [op("clip", op("norm", x, axis=o.axis, keepdims=True), least=o.eps) for x in wide]
    return op("sum", op("multiply", *map(op, ("divide",) * 2, wide, norms)), axis=o.axis)


# ------------------------------------------------------------------------------------------------ gates and indices


def _gate(of: Shape, *, axis: Any = -1) -> Bound:
    at = axis_of(axis, of)
    if of[at] % 2:
        raise ValueError(f"expected features with an even axis {axis}, got {of}")
    return Bound(shape=resized(of, at, of[at] // 2), axis=at)


def _gated(o: Bound, op: Op, x: Any) -> Any:
    half = o.shape[o.axis]
    value, gate = (op("getitem", x, index=along(o.axis, part)) for part in (slice(0, half), slice(half, None)))
    return op("multiply", value, op(Sigmoid(), gate))


def _stacked(*of: Shape, axis: Any) -> Bound:
    if len(set(of)) != 1:
        raise ValueError(f"expected features of equal shape, got {list(of)}")
    at = axis_of(axis, (1, *of[0]))
    split = len(of[0]) + 1 + at
    shape, wide = [(*of[0][:split], size, *of[0][split:]) for size in (len(of), 1)]
    return Bound(shape=shape, axis=at, wide=wide)


def _stack(o: Bound, op: Op, *parts: Any) -> Any:
    wide = [op("reshape", x, shape=o.wide) for x in parts]
    return op("concatenate", *wide, axis=o.axis) if len(wide) > 1 else wide[0]


def _soft(of: Shape, *, axis: Any = -1) -> Bound:
    return Bound(shape=of, axis=axis_of(axis, of))


def _indexed(of: Shape, added: Shape, *, indices: Any, axis: Any) -> Bound:
    at = axis_of(axis, of)
    places = np.take(places_of(of), indices, at)
    if places.shape != added:
        raise ValueError(f"expected features {places.shape} to be added, got {added}")
    return Bound(shape=of, places=places)


# ----------------------------------------------------------------------------------------------- windows and images


def _windows(image: Shape, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Bound:
    """Return the places that windows see in a padded image (C, *S), as torch's unfold has them, and the padding."""
    dims = len(image) - 1
    options = {"kernel": kernel, "dilation": dilation, "padding": padding, "stride": stride}
    given = [integers(name, value) for name, value in options.items()]
    if any(len(each) not in (1, dims) for each in given):
        raise ValueError(f"kernel, dilation, padding, stride: expected {dims} integers each for an image {image}")
    sizes, gaps, frame, steps = (each * (dims // len(each)) for each in given)
    padded = (image[0], *(size + 2 * p for size, p in zip(image[1:], frame, strict=True)))
    extents = tuple(gap * (size - 1) + 1 for size, gap in zip(sizes, gaps, strict=True))
    outside = any(extent > size for extent, size in zip(extents, padded[1:], strict=True))
    if min((*sizes, *gaps, *steps)) < 1 or min(frame) < 0 or outside:
        raise ValueError(f"kernel: expected windows inside the padded image {padded}, got {extents} numbers wide")
    seen = np.lib.stride_tricks.sliding_window_view(places_of(padded), extents, tuple(range(1, dims + 1)))
    seen = seen[(slice(None), *(slice(None, None, s) for s in steps), *(slice(None, None, g) for g in gaps))]
    order = (0, *range(dims + 1, 2 * dims + 1), *range(1, dims + 1))
    places = seen.transpose(order).reshape(image[0] * prod(sizes), -1)
    inside = (slice(None), *(slice(p, p + size) for size, p in zip(image[1:], frame, strict=True)))
    pairs = ((0, 0), *((p, p) for p in frame))
    return Bound(shape=places.shape, places=places, pairs=pairs, index=inside, padded=padded)


def _unfolded(of: Shape, *, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Bound:
    return _windows(of, kernel, dilation, padding, stride)


def _folded(of: Shape, *, size: Any, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Bound:
    spatial, window = integers("size", size), integers("kernel", kernel)
    channels = of[0] // prod(window * (len(spatial) // len(window)))
    o = _windows((channels, *spatial), kernel, dilation, padding, stride)
    if o.shape != of:
        raise ValueError(f"expected features {o.shape} of windows in an image of size {spatial}, got {of}")
    o.shape = (channels, *spatial)
    return o


TAPS: dict[str, tuple[tuple[int, ...], Callable[[Any], list[Any]]]] = {
    "nearest": ((0,), lambda t: [1 + 0 * t]),
    "linear": ((0, 1), lambda t: [1 - t, t]),
    "cubic": ((-1, 0, 1, 2), lambda t: [_cubic(t + 1), _cubic(t), _cubic(1 - t), _cubic(2 - t)]),
}
"""The neighbours of a place between two numbers, and their weights from how far it is from the first."""


def _cubic(t: Any) -> Any:
    near, far = 1.25 * t**3 - 2.25 * t**2 + 1, -0.75 * (t**3 - 5 * t**2 + 8 * t - 4)
    return np.where(t <= 1, near, far)


def _weights(size: int, out: int, mode: str, corners: bool, factor: float | None) -> np.ndarray:
    """Return the matrix (out, size) of an interpolation along an axis, as torch has it."""
    step = size / out if factor is None else 1 / factor
    at = np.arange(out) * ((size - 1) / max(out - 1, 1) if corners else step)
    if mode != "nearest" and not corners:
        at = at + 0.5 * step - 0.5
    at = np.maximum(at, 0) if mode == "linear" else at
    first, matrix = np.floor(at.astype("float32") if mode == "nearest" else at), np.zeros((out, size))
    for tap, weight in zip(TAPS[mode][0], TAPS[mode][1](at - first), strict=True):
        np.add.at(matrix, (np.arange(out), np.clip(first + tap, 0, size - 1).astype(int)), weight)
    return matrix


def _resampled(of: Shape, *, size: Any, mode: str = "nearest", corners: bool = False, factors: Any = None) -> Bound:
    sizes = integers("size", size)
    if mode not in TAPS or (mode == "nearest" and corners):
        raise ValueError(f"mode: expected one of {list(TAPS)}, got {mode!r} and corners={corners}")
    if not 0 < len(sizes) < len(of) or min(sizes) < 1 or len(factors or sizes) != len(sizes):
        raise ValueError(f"size: expected that of each axis after the channels of features {of}, got {size!r}")
    axes, each = range(-len(sizes), 0), factors or (None,) * len(sizes)
    matrices = tuple(_weights(of[a], s, mode, corners, f) for a, s, f in zip(axes, sizes, each, strict=True))
    lead, old, new = "abc"[: len(of) - len(sizes)], "ijk"[: len(sizes)], "xyz"[: len(sizes)]
    subscripts = f"{lead}{old}," + ",".join(map("".join, zip(new, old, strict=True))) + f"->{lead}{new}"
    return Bound(shape=(*of[: -len(sizes)], *sizes), axes=axes, matrices=matrices, subscripts=subscripts)


def _resample(o: Bound, op: Op, x: Any) -> Any:
    for axis, matrix in zip(o.axes, o.matrices, strict=True):
        x = op("along", x, matrix=matrix, axis=axis)
    return x


COMPOSED = table(
    ComposedRow("pow", "np.power({0}, {1})", lambda o, op, a, b: op("exp", op("multiply", op("log", a), b)),
                ties="not a number where the base is negative", cost=numbers(20), bind=pair),
    ComposedRow("var", "np.var({0}, axis={axis}, ddof={ddof}, keepdims={keepdims})", _variance,
                cost=inputs(4), bind=_spread),
    ComposedRow("std", "np.std({0}, axis={axis}, ddof={ddof}, keepdims={keepdims})",
                lambda o, op, x: op("root", _variance(o, op, x)),
                ties="0 where all numbers are equal, as in torch", cost=inputs(4), bind=_spread),
    ComposedRow("norm", "np.sqrt(np.sum({0} ** 2, axis={axis}, keepdims={keepdims}))", _norm,
                ties="0 at 0, as in torch", cost=inputs(2), bind=over),
    ComposedRow("logsumexp", "scipy.special.logsumexp({0}, axis={axis}, keepdims={keepdims})", _logsumexp,
                cost=inputs(10), bind=over),
    ComposedRow("prod", "np.prod({0}, axis={axis}, keepdims={keepdims})", _product, cost=inputs(2), bind=over),
    ComposedRow("cosine_similarity",
                "np.sum({0} * {1}, {axis}) / np.maximum(np.sqrt(np.sum(np.square({0}), {axis})), {eps})"
                " / np.maximum(np.sqrt(np.sum(np.square({1}), {axis})), {eps})", _cosine,
                ties="0 of a norm at 0, as in torch", cost=inputs(4), bind=_likeness),
    ComposedRow("glu", "np.split({0}, 2, {axis})[0] / (1 + np.exp(-np.split({0}, 2, {axis})[1]))", _gated,
                cost=numbers(10), bind=_gate),
    ComposedRow("stack", "np.stack([{all}], axis={axis})", _stack, ties="none: linear", bind=_stacked),
    ComposedRow("softmax", "scipy.special.softmax({0}, {axis})", lambda o, op, x: op(Softmax(o.axis), x),
                cost=numbers(10), bind=_soft),
    ComposedRow("log_softmax", "scipy.special.log_softmax({0}, {axis})", lambda o, op, x: op(LogSoftmax(o.axis), x),
                cost=numbers(10), bind=_soft),
    ComposedRow("index_add",
                "{0} + np.bincount(np.ravel({places}), np.ravel({1}), math.prod({shape})).reshape({shape})",
                lambda o, op, x, more: op("add", x, op("scatter_add", more, places=o.places, shape=o.shape)),
                ties="none: linear", bind=_indexed),
    ComposedRow("unfold", "np.ravel(np.pad({0}, {pairs}))[{places}]",
                lambda o, op, x: op("gather", op("pad", x, widths=o.pairs), places=o.places),
                ties="none: linear", bind=_unfolded),
    ComposedRow("fold",
                "np.bincount(np.ravel({places}), np.ravel({0}), math.prod({padded})).reshape({padded})[{index}]",
                lambda o, op, x: op("getitem", op("scatter_add", x, places=o.places, shape=o.padded), index=o.index),
                ties="none: linear", cost=inputs(), bind=_folded),
    ComposedRow("interpolate", "np.einsum({subscripts!r}, {0}, {matrices})", _resample,
                ties="none: linear", cost=numbers(8), bind=_resampled),
)  # fmt: skip
"""The composed rows, by name."""
