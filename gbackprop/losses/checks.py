"""Checks of what comes with a loss: pseudo-targets that are given, and R where a user's loss computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.checks import own_methods
from gbackprop.base.errors import UnsupportedError

TOLERANCE = 1e-4
"""The relative error that 1/R may have, as weights in float32 are rounded."""

CUTS = 9
"""The most cuts of a batch that are tried."""


def no_draws(loss: Any) -> UnsupportedError:
    """Return the error of a loss of which there can be no Monte-Carlo quantities."""
    reason = loss.undrawn or f"{type(loss).__name__} has no noise and no pseudo_targets"
    return UnsupportedError(f"{loss!r} has no Monte-Carlo draws (DiagGGNMC, KFAC with fisher='mc'): {reason}")


def check_targets(name: str, targets: Array, loss: Any, x: Array, batch_shape: tuple[int, ...]) -> None:
    """Check pseudo-targets that are given, shape (M, N, ...), as the loss without weights checks targets."""
    if loss.undrawn:
        raise no_draws(loss)
    expected = loss.target_shape(batch_shape)
    if targets.ndim == 0 or targets.shape[0] == 0 or targets.shape[1:] != expected:
        shape = ", ".join(map(str, expected))
        raise ValueError(f"{name}: expected shape (M, {shape}), got {targets.shape}")
    rows = targets.reshape(-1, *targets.shape[2:])
    loss = loss.unweighted() if loss.weighted else loss  # for it, no label is ignored
    try:  # all at once: the host waits for a GPU at each check
        loss.check_target(name, rows, x, (rows.shape[0], *batch_shape[1:]))
    except (TypeError, ValueError):
        for m, target in enumerate(targets):
            loss.check_target(f"{name}[{m}]", target, x, batch_shape)
        raise


def check_factor(loss: Any, batch: int, target: Any) -> None:
    """Raise an error where a loss's own R is not 1 for "sum", or 1/R of two parts of a batch do not add up for "mean".

    Nor may it have an L of its own: a sweep adds up R ℓₙ.

    Merged batches and operators take it so. A part with 1/R = 1 shows nothing: it may have no target that counts, and
    that R by the loss's own choice.
    """
    loss, y = (loss, target) if loss.plain is None else (loss.plain, target.y)
    own = own_methods(loss)
    for method in [name for name in ("value", "__call__") if name in own]:
        words = f"got a {method} of its own (override values, or factor for R)"
        raise UnsupportedError(f"loss, {loss!r}: expected L = R Σₙ ℓₙ, {words}")
    if "factor" not in own:
        return
    whole, name, failed = _divisor(loss, batch, y), f"{type(loss).__name__}.factor", ""
    if loss.reduction == "sum" and whole != 1:
        raise ValueError(f"{name}: expected 1, as reduction is 'sum', got {1 / whole if whole else np.inf:.4g}")
    for k in _cuts(batch) if loss.reduction == "mean" else ():
        one, other = _divisor(loss, k, y[:k]), _divisor(loss, batch - k, y[k:])
        if abs(one + other - whole) <= TOLERANCE * abs(whole):
            return
        failed = failed or (f"{one:.4g} + {other:.4g} of parts" if 1 not in (one, other) else "")
    if failed:
        raise ValueError(
            f"{name}: expected 1/N of a mean, or 1 over a sum of weights, so that 1/R of two parts of a batch add up; "
            f"got 1/R = {whole:.4g} of {batch} samples, and {failed}"
        )


def _cuts(batch: int) -> list[int]:
    """Return where to cut a batch in two, in the middle first."""
    return [batch // 2, *np.linspace(1, batch - 1, CUTS - 1).astype(int).tolist()] if batch > 1 else []


def _divisor(loss: Any, batch: int, target: Any) -> float:
    """Return 1/R; 0 where no target counts, which is an error."""
    try:
        return 1 / float(loss.factor(batch, target))
    except (ValueError, ZeroDivisionError):
        return 0.0
