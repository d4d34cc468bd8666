"""Numbers that run through code in place of floats: bounds of the exact value, of its rounding error, and its formula.

A method that is called with an array of them computes for all floats of an interval at once what it would compute for
each. Comparisons come out the same for all of them, or stop the run: there is one path through the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from gbackprop.testing.certificate.symbols import recognized, symbolic

UNIT, TINY, INF = 2.0**-53, 5e-324, math.inf
"""The largest relative error of +, −, ×, / and √ in float64; the least number above 0; infinity."""

LIBRARY = 8 * UNIT
"""The largest relative error that is assumed of exp, log, tanh, erf and their like: 4 units in the last place."""


class UndecidedError(Exception):
    """A comparison comes out one way at some numbers of an interval and another way at others."""


class Enclosed:
    """A number in [lo, hi], which the code has within err; its formula, if wanted, and the decisions on its path."""

    __slots__ = ("err", "expr", "hi", "lo", "path")

    def __init__(self, lo: float, hi: float, err: float, expr: Any, path: list[bool]) -> None:
        known = lo <= hi and err < INF  # false for NaN
        self.lo, self.hi, self.err = (lo, hi, err * (1 + 2.0**-40)) if known else (-INF, INF, INF)
        self.expr, self.path = expr, path

    def of(self, value: Any) -> Enclosed:
        """Return a constant as such a number, on this one's path."""
        if isinstance(value, Enclosed):
            return value
        number, err = recognized(float(value))
        ends = (math.nextafter(value - err, -INF), math.nextafter(value + err, INF)) if err else (value, value)
        return Enclosed(float(ends[0]), float(ends[1]), err, None if self.expr is None else number, self.path)

    def _new(self, ends: list[float], err: float, expr: Any, unit: float = UNIT) -> Enclosed:
        """Return a result within `ends`, which are rounded, with a rounding error of its own."""
        size = max(map(abs, ends))
        margin = 2 * unit * size + TINY
        return Enclosed(min(ends) - margin, max(ends) + margin, err + unit * (size + err) + TINY, expr, self.path)

    def _unknown(self) -> Enclosed:
        return Enclosed(-INF, INF, INF, self.expr, self.path)

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(abs(self.lo), abs(self.hi))

    @property
    def least(self) -> float:
        """The smallest absolute value."""
        return _near(self.lo, self.hi)

    @property
    def real(self) -> Enclosed:
        """The number itself."""
        return self

    def _joined(self, other: Enclosed, join: Callable[[Any, Any], Any]) -> Any:
        return None if self.expr is None or other.expr is None else join(self.expr, other.expr)

    # ----------------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Any) -> Enclosed:
        b = self.of(other)
        expr = self._joined(b, lambda p, q: p + q)
        if b.lo == b.hi == b.err == 0:
            return Enclosed(self.lo, self.hi, self.err, expr, self.path)
        return self._new([self.lo + b.lo, self.hi + b.hi], self.err + b.err, expr)

    def __neg__(self) -> Enclosed:
        return Enclosed(-self.hi, -self.lo, self.err, None if self.expr is None else -self.expr, self.path)

    def __sub__(self, other: Any) -> Any:
        return 0 if other is self else self + -self.of(other)

    def __mul__(self, other: Any) -> Enclosed:
        b = self.of(other)
        if b is self:
            return self**2
        expr, ends = self._joined(b, lambda p, q: p * q), [p * q for p in (self.lo, self.hi) for q in (b.lo, b.hi)]
        if b.lo == b.hi and not b.err and abs(math.frexp(b.lo)[0]) in (0.0, 0.5):  # 0 or ±2ᵏ: nothing is rounded
            whole = Enclosed(min(ends), max(ends), abs(b.lo) * self.err, expr, self.path)
            return whole if abs(b.lo) >= 1 or not b.lo else self._new(ends, whole.err, expr, 0.0)
        return self._new(ends, self.size * b.err + b.size * self.err + self.err * b.err, expr)

    def __truediv__(self, other: Any) -> Enclosed:
        b = self.of(other)
        expr, gap = self._joined(b, lambda p, q: p / q), b.least - b.err
        ends = [p / q for p in (self.lo, self.hi) for q in (b.lo, b.hi)] if gap > 0 else [-INF, INF]
        return self._new(ends, (self.err + max(map(abs, ends)) * b.err) / gap if gap > 0 else INF, expr)

    def __pow__(self, power: Any) -> Enclosed:
        n = power.lo if isinstance(power, Enclosed) else float(power)
        if n in (0.5, 1):
            return self if n == 1 else self.sqrt()
        if n < 0:
            below = 1 / self**-n
            return below if n == -1 else below._new([below.lo, below.hi], below.err, below.expr, LIBRARY)
        expr = None if self.expr is None else self.expr ** recognized(n)[0]
        if n != int(n):
            found = (self.log() * n).exp()
            return Enclosed(found.lo, found.hi, found.err, expr, self.path)
        ends = [_safe(math.pow, end, n) for end in (self.lo, self.hi)] + [0.0] * (self.least == 0)
        error = n * _safe(math.pow, self.size + self.err, n - 1) * self.err
        return self._new(ends, error, expr, UNIT if n == 2 else LIBRARY)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Any:
        return self.of(other) - self

    def __rtruediv__(self, other: Any) -> Enclosed:
        return self.of(other) / self

    def __rpow__(self, base: Any) -> Enclosed:
        return self.exp() if base == math.e else (self * self.of(base).log()).exp()

    # ---------------------------------------------------------------------------------------------------- comparisons

    def _decide(self, other: Any, strict: bool) -> bool:
        """Decide self < other, or ≤, for what the code has in its hands."""
        (low, high), (start, end) = self.computed(), self.of(other).computed()
        yes, no = (high < start, low >= end) if strict else (high <= start, low > end)
        if not (yes or no):
            raise UndecidedError
        self.path.append(yes)
        return yes

    def computed(self) -> tuple[float, float]:
        """Return the least and the largest number that the code may have."""
        if not self.err:
            return self.lo, self.hi
        return math.nextafter(self.lo - self.err, -INF), math.nextafter(self.hi + self.err, INF)

    def __lt__(self, other: Any) -> bool:
        return self._decide(other, True)

    def __le__(self, other: Any) -> bool:
        return other is self or self._decide(other, False)

    def __gt__(self, other: Any) -> bool:
        return other is not self and not self._decide(other, False)

    def __ge__(self, other: Any) -> bool:
        return not self._decide(other, True) if other is not self else True

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
        (function, slope), (low, high) = MONOTONE[name], self.computed()
        if not low > ABOVE.get(name, -INF):
            return self._unknown()
        error = _safe(slope, low, high) * self.err if self.err else 0.0
        expr = None if self.expr is None else symbolic(name)(self.expr)
        ends = [_safe(function, self.lo), _safe(function, self.hi)]
        return self._new(ends, error, expr, UNIT if name == "sqrt" else LIBRARY)


