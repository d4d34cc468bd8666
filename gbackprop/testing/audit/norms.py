"""Normalization over the entries of one sample, as it ships, with its definition by loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gbackprop import layers
from gbackprop.testing.audit.graph_subjects import Case


def cases() -> Iterator[Case]:
    """Layers of normalization with feature shapes and what they should compute."""
    yield layers.LayerNorm(4), (2, 4), partial(normalized, sets=2)
    yield layers.LayerNorm((2, 3), elementwise_affine=False), (2, 3), partial(normalized, sets=1)
    yield layers.RMSNorm(4, eps=1e-5), (4,), partial(normalized, sets=1, centered=False)
    yield layers.GroupNorm(2, 4), (4, 3), partial(normalized, sets=2)
    yield layers.InstanceNorm1d(2, affine=True), (2, 3), partial(normalized, sets=2)
    yield layers.InstanceNorm2d(2), (2, 2, 2), partial(normalized, sets=2)
    yield layers.InstanceNorm3d(1), (1, 2, 2, 2), partial(normalized, sets=1)


def normalized(x: np.ndarray, *, sets: int, centered: bool = True, **parameters: Any) -> np.ndarray:
    """x̂ of each set of entries; γ and β are 1 and 0, as they are drawn."""
    y = np.empty_like(x)
    for n, sample in enumerate(x):
        for k, z in enumerate(sample.reshape(sets, -1)):
            z = z - sum(z) / z.size if centered else z
            y[n].reshape(sets, -1)[k] = z / np.sqrt(sum(z**2) / z.size + 1e-5)
    return y
