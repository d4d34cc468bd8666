"""What SymPy is asked: whether two formulas are the same, what a difference is at most, and how a formula is written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gbackprop.testing.certificate.enclosure import MONOTONE, Enclosed

SAME, OTHER, UNKNOWN = "same", "other", "unknown"

DIGITS = 1e-12
"""The relative difference from which on two formulas differ; less may come from a constant that was rounded."""


def compared(a: Any, b: Any, symbols: Sequence[Any], points: Sequence[Sequence[float]]) -> str:
    """Return whether two formulas are the same function, others at one of the points, or neither is known."""
    import mpmath

    if a == b:
        return SAME
    first, second = exactly(a, symbols), exactly(b, symbols)
    with mpmath.workdps(120):
        for point in points:
            left, right = (f(*map(mpmath.mpf, point)) for f in (first, second))
            if not abs(left - right) <= DIGITS * abs(right) + 1e-300:  # NaN differs, too
                return OTHER
    return SAME if is_zero(a - b) else UNKNOWN


@cache
def is_zero(difference: Any) -> bool:
    """Return whether a formula is proved to be 0: as a fraction of polynomials in eˣ, erf and logarithms."""
    import sympy as sp

    plain = difference.rewrite(sp.exp).replace(sp.erfc, lambda x: 1 - sp.erf(x)).replace(sp.log, _logarithm)
    return sp.cancel(sp.together(sp.expand(plain, mul=False, multinomial=False))) == 0


def _logarithm(argument: Any) -> Any:
    """Return log of a fraction as a difference: log(1 + e⁻ˣ) is log(1 + eˣ) − x."""
    import sympy as sp

    over, under = sp.fraction(sp.cancel(sp.together(argument)))
    return sp.expand_log(sp.log(over), force=True) - sp.expand_log(sp.log(under), force=True)


def on_pieces(expr: Any, symbols: Sequence[Any]) -> Callable[..., Any]:
    """Return a formula as a function of enclosed numbers."""
    import sympy as sp

    def call(name: str) -> Callable[[Any], Any]:
        return lambda value: getattr(value, name)() if isinstance(value, Enclosed) else MONOTONE[name][0](float(value))

    named = {{"expit": "σ", "ndtr": "Φ"}.get(name, name): call(name) for name in MONOTONE}
    return sp.lambdify(symbols, sp.factor_terms(expr), modules=[named, {"pi": math.pi}, "math"])


@cache
def exactly(expr: Any, symbols: Sequence[Any]) -> Callable[..., Any]:
    """Return a formula as a function of mpmath's numbers."""
    import mpmath
    import sympy as sp

    own = {"σ": lambda x: 1 / (1 + mpmath.exp(-x)), "Φ": mpmath.ncdf}
    return sp.lambdify(symbols, expr, modules=[own, "mpmath"])


def written(expr: Any) -> str:
    """Return a formula in the notation of the docs."""
    import sympy as sp

    factored = sp.factor(expr)
    text = str(min((expr, factored), key=lambda each: len(str(each))))
    text = re.sub(r"\*\*(\d)(?![\d.])", lambda m: "⁰¹²³⁴⁵⁶⁷⁸⁹"[int(m[1])], text)
    text = re.sub(r"exp\((-?\w+)\)", r"e^\1", text).replace("exp(", "e^(").replace("sqrt", "√").replace("**", "^")
    return re.sub(r"(?<=[\w)²³⁴])\*(?=[\w(√])", " ", text).replace("*", "·").replace("-", "−").replace("pi", "π")
