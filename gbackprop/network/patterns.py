"""Patterns of operations in a graph that are layers: x @ w + b with a parameter w has Kronecker factors and speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gbackprop.layers.joins import Add
from gbackprop.layers.operations.leaves import Parameter
from gbackprop.layers.operations.operation import Operation
from gbackprop.layers.operations.weights import Offset, Turned, Weight

Node = tuple[Any, ...]
"""A layer and the names of its inputs."""


def replaced(nodes: Mapping[str, Sequence[Any]], output: str | None = None) -> dict[str, Node]:
    """Return the nodes of a `Graph` with layers in place of products with a parameter, and of a vector added to one.

    A parameter stays under its name and in its layout, and all results are the same. Only one that a single product
    ``x @ w`` or ``x @ w.T`` takes, or that is added to its result, becomes part of a layer; all others are left alone.
    """
    return _Patterns(nodes, list(nodes)[-1] if output is None else output).found


class _Patterns:
    """The nodes of a graph while layers replace some of them."""

    def __init__(self, nodes: Mapping[str, Sequence[Any]], output: str) -> None:
        self.found: dict[str, Node] = {name: tuple(node) for name, node in nodes.items()}
        self.takers = Counter([output, *(name for node in self.found.values() for name in node[1:])])
        self.places = Counter(id(node[0]) for node in self.found.values())
        self.data = self._with_data()
        for name in nodes:
            self._product(name)
        for name in nodes:
            self._sum(name)

    def _with_data(self) -> set[str]:
        """Return the names of what depends on the inputs, which are no nodes."""
        takers: dict[str, list[str]] = {}
        for name, node in self.found.items():
            for each in node[1:]:
                takers.setdefault(each, []).append(name)
        found, waiting = set(), [name for name in takers if name not in self.found]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += takers.get(name, ())
        return found

    def _product(self, name: str) -> None:
        """Replace x @ w and x @ w.T."""
        layer, *inputs = self.found.get(name, (None,))
        if not _is(layer, "matmul") or len(inputs) != 2 or inputs[0] not in self.data:
            return
        x, weight = inputs
        if self._parameter(weight, 2):
            self._put(name, Weight, weight, x)
        elif _is(self._of(weight), "transpose") and self.takers[weight] == 1:
            transpose, below = self.found[weight]
            if self._parameter(below, 2) and transpose.bound(self._of(below).shape).axes == (-1, -2):
                del self.found[weight]
                self._put(name, Turned, below, x)

    def _sum(self, name: str) -> None:
        """Replace the sum of a product that was replaced and a vector."""
        layer, *inputs = self.found.get(name, (None,))
        if not (_is(layer, "add") or type(layer) is Add) or len(inputs) != 2:
            return
        for x, bias in (inputs, inputs[::-1]):
            product = self._of(x)
            if isinstance(product, Weight | Turned) and self._parameter(bias, 1):
                if self._of(bias).shape == (product.out_features,):
                    self._put(name, Offset, bias, x)
                return

    def _of(self, name: str) -> Any:
        """Return the layer of a node, None of the input."""
        return self.found.get(name, (None,))[0]

    def _parameter(self, name: str, ndim: int) -> bool:
        """Return whether a node is a parameter with some axes that one node takes, and that is nowhere else."""
        layer = self._of(name)
        alone = self.takers[name] == 1 and self.places[id(layer)] == 1
        return type(layer) is Parameter and len(layer.shape) == ndim and alone

    def _put(self, name: str, kind: Any, parameter: str, x: str) -> None:
        """Put a layer with a parameter that was a node of its own at a node."""
        self.found[name] = kind(parameter, self.found.pop(parameter)[0]), x


def _is(layer: Any, name: str) -> bool:
    """Return whether a layer is an operation of a name."""
    return isinstance(layer, Operation) and layer.name == name
