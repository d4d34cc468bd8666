"""Transforms for `tiles` without Numba: those of `compiled_tiles`, for all tiles at once, axis by axis.

The tiles of a call are numbered by their place first and by their image last, so that NumPy's inner loops run over all
images and channels. What a product over channels gives for a tile does not depend on where the tile stands.
"""

from __future__ import annotations

import numpy as np


def inputs(x: np.ndarray, top: int, left: int, across: int, tiles: np.ndarray) -> None:
    """``Bᵀ d B`` for the 4 x 4 inputs d of each tile."""
    m = _by_place(tiles, len(x), across)
    down, images, channels = m.shape[2], *m.shape[4:]
    patch = np.zeros((2 * down + 2, 2 * across + 2, images, channels), x.dtype)
    patch[top : top + x.shape[1], left : left + x.shape[2]] = x.transpose(1, 2, 0, 3)
    half = np.empty((4, down, *patch.shape[1:]), x.dtype)
    for d, out in ((patch, half), (half.transpose(2, 0, 1, 3, 4), m.transpose(1, 3, 0, 2, 4, 5))):
        d0, d1, d2, d3 = (d[k : len(d) - 2 + k : 2] for k in range(4))
        np.subtract(d0, d2, out=out[0])
        np.add(d1, d2, out=out[1])
        np.subtract(d2, d1, out=out[2])
        np.subtract(d1, d3, out=out[3])


def inputs_adjoint(tiles: np.ndarray, top: int, left: int, across: int, x: np.ndarray) -> None:
    """Compute the adjoint of `inputs`, written to `x`: the sum of ``B m Bᵀ`` over the tiles that cover a pixel."""
    m = _by_place(tiles, len(x), across)
    down, images, channels = m.shape[2], *m.shape[4:]
    half = np.empty((4, down, 2 * across + 2, images, channels), x.dtype)
    patch = np.empty((2 * down + 2, *half.shape[2:]), x.dtype)
    for (m0, m1, m2, m3), d in ((m.transpose(1, 3, 0, 2, 4, 5), half.transpose(2, 0, 1, 3, 4)), (half, patch)):
        even, odd, count = d[0::2], d[1::2], len(m0)  # of a tile and of the one before: even 0 and 2, odd 1 and 3
        even[:count], even[count] = m0, 0
        odd[count] = 0
        np.subtract(m1, m2, out=odd[:count])
        odd[:count] += m3
        odd[1:] -= m3
        even[1:] += m1
        even[1:] += m2
        even[1:] -= m0
    x[...] = patch[top : top + x.shape[1], left : left + x.shape[2]].transpose(2, 0, 1, 3)


def outputs(tiles: np.ndarray, across: int, y: np.ndarray) -> None:
    """``Aᵀ m A``, the 2 x 2 outputs of each tile, written to `y`."""
    m = _by_place(tiles, len(y), across)
    half, both = np.empty((2, *m.shape[1:]), y.dtype), np.empty((2, 2, *m.shape[2:]), y.dtype)
    for (m0, m1, m2, m3), out in ((m, half), (half.swapaxes(0, 1), both.swapaxes(0, 1))):
        np.add(m1, m2, out=out[0])
        out[0] += m0
        np.subtract(m1, m2, out=out[1])
        out[1] -= m3
    for a in range(2):
        for b in range(2):
            there = y[:, a::2, b::2]
            there[...] = both[a, b, : there.shape[1], : there.shape[2]].transpose(2, 0, 1, 3)


def outputs_adjoint(y: np.ndarray, across: int, tiles: np.ndarray) -> None:
    """Compute the adjoint of `outputs`: ``A g Aᵀ`` for the 2 x 2 numbers g of each tile."""
    m = _by_place(tiles, len(y), across)
    g, last = np.zeros((2, 2, *m.shape[2:]), y.dtype), np.empty(m.shape[1:], y.dtype)
    for a in range(2):
        for b in range(2):
            there = y[:, a::2, b::2]
            g[a, b, : there.shape[1], : there.shape[2]] = there.transpose(1, 2, 0, 3)
    for (g0, g1), out in zip(g, (m[0], last), strict=True):
        out[0] = g0
        np.add(g0, g1, out=out[1])
        np.subtract(g0, g1, out=out[2])
        np.negative(g1, out=out[3])
    np.add(m[0], last, out=m[1])
    np.subtract(m[0], last, out=m[2])
    np.negative(last, out=m[3])


def _by_place(tiles: np.ndarray, images: int, across: int) -> np.ndarray:
    """Return a view of ``[16, L*T, C]`` as ``[4, 4, down, across, L, C]``."""
    return tiles.reshape(4, 4, -1, across, images, tiles.shape[2])
