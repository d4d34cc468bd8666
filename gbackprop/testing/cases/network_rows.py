"""Small networks with loss and batch, for every quantity: rows of the table of cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop import layers as L
from gbackprop import losses
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.network import Sequential
from gbackprop.testing.cases.branches import branched
from gbackprop.testing.cases.loss_rows import IGNORED, targets
from gbackprop.testing.cases.sequences import attentive


@dataclass(frozen=True)
class NetworkRow:
    """A network with a loss, and the shape of a batch, ``(N, *in)``."""

    make: Callable[[], list[Layer]]  # new ones at each call
    loss: losses.Loss
    batch_shape: Shape

    def network(self, rng: Any = 0) -> Sequential:
        """Return the network in float64, its parameters drawn."""
        return Sequential(*self.make(), rng=rng, dtype="float64")

    def batch(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch and its targets."""
        out = Sequential(*self.make()).output_shape(self.batch_shape[1:])
        x = np.random.default_rng([seed, 0]).standard_normal(self.batch_shape)
        return x, targets(self.loss, (len(x), *out), seed)


CE = losses.CrossEntropyLoss

BRANCHED = NetworkRow(branched, CE(), (3, 2, 2))
ATTENTIVE = NetworkRow(attentive, CE(), (3, 3, 2))
SEGMENTING = CE(weight=np.array([0.5, 2.0, 1.0]), ignore_index=IGNORED, label_smoothing=0.1)

NETWORKS = (
    NetworkRow(lambda: [L.Linear(4, 3)], CE("sum"), (4, 4)),
    NetworkRow(lambda: [L.Linear(4, 5), L.Tanh(), L.Linear(5, 4), L.Sigmoid(), L.Linear(4, 3)], CE(), (5, 4)),
    NetworkRow(
        lambda: [L.Conv2d(1, 2, 3), L.Sigmoid(), L.MaxPool2d(2), L.Flatten(), L.Linear(8, 3)], CE(), (4, 1, 6, 6)
    ),
    NetworkRow(
        lambda: [
            L.Conv2d(2, 2, 3, stride=2, padding=1, bias=False),
            Sequential(L.ReLU(), L.AvgPool2d(2, padding=1), Sequential(L.Dropout(0.5))), L.Flatten(), L.Linear(8, 2),
        ],
        losses.MSELoss(), (3, 2, 4, 4),
    ),
    NetworkRow(lambda: [L.Linear(3, 2), L.Tanh(), L.Linear(2, 2)], losses.BCEWithLogitsLoss(), (4, 3, 3)),
    NetworkRow(
        lambda: [
            L.ZeroPad2d((1, 0, 0, 1)), L.Conv2d(2, 4, 2, groups=2), L.Sigmoid(), L.Identity(), L.Flatten(),
            L.Linear(16, 2, bias=False),
        ],
        losses.MSELoss("sum"), (3, 2, 2, 2),
    ),
    BRANCHED,
    ATTENTIVE,
    NetworkRow(lambda: [L.Conv2d(1, 2, 2, padding=1), L.Tanh(), L.Conv2d(2, 3, 2)], SEGMENTING, (3, 1, 2, 2)),
    NetworkRow(lambda: [L.Linear(3, 4), L.Sigmoid(), L.Linear(4, 2)], losses.PoissonNLLLoss(), (4, 3)),
    NetworkRow(lambda: [L.Linear(3, 4), L.Tanh(), L.Linear(4, 2)], losses.HuberLoss(), (4, 3)),
    NetworkRow(lambda: [L.Linear(3, 4), L.Tanh(), L.Linear(4, 2), L.Sigmoid()], losses.BCELoss(), (4, 3)),
    NetworkRow(lambda: [L.Linear(3, 4), L.Tanh(), L.Linear(4, 3), L.LogSoftmax(1)], losses.NLLLoss(), (4, 3)),
)  # fmt: skip
"""Networks that between them have every kind of signal, sharing, reduction and nesting."""
