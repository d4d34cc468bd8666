"""Forms of `Outer`, the Jacobian of a weight y[t] = W u[t]: reductions without the products of all columns at once.

Letters as in `calculus.jacobian`: u is (G, N, T, I), g is (G, V, N, T, O).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.gram import GRAM
from gbackprop.calculus.jacobian import REDUCTIONS, Outer, Reduction, group_blocks, weigh
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.moments import Moments
from gbackprop.calculus.views import Seen, Swapped, by_entries
from gbackprop.engine import costs
from gbackprop.engine.forms import bias
from gbackprop.engine.forms.gram import gram
from gbackprop.engine.forms.moments import moments
from gbackprop.engine.forms.products import (
    outer_product,
    outer_product_of_rows,
    over_columns,
    products,
    summed,
    total_of,
)
from gbackprop.engine.memory import result_like
from gbackprop.engine.registry import SUM, Context, JacobianForms
from gbackprop.engine.scratch import row_blocks


def batch(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥ s Jᵀ g[v, n]."""
    xp, n = array_module(mat), mat.shape[1]
    return write_batch(outer, mat, sign, lambda like: xp.empty_like(like, shape=(n, *like.shape[1:])), context)


def write_batch(
    outer: Outer, mat: Array, sign: Array | None, rows: Callable[[Array], Array], context: Context
) -> Array:
    """Compute `batch` into its final array ``rows(like)``, (N, *p); `like` gives the memory order of a row's axes.

    These are the largest results of all, and copying them takes as long as computing them.
    """
    g = outer.split(over_columns(mat, sign))[:, 0]
    row = array_module(g).empty((outer.groups, 1, g.shape[3], outer.u.shape[3]), dtype=g.dtype)
    place = rows(outer.joined(row))
    split = outer.from_parameter(place).reshape(len(place), outer.groups, -1, outer.u.shape[3])
    by_group = array_module(g).moveaxis(split, 1, 0)  # a view, because `joined` gave the memory order of the rows
    if g.shape[2] == 1:
        outer_product_of_rows(g[:, :, 0], outer.u[:, :, 0], by_group)
    else:
        outer_product(g, outer.u, by_group)
    return place


