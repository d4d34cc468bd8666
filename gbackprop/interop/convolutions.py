"""torch's convolutions, and their windows."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch

from gbackprop import layers
from gbackprop.interop.calls import FunctionCall


def convolution(call: FunctionCall) -> str:
    """Return a convolution, or the transpose of one."""
    if call.given.get("transposed"):
        return transposed(call)
    x, weight, bias = call.plain(call.input), call.weight, call.given.get("bias")
    (c, *size), shape = call.shape(x), call.place(weight).layout.shape
    dims, padding = len(size), call.given["padding"]
    padding = padding if isinstance(padding, str) else tuple(padding)
    options = [_several(call.given[key], dims) for key in ("stride", "dilation")]
    groups = call.given["groups"]
    kind = getattr(layers, f"Conv{dims}d")

    def make() -> layers.Layer:
        return kind(c, shape[0], shape[2:], options[0], padding, options[1], groups, bias is not None)

    path = call.assembly.owner(call, ["weight"] if bias is None else ["weight", "bias"], make)
    if path is not None:
        return call.assembly.owned(call.node, path, x)
    patches = _patches(call, x, shape[2:], (*options, padding))  # (C k, L)
    k = prod(shape[1:])
    stacked = call.reshape(patches, (groups, k, call.shape(patches)[-1]))
    matrices = call.reshape(call.place(weight).name, (groups, shape[0] // groups, k))
    y = call.reshape(call.op("matmul", matrices, stacked), call.layout.features)
    if bias is None:
        return y
    return call.op("add", y, call.reshape(call.place(bias).name, (shape[0], *(1,) * dims)))


def _patches(call: FunctionCall, x: str, window: tuple[int, ...], options: tuple[Any, ...]) -> str:
    """Return the numbers under the windows of a convolution, ``(C, *S) -> (C K, L)``."""
    stride, dilation, padding = options
    c, *size = call.shape(x)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, window, strict=True)]
        pairs = [(each // 2, each - each // 2) for each in total]
    else:
        pairs = [(p, p) for p in _several(padding, len(size))]
    if any(map(any, pairs)):
        x = call.op("pad", x, widths=[(0, 0), *pairs])
    places = np.arange(prod(call.shape(x))).reshape(call.shape(x))
    views = np.lib.stride_tricks.sliding_window_view(
        places, [d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True)], tuple(range(1, len(size) + 1))
    )
    steps = (slice(None), *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    moved = np.moveaxis(views[steps], range(1, len(size) + 1), range(-len(size), 0))
    return call.op("gather", x, places=np.ascontiguousarray(moved.reshape(c * prod(window), -1)))


def transposed(call: FunctionCall) -> str:
    """Return the transpose of a convolution by a layer's own weight."""
    x, bias = call.plain(call.input), call.given.get("bias")
    (c, *size), shape = call.shape(x), call.place(call.weight).layout.shape
    options = {key: _several(call.given[key], len(size)) for key in ("stride", "padding", "output_padding", "dilation")}
    groups = call.given["groups"]
    kind = getattr(layers, f"ConvTranspose{len(size)}d")

    def make() -> layers.Layer:
        return kind(c, shape[1] * groups, shape[2:], bias=bias is not None, groups=groups, **options)

    path = call.assembly.owner(call, ["weight"] if bias is None else ["weight", "bias"], make)
    if path is not None:
        return call.assembly.owned(call.node, path, x)
    weight = call.place(call.weight).name
    flat = call.reshape(x, (groups, c // groups, prod(size)))
    matrices = call.op("transpose", call.reshape(weight, (groups, c // groups, prod(shape[1:]))), axes=(1, 3, 2))
    at = _spread(size, shape[2:], call.layout.features[1:], options)
    parts = call.reshape(call.op("matmul", matrices, flat), (groups * shape[1], prod(shape[2:]) * prod(size)))
    count = prod(call.layout.features[1:]) + 1
    places = (at + 1 + count * np.arange(groups * shape[1])[:, None]).astype("int64")
    whole = call.op("scatter_add", parts, places=places, shape=(groups * shape[1], count))
    y = call.reshape(call.op("getitem", whole, index=(slice(None), slice(1, None))), call.layout.features)
    return y if bias is None else call.op("add", y, call.reshape(call.place(bias).name, (-1, *(1,) * len(size))))


def _spread(size: Any, window: Any, after: Any, options: Any) -> np.ndarray:
    """Return the place to which a transposed convolution adds each number, −1 for those outside, ``(K L,)``."""
    axes, found, inside = len(size), np.array(0), np.array(True)
    for i, (n, k, m) in enumerate(zip(size, window, after, strict=True)):
        stride, padding, dilation = (options[key][i] for key in ("stride", "padding", "dilation"))
        shape = [1] * (2 * axes)
        shape[i], shape[axes + i] = k, n
        at = (np.arange(k)[:, None] * dilation + np.arange(n) * stride - padding).reshape(shape)
        found, inside = found * m + at, inside & (at >= 0) & (at < m)
    return np.where(inside, found, -1).ravel()


def _several(value: Any, dims: int) -> tuple[int, ...]:
    given = tuple(value) if isinstance(value, list | tuple) else (value,)
    return given * dims if len(given) == 1 else given


def unfold_images(call: FunctionCall) -> str:
    """Return the numbers under windows of images, as torch.nn.functional.unfold."""
    options = tuple(call.stride), tuple(call.dilation), tuple(call.padding)
    return _patches(call, call.plain(call.self), tuple(call.kernel_size), options)


def fold_images(call: FunctionCall) -> str:
    """Return images to which the numbers under windows are added, as torch.nn.functional.fold."""
    shape, x = call.layout.features, call.plain(call.self)
    options = {key: tuple(call.given[key]) for key in ("kernel_size", "dilation", "padding", "stride")}
    places = torch.arange(1, prod(shape) + 1, dtype=torch.float64).reshape(1, *shape)
    at = torch.nn.functional.unfold(places, **options)[0].long().numpy()  # 0 for those outside
    flat = call.op("scatter_add", x, places=at, shape=(prod(shape) + 1,))
    return call.reshape(call.op("getitem", flat, index=slice(1, None)), shape)


CONVOLUTIONS: dict[str, Callable[[FunctionCall], Any]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), transposed),
    "im2col": unfold_images, "col2im": fold_images,
}  # fmt: skip
"""torch's functions by name: each gives the name of a node."""
