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

ROWS = [*CONVOLUTIONS, *POOLS]
