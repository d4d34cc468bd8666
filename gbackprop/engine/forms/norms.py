"""Forms of normalizations and of layers with one factor for each channel."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian, weigh
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.sums import FEW, sum_over
from gbackprop.engine.forms.bias import outputs, pull
from gbackprop.engine.forms.linear import by_weight
from gbackprop.engine.registry import SUM, Context, JacobianForms, LayerForms
from gbackprop.layers.norms.batch_statistics import BatchStatistics
from gbackprop.layers.norms.batchnorm import _BatchNorm as BatchNorm
from gbackprop.layers.norms.normalization import Entrywise, Norm
from gbackprop.layers.norms.scale import Factor, Scale


def residual_product(layer: Norm, saved: Any, g: Array, mat: Array) -> tuple[Array]:
    """r = c P + a x̂ᵀ + x̂ aᵀ: c P ẋ + a (x̂ᵀ ẋ) + x̂ (aᵀ ẋ)."""
    c, a, normal = layer.pieces(saved, g)
    x = mat.reshape(len(mat), *a.shape)
    projected = c[..., None] * layer._projected(x)
    along = a * (normal * x).sum(-1, keepdims=True) + normal * (a * x).sum(-1, keepdims=True)
    return ((projected + along).reshape(mat.shape),)


def mixed_input(layer: Norm, saved: Any, g: Array, direction: Array, context: Context) -> Array:
    """y = γ ∘ x̂ + β, in γ: J_x̂ᵀ (P ∘ g)."""
    return layer._normal_mjp(saved, layer.spread(direction[:, None], g.ndim - 1) * g)


def mixed_parameter(layer: Norm, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """In γ: Σ g ∘ (J_x̂ ẋ) over all that it multiplies."""
    rows = layer.rows(g * layer._normal_mjp(saved, mat))  # the Jacobian of x̂ is symmetric
    return sum_over(rows, 1, 2).reshape(len(mat), *layer.parameter_shape())


def batch_product(layer: BatchStatistics, saved: Any, g: Array, mat: Array) -> tuple[Array]:
    """Compute that of the batch as one sample."""
    (found,) = residual_product(layer.norm, layer.as_one(saved), layer.merged(g[None])[0], layer.merged(mat))
    return (layer.split(found, g.shape),)


def batch_input(layer: BatchStatistics, saved: Any, g: Array, direction: Array, context: Context) -> Array:
    """y = γ ∘ x̂ + β, in γ: J_x̂ᵀ (P ∘ g)."""
    return layer.carried(saved, spread(direction, g.ndim - 1) * g)


def batch_parameter(layer: BatchStatistics, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """In γ: Σ g ∘ (J_x̂ ẋ)."""
    return by_channel(layer.channels, g * layer.carried(saved, mat))


def push_entrywise(jacobian: Entrywise, directions: Array, shape: Shape) -> Array:
    """y[t] = p ∘ u[t]."""
    y, view = outputs(jacobian.rows, directions, shape)
    p = directions.reshape(len(directions), 1, 1, -1)
    view[...] = p if jacobian.u is None else p * jacobian.u
    return y


def scale_parameter(layer: Scale, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """y = w x: Σ g ẋ."""
    return by_channel(layer.num_parameters, g * mat)


def batchnorm_parameter(layer: BatchNorm, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """y = γ (x − m) / σ + β: Σ g ẋ / σ."""
    return by_channel(layer.num_features, g * mat / saved[1])


def push_factor(jacobian: Factor, directions: Array, shape: Shape) -> Array:
    """y[c, t] = p[c] x[c, t]."""
    return spread(directions, len(shape) - 1) * jacobian.x


def spread(directions: Array, dims: int) -> Array:
    """Return one number for each channel, or for all, in a shape that goes with columns: ``[K, 1, C, 1, …]``.

    `dims` counts the axes of features: of samples that are single numbers there are none, nor channels.
    """
    return directions.reshape(len(directions), 1, *(-1, *(1,) * (dims - 1))[:dims])


def by_channel(count: int, each: Array) -> Array:
    """Sum over samples and over all but the channels: ``[K, N, C, …] -> [K, C]``, or over these too for one number."""
    each = each.reshape(*each.shape[:2], count, -1)
    return each.sum((1, 3)) if each.shape[1] <= FEW else sum_over(each.sum(3), 1)


def sum_(jacobian: ParameterJacobian, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥₙ s Jᵀ g[v, n]."""
    return sum_over(weigh(jacobian.per_sample(mat), sign), 0, 1)


def square(jacobian: ParameterJacobian, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥₙ s (Jᵀ g[v, n])²."""
    return sum_over(weigh(jacobian.per_sample(mat) ** 2, sign), 0, 1)


OVER_SAMPLES = {SUM: sum_, REDUCTIONS["square"]: square}
"""Forms of reductions of any Jacobian, by their definitions: of many samples with all digits."""

ROWS = [
    LayerForms(
        Norm,
        varying=("_eps", "parameter_shape", "rows", "sets", "spread"),
        residual_product=residual_product,
        mixed_input=mixed_input,
        mixed_parameter=mixed_parameter,
    ),
    LayerForms(
        BatchStatistics,
        pure=True,
        residual_product=batch_product,
        mixed_input=batch_input,
        mixed_parameter=batch_parameter,
    ),
    LayerForms(Scale, mixed_input=by_weight, mixed_parameter=scale_parameter),
    LayerForms(BatchNorm, mixed_input=by_weight, mixed_parameter=batchnorm_parameter),
    JacobianForms(Entrywise, reduce=OVER_SAMPLES, push=push_entrywise, pull=pull),
    JacobianForms(Factor, reduce=OVER_SAMPLES, push=push_factor, pull=pull),
]
