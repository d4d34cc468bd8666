"""Kronecker factors by brute force: A from what a weight is multiplied with, B from dense Jacobians of the bias."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.layers.elementwise.prelu import PReLU
from gbackprop.layers.norms.affine import Matrix, Shift
from gbackprop.layers.norms.batchnorm import _BatchNorm
from gbackprop.layers.norms.normalization import Norm
from gbackprop.layers.norms.scale import Scale
from gbackprop.testing.complex_steps import complex_derivative, flat, passes

Oracle = dict[str, dict[str, Any]]
"""Quantity name -> parameter name -> array, or (A, B) for Kronecker factors."""

ENTRYWISE = (PReLU, Norm, Shift, Scale, _BatchNorm)
"""Layers of which each parameter multiplies or shifts numbers one by one: B is its own curvature, and there is no A."""


def input_square(layer: Layer, *inputs: np.ndarray) -> np.ndarray:
    """Σₙₜ u uᵀ, shape (I, I), or (G, I, I) for G groups."""
    seen = weight_inputs(layer, *inputs)
    squares = np.einsum("gnti,gntj->gij", seen, seen)
    return squares if len(squares) > 1 else squares[0]


def weight_inputs(layer: Layer, *inputs: np.ndarray) -> np.ndarray:
    """u, shape (G, N, T, I): what the weight of one output feature, a group's first, is multiplied with.

    By complex steps in that weight, at the outputs that depend on it; 0 for those of which no sample does.
    """
    weight, y = by_output(layer, layer.parameters[_weight(layer)]), layer.forward(*inputs)[0]
    u = np.zeros((len(weight), len(y), y[0].size // prod(weight.shape[:2]), prod(weight.shape[2:])))
    for of_group, row in zip(u, weight[:, 0], strict=True):
        places = _places(layer, row, *inputs)
        outputs = lambda at=places: layer.forward(*inputs)[0].reshape(len(y), -1)[:, at]  # noqa: E731
        of_group[:, : places.sum()] = complex_derivative(outputs, row).reshape(len(y), -1, row.size)
    return u


def _places(layer: Layer, row: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    """Return which outputs of a sample, flat, change with a row of the weight, a view: in any sample."""
    y, before = layer.forward(*inputs)[0], row.copy()
    try:
        row += 1 + np.abs(row)
        return (layer.forward(*inputs)[0] != y).reshape(len(y), -1).any(0)
    finally:
        row[...] = before


def by_output(layer: Layer, weight: np.ndarray) -> np.ndarray:
    """View what has a weight's axes first as ``[G, O, *inputs, …]``: its groups, their outputs, what these see."""
    groups = groups_of(layer)
    split = weight.reshape(groups, -1, *weight.shape[1:])
    return split.swapaxes(1, 2) if layer.weight_order == "IO" else split  # (C, O / G, *kernel)


def groups_of(layer: Layer) -> int:
    """Return the number of groups of a layer: a grouped convolution is as many convolutions side by side."""
    groups = getattr(layer, "groups", 1)
    return groups if isinstance(groups, int) else 1  # a user's attribute may bear that name


def b_of_weight(layer: Layer, b: np.ndarray) -> np.ndarray:
    """B of a layer's weight from that of its bias: of groups, that of each convolution's own outputs."""
    own = np.arange(len(b)).reshape(groups_of(layer), -1)  # the outputs of each
    return b if len(own) == 1 else np.stack([b[np.ix_(outputs, outputs)] for outputs in own])


def _bias_key(layer: Layer) -> str:
    """Return what a layer calls its bias, or a matrix's twin calls its own."""
    return f"{layer.key}_bias" if isinstance(layer, Matrix) else layer.key if isinstance(layer, Shift) else "bias"


def _weight(layer: Layer) -> str:
    """Return what a layer calls its weight, if it has one."""
    return layer.key if isinstance(layer, Matrix) else "weight"


