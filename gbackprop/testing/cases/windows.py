"""Linear layers, convolutions and pooling: rows of the table of cases."""

from __future__ import annotations

from functools import partial

import numpy as np

from gbackprop import layers as L
from gbackprop.testing.cases import definitions as plain
from gbackprop.testing.cases.rows import LayerRow


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | bool) -> np.ndarray:
    """y[…, o] = Σᵢ W[o, i] x[…, i] + b[o]."""
    return np.einsum("n...i,oi->n...o", x, weight) + bias


adaptive_mean, adaptive_max = (partial(plain.adaptive_pool, reduce=reduce) for reduce in (np.mean, np.max))
affine, conv, back = (partial(LayerRow.of, rule) for rule in (linear, plain.convolution, plain.transposed))
most, mean = (partial(LayerRow.of, rule) for rule in (plain.max_pool, plain.average_pool))
most_of_bins, mean_of_bins = (partial(LayerRow.of, rule) for rule in (adaptive_max, adaptive_mean))

LINEARS = (
    affine(L.Linear, (3,), 3, 4),
    affine(L.Linear, (1,), 1, 1),
    affine(L.Linear, (4,), 4, 2, bias=False),
    affine(L.Linear, (4, 2), 2, 3),
    affine(L.Linear, (2, 2, 3), 3, 2, bias=False),
)

CONVOLUTIONS = (
    conv(L.Conv2d, (1, 2, 2), 1, 1, 1),
    conv(L.Conv2d, (2, 3, 4), 2, 3, 2),
    conv(L.Conv2d, (1, 4, 3), 1, 2, (3, 2), bias=False),
    conv(L.Conv2d, (2, 4, 5), 2, 2, 3, stride=2, padding=1),
    conv(L.Conv2d, (1, 4, 2), 1, 3, 3, stride=3, padding=2),
    conv(L.Conv2d, (1, 5, 2), 1, 2, 2, stride=(2, 1), padding=(0, 1)),
    conv(L.Conv2d, (1, 4, 3), 1, 2, 2, dilation=(2, 1)),
    conv(L.Conv2d, (2, 3, 3), 2, 1, (3, 2), padding="same"),
    conv(L.Conv2d, (1, 3, 3), 1, 2, 2, padding="valid"),
    conv(L.Conv2d, (4, 3, 2), 4, 4, 2, groups=2),
    conv(L.Conv2d, (3, 2, 3), 3, 6, 2, groups=3, bias=False),
    conv(L.Conv2d, (1, 3, 4), 1, 2, 2, stride=2, padding=(2, 1), padding_mode="reflect"),
    conv(L.Conv2d, (2, 2, 3), 2, 2, 3, padding="same", groups=2, padding_mode="replicate", bias=False),
    conv(L.Conv2d, (1, 3, 2), 1, 2, (2, 3), padding=(0, 2), dilation=(1, 2), padding_mode="circular"),
    conv(L.Conv1d, (2, 5), 2, 3, 3, stride=2, padding=1),
    conv(L.Conv1d, (1, 5), 1, 2, 2, dilation=2, bias=False),
    conv(L.Conv1d, (4, 3), 4, 2, 2, padding="same", groups=2),
    conv(L.Conv1d, (1, 3), 1, 2, 3, padding=2, padding_mode="reflect"),
    conv(L.Conv3d, (1, 3, 2, 2), 1, 2, 2),
    conv(
        L.Conv3d, (2, 2, 2, 3), 2, 2, (2, 1, 2),
        stride=(1, 2, 2), padding=(1, 0, 1), dilation=(1, 1, 2), groups=2, bias=False,
    ),
    conv(L.Conv3d, (1, 2, 1, 2), 1, 1, 2, padding=1, padding_mode="circular"),
    back(L.ConvTranspose1d, (2, 3), 2, 3, 2),
    back(L.ConvTranspose1d, (1, 3), 1, 2, 3, stride=2, padding=1, output_padding=1),
    back(
        L.ConvTranspose2d, (2, 2, 2), 2, 2, (2, 3),
        stride=(1, 2), padding=(1, 0), output_padding=(1, 0), bias=False, dilation=(2, 1),
    ),
    back(L.ConvTranspose2d, (4, 2, 1), 4, 2, 2, stride=3, padding=1, output_padding=2, groups=2),
    back(L.ConvTranspose3d, (1, 1, 2, 2), 1, 2, 2),
    back(
        L.ConvTranspose3d, (2, 2, 2, 1), 2, 2, (1, 2, 1),
        stride=(2, 1, 1), padding=(0, 1, 0), output_padding=(1, 0, 0), groups=2, bias=False,
    ),
)  # fmt: skip

