"""Layers of moving windows over one and three spatial axes; those over images are beside their formulas."""

from __future__ import annotations

from gbackprop.layers.conv import _Conv


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
