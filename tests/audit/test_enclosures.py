"""Numbers on an interval: exact values are in it, errors bound those of floats and are no larger than was counted."""

import re
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy as sp
from scipy import special

from gbackprop.testing.certificate.enclosure import IV, TINY, UNIT, Enclosed, UndecidedError, array_of

MP = mpmath.MPContext()
MP.prec, X = 200, sp.Symbol("x", real=True)
NAMES = ("exp", "log", "sqrt", "tanh", "expm1", "log1p", "sinh", "cosh", "sign")
FLOATS = {name: getattr(np, name) for name in (*NAMES, "arctan", "abs")} | {"c": 0.1}
FLOATS |= {name: getattr(special, name) for name in ("erf", "erfc", "ndtr", "expit")}
EXACT = {name: getattr(MP, name) for name in (*NAMES, "erf", "erfc")} | {"c": MP.mpf(1) / 10, "abs": abs}
EXACT |= {"arctan": MP.atan, "ndtr": MP.ncdf, "expit": lambda x: 1 / (1 + MP.exp(-x))}
RULES = {f"{name}(x)": 8 for name in FLOATS if name not in ("c", "sign")} | {
    "sqrt(x)": 1, "cosh(x)": 10, "abs(x)": 0,
    "x + c": 1.037037, "c - x": 1.043478, "x - 2": 1, "x * 2": 0, "x * c": 1.5, "-x": 0, "x / 3": 1, "3 / x": 1,
    "x / c": 1.5, "x**2": 1, "x**3": 8, "x**-1": 1, "x**-2": 8, "x**0.5": 1, "x**1.5": 11.012438, "2**x": 8,
    "x * x": 1, "exp(-x * x)": 9.5625, "1 / (1 + exp(-x))": 3.781601, "x * tanh(log1p(exp(x)))": 12.626172,
    "sqrt(1 + (x - c)**2) / (x + 1)": 4.378902,
}  # fmt: skip
"""The relative error that is counted at 1.25, in units of a rounding: 2⁻⁵³; 8 is what a library's function has."""

FLOATS |= {"tan": np.tan, "sin": np.sin}

WIDENED = {
    "x + c": 0.25, "x * 2": 0.5, "x * (x + 1)": 0.9375, "x / (x + 1)": 0.25 * (1 + 1.25 / 2.25) / 2, "1 / x": 0.2,
    "x**0": 0, "x**1": 0.25, "x**2": 0.75, "x**3": 1.6875, "x**-1": 0.25, "x**-2": 0.5, "x**0.5": 0.125,
    "log(x)": 0.25, "sqrt(x)": 0.125, "exp(x)": 0.25 * np.exp(1.5), "tanh(x)": 0.25 / np.cosh(1) ** 2,
    "arctan(x)": 0.125, "erf(x)": 0.5 / np.pi**0.5 / np.e, "ndtr(x)": 0.25 / (2 * np.pi * np.e) ** 0.5,
    "tan(x)": 0.25 * (1 + np.tan(1.5) ** 2), "sin(x)": 0.25,
    "expit(x)": special.expit(1.5) * special.expit(-1) / 4, "sinh(x)": (np.exp(1.5) + np.exp(-1)) / 8,
}  # fmt: skip
"""The error of a rule where that of x = 1.25 is 0.25: by the largest slope between 1 and 1.5, bounded term by term."""


def enclosed(rule, low, high, error=0.0):
    """The result of a rule on all floats from low to high."""
    x = Enclosed(IV.mpf([low, high]), error, X, [])
    with np.errstate(all="ignore"):
        return np.ravel(eval(rule, FLOATS, {"x": array_of([x])}))[0]


def test_the_rounding_of_an_error_is_in_the_error():
    """That of a sum is no less than error + 2⁻⁵³ (x + y + error) in fractions, though it is computed in floats."""
    rng = np.random.default_rng(0)
    for x, y, error in rng.uniform(0.5, 2, (200, 3)).tolist():
        found = Enclosed(IV.mpf(x), 1e-9 * error, X, []) + Enclosed(IV.mpf(y), 0.0, X, [])
        at_most = Fraction(1e-9 * error)
        assert Fraction(found.err) >= at_most + Fraction(1, 2**53) * (Fraction(x) + Fraction(y) + at_most)


