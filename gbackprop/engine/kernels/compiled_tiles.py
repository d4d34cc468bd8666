"""Compiled transforms for `tiles`: between images ``[L, H, W, C]`` and tiles ``[16, L*T, C]``.

The T = down · across tiles of a row l are numbered row by row. A tile at (i, j) has the 2 x 2 outputs from (2i, 2j) on
and the 4 x 4 inputs from (2i − top, 2j − left) on; inputs outside the image are zero. In each transform the first loop
transforms the columns of a tile, the second one its rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gbackprop.engine.kernels.compiler import compiled


@njit(nogil=True, cache=True, inline="always")
def _read(image: np.ndarray, row: int, top: int, left: int, patch: np.ndarray) -> None:
    """Copy the patch ``[H, W, C]`` of an image from (top, left) on, with zeros outside the image."""
    for a in range(patch.shape[0]):
        for b in range(patch.shape[1]):
            y, z = top + a, left + b
            if 0 <= y < image.shape[1] and 0 <= z < image.shape[2]:
                for c in range(patch.shape[2]):
                    patch[a, b, c] = image[row, y, z, c]
            else:
                for c in range(patch.shape[2]):
                    patch[a, b, c] = 0


@compiled
def inputs(x: np.ndarray, top: int, left: int, across: int, tiles: np.ndarray) -> None:
    """``Bᵀ d B`` for the 4 x 4 inputs d of each tile."""
    rows, channels = x.shape[0], x.shape[3]
    down = tiles.shape[1] // (rows * across)
    d, half = np.empty((4, 4, channels), x.dtype), np.empty((4, 4, channels), x.dtype)
    for row in range(rows):
        for i in range(down):
            for j in range(across):
                tile = (row * down + i) * across + j
                _read(x, row, 2 * i - top, 2 * j - left, d)
                for b in range(4):
                    for c in range(channels):
                        half[0, b, c] = d[0, b, c] - d[2, b, c]
                        half[1, b, c] = d[1, b, c] + d[2, b, c]
                        half[2, b, c] = d[2, b, c] - d[1, b, c]
                        half[3, b, c] = d[1, b, c] - d[3, b, c]
                for a in range(4):
                    for c in range(channels):
                        tiles[4 * a, tile, c] = half[a, 0, c] - half[a, 2, c]
                        tiles[4 * a + 1, tile, c] = half[a, 1, c] + half[a, 2, c]
                        tiles[4 * a + 2, tile, c] = half[a, 2, c] - half[a, 1, c]
                        tiles[4 * a + 3, tile, c] = half[a, 1, c] - half[a, 3, c]


@compiled
def inputs_adjoint(tiles: np.ndarray, top: int, left: int, across: int, x: np.ndarray) -> None:
    """Compute the adjoint of `inputs`, written to `x`: the sum of ``B m Bᵀ`` over the tiles that cover a pixel."""
    rows, height, width, channels = x.shape
    down = tiles.shape[1] // (rows * across)
    d, half = np.empty((4, 4, channels), x.dtype), np.empty((4, 4, channels), x.dtype)
    for row in range(rows):
        x[row] = 0  # here and not for the whole image before, so that it is in cache
        for i in range(down):
            for j in range(across):
                tile = (row * down + i) * across + j
                for b in range(4):
                    for c in range(channels):
                        m0, m1, m2 = tiles[b, tile, c], tiles[4 + b, tile, c], tiles[8 + b, tile, c]
                        m3 = tiles[12 + b, tile, c]
                        half[0, b, c] = m0
                        half[1, b, c] = m1 - m2 + m3
                        half[2, b, c] = m1 + m2 - m0
                        half[3, b, c] = -m3
                for a in range(4):
                    for c in range(channels):
                        m0, m1, m2, m3 = half[a, 0, c], half[a, 1, c], half[a, 2, c], half[a, 3, c]
                        d[a, 0, c] = m0
                        d[a, 1, c] = m1 - m2 + m3
                        d[a, 2, c] = m1 + m2 - m0
                        d[a, 3, c] = -m3
                for a in range(4):
                    for b in range(4):
                        y, z = 2 * i + a - top, 2 * j + b - left
                        if 0 <= y < height and 0 <= z < width:
                            for c in range(channels):
                                x[row, y, z, c] += d[a, b, c]


@compiled
def outputs(tiles: np.ndarray, across: int, y: np.ndarray) -> None:
    """``Aᵀ m A``, the 2 x 2 outputs of each tile, written to `y`."""
    rows, height, width, channels = y.shape
    down = tiles.shape[1] // (rows * across)
    half = np.empty((2, 4, channels), y.dtype)
    for row in range(rows):
        for i in range(down):
            for j in range(across):
                tile = (row * down + i) * across + j
                for b in range(4):
                    for c in range(channels):
                        m1, m2 = tiles[4 + b, tile, c], tiles[8 + b, tile, c]
                        half[0, b, c] = tiles[b, tile, c] + m1 + m2
                        half[1, b, c] = m1 - m2 - tiles[12 + b, tile, c]
                for a in range(min(2, height - 2 * i)):
                    for c in range(channels):
                        y[row, 2 * i + a, 2 * j, c] = half[a, 0, c] + half[a, 1, c] + half[a, 2, c]
                    if 2 * j + 1 < width:
                        for c in range(channels):
                            y[row, 2 * i + a, 2 * j + 1, c] = half[a, 1, c] - half[a, 2, c] - half[a, 3, c]


@compiled
def outputs_adjoint(y: np.ndarray, across: int, tiles: np.ndarray) -> None:
    """Compute the adjoint of `outputs`: ``A g Aᵀ`` for the 2 x 2 numbers g of each tile."""
    rows, channels = y.shape[0], y.shape[3]
    down = tiles.shape[1] // (rows * across)
    g, half = np.empty((2, 2, channels), y.dtype), np.empty((4, 2, channels), y.dtype)
    for row in range(rows):
        for i in range(down):
            for j in range(across):
                tile = (row * down + i) * across + j
                _read(y, row, 2 * i, 2 * j, g)
                for b in range(2):
                    for c in range(channels):
                        half[0, b, c] = g[0, b, c]
                        half[1, b, c] = g[0, b, c] + g[1, b, c]
                        half[2, b, c] = g[0, b, c] - g[1, b, c]
                        half[3, b, c] = -g[1, b, c]
                for a in range(4):
                    for c in range(channels):
                        tiles[4 * a, tile, c] = half[a, 0, c]
                        tiles[4 * a + 1, tile, c] = half[a, 0, c] + half[a, 1, c]
                        tiles[4 * a + 2, tile, c] = half[a, 0, c] - half[a, 1, c]
                        tiles[4 * a + 3, tile, c] = -half[a, 1, c]
