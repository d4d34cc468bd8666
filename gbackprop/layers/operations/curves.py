"""Rows of elementwise functions: y = φ(x), with φ' and φ''."""

from __future__ import annotations

from math import pi
from numbers import Real
from typing import Any

from gbackprop.array import Array, array_module, scipy_module
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.row import Bound, CurveRow, bound, numbers, only, table

SMOOTH = "none: smooth where it is finite"


def _plain(shapes: tuple[Shape, ...]) -> Bound:
    only(shapes)
    return bound(shapes, shapes[0])


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return value  # type: ignore[return-value]


def _powered(shapes: tuple[Shape, ...], exponent: float) -> Bound:
    only(shapes)
    return bound(shapes, shapes[0], exponent=_number("exponent", exponent))


def _affine(shapes: tuple[Shape, ...], factor: float = 1, shift: float = 0) -> Bound:
    only(shapes)
    return bound(shapes, shapes[0], factor=_number("factor", factor), shift=_number("shift", shift))


def _clipped(shapes: tuple[Shape, ...], least: float | None = None, most: float | None = None) -> Bound:
    only(shapes)
    low, high = (-float("inf") if least is None else least), (float("inf") if most is None else most)
    if _number("least", low) > _number("most", high) or (least is None and most is None):
        raise ValueError(f"least, most: expected one bound, or two in order, got {least!r} and {most!r}")
    return bound(shapes, shapes[0], least=low, most=high)


def _power(x: Array, exponent: float, order: int) -> Array:
    """Return a derivative of x**exponent; it is 0, and not 0 · ∞, where its factor is 0."""
    factor = 1.0
    for k in range(order):
        factor *= exponent - k
    return array_module(x).zeros_like(x) if factor == 0 else factor * x ** (exponent - order)


def _clip(x: Array, o: Bound) -> Array:
    xp = array_module(x)
    if x.dtype.kind != "c":
        return xp.clip(x, o.least, o.most)
    return xp.where(x.real < o.least, o.least, xp.where(x.real > o.most, o.most, x))


def _sign(x: Array) -> Array:
    return array_module(x).sign(x.real).astype(x.real.dtype)


def _inverse(x: Array) -> Array:
    """Return 1 / x, and 0 at 0."""
    xp = array_module(x)
    return xp.where(x == 0, 0, 1 / xp.where(x == 0, 1, x))


def _xp(name: str) -> Any:
    return lambda x, o: getattr(array_module(x), name)(x)


