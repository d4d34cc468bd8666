"""The mixed residual: second derivatives with respect to a parameter and its layer's input together.

It is needed where the input depends on another use of the same parameter: ∂² (gᵀ y) / ∂p ∂x is then a part of the
Hessian of p with itself.
"""

from __future__ import annotations

from math import prod
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.layers.base import Layer, Leaf, Shape, jacobians_of_zeros
from gbackprop.layers.jacobian import Bias
from gbackprop.layers.residual import Factored, products, units


class MixedLayer(Layer):
    """A layer with parameters that is not linear in its input, and factors its mixed residuals itself."""

    def mixed_width(self, key: str, shape: Shape) -> int:
        """Return the number of columns of `mixed_residual`, for inputs of feature shape `shape`."""
        raise NotImplementedError(f"{type(self).__name__} has no mixed_width")

    def mixed_residual(self, saved: Any, key: str, grad: Array, shape: Shape) -> Factored:
        """Factor ∂² (gᵀ y) / ∂p ∂x of a parameter p and the input x, both ways: columns over (p, x)."""
        raise NotImplementedError(f"{type(self).__name__} has no mixed_residual")


def mixed_width(leaf: Leaf, key: str) -> int:
    """Return the number of columns of a layer's mixed residual: 0 for a bias, which no input multiplies."""
    if isinstance(leaf.layer, MixedLayer):
        return leaf.layer.mixed_width(key, leaf.input_shape)
    return 0 if type(jacobians_of_zeros(leaf)[key]) is Bias else 2 * prod(leaf.input_shape)


def mixed_residual(leaf: Leaf, saved: Any, key: str, grad: Array) -> Factored:
    """Factor the mixed residual of a parameter, with g the gradient at the output, shape (N, *out)."""
    if isinstance(leaf.layer, MixedLayer):
        return leaf.layer.mixed_residual(saved, key, grad, leaf.input_shape)
    return bilinear_residual(leaf.layer, key, grad, leaf.input_shape)


def bilinear_residual(layer: Layer, key: str, grad: Array, shape: Shape) -> Factored:
    """Factor the mixed residual of a layer that is linear in a parameter and in its input.

    It is the sum of the products of Jₚ(eₖ)ᵀ g on p and eₖ on x, for each number k of the input.
    """
    each = gradients_at_units(layer, key, grad, shape)
    return products(prod(shape), lambda k: (each[k], units(k, len(grad), shape, grad.dtype)), grad)


def gradients_at_units(layer: Layer, key: str, grad: Array, shape: Shape) -> Array:
    """Compute Jₚ(eₖ)ᵀ g for each number k of the input, shape (D, N, *p)."""
    xp, n, d = array_module(grad), len(grad), prod(shape)
    unit = xp.eye(d, dtype=grad.dtype).reshape(d, *shape)
    jacobian = layer.parameter_jacobians(layer.forward(unit)[1])[key]
    return jacobian.per_sample(xp.broadcast_to(grad[:, None], (n, d, *grad.shape[1:]))).swapaxes(0, 1)
