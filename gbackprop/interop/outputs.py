"""Outputs of a network beside those of what it is taken over from."""

from __future__ import annotations

import numpy as np

FIXED_STATISTICS = "a batch norm has running statistics that are no layer's"
"""Why a network is right in evaluation mode alone, whose training mode would update those."""


def unlike(ours: np.ndarray, expected: np.ndarray, tolerance: float, whose: str) -> str:
    """Return how an output differs, by more than a share of the largest finite number, or an empty text."""
    if ours.shape != expected.shape:
        return f"expected {whose} of shape {expected.shape}, got {ours.shape}"
    finite = np.isfinite(expected)
    if not np.array_equal(ours[~finite], expected[~finite], equal_nan=True):
        return f"expected {whose}, of which {(~finite).sum()} are NaN or infinite, got others there"
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.abs(ours[finite] - expected[finite]).max(initial=0)
    largest = np.abs(expected[finite]).max(initial=0)
    if difference <= tolerance * largest:
        return ""
    wider = expected.dtype.kind == "f" and expected.dtype != ours.dtype
    words = f" in {expected.dtype}, where the network has {ours.dtype}" if wider else ""
    return f"expected {whose}, of at most {largest:.3g}{words}, got one that differs by {difference:.3g}"
