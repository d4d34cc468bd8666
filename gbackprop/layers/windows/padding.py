"""Paddings by one number, or by numbers of the image."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, channels_first, channels_last
from gbackprop.calculus.frame import Frame
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.window import channels_and_axes, pad
from gbackprop.layers.moves.reshape import _ZeroPad, sides


class _ConstantPad(_ZeroPad):
    """One number around the spatial axes: the Jacobian is that of zeros."""

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


class _FramePad(Layer):
    """Numbers of the image around its spatial axes."""

    dims: ClassVar[int]
    mode: ClassVar[str]
    constant_jacobian = True
    formulas = {"forward": "y = P x, P copies", "mjp": "Pᵀ g"}

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

    def forward(self, x: Array) -> tuple[Array, Any]:
        return self.frame.around(x), None

    def jmp(self, saved: Any, mat: Array) -> Array:
        return self.frame.around(mat)

    def mjp(self, saved: Any, mat: Array) -> Array:
        return self.frame.inside(mat)


class ZeroPad1d(_ZeroPad):
    """A layer that adds zeros around a sequence, ``[N, C, L]``; negative numbers crop.

    Parameters
    ----------
    padding : int or (left, right)
    """

    dims = 1


class ZeroPad3d(_ZeroPad):
    """A layer that adds zeros around a volume, ``[N, C, D, H, W]``; negative numbers crop.

    Parameters
    ----------
    padding : int or (left, right, top, bottom, front, back)
    """

    dims = 3


class ConstantPad1d(_ConstantPad):
    """A layer that adds a number around a sequence, ``[N, C, L]``; negative numbers of places crop.

    Parameters
    ----------
    padding : int or (left, right)
    value : float
    """

    dims = 1


class ConstantPad2d(_ConstantPad):
    """A layer that adds a number around an image, ``[N, C, H, W]``; negative numbers of places crop.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
    value : float
    """

    dims = 2


class ConstantPad3d(_ConstantPad):
    """A layer that adds a number around a volume, ``[N, C, D, H, W]``; negative numbers of places crop.

    Parameters
    ----------
    padding : int or (left, right, top, bottom, front, back)
    value : float
    """

    dims = 3


class ReflectionPad1d(_FramePad):
    """A layer that reflects a sequence at its border; the border itself is not repeated: ``[N, C, L]``.

    Parameters
    ----------
    padding : int or (left, right)
    """

    dims, mode = 1, "reflect"


class ReflectionPad2d(_FramePad):
    """A layer that reflects an image at its border; the border itself is not repeated: ``[N, C, H, W]``.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
    """

    dims, mode = 2, "reflect"


class ReflectionPad3d(_FramePad):
    """A layer that reflects a volume at its border; the border itself is not repeated: ``[N, C, D, H, W]``.

    Parameters
    ----------
    padding : int or (left, right, top, bottom, front, back)
    """

    dims, mode = 3, "reflect"


class ReplicationPad1d(_FramePad):
    """A layer that repeats the numbers at the border of a sequence: ``[N, C, L]``.

    Parameters
    ----------
    padding : int or (left, right)
    """

    dims, mode = 1, "replicate"


class ReplicationPad2d(_FramePad):
    """A layer that repeats the numbers at the border of an image: ``[N, C, H, W]``.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
    """

    dims, mode = 2, "replicate"


class ReplicationPad3d(_FramePad):
    """A layer that repeats the numbers at the border of a volume: ``[N, C, D, H, W]``.

    Parameters
    ----------
    padding : int or (left, right, top, bottom, front, back)
    """

    dims, mode = 3, "replicate"


class CircularPad1d(_FramePad):
    """A layer that goes on around a sequence with what is at its other side: ``[N, C, L]``.

    Parameters
    ----------
    padding : int or (left, right)
    """

    dims, mode = 1, "circular"


class CircularPad2d(_FramePad):
    """A layer that goes on around an image with what is at its other side: ``[N, C, H, W]``.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
    """

    dims, mode = 2, "circular"


class CircularPad3d(_FramePad):
    """A layer that goes on around a volume with what is at its other side: ``[N, C, D, H, W]``.

    Parameters
    ----------
    padding : int or (left, right, top, bottom, front, back)
    """

    dims, mode = 3, "circular"
