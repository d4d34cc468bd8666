"""The contract of layers: what each layer that does not ship is checked for, at its first call."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite, array_module, is_array
from gbackprop.base.checks import SHIPPED, check_shapes, is_shipped, unpacked
from gbackprop.calculus.inputs import noise_of
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.residual import DiagonalFactors, Factored, FactoredLayer


def checked(leaf: Leaf, method: str, made: Any, inputs: Sequence[Array]) -> tuple[Array, Any]:
    """Return what a layer's forward pass gave, (output, saved); check its kind and shape if that does not ship."""
    if not (leaf.layer.__module__.startswith(SHIPPED) and is_shipped(type(vars(leaf.layer).get(method, leaf)))):
        where = f"{leaf}, {method}"
        y, _ = unpacked(where, made)
        dtype = inputs[0].dtype if inputs and inputs[0].dtype.kind == "f" else y.dtype
        _check_array(where, y, (max(map(len, inputs), default=1), *leaf.output_shape), dtype)
    return made


def check_contract(leaf: Leaf, inputs: Sequence[Array], training: bool = False) -> Array:
    """Check that a layer does on a few samples what every layer must do, and give its output."""
    check_shapes([leaf])
    layer, before = leaf.layer, [each.copy() for each in inputs]
    own = training and inputs and getattr(layer.forward_training, "__func__", None) is not Layer.forward_training
    method = "forward_training" if own else "forward"
    noise = [noise_of(leaf, len(inputs[0]), np.random.default_rng(0))] if own else []
    y, saved = checked(leaf, method, getattr(layer, method)(*inputs, *noise), inputs)
    if not all(bool((each == same).all()) for each, same in zip(inputs, before, strict=True)):
        raise ValueError(f"{leaf}, {method}: expected an input that is left as it is, got one that is written over")
    if any(each.dtype.kind != "f" for each in inputs):  # indices have no derivatives
        return y
    if not all_finite(y):
        raise ValueError(f"{leaf}, {method}: expected finite numbers for finite input, got NaN or infinity")
    if layer.curvature not in ("zero", "diagonal", "dense"):
        raise ValueError(f"{leaf}: curvature: expected 'zero', 'diagonal' or 'dense', got {layer.curvature!r}")
    columns = array_module(y).ones((1, *y.shape), dtype=y.dtype)
    if inputs and type(layer).mjp is not Layer.mjp:  # a layer that lacks it was refused before
        _check_mjp(leaf, layer.mjp(saved, columns), inputs)
    if layer.curvature != "zero" and type(layer).residual is not Layer.residual:
        _check_residual(leaf, layer.residual(saved, columns[0]), inputs)
    shapes, jacobians = layer.parameter_shapes(), layer.parameter_jacobians(saved)
    if set(jacobians) != set(shapes):
        raise ValueError(f"{leaf}, parameter_jacobians: expected {list(shapes)}, got {list(jacobians)}")
    for key, shape in shapes.items():
        each = jacobians[key].per_sample(columns)
        _check_array(f"{leaf}, per_sample of its {key}", each, (1, len(y), *shape), y.dtype)
    return y


def _check_mjp(leaf: Leaf, below: Any, inputs: Sequence[Array]) -> None:
    """Check the columns below a layer: an array for one input, a tuple of these for several."""
    parts = below if len(inputs) > 1 else (below,)
    if not isinstance(parts, tuple) or len(parts) != len(inputs):
        raise TypeError(f"{leaf}, mjp: expected a tuple of {len(inputs)} arrays, one for each input, got {below!r:.80}")
    for part, each in zip(parts, inputs, strict=True):
        one = leaf.layer.broadcasts and len(each) == 1  # the sweep adds up the columns of a row that is all samples'
        shape = (1, *part.shape[1:2], *each.shape[1:]) if one and is_array(part) else (1, *each.shape)
        _check_array(f"{leaf}, mjp", part, shape, each.dtype)


def _check_residual(leaf: Leaf, residual: Any, inputs: Sequence[Array]) -> None:
    """Check a residual: of one input as an array, or of any number of inputs as `Factored` from a `FactoredLayer`."""
    layer, x, where = leaf.layer, inputs[0], f"{leaf}, residual"
    if not isinstance(layer, FactoredLayer) and len(inputs) == 1:
        d = prod(x.shape[1:])
        residual = residual.root() if isinstance(residual, DiagonalFactors) else residual
        _check_array(where, residual, x.shape if layer.curvature == "diagonal" else (len(x), d, d), x.dtype)
        return
    if not isinstance(layer, FactoredLayer) or not isinstance(residual, Factored):
        kinds = f"{type(residual).__name__} of a {'FactoredLayer' if isinstance(layer, FactoredLayer) else 'Layer'}"
        raise TypeError(f"{where}: expected Factored of a FactoredLayer (gbackprop/calculus/residual.py), got {kinds}")
    width = layer.residual_width(*[each.shape if layer.mixes else each.shape[1:] for each in inputs])
    if residual.width != width:
        raise ValueError(f"{where}: expected {width} columns as residual_width says, got {residual.width}")
    pieces, sign = residual.columns(slice(None))
    if len(pieces) != len(inputs):
        raise ValueError(f"{where}: expected pieces for {len(inputs)} inputs, got {len(pieces)}")
    _check_array(f"{where}, signs", sign, (width, 1 if layer.mixes else len(x)), x.dtype)
    for piece, each in zip(pieces, inputs, strict=True):
        _check_array(f"{where}, columns", piece, (width, *each.shape), x.dtype)


def _check_array(where: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if not is_array(value):
        raise TypeError(f"{where}: expected an array, got {type(value).__name__}")
    if value.shape != tuple(shape):
        raise ValueError(f"{where}: expected shape {tuple(shape)}, got {value.shape}")
    if value.dtype != dtype:
        raise TypeError(f"{where}: expected {dtype} as the input is, got {value.dtype}")