def _has_factors(layer: Layer) -> bool:
    """Return whether a layer has a weight or shifts numbers, and gives no reason why it has no Kronecker factors."""
    own = _weight(layer) in layer.parameters or isinstance(layer, Shift)
    return own and not isinstance(layer.kronecker_factors, str)


def kronecker(
    names: list[str], leaves: list[Leaf], x: np.ndarray, jacobians: dict, curvatures: dict, factor: float
) -> Oracle:
    """Compute the oracle of the Kronecker factors, from dense Jacobians and the curvature at the outputs."""
    found: Oracle = {kind: {} for kind in curvatures}
    total: dict[str, Any] = {}  # A, over all uses of a weight
    for leaf, arriving, _, _ in passes(leaves, x):
        entrywise = isinstance(leaf.layer, ENTRYWISE)
        if not _has_factors(leaf.layer) or not (entrywise or _bias(leaf) in jacobians):  # a user's may have no bias
            continue
        name = "" if entrywise else leaf.parameters[_weight(leaf.layer)]
        if not entrywise:
            total[name] = total.get(name, 0) + input_square(leaf.layer, *arriving) / len(x)
        for kind, curvature in curvatures.items():
            for own in [own for own in leaf.parameters.values() if own in names] if entrywise else [_bias(leaf)]:
                jacobian = jacobians[own].reshape(len(x), curvature.shape[1], -1)
                b = factor * np.einsum("nco,ncd,ndp->op", jacobian, curvature, jacobian, optimize=True)
                found[kind] |= {own: (None, b)} if entrywise else _named(names, leaf, total[name], b)
    return found


def kfra(names: list[str], leaves: list[Leaf], x: np.ndarray, average: np.ndarray, lowest: int) -> dict[str, Any]:
    """Compute the factors of KFRA, by its recursion over the layers down to the lowest, by its position."""
    found: dict[str, Any] = {}
    n = len(x)
    for leaf, (arriving,), _, _ in reversed(list(passes(leaves, x))):
        layer, key = leaf.layer, _bias_key(leaf.layer)
        alone = isinstance(layer, Shift)
        if key in layer.parameters and _has_factors(layer) and (alone or not isinstance(layer, ENTRYWISE)):
            # J of the outputs in the bias, shape (D, O), is the same for every sample
            first = lambda of=layer, x=arriving[:1]: flat(of.forward(x)[0])[0]  # noqa: E731
            bias = complex_derivative(first, layer.parameters[key])
            b = bias.T @ average @ bias
            both = {} if alone else _named(names, leaf, input_square(layer, arriving) / n, b)
            found |= both or {leaf.parameters[key]: (None, b)}
        if leaf.position == lowest:
            break
        jacobian = input_jacobian(leaf.layer, arriving)
        average = np.einsum("nai,ab,nbj->ij", jacobian, average, jacobian, optimize=True) / n
    return found


def input_jacobian(layer: Layer, x: np.ndarray) -> np.ndarray:
    """J of a layer's outputs in its inputs, shape (N, D, D'), by complex steps; samples must not interact."""
    step = np.zeros((1, *x.shape[1:]), dtype=np.complex128)
    jacobian = complex_derivative(lambda: flat(layer.forward(x + step)[0]), step)
    return jacobian.reshape(*jacobian.shape[:2], -1)


def _bias(leaf: Leaf) -> str:
    """Return the name of a layer's bias, also of one that only the twin has."""
    if isinstance(leaf.layer, Matrix):
        return f"{leaf.parameters[leaf.layer.key]}_bias"
    return leaf.parameters.get("bias") or leaf.parameters["weight"].removesuffix("weight") + "bias"


def _named(names: list[str], leaf: Leaf, a: np.ndarray | None, b: np.ndarray) -> dict[str, Any]:
    """(A, B) of a weight and (None, B) of a bias, as far as the network really has them."""
    both = {leaf.parameters[_weight(leaf.layer)]: (a, b_of_weight(leaf.layer, b)), _bias(leaf): (None, b)}
    return {name: value for name, value in both.items() if name in names}
