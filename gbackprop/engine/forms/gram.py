"""The form of Gram matrices for `Outer`. Letters as in `calculus.jacobian`: u is (G, N, T, I), g is (G, V, N, T, O)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.calculus.gram import GRAM
from gbackprop.calculus.jacobian import Outer
from gbackprop.engine.registry import Context, NetworkForms

Columns = tuple[Any, Array]
"""A Jacobian of a parameter, and columns at the layer's output."""


def gram(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Array:
    """⟨Jᵀ g[v, n], Jᵀ g[w, m]⟩; at one position it is (gᵀ g)(uᵀ u), without a matrix of p's size."""
    if outer.u.shape[2] > 1 or sign is not None:
        return GRAM.define(outer, mat, sign)
    own = outer, mat
    return products(own, own, context.known)


def products(first: Columns, second: Columns, known: NetworkForms) -> Array:
    """⟨Jᵀ g[v, n], J'ᵀ g'[w, m]⟩ of two Jacobians of a parameter: ``[V, N, *out], [W, M, *out] -> [N V, M W]``.

    They are those of one layer at two batches, and so of one kind.
    """
    (one, mat), (other, columns) = first, second
    split = _at_one_position if _is_outer(one, known) else _individual
    g, u = split(one, mat)
    h, w = (g, u) if second is first else split(other, columns)  # BLAS computes half of a symmetric one
    found = g @ h.swapaxes(1, 2)  # [G, N V, M W]
    if u is not None:
        cells = found.reshape(len(g), u.shape[1], len(mat), w.shape[1], len(columns))
        cells *= (u @ w.swapaxes(1, 2))[:, :, None, :, None]
    return found.sum(0, dtype=mat.dtype)


def _is_outer(jacobian: Any, known: NetworkForms) -> bool:
    return known.of_jacobian(jacobian).reduce.get(GRAM) is gram and jacobian.u.shape[2] == 1


def _at_one_position(outer: Any, mat: Array) -> tuple[Array, Any]:
    """Return g as ``[G, N V, O]`` and u as ``[G, N, I]``.

    g is in float64: a gᵀ g that is beyond the range of float32 may be within it times uᵀ u.
    """
    g = outer.split(mat)[:, :, :, 0].swapaxes(1, 2).astype(np.float64, copy=False)
    return g.reshape(len(g), -1, g.shape[3]), outer.u[:, :, 0]


def _individual(jacobian: Any, mat: Array) -> tuple[Array, Any]:
    """Return Jᵀ g as ``[1, N V, P]``, and no u."""
    each = jacobian.per_sample(mat)
    return each.swapaxes(0, 1).reshape(1, each.shape[0] * each.shape[1], -1), None
