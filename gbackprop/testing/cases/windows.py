"""Linear layers, convolutions and pooling: rows of the table of cases."""

from __future__ import annotations

from functools import partial

import numpy as np

from gbackprop import layers as L
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.rows import LayerRow

of = LayerRow.of


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    """y[…, o] = Σᵢ W[o, i] x[…, i] + b[o]."""
    return np.einsum("n...i,oi->n...o", x, weight) + bias


LINEARS = (
    of(L.Linear, (3,), linear, 3, 4),
    of(L.Linear, (1,), linear, 1, 1),
    of(L.Linear, (4,), linear, 4, 2, bias=False),
    of(L.Linear, (4, 2), linear, 2, 3),
    of(L.Linear, (2, 2, 3), linear, 3, 2, bias=False),
)

CONVOLUTIONS = (
    of(L.Conv2d, (1, 2, 2), plain.convolution, 1, 1, 1),
    of(L.Conv2d, (2, 3, 4), plain.convolution, 2, 3, 2),
    of(L.Conv2d, (1, 4, 3), plain.convolution, 1, 2, (3, 2), bias=False),
    of(L.Conv2d, (2, 4, 5), plain.convolution, 2, 2, 3, stride=2, padding=1),
    of(L.Conv2d, (1, 4, 2), plain.convolution, 1, 3, 3, stride=3, padding=2),
    of(L.Conv2d, (1, 5, 2), plain.convolution, 1, 2, 2, stride=(2, 1), padding=(0, 1)),
    of(L.Conv2d, (1, 4, 3), plain.convolution, 1, 2, 2, dilation=(2, 1)),
    of(L.Conv2d, (2, 3, 3), plain.convolution, 2, 1, (3, 2), padding="same"),
    of(L.Conv2d, (1, 3, 3), plain.convolution, 1, 2, 2, padding="valid"),
    of(L.Conv2d, (4, 3, 2), plain.convolution, 4, 4, 2, groups=2),
    of(L.Conv2d, (3, 2, 3), plain.convolution, 3, 6, 2, groups=3, bias=False),
    of(L.Conv2d, (1, 3, 4), plain.convolution, 1, 2, 2, stride=2, padding=(2, 1), padding_mode="reflect"),
    of(
        L.Conv2d, (2, 2, 3), plain.convolution, 2, 2, 3,
        padding="same", groups=2, padding_mode="replicate", bias=False,
    ),
    of(
        L.Conv2d, (1, 3, 2), plain.convolution, 1, 2, (2, 3),
        padding=(0, 2), dilation=(1, 2), padding_mode="circular",
    ),
    of(L.Conv1d, (2, 5), plain.convolution, 2, 3, 3, stride=2, padding=1),
    of(L.Conv1d, (1, 5), plain.convolution, 1, 2, 2, dilation=2, bias=False),
    of(L.Conv1d, (4, 3), plain.convolution, 4, 2, 2, padding="same", groups=2),
    of(L.Conv1d, (1, 3), plain.convolution, 1, 2, 3, padding=2, padding_mode="reflect"),
    of(L.Conv3d, (1, 3, 2, 2), plain.convolution, 1, 2, 2),
    of(
        L.Conv3d, (2, 2, 2, 3), plain.convolution, 2, 2, (2, 1, 2),
        stride=(1, 2, 2), padding=(1, 0, 1), dilation=(1, 1, 2), groups=2, bias=False,
    ),
    of(L.Conv3d, (1, 2, 1, 2), plain.convolution, 1, 1, 2, padding=1, padding_mode="circular"),
    of(L.ConvTranspose1d, (2, 3), plain.transposed, 2, 3, 2),
    of(L.ConvTranspose1d, (1, 3), plain.transposed, 1, 2, 3, stride=2, padding=1, output_padding=1),
    of(
        L.ConvTranspose2d, (2, 2, 2), plain.transposed, 2, 2, (2, 3),
        stride=(1, 2), padding=(1, 0), output_padding=(1, 0), bias=False, dilation=(2, 1),
    ),
    of(
        L.ConvTranspose2d, (4, 2, 1), plain.transposed, 4, 2, 2,
        stride=3, padding=1, output_padding=2, groups=2,
    ),
    of(L.ConvTranspose3d, (1, 1, 2, 2), plain.transposed, 1, 2, 2),
    of(
        L.ConvTranspose3d, (2, 2, 2, 1), plain.transposed, 2, 2, (1, 2, 1),
        stride=(2, 1, 1), padding=(0, 1, 0), output_padding=(1, 0, 0), groups=2, bias=False,
    ),
)  # fmt: skip

