"""Elementwise layers, with dropout, slopes and softmax: rows of the table of cases."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import special

from gbackprop import layers as L
from gbackprop.testing.cases.rows import LayerRow


def logistic(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−x)."""
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """log(1 + e^(β x)) / β."""
    return np.log(1 + np.exp(beta * x)) / beta


def exponential(x: np.ndarray, alpha: float = 1.0, width: float = 1.0) -> np.ndarray:
    """x where it is positive, else α (e^(x/w) − 1)."""
    return np.where(x > 0, x, alpha * (np.exp(x / width) - 1))


def prelu(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x where it is positive, else its channel's slope times x; one slope is for all channels."""
    slopes = np.resize(weight, x.shape[1]) if x.ndim > 1 else weight[0]
    return np.where(x > 0, x, x * np.reshape(slopes, (-1, *[1] * (x.ndim - 2))))


def softmax(x: np.ndarray, *, axis: int) -> np.ndarray:
    """eˣ / Σ eˣ along one axis."""
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


ACTIVATIONS = (
    LayerRow(L.ReLU, (4,), lambda x: np.where(x > 0, x, 0)),
    LayerRow(L.Sigmoid, (3,), logistic),
    LayerRow(L.Sigmoid, (2, 2, 2), logistic),
    LayerRow(L.Tanh, (2, 3), lambda x: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1)),
    LayerRow(L.LeakyReLU, (4,), lambda x: np.where(x > 0, x, 0.01 * x)),
    LayerRow(lambda: L.LeakyReLU(-0.3), (2, 3), lambda x: np.where(x > 0, x, -0.3 * x)),
    LayerRow(lambda: L.Threshold(0.2, -3.0), (4,), lambda x: np.where(x > 0.2, x, -3)),
    LayerRow(L.Hardtanh, (5,), lambda x: np.clip(x, -1, 1)),
    LayerRow(lambda: L.Hardtanh(-0.2, 0.8), (2, 3), lambda x: np.clip(x, -0.2, 0.8)),
    LayerRow(L.ReLU6, (4,), lambda x: np.clip(x, 0, 6)),
    LayerRow(L.Hardsigmoid, (4,), lambda x: np.clip(x / 6 + 1 / 2, 0, 1)),
    LayerRow(L.Hardswish, (4,), lambda x: x * np.clip(x / 6 + 1 / 2, 0, 1)),
    LayerRow(L.Hardshrink, (5,), lambda x: np.where(abs(x) > 0.5, x, 0)),
    LayerRow(lambda: L.Hardshrink(0.3), (2, 3), lambda x: np.where(abs(x) > 0.3, x, 0)),
    LayerRow(L.Softshrink, (5,), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)),
    LayerRow(lambda: L.Softshrink(0.1), (2, 3), lambda x: np.sign(x) * np.maximum(abs(x) - 0.1, 0)),
    LayerRow(L.ELU, (4,), exponential),
    LayerRow(lambda: L.ELU(alpha=1.3), (2, 3), partial(exponential, alpha=1.3)),
    LayerRow(L.SELU, (4,), lambda x: 1.0507009873554805 * exponential(x, 1.6732632423543772)),
    LayerRow(lambda: L.CELU(alpha=0.4), (4,), partial(exponential, alpha=0.4, width=0.4)),
    LayerRow(L.Softplus, (4,), softplus),
    LayerRow(lambda: L.Softplus(beta=-1.7), (2, 3), partial(softplus, beta=-1.7)),
    LayerRow(lambda: L.Softplus(2.0, 1.0), (5,), lambda x: np.where(2 * x > 1, x, softplus(x, 2))),
    LayerRow(L.LogSigmoid, (4,), lambda x: np.log(logistic(x))),
    LayerRow(L.Softsign, (4,), lambda x: x / (1 + abs(x))),
    LayerRow(L.Tanhshrink, (4,), lambda x: x - np.sinh(x) / np.cosh(x)),
    LayerRow(L.SiLU, (4,), lambda x: x * logistic(x)),
    LayerRow(L.Mish, (4,), lambda x: x * np.tanh(softplus(x))),
    LayerRow(L.GELU, (4,), lambda x: x * special.ndtr(x)),
    LayerRow(
        lambda: L.GELU("tanh"),
        (2, 3),
        lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    ),
    LayerRow(L.Identity, (2, 3), np.copy),
    LayerRow(lambda: L.Dropout(0.3), (5,), np.copy),
    LayerRow(lambda: L.Dropout(1.0), (2, 2), np.copy),
    LayerRow(L.PReLU, (4,), prelu),
    LayerRow(lambda: L.PReLU(1, 0.1), (2, 2, 3), prelu),
    LayerRow(lambda: L.PReLU(3), (3,), prelu),
    LayerRow(lambda: L.PReLU(2, -0.4), (2, 3, 2), prelu),
    LayerRow(lambda: L.Softmax(1), (4,), partial(softmax, axis=1)),
    LayerRow(lambda: L.Softmax(-1), (2, 3), partial(softmax, axis=2)),
    LayerRow(lambda: L.Softmax(1), (3, 2, 2), partial(softmax, axis=1)),
    LayerRow(lambda: L.Softmax(-2), (2, 3, 2), partial(softmax, axis=2)),
    LayerRow(lambda: L.LogSoftmax(-1), (4,), partial(special.log_softmax, axis=1)),
    LayerRow(lambda: L.LogSoftmax(1), (3, 2), partial(special.log_softmax, axis=1)),
    LayerRow(lambda: L.LogSoftmax(2), (2, 3, 2), partial(special.log_softmax, axis=2)),
)