def _near(low: float, high: float) -> float:
    """Return how near an interval is to 0."""
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high))


def _bell(scale: float, width: float) -> Callable[[float, float], float]:
    return lambda low, high: scale * math.exp(-width * min(_near(low, high), 26.0) ** 2)


def _at_end(function: Callable[[float], float]) -> Callable[[float, float], float]:
    return lambda low, high: function(high)


MONOTONE: dict[str, tuple[Callable[[float], float], Callable[[float, float], float]]] = {
    "exp": (math.exp, _at_end(math.exp)),
    "expm1": (math.expm1, _at_end(math.exp)),
    "log": (math.log, lambda low, high: 1 / low),
    "log1p": (math.log1p, lambda low, high: 1 / (1 + low)),
    "sqrt": (math.sqrt, lambda low, high: 0.5 / math.sqrt(low)),
    "tanh": (math.tanh, lambda low, high: min(1.0, 4 * math.exp(-2 * _near(low, high)))),
    "sinh": (math.sinh, lambda low, high: math.cosh(max(-low, high))),
    "arctan": (math.atan, lambda low, high: 1.0),
    "erf": (math.erf, _bell(1.2, 1.0)),
    "erfc": (math.erfc, _bell(1.2, 1.0)),
    "ndtr": (lambda x: math.erfc(-x * 0.5**0.5) / 2, _bell(0.4, 0.5)),
    "expit": (lambda x: float(special.expit(x)), lambda low, high: math.exp(-_near(low, high))),
}
"""Monotone functions by NumPy's and SciPy's names, each with a bound of the size of its slope on an interval."""

ABOVE = {"log": 0.0, "log1p": -1.0, "sqrt": 0.0}
"""The numbers above which alone some of them are defined, with a slope."""


def _safe(function: Callable[..., float], *arguments: float) -> float:
    try:
        return function(*arguments)
    except OverflowError:
        return math.copysign(INF, arguments[0]) if function is math.sinh else INF
    except (ValueError, ZeroDivisionError):
        return math.nan


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
    return found.view(Pieces) if isinstance(found, np.ndarray) and found.dtype == object else found
