"""The layers to test: one row for each configuration. A new layer is one more row, and gets every check."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import definitions as plain
import further_rows
import norm_rows
import numpy as np
from scipy import special

from gbackprop import Sequential
from gbackprop.layers import (
    CELU,
    ELU,
    GELU,
    SELU,
    Add,
    AvgPool2d,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    Identity,
    Layer,
    LeakyReLU,
    Linear,
    LogSigmoid,
    LogSoftmax,
    MatMul,
    MaxPool2d,
    Mish,
    Multiply,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
    ZeroPad2d,
)
from gbackprop.losses import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from gbackprop.testing.kronecker_oracles import ENTRYWISE


@dataclass(frozen=True)
class Row:
    """How to make a layer, features that it takes, and what it should compute, where plain terms for it exist."""

    make: Callable[[], Layer]
    shape: tuple[int, ...]
    reference: Callable[..., Any] | None = None

    def layer(self, seed: int = 0) -> Layer:
        """The layer in float64, its parameters drawn."""
        layer = self.make()
        layer.dtype = "float64"
        layer.initialize(np.random.default_rng(seed))
        return layer

    def x(self, batch: int = 3, seed: int = 0) -> np.ndarray:
        """A batch for it."""
        return np.random.default_rng(seed).standard_normal((batch, *self.shape))

    def __str__(self) -> str:
        return f"{self.make()!r} on {self.shape}"


SAME = ((1, 1), (0, 1))

JOINS = (Add, Multiply, Concat, MatMul)
"""Layers of several inputs, which have tests of their own: tests/layers/test_joins.py."""

TABLE = [
    Row(lambda: Linear(3, 4), (3,), plain.linear()),
    Row(lambda: Linear(1, 1), (1,), plain.linear()),
    Row(lambda: Linear(4, 2, bias=False), (4,), plain.linear()),
    Row(lambda: Linear(2, 3), (4, 2), plain.linear()),
    Row(lambda: Linear(3, 2, bias=False), (2, 2, 3), plain.linear()),
    Row(lambda: Conv2d(1, 1, 1), (1, 2, 2), plain.conv2d()),
    Row(lambda: Conv2d(2, 3, 2), (2, 3, 4), plain.conv2d()),
    Row(lambda: Conv2d(1, 2, (3, 2), bias=False), (1, 4, 3), plain.conv2d()),
    Row(lambda: Conv2d(2, 2, 3, stride=2, padding=1), (2, 4, 5), plain.conv2d((2, 2), ((1, 1), (1, 1)))),
    Row(lambda: Conv2d(1, 3, 3, stride=3, padding=2), (1, 4, 2), plain.conv2d((3, 3), ((2, 2), (2, 2)))),
    Row(lambda: Conv2d(1, 2, 2, stride=(2, 1), padding=(0, 1)), (1, 5, 2), plain.conv2d((2, 1), ((0, 0), (1, 1)))),
    Row(lambda: Conv2d(1, 2, 2, dilation=(2, 1)), (1, 4, 3), plain.conv2d(dilation=(2, 1))),
    Row(lambda: Conv2d(2, 1, (3, 2), padding="same"), (2, 3, 3), plain.conv2d(padding=SAME)),
    Row(lambda: Conv2d(1, 2, 2, padding="valid"), (1, 3, 3), plain.conv2d()),
    Row(lambda: Conv2d(4, 4, 2, groups=2), (4, 3, 2), plain.conv2d(groups=2)),
    Row(lambda: Conv2d(3, 6, 2, groups=3, bias=False), (3, 2, 3), plain.conv2d(groups=3)),
    Row(lambda: MaxPool2d(2), (2, 4, 4), plain.max_pool2d((2, 2), (2, 2))),
    Row(lambda: MaxPool2d(3, stride=1), (1, 4, 5), plain.max_pool2d((3, 3), (1, 1))),
    Row(lambda: MaxPool2d((2, 3), stride=(1, 2), padding=1), (2, 3, 4), plain.max_pool2d((2, 3), (1, 2), (1, 1))),
    Row(lambda: MaxPool2d(2, ceil_mode=True), (1, 5, 3), plain.max_pool2d((2, 2), (2, 2), ceil=True)),
    Row(lambda: MaxPool2d(2, stride=1, dilation=2), (1, 4, 3), plain.max_pool2d((2, 2), (1, 1), dilation=(2, 2))),
    Row(
        lambda: MaxPool2d(3, 2, 1, ceil_mode=True), (1, 4, 6), plain.max_pool2d((3, 3), (2, 2), (1, 1), ceil=True)
    ),
    Row(lambda: AvgPool2d(2), (2, 4, 2), plain.avg_pool2d((2, 2), (2, 2))),
    Row(lambda: AvgPool2d((3, 2), stride=1), (1, 4, 3), plain.avg_pool2d((3, 2), (1, 1))),
    Row(lambda: AvgPool2d(3, stride=2, padding=1), (2, 4, 3), plain.avg_pool2d((3, 3), (2, 2), (1, 1))),
    Row(
        lambda: AvgPool2d(3, 2, 1, count_include_pad=False),
        (1, 5, 4),
        plain.avg_pool2d((3, 3), (2, 2), (1, 1), count_include_pad=False),
    ),
    Row(
        lambda: AvgPool2d(3, 2, 1, ceil_mode=True),
        (1, 4, 6),
        plain.avg_pool2d((3, 3), (2, 2), (1, 1), ceil=True),
    ),
    Row(
        lambda: AvgPool2d(2, 2, ceil_mode=True, divisor_override=3),
        (1, 3, 3),
        plain.avg_pool2d((2, 2), (2, 2), ceil=True, divisor=3),
    ),
    Row(lambda: ZeroPad2d(1), (1, 2, 3), plain.zero_pad2d(1, 1, 1, 1)),
    Row(lambda: ZeroPad2d((0, 2, 1, 0)), (2, 2, 2), plain.zero_pad2d(0, 2, 1, 0)),
    Row(lambda: ZeroPad2d((-1, 1, 2, -1)), (1, 3, 3), plain.zero_pad2d(-1, 1, 2, -1)),
    Row(lambda: Flatten(), (2, 2, 3), plain.reshape(12)),
    Row(lambda: Flatten(), (3,), plain.reshape(3)),
    Row(lambda: Flatten(2), (2, 3, 2), plain.reshape(2, 6)),
    Row(lambda: Flatten(1, 2), (2, 3, 2), plain.reshape(6, 2)),
    Row(lambda: Identity(), (2, 3), plain.elementwise(lambda x: x)),
    Row(lambda: Dropout(0.3), (5,), plain.elementwise(lambda x: x)),
    Row(lambda: Dropout(1.0), (2, 2), plain.elementwise(lambda x: x)),
    Row(lambda: ReLU(), (4,), plain.elementwise(lambda x: np.where(x > 0, x, 0))),
    Row(lambda: Sigmoid(), (3,), plain.elementwise(lambda x: 1 / (1 + np.exp(-x)))),
    Row(lambda: Sigmoid(), (2, 2, 2), plain.elementwise(lambda x: 1 / (1 + np.exp(-x)))),
    Row(lambda: Tanh(), (2, 3), plain.elementwise(lambda x: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1))),
    Row(lambda: LeakyReLU(), (4,), plain.elementwise(lambda x: np.where(x > 0, x, 0.01 * x))),
    Row(lambda: LeakyReLU(-0.3), (2, 3), plain.elementwise(lambda x: np.where(x > 0, x, -0.3 * x))),
    Row(lambda: Threshold(0.2, -3.0), (4,), plain.elementwise(lambda x: np.where(x > 0.2, x, -3))),
    Row(lambda: Hardtanh(), (5,), plain.elementwise(lambda x: np.clip(x, -1, 1))),
    Row(lambda: Hardtanh(-0.2, 0.8), (2, 3), plain.elementwise(lambda x: np.clip(x, -0.2, 0.8))),
    Row(lambda: ReLU6(), (4,), plain.elementwise(lambda x: np.clip(x, 0, 6))),
    Row(lambda: Hardsigmoid(), (4,), plain.elementwise(lambda x: np.clip(x / 6 + 1 / 2, 0, 1))),
    Row(lambda: Hardswish(), (4,), plain.elementwise(lambda x: x * np.clip(x / 6 + 1 / 2, 0, 1))),
    Row(lambda: Hardshrink(), (5,), plain.elementwise(lambda x: np.where(abs(x) > 0.5, x, 0))),
    Row(lambda: Softshrink(), (5,), plain.elementwise(lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0))),
    Row(lambda: Softshrink(0.1), (2, 3), plain.elementwise(lambda x: np.sign(x) * np.maximum(abs(x) - 0.1, 0))),
    Row(lambda: ELU(), (4,), plain.elementwise(lambda x: np.where(x > 0, x, np.exp(x) - 1))),
    Row(lambda: ELU(alpha=1.3), (2, 3), plain.elementwise(lambda x: np.where(x > 0, x, 1.3 * (np.exp(x) - 1)))),
    Row(
        lambda: SELU(),
        (4,),
        plain.elementwise(lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1))),
    ),
    Row(lambda: CELU(alpha=0.4), (4,), plain.elementwise(lambda x: np.where(x > 0, x, 0.4 * (np.exp(x / 0.4) - 1)))),
    Row(lambda: PReLU(), (4,), plain.prelu()),
    Row(lambda: PReLU(1, 0.1), (2, 2, 3), plain.prelu()),
    Row(lambda: PReLU(3), (3,), plain.prelu()),
    Row(lambda: PReLU(2, -0.4), (2, 3, 2), plain.prelu()),
    Row(lambda: Softplus(), (4,), plain.elementwise(lambda x: np.log(1 + np.exp(x)))),
    Row(lambda: Softplus(beta=-1.7), (2, 3), plain.elementwise(lambda x: np.log(1 + np.exp(-1.7 * x)) / -1.7)),
    Row(
        lambda: Softplus(2.0, 1.0),
        (5,),
        plain.elementwise(lambda x: np.where(2 * x > 1, x, np.log(1 + np.exp(2 * x)) / 2)),
    ),
    Row(lambda: LogSigmoid(), (4,), plain.elementwise(lambda x: np.log(1 / (1 + np.exp(-x))))),
    Row(lambda: Softsign(), (4,), plain.elementwise(lambda x: x / (1 + abs(x)))),
    Row(lambda: Tanhshrink(), (4,), plain.elementwise(lambda x: x - np.sinh(x) / np.cosh(x))),
    Row(lambda: SiLU(), (4,), plain.elementwise(lambda x: x / (1 + np.exp(-x)))),
    Row(lambda: Mish(), (4,), plain.elementwise(lambda x: x * np.tanh(np.log(1 + np.exp(x))))),
    Row(lambda: GELU(), (4,), plain.elementwise(lambda x: x * special.ndtr(x))),
    Row(
        lambda: GELU("tanh"),
        (2, 3),
        plain.elementwise(lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))),
    ),
    Row(lambda: Softmax(1), (4,), plain.softmax(1)),
    Row(lambda: Softmax(-1), (2, 3), plain.softmax(2)),
    Row(lambda: Softmax(1), (3, 2, 2), plain.softmax(1)),
    Row(lambda: Softmax(-2), (2, 3, 2), plain.softmax(2)),
    Row(lambda: LogSoftmax(-1), (4,), plain.log_softmax(1)),
    Row(lambda: LogSoftmax(1), (3, 2), plain.log_softmax(1)),
    Row(lambda: LogSoftmax(2), (2, 3, 2), plain.log_softmax(2)),
    *[Row(*row) for row in further_rows.ROWS],
    *[Row(*row) for row in norm_rows.ROWS],
]


def lacking(layer):
    """The reductions of Kronecker factors that a layer lacks, and the names of the quantities that need them."""
    entrywise = isinstance(layer, ENTRYWISE) and layer.parameter_shapes()
    return ({"average_kronecker"}, {"kfra"}) if entrywise else (set(), set())


LOSSES = [CrossEntropyLoss("mean"), MSELoss("sum"), BCEWithLogitsLoss("mean")]


def around(row):
    """A network with parameters and curvature below and above a layer."""
    features = prod(row.make().output_shape(row.shape))
    return Sequential(
        Linear(row.shape[-1], row.shape[-1]),
        Tanh(),
        row.make(),
        Sigmoid(),
        Flatten(),
        Linear(features, 2),
        rng=1,
        dtype="float64",
    )
