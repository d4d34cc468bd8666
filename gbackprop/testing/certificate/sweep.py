"""One path through code and formulas at a time, until all floats between two ends are on one."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gbackprop.testing.certificate.enclosure import Enclosed, Pieces, UndecidedError
from gbackprop.testing.certificate.notation import Formula
from gbackprop.testing.certificate.subjects import METHODS, CertifiedLayer, CertifiedLoss, Setting

ULP = 2.0**-52


@dataclass(frozen=True)
class Piece:
    """All floats from a to b, and how far those of each entry of the code may be from its formula in real numbers."""

    a: float
    b: float
    size: np.ndarray  # least |value| of each entry
    error: np.ndarray

    @property
    def worst(self) -> float:
        """The largest error, in units of 2⁻⁵² max(1, |value|)."""
        return float(np.max(self.error / np.maximum(1, self.size), initial=0)) / ULP


@dataclass
class Region:
    """The pieces on which code and formulas are the same expressions, and these."""

    stated: dict[str, list[Any]]
    code: list[Any] | None
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class Sweep:
    """All floats of a setting, by region; `excluded` are those at which a comparison may go either way."""

    subject: CertifiedLayer | CertifiedLoss
    parts: Mapping[str, Formula]
    setting: Setting
    goal: float  # the rounding error, in units of 2⁻⁵² max(1, |value|), below which no piece is made smaller
    width: float  # the relative width below which none is
    regions: dict[Any, Region] = field(default_factory=dict)
    excluded: list[float] = field(default_factory=list)
    untraced: str = ""

    def symbols(self) -> tuple[Any, ...]:
        """Return the symbols of outputs and targets."""
        import sympy as sp

        count, loss = self.subject.count, self.subject.kind == "loss"
        names = [f"f{k + 1}" for k in range(count)] if loss else ["x"]
        if isinstance(self.setting.target, tuple):
            names += [f"{letter}{k + 1}" for letter in "yv" for k in range(count)]
        return tuple(sp.Symbol(name, real=True) for name in names)

    def numbers(self, at: float) -> list[float]:
        """Return the values of the symbols where the output that varies is at a place."""
        place = [at if k == self.setting.varied else f for k, f in enumerate(self.setting.others)]
        target = self.setting.target
        return [*place, *target, *(abs(y) + 0.5 for y in target)] if isinstance(target, tuple) else place

    def run(self) -> Sweep:
        """Find the regions."""
        low, high, known = self.setting.low, self.setting.high, {}
        pieces = [(a, b) for a, b in ((low, -5e-324), (0.0, 0.0), (max(low, 5e-324), high)) if low <= a <= b <= high]
        while pieces:
            a, b = pieces.pop()
            try:
                path, found = self._run(a, b, False)
            except UndecidedError:
                if a == b:
                    self.excluded.append(a)
                else:
                    pieces += _halves(a, b)
                continue
            if not found:
                continue
            piece = _piece(a, b, found)
            if b - a > self.width * min(abs(a), abs(b)) and self._improves(piece):
                pieces += _halves(a, b)
                continue
            if path not in known:
                _, found = self._run(a, b, True)
                exprs = {name: [e.expr for e in entries] for name, entries in found.items()}
                code = [exprs.pop(f"code {k}") for k in range(3)] if not self.untraced else None
                known[path] = str((exprs, code))
                self.regions.setdefault(known[path], Region(exprs, code))
            self.regions[known[path]].pieces.append(piece)
        for region in self.regions.values():
            region.pieces.sort(key=lambda piece: piece.a)
        return self

    def _improves(self, piece: Piece) -> bool:
        """Return whether the error is large, and smaller at a single float."""
        if piece.worst <= self.goal:
            return False
        middle = (piece.a + piece.b) / 2
        try:
            return piece.worst > 1.25 * _piece(middle, middle, self._run(middle, middle, False)[1]).worst
        except UndecidedError:
            return True

    def _run(self, a: float, b: float, symbolic: bool) -> tuple[tuple[bool, ...], dict[str, list[Enclosed]]]:
        """Return the path, and the entries of each formula and of the code on all floats from a to b."""
        path: list[bool] = []
        at, names = self.numbers(a), self.symbols() if symbolic else itertools.repeat(None)
        made = [Enclosed(v, v, 0.0, name, path) for v, name in zip(at, names, strict=False)]
        varied, n = self.setting.varied, self.subject.count
        made[varied] = Enclosed(a, b, 0.0, made[varied].expr, path)
        found, one = self._stated(made), made[0]
        if not found:
            return (), {}
        stated = tuple(path)
        try:
            code = [] if self.untraced else self.subject.code(_row(made[:n]), self._target(made))
            for k, values in enumerate(code):
                found[f"code {k}"] = [one.of(value) for value in np.ravel(np.array(values, dtype=object))]
        except UndecidedError:
            raise
        except Exception as error:  # whatever a user's code does with what is no float
            self.untraced = f"{type(error).__name__}: {error}"
            return stated, {name: each for name, each in found.items() if name[:4] != "code"}
        return (*stated, *path), found

    def bound(self, gap: Any, piece: Piece) -> float:
        """Return the largest size of a formula on a piece."""
        made = [Enclosed(v, v, 0.0, None, []) for v in self.numbers(piece.a)]
        made[self.setting.varied] = Enclosed(piece.a, piece.b, 0.0, None, [])
        return made[0].of(gap(*made)).size

    def at(self, numbers: list[float]) -> list[list[float]]:
        """Run the code on floats."""
        n, target = self.subject.count, self.setting.target
        y = self.subject.target(target) if target is not None else None
        found = self.subject.code(np.array([numbers[:n]]), y)
        return [[float(value) for value in np.ravel(np.array(each))] for each in found]

    def _target(self, made: list[Enclosed]) -> Any:
        target, n = self.setting.target, self.subject.count
        if not isinstance(target, tuple):
            return None if target is None else np.array([target])
        y, v = _row(made[n : 2 * n]), _row(made[2 * n :])
        return y if self.subject.target(target).ndim == 2 else np.stack([y, v], axis=1)

    def _stated(self, made: list[Enclosed]) -> dict[str, list[Enclosed]]:
        """Evaluate the formulas: a number, or one for each index j, or for i and j."""
        one, n, target, found = made[0], self.subject.count, self.setting.target, {}
        env: dict[str, Any] = {"1": one, "C": n}
        for name, value in self.subject.names(target).items():
            env[name] = list(map(one.of, value)) if isinstance(value, list) else one.of(value)
        if self.subject.kind == "layer":
            env["x"] = one
        else:
            label = target if isinstance(target, int) else made[n : 2 * n]
            env |= {"f": made[:n], "y": label, "v": made[2 * n :]}
        if "where" in self.parts and not self.parts["where"]({**env, "j": self.setting.varied}):
            return {}
        for order, name in enumerate(METHODS[self.subject.kind]):
            if name not in self.parts:
                continue
            free = range(n) if self.subject.kind == "loss" else range(1)
            indices = itertools.product(free, repeat=order)
            found[name] = [one.of(self.parts[name]({**env, **dict(zip("ji", k[::-1], strict=False))})) for k in indices]
            if self.subject.kind == "layer" and order == 0:
                env["y"] = found[name][0]
        return found


def _row(entries: list[Enclosed]) -> np.ndarray:
    row = np.empty((1, len(entries)), dtype=object)
    row[0] = entries
    return row.view(Pieces)


def _piece(a: float, b: float, found: Mapping[str, list[Enclosed]]) -> Piece:
    code = [each for name, entries in found.items() if name.startswith("code") for each in entries]
    return Piece(a, b, np.array([each.least for each in code]), np.array([each.err for each in code]))


def _halves(a: float, b: float) -> list[tuple[float, float]]:
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
