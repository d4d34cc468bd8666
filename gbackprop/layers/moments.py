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

from gbackprop.array import Array, array_module, row_blocks

TIGHT = 1e-6
"""Deviations whose mean square is below this share of the squared mean: the rounding of the means then counts."""


@dataclass(frozen=True)
class Moments:
    """Mean and centered squares of n individual gradients x, in float64; the moments of parts of a batch add up.

    Attributes
    ----------
    count : int
        n.
    mean : ndarray, shape (*p)
        m = 1/n Σ x.
    centered : ndarray, shape (*p)
        Q = Σ (x − m)².
    low : ndarray, shape (*p), or None
        What the mean is beyond `mean`; None where that does not matter.
    """

    count: int
    mean: Array
    centered: Array
    low: Array | None = None

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
    def about(shift: Array, first: Array, second: Array, count: int, error: Array | None = None) -> Moments:
        """Compute the moments from Σ (x − K) and Σ (x − K)², which are overwritten, about a shift K.

        Parameters
        ----------
        shift, first, second : ndarray, shape (*p)
        count : int
        error : ndarray, shape (*p), optional
            What K is beyond `shift`.
        """
        tight = error is not None
        for rows in _pieces(first):
            second[rows] -= first[rows] ** 2 / count
            tight = tight or bool((second[rows] < TIGHT * count * shift[rows] ** 2).any())
        first /= count
        if tight:
            mean, low = _two_sum(shift, first if error is None else first + error)
            return Moments(count, mean, second, low)
        first += shift
        return Moments(count, first, second)

    def __add__(self, other: Moments) -> Moments:
        xp, n = array_module(self.mean), self.count + other.count
        mean, centered, low = xp.empty_like(self.mean), xp.empty_like(self.centered), None
        if self.low is not None or other.low is not None:
            low = xp.empty_like(self.mean)
        for rows in _pieces(centered):
            difference = other.mean[rows] - self.mean[rows]
            if low is not None:
                difference += _low(other, rows) - _low(self, rows)
                beyond = difference * (other.count / n) + _low(self, rows)
                mean[rows], low[rows] = _two_sum(self.mean[rows], beyond)
            else:
                xp.multiply(difference, other.count / n, out=mean[rows])
                mean[rows] += self.mean[rows]
            difference *= difference
            difference *= self.count * other.count / n
            xp.add(self.centered[rows], other.centered[rows], out=centered[rows])
            centered[rows] += difference
        return Moments(n, mean, centered, low)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the two arrays side by side."""
        return (2, *self.mean.shape)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Compute fl(a + b) and what a + b is beyond it (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _low(moments: Moments, rows: Any) -> Any:
    return 0.0 if moments.low is None else moments.low[rows]


def _pieces(x: Array) -> Iterator[Any]:
    """Slices of the first axis such that temporary arrays stay in cache."""
    return row_blocks(len(x), x[0].nbytes, x) if x.ndim and len(x) else iter([...])
