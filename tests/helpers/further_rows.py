"""Rows of the layer table: (how to make a layer, features that it takes, what it computes in plain terms)."""

import definitions as plain
import numpy as np

from gbackprop import layers as L

ONES = (1, 1, 1)
NONE = ((0, 0), (0, 0), (0, 0))

CONVOLUTIONS = [
    (
        lambda: L.Conv2d(1, 2, 2, 2, (2, 1), padding_mode="reflect"),
        (1, 3, 4),
        plain.conv2d((2, 2), ((2, 2), (1, 1)), mode="reflect"),
    ),
    (
        lambda: L.Conv2d(2, 2, 3, padding="same", groups=2, padding_mode="replicate", bias=False),
        (2, 2, 3),
        plain.conv2d(padding=((1, 1), (1, 1)), groups=2, mode="replicate"),
    ),
    (
        lambda: L.Conv2d(1, 2, (2, 3), padding=(0, 2), dilation=(1, 2), padding_mode="circular"),
        (1, 3, 2),
        plain.conv2d(padding=((0, 0), (2, 2)), dilation=(1, 2), mode="circular"),
    ),
    (lambda: L.Conv1d(2, 3, 3, stride=2, padding=1), (2, 5), plain.conv((2,), ((1, 1),), (1,))),
    (lambda: L.Conv1d(1, 2, 2, dilation=2, bias=False), (1, 5), plain.conv((1,), ((0, 0),), (2,))),
    (lambda: L.Conv1d(4, 2, 2, padding="same", groups=2), (4, 3), plain.conv((1,), ((0, 1),), (1,), groups=2)),
    (
        lambda: L.Conv1d(1, 2, 3, padding=2, padding_mode="reflect"),
        (1, 3),
        plain.conv((1,), ((2, 2),), (1,), mode="reflect"),
    ),
    (lambda: L.Conv3d(1, 2, 2), (1, 3, 2, 2), plain.conv(ONES, NONE, ONES)),
    (
        lambda: L.Conv3d(2, 2, (2, 1, 2), (1, 2, 2), (1, 0, 1), (1, 1, 2), 2, bias=False),
        (2, 2, 2, 3),
        plain.conv((1, 2, 2), ((1, 1), (0, 0), (1, 1)), (1, 1, 2), groups=2),
    ),
    (
        lambda: L.Conv3d(1, 1, 2, padding=1, padding_mode="circular"),
        (1, 2, 1, 2),
        plain.conv(ONES, ((1, 1),) * 3, ONES, mode="circular"),
    ),
]

POOLS = [
    (lambda: L.MaxPool1d(2), (2, 5), plain.max_pool((2,), (2,), (0,), (1,))),
    (lambda: L.MaxPool1d(3, 1, 1, 2, ceil_mode=True), (1, 6), plain.max_pool((3,), (1,), (1,), (2,), ceil=True)),
    (lambda: L.MaxPool3d(2), (1, 2, 4, 3), plain.max_pool((2, 2, 2), (2, 2, 2), (0, 0, 0), ONES)),
    (
        lambda: L.MaxPool3d((1, 2, 3), (1, 1, 2), (0, 1, 1), ceil_mode=True),
        (2, 2, 2, 4),
        plain.max_pool((1, 2, 3), (1, 1, 2), (0, 1, 1), ONES, ceil=True),
    ),
    (lambda: L.AvgPool1d(2), (2, 5), plain.avg_pool((2,), (2,), (0,))),
    (
        lambda: L.AvgPool1d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        (2, 6),
        plain.avg_pool((3,), (2,), (1,), ceil=True, count_include_pad=False),
    ),
    (lambda: L.AvgPool3d(2, 1), (1, 2, 3, 2), plain.avg_pool((2, 2, 2), ONES, (0, 0, 0))),
    (
        lambda: L.AvgPool3d(2, (1, 2, 2), (1, 0, 1), divisor_override=3),
        (2, 2, 2, 2),
        plain.avg_pool((2, 2, 2), (1, 2, 2), (1, 0, 1), divisor=3),
    ),
    (lambda: L.AdaptiveAvgPool1d(3), (2, 7), plain.adaptive((3,), np.mean)),
    (lambda: L.AdaptiveAvgPool1d(5), (1, 3), plain.adaptive((5,), np.mean)),
    (lambda: L.AdaptiveAvgPool2d((2, None)), (2, 5, 3), plain.adaptive((2, None), np.mean)),
    (lambda: L.AdaptiveAvgPool2d(1), (1, 4, 3), plain.adaptive((1, 1), np.mean)),
    (lambda: L.AdaptiveAvgPool3d((2, 1, 3)), (1, 3, 2, 4), plain.adaptive((2, 1, 3), np.mean)),
    (lambda: L.AdaptiveMaxPool1d(3), (2, 7), plain.adaptive((3,), np.max)),
    (lambda: L.AdaptiveMaxPool1d(5), (1, 3), plain.adaptive((5,), np.max)),
    (lambda: L.AdaptiveMaxPool2d((2, None)), (2, 5, 3), plain.adaptive((2, None), np.max)),
    (lambda: L.AdaptiveMaxPool2d(2), (1, 4, 4), plain.adaptive((2, 2), np.max)),
    (lambda: L.AdaptiveMaxPool3d((2, 1, 3)), (1, 3, 2, 4), plain.adaptive((2, 1, 3), np.max)),
]

