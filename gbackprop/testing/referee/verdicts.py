"""Verdicts: equal, equal up to a factor that sizes explain and other batches confirm, or wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.testing.claims import Compared, Evaluation
from gbackprop.testing.diagnosis.numbers import Sizes, monomials, product
from gbackprop.testing.diagnosis.trials import largest
from gbackprop.testing.report import OK
from gbackprop.testing.samples import near

VERDICTS = ("right", "factor", "refused", "silent", "wrong")
"""From the best to the worst: of several in one cell the worst is shown."""
TOLERANCE, ERRORS, FEWEST = 1e-7, 4.0, 8
"""Of numbers, relative to the largest; of factors of draws, in standard errors; and the fewest draws."""
NUMBERS = {1.0: 0.0, 2.0: 0.8, 0.5: 0.8, 4.0: 1.3, 0.25: 1.3}
"""The numbers beside powers of sizes that a convention may have, with the costs of a diagnosis."""


@dataclass(frozen=True)
class Verdict:
    """One of `VERDICTS` on a claim about a quantity, with the factor, the reason or the worst entry."""

    quantity: str
    claim: str
    verdict: str
    detail: str = ""


@dataclass(frozen=True)
class Judged:
    """The result of an adapter and the expected one, by parameter, with the sizes that a factor may be made of."""

    got: Mapping[str, np.ndarray]
    want: Mapping[str, np.ndarray]
    sizes: Mapping[str, Sizes]
    drawn: bool = False

    def factor(self, name: str) -> tuple[float, float]:
        """Return the factor of an array, and the error of it that draws have."""
        want = self.want[name].ravel()
        each = self.got[name].reshape(-1, want.size) @ want / np.sum(want**2)
        return each.mean(), ERRORS * each.std(ddof=1) / len(each) ** 0.5 if self.drawn else 0.0

    def compared(self, factors: Mapping[str, float], scale: float) -> dict[str, Any]:
        """Return both sides compared, the expected one times factors; `scale` is the largest of all batches."""
        most = max(factors.values(), default=1.0)
        want = {name: value * factors.get(name, most) for name, value in self.want.items()}
        got = dict(self.got)
        for name, draws in got.items() if self.drawn else ():
            got[name] = near(draws.mean(0), (draws**2).mean(0), want[name], largest(want[name]), len(draws))
        return Evaluation(Compared, (got, want, "definition", TOLERANCE, 0.01 * scale * most)).fields()


def verdict(judged: Sequence[Judged], numbers: Mapping[float, float] = NUMBERS) -> tuple[str, str]:
    """Return the verdict on several batches, and the reason: the name of a factor, or the worst entry."""
    scale = max((largest(want) for each in judged for want in each.want.values()), default=0.0)
    named = [(each, name) for each in judged for name, want in each.want.items() if largest(want) > 1e-9 * scale]
    values, errors = np.array([each.factor(name) for each, name in named]).reshape(-1, 2).T
    powers = zip(*monomials([each.sizes[name] for each, name in named] or [{}]), strict=True)
    ways = [(cost + more, product(number, words), number * size)
            for (cost, words), size in powers for number, more in numbers.items()]  # fmt: skip
    for cost, words, ratios in sorted(ways, key=lambda way: way[0]):
        if np.all(np.abs(values - ratios) <= errors + TOLERANCE * ratios) or not (cost or judged[0].drawn):
            known = list(zip(named, ratios, strict=bool(named)))
            factors = [{name: ratio for (own, name), ratio in known if own is each} for each in judged]
            if all(each.compared(own, scale)["verdict"] == OK for each, own in zip(judged, factors, strict=True)):
                return ("factor", f"× {re.sub(' = .*', '', words)}") if cost else ("right", "")
    rows = [each.compared({}, scale) for each in judged]
    row = next((row for row in rows if row["verdict"] != OK), None)
    if row is None:
        times = ", ".join(f"{value:.3g}" for value in values)
        return "wrong", f"draws have no mean with this definition: {times} times it"
    return "wrong", f"{row['worst'][0]}{list(row['worst'][1:])}: got {row['got']:.6g}, expected {row['want']:.6g}"


def checked(got: Any, want: Mapping[str, np.ndarray], drawn: bool) -> tuple[str, Any]:
    """Return "" and a result as arrays by name, or a verdict and the reason; raise an error if it is no result."""
    if not isinstance(got, Mapping | None) and set(want) != {""}:
        raise TypeError(f"expected arrays by parameter, got {type(got).__name__}")
    named = got if isinstance(got, Mapping) else {"": got}
    missing = [name for name in want if named.get(name) is None or np.size(named[name]) == 0]
    if missing:
        others = ", ".join(repr(name) for name in named if name not in want)
        words = f"nothing for {', '.join(missing) or 'all parameters'}"
        return "silent", f"{words}; there is {others}" if others else words
    arrays = {name: _real(name, named[name]) for name in want}
    for name, array in arrays.items():
        if array.shape[drawn:] != want[name].shape:
            return "wrong", f"{name}: shape {array.shape[drawn:]}, expected {want[name].shape}".lstrip(": ")
        if drawn and len(array) < FEWEST:
            raise ValueError(f"{name}: expected {FEWEST} draws or more along the first axis, got {len(array)}")
    return "", arrays


def _real(name: str, value: Any) -> np.ndarray:
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected an array of real numbers, got {type(value).__name__} of {array.dtype}")
    return array.astype(np.float64)
