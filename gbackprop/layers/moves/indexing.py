"""Layers that put numbers in another order, or take some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from numbers import Integral
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import feature_axis, positive
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.window import channels_and_axes


class _Move(Layer):
    """Base class of maps that copy: a subclass says how arrays ``[L, *in]`` are moved, and moves them back."""

    broadcasts = True
    constant_jacobian = True
    takes = "any"
    formulas = {"forward": "y = P x, P copies", "mjp": "Pᵀ g"}

    def moved(self, x: Array) -> Array:
        """Compute P x: ``[L, *in] -> [L, *out]``."""
        raise NotImplementedError

    def back(self, g: Array, shape: Shape) -> Array:
        """Compute Pᵀ g: ``[L, *out] -> [L, *in]`` for inputs of feature shape `shape`."""
        raise NotImplementedError

    def forward(self, x: Array) -> tuple[Array, Any]:
        return self.moved(x), x.shape[1:]

    def jmp(self, saved: Any, mat: Array) -> Array:
        y = self.moved(mat.reshape(-1, *mat.shape[2:]))
        return y.reshape(*mat.shape[:2], *y.shape[1:])

    def mjp(self, saved: Any, mat: Array) -> Array:
        return self.back(mat.reshape(-1, *mat.shape[2:]), saved).reshape(*mat.shape[:2], *saved)


class PixelShuffle(_Move):
    """A layer that makes images larger from groups of channels: ``[N, C r², H, W] -> [N, C, H r, W r]``.

    Parameters
    ----------
    upscale_factor : int
        r.
    """

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = positive("upscale_factor", upscale_factor)

    def describe(self) -> str:
        return str(self.upscale_factor)

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, 2)
        r = self.upscale_factor
        if shape[0] % r**2:
            raise ValueError(f"expected a multiple of {r**2} channels, got {shape}")
        return (shape[0] // r**2, shape[1] * r, shape[2] * r)

    def moved(self, x: Array) -> Array:
        return _shuffled(x, self.upscale_factor)

    def back(self, g: Array, shape: Shape) -> Array:
        return _unshuffled(g, self.upscale_factor)


class PixelUnshuffle(_Move):
    """A layer that makes groups of channels from blocks of pixels: ``[N, C, H r, W r] -> [N, C r², H, W]``.

    Parameters
    ----------
    downscale_factor : int
        r.
    """

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = positive("downscale_factor", downscale_factor)

    def describe(self) -> str:
        return str(self.downscale_factor)

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, 2)
        r = self.downscale_factor
        if shape[1] % r or shape[2] % r:
            raise ValueError(f"expected a height and a width that are multiples of {r}, got {shape}")
        return (shape[0] * r**2, shape[1] // r, shape[2] // r)

    def moved(self, x: Array) -> Array:
        return _unshuffled(x, self.downscale_factor)

    def back(self, g: Array, shape: Shape) -> Array:
        return _shuffled(g, self.downscale_factor)


def _shuffled(x: Array, r: int) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c // r**2, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // r**2, h * r, w * r)


def _unshuffled(x: Array, r: int) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * r**2, h // r, w // r)


class Unflatten(_Move):
    """A layer that splits one axis into several.

    Parameters
    ----------
    dim : int
        The axis, counted as in torch with the batch as axis 0; it may not be the batch.
    unflattened_size : tuple of int
        Its new sizes; one of them may be −1, and is found from the others.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim = feature_axis("dim", dim)
        if not isinstance(unflattened_size, Iterable) or isinstance(unflattened_size, str):
            raise ValueError(f"unflattened_size: expected a tuple of integers, got {unflattened_size!r}")
        sizes = tuple(unflattened_size)
        if sizes.count(-1) > 1 or not sizes:
            raise ValueError(f"unflattened_size: expected sizes with at most one −1, got {sizes}")
        self.sizes = tuple(size if size == -1 else positive("unflattened_size", size) for size in sizes)

    def describe(self) -> str:
        return f"{self.dim}, {self.sizes}"

    def output_shape(self, shape: Shape) -> Shape:
        axis = _feature_axis(self.dim, shape)
        known = prod(size for size in self.sizes if size != -1)
        if shape[axis] % known or (-1 not in self.sizes and shape[axis] != known):
            raise ValueError(f"expected an axis {self.dim} that splits into {self.sizes}, got {shape}")
        sizes = tuple(shape[axis] // known if size == -1 else size for size in self.sizes)
        return (*shape[:axis], *sizes, *shape[axis + 1 :])

    def moved(self, x: Array) -> Array:
        return x.reshape(len(x), *self.output_shape(x.shape[1:]))

    def back(self, g: Array, shape: Shape) -> Array:
        return g.reshape(len(g), *shape)


class Permute(_Move):
    """A layer that puts the axes into another order.

    Parameters
    ----------
    dims : tuple of int
        For each axis of the output the axis of the input, as for `torch.permute`; the batch remains axis 0.
    """

    def __init__(self, dims: Sequence[int]) -> None:
        self.dims = tuple(dims) if isinstance(dims, Iterable) else ()
        whole = all(isinstance(axis, Integral) and not isinstance(axis, bool) for axis in self.dims)
        if not whole or sorted(self.dims) != list(range(len(self.dims))) or self.dims[:1] != (0,):
            raise ValueError(f"dims: expected 0 and then the axes 1, 2, … in any order, got {dims!r}")

    def describe(self) -> str:
        return str(self.dims)

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != len(self.dims) - 1:
            raise ValueError(f"expected features with {len(self.dims) - 1} axes, got {shape}")
        return tuple(shape[axis - 1] for axis in self.dims[1:])

    def moved(self, x: Array) -> Array:
        return x.transpose(self.dims)

    def back(self, g: Array, shape: Shape) -> Array:
        return g.transpose([self.dims.index(axis) for axis in range(len(self.dims))])


class _Part(_Move):
    """Base class of maps that take a part of axis `dim`: a subclass has the `part`, as it is written in brackets."""

    dim: int
    part: Any

    def _where(self, axes: int) -> tuple[Any, ...]:
        axis = self.dim - 1 if self.dim > 0 else self.dim + axes
        return (slice(None),) * (axis + 1) + (self.part,)

    def moved(self, x: Array) -> Array:
        return x[self._where(x.ndim - 1)]

    def back(self, g: Array, shape: Shape) -> Array:
        whole = array_module(g).zeros((len(g), *shape), dtype=g.dtype)
        whole[self._where(len(shape))] = g
        return whole


class Slice(_Part):
    """A layer that takes a part of one axis, as ``x[start:end:step]`` does.

    Parameters
    ----------
    dim : int
        The axis, counted as in torch with the batch as axis 0; it may not be the batch.
    start, end : int, optional
        Negative numbers count from the end; by default the whole axis.
    step : int
        At least 1.
    """

    def __init__(self, dim: int, start: int | None = None, end: int | None = None, step: int = 1) -> None:
        self.dim = feature_axis("dim", dim)
        for name, value in (("start", start), ("end", end)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
                raise ValueError(f"{name}: expected an integer or None, got {value!r}")
        self.part = slice(start, end, positive("step", step))

    def describe(self) -> str:
        part = self.part
        return f"{self.dim}, {part.start}, {part.stop}" + ("" if part.step == 1 else f", {part.step}")

    def output_shape(self, shape: Shape) -> Shape:
        axis = _feature_axis(self.dim, shape)
        size = len(range(*self.part.indices(shape[axis])))
        if size == 0:
            raise ValueError(f"expected an axis {self.dim} of which {self._written()} is a part, got {shape}")
        return (*shape[:axis], size, *shape[axis + 1 :])

    def _written(self) -> str:
        return ":".join("" if number is None else str(number) for number in (self.part.start, self.part.stop))


class Select(_Part):
    """A layer that takes one index of an axis, which then is gone, as `torch.select` does.

    Parameters
    ----------
    dim : int
        The axis, counted as in torch with the batch as axis 0; it may not be the batch.
    index : int
        Negative numbers count from the end.
    """

    def __init__(self, dim: int, index: int) -> None:
        self.dim = feature_axis("dim", dim)
        if isinstance(index, bool) or not isinstance(index, Integral):
            raise ValueError(f"index: expected an integer, got {index!r}")
        self.index: int = int(index)

    @property
    def part(self) -> int:
        """The part of the axis: its index."""
        return self.index

    def describe(self) -> str:
        return f"{self.dim}, {self.index}"

    def output_shape(self, shape: Shape) -> Shape:
        axis = _feature_axis(self.dim, shape)
        if not -shape[axis] <= self.index < shape[axis]:
            raise ValueError(f"expected an axis {self.dim} with index {self.index}, got {shape}")
        return (*shape[:axis], *shape[axis + 1 :])


def _feature_axis(dim: int, shape: Shape) -> int:
    """Return the number of a feature axis, given with the batch as axis 0."""
    axis = dim - 1 if dim > 0 else dim + len(shape)
    if not 0 <= axis < len(shape):
        raise ValueError(f"expected features with an axis {dim}, got {shape}")
    return axis
