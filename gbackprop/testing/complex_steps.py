"""Derivatives by complex steps, and the passes through a network that they are taken of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from gbackprop.calculus.jacobian import Bias, ParameterJacobian
from gbackprop.calculus.layer import INPUT, Layer, Leaf, Shape
from gbackprop.calculus.walk import values_upwards
from gbackprop.layers.norms.affine import Matrix

STEP = 1e-30
"""Any step this small is exact: its square vanishes beside 1."""


def complex_derivative(function: Callable[[], np.ndarray], point: np.ndarray) -> np.ndarray:
    """∂ function() / ∂ point, by complex steps in each entry of `point`, which is changed in place and restored."""
    derivatives = []
    for index in np.ndindex(point.shape):
        with stepped(point, index):
            derivatives.append(function().imag / STEP)
    stacked = np.stack(derivatives, axis=-1)
    return stacked.reshape(*stacked.shape[:-1], *point.shape)


@contextmanager
def stepped(point: np.ndarray, index: tuple[int, ...]) -> Iterator[None]:
    """Let an entry of `point` be a complex step away, in place."""
    before = point[index]
    point[index] = before + 1j * STEP
    try:
        yield
    finally:  # whatever a user's layer raises of complex numbers
        point[index] = before


def complex_copy(network: Layer) -> Any:
    """Return a network with the same parameters, none frozen, as complex128, and zeros for each bias it could have."""
    twin = copy.deepcopy(network)
    for _, layer in twin.named_layers():
        layer.drawn = {name: np.array(value, dtype=np.complex128) for name, value in layer.parameters.items()}
        layer.frozen = frozenset()
        if give_bias(layer):
            for name, node in [*layer.node_parameters.values()]:
                layer.node_parameters = {**layer.node_parameters, "bias": (f"{name}'s bias", node)}
            layer.drawn["bias"] = np.zeros(layer.parameter_shapes()["bias"], dtype=np.complex128)
        if isinstance(layer, Matrix):
            layer.__class__ = type("_Biased", (_Biased, type(layer)), {})
            layer.drawn[f"{layer.key}_bias"] = np.zeros(layer.out_features, dtype=np.complex128)
    return twin


def give_bias(layer: Any) -> bool:
    """Let a layer without its `bias` have one; return whether it now has: another's option may bear that name."""
    if vars(layer).get("bias") is not False:
        return False
    layer.bias = True
    layer.bias = "bias" in layer.parameter_shapes()
    return layer.bias


class _Biased(Matrix):
    """A matrix with a bias."""

    def parameter_shapes(self) -> dict[str, Shape]:
        return super().parameter_shapes() | {f"{self.key}_bias": (self.out_features,)}

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        y, saved = super().forward(x)
        return y + self.parameters[f"{self.key}_bias"], saved

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return super().parameter_jacobians(saved) | {f"{self.key}_bias": Bias(self.rows)}


def without_derivative(leaves: list[Leaf]) -> dict[str, Any]:
    """Return the rows of parameters, by name, whose derivative is 0 by convention."""
    rows = ((leaf.parameters.get(key), row) for leaf in leaves for key, row in leaf.layer.without_derivative.items())
    return {name: row for name, row in rows if name is not None}


class Passed(NamedTuple):
    """A layer at its place, with what it took and gave in a forward pass."""

    leaf: Leaf
    inputs: list[np.ndarray]
    output: np.ndarray
    saved: Any


def passes(leaves: list[Leaf], x: np.ndarray) -> Iterator[Passed]:
    """Pass a batch through the layers of a network, one after the other; all that is seen has N rows."""
    at = {INPUT: x}
    for leaf, inputs in values_upwards(leaves, at):
        at[leaf.position], saved = leaf.layer.forward(*inputs)
        seen = [*inputs, at[leaf.position]]
        *rows, output = [each if len(each) == len(x) else each.repeat(len(x), 0) for each in seen]
        yield Passed(leaf, rows, output, saved)


def flat(values: np.ndarray) -> np.ndarray:
    """Return values as one row for each sample, ``[N, *out] -> [N, D]``."""
    return values.reshape(len(values), -1)
