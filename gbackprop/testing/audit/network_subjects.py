"""Small networks with loss and batch, on which every quantity that ships is audited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gbackprop import layers, losses
from gbackprop.calculus.layer import Layer
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.testing.audit import graph_subjects as graphs
from gbackprop.testing.audit import sequences


@dataclass(frozen=True)
class NetworkCase:
    """A small network with loss and batch, for every quantity."""

    network: Sequential
    loss: Loss
    x: np.ndarray
    y: np.ndarray


def network_cases(rng: np.random.Generator) -> Iterator[NetworkCase]:
    """Networks that between them have every kind of signal, sharing, reduction and nesting."""
    makes = (_classifier, _curved, _convolutional, _nested, _sequences, _grouped, _graph, _attention)
    for make in (*makes, _segmenting, _counting, _robust, _likely, _flat):
        yield make(rng)


def _network(rng: np.random.Generator, *parts: Layer) -> Sequential:
    return Sequential(*parts, rng=rng, dtype="float64")


def _classifier(rng: np.random.Generator) -> NetworkCase:
    network = _network(rng, layers.Linear(4, 3))
    return NetworkCase(network, losses.CrossEntropyLoss("sum"), rng.standard_normal((4, 4)), rng.integers(0, 3, 4))


def _curved(rng: np.random.Generator) -> NetworkCase:
    parts = (layers.Linear(4, 5), layers.Tanh(), layers.Linear(5, 4), layers.Sigmoid(), layers.Linear(4, 3))
    x = rng.standard_normal((5, 4))
    return NetworkCase(_network(rng, *parts), losses.CrossEntropyLoss(), x, rng.integers(0, 3, 5))


def _convolutional(rng: np.random.Generator) -> NetworkCase:
    parts = (layers.Conv2d(1, 2, 3), layers.Sigmoid(), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(8, 3))
    x = rng.standard_normal((4, 1, 6, 6))
    return NetworkCase(_network(rng, *parts), losses.CrossEntropyLoss(), x, rng.integers(0, 3, 4))


def _nested(rng: np.random.Generator) -> NetworkCase:
    inner = Sequential(layers.ReLU(), layers.AvgPool2d(2, padding=1), Sequential(layers.Dropout(0.5)))
    first = layers.Conv2d(2, 2, 3, stride=2, padding=1, bias=False)
    network = _network(rng, first, inner, layers.Flatten(), layers.Linear(8, 2))
    return NetworkCase(network, losses.MSELoss(), rng.standard_normal((3, 2, 4, 4)), rng.standard_normal((3, 2)))


def _sequences(rng: np.random.Generator) -> NetworkCase:
    network = _network(rng, layers.Linear(3, 2), layers.Tanh(), layers.Linear(2, 2))
    return NetworkCase(network, losses.BCEWithLogitsLoss(), rng.standard_normal((4, 3, 3)), rng.random((4, 3, 2)))


def _graph(rng: np.random.Generator) -> NetworkCase:
    x, y = rng.standard_normal((3, 2, 2)), rng.integers(0, 3, 3)
    return NetworkCase(graphs.network(rng), losses.CrossEntropyLoss(), x, y)


def _attention(rng: np.random.Generator) -> NetworkCase:
    x, y = rng.standard_normal((3, 3, 2)), rng.integers(0, 3, 3)
    return NetworkCase(sequences.network(rng), losses.CrossEntropyLoss(), x, y)


def _grouped(rng: np.random.Generator) -> NetworkCase:
    parts = (layers.ZeroPad2d((1, 0, 0, 1)), layers.Conv2d(2, 4, 2, groups=2), layers.Sigmoid(), layers.Identity())
    network = _network(rng, *parts, layers.Flatten(), layers.Linear(16, 2, bias=False))
    x, y = rng.standard_normal((3, 2, 2, 2)), rng.standard_normal((3, 2))
    return NetworkCase(network, losses.MSELoss("sum"), x, y)


def _segmenting(rng: np.random.Generator) -> NetworkCase:
    network = _network(rng, layers.Conv2d(1, 2, 2, padding=1), layers.Tanh(), layers.Conv2d(2, 3, 2))
    loss = losses.CrossEntropyLoss(weight=np.array([0.5, 2.0, 1.0]), ignore_index=-100, label_smoothing=0.1)
    y = rng.integers(0, 3, (3, 2, 2))
    y[0, 0] = -100
    return NetworkCase(network, loss, rng.standard_normal((3, 1, 2, 2)), y)


def _counting(rng: np.random.Generator) -> NetworkCase:
    network = _network(rng, layers.Linear(3, 4), layers.Sigmoid(), layers.Linear(4, 2))
    return NetworkCase(network, losses.PoissonNLLLoss(), rng.standard_normal((4, 3)), rng.poisson(2.0, (4, 2)) * 1.0)


def _robust(rng: np.random.Generator) -> NetworkCase:
    network = _network(rng, layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2))
    return NetworkCase(network, losses.HuberLoss(), rng.standard_normal((4, 3)), 2 * rng.standard_normal((4, 2)))


def _likely(rng: np.random.Generator) -> NetworkCase:
    network = _network(rng, layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), layers.Sigmoid())
    return NetworkCase(network, losses.BCELoss(), rng.standard_normal((4, 3)), rng.random((4, 2)))


def _flat(rng: np.random.Generator) -> NetworkCase:
    network = _network(rng, layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 3), layers.LogSoftmax(1))
    return NetworkCase(network, losses.NLLLoss(), rng.standard_normal((4, 3)), rng.integers(0, 3, 4))
