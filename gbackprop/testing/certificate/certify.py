"""Certificates of elementwise layers and of losses: `certify`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Layer
from gbackprop.losses.base import Loss

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
    """What is proved of a layer or loss.

    Attributes
    ----------
    subject : str
    proofs : tuple of Proof
    derivation : tuple of str
        The steps: the function on each interval on which it is one expression, and its derivatives.
    kinks : tuple of float
        Numbers at which the function goes from one expression to another, or a comparison of the code may go either way:
        derivatives are not judged there.
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
        """Whether all is proved, or which of formulas and code is wrong; the formula of the function is the definition."""
        found = []
        for method in SIGNS:
            wrong = {proof.of for proof in self.proofs if (proof.method, proof.verdict) == (method, REFUTED)}
            right = "the code is wrong, the formula is right" if wrong == {"code"} else "the formula is wrong, the code is right"
            found += [f"{method}: {right if len(wrong) == 1 else 'formula and code are wrong'}"] * bool(wrong)
        return "; ".join(found) or ("certified" if self.ok else "not certified")

    def __str__(self) -> str:
        low, high = self.interval
        kinks = f"kinks, not judged: {', '.join(f'{kink:g}' for kink in self.kinks)}" if self.kinks else "no kinks"
        steps = [*self.derivation, *map(str, self.proofs), f"{kinks}; {self.pieces} intervals, {self.floats} floats"]
        return "\n  ".join([f"{self.subject} on [{low:g}, {high:g}]: {self.summary}", *steps])


def certify(subject: Layer | Loss, low: float = -50.0, high: float = 50.0, *, ulps: float = 128.0) -> Certificate:
    """Derive what an elementwise layer or a loss states, and compare formulas and code on all floats of an interval.

    Parameters
    ----------
    subject : Layer or Loss
        It states its function and derivatives in `formulas`.
    low, high : float
        The ends; a loss is certified where it is defined between them.
    ulps : float
        The error allowed of the code, in units of 2⁻⁵² max(1, |value|).

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
        from gbackprop.testing.certificate.judge import judged
        from gbackprop.testing.certificate.subjects import certifiable
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"low, high: expected two finite numbers in order, got {low} and {high}")
    if not ulps > 0:
        raise ValueError(f"ulps: expected a number above 0, got {ulps}")
    return judged(certifiable(subject), repr(subject), (low, high), ulps)
