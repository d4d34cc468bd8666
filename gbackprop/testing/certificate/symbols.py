"""What SymPy is asked: what a float stands for, whether formulas are the same, and how a formula is written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

SAME, OTHER, UNKNOWN = "same", "other", "unknown"

DIGITS = 1e-12
"""The relative difference from which on two formulas differ; less may come from a constant that was rounded."""


@cache
def symbolic(name: str) -> Callable[[Any], Any]:
    """Return SymPy's form of a function; σ and Φ keep their names when they are differentiated."""
    import sympy as sp

    def slope(self: Any, argindex: int = 1) -> Any:
        return self * (1 - self) if name == "expit" else sp.exp(-(self.args[0] ** 2) / 2) / sp.sqrt(2 * sp.pi)

    def plain(self: Any, x: Any, **hints: Any) -> Any:
        return 1 / (1 + sp.exp(-x)) if name == "expit" else sp.erfc(-x / sp.sqrt(2)) / 2

    if name in ("expit", "ndtr"):
        body = {"fdiff": slope, "_eval_rewrite_as_exp": plain, "is_extended_real": True}
        return type("σ" if name == "expit" else "Φ", (sp.Function,), body)
    known = {"expm1": lambda x: sp.exp(x) - 1, "log1p": lambda x: sp.log(1 + x), "arctan": sp.atan}
    return known.get(name) or getattr(sp, name)


@cache
def recognized(value: float) -> tuple[Any, float]:
    """Return the number that a float of the code stands for, and how far the float is from it.

    That is a decimal number of few digits, a fraction, √q πᵏ, ½ log(q πᵏ) for a fraction q, or the float itself.
    """
    import sympy as sp

    if not math.isfinite(value):
        return sp.nan, 0.0

    def simple(number: float) -> Any:
        return sp.Rational(Fraction(number).limit_denominator(1000))

    decimal, exact = sp.Rational(repr(value)), sp.Rational(Fraction(value))
    found = [decimal]
    if len(Decimal(repr(value)).normalize().as_tuple().digits) > 10 and abs(value) < 1e6:
        squares = ((simple(value**2 / math.pi ** (2 * k)), k) for k in (-1, sp.Rational(-1, 2), 0, sp.Rational(1, 2), 1))
        found = [simple(value), *(sp.sign(value) * sp.sqrt(q) * sp.pi**k for q, k in squares), decimal]
        if abs(value) < 6:
            powers = ((simple(math.exp(2 * value) / math.pi**k), k) for k in (0, 1))
            found[-1:-1] = [sp.log(q * sp.pi**k) / 2 for q, k in powers if q > 0]
    for number in found:
        error = abs(float(sp.N(number - exact, 30)))
        if error <= 2.0**-51 * abs(value):
            return number, error
    return exact, 0.0


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

    def logarithm(argument: Any) -> Any:  # of a fraction, as a difference: log(1 + e⁻ˣ) is log(1 + eˣ) − x
        over, under = sp.fraction(sp.cancel(sp.together(argument)))
        return sp.expand_log(sp.log(over), force=True) - sp.expand_log(sp.log(under), force=True)

    plain = difference.rewrite(sp.exp).replace(sp.erfc, lambda x: 1 - sp.erf(x)).replace(sp.log, logarithm)
    return sp.cancel(sp.together(sp.expand(plain, mul=False, multinomial=False))) == 0


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

    expr = sp.sympify(expr)
    for x in expr.free_symbols:
        expr = expr.subs(1 / (1 + sp.exp(-x)), symbolic("expit")(x))
    text = min((str(expr), str(sp.factor(expr))), key=len)
    text = re.sub(r"\*\*(\d)(?![\d.])", lambda m: "⁰¹²³⁴⁵⁶⁷⁸⁹"[int(m[1])], text)
    text = re.sub(r"exp\((-?\w+)\)", r"e^\1", text).replace("exp(", "e^(").replace("sqrt", "√").replace("**", "^")
    return re.sub(r"(?<=[\w)²³⁴])\*(?=[\w(√])", " ", text).replace("*", "·").replace("-", "−").replace("pi", "π")
