"""Certificates of elementwise layers and of losses: `certify`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer
from gbackprop.losses.base import Loss
from gbackprop.testing.certificate.subjects import METHODS, CertifiedLayer, CertifiedLoss, parsed
from gbackprop.testing.certificate.sweep import ULP, Piece, Region, Sweep
from gbackprop.testing.certificate.symbols import OTHER, SAME, UNKNOWN, compared, exactly, on_pieces, written
from gbackprop.testing.report import FAILED, NOT_GIVEN, NOT_JUDGED, OK, Row

PROVED, TESTED, REFUTED, LOSSY = "proved", "tested", "refuted", "loses digits"
"""Verdicts: of formulas, or of all floats of the interval; of some of them; false; right but for its rounding."""

SIGNS = {"forward": "y", "mjp": "φ'(x)", "residual": "φ''(x)", "values": "ℓ", "gradients": "∇ℓ", "hessian": "∇²ℓ"}


@dataclass(frozen=True)
class Proof:
    """One claim of a certificate.

    Attributes
    ----------
    of : {"formula", "code"}
    method : str
        "forward", "mjp" or "residual", or "values", "gradients" or "hessian".
    verdict : {"proved", "tested", "refuted", "loses digits"}
    error : float
        Of the code: a bound of its rounding error, in units of 2⁻⁵² max(1, |value|).
    where : str
        The interval where it is refuted, or has its largest error.
    given, right : str
        If it is refuted: what stands there, and what should.
    """

    of: str
    method: str
    verdict: str
    error: float = 0.0
    where: str = ""
    given: str = ""
    right: str = ""

    @property
    def ok(self) -> bool:
        """True if the claim is proved."""
        return self.verdict == PROVED

    def __str__(self) -> str:
        text = f"the {self.of} of {self.method} is {SIGNS[self.method]}: {self.verdict}"
        if self.verdict == REFUTED:
            return f"{text} {self.where}: right is {self.right}, {'it says' if self.of == 'formula' else 'it computes'} {self.given}"
        if self.of == "formula":
            return text
        return f"{text}, rounding error at most {self.error:.1f} ulp {self.where}".rstrip()


@dataclass(frozen=True)
class Certificate:
    """What is proved of a layer or loss.

    Attributes
    ----------
    subject : str
    proofs : tuple of Proof
    derivation : tuple of str
        The steps: the function on each interval on which it is one expression, and its derivatives.
    kinks : tuple of float
        Numbers at which the function goes from one expression to another: derivatives are not judged there.
    interval : tuple of float
        The least and the largest number.
    pieces : int
        The number of intervals that the code ran on.
    floats : int
        The number of floats at which code was compared with 40 digits, beside that.
    note : str
        Why the code was only tested, if it was.
    """

    subject: str
    proofs: tuple[Proof, ...]
    derivation: tuple[str, ...]
    kinks: tuple[float, ...]
    interval: tuple[float, float]
    pieces: int
    floats: int
    note: str = ""

    @property
    def ok(self) -> bool:
        """True if every claim is proved."""
        return all(proof.ok for proof in self.proofs)

    @property
    def summary(self) -> str:
        """Say which of formulas and code is wrong; the formula of the function itself is taken as the definition."""
        wrong = {(proof.of, proof.method) for proof in self.proofs if proof.verdict == REFUTED}
        words = {("code", "formula"): "formula and code are wrong", ("formula",): "the formula is wrong, the code is right"}
        words[("code",)] = "the code is wrong, the formula is right"
        found = [f"{m}: {words[tuple(sorted(of for of, each in wrong if each == m))]}" for m in SIGNS if m in {m for _, m in wrong}]
        return "; ".join(found) or ("certified" if self.ok else "not certified")

    def __str__(self) -> str:
        low, high = self.interval
        head = f"{self.subject} on [{low:g}, {high:g}]: {self.summary}"
        kinks = f"kinks, not judged: {', '.join(f'{kink:g}' for kink in self.kinks)}" if self.kinks else "no kinks"
        effort = f"{kinks}; {self.pieces} intervals, {self.floats} floats"
        return "\n  ".join([head, *self.derivation, *map(str, self.proofs), effort, *filter(None, [self.note])])

    def rows(self) -> list[Row]:
        """Return the claims as rows of a report."""
        verdicts = {PROVED: OK, REFUTED: FAILED, TESTED: NOT_JUDGED, LOSSY: NOT_GIVEN}
        return [
            Row(
                f"{each.of} is {SIGNS[each.method]} on [{self.interval[0]:g}, {self.interval[1]:g}]",
                each.method, "the stated formula, by SymPy", verdict=verdicts[each.verdict],
                problem="" if each.ok else str(each),
            )
            for each in self.proofs
        ]  # fmt: skip


def certify(
    subject: Layer | Loss, low: float = -50.0, high: float = 50.0, *, ulps: float = 32.0, width: float = 2.0**-5
) -> Certificate:
    """Derive what an elementwise layer or a loss states, and compare formulas and code on all floats of an interval.

    Parameters
    ----------
    subject : Layer or Loss
        It states its function and derivatives in `formulas`.
    low, high : float
        The ends; a loss is certified where it is defined between them.
    ulps : float
        The rounding error allowed, in units of 2⁻⁵² max(1, |value|).
    width : float
        Intervals that are not needed smaller for that are not made narrower than this, relative to where they are.

    Returns
    -------
    Certificate

    Raises
    ------
    FormulaError
        If a formula cannot be parsed; the message names the subject, the formula and the place.
    TypeError, ValueError
        If `subject` is no layer or loss, a layer is not elementwise, the function is not stated, or the ends are none.
    MissingExtraError
        If SymPy is not installed.
    """
    with needed("sympy", "certificates", "symbolic"):
        import sympy as sp  # noqa: F401
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"low, high: expected two finite numbers in order, got {low} and {high}")
    made, title = certifiable(subject), repr(subject)
    parts = parsed(made, title, subject.formulas)
    if METHODS[made.kind][0] not in parts:
        raise ValueError(f"{title}: expected its function in formulas[{METHODS[made.kind][0]!r}], got none")
    with np.errstate(all="ignore"):
        sweeps = [Sweep(made, parts, setting, ulps / 2, width).run() for setting in made.settings(low, high)]
        if not sweeps:
            raise ValueError(f"{title}: expected a loss that takes outputs of shape ({made.count},)")
        return _Judge(made, title, sweeps, ulps).certificate()


def certifiable(subject: Layer | Loss) -> CertifiedLayer | CertifiedLoss:
    """Return a layer or loss as what can be certified."""
    if isinstance(subject, Loss):
        return CertifiedLoss(subject)
    if not isinstance(subject, Layer):
        raise TypeError(f"subject: expected a layer or a loss, got {type(subject).__name__}")
    made = CertifiedLayer(subject)
    x = np.array([[-1.5], [0.25], [2.0]])
    try:
        y, saved = made.layer.forward(x)
        alone = made.layer.curvature != "dense" and y.shape == x.shape
        made.layer.mjp(saved, np.ones((1, 3, 1)))
    except (ValueError, IndexError, NotImplementedError):
        alone = False
    if not alone or made.layer.output_shape((1,)) != (1,) or np.shape(made.layer.forward(np.ones((1, 3)))[0]) != (1, 3):
        raise TypeError(f"{subject!r}: expected an elementwise layer, which computes each number from itself alone")
    return made


class _Judge:
    """Makes a certificate of the regions of all settings."""

    def __init__(self, made: CertifiedLayer | CertifiedLoss, title: str, sweeps: Sequence[Sweep], ulps: float) -> None:
        self.title, self.sweeps, self.ulps, self.methods = title, sweeps, ulps, METHODS[made.kind]
        self.note = next((sweep.untraced for sweep in sweeps if sweep.untraced), "")
        stated = [("formula", m) for m in self.methods[1:] if m in sweeps[0].parts]
        keys = [*stated, *(("code", m) for m in self.methods)]
        self.proofs = {key: Proof(*key, TESTED if self.note and key[0] == "code" else PROVED) for key in keys}
        self.kinks: set[float] = set()
        self.floats = 0

    def certificate(self) -> Certificate:
        """Return the certificate."""
        steps: list[str] = []
        for sweep in self.sweeps:
            segments = _segments(sweep, self.methods[0])
            edges = {x for p, q in zip(segments, segments[1:], strict=False) for x in (p.b, q.a)}
            kinks = _kinks(sorted(edges))
            self.kinks |= set(kinks)
            for segment in segments * (sweep is self.sweeps[0]):
                if segment.a != segment.b or segment.a not in edges:
                    where = _interval(segment.a, segment.b, kinks)
                    steps += [f"{where}: {SIGNS[m]} = {_listed(d)}" for m, d in zip(self.methods, segment.derived, strict=True)]
            for region in sweep.regions.values():
                self._region(sweep, region, edges, kinks)
        low, high = min(s.setting.low for s in self.sweeps), max(s.setting.high for s in self.sweeps)
        pieces = sum(len(region.pieces) for sweep in self.sweeps for region in sweep.regions.values())
        note = f"the code was only tested, for it does not run on intervals: {self.note}" if self.note else ""
        kinks = tuple(sorted(self.kinks))
        return Certificate(self.title, tuple(self.proofs.values()), tuple(steps), kinks, (low, high), pieces, self.floats, note)

    def _region(self, sweep: Sweep, region: Region, edges: set[float], kinks: list[float]) -> None:
        pieces = [p for p in region.pieces if p.a != p.b or p.a not in edges]
        if not pieces:
            return
        derived, symbols = _derived(sweep, region, self.methods[0]), sweep.symbols()
        middles = [(p.a + p.b) / 2 for p in pieces]
        middles = [x for x in middles if abs(x) > 1e-9] or middles  # nearer to 0 even 120 digits may cancel
        points = [sweep.numbers(x) for x in middles[:: max(1, len(middles) // 5)]]
        where = _interval(pieces[0].a, pieces[-1].b, kinks) + f", {sweep.setting}" * bool(str(sweep.setting))
        offset = 0
        for order, (name, right) in enumerate(zip(self.methods, derived, strict=True)):
            if order and name in region.stated:
                verdicts = [compared(a, b, symbols, points) for a, b in zip(region.stated[name], right, strict=True)]
                self._judge("formula", name, verdicts, (region.stated[name], right), where)
            if region.code is not None:
                code = region.code[order]
                verdicts = [compared(a, b, symbols, points) for a, b in zip(code, right, strict=True)]
                self._judge("code", name, verdicts, (code, right), where)
                pairs = zip(verdicts, code, right, strict=True)
                gaps = [on_pieces(a - b, symbols) if verdict == UNKNOWN else None for verdict, a, b in pairs]
                self._rounding(name, sweep, pieces, gaps, offset)
            offset += len(right)
        self._floats(sweep, pieces, derived)

    def _judge(self, of: str, name: str, verdicts: list[str], pair: tuple[list[Any], list[Any]], where: str) -> None:
        known = self.proofs[of, name]
        if OTHER in verdicts and known.verdict != REFUTED:
            k = verdicts.index(OTHER)
            self.proofs[of, name] = Proof(of, name, REFUTED, 0.0, where, written(pair[0][k]), written(pair[1][k]))
        elif of == "formula" and known.ok and set(verdicts) != {SAME}:
            self.proofs[of, name] = Proof(of, name, TESTED, 0.0, where)

    def _rounding(self, name: str, sweep: Sweep, pieces: list[Piece], gaps: list[Any], offset: int) -> None:
        """Find the largest rounding error, with the bound of a difference that is not known to be 0."""
        for piece in pieces:
            for k, gap in enumerate(gaps, offset):
                error = piece.error[k] + (sweep.bound(gap, piece) if gap is not None else 0.0)
                self._worse(name, float(error / max(1.0, piece.size[k])) / ULP, f"near {piece.a:.6g}")

    def _worse(self, name: str, error: float, where: str) -> None:
        known = self.proofs["code", name]
        if known.verdict != REFUTED and not error <= known.error:
            verdict = known.verdict if error <= self.ulps else LOSSY
            self.proofs["code", name] = Proof("code", name, verdict, error, where)

    def _floats(self, sweep: Sweep, pieces: list[Piece], derived: list[list[Any]]) -> None:
        """Compare the code, run on floats as they are, with 40 digits."""
        import mpmath

        functions = [[exactly(each, sweep.symbols()) for each in entries] for entries in derived]
        some = pieces[:: max(1, len(pieces) // 40)]
        for x in sorted({x for p in some for x in (p.a, (p.a + p.b) / 2, p.b)} - self.kinks):
            numbers = sweep.numbers(x)
            self.floats += 1
            with mpmath.workdps(40):
                exact = [[f(*map(mpmath.mpf, numbers)) for f in entries] for entries in functions]
            for name, entries, wanted in zip(self.methods, sweep.at(numbers), exact, strict=True):
                errors = [float(abs(got - want) / max(1, abs(want))) / ULP for got, want in zip(entries, wanted, strict=True)]
                k = int(np.argmax(errors))  # the first NaN, if there is one
                if not errors[k] <= self.ulps and self.proofs["code", name].verdict != REFUTED:
                    texts = f"{entries[k]:.17g}", mpmath.nstr(wanted[k], 17)
                    self.proofs["code", name] = Proof("code", name, REFUTED, errors[k], f"at {x!r}", *texts)
                elif self.note:
                    self._worse(name, errors[k], f"near {x:.6g}")


@dataclass(frozen=True)
class Segment:
    """Floats on which the function is one expression, with its derivatives."""

    a: float
    b: float
    derived: list[list[Any]]


def _segments(sweep: Sweep, name: str) -> list[Segment]:
    regions = sorted(((p, r) for r in sweep.regions.values() for p in r.pieces), key=lambda each: each[0].a)
    found = []
    for _, each in itertools.groupby(regions, lambda each: each[1].stated[name]):
        (first, region), *rest = each
        found.append(Segment(first.a, rest[-1][0].b if rest else first.b, _derived(sweep, region, name)))
    return found


def _derived(sweep: Sweep, region: Region, name: str) -> list[list[Any]]:
    """Return the function, its first and its second derivatives."""
    import sympy as sp

    value, outputs = sp.sympify(region.stated[name][0]), sweep.symbols()[: sweep.subject.count]
    first = [sp.diff(value, s) for s in outputs]
    return [[value], first, [sp.diff(each, s) for each in first for s in outputs]]


def _kinks(edges: list[float]) -> list[float]:
    """Return a number for each group of neighbours."""
    groups: list[list[float]] = []
    for x in edges:
        if groups and x - groups[-1][-1] <= 16 * ULP * max(abs(x), ULP):
            groups[-1].append(x)
        else:
            groups.append([x])
    return [min(group, key=lambda x: len(repr(x))) for group in groups]


def _interval(a: float, b: float, kinks: list[float]) -> str:
    """Write an interval, open at kinks."""
    near = [next((k for k in kinks if abs(x - k) <= 16 * ULP * max(abs(k), ULP)), None) for x in (a, b)]
    start = f"[{a:.6g}" if near[0] is None else f"({near[0]:.6g}"
    return f"{start}, {b:.6g}]" if near[1] is None else f"{start}, {near[1]:.6g})"


def _listed(each: list[Any]) -> str:
    texts = list(map(written, each))
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
