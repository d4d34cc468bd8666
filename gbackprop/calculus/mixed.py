"""The mixed residual: second derivatives with respect to a parameter and its layer's input together.

It is needed where the input depends on another use of the same parameter: ∂² (gᵀ y) / ∂p ∂x is then a part of the
Hessian of p with itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import is_original
from gbackprop.calculus.jacobian import Bias, ParameterJacobian
from gbackprop.calculus.layer import Layer, Leaf, Shape, zeros
from gbackprop.calculus.residual import Factored, products, units


class MixedLayer(Layer):
    """A layer with parameters that is not affine in its input, and factors its mixed residuals itself."""

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
    return 0 if is_added(jacobians_of_zeros(leaf)[key]) else 2 * sum(map(prod, leaf.input_shapes))


def is_added(jacobian: ParameterJacobian) -> bool:
    """Return whether a parameter without a mixed residual of its layer's is a bias, which no input multiplies."""
    return type(jacobian) is Bias and is_original(jacobian)


def mixed_residual(leaf: Leaf, saved: Any, key: str, grad: Array) -> Factored:
    """Factor the mixed residual of a parameter, with g the gradient at the output, shape (N, *out)."""
    if isinstance(leaf.layer, MixedLayer):
        return leaf.layer.mixed_residual(saved, key, grad, leaf.input_shape)
    return bilinear_residual(leaf.layer, saved, key, grad, leaf.input_shape)


SIZES = (1e-3, 1.0, 1e3)
"""Sizes of inputs at which a layer must be affine: one that is clipped is so for small ones, or for large ones."""


def lacks_mixed(leaf: Leaf, keys: Iterable[str], x: Array | None = None) -> str | None:
    """Return the reason why a layer has no mixed residual of some parameters, or None; at inputs `x` if given."""
    for key in () if isinstance(leaf.layer, MixedLayer) else keys:
        if len(leaf.input_shapes) > 1:
            return f"its inputs depend on its {key} too, and there is no mixed residual of several inputs"
        if leaf.layer.curvature != "zero" or not _is_affine(leaf, key, x):
            return f"its input depends on its {key} too, it is not affine in its input, and it has no mixed residual"
    return None


def _is_affine(leaf: Leaf, key: str, x: Array | None) -> bool:
    """Return whether Jₚ(a + b) + Jₚ(0) = Jₚ(a) + Jₚ(b), for inputs of both signs, of several sizes or with a = x."""
    zero = zeros(leaf.layer, leaf.input_shape)
    xp = array_module(zero)
    steps = xp.arange(zero.size).reshape(zero.shape)
    a, b = xp.cos(2 * steps + 1).astype(zero.dtype), -1.5 * xp.cos(3 * steps + 1).astype(zero.dtype)
    pairs = [(size * a, size * b) for size in SIZES] if x is None else [(x, abs(x).max() * b + xp.zeros_like(x))]
    return all(_adds_up(leaf.layer, key, *pair) for pair in pairs)


def _adds_up(layer: Layer, key: str, a: Array, b: Array) -> bool:
    xp, found = array_module(a), []
    with np.errstate(all="ignore"):
        for x in (a + b, xp.zeros_like(a), a, b):
            y, saved = layer.forward(x)
            columns = xp.cos(xp.arange(y.size)).astype(y.dtype).reshape(1, *y.shape)
            found.append(layer.parameter_jacobians(saved)[key].per_sample(columns))
        error, size = abs(found[0] + found[1] - found[2] - found[3]).max(), abs(xp.stack(found)).max()
    return bool(error <= 1e3 * float(xp.finfo(y.dtype).eps) * size)


def bilinear_residual(layer: Layer, saved: Any, key: str, grad: Array, shape: Shape) -> Factored:
    """Factor the mixed residual of a layer that is affine in a parameter and in its input.

    It is the sum of the products of (Jₚ(eₖ) − Jₚ(0))ᵀ g on p and eₖ on x, for each number k of the input. The size of x
    is that by which Jₚ(x)ᵀ g is larger than these.
    """
    xp, n, each = array_module(grad), len(grad), gradients_at_units(layer, key, grad, shape)
    here = layer.parameter_jacobians(saved)[key].per_sample(grad[None])[0]
    of_x, of_units = (xp.sqrt((a * a).reshape(n, -1).sum(1)) for a in (here, xp.moveaxis(each, 1, 0)))
    size = xp.where(of_units > 0, of_x / xp.where(of_units > 0, of_units, 1), 0)
    at = layer.parameters[key], size.reshape(n, *(1,) * len(shape))
    return products(prod(shape), lambda k: (each[k], units(k, n, shape, grad.dtype)), grad, at)


def gradients_at_units(layer: Layer, key: str, grad: Array, shape: Shape) -> Array:
    """Compute (Jₚ(eₖ) − Jₚ(0))ᵀ g for each number k of the input, shape (D, N, *p)."""
    xp, n, d = array_module(grad), len(grad), prod(shape)
    points = xp.eye(d + 1, d, dtype=grad.dtype).reshape(d + 1, *shape)  # the last is 0
    jacobian = layer.parameter_jacobians(layer.forward(points)[1])[key]
    found = jacobian.per_sample(xp.broadcast_to(grad[:, None], (n, d + 1, *grad.shape[1:]))).swapaxes(0, 1)
    return found[:-1] - found[-1]


def jacobians_of_zeros(leaf: Leaf) -> dict[str, ParameterJacobian]:
    """Return the Jacobians of a layer's parameters at one sample of zeros, by which their kinds are known."""
    inputs = [zeros(leaf.layer, shape) for shape in leaf.input_shapes]
    with np.errstate(all="ignore"):
        return leaf.layer.parameter_jacobians(leaf.layer.forward(*inputs)[1])
