"""torch's functions that compare numbers, and choose by conditions, where −1e30 stands for −inf in masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.building import LEAST, has_infinity
from gbackprop.interop.calls import FunctionCall
from gbackprop.interop.layouts import Fixed

COMPARISONS = {
    "gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
"""The rows of comparisons, by torch's names."""


def compared(call: FunctionCall) -> str:
    """Return 1 where a comparison is true, else 0; its derivative is 0. All that stands for −inf is equal."""
    pair = call.place(call.self), call.place(call.other)
    names = call.aligned(*pair)
    if not call.assembly.infinite.isdisjoint(place.name for place in pair):
        names = [call.op("clip", name, least=LEAST) for name in names]
    return call.op(COMPARISONS[call.assembly.function(call.node)], *names)


def maximum(call: FunctionCall) -> str:
    """Return the larger of two numbers, of which −inf is none."""
    least = torch.finfo(call.assembly.dtype).min
    pair = [
        Fixed(value.value.clamp(min=least), value.layout, f"{value.name}_least")
        if isinstance(value, Fixed) and has_infinity(value) else value
        for value in (call.self, call.other)
    ]  # fmt: skip
    return call.op("maximum", *call.aligned(*pair))


def logical(row: str, *keys: str) -> Callable[[FunctionCall], str]:
    """Return a function of conditions, which are 0 or 1."""

    def found(call: FunctionCall) -> str:
        kinds = {call.dtype(key) for key in keys}
        if kinds != {torch.bool}:
            raise UnsupportedError(f"expected conditions, got {' and '.join(map(str, kinds))}")
        names = call.aligned(*[call.given[key] for key in keys])
        return call.op(row, *names) if row else call.op("affine", *names, factor=-1, shift=1)

    return found


def where(call: FunctionCall) -> str:
    """Return numbers that a condition chooses."""
    a, b = call.given["other"], call.given["self"]
    (condition,) = call.aligned(call.condition, floats=False)
    return call.op("where", condition, *call.aligned(b, a))


def masked_fill(call: FunctionCall) -> str:
    """Return a tensor with a number where a mask is true."""
    (condition,) = call.aligned(call.mask, floats=False)
    return call.op("where", condition, *call.aligned(call.value, call.self))


CONDITIONS: dict[str, Callable[[FunctionCall], Any]] = {
    **dict.fromkeys(COMPARISONS, compared),
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), logical("multiply", "self", "other")),
    **dict.fromkeys(("logical_or", "bitwise_or", "__or__"), logical("maximum", "self", "other")),
    **dict.fromkeys(("logical_not", "bitwise_not"), logical("", "self")),
    "where": where, "masked_fill": masked_fill, "maximum": maximum,
    "minimum": lambda c: c.op("minimum", *c.aligned(c.self, c.other)),
}  # fmt: skip
"""The rule of each function, by torch's names."""