def sum_(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥₙ s Jᵀ g[v, n]."""
    g = outer.split(over_columns(mat, sign))
    groups, _, n, t, o = g.shape
    return outer.joined(summed(g.reshape(groups, n * t, o), outer.u.reshape(groups, n * t, -1)))


def batch_square(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥ s (Jᵀ g[v, n])²."""
    g, u = outer.split(mat), outer.u
    if u.shape[2] == 1:  # one position: (g uᵀ)² = g² (u²)ᵀ
        squares = _squares(outer, mat, sign, context)[:, :, None]
        return outer.joined(outer_product(squares, context.memory.multiply(u, u)))
    groups, _, n, _, o = g.shape
    total = array_module(mat).zeros((groups, n, o, u.shape[3]), dtype=mat.dtype)
    for v, rows, product in products(outer, g):
        product *= product
        total[:, rows] += (product if sign is None else product * sign[v, rows, None, None]).sum(1)
    return outer.joined(total)


def square(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥₙ s (Jᵀ g[v, n])²."""
    g, u = outer.split(mat), outer.u
    groups, columns, n, t, o = g.shape
    i = u.shape[3]
    if t == 1:
        squares = _squares(outer, mat, sign, context).swapaxes(1, 2)
        return outer.joined(squares @ context.memory.multiply(u, u).reshape(groups, n, -1))
    if costs.square_by_positions(columns, t, i, o) < costs.square_by_products(columns, t, i):
        return outer.joined(square_by_positions(outer, g, sign))
    total = array_module(mat).zeros((groups, o, i), dtype=mat.dtype)
    for some in row_blocks(o, groups * i * mat.dtype.itemsize, mat):  # one product may be larger than the cache
        for v, rows, product in products(outer, g[..., some]):
            product *= product
            total[:, some] += total_of(product, None if sign is None else sign[v, rows]).reshape(groups, -1, i)
    return outer.joined(total)


def _squares(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥ s g[v, n]² where there is one position, (G, N, O)."""
    found = bias.squares(outer.bias, mat, sign, context)
    return array_module(found).moveaxis(found.reshape(len(found), outer.groups, -1), 1, 0)


def square_by_positions(outer: Outer, g: Array, sign: Array | None) -> Array:
    """Σᵥ s (Σₜ gₜₒ uₜᵢ)² = Σₜᵣ kₜᵣₒ uₜᵢ uᵣᵢ with k = Σᵥ s gₜₒ gᵣₒ; pairs t ≤ r suffice, (G, O, I).

    It is cheaper for many columns and few positions.
    """
    xp, u = array_module(g), outer.u.astype(np.float64)  # pairs can cancel, where a square of sums does not
    groups, columns, n, t, o = g.shape
    total = xp.zeros((groups, o, u.shape[3]), dtype=np.float64)
    t_, r, times = _pairs(np if isinstance(g, np.ndarray) else xp, t)
    for rows in row_blocks(n, groups * o * t * max(t, columns) * 8, g):  # usually one sample each on the host
        each = xp.moveaxis(g[:, :, rows], 1, 4).astype(np.float64, order="C").swapaxes(2, 3)  # [G, n, O, T, V]
        weighted = each if sign is None else each * sign[:, rows].T[:, None, None]
        k = weighted @ each.swapaxes(3, 4)  # [G, n, O, T, T]
        for pairs in row_blocks(len(times), u[:, rows, 0].nbytes, g):
            some = k[..., t_[pairs], r[pairs]] * times[pairs]
            products = u[:, rows, t_[pairs]] * u[:, rows, r[pairs]]
            some = some.transpose(0, 2, 1, 3).reshape(groups, o, -1)
            total += some @ products.reshape(groups, some.shape[2], -1)
    return (xp.maximum(total, 0) if sign is None else total).astype(g.dtype)


def square_norm(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """Σᵥ s ‖Jᵀ g[v, n]‖²."""
    g, u = outer.split(mat), outer.u
    groups, columns, n, t, o = g.shape
    xp = array_module(mat)
    if t == 1:  # ‖g uᵀ‖² = ‖g‖² ‖u‖², in float64: one factor may be beyond the dtype's range
        g, u = g.astype(np.float64, copy=False), u.astype(np.float64, copy=False)
        squares = weigh(xp.einsum("gvnto,gvnto->vng", g, g), sign).sum(0)
        return (squares * xp.einsum("gnti,gnti->ng", u, u)).sum(1, dtype=mat.dtype)
    norm = xp.zeros(mat.shape[1], dtype=mat.dtype)
    if costs.norm_by_grams(columns, t, u.shape[3], o):  # ‖Σₜ gₜ uₜᵀ‖² = Σₜₛ (gₜᵀ gₛ)(uₜᵀ uₛ): no matrix of p's size
        for rows in row_blocks(n, groups * columns * t * t * g.dtype.itemsize, g):
            some, inputs = g[:, :, rows].astype(np.float64), u[:, None, rows].astype(np.float64)
            gram = (some @ some.swapaxes(-1, -2)) * (inputs @ inputs.swapaxes(-1, -2))
            squares = xp.maximum(gram.sum((0, 3, 4)), 0)  # the sum can cancel: float64, and not below 0
            norm[rows] = weigh(squares, None if sign is None else sign[:, rows]).sum(0)
        return norm
    for v, rows, product in products(outer, g):
        product *= product
        norm[rows] += weigh(product.sum((0, 3, 4)), None if sign is None else sign[v, rows]).sum(0)
    return norm


def kronecker(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """Compute B, that of the bias: its block of each group."""
    return group_blocks(context.reduce(outer.bias, REDUCTIONS["kronecker"], mat, sign), outer.groups)


def input_square(outer: Outer, context: Context) -> Array | None:
    """Σₙₜ u uᵀ of each group."""
    u = outer.u.reshape(outer.groups, -1, outer.u.shape[3])
    few = u.shape[1] < u.shape[2]
    if few:  # the smaller one is put in the order of the parameter's entries: u here, else the squares
        u = by_entries(outer, u)
    # NumPy detects the symmetry and mirrors one half: for few rows that takes longer than computing the other half.
    other = u.copy() if isinstance(u, np.ndarray) and not costs.mirrored(*u.shape[1:]) else u
    squares = summed(u, other) if few else outer.by_entries(summed(u, other))
    return squares if outer.groups > 1 else squares[0]


def _pairs(xp: Any, t: int) -> tuple[Array, Array, Array]:
    """Return pairs of positions that suffice for a sum over all pairs, and the weight of each."""
    if xp is not np:  # all pairs: selecting half of them would make the host wait
        return xp.repeat(xp.arange(t), t), xp.tile(xp.arange(t), t), xp.ones(t * t)
    first, second = np.triu_indices(t)
    return first, second, np.where(first == second, 1.0, 2.0)


def push(outer: Outer, directions: Array, shape: Shape) -> Array:
    """y[t] = P u[t]."""
    xp, u, count = array_module(directions), outer.u, len(directions)
    groups, n, t, i = u.shape
    y, view = bias.outputs(outer.bias.rows, directions, shape)
    weights = xp.moveaxis(outer.from_parameter(directions).reshape(count, groups, -1, i), 1, 0).swapaxes(2, 3)
    rows = u.reshape(groups, 1, n * t, i)
    if groups == 1 and view.flags.c_contiguous:
        xp.matmul(rows, weights, out=view.reshape(1, count, n * t, -1))
    else:
        outer.split(y)[...] = (rows @ weights).reshape(groups, count, n, t, -1)
    return y


def pull(outer: Outer, mat: Array) -> Array:
    """Σₙₜ g[k, n, t] u[n, t]ᵀ."""
    return outer_sums(outer, outer.split(mat), outer.u[:, None])


def outer_sums(outer: Outer, g: Array, u: Array) -> Array:
    """Σₙₜ g[k, n, t] u[k, n, t]ᵀ, where one of the two may be the same for each k: its K is 1."""
    g, u = g.reshape(*g.shape[:2], -1, g.shape[4]), u.reshape(*u.shape[:2], -1, u.shape[4])
    shape = (len(g), max(g.shape[1], u.shape[1]), g.shape[3], u.shape[3])
    product = array_module(g).matmul(g.swapaxes(2, 3), u, out=result_like(g, shape))
    return outer.joined(product)


OUTER = JacobianForms(
    Outer,
    reduce={
        SUM: sum_,
        REDUCTIONS["batch"]: batch,
        REDUCTIONS["square"]: square,
        REDUCTIONS["batch_square"]: batch_square,
        REDUCTIONS["square_norm"]: square_norm,
        REDUCTIONS["moments"]: moments,
        REDUCTIONS["kronecker"]: kronecker,
        REDUCTIONS["input_square"]: input_square,
        GRAM: gram,
    },
    write_batch=write_batch,
    push=push,
    pull=pull,
)


def without(forms: JacobianForms, kind: type, *names: str, **others: Any) -> JacobianForms:
    """Return the forms for a subclass that has reductions of its own."""
    return replace(forms, kind=kind, reduce={r: f for r, f in forms.reduce.items() if r.name not in names}, **others)


def swapped(reduction: Reduction) -> Any:
    """Make a form of a reduction of `Swapped`: that of the matrix, with its axes swapped."""

    def reduce(jacobian: Swapped, mat: Array, sign: Array | None, context: Context) -> Any:
        found = context.reduce(jacobian.matrix, reduction, mat, sign)
        if isinstance(found, Moments):
            parts = (None if part is None else part.swapaxes(0, 1) for part in (found.mean, found.centered, found.low))
            return Moments(found.count, *parts)  # type: ignore[arg-type]
        return found.swapaxes(-1, -2) if reduction not in (GRAM, REDUCTIONS["square_norm"]) else found

    return reduce


def swapped_push(jacobian: Swapped, directions: Array, shape: Shape) -> Array:
    """y[t] = Pᵀ u[t]."""
    return push(jacobian.matrix, directions.swapaxes(1, 2), shape)


def swapped_pull(jacobian: Swapped, mat: Array) -> Array:
    """Σₙₜ u[n, t] g[k, n, t]ᵀ."""
    return pull(jacobian.matrix, mat).swapaxes(1, 2)


def swapped_batch(jacobian: Swapped, mat: Array, sign: Array | None, rows: Any, context: Context) -> Array:
    """Compute "batch" into its final array ``rows(like)``."""
    matrix = jacobian.matrix
    turned = write_batch(matrix, mat, sign, lambda like: rows(like.swapaxes(1, 2)).swapaxes(1, 2), context)
    return turned.swapaxes(1, 2)


SWAPPED = JacobianForms(
    Swapped,
    write_batch=swapped_batch,
    reduce={each: swapped(each) for each in OUTER.reduce if each.name not in ("kronecker", "input_square")},
    push=swapped_push,
    pull=swapped_pull,
)

ROWS = [OUTER, SWAPPED, without(OUTER, Seen, "input_square")]
