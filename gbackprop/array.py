"""The array module: NumPy on the host, CuPy on a GPU, one face for both.

The only file that imports CuPy, and only once a CuPy array or the device ``"cuda"`` turns up. There is no global
switch: every function takes its module, `xp`, from the arrays in hand.

The kernels at the end work channels-last, ``[L, *S, C]``: L rows of any kind, spatial axes S, channels C.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

Array = Any
"""A NumPy or CuPy array; which of the two is known only at run time."""

FLOATS = ("float32", "float64")
"""The dtypes that networks, inputs and results may have."""

_CACHE_BYTES = 2**20
"""Size of the scratch array that `row_blocks` aims at on the host: about a core's second-level cache."""

_GPU_BYTES = 2**29
"""The same on a GPU, where few large products win and memory alone is the limit."""


def is_array(x: object) -> bool:
    """Whether `x` is a NumPy or CuPy array."""
    return isinstance(x, np.ndarray) or _is_cupy(x)


def _is_cupy(x: object) -> bool:
    cupy = sys.modules.get("cupy")  # an array of CuPy's cannot exist before CuPy was imported
    return cupy is not None and isinstance(x, cupy.ndarray)


def array_module(x: Array) -> ModuleType:
    """The module, NumPy or CuPy, that `x` belongs to."""
    return sys.modules["cupy"] if _is_cupy(x) else np


def device_of(x: Array) -> str:
    """``"cpu"``, or ``"cuda:0"`` and so on."""
    return f"cuda:{x.device.id}" if _is_cupy(x) else "cpu"


def asarray(x: Any, device: str = "cpu", dtype: Any = None) -> Array:
    """Bring `x` to a device.

    Parameters
    ----------
    x : array_like or CuPy array, shape (...)
    device : {"cpu", "cuda", "cuda:0", ...}
    dtype : dtype, optional
        Kept as it is by default.

    Raises
    ------
    RuntimeError
        If the device is a GPU and CuPy is missing or finds none.
    ValueError
        If the device is unknown.
    """
    if device == "cpu":
        return np.asarray(x.get() if _is_cupy(x) else x, dtype=dtype)
    cupy = _cupy(device)
    with cupy.cuda.Device(_device_index(device)):
        return cupy.asarray(x, dtype=dtype)


def asnumpy(x: Any) -> np.ndarray:
    """`x` as a NumPy array, copied from the GPU if it lies there."""
    return asarray(x, "cpu")


def like(x: Any, other: Array, dtype: Any = None) -> Array:
    """Host data `x` moved to where `other` lies: how random numbers reach a GPU."""
    return asarray(x, device_of(other), dtype)


def check_device(device: str) -> None:
    """Raise an error if there is no such device."""
    if device != "cpu":
        _cupy(device)


def _device_index(device: str) -> int:
    kind, colon, index = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind != "cuda" or (colon and not index.isdigit()):
        raise ValueError(f"device: expected 'cpu', 'cuda' or 'cuda:0', 'cuda:1', …, got {device!r}")
    return int(index or 0)


def _cupy(device: str) -> ModuleType:
    """CuPy, when a GPU can really be used."""
    index = _device_index(device)
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(
            f"device {device!r} needs CuPy, which cannot be imported ({error}): "
            "install gbackprop[cuda12x] or gbackprop[cuda13x], whichever matches the driver"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CUDARuntimeError: no driver, too old a driver, no device
        raise RuntimeError(f"device {device!r}: CuPy is installed but finds no working GPU ({error})") from error
    if index >= count:
        raise RuntimeError(f"device {device!r}: there are {count} GPUs here, numbered from 0")
    return cupy


def free_memory(device: str) -> int:
    """Bytes that can still be allocated on a device, as far as it tells."""
    if device != "cpu":
        cupy = _cupy(device)
        with cupy.cuda.Device(_device_index(device)):
            return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":") for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: no limit that we could know of
        return sys.maxsize


