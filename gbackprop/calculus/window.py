"""Moving windows: the geometry shared by convolution and pooling, and unfolding in plain NumPy or CuPy.

The functions work channels-last, ``[L, *S, C]``: L rows of any kind, spatial axes S, channels C.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import positive
from gbackprop.calculus.layer import Layer, Shape

Padding = Sequence[tuple[int, int]]

SIDES = ("left", "right", "top", "bottom", "front", "back")
"""The sides of an image in the order of torch's paddings, last axis first."""


class Spatial(Layer):
    """Base class of layers over `dims` spatial axes: ``class Conv2d(_Conv, dims=2)``.

    The docstring of such a class goes on with that of its base, whose "(int, …)" and "(left, …)" are written out, but
    for the parameters that a constructor of its own lacks.
    """

    dims: ClassVar[int]

    def __init_subclass__(cls, dims: int | None = None) -> None:
        super().__init_subclass__()
        if dims is None:  # another family, or a user's class
            return
        cls.dims = dims
        _, _, sections = (cls.__bases__[0].__doc__ or "").partition("\n\n")
        ints = f"({'int, ' * (dims - 1)}int{',' if dims == 1 else ''})"
        for before, after in (("(int, …)", ints), ("(left, …)", f"({', '.join(SIDES[: 2 * dims])})")):
            sections = sections.replace(before, after)
        for name in inspect.signature(cls.__bases__[0]).parameters.keys() - inspect.signature(cls).parameters.keys():
            sections = re.sub(rf"\n    {name} : .*(\n        .*)*", "", sections)
        cls.__doc__ = cls.__doc__ and f"{cls.__doc__}\n\n    {sections.strip()}\n    "


def per_axis(name: str, value: Any, dims: int, least: int = 1) -> Shape:
    """Return a tuple of `dims` ints from an int for all axes or one for each."""
    several = isinstance(value, Iterable) and not isinstance(value, str) and np.ndim(value) > 0  # type: ignore[arg-type]
    values = tuple(value) if several else (value,) * dims
    if len(values) != dims:
        raise ValueError(f"{name}: expected an integer or {dims} of them, got {value!r}")
    return tuple(positive(name, v, least) for v in values)


def channels_and_axes(shape: Shape, dims: int, channels: int | None = None) -> None:
    """Check that a feature shape is ``(C, *S)`` with `dims` spatial axes and, if given, `channels` channels."""
    axes = "DHW"[-dims:]
    if len(shape) != dims + 1 or (channels is not None and shape[0] != channels):
        expected = ", ".join([str(channels) if channels is not None else "C", *axes])
        raise ValueError(f"expected features of shape ({expected}), got {shape}")


@dataclass(frozen=True)
class Window:
    """The geometry of moving windows on spatial axes; each field has an entry per axis, `padding` (before, after)."""

    kernel: Shape
    stride: Shape
    dilation: Shape
    padding: tuple[tuple[int, int], ...]
    ceil_mode: bool = False
    """A last window may reach beyond the padding if it begins on the input or the padding before it (torch's rule)."""

    @property
    def reach(self) -> Shape:
        """The length of input that a window covers along each axis."""
        return tuple([d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation)])

    def out(self, spatial: Shape) -> Shape:
        """Return the number of windows along each axis."""
        counts = []
        axes = enumerate(zip(spatial, self.stride, self.padding, self.reach))
        for axis, (size, stride, (before, after), reach) in axes:
            left = size + before + after - reach
            if left < 0 and not (self.ceil_mode and left + stride > 0):
                raise ValueError(
                    f"expected a padded input of at least {reach} along axis {axis - len(self.kernel)}, "
                    f"got {size} + {before} + {after}"
                )
            count = left // stride + 1 if not self.ceil_mode else -(-left // stride) + 1
            counts.append(count - (self.ceil_mode and (count - 1) * stride >= size + before))
        return tuple(counts)

    def all_see(self, spatial: Shape) -> bool:
        """Return whether every window covers at least one place that is not padding."""
        axes = zip(self.out(spatial), self.kernel, self.stride, self.dilation, self.padding, spatial)
        return all(
            any(0 <= at * stride - before + k * dilation < size for k in range(kernel))
            for out, kernel, stride, dilation, (before, _), size in axes
            for at in range(out)
        )

    def fitted(self, spatial: Shape) -> tuple[tuple[int, int], ...]:
        """Return the padding that the windows cover: with `ceil_mode`, more at the end if they reach beyond it."""
        ends = [(o - 1) * s + reach for o, s, reach in zip(self.out(spatial), self.stride, self.reach)]
        return tuple(
            (before, max(end - before - size, 0)) for (before, _), end, size in zip(self.padding, ends, spatial)
        )

    def padded(self, spatial: Shape) -> Shape:
        """Return the size of the image with its padding."""
        return tuple(size + before + after for size, (before, after) in zip(spatial, self.fitted(spatial)))

    def inside(self, spatial: Shape) -> tuple[Any, ...]:
        """Return the slices of the image in the padded image."""
        return tuple(slice(before, before + size) for size, (before, _) in zip(spatial, self.fitted(spatial)))

    def offsets(self, out: Shape) -> Iterator[tuple[Any, ...]]:
        """Yield for each place in the window, row by row, the spatial slices of an image that windows cover there."""
        for place in itertools.product(*map(range, self.kernel)):
            axes = zip(place, self.stride, self.dilation, out, strict=True)
            yield tuple(slice(k * d, k * d + (o - 1) * s + 1, s) for k, s, d, o in axes)

    def unfold(self, x: Array) -> Array:
        """Compute the entries of ``[L, *S, C]`` in each window, zeros in the padding: ``[L, *out, *kernel, C]``."""
        image, out = pad(x, self.fitted(x.shape[1:-1])), self.out(x.shape[1:-1])
        seen = [image[(slice(None), *where)] for where in self.offsets(out)]
        return array_module(x).stack(seen, axis=-2).reshape(len(x), *out, *self.kernel, x.shape[-1])

    def fold(self, cols: Array, spatial: Shape) -> Array:
        """Compute the adjoint of `unfold`: sum ``[L, *out, *kernel, C]`` at the place of each entry, ``[L, *S, C]``."""
        out = self.out(spatial)
        seen = cols.reshape(len(cols), *out, prod(self.kernel), cols.shape[-1])
        image = array_module(cols).zeros((len(cols), *self.padded(spatial), cols.shape[-1]), dtype=cols.dtype)
        for k, where in enumerate(self.offsets(out)):
            image[(slice(None), *where)] += seen[..., k, :]
        return image[(slice(None), *self.inside(spatial))]


def pad(x: Array, padding: Padding, value: float = 0.0) -> Array:
    """Add (before, after) numbers to each spatial axis of ``[L, *S, C]``; negative ones crop (a view).

    The adjoint of ``pad(x, p)`` is ``pad(x, -p)``.
    """
    spatial = x.shape[1:-1]
    crop = tuple(slice(max(-b, 0), s - max(-a, 0)) for s, (b, a) in zip(spatial, padding, strict=True))
    cropped = x[(slice(None), *crop)]
    if all(before <= 0 and after <= 0 for before, after in padding):
        return cropped
    size = tuple(s + before + after for s, (before, after) in zip(spatial, padding))
    into = tuple(slice(max(b, 0), max(b, 0) + s) for s, (b, _) in zip(cropped.shape[1:-1], padding))
    image = array_module(x).full((len(x), *size, x.shape[-1]), value, dtype=x.dtype)
    image[(slice(None), *into)] = cropped
    return image
