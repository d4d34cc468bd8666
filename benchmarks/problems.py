"""The networks of the comparison, in both frameworks, with the same parameters and the same data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from specs import SPECS, all_cnn_c
from torch import nn

import gbackprop as gb
from gbackprop import layers, losses


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
    branches : bool
        Whether it is no chain, and BackPACK must convert it.
    """

    name: str
    net: gb.Sequential
    x: np.ndarray
    y: np.ndarray
    module: nn.Module
    branches: bool = False

    def first(self, samples: int) -> Problem:
        """The same problem on fewer samples."""
        return replace(self, x=self.x[:samples], y=self.y[:samples])


def make_problem(
    name: str, samples: int, seed: int = 0, classes: int | None = None, device: str = "cpu"
) -> Problem:
    """A problem with random images and labels; time does not depend on what they show.

    `classes` replaces the number of All-CNN-C. Network, module and batch lie on `device`.
    """
    spec, shape, usual = SPECS[name]
    if classes is not None:
        spec = all_cnn_c(classes)
    classes = classes or usual
    net = gb.Sequential(*(getattr(layers, kind)(**keywords) for kind, keywords in spec), rng=seed, dtype="float32")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, *shape), dtype=np.float32)
    y = rng.integers(0, classes, samples)
    module = nn.Sequential(*(getattr(nn, kind)(**keywords) for kind, keywords in spec))
    module.load_state_dict({key: torch.from_numpy(value) for key, value in net.state_dict().items()})
    net.to(device)
    return Problem(name, net, gb.asarray(x, device), gb.asarray(y, device), module.to(device))


LOSS = losses.CrossEntropyLoss()