POOLS = (
    most(L.MaxPool2d, (2, 4, 4), kernel_size=2),
    most(L.MaxPool2d, (1, 4, 5), kernel_size=3, stride=1),
    most(L.MaxPool2d, (2, 3, 4), kernel_size=(2, 3), stride=(1, 2), padding=1),
    most(L.MaxPool2d, (1, 5, 3), kernel_size=2, ceil_mode=True),
    most(L.MaxPool2d, (1, 4, 3), kernel_size=2, stride=1, dilation=2),
    most(L.MaxPool2d, (2, 5, 4), kernel_size=(2, 1), stride=(1, 2), dilation=(2, 1)),
    most(L.MaxPool2d, (1, 4, 6), kernel_size=3, stride=2, padding=1, ceil_mode=True),
    most(L.MaxPool1d, (2, 5), kernel_size=2),
    most(L.MaxPool1d, (1, 6), kernel_size=3, stride=1, padding=1, dilation=2, ceil_mode=True),
    most(L.MaxPool3d, (1, 2, 4, 3), kernel_size=2),
    most(L.MaxPool3d, (2, 2, 2, 4), kernel_size=(1, 2, 3), stride=(1, 1, 2), padding=(0, 1, 1), ceil_mode=True),
    mean(L.AvgPool2d, (2, 4, 2), kernel_size=2),
    mean(L.AvgPool2d, (1, 4, 3), kernel_size=(3, 2), stride=1),
    mean(L.AvgPool2d, (2, 4, 3), kernel_size=3, stride=2, padding=1),
    mean(L.AvgPool2d, (1, 5, 4), kernel_size=3, stride=2, padding=1, count_include_pad=False),
    mean(L.AvgPool2d, (1, 4, 6), kernel_size=3, stride=2, padding=1, ceil_mode=True),
    mean(L.AvgPool2d, (1, 3, 3), kernel_size=2, ceil_mode=True, divisor_override=3),
    mean(L.AvgPool1d, (2, 5), kernel_size=2),
    mean(L.AvgPool1d, (2, 6), kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
    mean(L.AvgPool3d, (1, 2, 3, 2), kernel_size=2, stride=1),
    mean(L.AvgPool3d, (2, 2, 2, 2), kernel_size=2, stride=(1, 2, 2), padding=(1, 0, 1), divisor_override=3),
    mean_of_bins(L.AdaptiveAvgPool1d, (2, 7), output_size=3),
    mean_of_bins(L.AdaptiveAvgPool1d, (1, 3), output_size=5),
    mean_of_bins(L.AdaptiveAvgPool2d, (2, 5, 3), output_size=(2, None)),
    mean_of_bins(L.AdaptiveAvgPool2d, (1, 4, 3), output_size=1),
    mean_of_bins(L.AdaptiveAvgPool3d, (1, 3, 2, 4), output_size=(2, 1, 3)),
    most_of_bins(L.AdaptiveMaxPool1d, (2, 7), output_size=3),
    most_of_bins(L.AdaptiveMaxPool1d, (1, 3), output_size=5),
    most_of_bins(L.AdaptiveMaxPool2d, (2, 5, 3), output_size=(2, None)),
    most_of_bins(L.AdaptiveMaxPool2d, (1, 4, 4), output_size=2),
    most_of_bins(L.AdaptiveMaxPool3d, (1, 3, 2, 4), output_size=(2, 1, 3)),
)
