"""Kernels for the host without Numba: moving windows by few walks over samples that fit into the cache.

They are those of `host`, with the same arguments: channels-last, ``[L, *S, C]``, written to an array that is given.
"""

from __future__ import annotations

from math import prod

import numpy as np

from gbackprop.calculus.window import Window
from gbackprop.engine.kernels.view import seen
from gbackprop.engine.scratch import row_blocks


def fold(cols: np.ndarray, window: Window, image: np.ndarray) -> None:
    """Add windows ``[L, *out, *kernel, C]`` to the places that they cover in the padded image ``[L, *S, C]``."""
    out = cols.shape[1 : image.ndim - 1]
    places = cols.reshape(len(cols), *out, prod(window.kernel), cols.shape[-1])
    image[...] = 0
    for k, where in enumerate(window.offsets(out)):
        image[(slice(None), *where)] += places[..., k, :]


def scatter(rows: np.ndarray, places: np.ndarray, window: Window, image: np.ndarray) -> None:
    """Add each number ``[V, L, *out, C]`` to one place of its window in the padded image ``[V, L, *S, C]``."""
    channels, size = image.shape[-1], prod(image.shape[2:])
    blocks = list(row_blocks(len(places), size * image.itemsize, image))
    base, delta = (entries * channels for entries in seen(window, places.shape[1:-1], image.shape[2:-1]))
    first = base[:, None] + np.arange(channels)  # entries of place 0 in the flattened images of a block, [L, P, C]
    first = first + size * np.arange(blocks[0].stop)[:, None, None]
    for block in blocks:
        some = places[block]
        at = delta.take(some.reshape(len(some), *first.shape[1:]), mode="clip")
        at += first[: len(some)]
        for column, whole in zip(rows[:, block], image[:, block], strict=True):
            whole[...] = 0
            np.add.at(whole.reshape(-1), at.reshape(-1), column.reshape(-1))


def first_places(image: np.ndarray, y: np.ndarray, window: Window, places: np.ndarray) -> None:
    """Write to `places` the first place of the maximum y ``[L, *out, C]`` in each window of the padded image."""
    kind = np.int8 if prod(window.kernel) < 2**7 else np.int32
    before_last = list(window.offsets(y.shape[1:-1]))[:-1]  # if all of these are less, it is the last
    for block in row_blocks(len(y), image[0].nbytes, image):
        most = y[block]
        less, now = np.ones(most.shape, dtype=bool), np.empty(most.shape, dtype=bool)
        found = np.zeros(most.shape, dtype=kind)
        for where in before_last:
            less &= np.less(image[(block, *where)], most, out=now)
            found += less.view(np.int8)
        places[block] = found


def largest(image: np.ndarray, window: Window, y: np.ndarray) -> None:
    """Compute the maximum of each window of the padded image, written to `y` ``[L, *out, C]``, axis by axis."""
    axes = list(zip(window.kernel, window.stride, window.dilation, y.shape[1:-1], strict=True))
    for block in row_blocks(len(y), image[0].nbytes, image):
        part = image[block]
        for axis, (k, s, d, o) in enumerate(axes, start=1):
            before = (slice(None),) * axis
            seen_there = [part[(*before, slice(i * d, i * d + (o - 1) * s + 1, s))] for i in range(k)]
            part = seen_there[0].copy()
            for other in seen_there[1:]:
                np.maximum(part, other, out=part)
        y[block] = part