CURVES = table(
    CurveRow("exp", "np.exp({0})", SMOOTH, numbers(10), _plain, _xp("exp"), lambda x, y, o: y, lambda x, y, o: y),
    CurveRow(
        "expm1", "np.expm1({0})", SMOOTH, numbers(10), _plain, _xp("expm1"),
        lambda x, y, o: y + 1, lambda x, y, o: y + 1,
    ),
    CurveRow(
        "log", "np.log({0})", SMOOTH, numbers(10), _plain, _xp("log"),
        lambda x, y, o: 1 / x, lambda x, y, o: -1 / (x * x),
    ),
    CurveRow(
        "log1p", "np.log1p({0})", SMOOTH, numbers(10), _plain, _xp("log1p"),
        lambda x, y, o: 1 / (1 + x), lambda x, y, o: -1 / ((1 + x) * (1 + x)),
    ),
    CurveRow(
        "sqrt", "np.sqrt({0})", "infinite at 0, as in torch", numbers(2), _plain, _xp("sqrt"),
        lambda x, y, o: 0.5 / y, lambda x, y, o: -0.25 / (x * y),
    ),
    CurveRow(
        "root", "np.sqrt({0})", "0 at 0, as norms in torch", numbers(2), _plain, _xp("sqrt"),
        lambda x, y, o: 0.5 * _inverse(y), lambda x, y, o: -0.25 * _inverse(x * y),
    ),
    CurveRow(
        "rsqrt", "1 / np.sqrt({0})", SMOOTH, numbers(2), _plain, lambda x, o: 1 / array_module(x).sqrt(x),
        lambda x, y, o: -0.5 * y / x, lambda x, y, o: 0.75 * y / (x * x),
    ),
    CurveRow(
        "reciprocal", "1 / {0}", SMOOTH, numbers(), _plain, lambda x, o: 1 / x,
        lambda x, y, o: -y * y, lambda x, y, o: 2 * y * y * y,
    ),
    CurveRow(
        "square", "np.square({0})", SMOOTH, numbers(), _plain, lambda x, o: x * x,
        lambda x, y, o: 2 * x, lambda x, y, o: array_module(x).full_like(x, 2),
    ),
    CurveRow(
        "power", "np.power({0}, {exponent})", "a factor 0 makes 0, also at 0, as in torch", numbers(10), _powered,
        lambda x, o: x**o.exponent, lambda x, y, o: _power(x, o.exponent, 1), lambda x, y, o: _power(x, o.exponent, 2),
    ),
    CurveRow("sin", "np.sin({0})", SMOOTH, numbers(10), _plain, _xp("sin"), lambda x, y, o: array_module(x).cos(x),
          lambda x, y, o: -y),
    CurveRow("cos", "np.cos({0})", SMOOTH, numbers(10), _plain, _xp("cos"), lambda x, y, o: -array_module(x).sin(x),
          lambda x, y, o: -y),
    CurveRow(
        "tan", "np.tan({0})", SMOOTH, numbers(10), _plain, _xp("tan"),
        lambda x, y, o: 1 + y * y, lambda x, y, o: 2 * y * (1 + y * y),
    ),
    CurveRow(
        "arctan", "np.arctan({0})", SMOOTH, numbers(10), _plain, _xp("arctan"),
        lambda x, y, o: 1 / (1 + x * x), lambda x, y, o: -2 * x / ((1 + x * x) * (1 + x * x)),
    ),
    CurveRow("sinh", "np.sinh({0})", SMOOTH, numbers(10), _plain, _xp("sinh"), lambda x, y, o: array_module(x).cosh(x),
          lambda x, y, o: y),
    CurveRow("cosh", "np.cosh({0})", SMOOTH, numbers(10), _plain, _xp("cosh"), lambda x, y, o: array_module(x).sinh(x),
          lambda x, y, o: y),
    CurveRow(
        "erf", "scipy.special.erf({0})", SMOOTH, numbers(10), _plain,
        lambda x, o: scipy_module(x, "special").erf(x),
        lambda x, y, o: 2 / pi**0.5 * array_module(x).exp(-x * x),
        lambda x, y, o: -4 / pi**0.5 * x * array_module(x).exp(-x * x),
    ),
    CurveRow(
        "negative", "-{0}", SMOOTH, numbers(), _plain, lambda x, o: -x,
        lambda x, y, o: array_module(x).full_like(x, -1), None,
    ),
    CurveRow(
        "affine", "{factor} * {0} + {shift}", SMOOTH, numbers(2), _affine, lambda x, o: o.factor * x + o.shift,
        lambda x, y, o: array_module(x).full_like(x, o.factor), None,
    ),
    CurveRow(
        "absolute", "np.abs({0})", "0 at 0, as in torch", numbers(), _plain, lambda x, o: _sign(x) * x,
        lambda x, y, o: _sign(x), None,
    ),
    CurveRow(
        "sign", "np.sign({0})", "0 everywhere, as in torch", numbers(), _plain, lambda x, o: _sign(x) + 0 * x,
        lambda x, y, o: array_module(x).zeros_like(x), None,
    ),
    CurveRow(
        "clip", "np.clip({0}, {least}, {most})", "1 at the bounds, as in torch", numbers(2), _clipped, _clip,
        lambda x, y, o: (x.real >= o.least) & (x.real <= o.most), None,
    ),
)  # fmt: skip
"""The elementwise rows, by name."""
