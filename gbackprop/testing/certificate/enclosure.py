"""Numbers that run through code in place of floats: bounds of the exact value, of its rounding error, and its formula.

A method that is called with an array of them computes, for all floats of an interval at once, what it would compute for
each: comparisons are decided for the whole interval, or stop the run, so that there is one path through the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from scipy import special

UNIT = 2.0**-53
"""The largest relative error of +, −, ×, / and √ in float64."""

LIBRARY = 8 * UNIT
"""The largest relative error that is assumed of exp, log, tanh, erf and their like: 4 units in the last place."""

TINY = 5e-324
ROUND_UP = 1 + 2.0**-40
"""Covers the rounding of the error bounds themselves."""


class UndecidedError(Exception):
    """A comparison comes out one way at some numbers of an interval and another way at others."""


class Enclosed:
    """A number in [lo, hi], known to the code within err; its formula, if that is wanted, and the path's decisions."""

    __slots__ = ("err", "expr", "hi", "lo", "path")

    def __init__(self, lo: float, hi: float, err: float, expr: Any, path: list[bool]) -> None:
        if not (lo <= hi and err < math.inf):  # NaN, or nothing is known
            lo, hi, err = -math.inf, math.inf, math.inf
        self.lo, self.hi, self.err, self.expr, self.path = lo, hi, err * ROUND_UP, expr, path

    def of(self, value: Any) -> Enclosed:
        """Return a constant as such a number, on this one's path."""
        if isinstance(value, Enclosed):
            return value
        (number, err), value = recognized(value), float(value)
        low, high = (math.nextafter(value - err, -math.inf), math.nextafter(value + err, math.inf)) if err else (value, value)
        return Enclosed(low, high, err, None if self.expr is None else number, self.path)

    def _new(self, ends: list[float], err: float, expr: Any, unit: float = UNIT) -> Enclosed:
        """Return a result: its bounds outward of `ends`, with a rounding error of its own."""
        margin = 2 * unit * _size(ends) + TINY
        return Enclosed(min(ends) - margin, max(ends) + margin, err + unit * (_size(ends) + err) + TINY, expr, self.path)

    @property
    def real(self) -> Enclosed:
        """The number itself."""
        return self

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(abs(self.lo), abs(self.hi))

    @property
    def least(self) -> float:
        """The smallest absolute value."""
        return 0.0 if self.lo <= 0 <= self.hi else min(abs(self.lo), abs(self.hi))

    def _expr(self, other: Enclosed, join: Callable[[Any, Any], Any]) -> Any:
        return None if self.expr is None or other.expr is None else join(self.expr, other.expr)

    # ----------------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Any) -> Enclosed:
        b = self.of(other)
        expr, ends = self._expr(b, lambda p, q: p + q), [self.lo + b.lo, self.hi + b.hi]
        if b.lo == b.hi == b.err == 0:
            return Enclosed(self.lo, self.hi, self.err, expr, self.path)
        return self._new(ends, self.err + b.err, expr)

    def __neg__(self) -> Enclosed:
        return Enclosed(-self.hi, -self.lo, self.err, None if self.expr is None else -self.expr, self.path)

    def __sub__(self, other: Any) -> Any:
        return 0 if other is self else self + -self.of(other)

    def __mul__(self, other: Any) -> Enclosed:
        b = self.of(other)
        if other is self:
            return self**2
        expr, factor = self._expr(b, lambda p, q: p * q), b.lo if b.lo == b.hi and not b.err else 0.5001
        ends = [p * q for p in (self.lo, self.hi) for q in (b.lo, b.hi)]
        if abs(math.frexp(factor)[0]) in (0.5, 0.0):  # ±2ᵏ or 0: nothing is rounded, but below the normal numbers
            return Enclosed(min(ends), max(ends), abs(factor) * self.err + TINY * (abs(factor) < 1), expr, self.path)
        return self._new(ends, self.size * b.err + b.size * self.err + self.err * b.err, expr)

    def __truediv__(self, other: Any) -> Enclosed:
        b = self.of(other)
        expr, gap = self._expr(b, lambda p, q: p / q), b.least - b.err
        if not gap > 0:
            return Enclosed(-math.inf, math.inf, math.inf, expr, self.path)
        ends = [p / q for p in (self.lo, self.hi) for q in (b.lo, b.hi)]
        return self._new(ends, (self.err + _size(ends) * b.err) / gap, expr)

    def __pow__(self, power: Any) -> Enclosed:
        n = power.lo if isinstance(power, Enclosed) else float(power)
        if n < 0:
            return 1 / self**-n
        if n in (0.5, 1):
            return self if n == 1 else self.sqrt()
        if n != int(n) and not self.lo > self.err:
            return Enclosed(-math.inf, math.inf, math.inf, None, self.path)
        expr = None if self.expr is None else self.expr ** recognized(n)[0]
        ends = [_safe(math.pow, end, n) for end in (self.lo, self.hi)]
        ends += [0.0] if self.lo <= 0 <= self.hi else []
        slope = n * max(_safe(math.pow, end, n - 1) for end in (self.size + self.err, self.least or 1.0))
        return self._new(ends, slope * self.err, expr, UNIT if n == 2 else LIBRARY)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Any:
        return self.of(other) - self

    def __rtruediv__(self, other: Any) -> Enclosed:
        return self.of(other) / self

    def __rpow__(self, base: Any) -> Enclosed:
        return (self * math.log(base)).exp() if base != math.e else self.exp()

    # ---------------------------------------------------------------------------------------------------- comparisons

    def _decide(self, other: Any, strict: bool) -> bool:
        """Decide self < other, or ≤, for what the code has in its hands."""
        b = self.of(other)
        if b is self:
            return not strict
        low, high, start, end = *self._computed(), *b._computed()
        yes, no = (high < start, low >= end) if strict else (high <= start, low > end)
        if not (yes or no):
            raise UndecidedError
        self.path.append(yes)
        return yes

    def _computed(self) -> tuple[float, float]:
        if not self.err:
            return self.lo, self.hi
        return math.nextafter(self.lo - self.err, -math.inf), math.nextafter(self.hi + self.err, math.inf)

    def __lt__(self, other: Any) -> bool:
        return self._decide(other, True)

    def __le__(self, other: Any) -> bool:
        return self._decide(other, False)

    def __gt__(self, other: Any) -> bool:
        return not self._decide(other, False)

    def __ge__(self, other: Any) -> bool:
        return not self._decide(other, True)

    def __eq__(self, other: Any) -> bool:
        return not self < other and not self > other

    def __bool__(self) -> bool:
        return self != 0

    __hash__ = None  # type: ignore[assignment]

    def __abs__(self) -> Enclosed:
        return -self if self < 0 else self

    def sign(self) -> int:
        """−1, 0 or 1."""
        return -1 if self < 0 else int(self > 0)

    def cosh(self) -> Enclosed:
        """(eˣ + e⁻ˣ) / 2."""
        return (self.exp() + (-self).exp()) / 2

    def __getattr__(self, name: str) -> Callable[[], Enclosed]:
        """Return a monotone function, which NumPy calls by its own name."""
        if name not in MONOTONE:
            raise AttributeError(f"{name} of numbers on an interval")
        return lambda: self._monotone(name)

    def _monotone(self, name: str) -> Enclosed:
        function, slope = MONOTONE[name]
        low, high = self._computed()
        if name in POSITIVE and not low > POSITIVE[name]:
            return Enclosed(-math.inf, math.inf, math.inf, None, self.path)
        ends = [_safe(function, end) for end in (self.lo, self.hi)]
        error = _safe(slope, low, high) * self.err if self.err else 0.0
        expr = None if self.expr is None else symbolic(name)(self.expr)
        return self._new(ends, error, expr, UNIT if name == "sqrt" else LIBRARY)


