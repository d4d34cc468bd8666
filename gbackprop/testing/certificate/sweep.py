"""One path through code and formulas at a time, until all floats between two ends are on one."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from gbackprop.testing.certificate.enclosure import IV, Enclosed, UndecidedError, near, row_of
from gbackprop.testing.certificate.notation import Formula, scope_of
from gbackprop.testing.certificate.subjects import METHODS, CertifiedLayer, CertifiedLoss, Setting

ULP = 2.0**-52

NARROW = 2.0**-60
"""The width of an interval of which no float is judged, if a comparison may still go either way there."""

RELATIVE = 2.0**-24
"""The relative width below which no interval is halved for a smaller bound of the rounding error."""


@dataclass(frozen=True)
class Stretch:
    """All floats from a to b, and a bound of each entry's rounding error, in units of 2⁻⁵² max(1, |value|)."""

    a: float
    b: float
    errors: np.ndarray


@dataclass
class Region:
    """The pieces on which code and formulas are the same expressions, and these; and what follows from the first."""

    stated: dict[str, list[Any]]
    code: list[list[Any]] | None
    derived: list[list[Any]]
    pieces: list[Stretch] = field(default_factory=list)


@dataclass
class Tracing:
    """All floats of a setting, by region; `excluded` are those at which a comparison may go either way."""

    subject: CertifiedLayer | CertifiedLoss
    parts: Mapping[str, Formula]
    setting: Setting
    goal: float  # the rounding error below which no piece is made smaller
    regions: list[Region] = field(default_factory=list)
    excluded: list[float] = field(default_factory=list)
    untraced: str = ""

    @property
    def symbols(self) -> tuple[Any, ...]:
        """The symbols of outputs and targets."""
        count, loss = self.subject.count, self.subject.kind == "loss"
        names = [f"f{k + 1}" for k in range(count)] if loss else ["x"]
        if isinstance(self.setting.target, tuple):
            names += [f"{letter}{k + 1}" for letter in "yv" for k in range(count)]
        return tuple(sp.Symbol(name, real=True) for name in names)

    def numbers(self, at: Any) -> list[Any]:
        """Return the values of the symbols where the output that varies is at a place."""
        place = [at if k == self.setting.varied else f for k, f in enumerate(self.setting.others)]
        target = self.setting.target
        return [*place, *target, *(abs(y) + 0.5 for y in target)] if isinstance(target, tuple) else place

    def run(self) -> Tracing:
        """Find the regions."""
        low, high = self.setting.low, self.setting.high
        paths: dict[tuple[bool, ...], Region] = {}
        known: dict[Any, Region] = {}
        pieces = [(a, b) for a, b in ((low, -5e-324), (0.0, 0.0), (max(low, 5e-324), high)) if low <= a <= b <= high]
        while pieces:
            a, b = pieces.pop()
            try:
                path, found = self._run(a, b, False)
            except UndecidedError:
                if b - a <= NARROW:
                    self.excluded += [a, b]
                else:
                    pieces += halves(a, b)
                continue
            if not found:
                continue
            piece = _piece(a, b, found)
            if b - a > RELATIVE * near(a, b) and self._improves(piece):
                pieces += halves(a, b)
                continue
            if path not in paths:
                made = self._region(a, b)
                paths[path] = known.setdefault(tuple(map(tuple, (*made.stated.values(), *(made.code or ())))), made)
            paths[path].pieces.append(piece)
        self.regions = list(known.values())
        for region in self.regions:
            region.pieces.sort(key=lambda piece: piece.a)
        return self

    def _improves(self, piece: Stretch) -> bool:
        """Return whether the error is large, and smaller at a single float."""
        worst, middle = max(piece.errors, default=0), (piece.a + piece.b) / 2
        if worst <= self.goal:
            return False
        try:
            return worst > 1.25 * max(_piece(middle, middle, self._run(middle, middle, False)[1]).errors)
        except UndecidedError:
            return True

    def _region(self, a: float, b: float) -> Region:
        stated = {name: [e.expr for e in entries] for name, entries in self._run(a, b, True)[1].items()}
        code = [stated.pop(f"code {k}") for k in range(3)] if not self.untraced else None
        value, outputs = sp.sympify(next(iter(stated.values()))[0]), self.symbols[: self.subject.count]
        first = [sp.diff(value, s) for s in outputs]
        return Region(stated, code, [[value], first, [sp.diff(each, s) for each in first for s in outputs]])

    def _run(self, a: float, b: float, symbolic: bool) -> tuple[tuple[bool, ...], dict[str, list[Enclosed]]]:
        """Return the path, and the entries of each formula and of the code on all floats from a to b."""
        path: list[bool] = []
        numbers, names = self.numbers(IV.mpf([a, b])), self.symbols if symbolic else itertools.repeat(None)
        made = [Enclosed(IV.mpf(v), 0.0, name, path) for v, name in zip(numbers, names, strict=False)]
        found, n = self._stated(made), self.subject.count
        if not found or self.untraced:
            return tuple(path), found
        stated = tuple(path)
        try:
            code = self.subject.code(row_of(made[:n]), self._target(made))
            traced = {
                f"code {k}": list(map(made[0].of, np.ravel(np.array(v, dtype=object)))) for k, v in enumerate(code)
            }
        except UndecidedError:
            raise
        except Exception as error:  # whatever a user's code does with what is no float
            self.untraced = f"{type(error).__name__}: {error}"
            return stated, found
        return tuple(path), found | traced

    def at(self, x: float) -> list[list[float]]:
        """Run the code on floats."""
        n, target = self.subject.count, self.setting.target
        found = self.subject.code(
            np.array([self.numbers(x)[:n]]), None if target is None else self.subject.target(target)
        )
        return [[float(value) for value in np.ravel(np.array(each))] for each in found]

    def _target(self, made: list[Enclosed]) -> Any:
        target, n = self.setting.target, self.subject.count
        if not isinstance(target, tuple):
            return None if target is None else np.array([target])
        y, v = row_of(made[n : 2 * n]), row_of(made[2 * n :])
        return y if self.subject.target(target).ndim == 2 else np.stack([y, v], axis=1)

    def _stated(self, made: list[Enclosed]) -> dict[str, list[Enclosed]]:
        """Evaluate the formulas: a number, or one for each index j, or for i and j."""
        one, n, target, found = made[0], self.subject.count, self.setting.target, {}
        env: dict[str, Any] = {}
        for name, value in self.subject.names(target).items():
            env[name] = list(map(one.of, value)) if isinstance(value, list) else one.of(value)
        if self.subject.kind == "layer":
            env["x"] = one
        else:
            label = target if isinstance(target, int) else made[n : 2 * n]
            env |= {"f": made[:n], "y": label, "v": made[2 * n :]}
        scope = scope_of(one, n, env, next(iter(self.parts.values())).definitions)
        if "where" in self.parts and not self.parts["where"](scope.at(j=self.setting.varied)):
            return {}
        for order, name in enumerate(METHODS[self.subject.kind]):
            if name not in self.parts:
                continue
            indices = itertools.product(range(n), repeat=order)
            found[name] = [
                one.of(self.parts[name](scope.at(**dict(zip("ji", k[::-1], strict=False))))) for k in indices
            ]
            if self.subject.kind == "layer" and order == 0:
                scope = scope.at(y=found[name][0])
        return found


def _piece(a: float, b: float, found: Mapping[str, list[Enclosed]]) -> Stretch:
    code = [each for name, entries in found.items() if name.startswith("code") for each in entries]
    return Stretch(a, b, np.array([each.err / max(1.0, near(each.lo, each.hi)) / ULP for each in code]))


def halves(a: float, b: float) -> list[tuple[float, float]]:
    """Return two pieces with as many floats."""
    first, last = _rank(a), _rank(b)
    middle = (first + last) // 2
    return [(_float(middle + 1), b), (a, _float(middle))]


def _rank(x: float) -> int:
    """Return the number of a float among all floats in order, 0 for 0."""
    bits = struct.unpack("<q", struct.pack("<d", x))[0]
    return bits if bits >= 0 else -(bits + 2**63)


def _float(rank: int) -> float:
    return struct.unpack("<d", struct.pack("<q", abs(rank)))[0] * (1 if rank >= 0 else -1)
