"""The functions of shipped layers, written out in loops: slow, and sharing no code with the layers.

Differences of a forward pass can say that its derivatives are its own, not that it is the right function. These can.
Sizes of outputs are arguments, counted by hand by whoever calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

Axes = tuple[int, ...]
"""A number for each spatial axis."""


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
    out: Axes,
    stride: Axes = (1, 1),
    before: Axes = (0, 0),
    dilation: Axes = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Convolution with `before` zeros above and to the left, and as many below and to the right as `out` needs."""
    outputs, depth, *kernel = weight.shape
    y: Any = np.zeros((len(x), outputs, *out))
    for o in range(outputs):
        group = o // (outputs // groups)
        seen = x[:, group * depth : (group + 1) * depth]
        for t in np.ndindex(*out):
            for place, at in _window(t, tuple(kernel), stride, before, dilation):
                if _inside(at, x.shape[2:]):
                    y[(slice(None), o, *t)] += seen[(..., *at)] @ weight[(o, slice(None), *place)]
    return y if bias is None else y + bias.reshape(-1, *(1,) * len(out))


def max_pool(
    x: np.ndarray, *, out: Axes, kernel: Axes, stride: Axes, before: Axes = (0, 0), dilation: Axes = (1, 1)
) -> np.ndarray:
    """Return the largest of what each window sees inside the image."""
    y: Any = np.full((*x.shape[:2], *out), -np.inf)
    for t in np.ndindex(*out):
        for _, at in _window(t, kernel, stride, before, dilation):
            if _inside(at, x.shape[2:]):
                y[(..., *t)] = np.maximum(y[(..., *t)], x[(..., *at)])
    return y


def average_pool(
    x: np.ndarray,
    *,
    out: Axes,
    kernel: Axes,
    stride: Axes,
    padding: Axes = (0, 0),
    counted: Axes = (0, 0),
    divisor: int | None = None,
) -> np.ndarray:
    """Return each window's sum over the number of its places up to `counted` beyond the image, or over `divisor`."""
    y: Any = np.zeros((*x.shape[:2], *out))
    for t in np.ndindex(*out):
        places = 0
        for _, at in _window(t, kernel, stride, padding, (1,) * len(out)):
            if _inside(at, x.shape[2:]):
                y[(..., *t)] += x[(..., *at)]
            places += all(-c <= i < size + c for i, size, c in zip(at, x.shape[2:], counted))
        y[(..., *t)] /= places if divisor is None else divisor
    return y


def adaptive_pool(x: np.ndarray, *, bins: Sequence[Sequence[range]], most: bool) -> np.ndarray:
    """Return the largest of what each bin sees, or the mean; the places of each axis' bins are given."""
    y: Any = np.zeros((*x.shape[:2], *map(len, bins)))
    for t in np.ndindex(y.shape[2:]):
        seen = [x[(..., *at)] for at in product(*[axis[i] for axis, i in zip(bins, t)])]
        y[(..., *t)] = np.max(seen, axis=0) if most else sum(seen) / len(seen)
    return y


def transposed(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    out: Axes,
    stride: Axes,
    before: Axes,
    dilation: Axes,
    groups: int = 1,
) -> np.ndarray:
    """Each pixel adds its multiple of the weight to an image of size `out`, without `before` places at its start."""
    inputs, depth, *kernel = weight.shape
    y: Any = np.zeros((len(x), depth * groups, *out))
    for c in range(inputs):
        first = c // (inputs // groups) * depth
        for t in np.ndindex(*x.shape[2:]):
            for place, at in _window(t, tuple(kernel), stride, before, dilation):
                if _inside(at, out):
                    seen = x[(slice(None), c, *t)]
                    y[(slice(None), slice(first, first + depth), *at)] += np.outer(seen, weight[(c, ..., *place)])
    return y if bias is None else y + bias.reshape(-1, *(1,) * len(out))


def normalized(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, mean: Any, variance: Any
) -> np.ndarray:
    """Each channel without its mean, over its deviation, then times its weight, plus its bias."""
    found = [(x[:, c] - mean[c]) / (variance[c] + 1e-5) ** 0.5 for c in range(x.shape[1])]
    if weight is not None and bias is not None:
        found = [w * each + b for each, w, b in zip(found, weight, bias)]
    return np.stack(found, axis=1)


def pad(x: np.ndarray, *, out: Axes, before: Axes, value: float = 0.0) -> np.ndarray:
    """Pixel by pixel into one `value`; `before` rows above and columns to the left, fewer than none to crop."""
    y: Any = np.full((*x.shape[:2], *out), value)
    for t in np.ndindex(*out):
        at = tuple(i - b for i, b in zip(t, before))
        if _inside(at, x.shape[2:]):
            y[(..., *t)] = x[(..., *at)]
    return y


def shuffle(x: np.ndarray, r: int) -> np.ndarray:
    """Pixel (i, j) of channel c is pixel (i // r, j // r) of channel c r² + i % r · r + j % r."""
    n, depth, height, width = x.shape
    y = np.zeros((n, depth // r**2, height * r, width * r))
    for c, i, j in np.ndindex(*y.shape[1:]):
        y[:, c, i, j] = x[:, c * r**2 + i % r * r + j % r, i // r, j // r]
    return y


def unshuffle(x: np.ndarray, r: int) -> np.ndarray:
    """Return the reverse of `shuffle`, pixel by pixel."""
    n, depth, height, width = x.shape
    y = np.zeros((n, depth * r**2, height // r, width // r))
    for c, i, j in np.ndindex(*x.shape[1:]):
        y[:, c * r**2 + i % r * r + j % r, i // r, j // r] = x[:, c, i, j]
    return y


def _window(at: Axes, kernel: Axes, stride: Axes, before: Axes, dilation: Axes) -> Iterator[tuple[Any, Any]]:
    """Yield each place in a window, with the place of the image that it sees."""
    for place in np.ndindex(*kernel):
        yield place, tuple(t * s - p + k * d for t, s, p, k, d in zip(at, stride, before, place, dilation))


def _inside(at: Axes, size: Axes) -> bool:
    return all(0 <= i < length for i, length in zip(at, size))
