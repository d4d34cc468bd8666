"""Moving windows: the geometry that convolution and pooling share, and the arguments that describe it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.arguments import positive
from gbackprop.array import Array
from gbackprop.kernels import fold, pad, unfold
from gbackprop.layers.base import Shape


def per_axis(name: str, value: Any, dims: int, least: int = 1) -> Shape:
    """An int for all axes, or one for each: always a tuple of `dims` ints."""
    several = isinstance(value, Iterable) and not isinstance(value, str) and np.ndim(value) > 0  # type: ignore[arg-type]
    values = tuple(value) if several else (value,) * dims
    if len(values) != dims:
        raise ValueError(f"{name}: expected an integer or {dims} of them, got {value!r}")
    return tuple(positive(name, v, least) for v in values)


def channels_and_axes(shape: Shape, dims: int, channels: int | None = None) -> None:
    """Check that a feature shape is ``(C, *S)`` with `dims` spatial axes and, if given, `channels` channels.

    Raises
    ------
    ValueError
        Otherwise.
    """
    axes = "DHW"[-dims:]
    if len(shape) != dims + 1 or (channels is not None and shape[0] != channels):
        expected = ", ".join([str(channels) if channels is not None else "C", *axes])
        raise ValueError(f"expected features of shape ({expected}), got {shape}")


@dataclass(frozen=True)
class Window:
    """Where windows stand on spatial axes; each field has an entry per axis.

    Attributes
    ----------
    kernel, stride, dilation : tuple of int
    padding : tuple of (int, int)
        Before and after.
    ceil_mode : bool
        Whether a last window may reach beyond the padding, provided that it begins on the input or the padding before
        it (torch's rule).
    """

    kernel: Shape
    stride: Shape
    dilation: Shape
    padding: tuple[tuple[int, int], ...]
    ceil_mode: bool = False

    def reach(self, axis: int) -> int:
        """Length of input that a window covers."""
        return self.dilation[axis] * (self.kernel[axis] - 1) + 1

    def out(self, spatial: Shape) -> Shape:
        """Number of windows along each axis.

        Raises
        ------
        ValueError
            If not a single window fits.
        """
        return tuple(self._out(axis, size) for axis, size in enumerate(spatial))

    def _out(self, axis: int, size: int) -> int:
        before, after = self.padding[axis]
        stride, reach = self.stride[axis], self.reach(axis)
        room = size + before + after - reach
        if room < 0 and not (self.ceil_mode and room + stride > 0):
            raise ValueError(f"expected a padded input of at least {reach} along axis {axis - len(self.kernel)}, "
                             f"got {size} + {before} + {after}")
        if not self.ceil_mode:
            return room // stride + 1
        count = -(-room // stride) + 1
        return count - 1 if (count - 1) * stride >= size + before else count

    def all_see(self, spatial: Shape) -> bool:
        """Whether every window sees at least one place that is not padding."""
        axes = zip(self.out(spatial), self.kernel, self.stride, self.dilation, self.padding, spatial)
        return all(
            any(0 <= at * stride - before + k * dilation < size for k in range(kernel))
            for out, kernel, stride, dilation, (before, _), size in axes
            for at in range(out)
        )

    def fitted(self, spatial: Shape) -> tuple[tuple[int, int], ...]:
        """The padding that the windows see: with `ceil_mode`, more at the end if they reach beyond."""
        ends = [(o - 1) * s + self.reach(axis) for axis, (o, s) in enumerate(zip(self.out(spatial), self.stride))]
        return tuple(
            (before, max(end - before - size, 0)) for (before, _), end, size in zip(self.padding, ends, spatial)
        )

    def padded(self, spatial: Shape) -> Shape:
        """Size of the image with its padding."""
        return tuple(size + before + after for size, (before, after) in zip(spatial, self.fitted(spatial)))

    def inside(self, spatial: Shape) -> tuple[slice, ...]:
        """Where the image lies in the padded one."""
        return tuple(slice(before, before + size) for size, (before, _) in zip(spatial, self.fitted(spatial)))

    def unfold(self, x: Array) -> Array:
        """What each window sees of ``[L, *S, C]``, zeros in the padding: ``[L, *out, *kernel, C]``."""
        spatial = x.shape[1:-1]
        return unfold(pad(x, self.fitted(spatial)), self.kernel, self.stride, self.dilation, self.out(spatial))

    def fold(self, cols: Array, spatial: Shape) -> Array:
        """The adjoint of `unfold`: ``[L, *out, *kernel, C] -> [L, *S, C]``."""
        image = fold(cols, self.padded(spatial), self.stride, self.dilation)
        return image[(slice(None), *self.inside(spatial))]
