"""Products of named arrays that a result may lack or have too much, found at some of its entries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, islice
from typing import Any

import numpy as np

from gbackprop.testing.diagnosis.deadline import Deadline
from gbackprop.testing.diagnosis.terms import Terms

Two = tuple[np.ndarray, np.ndarray]
"""The array that is got, and the expected one."""

SCREENED = 96
"""Entries of a result that products of terms are first compared at."""

COMPOUND = 60
"""The number of views of which products of four, and of two with a sum, are compared."""

NEAR = 1e-11
"""The square of the sine between products of terms that are taken to be multiples of each other, before a test."""


def screened(sides: Two, views: Terms, deadline: Deadline) -> list[tuple[int, list[str], float]]:
    """Return the cheapest of what holds at some entries: a factor and divisor (-1), or a term times 1, got or expected.

    A term is a product of two or three views. Sines between all of them and what is missing are matrix products.
    """
    where = _some(sides)
    if len(where) < 3:
        return []
    g, w = (side.ravel()[where] for side in sides)
    names, rows, _ = _rows(views, sides[0].shape, where)
    found = [(-1, pair) for pair in _pairs(g * rows, w * rows, None)
             if not all(names[i] == "1" or names[i].startswith("1/") for i in pair)]  # fmt: skip
    for side, weight in enumerate((np.ones_like(g), g, w)):
        found += [(side, pair) for pair in _pairs(weight * rows, rows, w - g)]
        for c, row in enumerate(rows) if side == 0 or len(rows) < 150 else ():
            if deadline.passed:
                break
            found += [(side, (*pair, c)) for pair in _pairs(weight * row * rows, rows, w - g)]
    costs = list(map(_cost, names))
    each = {(side, *(which if side < 0 else sorted(which))) for side, which in found}
    ranked = sorted((sum(costs[i] for i in which), side, which) for side, *which in each)
    return [(side, [names[i] for i in which], cost) for cost, side, which in ranked[:16]]


Compound = tuple[list[str], str, str, float, float]
"""The names of factors, those of A and B, ρ, and the cost; a product has neither A nor B."""


def compounds(sides: Two, views: Terms) -> list[Compound]:
    """Return the cheapest of P Q R S, P Q (A + ρ B) and P Q R (I + ρ I′) that are multiples of what is missing.

    They are so at some entries; I and I′ are matrices of the identity, or 1.
    """
    where = _some(sides)
    if len(where) < 8:
        return []
    m = (sides[1] - sides[0]).ravel()[where]
    names, rows, sizes = _rows(dict(islice(views.items(), COMPOUND)), sides[0].shape, where)
    costs, found = list(map(_cost, names)), list[Compound]()
    pairs = list(combinations_with_replacement(range(len(names)), 2))
    both = np.stack([rows[i] * rows[j] for i, j in pairs])
    for a, b in _pairs(both, both, m):
        which = [*pairs[a], *pairs[b]]
        found.append(([names[i] for i in which], "", "", 0.0, sum(costs[i] for i in which)))
    masks = [i for i, name in enumerate(names) if name == "1" or name.split()[0] == "I"]
    threes = list(combinations_with_replacement(range(len(names)), 3)) if len(masks) > 1 else []
    bare = [i for i, name in enumerate(names) if not name.startswith(("1/", "("))]
    products: list[tuple[Any, np.ndarray, list[tuple[int, int]]]] = [(pairs, both, list(combinations(bare, 2)))]
    products += [(threes, np.stack([rows[i] * rows[j] * rows[k] for i, j, k in threes]), list(combinations(masks, 2)))
                 ] if threes else []  # fmt: skip
    for factors, values, sums in products:
        for a, b in sums:
            for place, ratio in _sums(values * rows[a], values * rows[b], m):
                which = [*factors[place], a, b]
                scaled = ratio * sizes[a] / sizes[b]
                found.append(([names[i] for i in factors[place]], names[a], names[b], scaled,
                              sum(costs[i] for i in which) + 0.5))  # fmt: skip
    each = {(*sorted(one[0]), *one[1:3]): one for one in found}
    return sorted(each.values(), key=lambda one: one[-1])[:16]


def _sums(one: np.ndarray, other: np.ndarray, m: np.ndarray) -> Iterator[tuple[int, float]]:
    """Yield the places of rows a and b, and ρ, where a + ρ b is a multiple of m, by the normal equations of both."""
    aa, bb, ab = (one * one).sum(1), (other * other).sum(1), (one * other).sum(1)
    am, bm = one @ m, other @ m
    with np.errstate(all="ignore"):
        det = aa * bb - ab**2
        alpha, beta = (am * bb - ab * bm) / det, (bm * aa - ab * am) / det
        rest = 1 - (alpha * am + beta * bm) / (m @ m)
        fits = (np.abs(rest) < NEAR) & (det > 1e-6 * aa * bb) & (alpha * beta != 0)
    yield from ((int(place), float(beta[place] / alpha[place])) for place in np.flatnonzero(fits))


def _some(sides: Two) -> np.ndarray:
    """Return the places of some entries, of which one side at least is not 0."""
    got, want = sides
    where = np.flatnonzero(((got != 0) | (want != 0)) & np.isfinite(got))
    return where[np.linspace(0, len(where) - 1, min(SCREENED, len(where))).astype(int)]


def _rows(views: Terms, shape: tuple[int, ...], where: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return names, rows of length 1 and lengths of views at some entries, one of each that are multiples."""
    names = [name for name, view in views.items() if np.isfinite(view).all()]
    rows = np.stack([np.broadcast_to(views[name], shape).ravel()[where] for name in names])
    size = np.linalg.norm(rows, axis=1)
    alike = np.abs(rows @ rows.T) > (1 - 1e-12) * np.outer(size, size)
    kept = [i for i in range(len(rows)) if size[i] > 0 and not alike[i, :i].any()]
    return [names[i] for i in kept], rows[kept] / size[kept, None], size[kept]


def _cost(name: str) -> float:
    return 0.0 if name == "1" else 0.4 + 0.1 * sum(map(name.count, "(|√")) + 0.2 * name.count("²") + 0.02 * len(name)


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
