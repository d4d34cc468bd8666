"""Forms of `Bias`: all reductions of one stack of columns share one sum over positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, channels_first
from gbackprop.calculus.jacobian import REDUCTIONS, Bias, ParameterJacobian, Reduction, weigh
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.sums import FEW, sum_over
from gbackprop.engine.memory import Reused
from gbackprop.engine.registry import SUM, Context, Function, JacobianForms, NoFormError


def position_sums(bias: Bias, mat: Array, context: Context) -> Array:
    """b[v, n] = Σₜ g[v, n, t], shape (V, N, O), computed once for each stack."""
    for known, columns, sums in context.sums:
        if known is bias and columns is mat:
            return sums
    rows = bias.rows(mat)
    sums = rows[:, :, 0] if rows.shape[2] == 1 else over_positions(rows)
    context.sums.append((bias, mat, sums))
    return sums


def over_positions(rows: Array) -> Array:
    """Compute ``rows.sum(2)``: a product is faster than a sum over a middle axis, but of many rows it loses digits."""
    t = rows.shape[2]
    return array_module(rows).ones(t, dtype=rows.dtype) @ rows if t <= FEW else sum_over(rows, 2)


def of_sums(reduction: Reduction) -> Function:
    """Make a form of a reduction with a formula: that of the cached sums."""
    formula = reduction.formula
    assert formula is not None

    def reduce(bias: Bias, mat: Array, sign: Any, context: Context) -> Any:
        return formula(position_sums(bias, mat, context), sign)

    return reduce


def kronecker(bias: Bias, mat: Array, sign: Any, context: Context) -> Array:
    """B = Σᵥₙ s b bᵀ, computed once for the weight and the bias; each gets an array of its own."""
    known, columns, found = context.curvature
    if known is bias and columns is mat:
        return found.copy()
    b = position_sums(bias, mat, context)
    found = weigh(b, sign).reshape(-1, b.shape[2]).T @ b.reshape(-1, b.shape[2])
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
    return sum_over(squares(bias, mat, sign, context), 0)


def sum_(bias: Bias, mat: Array, sign: Any, context: Context) -> Array:
    """Σᵥₙ s b[v, n]."""
    return sum_over(weigh(position_sums(bias, mat, context), sign), 0, 1)


def add_push(bias: Bias, directions: Array, total: Array) -> bool:
    """Add y[t] = p to `total` where it is, without an array J P, if rows are a view of it."""
    view = bias.rows(total)
    if not array_module(total).may_share_memory(view, total):
        return False
    view += directions[:, None, None]
    return True


def push(bias: Bias, directions: Array, shape: Shape) -> Array:
    """y[t] = p."""
    y, view = outputs(bias.rows, directions, shape)
    view[...] = directions[:, None, None]
    return y


def outputs(rows: Callable[[Array], Array], like: Array, shape: Shape) -> tuple[Array, Array]:
    """Return an uninitialized array ``[K, *shape]`` for J P, and its view by position, ``rows(array)``.

    The array has its channels last in memory if the view is contiguous then. K is the length of `like`.
    """
    xp, memory, (batch, *out) = array_module(like), Reused(), shape
    usual = memory.empty(like, (len(like), *shape))
    view = rows(usual)
    if view.flags.c_contiguous and xp.may_share_memory(view, usual):
        return usual, view
    last = channels_first(memory.empty(like, (len(like), batch, *out[1:], out[0])), 2)
    view = rows(last)
    if xp.may_share_memory(view, last):
        return last, view
    raise NoFormError


def pull(jacobian: ParameterJacobian, mat: Array) -> Array:
    """Σₙ Jᵀ g[k, n], of a parameter that is small beside the columns."""
    return sum_over(jacobian.per_sample(mat), 1)


ROWS = [
    JacobianForms(
        Bias,
        reduce={
            SUM: sum_,
            REDUCTIONS["square"]: square,
            REDUCTIONS["batch_square"]: batch_square,
            REDUCTIONS["kronecker"]: kronecker,
            **{REDUCTIONS[name]: of_sums(REDUCTIONS[name]) for name in ("batch", "moments", "square_norm")},
        },
        push=push,
        add_push=add_push,
        pull=pull,
    )
]
