"""A test of whether layers that do not ship are affine in their parameters, as the Hessian assumes.

The Jacobian in a parameter must then be the same at other values of it, of both signs and several sizes. For the
diagonal each parameter is changed alone; for the whole Hessian all of a layer are changed at once, because two of them
may be multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import product
from types import MethodType
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite, array_module
from gbackprop.base.checks import is_shipped
from gbackprop.calculus.layer import Layer, Leaf, zeros

FACTORS = (1.0, -1.0, 1e-3, 1e3)
"""Factors of the other values."""

INSTEAD = "DiagGGN, operators.GGN and quantities of gradients"


def lacks_affinity(leaf: Leaf, inputs: Sequence[Array], together: bool = False) -> str | None:
    """Return the reason why a layer has second derivatives in its parameters, or None."""
    layer = leaf.layer
    if loose := [name for name in ("forward", "parameter_jacobians") if _is_loose(layer, vars(layer).get(name))]:
        return f"its {loose[0]} is no method, by which it could be tested (assign types.MethodType(function, layer))"
    others = {key: _changed(layer.parameters[key], k) for k, key in enumerate(leaf.parameters)}
    for key, factor in product(leaf.parameters, FACTORS):
        at = {name: value * value.dtype.type(factor) for name, value in others.items()}
        try:
            depends = _depends(leaf, key, inputs, at if together else {key: at[key]})
        except Exception:  # the layer's own code, which may not take a value of another sign or size
            if factor == 1:
                raise
            continue
        if depends:
            several = together and not _depends(leaf, key, inputs, {key: at[key]})
            of = f"parameters {', '.join(leaf.parameters)} together" if several else f"parameter {key}"
            return f"it is not affine in its {of}, and has no second derivatives there ({INSTEAD} need none)"
    return None


def _is_loose(layer: Layer, function: Any) -> bool:
    """Return whether an attribute is a user's function that may read the layer's parameters, but not a copy's."""
    own = function is not None and not is_shipped(type(function))
    return own and getattr(function, "__self__", None) is not layer


def _depends(leaf: Leaf, key: str, inputs: Sequence[Array], others: Mapping[str, Array]) -> bool:
    """Return whether the Jacobian in a parameter changes with some parameters' values."""
    layer, twin = leaf.layer, replaced(leaf.layer, others)
    one = _product(layer, key, inputs)
    if _differs(one, _product(twin, key, inputs)):
        return True
    if bool((one != 0).any((0, 1)).all()):
        return False
    waves = [_waves(zeros(layer, shape)) for shape in leaf.input_shapes]  # the inputs show nothing of some entries
    return _differs(_product(layer, key, waves), _product(twin, key, waves))


def _differs(one: Array, two: Array) -> bool:
    """Return whether products with two Jacobians differ in an entry of the parameter, by its own size in all rows."""
    if not all_finite(one):
        return False
    if not all_finite(two):
        return True
    size = abs(one).max((0, 1)) + abs(two).max((0, 1))
    return not bool((abs(one - two) <= 1e3 * float(np.finfo(one.dtype).eps) * size).all())


def _changed(value: Array, start: int) -> Array:
    """Return numbers of the same signs that are further from 0, each by another amount."""
    xp = array_module(value)
    sign = xp.where(value < 0, -1, 1).astype(value.dtype)
    return value + sign * (1 + abs(value)) * (1 + _waves(value, start) / 2)


def _waves(like: Array, start: int = 0) -> Array:
    """Return numbers of both signs, of the shape and dtype of `like`; zeros for integers."""
    xp = array_module(like)
    return xp.cos(xp.arange(like.size) + start).reshape(like.shape).astype(like.dtype)


def _product(layer: Layer, key: str, inputs: Sequence[Array]) -> Array:
    """Jᵀ g at a column of both signs."""
    with np.errstate(all="ignore"):
        y, saved = layer.forward(*inputs)
        return layer.parameter_jacobians(saved)[key].per_sample(_waves(y, 2)[None])


def replaced(layer: Layer, values: Mapping[str, Array]) -> Any:
    """Return a copy of a layer with other values of some parameters."""
    twin = copy(layer)
    twin.drawn = {**layer.parameters, **values}
    for name, value in vars(layer).items():
        if isinstance(value, MethodType) and value.__self__ is layer:
            vars(twin)[name] = MethodType(value.__func__, twin)
    return twin
