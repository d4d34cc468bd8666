"""Layers for the functions and methods that a torch module calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.interop.arguments import constructed
from gbackprop.interop.arithmetic import ARITHMETIC, Found, Tensor, arithmetic

REQUIRED = object()
"""Stands for no default."""

POOL = {"kernel_size": REQUIRED, "stride": None, "padding": 0}
MAX_POOL = {**POOL, "dilation": 1, "ceil_mode": False, "return_indices": False}
AVG_POOL = {**POOL, "ceil_mode": False, "count_include_pad": True, "divisor_override": None}
INPLACE = {"inplace": False}
ALONG = {"dim": None, "_stacklevel": 3, "dtype": None}

FUNCTIONS: dict[str, tuple[type[Layer], Mapping[str, Any]]] = {
    "relu": (layers.ReLU, INPLACE),
    "relu6": (layers.ReLU6, INPLACE),
    "leaky_relu": (layers.LeakyReLU, {"negative_slope": 0.01, **INPLACE}),
    "elu": (layers.ELU, {"alpha": 1.0, **INPLACE}),
    "selu": (layers.SELU, INPLACE),
    "celu": (layers.CELU, {"alpha": 1.0, **INPLACE}),
    "hardtanh": (layers.Hardtanh, {"min_val": -1.0, "max_val": 1.0, **INPLACE}),
    "hardsigmoid": (layers.Hardsigmoid, INPLACE),
    "hardswish": (layers.Hardswish, INPLACE),
    "hardshrink": (layers.Hardshrink, {"lambd": 0.5}),
    "softshrink": (layers.Softshrink, {"lambd": 0.5}),
    "tanhshrink": (layers.Tanhshrink, {}),
    "sigmoid": (layers.Sigmoid, {}),
    "logsigmoid": (layers.LogSigmoid, {}),
    "tanh": (layers.Tanh, {}),
    "softplus": (layers.Softplus, {"beta": 1.0, "threshold": 20.0}),
    "softsign": (layers.Softsign, {}),
    "silu": (layers.SiLU, INPLACE),
    "mish": (layers.Mish, INPLACE),
    "gelu": (layers.GELU, {"approximate": "none"}),
    "softmax": (layers.Softmax, ALONG),
    "log_softmax": (layers.LogSoftmax, ALONG),
    "max_pool1d": (layers.MaxPool1d, MAX_POOL),
    "max_pool2d": (layers.MaxPool2d, MAX_POOL),
    "max_pool3d": (layers.MaxPool3d, MAX_POOL),
    "avg_pool1d": (layers.AvgPool1d, AVG_POOL),
    "avg_pool2d": (layers.AvgPool2d, AVG_POOL),
    "avg_pool3d": (layers.AvgPool3d, AVG_POOL),
    "adaptive_avg_pool1d": (layers.AdaptiveAvgPool1d, {"output_size": REQUIRED}),
    "adaptive_avg_pool2d": (layers.AdaptiveAvgPool2d, {"output_size": REQUIRED}),
    "adaptive_avg_pool3d": (layers.AdaptiveAvgPool3d, {"output_size": REQUIRED}),
    "adaptive_max_pool1d": (layers.AdaptiveMaxPool1d, {"output_size": REQUIRED, "return_indices": False}),
    "adaptive_max_pool2d": (layers.AdaptiveMaxPool2d, {"output_size": REQUIRED, "return_indices": False}),
    "adaptive_max_pool3d": (layers.AdaptiveMaxPool3d, {"output_size": REQUIRED, "return_indices": False}),
    "pixel_shuffle": (layers.PixelShuffle, {"upscale_factor": REQUIRED}),
    "pixel_unshuffle": (layers.PixelUnshuffle, {"downscale_factor": REQUIRED}),
}
"""Functions of one tensor: the layer, and torch's arguments after the tensor, in order, with their defaults."""

PRODUCTS = {"matmul", "bmm"}
"""Products of matrices."""

RESHAPES = {"flatten", "view", "reshape", "unflatten", "squeeze", "unsqueeze"}
"""Functions that are known by the shapes of their inputs and outputs."""

MODULES = (torch, torch.nn.functional, operator)
"""The modules in which functions are looked up by name."""


def found(target: Any, name: str, args: Sequence[Any], keywords: Mapping[str, Any], shape: Shape) -> Found:
    """Return the layers that compute a function or a method."""
    if not isinstance(target, str) and not any(getattr(module, name, None) is target for module in MODULES):
        raise UnsupportedError(f"there is no layer for the function {name}")
    try:
        return _found(name, args, dict(keywords), shape)
    except UnsupportedError as error:
        raise UnsupportedError(f"{name}: {error}") from error


