"""Layers of several inputs, containers, shared parameters: rows of the table of cases."""

from __future__ import annotations

from functools import partial

import numpy as np

from gbackprop import layers as L
from gbackprop.calculus.layer import Layer
from gbackprop.network import Concatenate, Graph, Product, Residual, Sequential, Sum
from gbackprop.testing.cases.rows import LayerRow

product = partial(np.einsum, "...ik,...kj->...ij")

JOINS = (
    LayerRow.of_several(L.Add, [(3,), (3,)], lambda a, b: a + b),
    LayerRow.of_several(L.Add, [(2, 2), (2, 2), (2, 2)], lambda a, b, c: a + b + c),
    LayerRow.of_several(L.Multiply, [(4,), (4,)], lambda a, b: a * b),
    LayerRow.of_several(L.Multiply, [(2, 1, 3), (2, 1, 3)], lambda a, b: a * b),
    LayerRow.of_several(L.Concat, [(2,), (3,)], lambda a, b: np.concatenate([a, b], 1)),
    LayerRow.of_several(lambda: L.Concat(-1), [(2, 1), (2, 3), (2, 2)], lambda *parts: np.concatenate(parts, 2)),
    LayerRow.of_several(lambda: L.Concat(2), [(2, 1, 2), (2, 3, 2)], lambda a, b: np.concatenate([a, b], 2)),
    LayerRow.of_several(L.MatMul, [(2, 3), (3, 4)], product),
    LayerRow.of_several(L.MatMul, [(4, 1), (1, 2)], product),
    LayerRow.of_several(L.MatMul, [(2, 3, 2), (2, 2, 1)], product),
    LayerRow.of_several(L.MatMul, [(1, 3), (3, 1)], product),
)
"""Layers of several inputs."""


def graph() -> Graph:
    """Return a graph in which one output is taken three times, and a layer with parameters stands at two places."""
    shared = L.Linear(2, 2)
    return Graph({
        "left": (shared, "input"),
        "right": (L.Tanh(), "left"),
        "product": (L.MatMul(), "left", "right"),
        "again": (shared, "product"),
        "sum": (L.Add(), "again", "left"),
    })  # fmt: skip


CONTAINERS = (
    LayerRow(lambda: Sequential(L.Linear(4, 3), L.Tanh(), Sequential(L.Linear(3, 2))), (4,)),
    LayerRow(lambda: Sequential(L.Conv2d(1, 2, 2), L.ReLU(), L.Dropout(0.3)), (1, 3, 3)),
    LayerRow(Sequential, (3,), np.copy),
    LayerRow(lambda: Residual(L.Linear(3, 3), L.Tanh()), (3,)),
    LayerRow(lambda: Residual(L.Linear(3, 2), shortcut=L.Linear(3, 2, bias=False)), (3,)),
    LayerRow(lambda: Sum(L.Tanh(), L.Sigmoid(), L.Identity()), (3,)),
    LayerRow(lambda: Product(L.Sigmoid(), L.Linear(3, 3)), (3,)),
    LayerRow(lambda: Concatenate(L.Tanh(), L.Linear(2, 1), axis=-1), (2, 2)),
    LayerRow(graph, (2, 2)),
)


def branched() -> list[Layer]:
    """Return a network with every kind of branch and a parameter of which one use depends on another."""
    return [graph(), L.Flatten(), Residual(L.Linear(4, 4), Product(L.Sigmoid(), L.Tanh())), L.Linear(4, 3)]
