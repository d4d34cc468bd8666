"""Errors of results, relative to the expected values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gbackprop.quantities import GroupedKronecker, Kronecker
from gbackprop.testing.claims import Compared, Evaluation


def relative_error(got: Any, want: Any) -> float:
    """Largest difference over the largest expected entry: inf for another shape or name, NaN if `got` holds NaN."""
    found = Evaluation(Compared, (got, want, "")).fields()
    return np.inf if found.get("problem") else found["error"]


def largest_error(got: Mapping[str, Any], want: Mapping[str, Any]) -> float:
    """Return the largest relative error over the parameters of a quantity, whose factors (A, B) may be expected."""
    return relative_error(*({name: _parts(value) for name, value in each.items()} for each in (got, want)))


def _parts(value: Any) -> Any:
    value = (value.A, value.B) if isinstance(value, Kronecker | GroupedKronecker) else value
    return dict(zip("AB", value, strict=True)) if isinstance(value, tuple) else value
