"""Rows of the layer table: (how to make a layer, features that it takes, what it computes in plain terms)."""

import definitions as plain

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

ROWS = CONVOLUTIONS
