"""The moving windows of an image: as a view of it, and as entries of the flattened image."""

from __future__ import annotations

import functools
from operator import mul

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Window


def unfold(image: Array, window: Window, out: Shape) -> Array:
    """Return `Window.unfold` of a padded image ``[L, *S, C]`` as a view: ``[L, *out, *kernel, C]``."""
    lead, *spatial, last = image.strides
    strides = (lead, *map(mul, spatial, window.stride), *map(mul, spatial, window.dilation), last)
    shape = (image.shape[0], *out, *window.kernel, image.shape[-1])
    return array_module(image).lib.stride_tricks.as_strided(image, shape, strides)


@functools.lru_cache(maxsize=256)  # a sweep asks for the same few many times
def seen(window: Window, out: Shape, size: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return base and delta: place k of window p is entry ``base[p] + delta[k]`` of the flattened image."""
    base, delta = np.zeros(1, np.int64), np.zeros(1, np.int64)
    axes = zip(window.kernel, window.stride, window.dilation, out, size, strict=True)
    for k, s, d, o, length in axes:
        base = (base[:, None] * length + np.arange(o) * s).reshape(-1)
        delta = (delta[:, None] * length + np.arange(k) * d).reshape(-1)
    return base, delta
