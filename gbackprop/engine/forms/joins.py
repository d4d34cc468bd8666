"""Forms of products of two inputs."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.engine.registry import Context, LayerForms
from gbackprop.layers.joins import MatMul, Multiply
from gbackprop.layers.operations.operation import BilinearOperation, QuotientOperation


def multiply(layer: Multiply, saved: Any, g: Array, of_a: Array, of_b: Array) -> tuple[Array, Array]:
    """y = a ∘ b: g ∘ ḃ and g ∘ ȧ."""
    return g * of_b, g * of_a


def matmul(layer: MatMul, saved: Any, g: Array, of_a: Array, of_b: Array) -> tuple[Array, Array]:
    """Y = A B: G Ḃᵀ and Ȧᵀ G."""
    return g @ of_b.swapaxes(-1, -2), of_a.swapaxes(-1, -2) @ g


def carry(layer: BilinearOperation, saved: Any, mat: Array, context: Context) -> tuple[Array, Array]:
    """Jᵀ g; for X W with one W for all samples Σₙ Xᵀ G at W, of which no product of each sample is formed."""
    o, a, b = saved
    one_row = len(b) == 1 < len(a) == mat.shape[1]
    if not (context.summed and one_row and layer.name == "matmul" and len(o.shapes[1]) == 2):
        return layer.mjp(saved, mat)
    x, g = a.reshape(-1, a.shape[-1]), mat.reshape(len(mat), -1, mat.shape[-1])
    return layer.row.on_first(o, mat, b), (x.T @ g).reshape(len(mat), 1, *o.shapes[1])


ROWS = [
    LayerForms(Multiply, residual_product=multiply),
    LayerForms(MatMul, residual_product=matmul),
    LayerForms(BilinearOperation, carry=carry, pure=True),
    LayerForms(QuotientOperation, pure=True),
]
