"""From what stands in formulas and code to a certificate."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
from sympy import factor_terms

from gbackprop.testing.certificate.enclosure import INF, IV, ends, evaluator, near
from gbackprop.testing.certificate.proofs import OPEN, PROVED, REFUTED, SIGNS, Certificate, Proof
from gbackprop.testing.certificate.subjects import METHODS, CertifiedLayer, CertifiedLoss, parsed
from gbackprop.testing.certificate.sweep import ULP, Region, Stretch, Tracing, halves
from gbackprop.testing.certificate.symbols import difference, written

STEPS = 150
"""The number of intervals that are halved in the search for the largest difference of two formulas."""

DIGITS = 1e-12
"""The relative difference from which on a stated formula is refuted; less may come from a constant that was rounded."""


def judged(made: CertifiedLayer | CertifiedLoss, title: str, interval: tuple[float, float], ulps: float) -> Certificate:
    """Return the certificate of a layer or loss."""
    parts = parsed(made, title)
    with np.errstate(all="ignore"):
        sweeps = [Tracing(made, parts, setting, ulps / 2).run() for setting in made.settings(*interval)]
        if not sweeps:
            raise ValueError(f"{title}: expected a loss that takes outputs of shape ({made.count},)")
        return _Judge(sweeps, METHODS[made.kind], ulps).certificate(title)


class _Judge:
    """Makes a certificate of the regions of all settings."""

    def __init__(self, sweeps: Sequence[Tracing], methods: tuple[str, ...], ulps: float) -> None:
        self.sweeps, self.methods, self.ulps = sweeps, methods, ulps
        keys = [("formula", m) for m in methods[1:] if m in sweeps[0].parts] + [("code", m) for m in methods]
        self.proofs = {key: Proof(*key, PROVED) for key in keys}
        untraced = next((sweep.untraced for sweep in sweeps if sweep.untraced), "")
        for method in methods * bool(untraced):
            self._open("code", method, f"it does not run on intervals ({untraced})")
        self.kinks: set[float] = set()
        self.floats = 0

    def certificate(self, title: str) -> Certificate:
        """Return the certificate."""
        steps: list[str] = []
        for sweep in self.sweeps:
            edges, found = self._segments(sweep)
            steps += found if sweep is self.sweeps[0] else []
            for region in sweep.regions:
                if pieces := [p for p in region.pieces if p.a != p.b or p.a not in edges]:
                    self._region(sweep, region, pieces)
        low, high = min(s.setting.low for s in self.sweeps), max(s.setting.high for s in self.sweeps)
        count = sum(len(region.pieces) for sweep in self.sweeps for region in sweep.regions)
        return Certificate(
            title, (*self.proofs.values(),), (*steps,), (*sorted(self.kinks),), (low, high), count, self.floats
        )

    def _segments(self, sweep: Tracing) -> tuple[set[float], list[str]]:
        """Return the floats beside kinks of the function, and what it and its derivatives are between kinks."""
        regions = sorted(((p, r) for r in sweep.regions for p in r.pieces), key=lambda each: each[0].a)
        groups = [list(group) for _, group in itertools.groupby(regions, lambda each: each[1].derived[0])]
        spans = [(group[0][0].a, group[-1][0].b, group[0][1].derived) for group in groups]
        edges = {x for p, q in itertools.pairwise(spans) for x in (p[1], q[0])}
        clusters: list[list[float]] = []
        for x in sorted(edges | set(sweep.excluded)):
            if clusters and x - clusters[-1][-1] <= 16 * ULP * max(abs(x), 1):
                clusters[-1].append(x)
            else:
                clusters.append([x])
        self.kinks |= {min(cluster, key=lambda x: len(repr(x))) for cluster in clusters}
        return edges, [
            f"{self._interval(a, b)}: {SIGNS[m]} = {_listed(entries)}"
            for a, b, derived in spans if a != b or a not in edges
            for m, entries in zip(self.methods, derived, strict=True)
        ]  # fmt: skip

    def _interval(self, a: float, b: float) -> str:
        """Write an interval, open at kinks."""
        near = [next((k for k in self.kinks if abs(x - k) <= 16 * ULP * max(abs(k), 1)), None) for x in (a, b)]
        start = f"[{a:.6g}" if near[0] is None else f"({near[0]:.6g}"
        return f"{start}, {b:.6g}]" if near[1] is None else f"{start}, {near[1]:.6g})"

    def _region(self, sweep: Tracing, region: Region, pieces: list[Stretch]) -> None:
        where = self._interval(pieces[0].a, pieces[-1].b) + f", {sweep.setting}" * bool(str(sweep.setting))
        offset = 0
        for order, (name, right) in enumerate(zip(self.methods, region.derived, strict=True)):
            for given, wanted in (
                zip(region.stated[name], right, strict=True) if order and name in region.stated else ()
            ):
                _, at = self._search(sweep, pieces, given, wanted, None)
                self._judge("formula", name, at, (where, given, wanted))
            for k, (given, wanted) in enumerate(zip(region.code[order], right, strict=True) if region.code else ()):
                bound, at = self._search(sweep, pieces, given, wanted, self.ulps)
                self._judge("code", name, at, (where, given, wanted))
                worst = max(pieces, key=lambda piece: piece.errors[offset + k])
                self._error(name, float(worst.errors[offset + k]) + bound, worst.a)
            offset += len(right)
        self._floats(sweep, region, pieces, where)

    def _search(
        self, sweep: Tracing, pieces: list[Stretch], given: Any, right: Any, ulps: float | None
    ) -> tuple[float, Any]:
        """Return a bound of the difference, and a float at which it is too large: None, or NaN if that is unknown."""
        gap, symbols = difference(given, right), sweep.symbols
        if gap == 0:
            return 0.0, None
        exact = [evaluator(each, symbols, False) for each in (gap, right)]
        floor, allowed = (1e-30, DIGITS) if ulps is None else (1.0, ulps * ULP)
        heap: list[tuple[float, float, float]] = []
        bounded = [evaluator(each, symbols, True) for each in (right, factor_terms(given - right), factor_terms(gap))]

        def push(a: float, b: float) -> None:
            numbers = list(map(IV.mpf, sweep.numbers(IV.mpf([a, b]))))
            least, *sizes = (ends(IV.mpf(f(*numbers))) for f in bounded)
            bound = min(INF, *(max(map(abs, size)) / max(floor, near(*least)) for size in sizes))
            heapq.heappush(heap, (-bound, a, b))

        for piece in pieces:
            push(piece.a, piece.b)
        for _ in range(STEPS):
            bound, a, b = heapq.heappop(heap)
            if ulps is not None and -bound <= allowed:
                return -bound / ULP, None
            x = a / 2 + b / 2
            with mpmath.workdps(60):
                apart, value = (abs(mpmath.mpf(f(*map(mpmath.mpf, sweep.numbers(x))))) for f in exact)
                if not apart <= allowed * max(floor, value):  # NaN is too large, too
                    return INF, x
            if a == b:
                break
            for half in halves(a, b):
                push(*half)
        return INF, np.nan

    def _judge(self, of: str, name: str, at: float | None, claim: tuple[str, Any, Any]) -> None:
        if at is None:
            return
        if np.isnan(at):
            self._open(of, name, f"{written(claim[1])} is not known to be {written(claim[2])} on {claim[0]}")
        elif self.proofs[of, name].verdict != REFUTED:
            where = f"{claim[0]}, as at {at:.6g}"
            self.proofs[of, name] = Proof(of, name, REFUTED, 0.0, where, "", written(claim[1]), written(claim[2]))

    def _open(self, of: str, name: str, why: str) -> None:
        if self.proofs[of, name].verdict == PROVED:
            self.proofs[of, name] = replace(self.proofs[of, name], verdict=OPEN, why=why)

    def _error(self, name: str, error: float, x: float) -> None:
        known = self.proofs["code", name]
        if known.verdict != REFUTED and not error <= known.error:
            self.proofs["code", name] = replace(known, error=error, where=f"near {x:.6g}")
        if not error <= self.ulps:
            self._open("code", name, f"its error may be {error:.1f} ulp near {x:.6g}, allowed is {self.ulps:g}")

    def _floats(self, sweep: Tracing, region: Region, pieces: list[Stretch], where: str) -> None:
        """Compare the code, run on floats as they are, with 40 digits."""
        functions = [[evaluator(each, sweep.symbols, False) for each in entries] for entries in region.derived]
        some = pieces[:: max(1, len(pieces) * len(self.sweeps) // 40)]
        for x in sorted({x for p in some for x in (p.a, (p.a + p.b) / 2, p.b)} - self.kinks):
            self.floats += 1
            with mpmath.workdps(40):
                exact = [[mpmath.mpf(f(*map(mpmath.mpf, sweep.numbers(x)))) for f in entries] for entries in functions]
            try:
                found = sweep.at(x)
            except Exception as error:  # whatever a user's code raises
                self._open("code", self.methods[0], f"at {x!r} the code raises {type(error).__name__}: {error}")
                return
            for name, entries, wanted in zip(self.methods, found, exact, strict=True):
                errors = [
                    float(abs(got - want) / max(1, abs(want))) / ULP for got, want in zip(entries, wanted, strict=True)
                ]
                k = int(np.argmax(errors))  # the first NaN, if there is one
                if errors[k] <= self.ulps:
                    continue
                if errors[k] < 2.0**26 and region.code is not None:
                    self._error(name, errors[k], x)
                elif self.proofs["code", name].verdict != REFUTED:
                    texts = f"{entries[k]:.17g}", mpmath.nstr(wanted[k], 17)
                    self.proofs["code", name] = Proof(
                        "code", name, REFUTED, errors[k], f"{where}, at {x!r}", "", *texts
                    )


def _listed(each: list[Any]) -> str:
    texts = list(map(written, each))
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
