"""Layers that only move numbers: Flatten, ZeroPad2d, Identity."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from numbers import Integral
from typing import Any

from gbackprop.array import Array, channels_first, channels_last
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.window import SIDES, Spatial, channels_and_axes, pad


class Identity(Layer):
    """y = x."""

    broadcasts = True
    constant_jacobian = True
    takes = "any"
    formulas = {"forward": "y = x", "mjp": "g"}

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x, None

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat

    mjp = jmp

    def average(self, saved: Any, curvature: Array, batch: int, shape: Shape) -> Array:
        return curvature


class Flatten(Layer):
    """A layer that merges the axes from `start_dim` to `end_dim`, both counted as in torch, with the batch as axis 0.

    Parameters
    ----------
    start_dim, end_dim : int
        `start_dim` may not be the batch axis.
    """

    broadcasts = True
    constant_jacobian = True
    takes = "any"
    formulas = {"forward": "y = x, reshaped", "mjp": "g, reshaped back"}

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        for name, axis in (("start_dim", start_dim), ("end_dim", end_dim)):
            if isinstance(axis, bool) or not isinstance(axis, Integral) or axis == 0:
                raise ValueError(f"{name}: expected an axis after the batch axis, got {axis!r}")
        self.start_dim, self.end_dim = int(start_dim), int(end_dim)

    def describe(self) -> str:
        return "" if (self.start_dim, self.end_dim) == (1, -1) else f"{self.start_dim}, {self.end_dim}"

    def output_shape(self, shape: Shape) -> Shape:
        dims = len(shape) + 1
        first, last = (axis + dims if axis < 0 else axis for axis in (self.start_dim, self.end_dim))
        if not 1 <= first <= last < dims:
            raise ValueError(f"expected features with axes {self.start_dim} to {self.end_dim}, got {shape}")
        return (*shape[: first - 1], prod(shape[first - 1 : last]), *shape[last:])

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x.reshape(x.shape[0], *self.output_shape(x.shape[1:])), x.shape[1:]

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat.reshape(*mat.shape[:2], *self.output_shape(saved))

    def mjp(self, saved: Any, mat: Array) -> Array:
        return mat.reshape(*mat.shape[:2], *saved)

    def average(self, saved: Any, curvature: Array, batch: int, shape: Shape) -> Array:
        return curvature


class _ZeroPad(Spatial):
    """Zeros around the `dims` spatial axes; negative numbers crop.

    Parameters
    ----------
    padding : int or (left, …)
    """

    fixed = frozenset({"padding"})
    constant_jacobian = True
    formulas = {"forward": "y = x with zeros around", "mjp": "g without what was around"}

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        self.padding = sides(padding, self.dims)

    def describe(self) -> str:
        return str(tuple(number for pair in reversed(self.padding) for number in pair))

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims)
        size = tuple(s + before + after for s, (before, after) in zip(shape[1:], self.padding))
        cropped = tuple(max(-before, 0) + max(-after, 0) for before, after in self.padding)
        if min(size) < 1 or any(c > s for c, s in zip(cropped, shape[1:])):
            raise ValueError(f"expected an image larger than what is cropped, {cropped}, got {shape}")
        return (shape[0], *size)

    def forward(self, x: Array) -> tuple[Array, Any]:
        return channels_first(pad(channels_last(x), self.padding)), x.shape[2:]

    def jmp(self, saved: Any, mat: Array) -> Array:
        return self._padded(mat, self.padding)

    def mjp(self, saved: Any, mat: Array) -> Array:
        return self._padded(mat, tuple((-before, -after) for before, after in self.padding))

    def _padded(self, mat: Array, padding: tuple[tuple[int, int], ...]) -> Array:
        rows = channels_last(mat.reshape(-1, *mat.shape[2:]))
        image = channels_first(pad(rows, padding))
        return image.reshape(*mat.shape[:2], *image.shape[1:])


class ZeroPad2d(_ZeroPad, dims=2):
    """A layer that adds zeros around an image: ``[N, C, H, W] -> [N, C, H', W']``; negative numbers crop."""


def sides(padding: Any, dims: int) -> tuple[tuple[int, int], ...]:
    """Convert torch's padding, last axis first, to (before, after) for each axis."""
    names = SIDES[: 2 * dims]
    numbers = tuple(padding) if isinstance(padding, Iterable) else (padding,) * len(names)
    if len(numbers) != len(names) or not all(isinstance(p, Integral) and not isinstance(p, bool) for p in numbers):
        raise ValueError(f"padding: expected an integer or ({', '.join(names)}), got {padding!r}")
    return tuple((numbers[i], numbers[i + 1]) for i in range(2 * dims - 2, -1, -2))
