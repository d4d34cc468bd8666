"""Maps by a parameter that was a node of its own: y = x w, y = x wᵀ, y = x + b, with the node's name and layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.calculus.jacobian import Outer, ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.views import Swapped
from gbackprop.layers.norms.affine import Matrix, Shift
from gbackprop.layers.operations.leaves import Parameter


class Weight(Matrix):
    """y = x w at every position, with a weight (I, O)."""

    formulas = {"forward": "y = x w", "mjp": "g wᵀ"}

    def __init__(self, key: str, node: Parameter) -> None:
        inputs, outputs = node.shape
        super().__init__(key, inputs, outputs, 0.0)
        self.initial, self.out_channels = node.initial, outputs
        take(self, node)

    def parameter_shapes(self) -> dict[str, Shape]:
        return {self.key: (self.in_features, self.out_features)}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return drawn_as_node(self, rng)

    @property
    def matrix(self) -> Array:
        return self.parameters[self.key]

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        matrix = super().parameter_jacobians(saved)[self.key]
        assert isinstance(matrix, Outer)
        return {self.key: Swapped(matrix)}


class Turned(Matrix):
    """y = x wᵀ at every position, with a weight (O, I)."""

    def __init__(self, key: str, node: Parameter) -> None:
        outputs, inputs = node.shape
        super().__init__(key, inputs, outputs, 0.0)
        self.initial = node.initial
        take(self, node)

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return drawn_as_node(self, rng)


class Offset(Shift):
    """y = x + b at every position."""

    def __init__(self, key: str, node: Parameter) -> None:
        (features,) = node.shape
        super().__init__(key, features, 0.0)
        self.initial = node.initial
        take(self, node)

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return drawn_as_node(self, rng)


def take(layer: Any, node: Parameter) -> None:
    """Give a layer the value, the dtype and the frozen name of a node."""
    layer.dtype, layer.frozen = node.dtype, frozenset({layer.key} if node.frozen else ())
    layer.drawn = None if node.drawn is None else {layer.key: node.drawn[""]}


def drawn_as_node(layer: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw the parameter as its node does."""
    (shape,) = layer.parameter_shapes().values()
    return {layer.key: Parameter(shape, layer.initial).draw(rng)[""]}


def named_by_node(layer: Layer) -> bool:
    """Return whether a layer's parameter has the name of a node that it replaces, and not one below its own."""
    return isinstance(layer, Weight | Turned | Offset)
