"""Names of constants: small rationals times powers of sizes, on batches where the sizes differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np

Sizes = dict[str, float]
"""The sizes and options of a subject in a trial, by name."""

POWERS = {1.0: "{}", -1.0: "1/{}", 0.5: "√{}", -0.5: "1/√{}", 2.0: "{}²", -2.0: "1/{}²"}

UNNAMED = 8.0
"""The cost of a constant that is the same in all trials, but has no name."""


@cache
def rationals() -> dict[float, float]:
    """Return small rationals and their roots, with the cost of each: more for what is less common."""
    found: dict[float, float] = {}
    large = (*range(1, 13), 16, 32, 64)
    for top, bottom in [(above, below) for above in large for below in (large if above <= 12 else (1,))]:
        cost = 0.8 + 0.25 * (min(max(top, bottom), 12) - 2) + 0.5 * (min(top, bottom) > 1)
        for value, more in ((top / bottom, 0.0), ((top / bottom) ** 0.5, 1.0)):
            found[value] = min(found.get(value, 99.0), 0.0 if value == 1 else cost + more)
    return found


def recognized(values: Sequence[float], sizes: Sequence[Sizes], tolerance: float) -> tuple[float, str] | None:
    """Return cost and words of a constant, given its value in each trial; None if it has no name and is not one."""
    found = np.array(values, dtype=float)
    if not np.isfinite(found).all() or not found.all() or len(set(np.sign(found))) > 1:
        return None
    sign, best = float(np.sign(found[0])), (UNNAMED, f"{found[0]:.8g}") if _same(found, tolerance) else None
    for cost, words, monomial in _monomials(sizes):
        rest = abs(found) / monomial
        if (best is None or cost < best[0]) and _same(rest, tolerance):
            for value, more in rationals().items():
                if abs(rest[0] - value) <= tolerance * value and (best is None or cost + more < best[0]):
                    best = cost + more, _product(sign * value, words)
    return None if best is None else (best[0] + 0.25 * (sign < 0), best[1])


def factor(values: Sequence[float], sizes: Sequence[Sizes], tolerance: float) -> tuple[float, str] | None:
    """Return cost and words of what to do with a result: "multiplied by …" or "divided by …"."""
    ways = {"multiplied by": values, "divided by": [1 / value if value else 0.0 for value in values]}
    known = [(recognized(each, sizes, tolerance), way) for way, each in ways.items()]
    ranked = sorted((found[0], len(found[1]), f"{way} {found[1]}") for found, way in known if found is not None)
    if not ranked:
        return None
    return ranked[0][0], "it had the other sign" if ranked[0][2].endswith("ed by -1") else ranked[0][2]


def _same(values: np.ndarray, tolerance: float) -> bool:
    return bool(np.ptp(values) <= tolerance * abs(values[0]))


def _product(value: float, words: str) -> str:
    if words and abs(value) == 1:
        return words if value > 0 else f"-{words}"
    fraction = Fraction(value * abs(value)).limit_denominator(144)
    short, root = Fraction(value).limit_denominator(24), f"√{abs(fraction)}"
    number = str(short) if abs(float(short) - value) < 1e-12 else f"-{root}" if value < 0 else root
    return f"{number} · {words}" if words else number


def _monomials(sizes: Sequence[Sizes]) -> Iterator[tuple[float, str, np.ndarray]]:
    """Yield cost, words and values of the powers of each size, and of products of two."""
    names = [name for name in sizes[0] if all(each.get(name, 0) > 0 for each in sizes)]
    yield 0.0, "", np.ones(len(sizes))
    single = []
    for rank, name in enumerate(name for name in names if any(each[name] != 1 for each in sizes)):
        column = np.array([each[name] for each in sizes], dtype=float)
        for power, form in POWERS.items():
            words = form.format(f"({name})" if " " in name else name)
            cost = 0.9 + 0.02 * rank + 0.3 * (abs(power) != 1) + 0.5 * name.endswith("features − 1")
            single.append((cost, words, column**power, name))
            yield single[-1][0], f"{words} = {column[0] ** power:.6g}", column**power
    for (one, words, values, name), (other, more, factors, another) in combinations(single, 2):
        if name != another:
            yield one + other + 0.5, f"{words} · {more}", values * factors
