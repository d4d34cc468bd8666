"""Forms of linear maps: one large product instead of one for each leading index, in reused memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.sums import sum_over
from gbackprop.engine.forms.bias import over_positions
from gbackprop.engine.forms.products import summed
from gbackprop.engine.memory import Allocator, result_like
from gbackprop.engine.registry import Context, JacobianForms, LayerForms
from gbackprop.layers.embedding import _Rows
from gbackprop.layers.linear import Linear
from gbackprop.layers.norms.affine import Matrix
from gbackprop.layers.operations.weights import Weight
from gbackprop.plain.affine import replaced


def matrix_of(layer: Linear | Matrix) -> Array:
    """Wᵀ, shape (I, O)."""
    if type(layer) is Linear:  # the others are rare, and small calls have as many of these as layers
        return layer.parameters["weight"].T
    if isinstance(layer, Matrix):
        return layer.matrix
    return layer.parameters["weight"] if isinstance(layer, Weight) else layer.parameters["weight"].T


def forward(layer: Linear | Matrix, x: Array, context: Context) -> tuple[Array, Any]:
    """y = W x + b."""
    if type(layer) is Linear:
        own = layer.parameters
        matrix, bias = own["weight"].T, own["bias"] if layer.bias else None
    else:
        matrix, biased = matrix_of(layer), not isinstance(layer, Matrix) and layer.bias
        bias = layer.parameters["bias"] if biased else None
    y = context.memory.matmul(x, matrix) if x.ndim == 2 else multiplied(x, matrix, context.memory)
    if bias is not None:
        y += bias
    return y, x


def carry(layer: Linear | Matrix, saved: Any, mat: Array, context: Context) -> Array:
    """Wᵀ g."""
    weight = matrix_of(layer).T
    if mat.ndim == 3 and mat.shape[0] == 1:
        return context.memory.matmul(mat, weight)
    return multiplied(mat, weight, context.memory)


def gradients(layer: Linear, saved: Any, mat: Array, context: Context) -> dict[str, Array]:
    """Σᵥₙₜ g[v, n, t] u[n, t]ᵀ and Σᵥₙₜ g[v, n, t], of a single column."""
    g, u = mat.reshape(1, -1, layer.out_features), saved.reshape(1, -1, layer.in_features)
    weight = summed(g, u)[0]
    if not layer.bias:
        return {"weight": weight}
    n, t = mat.shape[1], g.shape[1] // mat.shape[1]
    sums = g if t == 1 else over_positions(g.reshape(1, n, t, -1))
    if n == 1:
        return {"weight": weight, "bias": sums[0, 0].copy()}
    return {"weight": weight, "bias": sum_over(sums, 0, 1)}


def multiplied(x: Array, matrix: Array, memory: Allocator) -> Array:
    """Compute ``[…, I] @ [I, O]``."""
    return memory.matmul(x.reshape(-1, matrix.shape[0]), matrix).reshape(*x.shape[:-1], matrix.shape[1])


def jmp(layer: Linear | Matrix, saved: Any, mat: Array, context: Context) -> Array:
    """W ẋ."""
    return multiplied(mat, matrix_of(layer), context.memory)


def mixed_input(layer: Any, saved: Any, g: Array, direction: Array, context: Context) -> Array:
    """y = W x: Pᵀ g."""
    found = context.memory.empty(g, (len(direction), *g.shape[:-1], direction.shape[2]))
    rows = g.reshape(-1, g.shape[-1])
    array_module(g).matmul(rows, direction, out=found.reshape(len(direction), len(rows), -1))
    return found


def mixed_parameter(layer: Any, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """y = W x: Σₙₜ g[n, t] ẋ[k, n, t]ᵀ."""
    rows, inputs = g.reshape(-1, g.shape[-1]), mat.reshape(len(mat), -1, mat.shape[-1])
    out = result_like(g, (len(mat), rows.shape[1], inputs.shape[2]))
    return array_module(g).matmul(rows.T, inputs, out=out)


def by_weight(layer: Layer, saved: Any, g: Array, direction: Array, context: Context) -> Array:
    """Jₓᵀ g of a layer with each P as its "weight", for any that is linear in it."""
    form = context.known.of(layer).carry
    twins = [replaced(layer, {"weight": each}) for each in direction]
    found = [twin.mjp(saved, g[None]) if form is None else form(twin, saved, g[None], context) for twin in twins]
    return found[0] if len(found) == 1 else array_module(g).concatenate(found)


def push_rows(jacobian: _Rows, directions: Array, shape: Shape) -> Array:
    """y[t] = row x[t] of P, zero for the padding."""
    padding, y = jacobian.layer.padding_idx, directions[:, jacobian.x]
    return y if padding is None else y * (jacobian.x != padding)[..., None]


def weight_gradients(layer: Weight, saved: Any, mat: Array, context: Context) -> dict[str, Array]:
    """y = x w + b: Σᵥₙₜ u[n, t] g[v, n, t]ᵀ and Σᵥₙₜ g[v, n, t], of a single column."""
    found = gradients(layer, saved, mat, context)
    return found | {"weight": found["weight"].T}


def weight_input(layer: Weight, saved: Any, g: Array, direction: Array, context: Context) -> Array:
    """y = x w: g Pᵀ."""
    return mixed_input(layer, saved, g, direction.swapaxes(1, 2), context)


def weight_parameter(layer: Weight, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """y = x w: Σₙₜ ẋ[k, n, t] g[n, t]ᵀ."""
    return mixed_parameter(layer, saved, g, mat, context).swapaxes(1, 2)


LINEAR = LayerForms(
    Linear,
    forward=forward,
    carry=carry,
    pure=True,
    gradients=gradients,
    jmp=jmp,
    mixed_input=mixed_input,
    mixed_parameter=mixed_parameter,
)
ROWS = [
    LINEAR,
    replace(LINEAR, kind=Matrix, gradients=None),
    replace(
        LINEAR, kind=Weight, gradients=weight_gradients, mixed_input=weight_input, mixed_parameter=weight_parameter
    ),
    JacobianForms(_Rows, push=push_rows),
]
