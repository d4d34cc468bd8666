"""Normalization and learned factors: rows of the table of cases."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gbackprop import layers as L
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.rows import Definition, LayerRow, drawn

MEAN, VARIANCE = np.array([0.5, -1.0, 2.0]), np.array([0.3, 1.5, 4.0])
"""Running statistics of three channels."""


def trained(layer: Layer) -> Layer:
    """Return batch normalization with running statistics of three channels."""
    layer.buffers |= {"running_mean": MEAN, "running_var": VARIANCE}  # type: ignore[attr-defined]
    return drawn(layer)


def scaled(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Each channel times its factor; one factor is for all channels."""
    return np.stack([x[:, c] * weight[c % len(weight)] for c in range(x.shape[1])], axis=1)


def norm(definition: Definition, kind: type[Layer], shape: Shape, *sizes: Any, **options: Any) -> LayerRow:
    """Return a row whose definition takes the same options, with γ and β other than 1 and 0."""
    return LayerRow(lambda: drawn(kind(*sizes, **options)), shape, partial(definition, **options))


normalized = partial(plain.normalized, mean=MEAN, variance=VARIANCE)
over_last, of_channels = partial(norm, plain.over_last), partial(norm, plain.of_channels)
by_root = partial(norm, partial(plain.over_last, centered=False))

NORMS = (
    LayerRow(lambda: trained(L.BatchNorm1d(3)), (3,), normalized),
    LayerRow(lambda: trained(L.BatchNorm1d(3, eps=0.1)), (3, 2), partial(normalized, eps=0.1)),
    LayerRow(lambda: trained(L.BatchNorm2d(3, momentum=None)), (3, 1, 3), normalized),
    LayerRow(lambda: trained(L.BatchNorm2d(3, affine=False)), (3, 2, 2), normalized),
    LayerRow(lambda: trained(L.BatchNorm3d(3)), (3, 2, 1, 2), normalized),
    LayerRow(lambda: L.Scale(init=0.5), (2, 1, 2), scaled),
    LayerRow(L.Scale, (4,), scaled),
    LayerRow(lambda: L.Scale(3, init=-2.0), (3, 2), scaled),
    over_last(L.LayerNorm, (4,), normalized_shape=4),
    over_last(L.LayerNorm, (2, 4), normalized_shape=4, eps=0.1, bias=False),
    over_last(L.LayerNorm, (2, 2, 4), normalized_shape=(2, 4)),
    over_last(L.LayerNorm, (2, 4), normalized_shape=[4], elementwise_affine=False),
    by_root(L.RMSNorm, (4,), normalized_shape=4),
    by_root(L.RMSNorm, (3, 2, 2), normalized_shape=(2, 2), eps=0.01),
    by_root(L.RMSNorm, (2, 3), normalized_shape=3, elementwise_affine=False),
    of_channels(L.GroupNorm, (4, 2), num_groups=2, num_channels=4),
    of_channels(L.GroupNorm, (4,), num_groups=1, num_channels=4, eps=0.3),
    of_channels(L.GroupNorm, (3, 2, 2), num_groups=3, num_channels=3, affine=False),
    of_channels(L.GroupNorm, (2, 1, 2, 2), num_groups=2, num_channels=2),
    of_channels(L.InstanceNorm1d, (2, 4), num_features=2, affine=True),
    of_channels(L.InstanceNorm2d, (3, 2, 2), num_features=3, affine=True),
    of_channels(L.InstanceNorm3d, (1, 2, 2, 2), num_features=1, eps=1e-3),
)
