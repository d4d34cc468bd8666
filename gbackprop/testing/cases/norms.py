"""Normalization and learned factors: rows of the table of cases."""

from __future__ import annotations

from functools import partial

import numpy as np

from gbackprop import layers as L
from gbackprop.calculus.layer import Layer
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.rows import LayerRow, drawn

MEAN, VARIANCE = np.array([0.5, -1.0, 2.0]), np.array([0.3, 1.5, 4.0])
"""Running statistics of three channels."""

EPS = float(np.finfo(float).eps)
"""The default of RMSNorm's `eps`."""


def trained(layer: Layer) -> Layer:
    """Return batch normalization with running statistics of three channels."""
    layer.buffers |= {"running_mean": MEAN, "running_var": VARIANCE}  # type: ignore[attr-defined]
    return layer


def scaled(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Each channel times its factor; one factor is for all channels."""
    return np.stack([x[:, c] * weight[c % len(weight)] for c in range(x.shape[1])], axis=1)


normalized = partial(plain.normalized, mean=MEAN, variance=VARIANCE)
over_last, of_channels = plain.over_last, plain.of_channels

NORMS = (
    LayerRow(lambda: trained(L.BatchNorm1d(3)), (3,), normalized),
    LayerRow(lambda: trained(L.BatchNorm1d(3, eps=0.1)), (3, 2), partial(normalized, eps=0.1)),
    LayerRow(lambda: trained(L.BatchNorm2d(3, momentum=None)), (3, 1, 3), normalized),
    LayerRow(lambda: trained(L.BatchNorm2d(3, affine=False)), (3, 2, 2), normalized),
    LayerRow(lambda: trained(L.BatchNorm3d(3)), (3, 2, 1, 2), normalized),
    LayerRow(lambda: L.Scale(init=0.5), (2, 1, 2), scaled),
    LayerRow(L.Scale, (4,), scaled),
    LayerRow(lambda: L.Scale(3, init=-2.0), (3, 2), scaled),
    LayerRow(lambda: drawn(L.LayerNorm(4)), (4,), partial(over_last, size=4)),
    LayerRow(lambda: drawn(L.LayerNorm(4, eps=0.1, bias=False)), (2, 4), partial(over_last, size=4, eps=0.1)),
    LayerRow(lambda: drawn(L.LayerNorm((2, 4))), (2, 2, 4), partial(over_last, size=8)),
    LayerRow(lambda: drawn(L.LayerNorm([4], elementwise_affine=False)), (2, 4), partial(over_last, size=4)),
    LayerRow(lambda: drawn(L.RMSNorm(4)), (4,), partial(over_last, size=4, eps=EPS, centered=False)),
    LayerRow(
        lambda: drawn(L.RMSNorm((2, 2), eps=0.01)), (3, 2, 2), partial(over_last, size=4, eps=0.01, centered=False)
    ),
    LayerRow(
        lambda: drawn(L.RMSNorm(3, elementwise_affine=False)),
        (2, 3),
        partial(over_last, size=3, eps=EPS, centered=False),
    ),
    LayerRow(lambda: drawn(L.GroupNorm(2, 4)), (4, 2), partial(of_channels, groups=2)),
    LayerRow(lambda: drawn(L.GroupNorm(1, 4, eps=0.3)), (4,), partial(of_channels, groups=1, eps=0.3)),
    LayerRow(lambda: drawn(L.GroupNorm(3, 3, affine=False)), (3, 2, 2), partial(of_channels, groups=3)),
    LayerRow(lambda: drawn(L.GroupNorm(2, 2)), (2, 1, 2, 2), partial(of_channels, groups=2)),
    LayerRow(lambda: drawn(L.InstanceNorm1d(2)), (2, 4), partial(of_channels, groups=2)),
    LayerRow(lambda: drawn(L.InstanceNorm2d(3, affine=True)), (3, 2, 2), partial(of_channels, groups=3)),
    LayerRow(lambda: drawn(L.InstanceNorm3d(1, eps=1e-3)), (1, 2, 2, 2), partial(of_channels, groups=1, eps=1e-3)),
)
