"""Forms of `Bias`: all reductions of one stack of columns share one sum over positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import Bias, ParameterJacobian, weigh
from gbackprop.engine.registry import Context, Function, Table


def position_sums(bias: Bias, mat: Array, context: Context) -> Array:
    """b[v, n] = Σₜ g[v, n, t], shape (V, N, O), computed once for each stack."""
    for known, columns, sums in context.sums:
        if known is bias and columns is mat:
            return sums
    rows = bias.rows(mat)
    # a product is faster than a sum over a middle axis
    sums = rows[:, :, 0] if rows.shape[2] == 1 else array_module(mat).ones(rows.shape[2], dtype=mat.dtype) @ rows
    context.sums.append((bias, mat, sums))
    return sums


class _Summed(Bias):
    """The bias's Jacobian at columns whose sums over positions are known."""

    def __init__(self, sums: Array) -> None:
        self.sums = sums

    def per_sample(self, mat: Array) -> Array:
        return self.sums


def shared(reduction: Function) -> Function:
    """Make a form for a reduction of `Bias`: the same function of the cached sums."""

    def reduce(bias: Bias, mat: Array, sign: Any, context: Context) -> Array:
        return reduction(_Summed(position_sums(bias, mat, context)), mat, sign)

    return reduce


def kronecker(bias: Bias, mat: Array, sign: Any, context: Context) -> Array:
    """B = Σᵥₙ s b bᵀ, computed once for the weight and the bias; each gets an array of its own."""
    known, columns, found = context.curvature
    if known is bias and columns is mat:
        return found.copy()
    found = Bias.kronecker(_Summed(position_sums(bias, mat, context)), mat, sign)
    context.curvature = bias, mat, found
    return found


def squares(bias: Bias, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥ s b[v, n]², (N, O), computed once for the weight and the bias: not to be written to."""
    known, columns, signs, found = context.squares
    if known is bias and columns is mat and signs is sign:
        return found
    sums = position_sums(bias, mat, context)
    weighted, on_host = weigh(sums, sign), isinstance(mat, np.ndarray)
    # NumPy's needs no array of the squares; CuPy's would copy both.
    found = np.einsum("vno,vno->no", weighted, sums) if on_host else (weighted * sums).sum(0)
    context.squares = bias, mat, sign, found
    return found


def batch_square(bias: Bias, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥ s b[v, n]², (N, O), an array of its own: results are added to in place."""
    return squares(bias, mat, sign, context).copy()


def square(bias: Bias, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥₙ s b[v, n]²."""
    return squares(bias, mat, sign, context).sum(0)


def sum_(bias: Bias, mat: Array, sign: Any, context: Context) -> Array:
    """Σᵥₙ s b[v, n]."""
    return weigh(position_sums(bias, mat, context), sign).sum((0, 1))


REDUCE: Table = {
    (Bias.per_sample, ParameterJacobian.sum): sum_,
    (Bias.per_sample, ParameterJacobian.square): square,
    (Bias.per_sample, ParameterJacobian.batch_square): batch_square,
    (Bias.per_sample, Bias.kronecker): kronecker,
} | {
    (Bias.per_sample, reduction): shared(reduction)
    for reduction in (ParameterJacobian.batch, ParameterJacobian.moments, ParameterJacobian.square_norm)
}
