"""Forms of pooling by compiled kernels, or by the plain functions if there are none."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.calculus.jacobian import congruence
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import pad
from gbackprop.engine.forms.moves import padded
from gbackprop.engine.kernels import on_gpu, windows_of
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, LayerForms
from gbackprop.engine.routes import Route, numbered
from gbackprop.engine.scratch import row_blocks
from gbackprop.layers.windows.pooling import _AvgPool, _MaxPool


def max_forward(layer: _MaxPool, x: Array, context: Context) -> tuple[Array, Any]:
    """y[t] = maxₖ x[t, k]."""
    kernels, spatial = windows_of(x, layer.dims), x.shape[2:]
    if kernels is None:
        return layer.forward(x)
    image = _image(layer, x, context.memory)
    y = context.memory.empty(image, (len(x), *layer.window.out(spatial), x.shape[1]))
    kernels.largest(image, layer.window, y)
    return channels_first(y), (x, y)


def _image(layer: _MaxPool, x: Array, memory: Allocator) -> Array:
    """Return the image with channels last and −∞ in the padding."""
    return padded(channels_last(x), layer.window.fitted(x.shape[2:]), memory, -np.inf)


def places(layer: _MaxPool, saved: Any, context: Context) -> Array:
    """Compute the layer's `_places`, once for all sweeps from one forward pass."""
    stored = {} if context.stored is None else context.stored
    if id(saved) not in stored:
        stored[id(saved)] = _places(layer, saved, context.memory)
    return stored[id(saved)]


def _places(layer: _MaxPool, saved: Any, memory: Allocator) -> Array:
    x, y = saved
    kernels = windows_of(x, layer.dims)
    if kernels is None:
        return layer._places(saved)
    found = memory.empty(y, y.shape, np.int32)
    kernels.first_places(_image(layer, x, memory), y, layer.window, found)
    return found


def max_carry(layer: _MaxPool, saved: Any, mat: Array, context: Context) -> Array:
    """g[t], routed to the place of the maximum."""
    window, spatial = layer.window, saved[0].shape[2:]
    kernels = windows_of(mat, layer.dims)
    if kernels is None:
        return layer.mjp(saved, mat)
    image = context.memory.empty(mat, (*mat.shape[:2], *window.padded(spatial), mat.shape[2]))
    kernels.scatter(channels_last(mat, 2), places(layer, saved, context), window, image)
    return channels_first(image[(..., *window.inside(spatial), slice(None))], 2)


def max_jmp(layer: _MaxPool, saved: Any, mat: Array, context: Context) -> Array:
    """ẋ at the place of each maximum."""
    stored = {} if context.stored is None else context.stored
    key = id(saved), "maxima"
    if key not in stored:
        stored[key] = maxima(layer, saved[0].shape, places(layer, saved, context))
    rows = channels_last(mat, 2).reshape(len(mat), -1)
    return channels_first(array_module(mat).take(rows, stored[key], axis=1), 2)


def maxima(layer: _MaxPool, shape: Shape, found: Array) -> Array:
    """Return where in ``[N, *S, C]`` the maximum of each window is, from its place in the window: ``[N, *out, C]``."""
    window, xp = layer.window, array_module(found)
    n, *out, c = found.shape
    spatial, rest = shape[2:], found
    index = xp.zeros(found.shape, dtype="int64")
    for axis in reversed(range(len(out))):
        kernel, stride, dilation = window.kernel[axis], window.stride[axis], window.dilation[axis]
        start = xp.arange(out[axis]).reshape(-1, *(1,) * (len(out) - axis)) * stride - window.padding[axis][0]
        index += (start + rest % kernel * dilation) * prod(spatial[axis + 1 :])
        rest = rest // kernel
    samples = xp.arange(n).reshape(-1, *(1,) * (len(out) + 1)) * prod(spatial)
    return (samples + index) * c + xp.arange(c)


def through_max_pool(layer: _MaxPool, saved: Any, above: Route | None, context: Context) -> Route:
    """Return the route to the maxima."""
    spatial, out = saved[0].shape[2:], saved[1].shape[1:-1]
    image = pad(numbered(spatial), layer.window.fitted(spatial), -1)
    views = (image[(slice(None), *where, slice(None))] for where in layer.window.offsets(out))
    seen = np.stack([view.reshape(-1) for view in views])  # [K, W]
    winners = places(layer, saved, context).reshape(len(saved[0]), prod(out), -1)
    table = seen.take(winners * prod(out) + np.arange(prod(out))[:, None])
    return Route.of(table) if above is None else above.through(table)


def max_average(layer: _MaxPool, saved: Any, curvature: Array, shape: Shape, context: Context) -> Array:
    """1/N Σₙ Jₙᵀ Ḡ Jₙ, a few samples at a time: all samples at once would need N of KFRA's largest matrices."""
    batch, before = len(saved[0]), prod(saved[0].shape[1:])
    blocks = row_blocks(batch, 4 * max(len(curvature), before) ** 2 * curvature.dtype.itemsize, curvature)

    def congruent(rows: slice) -> Array:
        """Σₙ Jₙᵀ Ḡ Jₙ over some samples."""
        some = tuple(array[rows] for array in saved)
        each = congruence(lambda mat: max_carry(layer, some, mat, context), curvature, len(some[0]), shape)
        return each[:, 0] if len(some[0]) == 1 else each.sum(1)

    total = congruent(next(blocks))
    for rows in blocks:
        total += congruent(rows)
    total /= batch
    return total


def mean_forward(layer: _AvgPool, x: Array, context: Context) -> tuple[Array, Any]:
    """y[t] = 1/K Σₖ x[t, k]."""
    kernels, spatial, window = on_gpu(x), x.shape[2:], layer.window
    if kernels is None:
        return layer.forward(x)
    y = context.memory.empty(x, (len(x), *window.out(spatial), x.shape[1]))
    kernels.total(padded(channels_last(x), window.fitted(spatial), context.memory), window, y)
    y *= layer.share(spatial, x)
    return channels_first(y), x.shape


def mean_carry(layer: _AvgPool, saved: Any, mat: Array, context: Context) -> Array:
    """g[t]/K, added to each place of the window."""
    kernels, spatial, window = on_gpu(mat), saved[2:], layer.window
    if kernels is None:
        return layer.mjp(saved, mat)
    rows = channels_last(mat, 2) * layer.share(spatial, mat)
    image = context.memory.empty(mat, (*mat.shape[:2], *window.padded(spatial), mat.shape[2]))
    kernels.spread(rows.reshape(-1, *rows.shape[2:]), window, image.reshape(-1, *image.shape[2:]))
    return channels_first(image[(..., *window.inside(spatial), slice(None))], 2)


ROWS = [
    LayerForms(
        _MaxPool,
        forward=max_forward,
        carry=max_carry,
        pure=True,
        average=max_average,
        routes=through_max_pool,
        begins=True,
        jmp=max_jmp,
    ),
    LayerForms(_AvgPool, forward=mean_forward, carry=mean_carry, pure=True),
]
