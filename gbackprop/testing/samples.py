"""Check random vectors, and their density, against the mean and the covariance that they should have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbackprop.testing.claims import Claims, Compared, expect_shape
from gbackprop.testing.likelihood import ALARMS
from gbackprop.testing.report import Report

DRAWS, ALLOWED = 16384, 7.0
"""The number of draws, and the standard errors within which a mean counts as equal: beyond is one in 4·10¹¹."""

ORACLE = f"{DRAWS} draws, beyond {ALLOWED:g} standard errors"


def check_samples(
    draw: Callable[[int, np.random.Generator], Any], covariance: Any, mean: Any = 0.0,
    rng: int | np.random.Generator = 0, log_density: Callable[[np.ndarray], Any] | None = None,
) -> Report:  # fmt: skip
    """Compare draws, of a posterior for instance, and their density with the moments that they should have.

    Parameters
    ----------
    draw : callable
        ``draw(count, rng) -> [count, D]``.
    covariance : array_like, shape (D, D)
        Positive definite if there is a density.
    mean : array_like, shape (D,)
    rng : int or numpy.random.Generator
        Of the draws. A claim fails for right ones once in a million times.
    log_density : callable, optional
        The logarithm of the density of the draws with all constants, such as a marginal likelihood of targets that are
        drawn by the prior: ``[count, D] -> [count]``.

    Returns
    -------
    Report
        A row for each claim. What the functions raise becomes a row.
    """
    covariance, claims = np.asarray(covariance, dtype=np.float64), Claims("samples", ["draw", "log_density"])
    if covariance.ndim != 2 or not covariance.size or not np.allclose(covariance, covariance.T):
        raise ValueError(f"covariance: expected a symmetric matrix, got {covariance}")
    size, seed = len(covariance), int(np.random.default_rng(rng).integers(2**63))

    def drawn(count: int = DRAWS) -> np.ndarray:
        found = np.asarray(draw(count, np.random.default_rng(seed)))
        expect_shape(found, (count, size))
        return found

    def moments() -> Compared:
        d, unit = drawn() - mean, float(np.abs(covariance).max())
        center = near(d.mean(0), (d**2).mean(0), np.zeros(size), unit**0.5)
        spread = near(d.T @ d / DRAWS, (d**2).T @ d**2 / DRAWS, covariance, unit)
        want = np.broadcast_to(mean, (size,))
        return Compared({"mean": want + center, "covariance": spread}, {"mean": want, "covariance": covariance}, ORACLE)

    def quotient() -> Compared:
        """E[q/p] = 1 for the density p of the draws, and q that of a Gaussian with half the covariance."""
        x, (_, logdet) = drawn(), np.linalg.slogdet(np.pi * covariance)
        logs = -((x - mean) * np.linalg.solve(covariance, (x - mean).T).T).sum(1) - logdet / 2
        given = np.asarray(log_density(x))  # type: ignore[misc]
        expect_shape(given, (DRAWS,))
        q = np.exp(logs - given)
        return Compared(near(q.mean(), (q**2).mean(), np.ones(()), 1.0), np.ones(()), ORACLE)

    claims.hold("draw", "is the same from the same rng", lambda: "" if np.array_equal(drawn(5), drawn(5)) else "is not")
    claims.equal("draw", f"has the mean and the covariance[i, j] (z test{ALARMS})", moments, needs=["draw"])
    if log_density is not None:
        claims.equal("log_density", f"integrates to 1 (z test{ALARMS})", quotient, needs=["draw"])
    return claims.report


def near(mean: np.ndarray, square: np.ndarray, want: np.ndarray, unit: float, draws: int = DRAWS) -> np.ndarray:
    """Return a mean over draws; the expected one where it is that within its standard error, or within rounding."""
    error = np.sqrt(np.maximum(square - mean**2, 0) / draws)
    return np.where(np.abs(mean - want) <= np.maximum(ALLOWED * error, 1e-9 * unit), want, mean)
