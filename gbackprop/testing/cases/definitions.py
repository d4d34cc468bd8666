"""The functions of layers with windows, in plain loops: slow, and sharing no code with the layers.

Differences of a forward pass can say that its derivatives are its own, not that it is the right function. These can.
Options are torch's: a number for all axes, or one for each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""NumPy's names of the padding modes."""

Axes = int | tuple[int, ...]
"""A number for all spatial axes, or one for each."""


def each_axis(option: Any, x: np.ndarray) -> tuple[int, ...]:
    """Return an option for each spatial axis of a batch."""
    return tuple(map(int, np.broadcast_to(option, x.ndim - 2)))


def convolution(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | bool, *,
    stride: Axes = 1, padding: Any = 0, dilation: Axes = 1, groups: int = 1, padding_mode: str = "zeros",
) -> np.ndarray:  # fmt: skip
    """y[n, o, *t] = b[o] + Σ over the window of W[o] and the channels of o's group."""
    stride, dilation = each_axis(stride, x), each_axis(dilation, x)
    size = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
    if padding == "same":
        sides = [((s - 1) // 2, s // 2) for s in size]
    else:
        sides = [(p, p) for p in each_axis(0 if padding == "valid" else padding, x)]
    padded = np.pad(x, ((0, 0), (0, 0), *sides), MODES[padding_mode])  # type: ignore[call-overload]
    out = [(s - r) // step + 1 for s, r, step in zip(padded.shape[2:], size, stride, strict=True)]
    y: Any = np.zeros((len(x), len(weight), *out))
    outputs, inputs = len(weight) // groups, x.shape[1] // groups
    for o, *t in np.ndindex(y.shape[1:]):
        first = o // outputs * inputs
        where = [slice(i * s, i * s + r, d) for i, s, r, d in zip(t, stride, size, dilation, strict=True)]
        seen = padded[:, first : first + inputs, *where]
        y[:, o, *t] = (seen * weight[o]).reshape(len(x), -1).sum(1)
    return y + np.reshape(bias, (-1, *(1,) * len(out)))


def transposed(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | bool, *,
    stride: Axes = 1, padding: Axes = 0, output_padding: Axes = 0, groups: int = 1, dilation: Axes = 1,
) -> np.ndarray:  # fmt: skip
    """Each number of the input adds its multiple of the weight to the image, from place t s − p on."""
    options = [each_axis(option, x) for option in (stride, padding, output_padding, dilation)]
    axes = list(zip(x.shape[2:], weight.shape[2:], *options, strict=True))
    size = [(n - 1) * s - 2 * p + d * (k - 1) + more + 1 for n, k, s, p, more, d in axes]
    inputs, outputs = len(weight) // groups, weight.shape[1]
    y: Any = np.zeros((len(x), outputs * groups, *size))
    for c, o, *place in np.ndindex(weight.shape):
        for t in np.ndindex(x.shape[2:]):
            at = [i * s - p + k * d for i, k, (_, _, s, p, _, d) in zip(t, place, axes, strict=True)]
            if all(0 <= a < n for a, n in zip(at, size, strict=True)):
                y[:, c // inputs * outputs + o, *at] += x[:, c, *t] * weight[c, o, *place]
    return y + np.reshape(bias, (-1, *(1,) * len(size)))


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> list[list[int]]:
    """Along one axis: for each window, its places, counted on the input; those outside are in the padding."""
    starts = itertools.takewhile(
        lambda start: start + dilation * (kernel - 1) < size + padding
        or (ceil and start < size and start + dilation * (kernel - 1) < size + padding + stride - 1),
        itertools.count(-padding, stride),
    )
    return [[start + dilation * k for k in range(kernel)] for start in starts]


def pool(
    x: np.ndarray, reduce: Callable[..., np.ndarray], ceil_mode: bool, kernel_size: Axes, stride: Any, *options: Axes
) -> np.ndarray:
    """y = reduce(the numbers that a window sees, the places that it covers); options are padding and dilation."""
    sizes = x.shape[2:]
    along = [each_axis(o, x) for o in (kernel_size, kernel_size if stride is None else stride, *options)]
    axes = [windows(*axis, ceil_mode) for axis in zip(sizes, *along, strict=True)]  # type: ignore[call-arg]
    y: Any = np.zeros((*x.shape[:2], *map(len, axes)))
    for t in np.ndindex(y.shape[2:]):
        places = list(itertools.product(*[axis[i] for axis, i in zip(axes, t, strict=True)]))
        inside = [place for place in places if all(0 <= at < s for at, s in zip(place, sizes, strict=True))]
        y[:, :, *t] = reduce(np.stack([x[:, :, *place] for place in inside]), places)
    return y


def max_pool(
    x: np.ndarray, *,
    kernel_size: Axes, stride: Axes | None = None, padding: Axes = 0, dilation: Axes = 1, ceil_mode: bool = False,
) -> np.ndarray:  # fmt: skip
    """Return the largest of what each window sees inside the image."""
    return pool(x, lambda seen, places: seen.max(0), ceil_mode, kernel_size, stride, padding, dilation)


def average_pool(
    x: np.ndarray, *,
    kernel_size: Axes, stride: Axes | None = None, padding: Axes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> np.ndarray:  # fmt: skip
    """The mean of what a window sees; zeros of the padding count, if they do, but never what is beyond it."""
    sides = list(zip(x.shape[2:], each_axis(padding, x), strict=True))

    def mean(seen: np.ndarray, places: list[tuple[int, ...]]) -> np.ndarray:
        counted = [all(-p <= at < s + p for at, (s, p) in zip(place, sides, strict=True)) for place in places]
        return seen.sum(0) / (divisor_override or (sum(counted) if count_include_pad else len(seen)))

    return pool(x, mean, ceil_mode, kernel_size, stride, padding, 1)


def adaptive_pool(x: np.ndarray, *, output_size: Any, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """Along an axis of S places, bin i has those from ⌊i S/O⌋ to before ⌈(i + 1) S/O⌉; None for O = S."""
    sizes = x.shape[2:]
    given = output_size if isinstance(output_size, tuple) else (output_size,) * len(sizes)
    counts = [s if o is None else o for s, o in zip(sizes, given, strict=True)]
    y: Any = np.zeros((*x.shape[:2], *counts))
    for t in np.ndindex(*counts):
        bins = zip(t, sizes, counts, strict=True)
        where = [slice(math.floor(i * s / o), math.ceil((i + 1) * s / o)) for i, s, o in bins]
        y[:, :, *t] = reduce(x[:, :, *where].reshape(*x.shape[:2], -1), -1)
    return y


def framed(x: np.ndarray, *, padding: Any, mode: str = "zeros", value: float = 0.0) -> np.ndarray:
    """NumPy's padding; torch's numbers begin with the last axis, and crop where they are negative."""
    numbers = np.broadcast_to(padding, 2 * (x.ndim - 2))
    pairs = [(0, 0), (0, 0), *list(zip(numbers[::2], numbers[1::2], strict=True))[::-1]]
    constant = {"constant_values": value} if mode == "zeros" else {}
    y = np.pad(x, np.maximum(pairs, 0), MODES[mode], **constant)  # type: ignore[call-overload]
    return y[tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(pairs, y.shape, strict=True))]


def normalized(
    x: np.ndarray, weight: Any = 1.0, bias: Any = 0.0, *, mean: Any, variance: Any, eps: float = 1e-5
) -> np.ndarray:
    """Each channel without its mean, over its deviation, then times its weight, plus its bias."""
    y = np.stack([(x[:, c] - mean[c]) / np.sqrt(variance[c] + eps) for c in range(x.shape[1])], axis=1)
    return by_channel(y, weight, bias)


def by_channel(x: np.ndarray, weight: Any, bias: Any) -> np.ndarray:
    """Each channel times its weight, plus its bias; or one number for all."""
    over = (-1, *(1,) * (x.ndim - 2))
    return x * np.reshape(weight, over) + np.reshape(bias, over)


def of_sets(x: np.ndarray, sets: int, eps: float, centered: bool = True) -> np.ndarray:
    """x̂ of each set of a sample's entries, in row-major order, by loops over samples and sets."""
    y = np.empty_like(x)
    for n, sample in enumerate(x):
        for k, z in enumerate(sample.reshape(sets, -1)):
            z = z - z.sum() / z.size if centered else z
            y[n].reshape(sets, -1)[k] = z / np.sqrt((z * z).sum() / z.size + eps)
    return y


def over_last(
    x: np.ndarray, weight: Any = 1.0, bias: Any = 0.0, *, normalized_shape: Any, centered: bool = True, **options: Any
) -> np.ndarray:
    """LayerNorm, or RMSNorm, of the last axes; γ and β as they are."""
    eps = options.get("eps", 1e-5 if centered else np.finfo(float).eps)
    return of_sets(x, x[0].size // int(np.prod(normalized_shape)), eps, centered) * weight + bias


def of_channels(
    x: np.ndarray, weight: Any = 1.0, bias: Any = 0.0, *, num_groups: int = 0, eps: float = 1e-5, **_: Any
) -> np.ndarray:
    """GroupNorm, or InstanceNorm with as many groups as channels; γ and β for each channel."""
    return by_channel(of_sets(x, num_groups or x.shape[1], eps), weight, bias)