TRANSPOSED = [
    (lambda: L.ConvTranspose1d(2, 3, 2), (2, 3), plain.transposed((1,), (0,), (0,), (1,))),
    (lambda: L.ConvTranspose1d(1, 2, 3, 2, 1, 1), (1, 3), plain.transposed((2,), (1,), (1,), (1,))),
    (
        lambda: L.ConvTranspose2d(2, 2, (2, 3), (1, 2), (1, 0), (1, 0), bias=False, dilation=(2, 1)),
        (2, 2, 2),
        plain.transposed((1, 2), (1, 0), (1, 0), (2, 1)),
    ),
    (
        lambda: L.ConvTranspose2d(4, 2, 2, 3, 1, 2, groups=2),
        (4, 2, 1),
        plain.transposed((3, 3), (1, 1), (2, 2), (1, 1), groups=2),
    ),
    (lambda: L.ConvTranspose3d(1, 2, 2), (1, 1, 2, 2), plain.transposed(ONES, (0, 0, 0), (0, 0, 0), ONES)),
    (
        lambda: L.ConvTranspose3d(2, 2, (1, 2, 1), (2, 1, 1), (0, 1, 0), (1, 0, 0), 2, False),
        (2, 2, 2, 1),
        plain.transposed((2, 1, 1), (0, 1, 0), (1, 0, 0), ONES, groups=2),
    ),
]

MEAN, VARIANCE = np.array([0.5, -1.0, 2.0]), np.array([0.3, 1.5, 4.0])


def trained(layer):
    """Batch normalization with running statistics of three channels."""
    layer.buffers |= {"running_mean": MEAN, "running_var": VARIANCE}
    return layer


FACTORS = [
    (lambda: trained(L.BatchNorm1d(3)), (3,), plain.normalized(MEAN, VARIANCE)),
    (lambda: trained(L.BatchNorm1d(3, eps=0.1)), (3, 2), plain.normalized(MEAN, VARIANCE, 0.1)),
    (lambda: trained(L.BatchNorm2d(3, affine=False)), (3, 2, 2), plain.normalized(MEAN, VARIANCE)),
    (lambda: trained(L.BatchNorm2d(3, momentum=None)), (3, 1, 3), plain.normalized(MEAN, VARIANCE)),
    (lambda: trained(L.BatchNorm3d(3)), (3, 2, 1, 2), plain.normalized(MEAN, VARIANCE)),
    (lambda: L.Scale(), (4,), plain.scaled),
    (lambda: L.Scale(init=0.5), (2, 1, 2), plain.scaled),
    (lambda: L.Scale(3, init=-2.0), (3, 2), plain.scaled),
]

