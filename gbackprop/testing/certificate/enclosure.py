"""Numbers that run through code in place of floats: bounds of the exact value, of its rounding error, and its formula.

A method that is called with an array of them computes for all floats of an interval at once what it would compute for
each. Comparisons come out the same for all of them, or stop the run: there is one path through the code.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from mpmath.ctx_iv import MPIntervalContext
from mpmath.libmp import to_float

from gbackprop.testing.certificate.symbols import Gaussian, Logistic, recognized

UNIT, TINY, INF = 2.0**-53, 5e-324, math.inf
"""The largest relative error of +, −, ×, / and √ in float64; the least number above 0; infinity."""

MORE = 1 + 2.0**-40
"""By how much a bound of an error is enlarged, as its computation is rounded itself."""

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


def near(value: Any) -> float:
    """Return the least absolute value of an interval of mpmath."""
    return ends(abs(value))[0]


def far(value: Any) -> float:
    """Return the largest absolute value of an interval of mpmath."""
    return ends(abs(value))[1]


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

    def _made(self, value: Any, err: float, unit: float, join: Callable[..., Any], *others: Any) -> Enclosed:
        """Return a result, rounded by `unit`, if that is not 0; what underflows in floats is no more than TINY."""
        expr = None if self.expr is None else join(self.expr, *(other.expr for other in others))
        if unit:
            err = (err + unit * (far(value) + err)) * MORE + TINY
        return Enclosed(value, err, expr, self.path)

    @property
    def gap(self) -> float:
        """The least absolute value that the code may have; not above 0 if that is 0."""
        return near(self.value) - self.err

    @property
    def zero(self) -> bool:
        """True for an exact 0."""
        return self.lo == self.hi == self.err == 0

    @property
    def real(self) -> Enclosed:
        """The number itself."""
        return self

    # ----------------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Any) -> Enclosed:
        b = self.of(other)
        exact = self.zero or b.zero
        return self._made(self.value + b.value, self.err + b.err, 0 if exact else UNIT, operator.add, b)

    def __neg__(self) -> Enclosed:
        return self._made(-self.value, self.err, 0, operator.neg)

    def __sub__(self, other: Any) -> Any:
        return 0 if other is self else self + -self.of(other)

    def __mul__(self, other: Any) -> Enclosed:
        b = self.of(other)
        if b is self:
            return self**2
        err, unit = far(self.value) * b.err + far(b.value) * self.err + self.err * b.err, UNIT
        for one, two in ((self, b), (b, self)):
            exact = two.lo == two.hi and not two.err and one.err < INF
            if exact and abs(math.frexp(two.lo)[0]) in (0.0, 0.5):  # 0 or ±2ᵏ
                err, unit = abs(two.lo) * one.err + TINY * (0 < abs(two.lo) < 1), 0
        return self._made(self.value * b.value, err, unit, operator.mul, b)

    def __truediv__(self, other: Any) -> Enclosed:
        b = self.of(other)
        value = self.value / b.value if b.gap > 0 else WHOLE
        err = (self.err + far(value) * b.err) / b.gap if b.gap > 0 else INF
        return self._made(value, err, 0 if self.zero else UNIT, operator.truediv, b)

    def __pow__(self, power: Any) -> Enclosed:
        power = self.of(power)
        n = power.lo
        if power.err or n != power.hi or not (n.is_integer() or n == 0.5):
            return (self.log() * power).exp()
        self.path.append(n)
        if n == 0.5:
            return self.sqrt()
        at = self.gap if n < 0 else far(self.value) + self.err  # where the slope is largest
        if n < 0 and not at > 0:
            return self._made(WHOLE, INF, 0, operator.pow, power)
        slope = float(abs(n) * MP.mpf(at) ** (n - 1)) if n else 0.0
        unit = {0: 0, 1: 0, 2: UNIT, -1: UNIT}.get(n, LIBRARY)
        return self._made(self.value ** int(n), slope * self.err if self.err else 0.0, unit, operator.pow, power)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Any:
        return self.of(other) - self

    def __rtruediv__(self, other: Any) -> Enclosed:
        return self.of(other) / self

    def __rpow__(self, base: Any) -> Enclosed:
        found = self.exp() if base == math.e else (self * self.of(base).log()).exp()
        exact = base != math.e and not (self.err or self.of(base).err)  # one call of a library, as exp is
        return found._made(found.value, 0.0, LIBRARY, lambda power: power) if exact else found

    # ---------------------------------------------------------------------------------------------------- comparisons

    def computed(self) -> tuple[float, float]:
        """Return the least and the largest number that the code may have."""
        if not self.err:
            return self.lo, self.hi
        return math.nextafter(self.lo - self.err, -INF), math.nextafter(self.hi + self.err, INF)

    def __lt__(self, other: Any) -> bool:
        if other is self:
            return False
        (low, high), (start, end) = self.computed(), self.of(other).computed()
        if not (high < start or low >= end):
            raise UndecidedError
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

    # ------------------------------------------------------------------------------------------------------ functions

    def __abs__(self) -> Enclosed:
        return -self if self < 0 else self

    def __getattr__(self, name: str) -> Callable[[], Any]:
        """Return a function, which NumPy calls by its own name."""
        if name not in FUNCTIONS:
            raise AttributeError(f"{name} of numbers on an interval")
        return partial(FUNCTIONS[name], self)

    def monotone(self, name: str) -> Enclosed:
        """Compute a monotone function."""
        (low, high), symbolic = self.computed(), MONOTONE[name][0]
        if name == "sqrt" and self.zero:
            return self._made(self.value, 0.0, 0, symbolic)
        if not low > ABOVE.get(name, -INF):
            return self._made(WHOLE, INF, 0, symbolic)
        error = far(slope(name)(IV.mpf([low, high]))) * self.err if self.err else 0.0
        return self._made(monotone(name, self.value), error, UNIT if name == "sqrt" else LIBRARY, symbolic)

    def periodic(self, name: str) -> Enclosed:
        """Compute a function of an angle."""
        value, symbolic = getattr(IV, name)(self.value), getattr(sp, name)
        low, high = self.computed()
        slope = 1.0 if name != "tan" else 1 + far(IV.tan(IV.mpf([low, high]))) ** 2
        return self._made(value, slope * self.err if self.err else 0.0, LIBRARY, symbolic)


MONOTONE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **{name: (getattr(sp, name), getattr(MP, name)) for name in ("exp", "log", "sqrt", "tanh", "erf", "erfc")},
    "expm1": (lambda x: sp.exp(x) - 1, MP.expm1), "log1p": (lambda x: sp.log(1 + x), MP.log1p),
    "sinh": (lambda x: (sp.exp(x) - sp.exp(-x)) / 2, MP.sinh), "arctan": (sp.atan, MP.atan),
    **{f"log{n}": (partial(lambda x, n: sp.log(x) / sp.log(n), n=n), partial(MP.log, b=n)) for n in (2, 10)},
    "ndtr": (Gaussian, MP.ncdf), "expit": (Logistic, lambda x: 1 / (1 + MP.exp(-x))),
}  # fmt: skip
"""Monotone functions by NumPy's and SciPy's names: SymPy's, and for numbers of many digits."""