def _found(name: str, args: Sequence[Any], keywords: dict[str, Any], shape: Shape) -> Found:
    if name in ("cat", "concat", "concatenate"):
        return _concatenation(args, keywords)
    if name in ARITHMETIC:
        return arithmetic(name, args, keywords)
    if name in PRODUCTS:
        return _matrix_product(args, keywords)
    x, *rest = (keywords.pop("input"), *args) if "input" in keywords else args
    if not isinstance(x, Tensor) or any(isinstance(value, Tensor) for value in (*rest, *keywords.values())):
        raise UnsupportedError("expected one tensor, which the network computes")
    if name in RESHAPES:
        return _reshape(x.shape, shape), [x]
    if name in MOVES:
        return MOVES[name](x, *rest, **keywords), [x]
    if name not in FUNCTIONS:
        raise UnsupportedError("there is no layer for it")
    kind, defaults = FUNCTIONS[name]
    return [constructed(kind, _bound(defaults, rest, keywords))], [x]


def _bound(defaults: Mapping[str, Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return (value, default) of each argument by name."""
    if len(args) > len(defaults) or not set(keywords) <= set(defaults):
        raise UnsupportedError(f"expected the arguments {list(defaults)}, got {list(args)} and {dict(keywords)}")
    values = {**dict(zip(defaults, args)), **keywords}
    return {name: (value, defaults[name]) for name, value in values.items()}


def _matrix_product(args: Sequence[Any], keywords: dict[str, Any]) -> Found:
    inputs = [*args, *(keywords.pop(key) for key in ("input", "other", "mat2") if key in keywords)]
    if keywords or not all(isinstance(value, Tensor) for value in inputs):
        raise UnsupportedError("expected two tensors, which the network computes, and no further argument")
    return [layers.MatMul()], inputs


def _concatenation(args: Sequence[Any], keywords: Mapping[str, Any]) -> Found:
    given = {**dict(zip(("tensors", "dim"), args)), **keywords}
    inputs, axis = list(given["tensors"]), given.get("dim", given.get("axis", 0))
    if len(inputs) < 2 or not all(isinstance(value, Tensor) for value in inputs):
        raise UnsupportedError("expected several tensors, which the network computes")
    return [constructed(layers.Concat, {"axis": (axis, 0)})], inputs


def _reshape(before: Shape, after: Shape) -> list[Layer]:
    """Return what merges the axes of one shape and splits them into those of the other, where the two differ."""
    if after[:1] != before[:1] or prod(before) != prod(after):
        raise UnsupportedError(f"expected that the batch remains axis 0, got shape {after} from {before}")
    if before == after:
        return []
    first = _equal_axes(before, after)
    last = _equal_axes(before[: first - 1 : -1], after[: first - 1 : -1])
    if first + last == min(len(before), len(after)):  # an axis of one place is new or gone: a neighbour has it, too
        first, last = (first - 1, last) if first > 1 else (first, last - 1)
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if last < 0:
        raise UnsupportedError(f"expected features with axes, got shape {after} from {before}")
    merge = [layers.Flatten(first, first + len(old) - 1 if last else -1)] if len(old) > 1 else []
    return [*merge, *([layers.Unflatten(first, new)] if len(new) > 1 else [])]


def _equal_axes(one: Shape, other: Shape) -> int:
    """Return how many sizes two shapes have in common at their start."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def _permute(x: Tensor, *dims: Any, **keywords: Any) -> list[Layer]:
    order = keywords.get("dims", dims[0] if len(dims) == 1 else dims)
    axes = tuple(axis % len(x.shape) for axis in order)
    return [constructed(layers.Permute, {"dims": (axes, None)})]


def _transpose(x: Tensor, dim0: int, dim1: int) -> list[Layer]:
    axes = list(range(len(x.shape)))
    axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return _permute(x, axes)


def _select(x: Tensor, dim: int, index: int) -> list[Layer]:
    return [constructed(layers.Select, {"dim": (dim, None), "index": (index, None)})]


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> list[Layer]:
    if training:
        raise UnsupportedError("it drops in evaluation mode, too, expected training=self.training")
    return [constructed(layers.Dropout, {"p": (p, 0.5)})]


def item(x: Tensor, index: Any) -> list[Layer]:
    """Return the layers that take some of the features: integers and slices after the whole batch."""
    first, *others = index if isinstance(index, tuple) else (index,)
    plain = all(isinstance(part, int | slice) for part in others)
    if first != slice(None) or not plain:
        raise UnsupportedError(f"expected the whole batch, then integers and slices, got {index}")
    made = []
    for dim in range(len(others), 0, -1):  # from the last axis, as an integer removes one
        part = others[dim - 1]
        if isinstance(part, int):
            made += _select(x, dim, part)
        elif part != slice(None):
            given = {"start": (part.start, None), "end": (part.stop, None), "step": (part.step or 1, 1)}
            made.append(constructed(layers.Slice, {"dim": (dim, None), **given}))
    return made


def _nothing(x: Tensor) -> list[Layer]:
    return []


MOVES: dict[str, Callable[..., list[Layer]]] = {
    "permute": _permute,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "select": _select,
    "dropout": _dropout,
    "getitem": item,
    "contiguous": _nothing,
}
"""Further functions of one tensor."""
