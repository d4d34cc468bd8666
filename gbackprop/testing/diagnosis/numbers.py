"""Recognize constants: small rationals times powers of sizes that have names, on batches where the sizes differ."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np

Sizes = dict[str, float]
"""The sizes and options of a subject in a trial, by name."""

POWERS = {1.0: "{}", -1.0: "1/{}", 0.5: "√{}", -0.5: "1/√{}", 2.0: "{}²", -2.0: "1/{}²"}

EQUAL = 1e-9
"""The relative error of constants that are taken to be equal."""


@cache
def rationals() -> dict[float, float]:
    """Return small rationals and their roots, with the cost of each: 1 for 2 and ½, more for what is less common."""
    found: dict[float, float] = {}
    large = (*range(1, 13), 16, 32, 64)
    for top in large:
        for bottom in large if top <= 12 else (1,):
            cost = 0.8 + 0.25 * (min(max(top, bottom), 12) - 2) + 0.5 * (min(top, bottom) > 1)
            for value, more in ((top / bottom, 0.0), ((top / bottom) ** 0.5, 1.0)):
                found[value] = min(found.get(value, 99.0), 0.0 if value == 1 else cost + more)
    return found


def words_of(value: float) -> str:
    """Return a constant as a short fraction or its root if it is one, else with six digits."""
    for written, power in ((value, ""), (value * abs(value), "√")):
        short = Fraction(written).limit_denominator(24)
        if short and abs(float(short) - written) < EQUAL * abs(written):
            return f"-{power}{-short}" if short < 0 else f"{power}{short}"
    return f"{value:.6g}"


def recognized(values: Sequence[float], sizes: Sequence[Sizes], tolerance: float = EQUAL) -> tuple[float, str] | None:
    """Return cost and words of a factor, given its value in each trial; None if it is no product of what has a name."""
    found = np.array(values, dtype=float)
    if not np.isfinite(found).all() or (found == 0).any() or len(set(np.sign(found))) > 1:
        return None
    sign, best = np.sign(found[0]), None
    for cost, words, monomial in [(0.0, "", np.ones(len(found))), *_monomials(sizes)]:
        if best is not None and cost >= best[0]:
            continue
        rest = abs(found) / monomial
        if np.ptp(rest) > tolerance * rest[0]:
            continue
        for value, more in rationals().items():
            if abs(rest[0] - value) <= tolerance * value and (best is None or cost + more < best[0]):
                best = cost + more, _product(sign * value, words)
    if best is None and np.ptp(found) <= tolerance * abs(found[0]):
        best = 8.0, f"{found[0]:.8g}"
    return None if best is None else (best[0] + 0.25 * (sign < 0), best[1])


def factor_words(values: Sequence[float], sizes: Sequence[Sizes], tolerance: float = EQUAL) -> tuple[float, str] | None:
    """Return cost and words of what to do with a result: "multiplied by …" or "divided by …"."""
    ways = (("multiplied by", recognized(values, sizes, tolerance)),)
    if all(values):
        ways += (("divided by", recognized([1 / value for value in values], sizes, tolerance)),)
    known = [(found[0], len(found[1]), f"{way} {found[1]}") for way, found in ways if found is not None]
    if not known:
        return None
    cost, _, words = min(known)
    return cost, "it had the other sign" if words.endswith("ed by -1") else words


def _product(value: float, words: str) -> str:
    if not words:
        return words_of(value)
    return words if value == 1 else f"-{words}" if value == -1 else f"{words_of(value)} · {words}"


def _monomials(sizes: Sequence[Sizes]) -> list[tuple[float, str, np.ndarray]]:
    """Return cost, words and values of the powers of each size, and of products of two."""
    names = [name for name in sizes[0] if all(each.get(name, 0) > 0 for each in sizes) and any(each[name] != 1 for each in sizes)]
    columns = {name: np.array([each[name] for each in sizes], dtype=float) for name in names}
    single = []
    for rank, name in enumerate(names):
        column = columns[name]
        shown = f"({name})" if " " in name else name
        for power, form in POWERS.items():
            cost = 0.9 + 0.02 * rank + 0.3 * (abs(power) != 1)
            single.append((cost, form.format(shown), column**power, f" = {column[0] ** power:.6g}"))
    found = [(cost, words + value, values) for cost, words, values, value in single]
    for (one, words, values, _), (other, more, factors, _) in combinations(single, 2):
        if words.strip("1/√²()") != more.strip("1/√²()"):
            found.append((one + other + 0.5, f"{words} · {more}", values * factors))
    return found
