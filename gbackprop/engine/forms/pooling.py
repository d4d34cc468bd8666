"""Forms of pooling by compiled kernels, or by the plain functions if there are none."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, channels_first, channels_last, row_blocks
from gbackprop.calculus.jacobian import congruence
from gbackprop.calculus.layer import Shape
from gbackprop.engine.forms.images import padded
from gbackprop.engine.kernels import on_gpu, windows_of
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.layers.windows.pooling import AvgPool2d, MaxPool2d


def max_forward(layer: MaxPool2d, x: Array, context: Context) -> tuple[Array, Any]:
    """y[t] = maxₖ x[t, k]."""
    kernels, spatial = windows_of(x, layer.dims), x.shape[2:]
    if kernels is None:
        return MaxPool2d.forward(layer, x)
    image = _image(layer, x, context.memory)
    y = context.memory.empty(image, (len(x), *layer.window.out(spatial), x.shape[1]))
    kernels.largest(image, layer.window, y)
    return channels_first(y), (x, y)


def _image(layer: MaxPool2d, x: Array, memory: Allocator) -> Array:
    """Return the image with channels last and −∞ in the padding."""
    return padded(channels_last(x), layer.window.fitted(x.shape[2:]), memory, -np.inf)


def places(layer: MaxPool2d, saved: Any, memory: Allocator) -> Array:
    """Compute the layer's `_places`."""
    x, y = saved
    kernels = windows_of(x, layer.dims)
    if kernels is None:
        return layer._places(saved)
    found = memory.empty(y, y.shape, np.int32)
    kernels.first_places(_image(layer, x, memory), y, layer.window, found)
    return found


def max_carry(layer: MaxPool2d, saved: Any, mat: Array, context: Context, found: Array | None = None) -> Array:
    """g[t], routed to the place of the maximum; `found` are these places, if they are known."""
    window, spatial, memory = layer.window, saved[0].shape[2:], context.memory
    kernels = windows_of(mat, layer.dims)
    if kernels is None:
        return MaxPool2d.mjp(layer, saved, mat)
    image = memory.empty(mat, (*mat.shape[:2], *window.padded(spatial), mat.shape[2]))
    found = places(layer, saved, memory) if found is None else found
    kernels.scatter(channels_last(mat, 2), found, window, image)
    return channels_first(image[(..., *window.inside(spatial), slice(None))], 2)


def max_average(layer: MaxPool2d, saved: Any, curvature: Array, shape: Shape, context: Context) -> Array:
    """1/N Σₙ Jₙᵀ Ḡ Jₙ, a few samples at a time: all samples at once would need N of KFRA's largest matrices."""
    batch, d = len(saved[0]), max(len(curvature), saved[0][0].size)
    blocks = row_blocks(batch, 4 * d * d * curvature.dtype.itemsize, curvature)

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


def mean_forward(layer: AvgPool2d, x: Array, context: Context) -> tuple[Array, Any]:
    """y[t] = 1/K Σₖ x[t, k]."""
    kernels, spatial, window = on_gpu(x), x.shape[2:], layer.window
    if kernels is None:
        return AvgPool2d.forward(layer, x)
    y = context.memory.empty(x, (len(x), *window.out(spatial), x.shape[1]))
    kernels.total(padded(channels_last(x), window.fitted(spatial), context.memory), window, y)
    y *= layer.share(spatial, x)
    return channels_first(y), x.shape


def mean_carry(layer: AvgPool2d, saved: Any, mat: Array, context: Context) -> Array:
    """g[t]/K, added to each place of the window."""
    kernels, spatial, window = on_gpu(mat), saved[2:], layer.window
    if kernels is None:
        return AvgPool2d.mjp(layer, saved, mat)
    rows = channels_last(mat, 2) * layer.share(spatial, mat)
    image = context.memory.empty(mat, (*mat.shape[:2], *window.padded(spatial), mat.shape[2]))
    kernels.spread(rows.reshape(-1, *rows.shape[2:]), window, image.reshape(-1, *image.shape[2:]))
    return channels_first(image[(..., *window.inside(spatial), slice(None))], 2)
