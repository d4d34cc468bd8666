"""A check of R, of which merged batches and operators know how it adds up, where a user's loss computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.base.checks import SHIPPED
from gbackprop.losses.base import Loss

TOLERANCE = 1e-4
"""The relative error that 1/R may have, as weights in float32 are rounded."""

CUTS = 9
"""The most cuts of a batch that are tried."""


def check_factor(loss: Loss, batch: int, target: Any) -> None:
    """Raise a ValueError unless a loss's own R is 1 for "sum", and 1/R of two parts of a batch add up for "mean"."""
    loss, y = (loss, target) if loss.plain is None else (loss.plain, target.y)
    if type(loss).factor.__module__.startswith(SHIPPED):
        return
    whole, name = _divisor(loss, batch, y), f"{type(loss).__name__}.factor"
    if loss.reduction == "sum" and whole != 1:
        raise ValueError(f"{name}: expected 1, as reduction is 'sum', got {1 / whole if whole else np.inf:.4g}")
    parts = [(_divisor(loss, k, y[:k]), _divisor(loss, batch - k, y[k:])) for k in _cuts(batch)]
    adding = any(abs(sum(each) - whole) <= TOLERANCE * abs(whole) for each in parts)
    if loss.reduction == "mean" and not adding and any(1 not in each for each in parts):
        raise ValueError(
            f"{name}: expected 1/N of a mean, or 1 over a sum of weights, so that 1/R of two parts of a batch add up; "
            f"got 1/R = {whole:.4g} of {batch} samples, and {' + '.join(f'{each:.4g}' for each in parts[0])} of parts"
        )


def _cuts(batch: int) -> list[int]:
    """Return where to cut a batch: a part without a target that counts may have R = 1 by the loss's own choice."""
    return [batch // 2, *np.linspace(1, batch - 1, CUTS - 1).astype(int).tolist()] if batch > 1 else []


def _divisor(loss: Loss, batch: int, target: Any) -> float:
    """Return 1/R; 0 where no target counts, which is an error."""
    try:
        return 1 / float(loss.factor(batch, target))
    except (ValueError, ZeroDivisionError):
        return 0.0
