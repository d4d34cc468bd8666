"""Forms of elementwise layers: products in place where nothing else refers to the columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.engine.memory import compact
from gbackprop.engine.registry import Context, Function, function_of
from gbackprop.kernels import on_gpu
from gbackprop.layers.activation import Elementwise, ReLU, Sigmoid


def forward(layer: Elementwise, x: Array, context: Context) -> tuple[Array, Any]:
    """y = φ(x)."""
    value = VALUES.get(function_of(layer, "value"))
    y = layer.value(x) if value is None else value(layer, x, context)
    return y, (x, y)


def _relu(layer: ReLU, x: Array, context: Context) -> Array:
    return array_module(x).maximum(x, 0, out=context.memory.empty_like(x))


def _sigmoid(layer: Sigmoid, x: Array, context: Context) -> Array:
    kernels = on_gpu(x)
    return Sigmoid.value(layer, x) if kernels is None else kernels.sigmoid(x)


VALUES: dict[Function | None, Function] = {ReLU.value: _relu, Sigmoid.value: _sigmoid}
"""Forms of φ."""


def carry(layer: Elementwise, saved: Any, mat: Array, context: Context) -> Array:
    """φ'(x) g."""
    return context.memory.multiply(mat, _slope(layer, saved, mat))


def in_place(layer: Elementwise, saved: Any, mat: Array) -> Array | None:
    """φ'(x) g, written over g; None if g is read-only, or not compact.

    A new array of a stack's size costs more than the product. The layers below would copy a g that is not compact.
    """
    if not getattr(mat.flags, "writeable", True) or not compact(mat):
        return None
    mat *= _slope(layer, saved, mat)
    return mat


def _slope(layer: Elementwise, saved: Any, mat: Array) -> Array:
    """φ'(x); on the host a mask is converted to numbers if many columns are multiplied by it."""
    first = layer.first(*saved)
    many = len(mat) > 2 and isinstance(first, np.ndarray) and first.dtype == bool
    return first.astype(mat.dtype) if many else first
