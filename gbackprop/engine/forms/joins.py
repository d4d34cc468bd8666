"""Forms of products of two inputs."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.engine.registry import LayerForms
from gbackprop.layers.joins import MatMul, Multiply


def multiply(layer: Multiply, saved: Any, g: Array, of_a: Array, of_b: Array) -> tuple[Array, Array]:
    """y = a ∘ b: g ∘ ḃ and g ∘ ȧ."""
    return g * of_b, g * of_a


def matmul(layer: MatMul, saved: Any, g: Array, of_a: Array, of_b: Array) -> tuple[Array, Array]:
    """Y = A B: G Ḃᵀ and Ȧᵀ G."""
    return g @ of_b.swapaxes(-1, -2), of_a.swapaxes(-1, -2) @ g


ROWS = [LayerForms(Multiply, residual_product=multiply), LayerForms(MatMul, residual_product=matmul)]
