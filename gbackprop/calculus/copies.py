"""Copies of statistics for a user's code, which may write into what it is given, or store what it gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gbackprop.array import is_array
from gbackprop.calculus.moments import Moments


def owned(value: Any) -> Any:
    """Return a copy of a statistic: others may be computed in place."""
    if isinstance(value, Moments):
        low = None if value.low is None else value.low.copy()
        return replace(value, mean=value.mean.copy(), centered=value.centered.copy(), low=low)
    return value.copy() if is_array(value) else value


def copied(shares: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return copies of all statistics of a quantity, by parameter."""
    return {name: [owned(value) for value in values] for name, values in shares.items()}
