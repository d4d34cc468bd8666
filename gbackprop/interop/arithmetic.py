"""Layers for sums, differences, products and quotients of tensors and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Union

from gbackprop import layers
from gbackprop.base.checks import number
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.layers.norms.affine import Plus, Times


@dataclass(frozen=True)
class Tensor:
    """A tensor of the network that is being built: its node, and its shape with the batch as axis 0."""

    name: str
    shape: Shape


Found = tuple[list[Layer], Sequence[Union[Tensor, "Found"]]]
"""Layers, one after the other, and what the first takes: tensors, or what other layers make of them."""


def arithmetic(name: str, args: Sequence[Any], keywords: dict[str, Any]) -> Found:
    """Return the layers of an operation in `ARITHMETIC`."""
    values = [*args, *(keywords.pop(key) for key in ("input", "other") if key in keywords)]
    scale = keywords.pop("alpha", 1)
    if any(value is not None for value in keywords.values()):
        raise UnsupportedError(f"expected two operands and no further argument, got {keywords}")
    operands = [value if isinstance(value, Tensor) else _number(value) for value in values]
    return ARITHMETIC[name](*operands, _number(scale))


def _number(value: Any) -> float:
    try:
        return number("operand", value)
    except ValueError as error:
        words = f"expected tensors, which the network computes, or finite numbers, got {value!r}"
        raise UnsupportedError(words) from error


def _linear(sign: int, a: Tensor | float, b: Tensor | float, scale: float) -> Found:
    """a + scale b or a − scale b."""
    terms = [(a, 1.0), (b, sign * scale)]
    tensors = [_times(value, factor) for value, factor in terms if isinstance(value, Tensor)]
    constant = sum(value * factor for value, factor in terms if not isinstance(value, Tensor))
    return [*([layers.Add()] if len(tensors) > 1 else []), *([Plus(constant)] if constant else [])], tensors


def _times(x: Tensor, factor: float) -> Tensor | Found:
    return x if factor == 1 else ([Times(factor)], [x])


def _product(a: Tensor | float, b: Tensor | float, scale: float) -> Found:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return [layers.Multiply()], [a, b]
    x, factor = (a, b) if isinstance(a, Tensor) else (b, a)
    assert isinstance(x, Tensor)
    assert isinstance(factor, float)
    return [], [_times(x, factor)]


def _quotient(a: Tensor | float, b: Tensor | float, scale: float) -> Found:
    if isinstance(b, Tensor) or b == 0:
        raise UnsupportedError("expected a number other than 0 as the divisor: no layer divides by a tensor")
    return _product(a, 1 / b, scale)


def _negative(a: Tensor, scale: float) -> Found:
    return [Times(-1.0)], [a]


SUM, DIFFERENCE = partial(_linear, 1), partial(_linear, -1)

ARITHMETIC: dict[str, Callable[..., Found]] = {
    "add": SUM,
    "sub": DIFFERENCE,
    "subtract": DIFFERENCE,
    "mul": _product,
    "multiply": _product,
    "div": _quotient,
    "divide": _quotient,
    "true_divide": _quotient,
    "truediv": _quotient,
    "neg": _negative,
    "negative": _negative,
}
"""Operations by torch's and Python's names."""