mean, most = (partial(plain.adaptive_pool, reduce=reduce) for reduce in (np.mean, np.max))

POOLS = (
    of(L.MaxPool2d, (2, 4, 4), plain.max_pool, kernel_size=2),
    of(L.MaxPool2d, (1, 4, 5), plain.max_pool, kernel_size=3, stride=1),
    of(L.MaxPool2d, (2, 3, 4), plain.max_pool, kernel_size=(2, 3), stride=(1, 2), padding=1),
    of(L.MaxPool2d, (1, 5, 3), plain.max_pool, kernel_size=2, ceil_mode=True),
    of(L.MaxPool2d, (1, 4, 3), plain.max_pool, kernel_size=2, stride=1, dilation=2),
    of(L.MaxPool2d, (2, 5, 4), plain.max_pool, kernel_size=(2, 1), stride=(1, 2), dilation=(2, 1)),
    of(L.MaxPool2d, (1, 4, 6), plain.max_pool, kernel_size=3, stride=2, padding=1, ceil_mode=True),
    of(L.MaxPool1d, (2, 5), plain.max_pool, kernel_size=2),
    of(L.MaxPool1d, (1, 6), plain.max_pool, kernel_size=3, stride=1, padding=1, dilation=2, ceil_mode=True),
    of(L.MaxPool3d, (1, 2, 4, 3), plain.max_pool, kernel_size=2),
    of(
        L.MaxPool3d, (2, 2, 2, 4), plain.max_pool,
        kernel_size=(1, 2, 3), stride=(1, 1, 2), padding=(0, 1, 1), ceil_mode=True,
    ),
    of(L.AvgPool2d, (2, 4, 2), plain.average_pool, kernel_size=2),
    of(L.AvgPool2d, (1, 4, 3), plain.average_pool, kernel_size=(3, 2), stride=1),
    of(L.AvgPool2d, (2, 4, 3), plain.average_pool, kernel_size=3, stride=2, padding=1),
    of(L.AvgPool2d, (1, 5, 4), plain.average_pool, kernel_size=3, stride=2, padding=1, count_include_pad=False),
    of(L.AvgPool2d, (1, 4, 6), plain.average_pool, kernel_size=3, stride=2, padding=1, ceil_mode=True),
    of(L.AvgPool2d, (1, 3, 3), plain.average_pool, kernel_size=2, ceil_mode=True, divisor_override=3),
    of(L.AvgPool1d, (2, 5), plain.average_pool, kernel_size=2),
    of(
        L.AvgPool1d, (2, 6), plain.average_pool,
        kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False,
    ),
    of(L.AvgPool3d, (1, 2, 3, 2), plain.average_pool, kernel_size=2, stride=1),
    of(
        L.AvgPool3d, (2, 2, 2, 2), plain.average_pool,
        kernel_size=2, stride=(1, 2, 2), padding=(1, 0, 1), divisor_override=3,
    ),
    of(L.AdaptiveAvgPool1d, (2, 7), mean, output_size=3),
    of(L.AdaptiveAvgPool1d, (1, 3), mean, output_size=5),
    of(L.AdaptiveAvgPool2d, (2, 5, 3), mean, output_size=(2, None)),
    of(L.AdaptiveAvgPool2d, (1, 4, 3), mean, output_size=1),
    of(L.AdaptiveAvgPool3d, (1, 3, 2, 4), mean, output_size=(2, 1, 3)),
    of(L.AdaptiveMaxPool1d, (2, 7), most, output_size=3),
    of(L.AdaptiveMaxPool1d, (1, 3), most, output_size=5),
    of(L.AdaptiveMaxPool2d, (2, 5, 3), most, output_size=(2, None)),
    of(L.AdaptiveMaxPool2d, (1, 4, 4), most, output_size=2),
    of(L.AdaptiveMaxPool3d, (1, 3, 2, 4), most, output_size=(2, 1, 3)),
)  # fmt: skip