def _near(low: float, high: float) -> float:
    """Return the number of an interval that is nearest to 0."""
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high))


MONOTONE: dict[str, tuple[Callable[[float], float], Callable[[float, float], float]]] = {
    "exp": (math.exp, lambda low, high: math.exp(high)),
    "expm1": (math.expm1, lambda low, high: math.exp(high)),
    "log": (math.log, lambda low, high: 1 / low),
    "log1p": (math.log1p, lambda low, high: 1 / (1 + low)),
    "sqrt": (math.sqrt, lambda low, high: 0.5 / math.sqrt(low)),
    "tanh": (math.tanh, lambda low, high: math.cosh(_near(low, high)) ** -2),
    "sinh": (math.sinh, lambda low, high: math.cosh(max(-low, high))),
    "arctan": (math.atan, lambda low, high: 1 / (1 + _near(low, high) ** 2)),
    "erf": (math.erf, lambda low, high: 1.2 * math.exp(-(_near(low, high) ** 2))),
    "erfc": (math.erfc, lambda low, high: 1.2 * math.exp(-(_near(low, high) ** 2))),
    "expit": (lambda x: float(special.expit(x)), lambda low, high: math.exp(-_near(low, high))),
    "ndtr": (lambda x: math.erfc(-x * 0.5**0.5) / 2, lambda low, high: 0.4 * math.exp(-(_near(low, high) ** 2) / 2)),
}
"""Monotone functions by NumPy's and SciPy's names, each with a bound of the size of its slope on an interval."""

