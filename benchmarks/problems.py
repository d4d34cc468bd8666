"""The networks of the comparison, in both frameworks, with the same parameters and the same data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import gbackprop as gb
from gbackprop import layers, losses

Spec = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Problem:
    """A network, a batch, and what is computed on it by both sides.

    Attributes
    ----------
    name : str
    net : Sequential
    x, y : ndarray
    module : torch.nn.Sequential
        The same network, extended by BackPACK.
    """

    name: str
    net: gb.Sequential
    x: np.ndarray
    y: np.ndarray
    module: nn.Module

    def first(self, samples: int) -> Problem:
        """The same problem on fewer samples."""
        return Problem(self.name, self.net, self.x[:samples], self.y[:samples], self.module)


def conv(i: int, o: int, k: int, **keywords: Any) -> tuple[str, dict[str, Any]]:
    return "Conv2d", {"in_channels": i, "out_channels": o, "kernel_size": k, **keywords}


def linear(i: int, o: int) -> tuple[str, dict[str, Any]]:
    return "Linear", {"in_features": i, "out_features": o}


RELU: tuple[str, dict[str, Any]] = ("ReLU", {})
POOL: Spec = [("ZeroPad2d", {"padding": (0, 1, 0, 1)}), ("MaxPool2d", {"kernel_size": 3, "stride": 2})]


def three_c_three_d(before_last: str = "ReLU") -> Spec:
    """3c3d of the paper, 895,210 parameters."""
    convolutions = [conv(3, 64, 5), RELU, *POOL, conv(64, 96, 3), RELU, *POOL, conv(96, 128, 3, padding=1), RELU, *POOL]
    head = [("Flatten", {}), linear(1152, 512), RELU, linear(512, 256), (before_last, {}), linear(256, 10)]
    return [*convolutions, *head]


def all_cnn_c() -> Spec:
    """All-CNN-C of the paper without its dropout, 1,387,108 parameters, for images of 32 × 32 pixels."""
    spec: Spec = []
    shapes = [(3, 96, 3, 1, 1), (96, 96, 3, 1, 1), (96, 96, 3, 2, 1), (96, 192, 3, 1, 1), (192, 192, 3, 1, 1)]
    shapes += [(192, 192, 3, 2, 1), (192, 192, 3, 1, 0), (192, 192, 1, 1, 0), (192, 100, 1, 1, 0)]
    for i, o, k, stride, padding in shapes:
        spec += [conv(i, o, k, stride=stride, padding=padding), RELU]
    return [*spec, ("AvgPool2d", {"kernel_size": 6}), ("Flatten", {})]


def logistic() -> Spec:
    """Logistic regression on 28 × 28 pixels."""
    return [("Flatten", {}), linear(784, 10)]


SPECS = {
    "3c3d": (three_c_three_d(), (3, 32, 32), 10),
    "3c3d with one sigmoid": (three_c_three_d("Sigmoid"), (3, 32, 32), 10),
    "All-CNN-C": (all_cnn_c(), (3, 32, 32), 100),
    "logistic regression": (logistic(), (1, 28, 28), 10),
}


def make_problem(name: str, samples: int, seed: int = 0) -> Problem:
    """A problem with random images and labels; time does not depend on what they show."""
    spec, shape, classes = SPECS[name]
    net = gb.Sequential(*(getattr(layers, kind)(**keywords) for kind, keywords in spec), rng=seed, dtype="float32")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, *shape), dtype=np.float32)
    y = rng.integers(0, classes, samples)
    module = nn.Sequential(*(getattr(nn, kind)(**keywords) for kind, keywords in spec))
    module.load_state_dict({key: torch.from_numpy(value) for key, value in net.state_dict().items()})
    return Problem(name, net, x, y, module)


LOSS = losses.CrossEntropyLoss()
