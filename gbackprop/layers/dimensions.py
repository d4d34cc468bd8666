"""Layers of moving windows over one and three spatial axes; those over images are beside their formulas."""

from __future__ import annotations

from gbackprop.layers.windows.conv import _Conv
from gbackprop.layers.windows.pooling import _AvgPool, _MaxPool


class Conv1d(_Conv, dims=1):
    """A convolution of sequences: ``[N, C, L] -> [N, O, L']``."""


class Conv3d(_Conv, dims=3):
    """A convolution of volumes: ``[N, C, D, H, W] -> [N, O, D', H', W']``."""


class MaxPool1d(_MaxPool, dims=1):
    """Maximum over windows of a sequence, per channel: ``[N, C, L] -> [N, C, L']``."""


class MaxPool3d(_MaxPool, dims=3):
    """Maximum over windows of a volume, per channel: ``[N, C, D, H, W] -> [N, C, D', H', W']``."""


class AvgPool1d(_AvgPool, dims=1):
    """Mean over windows of a sequence, per channel: ``[N, C, L] -> [N, C, L']``."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)


class AvgPool3d(_AvgPool, dims=3):
    """Mean over windows of a volume, per channel: ``[N, C, D, H, W] -> [N, C, D', H', W']``."""
