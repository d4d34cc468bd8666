"""What a layer must have for the product of the Hessian, found before anything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.layers.base import Layer, Leaf, zeros
from gbackprop.layers.mixed import lacks_mixed
from gbackprop.operators.pushing import replaced
from gbackprop.plan.plan import SHIPPED


def lacks_second(leaf: Leaf) -> str | None:
    """Return the reason why a layer lacks second-order terms of the Hessian, or None."""
    layer = leaf.layer
    if not leaf.lowest and layer.curvature != "zero" and type(layer).residual is Layer.residual:
        return f"its curvature is {layer.curvature!r}, and it has no residual"
    if layer.__module__.startswith(SHIPPED) or not leaf.parameters:
        return None
    if not leaf.lowest:
        if len(leaf.sources) > 1:
            return "it has parameters and several inputs, and there is no mixed residual of these"
        if lacks_mixed(leaf, leaf.parameters):
            return "it has parameters, is not affine in its input, and has no mixed residual"
    return _lacks_affinity(leaf)


def _lacks_affinity(leaf: Leaf) -> str | None:
    """Return the first parameter, as a reason, whose Jacobian changes with the layer's parameters, or None.

    The Hessian has then a part in which two parameters, or one and itself, meet in this layer.
    """
    layer, inputs = leaf.layer, [_waves(zeros(leaf.layer, shape)) for shape in leaf.input_shapes]
    other: Any = layer
    for k, (key, value) in enumerate(layer.parameters.items()):
        other = replaced(other, key, value + _waves(value, k + 1))
    for key in leaf.parameters:
        one, two = [_products(each, key, inputs) for each in (layer, other)]
        scale = max(float(abs(one).max(initial=0)), float(abs(two).max(initial=0)))
        if float(abs(one - two).max(initial=0)) > 1e3 * float(np.finfo(one.dtype).eps) * scale:
            return f"its Jacobian in its {key} depends on its parameters, and there is no second derivative of these"
    return None


def _waves(like: Array, start: int = 0) -> Array:
    """Return numbers of both signs, of the shape and dtype of `like`; zeros for integers."""
    xp = array_module(like)
    return xp.cos(xp.arange(like.size) + start).reshape(like.shape).astype(like.dtype)


def _products(layer: Layer, key: str, inputs: list[Array]) -> Array:
    """Jᵀ g at a column of both signs."""
    y, saved = layer.forward(*inputs)
    return layer.parameter_jacobians(saved)[key].per_sample(_waves(y, 2)[None])
