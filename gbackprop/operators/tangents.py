"""The Jacobian of a layer in its inputs, applied forward and back by fast forms that store what products share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.engine.forms import conv, elementwise, linear, pooling
from gbackprop.engine.registry import Context, function_of
from gbackprop.layers.elementwise.activation import Elementwise
from gbackprop.layers.linear import Linear
from gbackprop.layers.windows.conv import _Conv as Conv
from gbackprop.layers.windows.pooling import MaxPool2d, _MaxPool

Store = dict[str, Any]
"""The arrays that a form computed from a forward pass, stored for the next product."""


def jmp(layer: Layer, saved: Any, mats: Sequence[Array], context: Context, store: Store) -> Array:
    """Σᵢ Jᵢ ẋᵢ over the inputs of a layer: ``[K, N, *in] -> [K, N, *out]``."""
    known, form = context.known.of(layer), JMP.get(function_of(layer, "jmp"))
    if form is None or known.forward is None or known.carry is None:  # a subclass may override what the form replaces
        return layer.jmp(saved, *mats)
    return form(layer, saved, *mats, context, store)


def mjp(layer: Layer, saved: Any, mat: Array, context: Context, store: Store) -> Any:
    """Jᵀ g, one array for each input: ``[K, N, *out] -> [K, N, *in]``."""
    if function_of(layer, "mjp") is _MaxPool.mjp and context.known.of(layer).carry is not None:
        return pooling.max_carry(cast(MaxPool2d, layer), saved, mat, context, _places(layer, saved, context, store))
    return context.mjp(layer, saved, mat)


def _conv(layer: Conv, saved: Any, mat: Array, context: Context, store: Store) -> Array:
    """W u̇[t]."""
    x = mat.reshape(-1, *mat.shape[2:])
    y = conv.linear(layer, layer.frame.around(x) if layer.frame else x, context.memory)
    return y.reshape(*mat.shape[:2], *y.shape[1:])


def _linear(layer: Linear, saved: Any, mat: Array, context: Context, store: Store) -> Array:
    """W ẋ."""
    return linear.multiplied(mat, layer.parameters["weight"].T, context.memory)


def _elementwise(layer: Elementwise, saved: Any, mat: Array, context: Context, store: Store) -> Array:
    """φ'(x) ∘ ẋ."""
    return elementwise.carry(layer, saved, mat, context)


def _max_pool(layer: _MaxPool, saved: Any, mat: Array, context: Context, store: Store) -> Array:
    """ẋ at the place of each maximum."""
    if "index" not in store:
        store["index"] = maxima(layer, saved[0].shape, _places(layer, saved, context, store))
    xp, index = array_module(mat), store["index"]
    rows = channels_last(mat, 2).reshape(len(mat), -1)
    return channels_first(xp.take(rows, index, axis=1), 2)


def _places(layer: Any, saved: Any, context: Context, store: Store) -> Array:
    """Return the place in its window of each maximum."""
    if "places" not in store:
        store["places"] = pooling.places(layer, saved, context.memory)
    return store["places"]


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


JMP: dict[Any, Callable[..., Array]] = {
    Conv.jmp: _conv,
    Linear.jmp: _linear,
    Elementwise.jmp: _elementwise,
    _MaxPool.jmp: _max_pool,
}
"""Forms of `Layer.jmp`, by the function that they replace."""