FUNCTIONS: dict[str, Callable[[Enclosed], Any]] = {
    **{name: partial(Enclosed.monotone, name=name) for name in MONOTONE},
    **{name: partial(Enclosed.periodic, name=name) for name in ("sin", "cos", "tan")},
    "sign": lambda x: -1 if x < 0 else int(x > 0),
    "cosh": lambda x: (x.exp() + (-x).exp()) / 2,
}
"""All functions of such numbers."""

ABOVE = {"log": 0.0, "log2": 0.0, "log10": 0.0, "log1p": -1.0, "sqrt": 0.0}
"""The numbers above which alone some of them are defined, with a slope."""


@cache
def slope(name: str) -> Callable[..., Any]:
    """Return the derivative of a monotone function, as a function of intervals."""
    x = sp.Symbol("x", real=True)
    return evaluator(sp.diff(MONOTONE[name][0](x), x), (x,), True)


def monotone(name: str, value: Any) -> Any:
    """Compute a monotone function of an interval, from its ends."""
    if name in ("exp", "log", "sqrt"):
        return getattr(IV, name)(value)
    return IV.mpf(sorted(MONOTONE[name][1](MP.make_mpf(end)) for end in value._mpi_)) * MARGIN


@cache
def evaluator(expr: Any, symbols: tuple[Any, ...], intervals: bool) -> Callable[..., Any]:
    """Return a formula as a function of intervals, or of numbers of many digits."""
    names: dict[str, Any] = {"Logistic": lambda x: 1 / (1 + mpmath.exp(-x)), "Gaussian": mpmath.ncdf}
    if intervals:
        names = {name: partial(monotone, name) for name in MONOTONE} | {"mpf": IV.mpf, "pi": IV.pi}
        names |= {"sin": IV.sin, "cos": IV.cos, "tan": IV.tan}
        names |= {"atan": names["arctan"], "Logistic": names["expit"], "Gaussian": names["ndtr"]}
    return sp.lambdify(symbols, expr, modules=[names, "mpmath"])


class Pieces(np.ndarray):
    """An array of such numbers: functions for which NumPy has no loop over objects are called one by one."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, Pieces) else each for each in inputs]
        if method == "__call__" and ufunc.__name__ in FUNCTIONS:
            found = np.frompyfunc(partial(_called, ufunc), 1, 1)(*plain)
        else:
            found = getattr(ufunc, method)(*plain, **options)
        if out is not None:
            out[0].view(np.ndarray)[...] = found
        return _pieces(found) if out is None else out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _pieces(super().__array_function__(function, types, args, kwargs))


def array_of(numbers: list[Any]) -> np.ndarray:
    """Return the array of one sample, shape (1, C), of floats or of such numbers."""
    return np.array([numbers], dtype=object).view(Pieces) if isinstance(numbers[0], Enclosed) else np.array([numbers])


def _called(ufunc: Any, value: Any) -> Any:
    return FUNCTIONS[ufunc.__name__](value) if isinstance(value, Enclosed) else float(ufunc(float(value)))


def _pieces(found: Any) -> Any:
    return found.view(Pieces) if isinstance(found, np.ndarray) else found
