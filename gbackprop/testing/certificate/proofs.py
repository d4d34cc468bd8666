"""Proofs about a layer or loss: `Proof` and `Certificate`."""

from __future__ import annotations

from dataclasses import dataclass

from gbackprop.testing.report import FAILED, OK, Report, Row

PROVED, OPEN, REFUTED = "proved", "not proved", "refuted"

SIGNS = {"forward": "y", "mjp": "φ'(x)", "residual": "φ''(x)", "values": "ℓ", "gradients": "∇ℓ", "hessian": "∇²ℓ"}


@dataclass(frozen=True)
class Proof:
    """One claim of a certificate.

    Attributes
    ----------
    of : {"formula", "code"}
    method : str
        "forward", "mjp" or "residual", or "values", "gradients" or "hessian".
    verdict : {"proved", "not proved", "refuted"}
    error : float
        Of the code: a bound of its error, in units of 2⁻⁵² max(1, |value|).
    where : str
        The interval and the float at which it is refuted, or where its error is largest.
    why : str
        Why it is not proved.
    given, right : str
        If it is refuted: what is stated or computed there, and what is right.
    """

    of: str
    method: str
    verdict: str
    error: float = 0.0
    where: str = ""
    why: str = ""
    given: str = ""
    right: str = ""

    def __str__(self) -> str:
        text = f"the {self.of} of {self.method} is {SIGNS[self.method]}: {self.verdict}"
        if self.verdict == REFUTED:
            says = "the formula says" if self.of == "formula" else "the code computes"
            return f"{text} on {self.where}:\n    {says} {self.given}\n    right is {self.right}"
        if self.why:
            return f"{text}: {self.why}"
        return text if self.of == "formula" else f"{text}, error at most {self.error:.1f} ulp {self.where}".rstrip()


@dataclass(frozen=True)
class Certificate:
    """The proofs about a layer or loss.

    Attributes
    ----------
    subject : str
    proofs : tuple of Proof
    derivation : tuple of str
        The steps: the function on each interval on which it is one expression, and its derivatives.
    kinks : tuple of float
        Numbers at which the function goes from one expression to another, or a comparison of the code may go either
        way: derivatives are not judged there.
    interval : tuple of float
        The least and the largest number.
    pieces, floats : int
        The number of intervals that the code ran on, and of floats at which it was compared with 40 digits beside that.
    """

    subject: str
    proofs: tuple[Proof, ...]
    derivation: tuple[str, ...]
    kinks: tuple[float, ...]
    interval: tuple[float, float]
    pieces: int
    floats: int

    @property
    def ok(self) -> bool:
        """True if every claim is proved."""
        return all(proof.verdict == PROVED for proof in self.proofs)

    @property
    def summary(self) -> str:
        """Words for which of formulas and code is wrong; the formula of the function is the definition."""
        found, other = [], {"code": "formula", "formula": "code"}
        for method in SIGNS:
            wrong = [each.of for each in self.proofs if (each.method, each.verdict) == (method, REFUTED)]
            one = [f"{method}: the {of} is wrong, the {other[of]} is right" for of in wrong]
            found += one if len(one) < 2 else [f"{method}: formula and code are wrong"]
        return "; ".join(found) or ("certified" if self.ok else "not certified")

    def report(self) -> Report:
        """Return the claims as rows of a report, those that are not proved as failed."""
        where, rows = f"on [{self.interval[0]:g}, {self.interval[1]:g}]", []
        for each in self.proofs:
            verdict, problem = (OK, "") if each.verdict == PROVED else (FAILED, str(each))
            oracle = f"the derivative of the stated function, error at most {each.error:.1f} ulp"
            claim = f"{each.of} is {SIGNS[each.method]} {where}"
            rows.append(Row(claim, each.method, oracle, verdict=verdict, problem=problem))
        return Report(self.subject, rows)

    def __str__(self) -> str:
        low, high = self.interval
        kinks = f"kinks, not judged: {', '.join(f'{kink:g}' for kink in self.kinks)}" if self.kinks else "no kinks"
        steps = [*self.derivation, *map(str, self.proofs), f"{kinks}; {self.pieces} intervals, {self.floats} floats"]
        return "\n  ".join([f"{self.subject} on [{low:g}, {high:g}]: {self.summary}", *steps])
