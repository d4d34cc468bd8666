"""Forms of transposed convolutions: the forms of the convolution whose transpose they are, with its two sides swapped.

With C that convolution, of images of the layer's output to its input, y = Cᵀ x + b and Jᵀ g = C g; and the weight's
gradient x ⊗ u(g) is the one of C for the input g and the columns x.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import REDUCTIONS, Outer, Reduction
from gbackprop.calculus.layer import Shape
from gbackprop.engine.forms import conv
from gbackprop.engine.forms import outer as outer_forms
from gbackprop.engine.forms.linear import by_weight
from gbackprop.engine.forms.products import over_columns
from gbackprop.engine.registry import SUM, Context, JacobianForms, LayerForms, NoFormError
from gbackprop.layers.dimensions import Conv1d, Conv3d
from gbackprop.layers.windows.conv import Conv2d
from gbackprop.layers.windows.conv import _Conv as Conv
from gbackprop.layers.windows.conv_transpose import _ConvTranspose, _Weight
from gbackprop.plain.affine import replaced

KINDS: dict[int, type[Conv]] = {1: Conv1d, 2: Conv2d, 3: Conv3d}


def convolution(layer: _ConvTranspose) -> Conv | None:
    """Return C; None if the layer's further output reaches another window of C."""
    window = layer.window
    if any(more >= stride for more, stride in zip(layer.output_padding, window.stride)):
        return None
    sizes = (layer.out_channels, layer.in_channels, window.kernel, window.stride, layer.padding, window.dilation)
    found = copy.copy(_without_weight(layer.dims, sizes, layer.groups))
    found.drawn = {"weight": layer.parameters["weight"]}
    return found


@functools.lru_cache(maxsize=256)  # checking the arguments of a layer takes longer than a small product
def _without_weight(dims: int, sizes: tuple[Any, ...], groups: int) -> Conv:
    channels, out, kernel, stride, padding, dilation = sizes
    return KINDS[dims](channels, out, kernel, stride, padding, dilation, groups, bias=False)


def forward(layer: _ConvTranspose, x: Array, context: Context) -> tuple[Array, Any]:
    """y = Cᵀ x + b."""
    found = convolution(layer)
    if found is None:
        return layer.forward(x)
    y = conv.transposed(found, x[None], layer.output_shape(x.shape[1:])[1:], context)[0]
    if layer.bias:
        y += layer.parameters["bias"].reshape(-1, *(1,) * layer.dims)
    return y, x


def carry(layer: _ConvTranspose, saved: Any, mat: Array, context: Context) -> Array:
    """C g, from the windows u(g) if a statistic of the weight has unfolded them."""
    found = convolution(layer)
    if found is None:
        return layer.mjp(saved, mat)
    (of, columns, jacobian), context.swapped = context.swapped, (None, None, None)
    if of is layer and columns is mat and "u" in vars(jacobian):
        below = conv.of_windows(found, jacobian.u, saved.shape[2:], context.memory)
    else:
        below = conv.linear(found, mat.reshape(-1, *mat.shape[2:]), context.memory)
    return below.reshape(*mat.shape[:2], *below.shape[1:])


def swapped(weight: _Weight, mat: Array, context: Context) -> Outer | None:
    """Return the Jacobian of C's weight for the inputs `mat`, all columns as samples; its columns are the layer's x."""
    found = convolution(weight.layer) if context.known.of(weight.layer).carry else None
    if found is None:
        return None
    of, columns, jacobian = context.swapped
    if of is not weight.layer or columns is not mat:
        jacobian = conv.jacobians(found, (mat.reshape(-1, *mat.shape[2:]), None), context)["weight"]
        context.swapped = weight.layer, mat, jacobian
    return jacobian


def by_convolution(reduction: Reduction, linear: bool) -> Any:
    """Make a form of a reduction: of Σᵥ s g[v] if it is linear in the columns, else of all columns as samples."""

    def reduce(weight: _Weight, mat: Array, sign: Array | None, context: Context) -> Any:
        some = over_columns(mat, sign) if linear else mat
        jacobian = swapped(weight, some, context)
        if jacobian is None:
            return reduction.define(weight, mat, sign)
        if linear:
            return context.reduce(jacobian, reduction, weight.x[None], None)
        v, n = mat.shape[:2]
        x = array_module(mat).broadcast_to(weight.x, (v, *weight.x.shape)).reshape(1, v * n, *weight.x.shape[1:])
        found = context.reduce(jacobian, reduction, x, None if sign is None else sign.reshape(1, -1))
        return found.reshape(v, n).sum(0) if reduction.per_sample else found

    return reduce


def write_batch(weight: _Weight, mat: Array, sign: Array | None, rows: Any, context: Context) -> Array:
    """Compute "batch" into its final array ``rows(like)``."""
    one = over_columns(mat, sign)
    jacobian = swapped(weight, one, context)
    if jacobian is not None:
        return outer_forms.write_batch(jacobian, weight.x[None], None, rows, context)
    found = REDUCTIONS["batch"].define(weight, mat, sign)
    place = rows(found)
    place[...] = found
    return place


def push(weight: _Weight, directions: Array, shape: Shape) -> Array:
    """y = fold(Pᵀ x[t]), for a layer with the functions of its class."""
    if not LAYER.holds(weight.layer):
        raise NoFormError
    layers = [replaced(weight.layer, {"weight": direction}) for direction in directions]
    return array_module(directions).stack([layer._folded(weight.x) for layer in layers])


def mixed_parameter(layer: _ConvTranspose, saved: Any, g: Array, mat: Array, context: Context) -> Array:
    """Σₙ J_pᵀ g at each ẋ as the input."""
    jacobians = [layer.parameter_jacobians(each)["weight"] for each in mat]
    return array_module(g).stack([context.reduce(jacobian, SUM, g[None], None) for jacobian in jacobians])


LAYER = LayerForms(
    _ConvTranspose, forward=forward, carry=carry, pure=True, mixed_input=by_weight, mixed_parameter=mixed_parameter
)
ROWS = [
    LAYER,
    JacobianForms(
        _Weight,
        reduce={
            REDUCTIONS[name]: by_convolution(REDUCTIONS[name], name in ("sum", "batch"))
            for name in ("sum", "batch", "square", "moments", "square_norm")
        },
        write_batch=write_batch,
        push=push,
    ),
]
