"""Layers whose parameters were nodes of their own: y = x w + b, and any other, with the nodes' names and values."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.jacobian import Outer, ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.views import Swapped
from gbackprop.layers.linear import Linear
from gbackprop.layers.operations.leaves import Parameter


class Weight(Linear):
    """y = x w + b at every position, with a weight (I, O)."""

    weight_order = "IO"
    formulas = {"forward": "y = x w + b", "mjp": "g wᵀ"}

    def parameter_shapes(self) -> dict[str, Shape]:
        return super().parameter_shapes() | {"weight": (self.in_features, self.out_features)}

    def forward(self, x: Array) -> tuple[Array, Any]:
        y = x @ self.parameters["weight"]
        return y + self.parameters["bias"] if self.bias else y, x

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat @ self.parameters["weight"]

    def mjp(self, saved: Any, mat: Array) -> Array:
        return mat @ self.parameters["weight"].T

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        found = super().parameter_jacobians(saved)
        matrix = found["weight"]
        assert isinstance(matrix, Outer)
        return found | {"weight": Swapped(matrix)}


def take(layer: Any, key: str, name: str, node: Parameter) -> None:
    """Give a parameter of a layer the name, the value, the dtype and the draws of a node, and whether it is frozen."""
    layer.node_parameters = {**layer.node_parameters, key: (name, Parameter(node.shape, node.initial))}
    layer.dtype, layer.frozen = node.dtype, layer.frozen | ({key} if node.frozen else frozenset())
    layer.drawn = None if node.drawn is None else {**(layer.drawn or {}), key: node.drawn[""]}
