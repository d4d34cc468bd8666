"""Names of constants: small rationals times powers of sizes, on batches where the sizes differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np

Sizes = dict[str, float]
"""The sizes and options of a subject in a trial, by name."""

POWERS = {1.0: "{}", -1.0: "1/{}", 0.5: "√{}", -0.5: "1/√{}", 2.0: "{}²", -2.0: "1/{}²"}

SHAPES = {"axis", "features", "positions", "V", "M"}
"""Words in the names of sizes that a number may be by chance."""

OPPOSITE = "it had the other sign"

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
    named, columns = monomials(sizes)
    rests = abs(found) / columns
    for place in np.flatnonzero(np.ptp(rests, axis=1) <= tolerance * rests[:, 0]):
        cost, words, rest = *named[place], rests[place, 0]
        fixed = bool(words) and not np.ptp(columns[place])  # by chance many a number is a rational times such a size
        for value, more in rationals().items() if best is None or cost < best[0] else ():
            total = cost + more + fixed * (0 if value == 1 else 0.5 if value in (0.5, 2) else 1)
            if abs(rest - value) <= tolerance * value and (best is None or total < best[0]):
                best = total, product(sign * value, words)
    if best is None:
        return None
    ones = np.flatnonzero((abs(rests - 1) <= tolerance).all(1))
    names = [named[place][1].partition(" = ")[0] for place in ones if named[place][0] < best[0] + 0.5]
    label = best[1].partition(" = ")[0].removeprefix("-")
    also = [name for name in names if name.removeprefix("1/").isidentifier() and name != label]
    other = f" (or {'-' * (sign < 0)}{also[0]})" if also and " = " in best[1] else ""
    return best[0] + 0.25 * (sign < 0), best[1] + other


def factor(values: Sequence[float], sizes: Sequence[Sizes], tolerance: float) -> tuple[float, str] | None:
    """Return cost and words of what to do with a result: "multiplied by …" or "divided by …"."""
    ways = {"multiplied by": values, "divided by": [1 / value if value else 0.0 for value in values]}
    known = [(recognized(each, sizes, tolerance), way) for way, each in ways.items()]
    found = [(each[0], each[1].startswith("1/"), len(each[1]), f"{way} {each[1]}") for each, way in known if each]
    if not found:
        return None
    cost, *_, words = min(found)
    return cost, OPPOSITE if words.endswith("ed by -1") else words


def _same(values: np.ndarray, tolerance: float) -> bool:
    return bool(np.ptp(values) <= tolerance * abs(values[0]))


def product(value: float, words: str) -> str:
    """Return the words of a number times what has words."""
    words, _, size = words.partition(" = ")
    first = f" = {value * float(size):.6g}" if size else ""
    if words and abs(value) == 1:
        return f"{'-' * (value == -1)}{words}{first}"
    square, short = abs(Fraction(value * value).limit_denominator(144)), Fraction(value).limit_denominator(24)
    root = f"√{square}" if square.denominator == 1 else f"√({square})"
    number = str(short) if abs(float(short) - value) < 1e-12 else f"-{root}" if value < 0 else root
    return f"{number} · {words}{first}" if words else number


def monomials(sizes: Sequence[Sizes]) -> tuple[list[tuple[float, str]], np.ndarray]:
    """Return costs and words of the powers of each size, and of products of two, and their values, a row for each."""
    names = [name for name in sizes[0] if all(each.get(name, 0) > 0 for each in sizes)]
    named, columns, owners = [(0.0, "")], [np.ones(len(sizes))], [-1]
    for rank, name in enumerate(name for name in names if any(each[name] != 1 for each in sizes)):
        column = np.array([each[name] for each in sizes], dtype=float)
        for power, form in POWERS.items():
            words = form.format(f"({name})" if " " in name else name)
            rare = 0.5 * name.endswith("features − 1") + 1.0 * name.endswith("features − 1)")
            rare += 0.4 * name.startswith(("Σ ", "mean of "))
            named.append((0.9 + 0.02 * rank + 0.3 * (abs(power) != 1) + rare, words))
            columns.append(column**power)
            owners.append(rank)
    pairs = [(i, j) for i, j in combinations(range(1, len(named)), 2) if owners[i] != owners[j]]
    both = (sorted((named[i], named[j]), key=lambda each: each[1].startswith("1/")) for i, j in pairs)
    products = [(one[0] + other[0] + 0.5, f"{one[1]} · {other[1]}") for one, other in both]
    fixed = [not np.ptp(column) for column in columns]  # by chance many a number is a product with such a size
    products = [(cost + 0.8 * (fixed[i] and fixed[j] and not SHAPES.isdisjoint(re.findall(r"\w+", words))), words)
                for (cost, words), (i, j) in zip(products, pairs, strict=True)]  # fmt: skip
    values, at = np.stack(columns), np.array(pairs, dtype=int).reshape(-1, 2)
    firsts = values[:, 0].tolist()
    named = [(cost, words and f"{words} = {first:.6g}") for (cost, words), first in zip(named, firsts, strict=True)]
    return named + products, np.concatenate([values, values[at[:, 0]] * values[at[:, 1]]])