def all_finite(x: Array) -> bool:
    """Whether `x` holds neither NaN nor infinity.

    One sum tells in nearly every case, several times faster than looking at each number: it cannot be finite if a
    number is not. Only when it overflows does each number have to be looked at.
    """
    xp = array_module(x)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(xp.isfinite(x.sum())) or bool(xp.isfinite(x).all())


# ------------------------------------------------------------------------------------------------ layouts and blocks


def channels_last(x: Array, lead: int = 1) -> Array:
    """``[*lead, C, *S]`` seen as ``[*lead, *S, C]`` (a view)."""
    return array_module(x).moveaxis(x, lead, -1)


def channels_first(x: Array, lead: int = 1) -> Array:
    """``[*lead, *S, C]`` seen as ``[*lead, C, *S]`` (a view)."""
    return array_module(x).moveaxis(x, -1, lead)


def row_blocks(rows: int, row_bytes: int, x: Array) -> Iterator[slice]:
    """Slices of `rows` such that a scratch array of `row_bytes` per row stays in cache (on the GPU: in bounds)."""
    budget = _GPU_BYTES if _is_cupy(x) else _CACHE_BYTES
    step = max(1, budget // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


# ------------------------------------------------------------------------------------------ kernels for moving windows

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
    xp = array_module(x)
    out = xp.full((x.shape[0], *size, x.shape[-1]), value, dtype=x.dtype)
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
    d = len(size)
    out, kernel = cols.shape[1 : 1 + d], cols.shape[1 + d : 1 + 2 * d]
    places = cols.reshape(cols.shape[0], *out, prod(kernel), cols.shape[-1])
    image = array_module(cols).zeros((cols.shape[0], *size, cols.shape[-1]), dtype=cols.dtype)
    kernels = _compiled(cols)
    if kernels is not None:
        flat = image.reshape(len(image), -1, image.shape[-1])
        places = np.ascontiguousarray(places).reshape(len(cols), prod(out), -1, cols.shape[-1])
        kernels.fold(places, *_seen(kernel, stride, dilation, out, size), flat)
        return image
    for k, where in enumerate(window_offsets(kernel, stride, dilation, out)):
        image[(slice(None), *where)] += places[..., k, :]
    return image


def first_places(
    x: Array, y: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Where in each window of ``[L, *S, C]`` its maximum y ``[L, *out, C]`` is first: places row by row, as y's shape.

    The first that is "not less" rather than "equal": so NaN passes on NaN.
    """
    xp = array_module(x)
    places = xp.zeros(y.shape, dtype=np.int32)
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
    xp, out = array_module(rows), places.shape[1:-1]
    image = xp.zeros((*rows.shape[:2], *size, rows.shape[-1]), dtype=rows.dtype)
    kernels = _compiled(rows)
    if kernels is not None:
        flat = image.reshape(*image.shape[:2], -1, image.shape[-1])
        rows = np.ascontiguousarray(rows).reshape(*rows.shape[:2], -1, rows.shape[-1])
        places = places.reshape(len(places), -1, places.shape[-1])
        kernels.scatter(rows, places, *_seen(kernel, stride, dilation, out, size), flat)
        return image
    for k, where in enumerate(window_offsets(kernel, stride, dilation, out)):
        image[(slice(None), slice(None), *where)] += rows * (places == k)
    return image


def _seen(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int], size: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Which entry ``base[p] + delta[k]`` of the flattened image position p and place k of a window see."""
    base, delta = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for k, s, d, o, length in zip(kernel, stride, dilation, out, size, strict=True):
        base = (base[:, None] * length + np.arange(o) * s).reshape(-1)
        delta = (delta[:, None] * length + np.arange(k) * d).reshape(-1)
    return base, delta


@functools.cache
def _numba_kernels() -> ModuleType | None:
    try:
        from gbackprop import compiled
    except ImportError:
        return None
    return compiled


def _compiled(x: Array) -> ModuleType | None:
    """The compiled kernels, if there are any for `x`."""
    return _numba_kernels() if isinstance(x, np.ndarray) and x.dtype.name in FLOATS else None
