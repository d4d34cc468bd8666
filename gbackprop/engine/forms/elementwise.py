"""Forms of elementwise layers: products in place where nothing else refers to the columns."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.engine import costs
from gbackprop.engine.kernels import numba_kernels, on_gpu, on_host
from gbackprop.engine.memory import compact
from gbackprop.engine.registry import Context, Function
from gbackprop.layers.elementwise.activation import Elementwise, ReLU, Sigmoid


def forward(layer: Elementwise, x: Array, context: Context) -> tuple[Array, Any]:
    """y = φ(x)."""
    value = VALUES.get(type(layer).value)
    y = layer.value(x) if value is None or "value" in layer.__dict__ else value(layer, x, context)
    return y, (x, y)


def _relu(layer: ReLU, x: Array, context: Context) -> Array:
    y = context.memory.empty_like(x)
    kernels = _loops(x)
    if kernels is None or x.strides != y.strides:
        return array_module(x).maximum(x, 0, out=y)
    kernels.positive(x, y)
    return y


def _sigmoid(layer: Sigmoid, x: Array, context: Context) -> Array:
    kernels = None if type(x) is np.ndarray else on_gpu(x)
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
    if not getattr(mat.flags, "writeable", True) or not (mat.flags.c_contiguous or compact(mat)):
        return None
    relu = type(layer).first is ReLU.first and "first" not in layer.__dict__
    if not (relu and _where_positive(saved, mat)):
        mat *= _slope(layer, saved, mat)
    return mat


def _where_positive(saved: Any, mat: Array) -> bool:
    """[x > 0] g, written over g; False if x has not the order of g in memory, or there are no compiled loops."""
    x, kernels = saved[0], _loops(mat)
    if kernels is None or x.dtype != mat.dtype or x.strides != mat.strides[1:] or not compact(x):
        return False
    if min(mat.strides) < 0:  # a flat view of them does not exist
        return False
    kernels.where_positive(x, mat)
    return True


def _loops(x: Array) -> ModuleType | None:
    """Return the compiled loops for an array such as `x`; None where a call of them would take as long as NumPy."""
    return numba_kernels() if x.size > costs.COMPILED_LOOP and on_host(x) else None


def _slope(layer: Elementwise, saved: Any, mat: Array) -> Array:
    """φ'(x); on the host a mask is converted to numbers if many columns are multiplied by it."""
    first = layer.first(*saved)
    many = isinstance(first, np.ndarray) and first.dtype == bool and len(mat) > 2
    return first.astype(mat.dtype) if many else first