@pytest.mark.parametrize("rule", RULES)
def test_the_error_at_a_number_is_what_is_counted_and_the_formula_is_its(rule):
    found, exact = enclosed(rule, 1.25, 1.25), eval(rule, EXACT, {"x": MP.mpf(1.25)})
    assert found.err / UNIT / abs(float(exact)) == pytest.approx(RULES[rule], rel=1e-6)
    assert found.lo <= exact <= found.hi
    assert found.hi - found.lo <= 5e-16 * abs(exact)
    stated = found.expr.subs(X, sp.Rational(5, 4)).rewrite(sp.exp)
    assert float(sp.N(stated - sp.Float(str(exact), 60), 30)) == pytest.approx(0, abs=1e-45)


@pytest.mark.parametrize("ends", [(0.3, 2.0), (-3.1, -1.1), (40.0, 41.0), (1e-9, 1e-8), (1e-107, 1e-106)], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_exact_values_and_those_of_floats_are_within(rule, ends):
    found = enclosed(rule, *ends)
    if found.err == np.inf:
        assert re.search(r"log|sqrt\(x|\.5", rule)
        assert ends[0] < 0
        return
    values = []
    for x in np.linspace(*ends, 7).tolist():
        values.append(eval(rule, EXACT, {"x": MP.mpf(x)}))
        assert MP.mpf(found.lo) - TINY <= values[-1] <= MP.mpf(found.hi) + TINY  # the error has TINY more
        assert abs(float(eval(rule, FLOATS, {"x": x})) - values[-1]) <= found.err
    if len(re.findall(r"\bx\b", rule)) == 1 and rule != "cosh(x)":  # which is a sum
        np.testing.assert_allclose([found.lo, found.hi], [float(min(values)), float(max(values))], rtol=1e-14)


@pytest.mark.parametrize("rule", ["3 / x", "x**-1", "x**-2", "x**0.5", "x**1.5", "log(x)", "sqrt(x)", "log1p(x)"])
@pytest.mark.parametrize("low", [-1.0, -0.0])
def test_nothing_is_known_where_a_function_is_not_defined_or_has_no_slope(rule, low):
    found = enclosed(rule, low, 2.0)
    if (rule, low) != ("log1p(x)", 0.0):
        assert (found.lo, found.hi, found.err) == (-np.inf, np.inf, np.inf)


@pytest.mark.parametrize("rule", WIDENED)
def test_an_error_of_the_argument_grows_by_the_largest_slope(rule):
    assert enclosed(rule, 1.25, 1.25, 0.25).err == pytest.approx(WIDENED[rule], rel=1e-11)


def test_what_is_exact_in_floats_has_no_error():
    for rule in ("x + 2", "2 - x", "x / 3", "sqrt(x)", "x * 3", "c * x"):
        assert enclosed(rule, 0.0, 0.0).err == 0, rule
    assert [enclosed(rule, 1.25, 1.25).err for rule in ("x * 1", "x * -4", "x * 0", "x * 0.5")] == [0, 0, 0, TINY]
    assert [enclosed(rule, 1.25, 1.25).err for rule in ("x**1", "x**0")] == [0, 0]
    assert enclosed("x - x", 1.0, 2.0) == 0
    assert [enclosed(rule, 1.25, 1.25, 1.25).err for rule in ("1 / x", "x**-1", "log(x)")] == [np.inf] * 3


def test_a_comparison_is_decided_where_it_is_the_same_for_all():
    path = []
    x = Enclosed(IV.mpf([1, 2]), 0.0, None, path)
    assert [x < 3, x < 1, x > 0, x >= 1, x <= 2, x == 4, x < x] == [True, False, True, True, True, False, False]
    assert path == [True, False, True, False, False, True]
    for compare in (x.__lt__, x.__gt__, x.__eq__):
        with pytest.raises(UndecidedError):
            compare(1.5)
    assert [bool(x), bool(x * 0), (x**2).path[-1]] == [True, False, 2]
    with pytest.raises(UndecidedError):
        Enclosed(IV.mpf(2), 1e-15, None, path) < 2  # noqa: B015
    assert np.ravel(FLOATS["sign"](array_of([x, -x])))[[0, 1]].tolist() == [1, -1]
