"""Kernels for moving windows: the few places where speed has a second form.

All work channels-last, ``[L, *S, C]``: L rows of any kind, spatial axes S, channels C. Each is defined in plain NumPy
(or CuPy, by the same lines). Four have compiled twins in `compiled`, taken where Numba is installed, and on a GPU each
has one in `device_kernels`, or one reduction over a strided view. `outer`, of rows, has a compiled twin alone.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Iterator, Sequence
from math import prod
from types import ModuleType

import numpy as np

from gbackprop import device_kernels
from gbackprop.array import FLOATS, Array, array_module
from gbackprop.scratch import empty, zeros

Padding = Sequence[tuple[int, int]]


def pad(x: Array, padding: Padding, value: float = 0.0) -> Array:
    """``[L, *S, C]`` with (before, after) numbers added to each spatial axis; negative ones take away (a view).

    The adjoint of ``pad(x, p)`` is ``pad(x, -p)``.
    """
    if not any(before or after for before, after in padding):
        return x
    spatial = x.shape[1:-1]
    crop = tuple(slice(max(-b, 0), s - max(-a, 0)) for s, (b, a) in zip(spatial, padding, strict=True))
    if all(before <= 0 and after <= 0 for before, after in padding):
        return x[(slice(None), *crop)]
    into = tuple(slice(max(b, 0), max(b, 0) + c.stop - c.start) for c, (b, _) in zip(crop, padding, strict=True))
    size = tuple(s + b + a for s, (b, a) in zip(spatial, padding, strict=True))
    out = empty(x, (x.shape[0], *size, x.shape[-1]))
    if array_module(x) is np:  # the margins alone: the rest is written below
        for axis, inside in enumerate(into, start=1):
            out[(slice(None),) * axis + (slice(0, inside.start),)] = value
            out[(slice(None),) * axis + (slice(inside.stop, None),)] = value
    else:  # one kernel instead of several small ones
        out[...] = value
    out[(slice(None), *into)] = x[(slice(None), *crop)]
    return out


def window_offsets(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[slice, ...]]:
    """For each place in the window, row by row: the spatial slices of an input that the windows see there."""
    for place in itertools.product(*map(range, kernel)):
        yield tuple(
            slice(k * d, k * d + (o - 1) * s + 1, s) for k, s, d, o in zip(place, stride, dilation, out, strict=True)
        )


def unfold(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Array:
    """What each window of ``[L, *S, C]`` sees, as a view ``[L, *out, *kernel, C]``."""
    lead, spatial, last = x.strides[0], x.strides[1:-1], x.strides[-1]
    steps = tuple(a * s for a, s in zip(spatial, stride, strict=True))
    inner = tuple(a * d for a, d in zip(spatial, dilation, strict=True))
    return array_module(x).lib.stride_tricks.as_strided(
        x, (x.shape[0], *out, *kernel, x.shape[-1]), (lead, *steps, *inner, last)
    )


def fold(cols: Array, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """The adjoint of `unfold`: ``[L, *out, *kernel, C]`` summed back to where it was seen, ``[L, *size, C]``."""
    d, twins = len(size), device_twins(cols)
    if twins is not None and d <= twins.AXES:
        return twins.fold(cols, size, stride, dilation)
    out, kernel = cols.shape[1 : 1 + d], cols.shape[1 + d : 1 + 2 * d]
    places = cols.reshape(cols.shape[0], *out, prod(kernel), cols.shape[-1])
    image = empty(cols, (cols.shape[0], *size, cols.shape[-1]))
    kernels = _compiled(cols)
    if kernels is not None:
        flat = image.reshape(len(image), -1, image.shape[-1])
        places = np.ascontiguousarray(places).reshape(len(cols), prod(out), -1, cols.shape[-1])
        kernels.fold(places, *_seen(kernel, stride, dilation, out, size), flat)
        return image
    image[...] = 0
    for k, where in enumerate(window_offsets(kernel, stride, dilation, out)):
        image[(slice(None), *where)] += places[..., k, :]
    return image


def first_places(
    x: Array, y: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Where in each window of ``[L, *S, C]`` its maximum y ``[L, *out, C]`` is first: places row by row, as y's shape.

    The first that is "not less" rather than "equal": so NaN passes on NaN.
    """
    xp, twins = array_module(x), device_twins(x)
    if twins is not None and len(kernel) <= twins.AXES:
        return twins.first_places(x, y, kernel, stride, dilation)
    places = zeros(y, y.shape, np.int32)
    kernels = _compiled(x)
    if kernels is not None:
        flat = [np.ascontiguousarray(part).reshape(len(part), -1, part.shape[-1]) for part in (x, y)]
        seen = _seen(kernel, stride, dilation, y.shape[1:-1], x.shape[1:-1])
        kernels.first_places(*flat, *seen, places.reshape(len(y), -1, y.shape[-1]))
        return places
    less = xp.ones(y.shape, dtype=bool)
    for where in window_offsets(kernel, stride, dilation, y.shape[1:-1]):
        less &= x[(slice(None), *where)] < y
        places += less
    return places


