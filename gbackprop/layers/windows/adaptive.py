"""Adaptive pooling: the size of the output is given, and its bins share the input among them.

Along an axis of S places, bin i of O reaches from ⌊i S/O⌋ to ⌈(i + 1) S/O⌉ − 1. Bins differ in size, and neighbours can
overlap, where O is no divisor of S.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import positive
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.separable import Separable
from gbackprop.calculus.window import Spatial, channels_and_axes


class _Adaptive(Spatial):
    """Base class of adaptive pooling over `dims` axes."""

    shown = ["output_size"]

    def __init__(self, output_size: int | tuple[int | None, ...] | None) -> None:
        several = isinstance(output_size, Iterable) and not isinstance(output_size, str)
        sizes = tuple(output_size) if several else (output_size,) * self.dims  # type: ignore[arg-type]
        if len(sizes) != self.dims:
            raise ValueError(f"output_size: expected an integer, None or {self.dims} of them, got {output_size!r}")
        self.output_size = tuple(None if size is None else positive("output_size", size) for size in sizes)

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims)
        if 0 in shape:
            raise ValueError(f"expected features of at least one place along each axis, got {shape}")
        return (shape[0], *self._out(shape[1:]))

    def _out(self, spatial: Shape) -> Shape:
        return tuple(s if o is None else o for s, o in zip(spatial, self.output_size))


class _AdaptiveAvgPool(_Adaptive, Separable):
    """Mean over bins.

    Parameters
    ----------
    output_size : int, None or (int, …)
        None for the input's size along an axis.
    """

    formulas = {"forward": "y[t] = 1/K Σₖ x[t, k]", "mjp": "g[t]/K to each place of the bin"}

    def matrices(self, spatial: Shape, like: Array) -> list[Array]:
        xp, found = array_module(like), []
        for size, out in zip(spatial, self._out(spatial)):
            starts, ends = _bins(size, out, like)
            places = xp.arange(size)
            share = ((places >= starts) & (places < ends)) / (ends - starts)
            found.append(share.astype(like.real.dtype))
        return found


class _AdaptiveMaxPool(_Adaptive):
    """Maximum over bins.

    Of equal maxima the first in the bin, row by row, receives the derivative.

    Parameters
    ----------
    output_size : int, None or (int, …)
        None for the input's size along an axis.
    """

    formulas = {"forward": "y[t] = maxₖ x[t, k]", "mjp": "g[t] to the place of the maximum"}

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp, spatial = array_module(x), x.shape[2:]
        out, flat, places = self._out(spatial), x.reshape(*x.shape[:2], -1), self._places(spatial, x)
        seen = flat.take(places, -1)  # [N, C, T, K]
        winners = places[xp.arange(len(places)), seen.real.argmax(-1)]
        return xp.take_along_axis(flat, winners, -1).reshape(*x.shape[:2], *out), (winners, spatial)

    def _places(self, spatial: Shape, like: Array) -> Array:
        """Return the places that each bin sees, numbered row by row: ``[T, K]``; small bins repeat their last."""
        xp = array_module(like)
        found = xp.zeros((1, 1), dtype=int)
        for size, out in zip(spatial, self._out(spatial)):
            starts, ends = _bins(size, out, like)
            longest = max(-(-(i + 1) * size // out) - i * size // out for i in range(out))
            places = xp.minimum(starts + xp.arange(longest), ends - 1)  # [out, longest]
            joint = found[:, None, :, None] * size + places[:, None, :]
            found = joint.reshape(joint.shape[0] * out, -1)
        return found

    def jmp(self, saved: Any, mat: Array) -> Array:
        winners, spatial = saved
        flat = mat.reshape(*mat.shape[:3], -1)
        return array_module(mat).take_along_axis(flat, winners[None], -1).reshape(*mat.shape[:3], *self._out(spatial))

    def mjp(self, saved: Any, mat: Array) -> Array:
        """Move each number to the place of its maximum, in turns in which no two bins overlap."""
        (winners, spatial), xp = saved, array_module(mat)
        by_bin = winners.reshape(*winners.shape[:2], *mat.shape[3:])
        image = xp.zeros((*mat.shape[:3], int(np.prod(spatial))), dtype=mat.dtype)
        for some in self._turns(spatial):
            bins: Any = (..., *some)
            g = mat[bins].reshape(*mat.shape[:3], -1)
            places = by_bin[bins].reshape(1, *winners.shape[:2], -1)
            moved = xp.zeros_like(image)
            xp.put_along_axis(moved, xp.broadcast_to(places, g.shape), g, -1)
            image += moved
        return image.reshape(*mat.shape[:3], *spatial)

    def _turns(self, spatial: Shape) -> Iterator[tuple[slice, ...]]:
        """Yield slices of the bins that cover all of them; bins i and i + m of an axis have no place in common."""
        apart = [1 if size % out == 0 else 1 - -out // size for size, out in zip(spatial, self._out(spatial))]
        return itertools.product(*[[slice(i, None, m) for i in range(m)] for m in apart])


def _bins(size: int, out: int, like: Array) -> tuple[Array, Array]:
    """Return where each bin of an axis starts and ends, ``[out, 1]``, on the device of `like`."""
    i = array_module(like).arange(out)[:, None]
    return i * size // out, -(-(i + 1) * size // out)


class AdaptiveAvgPool1d(_AdaptiveAvgPool, dims=1):
    """Mean over the bins of a sequence, per channel: ``[N, C, L] -> [N, C, output_size]``."""


class AdaptiveAvgPool2d(_AdaptiveAvgPool, dims=2):
    """Mean over the bins of an image, per channel: ``[N, C, H, W] -> [N, C, *output_size]``."""


class AdaptiveAvgPool3d(_AdaptiveAvgPool, dims=3):
    """Mean over the bins of a volume, per channel: ``[N, C, D, H, W] -> [N, C, *output_size]``."""


class AdaptiveMaxPool1d(_AdaptiveMaxPool, dims=1):
    """Maximum over the bins of a sequence, per channel: ``[N, C, L] -> [N, C, output_size]``."""


class AdaptiveMaxPool2d(_AdaptiveMaxPool, dims=2):
    """Maximum over the bins of an image, per channel: ``[N, C, H, W] -> [N, C, *output_size]``."""


class AdaptiveMaxPool3d(_AdaptiveMaxPool, dims=3):
    """Maximum over the bins of a volume, per channel: ``[N, C, D, H, W] -> [N, C, *output_size]``."""
