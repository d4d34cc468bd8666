"""Forms of `Linear`: one large product instead of one for each leading index, in reused memory."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.layers.linear import Linear


def forward(layer: Linear, x: Array, context: Context) -> tuple[Array, Any]:
    """y = W x + b."""
    parameters = layer.parameters
    y = _apply(x, parameters["weight"].T, context.memory)
    if layer.bias:
        y += parameters["bias"]
    return y, x


def carry(layer: Linear, saved: Any, mat: Array, context: Context) -> Array:
    """Wᵀ g."""
    return _apply(mat, layer.parameters["weight"], context.memory)


def _apply(x: Array, matrix: Array, memory: Allocator) -> Array:
    """Compute ``[…, I] @ [I, O]``."""
    return memory.matmul(x.reshape(-1, matrix.shape[0]), matrix).reshape(*x.shape[:-1], matrix.shape[1])
