"""Rows of elementwise functions: y = φ(x), with φ' and φ''."""

from __future__ import annotations

from math import inf, log, pi
from numbers import Real
from typing import Any

from gbackprop.array import Array, array_module, is_array, like, scipy_module
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.axes import broadcast
from gbackprop.layers.operations.row import Bound, CurveRow, numbers, table


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return value.item() if hasattr(value, "item") else value  # type: ignore[return-value]


def _powered(of: Shape, *, exponent: Any) -> Bound:
    if not is_array(exponent):
        return Bound(shape=of, exponent=_number("exponent", exponent))
    if exponent.dtype.kind not in "fiu" or broadcast(of, exponent.shape) != tuple(of):
        words = f"expected numbers that broadcast to features {of}"
        raise ValueError(f"exponent: {words}, got {exponent.dtype} of shape {exponent.shape}")
    return Bound(shape=of, exponent=exponent)


def _affine(of: Shape, *, factor: float = 1, shift: float = 0) -> Bound:
    return Bound(shape=of, factor=_number("factor", factor), shift=_number("shift", shift))


def _divided(of: Shape, *, number: float) -> Bound:
    if (divisor := _number("number", number)) == 0:
        raise ValueError("number: expected one other than 0, got 0")
    return Bound(shape=of, number=divisor)


def _inverted(of: Shape, *, numerator: float = 1) -> Bound:
    return Bound(shape=of, numerator=_number("numerator", numerator))


def _raised(of: Shape, *, base: float) -> Bound:
    if not (number := _number("base", base)) > 0:
        raise ValueError(f"base: expected a number above 0, got {base!r}")
    return Bound(shape=of, base=number)


def _clipped(of: Shape, *, least: float | None = None, most: float | None = None) -> Bound:
    low = -inf if least is None else _number("least", least)
    high = inf if most is None else _number("most", most)
    return Bound(shape=of, least=low, most=high)  # all numbers are `most` if it is below `least`


def _exponent(x: Array, o: Bound) -> Any:
    return like(o.exponent, x, x.real.dtype) if is_array(o.exponent) else o.exponent


def _power(x: Array, o: Bound, order: int) -> tuple[Array, ...]:
    """Return factors of a derivative of x**exponent; it is 0, and not 0 · ∞, where the number before x is 0.

    Powers of x below −1 are 1/x times another, as long as that is no higher than x**exponent.
    """
    xp, exponent, number = array_module(x), _exponent(x, o), 1.0
    for k in range(order):
        number = number * (exponent - k)
    base, power, quotients = x, exponent - order, []
    if is_array(exponent):
        base = xp.where(number == 0, 1, x)
    elif number == 0:
        return (xp.zeros_like(x),)
    for _ in range(order):
        low = power <= -1
        if is_array(low):
            quotients.append(xp.where(low, 1 / xp.where(low, base, 1), 1))
        elif low:
            quotients.append(1 / base)
        power = power + low
    return number * base**power, *quotients


def _clip(x: Array, o: Bound) -> Array:
    xp = array_module(x)
    if x.dtype.kind != "c":
        return xp.clip(x, o.least, o.most)
    return xp.where((x.real >= o.least) & (x.real <= o.most), x, xp.clip(x.real, o.least, o.most))


def _sign(x: Array) -> Array:
    return array_module(x).sign(x.real).astype(x.real.dtype)


def _inverse(x: Array) -> Array:
    """Return 1 / x, and 0 at 0."""
    xp = array_module(x)
    return xp.where(x == 0, 0, 1 / xp.where(x == 0, 1, x))


def _full(x: Array, value: float) -> Array:
    return array_module(x).full_like(x, value)


def _xp(name: str) -> Any:
    return lambda x, *rest: getattr(array_module(x), name)(x)


POSITIVE = "x > 2⁻²⁰⁰"
SOME, FEW, ONE = numbers(10), numbers(2), numbers()


def _logarithm(n: int) -> CurveRow:
    words, rate = f"y = log(x)/log({n}); 1/(log({n}) x) g; −1/(log({n}) x²) g; {POSITIVE}", log(n)
    return CurveRow(f"log{n}", f"np.log{n}({{0}})", words, _xp(f"log{n}"),
                    lambda x, y, o: 1 / rate / x, lambda x, y, o: (-1 / rate / x, 1 / x), cost=SOME)  # fmt: skip