ALL = (2, 1, 1, 0, 0, 2)  # left, right, top, bottom, front, back

PADDINGS = [
    (lambda: L.ZeroPad1d((2, 1)), (2, 3), plain.framed((2, 1), "zeros")),
    (lambda: L.ZeroPad1d((-1, 1)), (1, 3), lambda x: np.pad(x[:, :, 1:], ((0, 0), (0, 0), (0, 1)))),
    (lambda: L.ZeroPad3d(ALL), (1, 1, 2, 2), plain.framed(ALL, "zeros")),
    (lambda: L.ConstantPad1d(1, 0.5), (2, 2), plain.framed((1, 1), "zeros", constant_values=0.5)),
    (lambda: L.ConstantPad2d((0, 1, 2, 0), -1), (1, 2, 2), plain.framed((0, 1, 2, 0), "zeros", constant_values=-1)),
    (lambda: L.ConstantPad3d(ALL, 2.0), (1, 1, 2, 1), plain.framed(ALL, "zeros", constant_values=2)),
    (lambda: L.ReflectionPad1d((2, 0)), (2, 3), plain.framed((2, 0), "reflect")),
    (lambda: L.ReflectionPad2d((1, 2, 0, 1)), (1, 2, 3), plain.framed((1, 2, 0, 1), "reflect")),
    (lambda: L.ReflectionPad3d(1), (1, 2, 2, 2), plain.framed((1,) * 6, "reflect")),
    (lambda: L.ReplicationPad1d((1, 3)), (2, 2), plain.framed((1, 3), "replicate")),
    (lambda: L.ReplicationPad2d((2, 1, 0, 2)), (1, 2, 1), plain.framed((2, 1, 0, 2), "replicate")),
    (lambda: L.ReplicationPad3d(ALL), (1, 2, 1, 2), plain.framed(ALL, "replicate")),
    (lambda: L.CircularPad1d((2, 1)), (2, 2), plain.framed((2, 1), "circular")),
    (lambda: L.CircularPad2d((0, 2, 1, 1)), (1, 2, 3), plain.framed((0, 2, 1, 1), "circular")),
    (lambda: L.CircularPad3d(ALL), (1, 2, 1, 2), plain.framed(ALL, "circular")),
]

MOVES = [
    (lambda: L.PixelShuffle(2), (8, 1, 2), plain.shuffled(2)),
    (lambda: L.PixelShuffle(3), (9, 2, 1), plain.shuffled(3)),
    (lambda: L.PixelUnshuffle(2), (2, 2, 4), plain.unshuffled(2)),
    (lambda: L.Unflatten(1, (2, 3)), (6, 2), plain.reshape(2, 3, 2)),
    (lambda: L.Unflatten(-1, (-1, 2)), (3, 4), plain.reshape(3, 2, 2)),
    (lambda: L.Permute((0, 3, 1, 2)), (2, 3, 4), lambda x: np.einsum("nabc->ncab", x)),
    (lambda: L.Slice(1, 1), (4, 2), lambda x: np.stack([x[:, 1], x[:, 2], x[:, 3]], 1)),
    (lambda: L.Slice(-1, -4, None, 2), (2, 5), lambda x: np.stack([x[:, :, 1], x[:, :, 3]], 2)),
    (lambda: L.Select(2, -1), (3, 4), lambda x: x[:, :, 3]),
    (lambda: L.Select(1, 0), (3, 2, 2), lambda x: x[:, 0]),
    (lambda: L.Upsample(scale_factor=2), (2, 3), plain.nearest([[0, 0, 1, 1, 2, 2]])),
    (lambda: L.Upsample(size=(3, 4)), (1, 2, 5), plain.nearest([[0, 0, 1], [0, 1, 2, 3]])),
    (lambda: L.Upsample(scale_factor=(1, 1.5, 0.5)), (1, 1, 2, 4), plain.nearest([[0], [0, 0, 1], [0, 2]])),
]

ROWS = [*CONVOLUTIONS, *POOLS, *TRANSPOSED, *FACTORS, *PADDINGS, *MOVES]
