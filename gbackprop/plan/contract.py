"""The contract of layers: what each layer that does not ship is checked for, at its first call."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from gbackprop.array import Array, all_finite, array_module, is_array
from gbackprop.layers.base import Leaf
from gbackprop.layers.residual import Factored, FactoredLayer


def check_contract(leaf: Leaf, *inputs: Array) -> Array:
    """Check that a layer does on a few samples what every layer must do, and give its output.

    Parameters
    ----------
    leaf : Leaf
    *inputs : ndarray, shape (n, *in)
        Finite; one for each input.

    Raises
    ------
    TypeError
        If a method gives something other than arrays of the input's dtype.
    ValueError
        If a shape is wrong, finite input gives NaN or infinity, the layer writes into its input, or a parameter has no
        Jacobian.
    """
    layer, x, before = leaf.layer, inputs[0], [each.copy() for each in inputs]
    y, saved = layer.forward(*inputs)
    _check_array(f"{leaf}, forward", y, (len(x), *leaf.output_shape), x.dtype)
    if not all_finite(y):
        raise ValueError(f"{leaf}, forward: expected finite numbers for finite input, got NaN or infinity")
    if not all(bool((each == same).all()) for each, same in zip(inputs, before, strict=True)):
        raise ValueError(f"{leaf}, forward: expected an input that is left as it is, got one that is written over")
    if layer.curvature not in ("zero", "diagonal", "dense"):
        raise ValueError(f"{leaf}: curvature: expected 'zero', 'diagonal' or 'dense', got {layer.curvature!r}")
    columns = array_module(y).ones((1, *y.shape), dtype=y.dtype)
    below = layer.mjp(saved, columns)
    parts = below if len(inputs) > 1 else (below,)
    if not isinstance(parts, tuple) or len(parts) != len(inputs):
        raise TypeError(f"{leaf}, mjp: expected a tuple of {len(inputs)} arrays, one for each input, got {below!r:.80}")
    for part, each in zip(parts, inputs, strict=True):
        _check_array(f"{leaf}, mjp", part, (1, *each.shape), x.dtype)
    if layer.curvature != "zero":
        _check_residual(leaf, layer.residual(saved, columns[0]), inputs)
    shapes, jacobians = layer.parameter_shapes(), layer.parameter_jacobians(saved)
    if set(jacobians) != set(shapes):
        raise ValueError(f"{leaf}, parameter_jacobians: expected {list(shapes)}, got {list(jacobians)}")
    for key, shape in shapes.items():
        each = jacobians[key].per_sample(columns)
        _check_array(f"{leaf}, per_sample of its {key}", each, (1, len(x), *shape), x.dtype)
    return y


def _check_residual(leaf: Leaf, residual: Any, inputs: Sequence[Array]) -> None:
    """Check a residual: of one input as an array, or of any number of inputs as `Factored` from a `FactoredLayer`."""
    layer, x, where = leaf.layer, inputs[0], f"{leaf}, residual"
    if not isinstance(layer, FactoredLayer) and len(inputs) == 1:
        d = prod(x.shape[1:])
        _check_array(where, residual, x.shape if layer.curvature == "diagonal" else (len(x), d, d), x.dtype)
        return
    if not isinstance(layer, FactoredLayer) or not isinstance(residual, Factored):
        kinds = f"{type(residual).__name__} of a {'FactoredLayer' if isinstance(layer, FactoredLayer) else 'Layer'}"
        raise TypeError(f"{where}: expected Factored of a FactoredLayer (gbackprop/layers/residual.py), got {kinds}")
    width = layer.residual_width(*leaf.input_shapes)
    if residual.width != width:
        raise ValueError(f"{where}: expected {width} columns as residual_width says, got {residual.width}")
    pieces, sign = residual.columns(slice(None))
    if len(pieces) != len(inputs):
        raise ValueError(f"{where}: expected pieces for {len(inputs)} inputs, got {len(pieces)}")
    _check_array(f"{where}, signs", sign, (width, len(x)), x.dtype)
    for piece, each in zip(pieces, inputs, strict=True):
        _check_array(f"{where}, columns", piece, (width, *each.shape), x.dtype)


def _check_array(where: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if not is_array(value):
        raise TypeError(f"{where}: expected an array, got {type(value).__name__}")
    if value.shape != tuple(shape):
        raise ValueError(f"{where}: expected shape {tuple(shape)}, got {value.shape}")
    if value.dtype != dtype:
        raise TypeError(f"{where}: expected {dtype} as the input is, got {value.dtype}")
