"""One path through code and formulas at a time, until all floats between two ends are on one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from gbackprop.testing.certificate.enclosure import IV, Enclosed, UndecidedError, near
from gbackprop.testing.certificate.notation import Formula, plain, scope_of
from gbackprop.testing.certificate.subjects import Setting

Key = tuple[str, str]  # "formula" or "code", and the method

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
    errors: Mapping[Key, list[float]]

    @property
    def worst(self) -> float:
        """The largest bound."""
        return max(itertools.chain(*self.errors.values()), default=0.0)


@dataclass
class Region:
    """The pieces on which code and formulas are the same expressions, and these; and what follows from the first."""

    found: dict[Key, list[Any]]
    derived: dict[str, list[Any]]
    pieces: list[Stretch] = field(default_factory=list)


@dataclass
class Tracing:
    """All floats of a setting, by region; `excluded` are those at which a comparison may go either way."""

    setting: Setting
    parts: Mapping[str, Formula]
    methods: tuple[str, ...]
    goal: float  # the rounding error below which no piece is made smaller
    regions: list[Region] = field(default_factory=list)
    excluded: list[float] = field(default_factory=list)
    untraced: str = ""

    @cached_property
    def symbols(self) -> tuple[Any, ...]:
        """The symbols of outputs and targets."""
        return tuple(sp.Symbol(name, real=True) for name in self.setting.numbers)

    def run(self) -> Tracing:
        """Find the regions."""
        low, high = self.setting.low, self.setting.high
        paths: dict[tuple[bool, ...], Region] = {}
        known: dict[Any, Region] = {}
        pieces = [(a, b) for a, b in ((low, -5e-324), (0.0, 0.0), (max(low, 5e-324), high)) if low <= a <= b <= high]
        while pieces:
            a, b = pieces.pop()
            try:
                path, found = self._run(a, b)
            except UndecidedError:
                self.excluded += [a, b] * (b - a <= NARROW)
                pieces += halves(a, b) * (b - a > NARROW)
                continue
            piece = _piece(a, b, found)
            if b - a > RELATIVE * min(abs(a), abs(b)) and self._improves(piece):
                pieces += halves(a, b)
            elif found:
                if path not in paths:
                    made = self._region(a, b)
                    paths[path] = known.setdefault(tuple(map(tuple, made.found.values())), made)
                paths[path].pieces.append(piece)
        self.regions = list(known.values())
        for region in self.regions:
            region.pieces.sort(key=lambda piece: piece.a)
        return self

    def _improves(self, piece: Stretch) -> bool:
        """Return whether the error is large, and smaller at a single float."""
        middle = (piece.a + piece.b) / 2
        if piece.worst <= self.goal:
            return False
        try:
            return piece.worst > 1.25 * _piece(middle, middle, self._run(middle, middle)[1]).worst
        except UndecidedError:
            return True

    def _region(self, a: float, b: float) -> Region:
        found = {key: [each.expr for each in entries] for key, entries in self._run(a, b, self.symbols)[1].items()}
        right, outputs = [sp.sympify(found["formula", self.methods[0]][0])], self.symbols[: self.setting.count]
        derived = {}
        for method in self.methods:
            derived[method], right = right, [sp.diff(each, s) for each in right for s in outputs]
        return Region(found, derived)

    def _run(self, a: float, b: float, symbols: Any = ()) -> tuple[tuple[bool, ...], dict[Key, list[Enclosed]]]:
        """Return the path, and the entries of each formula and of the code on all floats from a to b."""
        path: list[bool] = []
        numbers = map(IV.mpf, self.setting.at(IV.mpf([a, b])))
        made = [Enclosed(each, 0.0, s, path) for each, s in zip(numbers, symbols or itertools.repeat(None))]
        found = self._stated(made)
        stated = tuple(path)
        if not found or self.untraced:
            return stated, found
        try:
            for method, each in zip(self.methods, self.setting.code(made), strict=True):
                found["code", method] = [made[0].of(v) for v in np.ravel(np.array(each, dtype=object))]
        except UndecidedError:
            raise
        except Exception as error:  # whatever a user's code does with what is no float
            self.untraced = f"{type(error).__name__}: {error}"
            return stated, {key: entries for key, entries in found.items() if key[0] == "formula"}
        return tuple(path), found

    def _stated(self, made: list[Enclosed]) -> dict[Key, list[Enclosed]]:
        """Evaluate the formulas: a number, or one for each index j, or for i and j."""
        one, n, given = made[0], self.setting.count, self.setting.given(made)
        scope = scope_of(one, n, {**self.setting.options, **given}, next(iter(self.parts.values())).definitions)
        found: dict[Key, list[Enclosed]] = {}
        if "where" in self.parts and not self.parts["where"](scope, j=self.setting.varied):
            return found
        for order, method in enumerate(self.methods):
            places = itertools.product(range(n), repeat=order) if method in self.parts else ()
            if entries := [one.of(self.parts[method](scope, **dict(zip("ij"[2 - order :], k)))) for k in places]:
                found["formula", method] = entries
            if "y" not in given:
                scope[plain("y")] = found["formula", self.methods[0]][0]
        return found


def _piece(a: float, b: float, found: Mapping[Key, list[Enclosed]]) -> Stretch:
    code = {key: entries for key, entries in found.items() if key[0] == "code"}
    errors = {key: [e.err / max(1.0, near(e.value)) / ULP for e in entries] for key, entries in code.items()}
    return Stretch(a, b, errors)


def halves(a: float, b: float) -> list[tuple[float, float]]:
    """Return two pieces with as many floats, of the same sign."""
    middle = int(np.array([a, b]).view(np.int64).sum(dtype=object)) // 2
    below, above = sorted(np.array([middle, middle + 1]).view(np.float64).tolist())
    return [(above, b), (a, below)]