def scatter(
    rows: Array,
    places: Array,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:
    """Numbers ``[V, L, *out, C]`` added to one place of their window each: ``[V, L, *size, C]``."""
    out, twins = places.shape[1:-1], device_twins(rows)
    if twins is not None and len(size) <= twins.AXES:
        return twins.scatter(rows, places, size, kernel, stride, dilation)
    image = empty(rows, (*rows.shape[:2], *size, rows.shape[-1]))
    kernels = _compiled(rows)
    if kernels is not None:
        flat = image.reshape(*image.shape[:2], -1, image.shape[-1])
        rows = np.ascontiguousarray(rows).reshape(*rows.shape[:2], -1, rows.shape[-1])
        places = places.reshape(len(places), -1, places.shape[-1])
        kernels.scatter(rows, places, *_seen(kernel, stride, dilation, out, size), flat)
        return image
    image[...] = 0
    for k, where in enumerate(window_offsets(kernel, stride, dilation, out)):
        image[(slice(None), slice(None), *where)] += rows * (places == k)
    return image


def largest(
    image: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Array:
    """The maximum of what each window of ``[L, *S, C]`` sees, ``[L, *out, C]``."""
    if device_twins(image) is not None:
        return unfold(image, kernel, stride, dilation, out).max(_window_axes(len(out)))
    kernels = _compiled(image)
    if kernels is not None:
        y = empty(image, (image.shape[0], *out, image.shape[-1]))
        flat = [
            np.ascontiguousarray(part).reshape(len(part), prod(part.shape[1:-1]), part.shape[-1]) for part in (image, y)
        ]
        kernels.largest(flat[0], *_seen(kernel, stride, dilation, out, image.shape[1:-1]), flat[1])
        return y
    views = (image[(slice(None), *where)] for where in window_offsets(kernel, stride, dilation, out))
    y = next(views).copy()
    for seen in views:
        array_module(y).maximum(y, seen, out=y)
    return y


def total(
    image: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Array:
    """The sum of what each window of ``[L, *S, C]`` sees, ``[L, *out, C]``."""
    if device_twins(image) is not None:
        return unfold(image, kernel, stride, dilation, out).sum(_window_axes(len(out)))
    views = (image[(slice(None), *where)] for where in window_offsets(kernel, stride, dilation, out))
    y = next(views).copy()
    for seen in views:
        y += seen
    return y


def spread(
    rows: Array, size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Array:
    """The adjoint of `total`: ``[L, *out, C]`` added to all that its window sees, ``[L, *size, C]``."""
    xp, out, twins = array_module(rows), rows.shape[1:-1], device_twins(rows)
    if twins is not None and len(size) <= twins.AXES:
        places = rows.reshape(rows.shape[0], *out, *(1,) * len(out), rows.shape[-1])
        seen = xp.broadcast_to(places, (rows.shape[0], *out, *kernel, rows.shape[-1]))
        return twins.fold(seen, size, stride, dilation)
    image = xp.zeros((rows.shape[0], *size, rows.shape[-1]), dtype=rows.dtype)
    for where in window_offsets(kernel, stride, dilation, out):
        image[(slice(None), *where)] += rows
    return image


def outer(g: Array, u: Array, out: Array) -> None:
    """g uᵀ of rows: ``[..., O], [..., I] -> [..., O, I]``, written to `out`."""
    kernels = _compiled(out)
    o, i = out.shape[-2:]
    if kernels is not None and out.flags.c_contiguous and g.dtype == u.dtype == out.dtype:
        kernels.outer(g.reshape(-1, o), u.reshape(-1, i), out.reshape(-1, o, i))
    else:
        array_module(out).multiply(g[..., :, None], u[..., None, :], out=out)


def _window_axes(d: int) -> tuple[int, ...]:
    """Those of the places in `unfold`'s result."""
    return tuple(range(1 + d, 1 + 2 * d))


def _seen(*geometry: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Which entry ``base[p] + delta[k]`` of the flattened image position p and place k of a window see.

    The geometry is kernel, stride, dilation, number of windows, size of the image.
    """
    return _seen_by(*map(tuple, geometry))


@functools.lru_cache(maxsize=256)  # a sweep asks for the same few, again and again
def _seen_by(
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    out: tuple[int, ...],
    size: tuple[int, ...],
) -> tuple[np.ndarray, np.ndarray]:
    base, delta = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for k, s, d, o, length in zip(kernel, stride, dilation, out, size, strict=True):
        base = (base[:, None] * length + np.arange(o) * s).reshape(-1)
        delta = (delta[:, None] * length + np.arange(k) * d).reshape(-1)
    return base, delta


@functools.cache
def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError):  # no Numba, or nowhere that it could cache what it compiles
        return None


def _compiled(x: Array, name: str = "gbackprop.compiled") -> ModuleType | None:
    """The compiled kernels, if there are any for `x`."""
    return _imported(name) if isinstance(x, np.ndarray) and x.dtype.name in FLOATS else None


def compiled_tiles(x: Array) -> ModuleType | None:
    """The compiled transforms of `layers.winograd`, if there are any for `x`."""
    return _compiled(x, "gbackprop.compiled_tiles")


def device_twins(x: Array) -> ModuleType | None:
    """The twins on a GPU, if `x` lies there and there are any for its dtype."""
    return device_kernels if array_module(x) is not np and x.dtype.name in FLOATS else None
