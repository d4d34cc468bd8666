"""Layers that pad, crop, and put numbers in another order: rows of the table of cases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gbackprop import layers as L
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.rows import LayerRow

of = LayerRow.of
reflected, replicated, circular = (partial(plain.framed, mode=mode) for mode in ("reflect", "replicate", "circular"))
ALL = (2, 1, 1, 0, 0, 2)
"""Left, right, top, bottom, front, back."""


def reshaped(*shape: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that gives each sample another shape."""
    return lambda x: np.reshape(x, (len(x), *shape))


def shuffled(x: np.ndarray, r: int) -> np.ndarray:
    """Pixel (i, j) modulo r of channel c is one of channel c r² + i r + j."""
    n, depth, height, width = x.shape
    y = np.zeros((n, depth // r**2, height * r, width * r))
    for c, i, j in np.ndindex(depth // r**2, r, r):
        y[:, c, i::r, j::r] = x[:, c * r**2 + i * r + j]
    return y


def unshuffled(x: np.ndarray, r: int) -> np.ndarray:
    """Channel c r² + i r + j has the pixels (i, j) modulo r of channel c."""
    return np.stack([x[:, c, i::r, j::r] for c, i, j in np.ndindex(x.shape[1], r, r)], axis=1)


def nearest(x: np.ndarray, *sources: list[int]) -> np.ndarray:
    """Copy places: for each spatial axis, the place of which each place of the output is a copy."""
    return x[np.ix_(range(len(x)), range(x.shape[1]), *sources)]


PADDINGS = (
    of(plain.framed, L.ZeroPad1d, (2, 3), padding=(2, 1)),
    of(plain.framed, L.ZeroPad1d, (1, 3), padding=(-1, 1)),
    of(plain.framed, L.ZeroPad2d, (1, 2, 3), padding=1),
    of(plain.framed, L.ZeroPad2d, (2, 2, 2), padding=(0, 2, 1, 0)),
    of(plain.framed, L.ZeroPad2d, (1, 3, 3), padding=(-1, 1, 2, -1)),
    of(plain.framed, L.ZeroPad3d, (1, 1, 2, 2), padding=ALL),
    of(plain.framed, L.ConstantPad1d, (2, 2), padding=1, value=0.5),
    of(plain.framed, L.ConstantPad2d, (1, 2, 2), padding=(0, 1, 2, 0), value=-1),
    of(plain.framed, L.ConstantPad3d, (1, 1, 2, 1), padding=ALL, value=2.0),
    of(reflected, L.ReflectionPad1d, (2, 3), padding=(2, 0)),
    of(reflected, L.ReflectionPad2d, (1, 2, 3), padding=(1, 2, 0, 1)),
    of(reflected, L.ReflectionPad3d, (1, 2, 2, 2), padding=1),
    of(replicated, L.ReplicationPad1d, (2, 2), padding=(1, 3)),
    of(replicated, L.ReplicationPad2d, (1, 2, 1), padding=(2, 1, 0, 2)),
    of(replicated, L.ReplicationPad3d, (1, 2, 1, 2), padding=ALL),
    of(circular, L.CircularPad1d, (2, 2), padding=(2, 1)),
    of(circular, L.CircularPad2d, (1, 2, 3), padding=(0, 2, 1, 1)),
    of(circular, L.CircularPad3d, (1, 2, 1, 2), padding=ALL),
)

MOVES = (
    LayerRow(L.Flatten, (2, 2, 3), reshaped(12)),
    LayerRow(L.Flatten, (3,), reshaped(3)),
    LayerRow(lambda: L.Flatten(2), (2, 3, 2), reshaped(2, 6)),
    LayerRow(lambda: L.Flatten(1, 2), (2, 3, 2), reshaped(6, 2)),
    LayerRow(lambda: L.PixelShuffle(2), (8, 1, 2), partial(shuffled, r=2)),
    LayerRow(lambda: L.PixelShuffle(3), (9, 2, 1), partial(shuffled, r=3)),
    LayerRow(lambda: L.PixelUnshuffle(2), (2, 2, 4), partial(unshuffled, r=2)),
    LayerRow(lambda: L.Unflatten(1, (2, 3)), (6, 2), reshaped(2, 3, 2)),
    LayerRow(lambda: L.Unflatten(-1, (-1, 2)), (3, 4), reshaped(3, 2, 2)),
    LayerRow(lambda: L.Permute((0, 3, 1, 2)), (2, 3, 4), lambda x: np.einsum("nabc->ncab", x)),
    LayerRow(lambda: L.Slice(1, 1, 3), (4, 2), lambda x: np.stack([x[:, 1], x[:, 2]], 1)),
    LayerRow(lambda: L.Slice(-1, -4, None, 2), (2, 5), lambda x: np.stack([x[:, :, 1], x[:, :, 3]], 2)),
    LayerRow(lambda: L.Select(2, -1), (3, 4), lambda x: x[:, :, 3]),
    LayerRow(lambda: L.Select(1, 0), (3, 2, 2), lambda x: x[:, 0]),
    LayerRow(lambda: L.Upsample(scale_factor=2), (2, 3), lambda x: nearest(x, [0, 0, 1, 1, 2, 2])),
    LayerRow(lambda: L.Upsample(size=(3, 4)), (1, 2, 5), lambda x: nearest(x, [0, 0, 1], [0, 1, 2, 3])),
    LayerRow(
        lambda: L.Upsample(scale_factor=(1, 1.5, 0.5)), (1, 1, 2, 4), lambda x: nearest(x, [0], [0, 0, 1], [0, 2])
    ),
)
