"""Networks, losses and batches as plain data, which any library can build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gbackprop import layers as shipped
from gbackprop import losses
from gbackprop.network import Sequential
from gbackprop.testing.golden import build

OUTPUTS, BATCHES = 3, (7, 4, 1)
"""C, and N in turn: 7, 3, the 5 positions and 2 have no common powers."""


@dataclass(frozen=True)
class Problem:
    """A chain of layers, a loss and a batch, in float64.

    Attributes
    ----------
    family, loss, reduction : str
        The kind of network; "CrossEntropyLoss" or "MSELoss"; "mean" or "sum".
    layers : tuple of (str, dict)
        Class names and keywords of ``torch.nn``, in order.
    parameters, vector : dict of str to ndarray
        The parameters, and a vector for products, in torch's shapes, by the names in its state dict (``"0.weight"``).
    x, y : ndarray, shapes (N, *in), and (N,) for class labels or (N, *out)
    """

    family: str
    layers: tuple[tuple[str, dict[str, Any]], ...]
    parameters: Mapping[str, np.ndarray]
    loss: str
    reduction: str
    x: np.ndarray
    y: np.ndarray
    vector: Mapping[str, np.ndarray]

    def sizes(self, name: str) -> dict[str, float]:
        """Return N, C and T, the positions at which a parameter is used; T is 1 for a result of all parameters."""
        shared = name and (name.startswith("0") or self.family == "positions")
        outputs = self.y.size / len(self.y) if self.y.dtype.kind == "f" else OUTPUTS
        return {"N": len(self.x), "C": outputs, "T": _NETWORKS[self.family][1] if shared else 1}

    def build(self) -> tuple[Sequential, losses.Loss]:
        """Build the network and the loss of gbackprop."""
        spec = {"layers": self.layers, "loss": (self.loss, self.reduction)}
        return build(spec, {f"param/{name}": value for name, value in self.parameters.items()}, "float64")


def _linear(i: int, o: int = OUTPUTS) -> tuple[str, dict[str, Any]]:
    return "Linear", {"in_features": i, "out_features": o}


_CONV = ("Conv2d", {"in_channels": 2, "out_channels": 4, "kernel_size": (2, 2), "groups": 1})
_GROUPED = ("Conv2d", {"in_channels": 4, "out_channels": 4, "kernel_size": (2, 2), "groups": 2})
_POOL: tuple[str, dict[str, Any]] = ("AvgPool2d", {"kernel_size": (2, 3)})
_FLAT: tuple[str, dict[str, Any]] = ("Flatten", {})
_NETWORKS: dict[str, tuple[tuple[int, ...], int, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "MLP": ((5,), 1, (_linear(5, 4), ("Sigmoid", {}), _linear(4, 6), ("Tanh", {}), _linear(6))),
    "ReLU": ((5,), 1, (_linear(5, 8), ("ReLU", {}), _linear(8))),
    "convolution": ((2, 6, 6), 25, (_CONV, ("Sigmoid", {}), _POOL, _FLAT, _linear(8))),
    "groups": ((4, 6, 6), 25, (_GROUPED, ("Sigmoid", {}), _POOL, _FLAT, _linear(8))),
    "sequence": ((5, 3), 5, (_linear(3, 4), ("Tanh", {}), _FLAT, _linear(20))),
    "positions": ((5, 3), 5, (_linear(3, 4), ("Tanh", {}), _linear(4))),
}
"""By family: the shape of an input, the positions of the first layer, the layers. "positions" has outputs (N, 5, C)."""
FAMILIES = tuple(_NETWORKS)


def problems(family: str, seed: int = 0) -> list[list[Problem]]:
    """Return the problems of a family, those of each loss together: "mean" with all batch sizes, then "sum"."""
    shape, _, layers = _NETWORKS[family]
    rng = np.random.default_rng(seed)
    network = Sequential(*[getattr(shipped, kind)(**keywords) for kind, keywords in layers], rng=0, dtype="float64")
    shapes = {name: value.shape for name, value in network.parameters.items()}
    weights, vector = (  # small, so that no probability is: few draws are enough
        {name: rng.normal(size=p) / np.prod(p[1:]) ** 0.5 for name, p in shapes.items()} for _ in range(2)
    )
    found = []
    for loss in ("MSELoss",) if family == "positions" else ("CrossEntropyLoss", "MSELoss"):
        batches = {n: rng.normal(size=(n, *shape)) for n in BATCHES}
        out = (5, OUTPUTS) if family == "positions" else (OUTPUTS,)
        ys = {n: rng.integers(0, OUTPUTS, n) if loss[0] == "C" else rng.normal(size=(n, *out)) for n in BATCHES}
        both = product(("mean", "sum"), BATCHES)
        found.append([Problem(family, layers, weights, loss, r, batches[n], ys[n], vector) for r, n in both])
    return found
