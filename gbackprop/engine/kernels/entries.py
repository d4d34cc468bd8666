"""Which entries of a flattened image a window sees."""

from __future__ import annotations

import functools

import numpy as np

from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Window


@functools.lru_cache(maxsize=256)  # a sweep asks for the same few many times
def seen(window: Window, out: Shape, size: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return base and delta: place k of window p is entry ``base[p] + delta[k]`` of the flattened image."""
    base, delta = np.zeros(1, np.int64), np.zeros(1, np.int64)
    axes = zip(window.kernel, window.stride, window.dilation, out, size, strict=True)
    for k, s, d, o, length in axes:
        base = (base[:, None] * length + np.arange(o) * s).reshape(-1)
        delta = (delta[:, None] * length + np.arange(k) * d).reshape(-1)
    return base, delta
