"""Readers of NumPy's functions of each number, with broadcasting: as rows of the table of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbackprop.base.recording.refused import NoDerivativeError
from gbackprop.interop.recording.steps import StepReader, Value
from gbackprop.layers import ReLU, Sigmoid, Softplus, Tanh

Reader = Callable[..., Any]


def number(given: Any) -> float | None:
    """Return an operand that is one number, or None."""
    if isinstance(given, Value):
        given = given.constant if given.constant is not None and not given.shape else None
    return None if given is None or isinstance(given, list | tuple) or np.ndim(given) else float(given)


def curve(row: str, **options: Any) -> Reader:
    """Return a reader of a function of each number, by a row."""
    return lambda c, x: c.op(row, c.operand(x), **options)


def layer(make: Any) -> Reader:
    """Return a reader of a function of each number that is a layer."""
    return lambda c, x: c.add(make(), c.operand(x))


def joined(c: StepReader, row: str, *given: Any) -> str:
    """Append a row of several inputs that are broadcast."""
    return c.op(row, *beside(c, *given))


def beside(c: StepReader, *given: Any) -> list[str]:
    """Return the nodes of operands that are broadcast."""
    values = [c.value(each) for each in given]
    c.among(*values)
    ndim = len(c.out.shape)
    if any(each.batch and len(each.shape) != ndim for each in values):
        c.whole = True
    return [c.operand(each, ndim) for each in values]


def wide(c: StepReader, node: str) -> str:
    """Return a node in the shape of the output."""
    return node if c.reading.shapes[node] == c.shape else c.op("broadcast_to", node, shape=c.shape)


def join(row: str, with_number: Callable[..., str | None] | None = None) -> Reader:
    """Return a reader of a function of two inputs; `with_number` reads it if one of them is a number."""

    def read(c: StepReader, a: Any, b: Any) -> str:
        first, second = number(a), number(b)
        x, n = (a, second) if second is not None else (b, first)
        if with_number is not None and n is not None and isinstance(x, Value) and x.constant is None:
            found = with_number(c, c.operand(x), n, second is None) if x.shape == c.out.shape else None
            if found is not None:
                return found
        return joined(c, row, a, b)

    return read


def _added(c: StepReader, x: str, n: float, left: bool) -> str:
    return c.op("affine", x, shift=n)


def _subtracted(c: StepReader, x: str, n: float, left: bool) -> str:
    return c.op("affine", x, factor=-1, shift=n) if left else c.op("affine", x, shift=-n)


def _multiplied(c: StepReader, x: str, n: float, left: bool) -> str:
    return c.op("affine", x, factor=n)


def _divided(c: StepReader, x: str, n: float, left: bool) -> str | None:
    if not left:
        return c.op("divided_by", x, number=n) if n else None
    return c.op("reciprocal", x, **({} if n == 1 else {"numerator": n}))


def _powered(c: StepReader, x: str, n: float, left: bool) -> str | None:
    if not left:
        known = {2.0: "square", -1.0: "reciprocal"}
        return c.op(known[n], x) if n in known else c.op("power", x, exponent=int(n) if n == int(n) else n)
    return c.op("raised", x, base=n) if n > 0 else None


def _power(c: StepReader, a: Any, b: Any) -> str:
    """Read a power; a fixed array of exponents is an option, as exp(b log a) is for positive bases alone."""
    exponents = c.value(b).constant
    if exponents is None or not exponents.ndim or not isinstance(a, Value) or a.constant is not None:
        return join("pow", _powered)(c, a, b)
    base, _ = beside(c, a, b)
    exponents = np.broadcast_to(exponents, c.out.shape).reshape(c.shape).astype("float64")
    return c.op("power", wide(c, base), exponent=exponents)


def _larger(c: StepReader, x: str, n: float, left: bool) -> str:
    return c.add(ReLU(), x) if n == 0 else c.op("clip", x, least=n)


def _smaller(c: StepReader, x: str, n: float, left: bool) -> str:
    return c.op("clip", x, most=n)


def _soft(c: StepReader, a: Any, b: Any) -> str:
    if number(a) == 0 and isinstance(b, Value):
        return layer(lambda: Softplus(threshold=1000.0))(c, b)  # NumPy has no threshold; from there on e^(−x) is 0
    return c.op("logsumexp", c.op("stack", *[wide(c, each) for each in beside(c, a, b)], axis=-1), axis=-1)


def _truth(row: str) -> Reader:
    def read(c: StepReader, a: Any, b: Any) -> str:
        if c.value(a).kind != "b" or c.value(b).kind != "b":
            c.refuse(NoDerivativeError, f"np.{c.step.name} of numbers has no derivative; compare them first")
        return joined(c, row, a, b)

    return read


def _inverted(c: StepReader, x: Value) -> str:
    if x.kind != "b":
        c.refuse(NoDerivativeError, f"np.{c.step.name} of numbers has no derivative; compare them first")
    return curve("affine", factor=-1, shift=1)(c, x)


def _same(c: StepReader, x: Value, *args: Any, **kwargs: Any) -> Value:
    c.out.pieces, c.out.places, c.out.constant = x.pieces, x.places, x.constant
    return c.out


def _cast(c: StepReader, x: Value, dtype: Any) -> Any:
    index = not c.reading.integers.isdisjoint(x.pieces)
    if dtype.kind == "b" and x.kind != "b" and not index:
        return joined(c, "not_equal", x, 0.0)
    if (index and dtype.kind not in "iu") or (dtype.kind in "iu" and x.kind == "f" and x.data):
        c.refuse(NoDerivativeError, f"astype({dtype}) of {'an index' if index else 'floats'} has no derivative")
    return _same(c, x)


def _where(c: StepReader, condition: Any, a: Any, b: Any) -> str:
    return joined(c, "where", condition, a, b)


def _clipped(c: StepReader, x: Value, a_min: Any = None, a_max: Any = None, **more: Any) -> str:
    low, high = more.pop("min", a_min), more.pop("max", a_max)
    if more:
        raise TypeError(f"unexpected {list(more)}")
    bounds = {"least": low, "most": high}
    given = {key: value for key, value in bounds.items() if value is not None}
    if all(number(value) is not None for value in given.values()):
        return curve("clip", **{key: number(value) for key, value in given.items()})(c, x)
    raise TypeError("bounds that are arrays: use np.maximum and np.minimum")


ELEMENTWISE: dict[str, Reader] = {
    **{name: curve(name) for name in ("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos",
                                      "tan", "arctan", "sinh", "cosh", "erf", "negative", "absolute", "sign", "square",
                                      "reciprocal")},
    **dict.fromkeys(("abs", "fabs"), curve("absolute")), "atan": curve("arctan"),
    "exp2": lambda c, x: _powered(c, c.operand(x), 2.0, True),
    "tanh": layer(Tanh), "expit": layer(Sigmoid), "logaddexp": _soft,
    "add": join("add", _added), "subtract": join("subtract", _subtracted), "multiply": join("multiply", _multiplied),
    **dict.fromkeys(("divide", "true_divide"), join("divide", _divided)),
    **dict.fromkeys(("power", "pow", "float_power"), _power),
    "maximum": join("maximum", _larger), "minimum": join("minimum", _smaller),
    **{name: join(name) for name in ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")},
    **dict.fromkeys(("logical_and", "bitwise_and"), _truth("multiply")),
    **dict.fromkeys(("logical_or", "bitwise_or"), _truth("maximum")),
    **dict.fromkeys(("logical_not", "invert", "bitwise_not"), _inverted),
    **dict.fromkeys(("positive", "conjugate", "conj", "real", "copy", "ascontiguousarray", "labels"), _same),
    "astype": _cast,
    "where": _where, "clip": _clipped,
}  # fmt: skip
"""The readers by the functions' names."""
