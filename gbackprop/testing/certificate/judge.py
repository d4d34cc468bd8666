"""From what stands in formulas and code to a certificate."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
from sympy import factor_terms, sign

from gbackprop.calculus.layer import Layer
from gbackprop.layers import Elementwise
from gbackprop.losses.base import Loss
from gbackprop.testing.certificate.enclosure import INF, IV, evaluator, far, near
from gbackprop.testing.certificate.proofs import OPEN, PROVED, REFUTED, SIGNS, Certificate, Proof
from gbackprop.testing.certificate.subjects import parsed, settings_of
from gbackprop.testing.certificate.sweep import ULP, Region, Stretch, Tracing, halves
from gbackprop.testing.certificate.symbols import difference, written

STEPS = 150
"""The number of intervals that are halved in the search for the largest difference of two formulas."""

DIGITS = 1e-12
"""The relative difference from which on a stated formula is refuted; less may come from a constant that was rounded."""


def judged(subject: Layer | Loss, interval: tuple[float, float], ulps: float) -> Certificate:
    """Return the certificate of a layer or loss."""
    title, loss = repr(subject), isinstance(subject, Loss)
    methods = tuple(SIGNS)[3:] if loss else tuple(SIGNS)[:3]
    if subject.formulas.get(methods[0]) in (None, Elementwise.formulas["forward"]):
        raise ValueError(f"{title}: expected its function in formulas[{methods[0]!r}], got none")
    settings = [*settings_of(subject, *interval)]
    parts = parsed(subject.formulas, methods, settings[0], title)
    with np.errstate(all="ignore"):
        sweeps = [Tracing(each, parts, methods, ulps / 2).run() for each in settings]
        slopes = [entry for each in sweeps for region in each.regions for entry in region.derived[methods[1]]]
        if any(entry.has(sign) for entry in slopes):
            raise ValueError(f"{title}, {methods[0]}: expected |x| for the root of x², whose kink no comparison shows")
        return _Judge(sweeps, ulps).certificate(title)


class _Judge:
    """Makes a certificate of the regions of all settings."""

    def __init__(self, sweeps: Sequence[Tracing], ulps: float) -> None:
        self.sweeps, self.methods, self.ulps = sweeps, sweeps[0].methods, ulps
        keys = [("formula", m) for m in self.methods[1:] if m in sweeps[0].parts] + [("code", m) for m in self.methods]
        self.proofs = {key: Proof(*key, PROVED) for key in keys}
        self.kinks: list[float] = []
        self.floats = 0

    def certificate(self, title: str) -> Certificate:
        """Return the certificate."""
        steps: list[str] = []
        for sweep in self.sweeps:
            edges, found = self._segments(sweep)
            steps += found if sweep is self.sweeps[0] else []
            for method in self.methods * bool(sweep.untraced):
                self._add(Proof("code", method, OPEN, why=f"it does not run on intervals ({sweep.untraced})"))
            for region in sweep.regions:
                if pieces := [p for p in region.pieces if p.a != p.b or p.a not in edges]:
                    self._region(sweep, region, pieces)
        interval = min(s.setting.low for s in self.sweeps), max(s.setting.high for s in self.sweeps)
        count = sum(len(region.pieces) for sweep in self.sweeps for region in sweep.regions)
        proofs = tuple(self.proofs.values())
        return Certificate(title, proofs, (*steps,), (*sorted(self.kinks),), interval, count, self.floats)

    def _add(self, proof: Proof) -> None:
        """Take what is found of a claim, if it is worse than what is known."""
        known, order = self.proofs[proof.of, proof.method], (PROVED, OPEN, REFUTED)
        worse = order.index(proof.verdict) - order.index(known.verdict)
        if worse > 0 or (worse == 0 and proof.verdict != REFUTED and not proof.error <= known.error):
            self.proofs[proof.of, proof.method] = proof

    def _segments(self, sweep: Tracing) -> tuple[set[float], list[str]]:
        """Return the floats beside kinks of the function, and what it and its derivatives are between kinks."""
        regions = sorted(((p, r) for r in sweep.regions for p in r.pieces), key=lambda each: each[0].a)
        groups = [list(group) for _, group in itertools.groupby(regions, lambda each: each[1].derived[self.methods[0]])]
        spans = [(group[0][0].a, group[-1][0].b, group[0][1].derived) for group in groups]
        edges = {x for p, q in itertools.pairwise(spans) for x in (p[1], q[0])}
        for x in sorted(edges | set(sweep.excluded), key=lambda x: len(repr(x))):
            self.kinks += [x] * (self._kink(x) is None)
        return edges, [
            f"{self._interval(a, b)}: {SIGNS[method]} = {_listed(entries)}"
            for a, b, derived in spans if a != b or a not in edges
            for method, entries in derived.items()
        ]  # fmt: skip

    def _kink(self, x: float) -> float | None:
        """Return the kink that a float is beside, if it is."""
        return next((kink for kink in self.kinks if abs(x - kink) <= 16 * ULP * max(abs(kink), 1)), None)

    def _interval(self, a: float, b: float) -> str:
        """Write an interval, open at kinks."""
        low, high = self._kink(a), self._kink(b)
        start = f"[{a:.6g}" if low is None else f"({low:.6g}"
        return f"{start}, {b:.6g}]" if high is None else f"{start}, {high:.6g})"

    def _region(self, sweep: Tracing, region: Region, pieces: list[Stretch]) -> None:
        """Judge all claims where formulas and code are the same expressions."""
        on = self._interval(pieces[0].a, pieces[-1].b) + f", {sweep.setting.title}" * bool(sweep.setting.title)
        for of, method in (key for key in self.proofs if key in region.found):
            for k, (given, right) in enumerate(zip(region.found[of, method], region.derived[method], strict=True)):
                bound, at = self._search(sweep, pieces, (given, right), self.ulps if of == "code" else None)
                if at is not None and not np.isnan(at):
                    texts = f"{on}, as at {at:.6g}", "", written(given), written(right)
                    self._add(Proof(of, method, REFUTED, 0.0, *texts))
                elif at is not None:
                    why = f"{written(given)} is not known to be {written(right)} on {on}"
                    self._add(Proof(of, method, OPEN, bound if of == "code" else 0.0, why=why))
                elif of == "code":
                    worst = max(pieces, key=lambda piece: piece.errors[of, method][k])
                    self._error(method, worst.errors[of, method][k] + bound, worst.a)
        self._floats(sweep, region, pieces, on)

    def _error(self, method: str, error: float, x: float) -> None:
        """Take a bound of the code's error near a float."""
        verdict, why = PROVED, ""
        if not error <= self.ulps:
            verdict, why = OPEN, f"its error may be {error:.1f} ulp near {x:.6g}, allowed is {self.ulps:g}"
        self._add(Proof("code", method, verdict, error, f"near {x:.6g}", why))

    def _search(
        self, sweep: Tracing, pieces: list[Stretch], both: tuple[Any, Any], ulps: float | None
    ) -> tuple[float, float | None]:
        """Return a bound of the difference, and a float at which it is too large: None, or NaN if that is unknown."""
        (given, right), gap = both, difference(*both)
        if gap == 0:
            return 0.0, None
        exact = [evaluator(each, sweep.symbols, False) for each in (gap, right)]
        floor, allowed = (1e-30, DIGITS) if ulps is None else (1.0, ulps * ULP)
        heap: list[tuple[float, float, float]] = []
        forms = right, factor_terms(given - right), factor_terms(gap)
        bounded = [evaluator(each, sweep.symbols, True) for each in forms]

        def push(a: float, b: float) -> None:
            numbers = list(map(IV.mpf, sweep.setting.at(IV.mpf([a, b]))))
            least, *apart = (IV.mpf(f(*numbers)) for f in bounded)
            bound = min(INF, *(far(each) / max(floor, near(least)) for each in apart))
            heapq.heappush(heap, (-bound, a, b))

        for piece in pieces:
            push(piece.a, piece.b)
        for _ in range(STEPS):
            bound, a, b = heapq.heappop(heap)
            if ulps is not None and -bound <= allowed:
                return -bound / ULP, None
            x = a / 2 + b / 2
            apart, value = (abs(each) for each in _exactly(exact, sweep, x, 60))
            if not apart <= allowed * max(floor, value):  # NaN is too large, too
                return INF, x
            if a == b:
                break
            for half in halves(a, b):
                push(*half)
        return INF, np.nan

    def _floats(self, sweep: Tracing, region: Region, pieces: list[Stretch], on: str) -> None:
        """Compare the code, run on floats as they are, with 40 digits."""
        functions = [[evaluator(each, sweep.symbols, False) for each in entries] for entries in region.derived.values()]
        some = pieces[:: max(1, len(pieces) * len(self.sweeps) // 40)]
        for x in sorted({x for p in some for x in (p.a, (p.a + p.b) / 2, p.b)} - {*self.kinks}):
            self.floats += 1
            try:
                found = [np.ravel(np.array(each)).tolist() for each in sweep.setting.code(sweep.setting.at(x))]
            except Exception as error:  # whatever a user's code raises
                why = f"at {x!r} the code raises {type(error).__name__}: {error}"
                self._add(Proof("code", self.methods[0], OPEN, why=why))
                return
            for method, entries, exact in zip(self.methods, found, functions, strict=True):
                wanted = _exactly(exact, sweep, x, 40)
                errors = [
                    float(abs(got - want) / max(1, abs(want))) / ULP for got, want in zip(entries, wanted, strict=True)
                ]
                k = int(np.argmax(errors))  # the first NaN, if there is one
                if errors[k] > self.ulps and errors[k] < 2.0**26 and ("code", method) in region.found:
                    self._error(method, errors[k], x)
                elif not errors[k] <= self.ulps:
                    texts = f"{on}, at {x!r}", "", f"{entries[k]:.17g}", mpmath.nstr(wanted[k], 17)
                    self._add(Proof("code", method, REFUTED, errors[k], *texts))


def _exactly(functions: list[Any], sweep: Tracing, x: float, digits: int) -> list[Any]:
    """Compute formulas at a float with many digits."""
    with mpmath.workdps(digits):
        return [mpmath.mpf(f(*map(mpmath.mpf, sweep.setting.at(x)))) for f in functions]


def _listed(each: list[Any]) -> str:
    texts = list(map(written, each))
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
