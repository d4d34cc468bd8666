"""A few numbers that say of which results sums are: those of a checkpoint's first batch, which is computed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

COLUMNS = 64
"""Number of weighted sums over an array."""

TOLERANCE = {"float32": 1e-3, "float64": 1e-6}
"""Largest difference, relative to the largest array of its kind, that is taken for rounding.

Bits are the same on one machine. Others round otherwise: sums of a million products differ by less than 1e-5 in float32
and 1e-14 in float64, and by a hundred times that where most of a sum cancels.
"""

Packed = Mapping[Any, Mapping[str, np.ndarray]]
"""The arrays of each sum, by the sum's key and the array's name."""


def summary(packed: Packed) -> np.ndarray:
    """Return for each array weighted sums over every 64th number, and last its norm: ``[K, 65]``."""
    return np.array([_summed(name, parts) for parts in packed.values() for name in parts])


def _summed(name: str, parts: Mapping[str, np.ndarray]) -> np.ndarray:
    flat = np.asarray(parts[name], "float64").reshape(-1)
    table = np.zeros((-(-flat.size // COLUMNS), COLUMNS))
    table.reshape(-1)[: flat.size] = flat
    # no pattern, so that the sums of derivatives that add up to zero do not cancel
    weights = np.cos(np.arange(len(table), dtype="float64") ** 2)
    norm = np.linalg.norm(flat)
    if name in ("centered", "low"):  # a variance is a difference of numbers of this size
        norm += parts["count"] * np.linalg.norm(parts["mean"].reshape(-1) ** 2)
    return np.append(weights @ table, norm)


def differing(packed: Packed, before: np.ndarray, dtype: str) -> Any:
    """Return the key of the first sum whose numbers are not those before, None if there is none."""
    keys = [(key, name) for key, parts in packed.items() for name in parts]
    kinds = [(key[0] if isinstance(key, tuple) else key, name) for key, name in keys]
    with np.errstate(all="ignore"):
        now = summary(packed)
        if now.shape != before.shape:
            return keys[0][0]
        for i, (key, _) in enumerate(keys):
            size = max(before[j, -1] for j, kind in enumerate(kinds) if kind == kinds[i])
            far = np.abs(now[i] - before[i]) > TOLERANCE[dtype] * size
            if far.any() or (np.isfinite(now[i]) != np.isfinite(before[i])).any():
                return key
    return None
