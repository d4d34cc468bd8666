"""The first two moments of the individual gradients, without cancellation.

Σ x² − (Σ x)²/n loses all digits where the x differ little from each other. Deviations from the mean are summed instead,
and parts of a batch are merged by

    Q = Q₁ + Q₂ + n₁ n₂ / n (m₁ − m₂)²,   m = m₁ + n₂ / n (m₂ − m₁)

Where the deviations are small even against the rounding of the means, a mean is a sum of two numbers.

Source: Chan, Golub, LeVeque 1979 (updating formulae and a pairwise algorithm for computing sample variances).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, RecordedArray, array_module

TIGHT = 1e-6
"""Deviations whose mean square is below this share of the squared mean: the rounding of the means then counts."""


@dataclass(frozen=True)
class Moments:
    """Mean and centered squares of n individual gradients x, in float64; the moments of parts of a batch add up."""

    count: int  # n
    mean: Array  # m = 1/n Σ x, (*p)
    centered: Array  # Q = Σ (x − m)², (*p)
    low: Array | None = None  # what the mean is beyond `mean`, (*p); None where that does not matter

    @staticmethod
    def of(x: Array) -> Moments:
        """Compute the moments of individual gradients (n, *p)."""
        count, *shape = x.shape
        x = x.reshape(count, -1).astype(np.float64)
        shift = x.mean(0)
        x -= shift
        first = x.sum(0)  # what rounding has left
        x *= x
        shift, first, second = (part.reshape(shape) for part in (shift, first, x.sum(0)))
        return Moments.about(shift, first, second, count)

    @staticmethod
    def of_sums(first: Array, second: Array, count: int) -> Moments | None:
        """Compute the moments from Σ x and Σ x², which are overwritten; None if digits would be lost. On the host."""
        for rows in _pieces(first):
            mean, q = first[rows], second[rows]
            mean *= 1 / count
            square = mean * mean
            square *= count
            q -= square
            square *= TIGHT
            if (q < square).any():
                return None
        return Moments(count, first, second)

    @staticmethod
    def about(
        shift: Array, first: Array, second: Array, count: int, error: Array | None = None, tight: bool | None = None
    ) -> Moments:
        """Compute the moments from Σ (x − K) and Σ (x − K)², which are overwritten, about a shift K."""
        low, xp = None, array_module(first)
        for rows in _pieces(first):
            mean, q, k = first[rows], second[rows], shift[rows]
            mean *= 1 / count
            square = mean * mean
            square *= count
            q -= square
            narrow = _tight(q, k, count) if tight is None else tight
            if narrow is False:
                mean += k
            else:
                low = xp.zeros_like(first) if low is None else low
                parts: Any = _two_sum(k, mean if error is None else mean + error[rows])
                if narrow is not True:
                    parts = (xp.where(narrow, *each) for each in zip(parts, (mean + k, 0 * k), strict=True))
                mean[...], low[rows] = parts
        return Moments(count, first, second, low)

    def merge(self, other: Moments) -> Moments:
        """Add the moments of other samples, in the memory of these."""
        xp, n = array_module(self.mean), self.count + other.count
        share, low = other.count / n, self.low
        means, all_centered = xp.asarray(self.mean), xp.asarray(self.centered)  # of a parameter without axes, numbers
        low = xp.zeros_like(means) if low is None and other.low is not None else low
        for rows in _pieces(means):
            mean, centered = means[rows], all_centered[rows]
            difference = other.mean[rows] - mean
            if low is None:
                mean += difference * share
            else:
                difference += (0.0 if other.low is None else other.low[rows]) - low[rows]
                mean[...], low[rows] = _two_sum(mean, difference * share + low[rows])
            difference *= difference
            difference *= self.count * share
            centered += difference
            centered += other.centered[rows]
        return Moments(n, means, all_centered, low)

    def __add__(self, other: Moments) -> Moments:
        low = None if self.low is None else self.low.copy()
        return Moments(self.count, self.mean.copy(), self.centered.copy(), low).merge(other)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the two arrays side by side."""
        return (2, *self.mean.shape)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Compute fl(a + b) and what a + b is beyond it (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _tight(q: Array, k: Array, count: int) -> Any:
    """Return whether the rounding of a mean counts; False on a GPU, which the host would have to wait for.

    Of a recorded array the answer is an array, too.
    """
    if not isinstance(q, np.ndarray | RecordedArray):
        return False
    counts = (q < TIGHT * count * k * k).any()
    return counts if isinstance(q, RecordedArray) else bool(counts)


PIECE_BYTES = 2**16
"""Size of the pieces in which large arrays are combined: some of them fit into a core's second-level cache."""


def _pieces(x: Array) -> Iterator[Any]:
    """Slices of the first axis; on a GPU all of it."""
    if x.ndim == 0 or len(x) == 0 or not isinstance(x, np.ndarray):
        return iter([...])
    step = max(1, PIECE_BYTES // max(1, x[0].nbytes))
    return (slice(start, start + step) for start in range(0, len(x), step))
