"""Paddings by one number, or by numbers of the image."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, channels_first, channels_last
from gbackprop.calculus.frame import Frame
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Spatial, channels_and_axes, pad
from gbackprop.layers.moves.indexing import _Move
from gbackprop.layers.moves.reshape import _ZeroPad, sides


class _ConstantPad(_ZeroPad):
    """One number around the spatial axes: the Jacobian is that of zeros.

    Parameters
    ----------
    padding : int or (left, …)
    value : float
    """

    formulas = {"forward": "y = x with a number around", "mjp": "g without what was around"}

    def __init__(self, padding: int | tuple[int, ...], value: float) -> None:
        super().__init__(padding)
        if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(value):
            raise ValueError(f"value: expected a finite number, got {value!r}")
        self.value: float = float(value)

    def describe(self) -> str:
        return f"{super().describe()}, {self.value}"

    def forward(self, x: Array) -> tuple[Array, Any]:
        return channels_first(pad(channels_last(x), self.padding, self.value)), x.shape[2:]


class _FramePad(Spatial, _Move):
    """Numbers of the image around its spatial axes.

    Parameters
    ----------
    padding : int or (left, …)
    """

    mode: ClassVar[str]
    takes = "floats"

    def __init_subclass__(cls, dims: int | None = None, mode: str | None = None) -> None:
        super().__init_subclass__(dims)
        cls.mode = mode or cls.mode

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        self.frame = Frame(self.mode, sides(padding, self.dims))
        if min(map(min, self.frame.padding)) < 0:
            raise ValueError(f"padding: expected numbers of at least 0, got {padding!r}")

    def describe(self) -> str:
        return str(tuple(number for pair in reversed(self.frame.padding) for number in pair))

    def output_shape(self, shape: Shape) -> Shape:
        channels_and_axes(shape, self.dims)
        if 0 in shape:
            raise ValueError(f"expected features of at least one place along each axis, got {shape}")
        return (shape[0], *self.frame.size(shape[1:]))

    def moved(self, x: Array) -> Array:
        return self.frame.around(x)

    def back(self, g: Array, shape: Shape) -> Array:
        return self.frame.inside(g)


class ZeroPad1d(_ZeroPad, dims=1):
    """A layer that adds zeros around a sequence, ``[N, C, L]``; negative numbers crop."""


class ZeroPad3d(_ZeroPad, dims=3):
    """A layer that adds zeros around a volume, ``[N, C, D, H, W]``; negative numbers crop."""


class ConstantPad1d(_ConstantPad, dims=1):
    """A layer that adds a number around a sequence, ``[N, C, L]``; negative numbers of places crop."""


class ConstantPad2d(_ConstantPad, dims=2):
    """A layer that adds a number around an image, ``[N, C, H, W]``; negative numbers of places crop."""


class ConstantPad3d(_ConstantPad, dims=3):
    """A layer that adds a number around a volume, ``[N, C, D, H, W]``; negative numbers of places crop."""


class ReflectionPad1d(_FramePad, dims=1, mode="reflect"):
    """A layer that reflects a sequence at its border; the border itself is not repeated: ``[N, C, L]``."""


class ReflectionPad2d(_FramePad, dims=2, mode="reflect"):
    """A layer that reflects an image at its border; the border itself is not repeated: ``[N, C, H, W]``."""


class ReflectionPad3d(_FramePad, dims=3, mode="reflect"):
    """A layer that reflects a volume at its border; the border itself is not repeated: ``[N, C, D, H, W]``."""


class ReplicationPad1d(_FramePad, dims=1, mode="replicate"):
    """A layer that repeats the numbers at the border of a sequence: ``[N, C, L]``."""


class ReplicationPad2d(_FramePad, dims=2, mode="replicate"):
    """A layer that repeats the numbers at the border of an image: ``[N, C, H, W]``."""


class ReplicationPad3d(_FramePad, dims=3, mode="replicate"):
    """A layer that repeats the numbers at the border of a volume: ``[N, C, D, H, W]``."""


class CircularPad1d(_FramePad, dims=1, mode="circular"):
    """A layer that goes on around a sequence with what is at its other side: ``[N, C, L]``."""


class CircularPad2d(_FramePad, dims=2, mode="circular"):
    """A layer that goes on around an image with what is at its other side: ``[N, C, H, W]``."""


class CircularPad3d(_FramePad, dims=3, mode="circular"):
    """A layer that goes on around a volume with what is at its other side: ``[N, C, D, H, W]``."""
