"""Numbers that run through code in place of floats: bounds of the exact value, of its rounding error, and its formula.

A method that is called with an array of them computes for all floats of an interval at once what it would compute for
each. Comparisons come out the same for all of them, or stop the run: there is one path through the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from mpmath.ctx_iv import MPIntervalContext
from mpmath.libmp import to_float

from gbackprop.testing.certificate.symbols import SYMBOLIC, recognized

UNIT, TINY, INF = 2.0**-53, 5e-324, math.inf
"""The largest relative error of +, −, ×, / and √ in float64; the least number above 0; infinity."""

LIBRARY = 8 * UNIT
"""The largest relative error that is assumed of exp, log, tanh, erf and their like: 4 units in the last place."""

IV, MP = MPIntervalContext(), mpmath.MPContext()
IV.prec, MP.prec = 80, 120
WHOLE = IV.mpf([-INF, INF])
MARGIN = IV.mpf([1 - MP.mpf(2) ** -76, 1 + MP.mpf(2) ** -76])


class UndecidedError(Exception):
    """A comparison comes out one way at some numbers of an interval and another way at others."""


def ends(value: Any) -> tuple[float, float]:
    """Return the least and the largest number of an interval of mpmath."""
    low, high = value._mpi_
    return to_float(low, rnd="f"), to_float(high, rnd="c")


def near(low: float, high: float) -> float:
    """Return how near an interval is to 0."""
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high))


@cache
def constant(value: float) -> tuple[Any, float, Any]:
    """Return the number that a float stands for on an interval, how far the float is from it, and its formula."""
    number, err = recognized(value)
    return IV.mpf([math.nextafter(value - err, -INF), math.nextafter(value + err, INF)] if err else value), err, number


class Enclosed:
    """A number in an interval, which the code has within err; its formula, if wanted, and the decisions on its path."""

    __slots__ = ("err", "expr", "hi", "lo", "path", "value")

    def __init__(self, value: Any, err: float, expr: Any, path: list[Any]) -> None:
        self.lo, self.hi = ends(value)
        self.value, self.err, self.expr, self.path = value, err, expr, path
        if not (self.lo <= self.hi and err < INF):  # of NaN, too
            self.value, self.lo, self.hi, self.err = WHOLE, -INF, INF, INF

    def of(self, value: Any) -> Enclosed:
        """Return a constant as such a number, on this one's path."""
        if isinstance(value, Enclosed):
            return value
        interval, err, number = constant(float(value))
        return Enclosed(interval, err, None if self.expr is None else number, self.path)

    def _new(self, value: Any, err: float, expr: Any, unit: float = UNIT) -> Enclosed:
        """Return a result with a rounding error of its own; what underflows in floats is no more than TINY."""
        size = max(map(abs, ends(value)))
        return Enclosed(value, (err + unit * (size + err)) * (1 + 2.0**-40) + TINY, expr, self.path)

    def _joined(self, other: Enclosed, join: Callable[[Any, Any], Any]) -> Any:
        return None if self.expr is None or other.expr is None else join(self.expr, other.expr)

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(abs(self.lo), abs(self.hi))

    @property
    def real(self) -> Enclosed:
        """The number itself."""
        return self

    # ----------------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Any) -> Enclosed:
        b = self.of(other)
        expr = self._joined(b, lambda p, q: p + q)
        if b.lo == b.hi == b.err == 0:
            return Enclosed(self.value, self.err, expr, self.path)
        return self._new(self.value + b.value, self.err + b.err, expr)

    def __neg__(self) -> Enclosed:
        return Enclosed(-self.value, self.err, None if self.expr is None else -self.expr, self.path)

    def __sub__(self, other: Any) -> Any:
        return 0 if other is self else self + -self.of(other)

    def __mul__(self, other: Any) -> Enclosed:
        b = self.of(other)
        if b is self:
            return self**2
        expr, value = self._joined(b, lambda p, q: p * q), self.value * b.value
        for one, two in ((self, b), (b, self)):
            exact = two.lo == two.hi and not two.err and one.err < INF
            if exact and abs(math.frexp(two.lo)[0]) in (0.0, 0.5):  # 0 or ±2ᵏ
                return Enclosed(value, abs(two.lo) * one.err + TINY * (0 < abs(two.lo) < 1), expr, self.path)
        return self._new(value, self.size * b.err + b.size * self.err + self.err * b.err, expr)

    def __truediv__(self, other: Any) -> Enclosed:
        b = self.of(other)
        expr, gap = self._joined(b, lambda p, q: p / q), near(b.lo, b.hi) - b.err
        if gap > 0 and self.lo == self.hi == self.err == 0:
            return Enclosed(self.value, 0.0, expr, self.path)
        if not gap > 0:
            return Enclosed(WHOLE, INF, expr, self.path)
        value = self.value / b.value
        return self._new(value, (self.err + max(map(abs, ends(value))) * b.err) / gap, expr)

    def __pow__(self, power: Any) -> Enclosed:
        power = self.of(power)
        if power.lo != power.hi or power.err:
            return (self.log() * power).exp()
        n = power.lo
        self.path.append(n)
        if n in (0.5, 1):
            return self if n == 1 else self.sqrt()
        if n < 0:
            below = 1 / self**-n
            return below if n == -1 else below._new(below.value, below.err, below.expr, LIBRARY)
        if n != int(n):
            return (self.log() * n).exp()
        expr = None if self.expr is None else self.expr ** int(n)
        slope = float(n * MP.mpf(self.size + self.err) ** (n - 1)) if n else 0.0
        return self._new(self.value ** int(n), slope * self.err, expr, UNIT if n == 2 else LIBRARY)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Any:
        return self.of(other) - self

    def __rtruediv__(self, other: Any) -> Enclosed:
        return self.of(other) / self

    def __rpow__(self, base: Any) -> Enclosed:
        return self.exp() if base == math.e else (self * self.of(base).log()).exp()

    # ---------------------------------------------------------------------------------------------------- comparisons

    def computed(self) -> tuple[float, float]:
        """Return the least and the largest number that the code may have."""
        if not self.err:
            return self.lo, self.hi
        return math.nextafter(self.lo - self.err, -INF), math.nextafter(self.hi + self.err, INF)

    def __lt__(self, other: Any) -> bool:
        (low, high), (start, end) = self.computed(), self.of(other).computed()
        if other is self or not (high < start or low >= end):
            if other is not self:
                raise UndecidedError
            return False
        self.path.append(high < start)
        return high < start

    def __gt__(self, other: Any) -> bool:
        return self.of(other) < self

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: Any) -> bool:
        return not self < other and not self > other

    def __bool__(self) -> bool:
        return self != 0

    __hash__ = None  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------------------ functions

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
        expr, (low, high) = None if self.expr is None else SYMBOLIC[name](self.expr), self.computed()
        if name == "sqrt" and low == high == self.err == 0:
            return Enclosed(self.value, 0.0, expr, self.path)
        if not low > ABOVE.get(name, -INF):
            return Enclosed(WHOLE, INF, expr, self.path)
        error = float(MONOTONE[name][1](MP.mpf(low), MP.mpf(high))) * self.err if self.err else 0.0
        return self._new(monotone(name, self.value), error, expr, UNIT if name == "sqrt" else LIBRARY)


