"""Forms of elementwise layers: products in place where nothing else refers to the columns."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import imul
from types import ModuleType
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.engine import costs
from gbackprop.engine.forms.bias import pull
from gbackprop.engine.forms.norms import OVER_SAMPLES, by_channel, spread
from gbackprop.engine.kernels import calls_of, numba_kernels, on_gpu, on_host
from gbackprop.engine.memory import compact
from gbackprop.engine.registry import Context, JacobianForms, LayerForms
from gbackprop.engine.routes import Route
from gbackprop.layers.elementwise.activation import Elementwise, ReLU, Sigmoid
from gbackprop.layers.elementwise.dropout import Dropout
from gbackprop.layers.elementwise.prelu import PReLU, _Slope
from gbackprop.layers.elementwise.softmax import _AlongAxis
from gbackprop.layers.operations.operation import CurveOperation


def relu_forward(layer: ReLU, x: Array, context: Context) -> tuple[Array, Any]:
    """y = max(x, 0)."""
    y = context.memory.empty_like(x)
    kernels = _loops(x)
    if kernels is None or x.strides != y.strides:
        array_module(x).maximum(x, 0, out=y)
    else:
        kernels.positive(x, y)
    return y, (x, y)


def sigmoid_forward(layer: Sigmoid, x: Array, context: Context) -> tuple[Array, Any]:
    """y = 1 / (1 + e⁻ˣ)."""
    kernels = None if type(x) is np.ndarray else on_gpu(x)
    y = layer.value(x) if kernels is None else kernels.sigmoid(x)
    return y, (x, y)


def carry(layer: Elementwise, saved: Any, mat: Array, context: Context) -> Array:
    """φ'(x) g."""
    return context.memory.multiply(mat, _slope(layer, saved, mat))


def in_place(layer: Elementwise, saved: Any, mat: Array) -> Array | None:
    """φ'(x) g, written over g; None if g is read-only, or not compact.

    A new array of a stack's size costs more than the product. The layers below would copy a g that is not compact.
    """
    if not _may_write(mat):
        return None
    mat *= _slope(layer, saved, mat)
    return mat


def _may_write(mat: Array) -> bool:
    return getattr(mat.flags, "writeable", True) and (mat.flags.c_contiguous or compact(mat))


def relu_in_place(layer: ReLU, saved: Any, mat: Array) -> Array | None:
    """[x > 0] g, written over g: by a compiled loop if x has the order of g in memory, without gaps."""
    x, kernels = saved[0], _loops(mat)
    alike = (x.dtype, x.shape, x.strides) == (mat.dtype, mat.shape[1:], mat.strides[1:])
    flat = alike and min(mat.strides) >= 0  # else no flat view is one
    if kernels is None or not (flat and compact(x) and _may_write(mat)):
        return in_place(layer, saved, mat)
    kernels.where_positive(x, mat)
    return mat


def _loops(x: Array) -> ModuleType | None:
    """Return the compiled loops for an array such as `x`; None where a call of them would take as long as NumPy."""
    return calls_of(x, numba_kernels()) if x.size > costs.COMPILED_LOOP and on_host(x) else None


def _slope(layer: Elementwise, saved: Any, mat: Array) -> Array:
    """φ'(x), as columns are multiplied by it."""
    return _as_factor(layer.first(*saved), mat)


def _as_factor(first: Array, mat: Array) -> Array:
    """Return a factor of columns: on the host a mask is converted to numbers if many are multiplied by it."""
    many = isinstance(first, np.ndarray) and first.dtype == bool and len(mat) > 2
    return first.astype(mat.dtype) if many else first


def through_elementwise(layer: Elementwise, saved: Any, above: Route | None, context: Context) -> Route | None:
    """Return the same route times φ'(x), which may be one number, or one for each channel."""
    return None if above is None else above.scaled(np.broadcast_to(layer.first(*saved), saved[0].shape))


def carry_curve(layer: CurveOperation, saved: Any, mat: Array, context: Context) -> Array:
    """φ'(x) g, by one factor of φ' after the other."""
    return reduce(context.memory.multiply, [_as_factor(slope, mat) for slope in layer.slopes(*saved)], mat)


def curve_in_place(layer: CurveOperation, saved: Any, mat: Array) -> Array | None:
    """φ'(x) g, by one factor of φ' after the other, written over g; None as of `in_place`."""
    if not _may_write(mat):
        return None
    return reduce(imul, [_as_factor(slope, mat) for slope in layer.slopes(*saved)], mat)


def through_curve(layer: CurveOperation, saved: Any, above: Route | None, context: Context) -> Route | None:
    """Return the same route times the factors of φ'(x), one after the other."""
    for slope in () if above is None else layer.slopes(*saved):
        above = above.scaled(np.broadcast_to(slope, saved[0].shape))  # type: ignore[union-attr]
    return above


def through_dropout(layer: Dropout, saved: Any, above: Route | None, context: Context) -> Route | None:
    """Return the same route times the mask."""
    return above if above is None or saved is None else above.scaled(saved)


def softmax_residual(layer: _AlongAxis, p: Array, g: Array, mat: Array) -> tuple[Array]:
    """r = Σₖ c[k] (eₖ − p) (eₖ − p)ᵀ: s − p Σ s with s = c ∘ (ẋ − pᵀẋ)."""
    axis = layer._axis(p)
    s = layer.strength(p, g) * (mat - (p * mat).sum(axis, keepdims=True))
    return (s - p * s.sum(axis, keepdims=True),)


def prelu_input(layer: PReLU, saved: Any, g: Array, direction: Array, context: Context) -> Array:
    """y = a x where x ≤ 0: P g there."""
    return spread(direction, g.ndim - 1) * array_module(g).where(saved > 0, 0, g)


def prelu_parameter(layer: PReLU, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """Σ g ẋ where x ≤ 0."""
    return by_channel(layer.num_parameters, array_module(g).where(saved > 0, 0, g) * mat)


def push_slope(jacobian: _Slope, directions: Array, shape: Shape) -> Array:
    """y[c, t] = p[c] x[c, t] where x ≤ 0, else 0."""
    x = jacobian.x
    return spread(directions, len(shape) - 1) * array_module(x).where(x > 0, 0, x)


ELEMENTWISE = LayerForms(
    Elementwise,
    varying=("value", "first", "second"),
    carry=carry,
    in_place=in_place,
    pure=True,
    routes=through_elementwise,
    jmp=carry,
)

ROWS = [
    ELEMENTWISE,
    replace(
        ELEMENTWISE, kind=CurveOperation, varying=(), carry=carry_curve, in_place=curve_in_place, jmp=carry_curve,
        routes=through_curve,
    ),
    replace(ELEMENTWISE, kind=ReLU, varying=(), forward=relu_forward, in_place=relu_in_place),
    replace(ELEMENTWISE, kind=Sigmoid, varying=(), forward=sigmoid_forward),
    LayerForms(PReLU, mixed_input=prelu_input, mixed_parameter=prelu_parameter),
    JacobianForms(_Slope, reduce=OVER_SAMPLES, push=push_slope, pull=pull),
    LayerForms(Dropout, pure=True, routes=through_dropout),
    LayerForms(_AlongAxis, varying=("forward", "jmp", "mjp", "strength"), residual_product=softmax_residual),
]
