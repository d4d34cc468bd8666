"""Verdicts: equal, equal up to a factor that a search finds and other batch sizes confirm, or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

VERDICTS = ("right", "factor", "refused", "silent", "wrong")
"""From the best to the worst: of several in one cell the worst is shown."""
TOLERANCE, ERRORS, PROJECTION = 1e-7, 6.0, 4.0
"""Of numbers, relative to the largest; of means of draws in standard errors, of each entry and of projections."""
POWERS = np.array(sorted(product((0, 1, -1, 2, -2, 0.5, -0.5), repeat=4), key=lambda powers: np.abs(powers).sum()))
"""Powers of N, C, T and 2, simple ones first."""
SIMPLE = (np.abs(POWERS).sum(1) <= 3) & (POWERS % 1 == 0).all(1)
"""Those that are sought for means of draws: others lie too close together."""


@dataclass(frozen=True)
class Verdict:
    """One of `VERDICTS` on a claim about a quantity, with the factor, the reason or the worst entry."""

    quantity: str
    claim: str
    verdict: str
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    """The result of an adapter and the expected one, with N, C, T and 2 of each name."""

    got: Mapping[str, np.ndarray]
    want: Mapping[str, np.ndarray]
    sizes: Mapping[str, tuple[float, ...]]
    drawn: bool = False

    def errors(self, powers: Sequence[float], scale: float) -> dict[str, np.ndarray]:
        """Return each entry's error over the allowed one, for a factor; `scale` is the largest of all batch sizes."""
        found = {}
        for name, want in self.want.items():
            got, factor = self.got[name], np.prod(np.power(self.sizes[name], powers))
            allowed = TOLERANCE * factor * _largest(want) + 1e-9 * factor * scale + 1e-14
            if self.drawn:
                allowed, got = allowed + ERRORS * got.std(0, ddof=1) / len(got) ** 0.5, got.mean(0)
            found[name] = np.nan_to_num(np.abs(got - factor * want) / allowed, nan=np.inf)
        return found

    def candidates(self, scale: float) -> np.ndarray:
        """Return the powers that equal the projections on the expected arrays, simple ones first."""
        fits = SIMPLE.copy() if self.drawn else np.full(len(POWERS), True)
        for name, want in self.want.items():
            if not _largest(want) <= 1e-9 * scale:  # NaN fits nothing
                each = self.got[name].reshape(-1, want.size) @ want.ravel() / np.sum(want**2)
                spread = PROJECTION * each.std(ddof=1) / len(each) ** 0.5 if self.drawn else 0.0
                ratios = np.prod(np.power(self.sizes[name], POWERS), axis=1)
                fits &= np.abs(ratios - each.mean()) <= spread + TOLERANCE * ratios
        return POWERS[fits]


def verdict(pairs: Sequence[Comparison]) -> tuple[str, str]:
    """Return the verdict and the reason; a factor is sought for the first pair, and must hold for all."""
    scale = max((_largest(want) for pair in pairs for want in pair.want.values()), default=0.0)
    for powers in pairs[0].candidates(scale):
        if all(_largest(error) <= 1 for pair in pairs for error in pair.errors(powers, scale).values()):
            return ("factor", factor_text(powers)) if powers.any() else ("right", "")
    for pair in pairs:
        errors = pair.errors((0, 0, 0, 0), scale)
        name = max(errors, key=lambda name: _largest(errors[name]))
        if _largest(errors[name]) > 1:
            at = np.unravel_index(int(np.argmax(errors[name])), errors[name].shape)
            got = (pair.got[name].mean(0) if pair.drawn else pair.got[name])[at]
            return "wrong", f"{name}{list(map(int, at))}: got {got:.6g}, expected {pair.want[name][at]:.6g}"
    return "wrong", "too few draws to tell factors apart"


def factor_text(powers: Sequence[float]) -> str:
    """Return a product of powers as ``× N² / (2 C)``."""
    shown = {0.5: "√{}", 1: "{}", 2: "{}²"}
    named = list(zip("NCT2", powers, strict=True))
    above, below = ([shown[abs(p)].format(n) for n, p in named if p * sign > 0] for sign in (1, -1))
    under = f" / {below[0]}" if len(below) == 1 else f" / ({' '.join(below)})" if below else ""
    return f"× {' '.join(above) or '1'}{under}"


def checked(got: Any, want: Mapping[str, np.ndarray], drawn: bool) -> tuple[str, Any]:
    """Return "" and a result as arrays by name, or a verdict and the reason."""
    named = got if isinstance(got, Mapping) else {"": got}
    missing = [name for name in want if named.get(name) is None or np.size(named[name]) == 0]
    if missing:
        return "silent", f"nothing for {', '.join(missing)}" if any(missing) else "returned nothing"
    arrays = {name: np.asarray(named[name], dtype=np.float64) for name in want}
    for name, array in arrays.items():
        if array.shape[drawn:] != want[name].shape:
            return "wrong", f"{name}: shape {array.shape[drawn:]}, expected {want[name].shape}".lstrip(": ")
    return "", arrays


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values), initial=0))
