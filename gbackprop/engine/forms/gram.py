"""The form of Gram matrices for `Outer`. Letters as in `layers.jacobian`: u is (G, N, T, I), g is (G, V, N, T, O)."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.engine.registry import Context, Table, function_of
from gbackprop.layers.gram import GRAM
from gbackprop.layers.jacobian import Outer


def gram(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """⟨Jᵀ g[v, n], Jᵀ g[w, m]⟩; at one position it is (gᵀ g)(uᵀ u), without a matrix of p's size."""
    if outer.u.shape[2] > 1 or sign is not None:
        return GRAM.define(outer, mat, sign)
    return products(outer, mat, outer, mat)


def products(one: Any, mat: Array, other: Any, columns: Array) -> Array:
    """⟨Jᵀ g[v, n], J'ᵀ g'[w, m]⟩ of two Jacobians of a parameter: ``[V, N, *out], [W, M, *out] -> [N V, M W]``."""
    pair = [(one, mat), (other, columns)]
    if all(function_of(each, "per_sample") is Outer.per_sample and each.u.shape[2] == 1 for each, _ in pair):
        (g, u), (h, v) = [(each.split(columns)[:, :, :, 0].swapaxes(1, 2), each.u[:, :, 0]) for each, columns in pair]
        groups, n, k, o = g.shape
        m, w = h.shape[1:3]
        found = (g.reshape(groups, n * k, o) @ h.reshape(groups, m * w, o).swapaxes(1, 2)).reshape(groups, n, k, m, w)
        found *= (u @ v.swapaxes(1, 2))[:, :, None, :, None]
        return found.sum(0).reshape(n * k, m * w)
    rows, others = [each.per_sample(columns).swapaxes(0, 1) for each, columns in pair]
    return rows.reshape(len(rows) * rows.shape[1], -1) @ others.reshape(len(others) * others.shape[1], -1).T


REDUCE: Table = {(Outer.per_sample, GRAM): gram}
