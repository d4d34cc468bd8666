"""What the kernels compute, by the plain functions of windows and of pooling.

Each takes what the kernel of its name takes. The last argument is where a kernel writes: here it only tells the shape,
and the result is returned. Images are padded already.
"""

from dataclasses import replace
from math import prod

import numpy as np

from gbackprop.array import array_module, channels_first, channels_last
from gbackprop.layers import MaxPool2d


def bare(window):
    """The window on an image that is padded already."""
    return replace(window, padding=((0, 0),) * len(window.kernel), ceil_mode=False)


def max_pool(window):
    pool = MaxPool2d(1)
    pool.window = bare(window)
    return pool


def fold(cols, window, image):
    return bare(window).fold(cols, image.shape[1:-1])


def scatter(rows, places, window, image):
    """Each number at one place of what its window sees, zeros beside it, folded."""
    lead, k = rows.shape[:2], prod(window.kernel)
    seen = np.where(places[..., None, :] == np.arange(k)[:, None], rows[..., None, :], 0)
    seen = seen.reshape(-1, *places.shape[1:-1], *window.kernel, rows.shape[-1])
    return bare(window).fold(seen.astype(rows.dtype), image.shape[2:-1]).reshape(*lead, *image.shape[2:])


def first_places(image, y, window, places):
    return max_pool(window)._places((channels_first(image), y))


def largest(image, window, y):
    return channels_last(max_pool(window).forward(channels_first(image))[0])


def total(image, window, y):
    axes = len(window.kernel)
    return bare(window).unfold(image).sum(tuple(range(1 + axes, 1 + 2 * axes)))


def spread(rows, window, image):
    places = rows.reshape(*rows.shape[:-1], *(1,) * len(window.kernel), rows.shape[-1])
    seen = array_module(rows).broadcast_to(places, (*rows.shape[:-1], *window.kernel, rows.shape[-1]))
    return fold(seen, window, image)


def outer(g, u, out):
    return g[:, :, None] * u[:, None, :]


def cast(dtype, *arguments):
    """The arguments, arrays of floats in another precision."""
    return [a.astype(dtype, copy=False) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arguments]


def written(kernel, *arguments, like):
    """Return what a kernel writes over an array like `like`, in C order, in which something was before."""
    xp = array_module(like)
    out = xp.full(like.shape, 7, dtype=like.dtype)
    kernel(*arguments, out)
    return out
