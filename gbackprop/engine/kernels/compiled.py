"""The loops of `host`, compiled by Numba.

Place k of the window at position p is entry ``base[p] + delta[k]`` of the flattened image.
"""

from __future__ import annotations

import numpy as np

from gbackprop.engine.kernels.compiler import compiled


@compiled
def fold(cols: np.ndarray, base: np.ndarray, delta: np.ndarray, image: np.ndarray) -> None:
    """``image[l, base[p] + delta[k]] += cols[l, p, k]`` for ``[L, P, K, C]``, from zero; `image` is (L, S, C)."""
    for row in range(cols.shape[0]):
        image[row] = 0  # here and not for the whole image before, so that it is in cache
        for p in range(cols.shape[1]):
            for k in range(cols.shape[2]):
                at = base[p] + delta[k]
                for c in range(cols.shape[3]):
                    image[row, at, c] += cols[row, p, k, c]


@compiled
def scatter(rows: np.ndarray, places: np.ndarray, base: np.ndarray, delta: np.ndarray, image: np.ndarray) -> None:
    """``image[v, l, base[p] + delta[places[l, p, c]], c] += rows[v, l, p, c]``, from zero; `image` is (V, L, S, C)."""
    for v in range(rows.shape[0]):
        for row in range(rows.shape[1]):
            image[v, row] = 0
            for p in range(rows.shape[2]):
                for c in range(rows.shape[3]):
                    image[v, row, base[p] + delta[places[row, p, c]], c] += rows[v, row, p, c]


@compiled
def largest(image: np.ndarray, base: np.ndarray, delta: np.ndarray, y: np.ndarray) -> None:
    """``y[l, p, c]``: the maximum of ``image[l, base[p] + delta[k], c]`` over k; NaN if one of them is NaN."""
    for row in range(y.shape[0]):
        for p in range(y.shape[1]):
            for c in range(y.shape[2]):
                y[row, p, c] = image[row, base[p] + delta[0], c]
            for k in range(1, len(delta)):
                at = base[p] + delta[k]
                for c in range(y.shape[2]):
                    most, seen = y[row, p, c], image[row, at, c]
                    y[row, p, c] = most if (most >= seen) | (most != most) else seen


@compiled
def first_places(image: np.ndarray, y: np.ndarray, base: np.ndarray, delta: np.ndarray, places: np.ndarray) -> None:
    """``places[l, p, c]``: the first k with ``image[l, base[p] + delta[k], c]`` not less than ``y[l, p, c]``.

    `places` must be zero before.
    """
    for row in range(y.shape[0]):
        for p in range(y.shape[1]):
            for k in range(len(delta)):
                at = base[p] + delta[k]
                for c in range(y.shape[2]):  # no branch, so that it is vectorized: still k if all before were less
                    places[row, p, c] += (places[row, p, c] == k) & (image[row, at, c] < y[row, p, c])


@compiled
def outer(g: np.ndarray, u: np.ndarray, out: np.ndarray) -> None:
    """``out[l, o, i] = g[l, o] u[l, i]``."""
    for row in range(out.shape[0]):
        for o in range(out.shape[1]):
            for i in range(out.shape[2]):
                out[row, o, i] = g[row, o] * u[row, i]


@compiled
def positive(x: np.ndarray, y: np.ndarray) -> None:
    """``y[i] = max(x[i], 0)``; NaN remains NaN."""
    zero = x.dtype.type(0)
    for i in range(x.size):
        y[i] = zero if x[i] < 0 else x[i]


@compiled
def where_positive(x: np.ndarray, g: np.ndarray) -> None:
    """``g[v, i] *= x[i] > 0``, as a product: what is not finite remains so."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    for v in range(g.shape[0]):
        for i in range(x.size):
            g[v, i] *= one if x[i] > 0 else zero
