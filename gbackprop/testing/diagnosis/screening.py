"""Products of named arrays that a result may lack or have too much, found at some of its entries."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from gbackprop.testing.diagnosis.terms import Terms

Two = tuple[np.ndarray, np.ndarray]
"""The array that is got, and the expected one."""

SCREENED = 96
"""Entries of a result that products of terms are first compared at."""

NEAR = 1e-11
"""The square of the sine between products of terms that are taken to be multiples of each other, before a test."""


def screened(sides: Two, views: Terms, deadline: float) -> list[tuple[int, list[str], float]]:
    """Return the cheapest of what holds at some entries: a factor and divisor (-1), or a term times 1, got or expected.

    A term is a product of two or three views. Sines between all of them and what is missing are matrix products.
    """
    got, want = sides
    where = np.flatnonzero(((got != 0) | (want != 0)) & np.isfinite(got))
    where = where[np.linspace(0, len(where) - 1, min(SCREENED, len(where))).astype(int)] if len(where) else where
    if len(where) < 3:
        return []
    g, w = got.ravel()[where], want.ravel()[where]
    names = [name for name, view in views.items() if np.isfinite(view).all()]
    rows = np.stack([np.broadcast_to(views[name], got.shape).ravel()[where] for name in names])
    size = np.linalg.norm(rows, axis=1)
    alike = np.abs(rows @ rows.T) > (1 - 1e-12) * np.outer(size, size)
    kept = [i for i in range(len(rows)) if size[i] > 0 and not alike[i, :i].any()]
    names, rows = [names[i] for i in kept], rows[kept] / size[kept, None]
    found = [(-1, pair) for pair in _pairs(g * rows, w * rows, None)
             if not all(names[i] == "1" or names[i].startswith("1/") for i in pair)]  # fmt: skip
    for side, weight in enumerate((np.ones_like(g), g, w)):
        found += [(side, pair) for pair in _pairs(weight * rows, rows, w - g)]
        for c, row in enumerate(rows) if side == 0 or len(rows) < 150 else ():
            if perf_counter() > deadline:
                break
            found += [(side, (*pair, c)) for pair in _pairs(weight * row * rows, rows, w - g)]
    marks = [0.1 * sum(map(name.count, "(|√")) + 0.2 * name.count("²") for name in names]
    costs = [0.0 if name == "1" else 0.4 + more + 0.02 * len(name) for name, more in zip(names, marks, strict=True)]
    each = {(side, *(which if side < 0 else sorted(which))) for side, which in found}
    ranked = sorted((sum(costs[i] for i in which), side, which) for side, *which in each)
    return [(side, [names[i] for i in which], cost) for cost, side, which in ranked[:16]]


def _pairs(left: np.ndarray, right: np.ndarray, missing: np.ndarray | None) -> Iterator[tuple[int, int]]:
    """Yield rows that are multiples of each other, or whose product is one of what is missing."""
    with np.errstate(all="ignore"):
        if missing is None:
            sines = 1 - (left @ right.T) ** 2 / np.outer((left**2).sum(1), (right**2).sum(1))
        else:
            sines = 1 - ((left * missing) @ right.T) ** 2 / ((left**2) @ (right**2).T * (missing**2).sum())
    for a, b in zip(*np.nonzero(sines < NEAR), strict=True):
        if a != b or missing is not None:
            yield int(a), int(b)