CURVES = table(
    CurveRow("exp", "np.exp({0})", "y = eˣ; y g; y g", _xp("exp"),
             lambda x, y, o: y, lambda x, y, o: y, cost=SOME),
    CurveRow("expm1", "np.expm1({0})", "y = eˣ − 1; eˣ g; eˣ g", _xp("expm1"),
             _xp("exp"), _xp("exp"), cost=SOME),
    CurveRow("log", "np.log({0})", f"y = log(x); 1/x g; −1/x² g; {POSITIVE}", _xp("log"),
             lambda x, y, o: 1 / x, lambda x, y, o: (-1 / x, 1 / x), cost=SOME),
    _logarithm(2), _logarithm(10),
    CurveRow("log1p", "np.log1p({0})", "y = log(1 + x); 1/(1 + x) g; −1/(1 + x)² g; x > −0.99", _xp("log1p"),
             lambda x, y, o: 1 / (1 + x), lambda x, y, o: (-1 / (1 + x), 1 / (1 + x)), cost=SOME),
    CurveRow("sqrt", "np.sqrt({0})", f"y = √(x); 0.5/y g; −0.25/(x y) g; {POSITIVE}", _xp("sqrt"),
             lambda x, y, o: 0.5 / y, lambda x, y, o: (-0.25 / x, 1 / y),
             ties="infinite at 0, as in torch", cost=FEW),
    CurveRow("root", "np.sqrt({0})", f"y = √(x); 0.5/y g; −0.25/(x y) g; {POSITIVE}", _xp("sqrt"),
             lambda x, y, o: 0.5 * _inverse(y), lambda x, y, o: (-0.25 * _inverse(x), _inverse(y)),
             ties="0 at 0, as norms in torch", cost=FEW),
    CurveRow("rsqrt", "1 / np.sqrt({0})", f"y = 1/√(x); −0.5 y/x g; 0.75 y/x² g; {POSITIVE}",
             lambda x, o: 1 / array_module(x).sqrt(x),
             lambda x, y, o: (-0.5 * y, 1 / x), lambda x, y, o: (0.75 * y, 1 / x, 1 / x), cost=FEW),
    CurveRow("reciprocal", "{numerator} / {0}", "y = numerator/x; −y/x g; 2y/x² g; |x| > 2⁻²⁰⁰",
             lambda x, o: o.numerator / x,
             lambda x, y, o: (-y, 1 / x), lambda x, y, o: (2 * y, 1 / x, 1 / x), bind=_inverted),
    CurveRow("divided_by", "{0} / {number}", "y = x/number; 1/number g", lambda x, o: x / o.number,
             lambda x, y, o: _full(x, 1 / o.number), bind=_divided),
    CurveRow("square", "np.square({0})", "y = x²; 2x g; 2 g", lambda x, o: x * x,
             lambda x, y, o: 2 * x, lambda x, y, o: _full(x, 2)),
    CurveRow("power", "np.power({0}, {exponent})",
             "y = x^p, p = exponent; p x^(p − 1) g; p (p − 1) x^(p − 2) g; x > 0.01", lambda x, o: x ** _exponent(x, o),
             lambda x, y, o: _power(x, o, 1), lambda x, y, o: _power(x, o, 2),
             ties="a factor 0 makes 0, also at 0, as in torch", bind=_powered, cost=SOME),
    CurveRow("raised", "np.power({base}, {0})", "y = e^(log(base) x); log(base) y g; log(base)² y g",
             lambda x, o: o.base**x,
             lambda x, y, o: log(o.base) * y, lambda x, y, o: log(o.base) ** 2 * y, bind=_raised, cost=SOME),
    CurveRow("sin", "np.sin({0})", "y = sin(x); cos(x) g; −y g", _xp("sin"),
             _xp("cos"), lambda x, y, o: -y, cost=SOME),
    CurveRow("cos", "np.cos({0})", "y = cos(x); −sin(x) g; −y g", _xp("cos"),
             lambda x, y, o: -array_module(x).sin(x), lambda x, y, o: -y, cost=SOME),
    CurveRow("tan", "np.tan({0})", "y = tan(x); (1 + y²) g; 2y (1 + y²) g; |x| < 1.5", _xp("tan"),
             lambda x, y, o: 1 + y * y, lambda x, y, o: 2 * y * (1 + y * y), cost=SOME),
    CurveRow("arctan", "np.arctan({0})", "y = arctan(x); 1/(1 + x²) g; −2x/(1 + x²)² g", _xp("arctan"),
             lambda x, y, o: 1 / (1 + x * x), lambda x, y, o: (-2 * x / (1 + x * x), 1 / (1 + x * x)), cost=SOME),
    CurveRow("sinh", "np.sinh({0})", "y = sinh(x); cosh(x) g; y g", _xp("sinh"),
             _xp("cosh"), lambda x, y, o: y, cost=SOME),
    CurveRow("cosh", "np.cosh({0})", "y = cosh(x); sinh(x) g; y g", _xp("cosh"),
             _xp("sinh"), lambda x, y, o: y, cost=SOME),
    CurveRow("erf", "scipy.special.erf({0})", "y = erf(x); 2/√(π) e^(−x²) g; −4/√(π) x e^(−x²) g",
             lambda x, o: scipy_module(x, "special").erf(x),
             lambda x, y, o: 2 / pi**0.5 * array_module(x).exp(-x * x),
             lambda x, y, o: -4 / pi**0.5 * x * array_module(x).exp(-x * x), cost=SOME),
    CurveRow("negative", "-{0}", "y = −x; −g", lambda x, o: -x, lambda x, y, o: _full(x, -1)),
    CurveRow("affine", "{factor} * {0} + {shift}", "y = factor x + shift; factor g",
             lambda x, o: o.factor * x + o.shift, lambda x, y, o: _full(x, o.factor), bind=_affine, cost=FEW),
    CurveRow("absolute", "np.abs({0})", "y = |x|; sign(x) g", lambda x, o: _sign(x) * x + 0.0,  # |−0| = 0
             lambda x, y, o: _sign(x), ties="0 at 0, as in torch"),
    CurveRow("sign", "np.sign({0})", "y = sign(x); 0 g", lambda x, o: _sign(x).astype(x.dtype),
             lambda x, y, o: _full(x, 0), ties="0 everywhere, as in torch"),
    CurveRow("clip", "np.clip({0}, {least}, {most})",
             "y = least if x < least else most if x > most else x; [least ≤ x and x ≤ most] g", _clip,
             lambda x, y, o: (x.real >= o.least) & (x.real <= o.most), bind=_clipped,
             ties="1 at the bounds, as in torch", cost=FEW),
)  # fmt: skip
"""The elementwise rows, by name."""