POSITIVE = {"log": 0.0, "log1p": -1.0, "sqrt": 0.0}
"""Functions that are defined only above a number."""


class Pieces(np.ndarray):
    """An array of such numbers: what NumPy has no loop for is done number by number."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, Pieces) else each for each in inputs]
        if method == "__call__" and ufunc.__name__ in {*MONOTONE, "cosh", "sign"}:
            found = np.frompyfunc(lambda each: _called(ufunc, each), 1, 1)(*plain)
        else:
            found = getattr(ufunc, method)(*plain, **options)
        if out is None:
            return _pieces(found)
        out[0].view(np.ndarray)[...] = found
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _pieces(super().__array_function__(function, types, args, kwargs))


def _called(ufunc: Any, value: Any) -> Any:
    return getattr(value, ufunc.__name__)() if isinstance(value, Enclosed) else float(ufunc(float(value)))


def _pieces(found: Any) -> Any:
    return found.view(Pieces) if isinstance(found, np.ndarray) and found.dtype == object else found


def _size(ends: list[float]) -> float:
    return max(map(abs, ends))


def _safe(function: Callable[..., float], *arguments: float) -> float:
    try:
        return function(*arguments)
    except OverflowError:
        return math.inf if arguments[0] > 0 else -math.inf
    except (ValueError, ZeroDivisionError):
        return math.nan


@cache
def symbolic(name: str) -> Callable[[Any], Any]:
    """Return SymPy's form of a monotone function; σ and Φ keep their names when they are differentiated."""
    import sympy as sp

    def slope(self: Any, argindex: int = 1) -> Any:
        x = self.args[0]
        return self * (1 - self) if name == "expit" else sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)

    def plain(self: Any, x: Any, **hints: Any) -> Any:
        return 1 / (1 + sp.exp(-x)) if name == "expit" else sp.erfc(-x / sp.sqrt(2)) / 2

    if name in ("expit", "ndtr"):
        body = {"fdiff": slope, "_eval_rewrite_as_exp": plain, "is_extended_real": True}
        return type("σ" if name == "expit" else "Φ", (sp.Function,), body)
    known = {"expm1": lambda x: sp.exp(x) - 1, "log1p": lambda x: sp.log(1 + x), "arctan": sp.atan}
    return known.get(name) or getattr(sp, name)


@cache
def recognized(value: Any) -> tuple[Any, float]:
    """Return the number that a float of the code stands for, and how far the float is from it.

    That is a decimal number of few digits, a fraction, √q πᵏ, ½ log(q πᵏ) for a fraction q, or the float itself.
    """
    import sympy as sp

    value = float(value)
    if not math.isfinite(value):
        return sp.nan, 0.0

    def simple(number: float) -> Any:
        return sp.Rational(Fraction(number).limit_denominator(1000)) if abs(number) < 1e6 else sp.nan

    decimal = sp.Rational(repr(value))
    if len(Decimal(repr(value)).normalize().as_tuple().digits) <= 10:
        candidates = [decimal]
    else:
        roots = [sp.sign(value) * sp.sqrt(simple(value**2 / math.pi**k)) * sp.pi ** sp.Rational(k, 2) for k in (-2, -1, 0, 1, 2)]
        logarithms = [sp.log(q * sp.pi**k) / 2 for k in (0, 1) if abs(value) < 6 and (q := simple(math.exp(2 * value) / math.pi**k)) > 0]
        candidates = [simple(value), *roots, *logarithms, decimal]
    for number in candidates:
        error = abs(float(sp.N(number - sp.Rational(Fraction(value)), 30)))
        if error <= 4 * UNIT * abs(value):
            return number, error
    return sp.Rational(Fraction(value)), 0.0
