"""Errors of results, relative to the expected values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.quantities import GroupedKronecker, Kronecker


def relative_error(got: Any, want: Any) -> float:
    """Largest difference over the largest expected entry: inf for another shape, NaN if `got` holds NaN."""
    got, want = asnumpy(got), np.asarray(want)
    if got.shape != want.shape:
        return np.inf
    largest = np.max(np.abs(want), initial=0)
    return float(np.max(np.abs(got - want), initial=0) / (largest or 1))


def largest_error(got: Mapping[str, Any], want: Mapping[str, Any]) -> float:
    """Return the largest relative error over the parameters of a quantity."""
    if set(got) != set(want):
        return np.inf
    errors = [0.0]
    for name, value in want.items():
        if not isinstance(got[name], Kronecker | GroupedKronecker):
            errors.append(relative_error(got[name], value))
            continue
        for factor, expected in zip((got[name].A, got[name].B), value, strict=True):
            if (factor is None) != (expected is None):
                return np.inf
            errors += [] if expected is None else [relative_error(factor, expected)]
    return float(np.max(errors))  # unlike max(), does not lose a NaN
