"""The shipped subjects for networks that are not chains: layers of several inputs, containers, shared parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gbackprop import layers
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.network import Concatenate, Graph, Product, Residual, Sequential, Sum
from gbackprop.testing.flat import Flat

Case = tuple[Layer, Shape, Callable[..., np.ndarray] | None]
"""A layer, a feature shape, and what it should compute, ``(x) -> y``, where plain terms for it exist."""


def joins() -> Iterator[Case]:
    """Layers of several inputs, as functions of all of these side by side."""
    yield Flat(layers.Add(), [(3,), (3,)]), (6,), lambda x: x[:, :3] + x[:, 3:]
    yield Flat(layers.Multiply(), [(3,), (3,)]), (6,), lambda x: x[:, :3] * x[:, 3:]
    yield Flat(layers.Concat(-1), [(2, 1), (2, 2)]), (6,), _columns_side_by_side
    yield Flat(layers.MatMul(), [(2, 3), (3, 2)]), (12,), _matrix_product


def _columns_side_by_side(x: np.ndarray) -> np.ndarray:
    return np.stack([x[:, [0, 2, 3]], x[:, [1, 4, 5]]], axis=1)


def _matrix_product(x: np.ndarray) -> np.ndarray:
    product = np.zeros((len(x), 2, 2))
    for i in range(2):
        for j in range(2):
            for k in range(3):
                product[:, i, j] += x[:, 3 * i + k] * x[:, 6 + 2 * k + j]
    return product


def branches() -> Iterator[Case]:
    """Containers whose branches meet."""
    yield Residual(layers.Linear(3, 3), layers.Tanh()), (3,), None
    yield Residual(layers.Linear(3, 2), shortcut=layers.Linear(3, 2, bias=False)), (3,), None
    yield Sum(layers.Tanh(), layers.Sigmoid(), layers.Identity()), (3,), None
    yield Product(layers.Sigmoid(), layers.Linear(3, 3)), (3,), None
    yield Concatenate(layers.Tanh(), layers.Linear(2, 1), axis=-1), (2, 2), None
    yield graph(), (2, 2), None


def graph() -> Graph:
    """Return a graph in which one output is taken three times, and a layer with parameters stands at two places."""
    shared = layers.Linear(2, 2)
    return Graph({
        "left": (shared, "input"),
        "right": (layers.Tanh(), "left"),
        "product": (layers.MatMul(), "left", "right"),
        "again": (shared, "product"),
        "sum": (layers.Add(), "again", "left"),
    })  # fmt: skip


def network(rng: np.random.Generator) -> Sequential:
    """Return a network with every kind of branch and a parameter of which one use depends on another."""
    return Sequential(
        graph(), layers.Flatten(), Residual(layers.Linear(4, 4), Product(layers.Sigmoid(), layers.Tanh())),
        layers.Linear(4, 3), rng=rng, dtype="float64",
    )  # fmt: skip
