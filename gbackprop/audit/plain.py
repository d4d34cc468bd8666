"""What shipped layers compute, written out in loops: slow, and sharing no code with the layers.

Differences of a forward pass can say that its derivatives are its own, not that it is the right function. These can.
Sizes of outputs are arguments, counted by hand by whoever calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Pair = tuple[int, int]


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """y[…, o] = Σᵢ W[o, i] x[…, i] + b[o]."""
    return np.einsum("...i,oi->...o", x, weight) + (0 if bias is None else bias)


def prelu(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Channel by channel: x where it is positive, else a x; one slope a is for all channels."""
    y = x.copy()
    for c in range(x.shape[1]):
        y[:, c][x[:, c] <= 0] *= weight[c % len(weight)]
    return y


def softmax(x: np.ndarray, *, axis: int) -> np.ndarray:
    """eˣ / Σ eˣ along one axis."""
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    out: Pair,
    stride: Pair = (1, 1),
    before: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Convolution with `before` zeros above and to the left, and as many below and to the right as `out` needs."""
    outputs, depth, *kernel = weight.shape
    y = np.zeros((len(x), outputs, *out))
    for o in range(outputs):
        group = o // (outputs // groups)
        seen = x[:, group * depth : (group + 1) * depth]
        for i, j in np.ndindex(*out):
            for place, row, column in _window((i, j), (kernel[0], kernel[1]), stride, before, dilation):
                if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                    y[:, o, i, j] += seen[:, :, row, column] @ weight[(o, slice(None), *place)]
    return y if bias is None else y + bias[:, None, None]


def max_pool(
    x: np.ndarray, *, out: Pair, kernel: Pair, stride: Pair, before: Pair = (0, 0), dilation: Pair = (1, 1)
) -> np.ndarray:
    """The largest of what each window sees inside the image."""
    y = np.full((*x.shape[:2], *out), -np.inf)
    for i, j in np.ndindex(*out):
        for _, row, column in _window((i, j), kernel, stride, before, dilation):
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                y[:, :, i, j] = np.maximum(y[:, :, i, j], x[:, :, row, column])
    return y


def average_pool(
    x: np.ndarray,
    *,
    out: Pair,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    counted: Pair = (0, 0),
    divisor: int | None = None,
) -> np.ndarray:
    """The sum of what each window sees over the number of places up to `counted` beyond the image, or `divisor`."""
    y = np.zeros((*x.shape[:2], *out))
    for i, j in np.ndindex(*out):
        places = 0
        for _, row, column in _window((i, j), kernel, stride, padding, (1, 1)):
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                y[:, :, i, j] += x[:, :, row, column]
            across = -counted[1] <= column < x.shape[3] + counted[1]
            places += -counted[0] <= row < x.shape[2] + counted[0] and across
        y[:, :, i, j] /= places if divisor is None else divisor
    return y


def zero_pad(x: np.ndarray, *, out: Pair, before: Pair) -> np.ndarray:
    """Pixel by pixel into zeros; `before` rows above and columns to the left, fewer than none to crop."""
    y = np.zeros((*x.shape[:2], *out))
    for i, j in np.ndindex(*out):
        row, column = i - before[0], j - before[1]
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            y[:, :, i, j] = x[:, :, row, column]
    return y


def _window(at: Pair, kernel: Pair, stride: Pair, before: Pair, dilation: Pair) -> Iterator[tuple[Pair, int, int]]:
    """Each place in a window, with the row and column of the image that it sees."""
    for a, b in np.ndindex(*kernel):
        row, column = (t * s - p + k * d for t, s, p, k, d in zip(at, stride, before, (a, b), dilation))
        yield (a, b), row, column
