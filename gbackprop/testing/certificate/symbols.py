"""SymPy's part: the number that a float stands for, the difference of two formulas, and how a formula is written."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import sympy as sp


class Logistic(sp.Function):
    """σ, which keeps its name when it is differentiated."""

    def fdiff(self, argindex: int = 1) -> Any:
        return self * (1 - self)

    def _eval_rewrite_as_exp(self, x: Any, **hints: Any) -> Any:
        return 1 / (1 + sp.exp(-x))


class Gaussian(sp.Function):
    """Φ, likewise."""

    def fdiff(self, argindex: int = 1) -> Any:
        return sp.exp(-(self.args[0] ** 2) / 2) / sp.sqrt(2 * sp.pi)

    def _eval_rewrite_as_exp(self, x: Any, **hints: Any) -> Any:
        return (1 + sp.erf(x / sp.sqrt(2))) / 2


def large(expr: Any) -> bool:
    """Return whether a formula has such as e^(10⁶ x): as a power of eˣ in polynomials that takes for ever."""
    return any(abs(q.p) > 10**5 for each in expr.atoms(sp.exp) for q in each.args[0].atoms(sp.Rational))


@cache
def recognized(value: float) -> tuple[Any, float]:
    """Return the number that a float stands for, and how far the float is from it.

    That is r √q πᵏ, for a decimal number or fraction r of few digits, or the float itself.
    """
    if not math.isfinite(value):
        return (sp.nan, math.inf) if math.isnan(value) else (sp.oo if value > 0 else -sp.oo, 0.0)

    def simple(value: float) -> tuple[Any, Any]:
        return sp.Rational(Fraction(value).limit_denominator(1000)), sp.Rational(f"{value:.11g}")

    found, exact = [sp.Rational(repr(value))], sp.Rational(Fraction(value))
    if len(Decimal(repr(value)).normalize().as_tuple().digits) > 10 and abs(value) < 1e6:
        roots = [(sp.sqrt(q) * sp.pi ** sp.Rational(k, 2)) for q in (1, 2, 3) for k in (0, -1, 1, -2, 2)]
        found = [r * root for root in roots for r in simple(value / float(root))] + found
    for number in found:
        error = abs(float(sp.N(number - exact, 30)))
        if error <= 2.0**-50 * abs(value):
            return number, error
    return exact, 0.0


@cache
def difference(a: Any, b: Any) -> Any:
    """Return a − b as a fraction of polynomials in eˣ, erf and logarithms: if it is 0, they are proved equal."""

    def logarithm(argument: Any) -> Any:  # of a fraction, as a difference: log(1 + e⁻ˣ) is log(1 + eˣ) − x
        over, under = sp.fraction(sp.cancel(sp.together(sp.expand_power_exp(argument))))
        return sp.expand_log(sp.log(over), force=True) - sp.expand_log(sp.log(under), force=True)

    plain = sp.sympify(a - b).rewrite(sp.exp).replace(sp.erfc, lambda x: 1 - sp.erf(x)).replace(sp.log, logarithm)
    return plain if large(plain) else sp.cancel(sp.together(sp.expand(plain, mul=False, multinomial=False)))


def written(expr: Any) -> str:
    """Return a formula in the notation of the docs."""
    expr = sp.sympify(expr)
    for x in expr.free_symbols:
        expr = expr.subs(1 / (1 + sp.exp(-x)), Logistic(x))
    forms = [expr, sp.factor(expr)] if sp.count_ops(expr) < 40 and not large(expr) else [expr]
    text = min(map(str, forms), key=len).replace("Logistic", "σ").replace("Gaussian", "Φ")
    text = re.sub(r"\*\*(\d)(?![\d.])", lambda m: "⁰¹²³⁴⁵⁶⁷⁸⁹"[int(m[1])], text)
    text = re.sub(r"exp\((-?\w+)\)", r"e^\1", text).replace("exp(", "e^(").replace("sqrt", "√").replace("**", "^")
    return re.sub(r"(?<=[\w)²³⁴])\*(?=[\w(√])", " ", text).replace("*", "·").replace("-", "−").replace("pi", "π")