def bell(scale: float, width: float) -> Callable[[Any, Any], Any]:
    """Return a bound of the slopes of erf and its like."""
    return lambda low, high: scale * MP.exp(-width * near(low, high) ** 2)


MONOTONE: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "exp": (MP.exp, lambda low, high: MP.exp(high)),
    "expm1": (MP.expm1, lambda low, high: MP.exp(high)),
    "log": (MP.log, lambda low, high: 1 / low),
    "log1p": (MP.log1p, lambda low, high: 1 / (1 + low)),
    "sqrt": (MP.sqrt, lambda low, high: 0.5 / MP.sqrt(low)),
    "tanh": (MP.tanh, lambda low, high: min(1, 4 * MP.exp(-2 * near(low, high)))),
    "sinh": (MP.sinh, lambda low, high: MP.cosh(max(-low, high))),
    "arctan": (MP.atan, lambda low, high: 1),
    "erf": (MP.erf, bell(1.2, 1.0)),
    "erfc": (MP.erfc, bell(1.2, 1.0)),
    "ndtr": (MP.ncdf, bell(0.4, 0.5)),
    "expit": (lambda x: 1 / (1 + MP.exp(-x)), lambda low, high: MP.exp(-near(low, high))),
}
"""Monotone functions by NumPy's and SciPy's names, each with a bound of the size of its slope on an interval."""

ABOVE = {"log": 0.0, "log1p": -1.0, "sqrt": 0.0}
"""The numbers above which alone some of them are defined, with a slope."""


def monotone(name: str, value: Any) -> Any:
    """Compute a monotone function of an interval, from its ends."""
    if name in ("exp", "log", "sqrt"):
        return getattr(IV, name)(value)
    return IV.mpf(sorted(MONOTONE[name][0](MP.make_mpf(end)) for end in value._mpi_)) * MARGIN


@cache
def evaluator(expr: Any, symbols: tuple[Any, ...], intervals: bool) -> Callable[..., Any]:
    """Return a formula as a function of intervals, or of numbers of many digits."""
    names: dict[str, Any] = {"Logistic": lambda x: 1 / (1 + mpmath.exp(-x)), "Gaussian": mpmath.ncdf}
    if intervals:
        names = {name: partial(monotone, name) for name in MONOTONE}
        names |= {
            "atan": names["arctan"],
            "Logistic": names["expit"],
            "Gaussian": names["ndtr"],
            "mpf": IV.mpf,
            "pi": IV.pi,
        }
    return sp.lambdify(symbols, expr, modules=[names, "mpmath"])


class Pieces(np.ndarray):
    """An array of such numbers: functions for which NumPy has no loop over objects are called one by one."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, Pieces) else each for each in inputs]
        if method == "__call__" and ufunc.__name__ in {*MONOTONE, "cosh", "sign"}:
            found = np.frompyfunc(lambda each: _called(ufunc, each), 1, 1)(*plain)
        else:
            found = getattr(ufunc, method)(*plain, **options)
        if out is not None:
            out[0].view(np.ndarray)[...] = found
        return _pieces(found) if out is None else out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _pieces(super().__array_function__(function, types, args, kwargs))


def row_of(entries: list[Enclosed]) -> Pieces:
    """Return the array of one sample, shape (1, C)."""
    row = np.empty((1, len(entries)), dtype=object)
    row[0] = entries
    return row.view(Pieces)


def _called(ufunc: Any, value: Any) -> Any:
    return getattr(value, ufunc.__name__)() if isinstance(value, Enclosed) else float(ufunc(float(value)))


def _pieces(found: Any) -> Any:
    return found.view(Pieces) if isinstance(found, np.ndarray) else found
