"""Kernels for the host without Numba: moving windows by few walks over the data, and by sparse products.

They are those of `host`, with the same arguments: channels-last, ``[L, *S, C]``, written to an array that is given.
"""

from __future__ import annotations

from math import prod

import numpy as np
from scipy.sparse import csc_array

from gbackprop.kernels.entries import seen
from gbackprop.layers.window import Window


def fold(cols: np.ndarray, window: Window, image: np.ndarray) -> None:
    """Add windows ``[L, *out, *kernel, C]`` to the places that they cover in the padded image ``[L, *S, C]``."""
    out = cols.shape[1 : image.ndim - 1]
    places = cols.reshape(len(cols), *out, prod(window.kernel), cols.shape[-1])
    image[...] = 0
    for k, where in enumerate(window.offsets(out)):
        image[(slice(None), *where)] += places[..., k, :]


def scatter(rows: np.ndarray, places: np.ndarray, window: Window, image: np.ndarray) -> None:
    """Add each number ``[V, L, *out, C]`` to one place of its window in the padded image ``[V, L, *S, C]``.

    For each column that is a product with a sparse matrix that has a single 1 in each of its columns.
    """
    base, delta = seen(window, places.shape[1:-1], image.shape[2:-1])
    samples, channels, size = len(places), places.shape[-1], prod(image.shape[1:])
    kind = np.int32 if size < 2**31 else np.int64
    at = delta.astype(kind)[places.reshape(samples, -1, channels)]
    at += base.astype(kind)[:, None]
    at *= channels
    at += np.arange(channels, dtype=kind)
    at += np.arange(0, size, size // samples, dtype=kind)[:, None, None]
    ends = np.arange(at.size + 1, dtype=kind)
    route = csc_array((np.ones(at.size, dtype=rows.dtype), at.reshape(-1), ends), shape=(size, at.size))
    for column, found in zip(rows, image, strict=True):
        found[...] = (route @ column.reshape(-1)).reshape(found.shape)


def first_places(image: np.ndarray, y: np.ndarray, window: Window, places: np.ndarray) -> None:
    """Write to `places` the first place of the maximum y ``[L, *out, C]`` in each window of the padded image."""
    kind = np.int8 if prod(window.kernel) < 2**7 else np.int32
    less, found, now = np.ones(y.shape, dtype=bool), np.zeros(y.shape, dtype=kind), np.empty(y.shape, dtype=bool)
    for where in window.offsets(y.shape[1:-1]):
        less &= np.less(image[(slice(None), *where)], y, out=now)
        found += less.view(np.int8)
    places[...] = found


def largest(image: np.ndarray, window: Window, y: np.ndarray) -> None:
    """Compute the maximum of each window of the padded image, written to `y` ``[L, *out, C]``."""
    views = (image[(slice(None), *where)] for where in window.offsets(y.shape[1:-1]))
    y[...] = next(views)
    for view in views:
        np.maximum(y, view, out=y)
