"""The form of Gram matrices for `Outer`. Letters as in `layers.jacobian`: u is (G, N, T, I), g is (G, V, N, T, O)."""

from __future__ import annotations

from gbackprop.array import Array
from gbackprop.engine.registry import Context, Table
from gbackprop.layers.gram import GRAM
from gbackprop.layers.jacobian import Outer


def gram(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """⟨Jᵀ g[v, n], Jᵀ g[w, m]⟩; at one position it is (gᵀ g)(uᵀ u), without a matrix of p's size."""
    g, u = outer.split(mat), outer.u
    groups, columns, n, t, o = g.shape
    if t > 1 or sign is not None:
        return GRAM.define(outer, mat, sign)
    rows = g[:, :, :, 0].swapaxes(1, 2).reshape(groups, n * columns, o)
    products = (rows @ rows.swapaxes(1, 2)).reshape(groups, n, columns, n, columns)
    products *= (u[:, :, 0] @ u[:, :, 0].swapaxes(1, 2))[:, :, None, :, None]
    return products.sum(0).reshape(n * columns, n * columns)


REDUCE: Table = {(Outer.per_sample, GRAM): gram}
