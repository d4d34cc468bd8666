"""Layers of moving windows over one and three spatial axes; those over images are beside their formulas."""

from __future__ import annotations

from gbackprop.layers.windows.conv import _Conv
from gbackprop.layers.windows.pooling import _AvgPool, _MaxPool


class Conv1d(_Conv):
    """A convolution of sequences: ``[N, C, L] -> [N, O, L']``.

    Parameters
    ----------
    in_channels, out_channels : int
        C and O.
    kernel_size, stride, dilation : int or (int,)
    padding : int, (int,), "valid" or "same"
    groups : int
    bias : bool
    padding_mode : {"zeros", "reflect", "replicate", "circular"}
        All as for `Conv2d`.

    Attributes
    ----------
    parameters : dict
        "weight" (O, C / groups, k), and "bias" (O,); drawn as those of `Conv2d`.
    """

    dims = 1


class Conv3d(_Conv):
    """A convolution of volumes: ``[N, C, D, H, W] -> [N, O, D', H', W']``.

    Parameters
    ----------
    in_channels, out_channels : int
        C and O.
    kernel_size, stride, dilation : int or (int, int, int)
    padding : int, (int, int, int), "valid" or "same"
    groups : int
    bias : bool
    padding_mode : {"zeros", "reflect", "replicate", "circular"}
        All as for `Conv2d`.

    Attributes
    ----------
    parameters : dict
        "weight" (O, C / groups, kD, kH, kW), and "bias" (O,); drawn as those of `Conv2d`.
    """

    dims = 3


class MaxPool1d(_MaxPool):
    """Maximum over windows of a sequence, per channel: ``[N, C, L] -> [N, C, L']``.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int or (int,)
    ceil_mode : bool
        All as for `MaxPool2d`.
    """

    dims = 1


class MaxPool3d(_MaxPool):
    """Maximum over windows of a volume, per channel: ``[N, C, D, H, W] -> [N, C, D', H', W']``.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int or (int, int, int)
    ceil_mode : bool
        All as for `MaxPool2d`.
    """

    dims = 3


class AvgPool1d(_AvgPool):
    """Mean over windows of a sequence, per channel: ``[N, C, L] -> [N, C, L']``.

    Parameters
    ----------
    kernel_size, stride, padding : int or (int,)
    ceil_mode, count_include_pad : bool
        All as for `AvgPool2d`.
    """

    dims = 1

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)


class AvgPool3d(_AvgPool):
    """Mean over windows of a volume, per channel: ``[N, C, D, H, W] -> [N, C, D', H', W']``.

    Parameters
    ----------
    kernel_size, stride, padding : int or (int, int, int)
    ceil_mode, count_include_pad : bool
    divisor_override : int, optional
        All as for `AvgPool2d`.
    """

    dims = 3
