"""Weights that a loss is given: checked when it is made, used on the device and in the dtype of outputs."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array, bounds, device_of
from gbackprop.base.checks import check_floats, check_same


def checked_weight(name: str, value: Any) -> Array:
    """Return a copy of `value`, which will be a loss's weight; the errors are those of `check_weight`."""
    check_weight(name, value)
    return value.copy()


def check_weight(name: str, value: Any) -> None:
    """Check weights."""
    check_floats(name, value)
    if value.size == 0:
        raise ValueError(f"{name}: expected at least one number, got shape {value.shape}")
    low, high = bounds(value)
    if not 0 <= low <= high < float("inf"):
        raise ValueError(f"{name}: expected finite numbers of at least 0, got {low if not low >= 0 else high}")


def check_device(name: str, weight: Array, output: Array) -> None:
    """Check that `weight` is on the device of `output`: nothing moves during a sweep."""
    if device_of(weight) != device_of(output):
        check_same(name, weight, "x", output, dtype=False)


def cast(weight: Array, output: Array) -> Array:
    """Return `weight` in the real dtype of `output`."""
    return weight.astype(output.real.dtype, copy=False)


def fits(name: str, weight: Array, shape: tuple[int, ...]) -> None:
    """Check that `weight` broadcasts to the numbers of a sample, of feature shape `shape`."""
    sizes = weight.shape[1:] if weight.ndim == len(shape) + 1 and weight.shape[0] == 1 else weight.shape
    if len(sizes) > len(shape) or any(w not in (1, s) for w, s in zip(sizes[::-1], shape[::-1], strict=False)):
        raise ValueError(
            f"{name}: expected a shape that broadcasts to a sample's outputs {shape}, the same weights for every "
            f"sample, got {weight.shape}"
        )
