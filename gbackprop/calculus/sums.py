"""Sums of many rows whose error does not grow with their number."""

from __future__ import annotations

from math import prod

import numpy as np

from gbackprop.array import Array

FEW = 2048
"""Up to so many rows one call of NumPy has an error of a few times 1e-5 in float32, if that: it adds row after row."""

BLOCK = 256
"""Rows that are added one after another; then the sums of the blocks are, likewise."""

WIDE = 2048
"""Numbers of one addition, of as many blocks: [100000, 2] takes 37 µs, one call of NumPy 1,400, [4096, 512] 207 for
244."""


def sum_over(rows: Array, *axes: int) -> Array:
    """Compute ``rows.sum(axes)``, of adjacent axes in order; on the host many rows of float32 in blocks.

    Along an axis without gaps in memory NumPy adds in pairs by itself, as CuPy does along each.
    """
    n, is_narrow = prod(rows.shape[axes[0] : axes[-1] + 1]), rows.dtype == "float32" and rows.size
    if n <= FEW or not is_narrow or not isinstance(rows, np.ndarray) or rows.strides[axes[-1]] == rows.itemsize:
        return rows.sum(axes)
    axis, before, after = axes[0], rows.shape[: axes[0]], rows.shape[axes[-1] + 1 :]
    rows = rows.reshape(*before, n, *after)
    beside = min(n // BLOCK, max(1, WIDE // max(1, prod(after))))
    whole, at = n - n % (BLOCK * beside), (slice(None),) * axis
    blocks = rows[(*at, slice(whole))].reshape(*before, -1, BLOCK, beside, *after).sum(axis + 1)
    total = sum_over(blocks.reshape(*before, -1, *after), axis)
    return total if whole == n else total + sum_over(rows[(*at, slice(whole, None))], axis)
