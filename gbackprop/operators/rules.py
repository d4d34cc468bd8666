"""Shorter forms of the second-order terms, for layers whose residual has a structure.

Letters: g (N, *out) is the gradient at a layer's output, ẋ (K, N, *in) are tangents of its input, P (K, *p) directions
in a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import Outer
from gbackprop.calculus.layer import Layer
from gbackprop.engine.registry import SUM, Context
from gbackprop.layers.elementwise.prelu import PReLU
from gbackprop.layers.elementwise.softmax import _AlongAxis
from gbackprop.layers.joins import MatMul, Multiply
from gbackprop.layers.linear import Linear
from gbackprop.layers.norms.affine import Matrix
from gbackprop.layers.norms.batchnorm import _BatchNorm as BatchNorm
from gbackprop.layers.norms.normalization import Norm
from gbackprop.layers.norms.scale import Scale
from gbackprop.layers.windows.conv import _Conv as Conv
from gbackprop.layers.windows.conv_transpose import _ConvTranspose as ConvTranspose
from gbackprop.operators.pushing import outer_sums, spread
from gbackprop.plain.affine import replaced


@dataclass(frozen=True)
class Mixed:
    """The mixed term of the parameters of a kind of layer.

    Attributes
    ----------
    on_input : callable
        ``(layer, saved, key, g, P, context)``: (∂²(gᵀf) / ∂x ∂p) P, shape (K, N, *in).
    on_parameter : callable
        ``(layer, saved, key, g, ẋ, context)``: Σₙ (∂²(gᵀf) / ∂p ∂x) ẋ, shape (K, *p).
    """

    on_input: Callable[..., Array]
    on_parameter: Callable[..., Array]


@dataclass(frozen=True)
class Rules:
    """Forms by the functions that they replace.

    Attributes
    ----------
    residual : mapping
        For `Layer.residual`: ``form(layer, saved, g, *ẋ)``, the product of the residual, one array for each input.
    mixed : mapping
        For `Layer.parameter_jacobians`: a `Mixed`.
    """

    residual: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    mixed: Mapping[Any, Mixed] = field(default_factory=dict)


# ----------------------------------------------------------------------------------------------------------- residuals


def _multiply(layer: Multiply, saved: Any, g: Array, of_a: Array, of_b: Array) -> tuple[Array, Array]:
    """y = a ∘ b: g ∘ ḃ and g ∘ ȧ."""
    return g * of_b, g * of_a


def _matmul(layer: MatMul, saved: Any, g: Array, of_a: Array, of_b: Array) -> tuple[Array, Array]:
    """Y = A B: G Ḃᵀ and Ȧᵀ G."""
    return g @ of_b.swapaxes(-1, -2), of_a.swapaxes(-1, -2) @ g


def _softmax(layer: _AlongAxis, p: Array, g: Array, mat: Array) -> tuple[Array]:
    """r = Σₖ c[k] (eₖ − p) (eₖ − p)ᵀ: s − p Σ s with s = c ∘ (ẋ − pᵀẋ)."""
    axis = layer._axis(p)
    s = layer.strength(p, g) * (mat - (p * mat).sum(axis, keepdims=True))
    return (s - p * s.sum(axis, keepdims=True),)


def _norm(layer: Norm, saved: Any, g: Array, mat: Array) -> tuple[Array]:
    """r = c P + a x̂ᵀ + x̂ aᵀ: c P ẋ + a (x̂ᵀ ẋ) + x̂ (aᵀ ẋ)."""
    c, a, normal = layer.pieces(saved, g)
    x = mat.reshape(len(mat), *a.shape)
    projected = c[..., None] * layer._projected(x)
    along = a * (normal * x).sum(-1, keepdims=True) + normal * (a * x).sum(-1, keepdims=True)
    return ((projected + along).reshape(mat.shape),)


# --------------------------------------------------------------------------------------------------------- mixed terms


def _by_matrix(layer: Any, saved: Any, key: str, g: Array, direction: Array, context: Context) -> Array:
    """y = W x: Pᵀ g."""
    found = context.memory.empty(g, (len(direction), *g.shape[:-1], direction.shape[2]))
    rows = g.reshape(-1, g.shape[-1])
    array_module(g).matmul(rows, direction, out=found.reshape(len(direction), len(rows), -1))
    return found


def _by_weight(layer: Layer, saved: Any, key: str, g: Array, direction: Array, context: Context) -> Array:
    """Jₓᵀ g of the layer with each P as its weight, for one that is linear in it."""
    form = context.known.of(layer).carry
    twins = [replaced(layer, {key: each}) for each in direction]
    found = [twin.mjp(saved, g[None]) if form is None else form(twin, saved, g[None], context) for twin in twins]
    return found[0] if len(found) == 1 else array_module(g).concatenate(found)


def _linear_at(layer: Any, saved: Any, key: str, g: Array, mat: Array, context: Context) -> Array:
    """y = W x: Σₙₜ g[n, t] ẋ[k, n, t]ᵀ."""
    return _outer_at(layer.parameter_jacobians(mat.reshape(-1, *mat.shape[2:]))[key], g, len(mat))


def _conv_at(layer: Conv, saved: Any, key: str, g: Array, mat: Array, context: Context) -> Array:
    """y[t] = W u[t]: Σₙₜ g[n, t] u̇[k, n, t]ᵀ, with u̇ the unfolded tangent."""
    x = mat.reshape(-1, *mat.shape[2:])
    framed = layer.frame.around(x) if layer.frame else x
    jacobian: Any = context.jacobians(layer, (framed, None))[key]
    if len(mat) == 1:
        return context.reduce(jacobian, SUM, g[None], None)[None]
    return _outer_at(jacobian, g, len(mat))


def _outer_at(jacobian: Any, g: Array, count: int) -> Array:
    """Σₙₜ g[n, t] u[k, n, t]ᵀ of a Jacobian that is bound to K batches, one after the other."""
    assert isinstance(jacobian, Outer)
    u = jacobian.u
    return outer_sums(jacobian, jacobian.split(g[None]), u.reshape(len(u), count, -1, *u.shape[2:]))


def _transposed_at(layer: ConvTranspose, saved: Any, key: str, g: Array, mat: Array, context: Context) -> Array:
    """Σₙ J_pᵀ g at each ẋ as the input."""
    jacobians = [layer.parameter_jacobians(each)[key] for each in mat]
    return array_module(g).stack([context.reduce(jacobian, SUM, g[None], None) for jacobian in jacobians])


def _by_channel(count: int, each: Array) -> Array:
    """Sum over samples and over all but the channels: ``[K, N, C, …] -> [K, C]``, or over these too for one number."""
    return each.reshape(*each.shape[:2], count, -1).sum((1, 3))


def _scale_at(layer: Scale, saved: Any, key: str, g: Array, mat: Array, context: Context) -> Array:
    """y = w x: Σ g ẋ."""
    return _by_channel(layer.num_parameters, g * mat)


def _batchnorm_at(layer: BatchNorm, saved: Any, key: str, g: Array, mat: Array, context: Context) -> Array:
    """y = γ (x − m) / σ + β: Σ g ẋ / σ."""
    return _by_channel(layer.num_features, g * mat / saved[1])


def _prelu_by(layer: PReLU, saved: Any, key: str, g: Array, direction: Array, context: Context) -> Array:
    """y = a x where x ≤ 0: P g there."""
    return spread(direction, g.ndim - 1) * array_module(g).where(saved > 0, 0, g)


def _prelu_at(layer: PReLU, saved: Any, key: str, g: Array, mat: Array, context: Context) -> Array:
    """Σ g ẋ where x ≤ 0."""
    return _by_channel(layer.num_parameters, array_module(g).where(saved > 0, 0, g) * mat)


def _norm_by(layer: Norm, saved: Any, key: str, g: Array, direction: Array, context: Context) -> Array:
    """y = γ ∘ x̂ + β, in γ: J_x̂ᵀ (P ∘ g)."""
    return layer._normal_mjp(saved, layer.spread(direction[:, None], g.ndim - 1) * g)


def _norm_at(layer: Norm, saved: Any, key: str, g: Array, mat: Array, context: Context) -> Array:
    """In γ: Σ g ∘ (J_x̂ ẋ) over all that it multiplies."""
    rows = layer.rows(g * layer._normal_mjp(saved, mat))  # the Jacobian of x̂ is symmetric
    return rows.sum((1, 2)).reshape(len(mat), *layer.parameter_shape())


RULES = Rules(
    residual={
        Multiply.residual: _multiply,
        MatMul.residual: _matmul,
        _AlongAxis.residual: _softmax,
        Norm.residual: _norm,
    },
    mixed={
        Linear.parameter_jacobians: Mixed(_by_matrix, _linear_at),
        Matrix.parameter_jacobians: Mixed(_by_matrix, _linear_at),
        Conv.parameter_jacobians: Mixed(_by_weight, _conv_at),
        ConvTranspose.parameter_jacobians: Mixed(_by_weight, _transposed_at),
        Scale.parameter_jacobians: Mixed(_by_weight, _scale_at),
        BatchNorm.parameter_jacobians: Mixed(_by_weight, _batchnorm_at),
        PReLU.parameter_jacobians: Mixed(_prelu_by, _prelu_at),
        Norm.parameter_jacobians: Mixed(_norm_by, _norm_at),
    },
)
"""The forms of the package's layers."""
