"""Forms of losses: the Hessian in the network's outputs, times columns."""

from __future__ import annotations

from gbackprop.array import Array, array_module
from gbackprop.engine.registry import LossForms
from gbackprop.losses.cross_entropy import CrossEntropyLoss, exponentials
from gbackprop.losses.elementwise import ElementwiseLoss


def elementwise(loss: ElementwiseLoss, output: Array, target: Array, mat: Array) -> Array:
    """c l'' ∘ z."""
    return mat * (loss.second(output, target) * loss.summed_weight(output.shape[1:]))


def cross_entropy(loss: CrossEntropyLoss, output: Array, target: Array, mat: Array) -> Array:
    """c m (p ∘ z − p pᵀz) at each position; z less its entry at the likeliest class, with which nothing cancels."""
    _, e, rest = exponentials(output)
    p = e / (1 + rest)
    weighted = loss.weighted or target.ndim > 1
    m = loss.curvature_weights(output, target) * loss.summed_weight(output.shape[1:]) if weighted else 1
    likeliest = p.argmax(1)[None, :, None]
    shared = p * (mat - array_module(mat).take_along_axis(mat, likeliest, 2))
    return (shared - p * shared.sum(2, keepdims=True)) * m


OF_A_KIND = ("values", "gradients", "second", "curvature_weights", "unweighted", "noise", "pseudo_targets")

ROWS = [
    LossForms(ElementwiseLoss, varying=(*OF_A_KIND, "target_shape", "check_values"), hessian_product=elementwise),
    LossForms(CrossEntropyLoss, hessian_product=cross_entropy),
]
