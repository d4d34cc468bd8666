"""Verdicts: equal, equal up to a factor that a search finds and further batch sizes confirm, or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

VERDICTS = ("right", "factor", "refused", "silent", "wrong")
"""From the best to the worst: of several in one cell the worst is shown."""
TOLERANCE, ERRORS = 1e-7, 6.0
"""Of numbers, relative to the largest of their array; of means of draws, in standard errors."""
POWERS = np.array(sorted(product((0, 1, -1, 2, -2, 0.5, -0.5), repeat=4), key=lambda powers: np.abs(powers).sum()))
"""The powers of N, C, T and 2, simple ones first."""
NAMES = ("N", "C", "T", "2")


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim about a quantity: one of `VERDICTS`, and the reason, the factor or the worst entry."""

    quantity: str
    claim: str
    verdict: str
    detail: str = ""


@dataclass(frozen=True)
class Case:
    """The result of an adapter and the expected one, by name, with N, C, T and 2 of each name."""

    got: Mapping[str, np.ndarray]
    want: Mapping[str, np.ndarray]
    sizes: Mapping[str, tuple[float, ...]]
    drawn: bool = False

    def errors(self, factors: Mapping[str, float], largest: float) -> dict[str, np.ndarray]:
        """Return the error of each entry over the allowed one, with the largest entry of all cases."""
        found, floor = {}, 1e-9 * largest
        for name, want in self.want.items():
            got, expected = self.got[name], factors[name] * want
            allowed = TOLERANCE * max(_largest(expected), _largest(want) * TOLERANCE) + floor * factors[name] + 1e-14
            if self.drawn:
                allowed, got = allowed + ERRORS * got.std(0, ddof=1) / len(got) ** 0.5, got.mean(0)
            found[name] = np.nan_to_num(np.abs(got - expected) / allowed, nan=np.inf)
        return found

    def holds(self, powers: Sequence[float], largest: float) -> bool:
        """Return whether the result is the expected one times these powers."""
        factors = {name: float(np.prod(np.power(s, powers))) for name, s in self.sizes.items()}
        errors = self.errors(factors, largest)
        return max((_largest(error) for error in errors.values()), default=0.0) <= 1

    def candidates(self) -> np.ndarray:
        """Return all powers of which the projections on the expected arrays are, simple ones first."""
        fits = np.full(len(POWERS), True)
        for name, want in self.want.items():
            if _largest(want) > 1e-9 * max(map(_largest, self.want.values())):
                each = np.reshape(self.got[name], (-1, want.size)) @ want.ravel() / np.sum(want**2)
                spread = ERRORS * each.std(ddof=1) / len(each) ** 0.5 if self.drawn else 0.0
                ratios = np.prod(np.power(self.sizes[name], POWERS), axis=1)
                fits &= np.abs(ratios - each.mean()) <= spread + TOLERANCE * ratios
        return POWERS[fits]


def verdict(cases: Sequence[Case]) -> tuple[str, str]:
    """Return the verdict on cases of which the first is for the search and the others confirm, and the reason."""
    largest = max((_largest(want) for case in cases for want in case.want.values()), default=0.0)
    for powers in cases[0].candidates():
        if all(case.holds(powers, largest) for case in cases):
            return ("factor", factor_text(powers)) if powers.any() else ("right", "")
    errors = cases[0].errors(dict.fromkeys(cases[0].want, 1.0), largest)
    if max(map(_largest, errors.values())) <= 1:
        return "wrong", "right for the first batch size alone"
    name = max(errors, key=lambda name: _largest(errors[name]))
    at = np.unravel_index(int(np.argmax(errors[name])), errors[name].shape)
    got = (cases[0].got[name].mean(0) if cases[0].drawn else cases[0].got[name])[at]
    return "wrong", f"{name}{list(map(int, at))}: got {got:.6g}, expected {cases[0].want[name][at]:.6g}"


def factor_text(powers: Sequence[float]) -> str:
    """Return a product of powers as ``× N² / (2 C)``."""
    shown = {0.5: "√{}", 1: "{}", 2: "{}²"}
    above, below = ([shown[abs(p)].format(n) for n, p in zip(NAMES, powers, strict=True) if p * sign > 0] for sign in (1, -1))
    under = f" / {below[0]}" if len(below) == 1 else f" / ({' '.join(below)})" if below else ""
    return f"× {' '.join(above) or '1'}{under}"


def checked(got: Any, want: Mapping[str, np.ndarray], drawn: bool) -> tuple[str, Any]:
    """Return "" and a result as arrays by name, or a verdict and the reason."""
    if got is None or (not isinstance(got, Mapping) and np.size(got) == 0):
        return "silent", "returned nothing"
    named = got if isinstance(got, Mapping) else {"": got}
    missing = [name or "the array" for name in want if named.get(name) is None]
    if missing:
        return "silent", f"nothing for {', '.join(missing)}"
    arrays = {name: np.asarray(named[name], dtype=np.float64) for name in want}
    for name, array in arrays.items():
        if array.shape[drawn:] != want[name].shape:
            return "wrong", f"{name}: shape {array.shape[drawn:]}, expected {want[name].shape}"
    return "", arrays


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values), initial=0))
