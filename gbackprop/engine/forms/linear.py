"""Forms of `Linear`: one large product instead of one for each leading index, in reused memory."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.engine.forms import outer
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.layers.linear import Linear


def forward(layer: Linear, x: Array, context: Context) -> tuple[Array, Any]:
    """y = W x + b."""
    parameters = layer.parameters
    weight = parameters["weight"].T
    y = context.memory.matmul(x, weight) if x.ndim == 2 else multiplied(x, weight, context.memory)
    if layer.bias:
        y += parameters["bias"]
    return y, x


def carry(layer: Linear, saved: Any, mat: Array, context: Context) -> Array:
    """Wᵀ g."""
    weight = layer.parameters["weight"]
    if mat.ndim == 3 and mat.shape[0] == 1:
        return context.memory.matmul(mat, weight)
    return multiplied(mat, weight, context.memory)


def gradients(layer: Linear, saved: Any, mat: Array, context: Context) -> dict[str, Array]:
    """Σᵥₙₜ g[v, n, t] u[n, t]ᵀ and Σᵥₙₜ g[v, n, t], of a single column."""
    rows = mat.ndim == 3 and mat.shape[0] == 1  # as they are, without further axes
    g = mat if rows else mat.reshape(1, -1, layer.out_features)
    u = saved[None] if rows else saved.reshape(1, -1, layer.in_features)
    weight = outer.summed(g, u)[0]
    if not layer.bias:
        return {"weight": weight}
    n, t = mat.shape[1], g.shape[1] // mat.shape[1]
    sums = g if t == 1 else array_module(g).ones(t, dtype=g.dtype) @ g.reshape(1, n, t, -1)
    if n == 1:
        return {"weight": weight, "bias": sums[0, 0].copy()}
    return {"weight": weight, "bias": sums.sum((0, 1))}


def multiplied(x: Array, matrix: Array, memory: Allocator) -> Array:
    """Compute ``[…, I] @ [I, O]``."""
    return memory.matmul(x.reshape(-1, matrix.shape[0]), matrix).reshape(*x.shape[:-1], matrix.shape[1])
