"""The array module: NumPy on the host, CuPy on a GPU, one face for both.

The only file that imports CuPy, and only once a CuPy array or the device ``"cuda"`` turns up. There is no global
switch: every function takes its module, `xp`, from the arrays in hand.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

Array = Any
"""A NumPy or CuPy array; which of the two is known only at run time."""

Method = TypeVar("Method", bound=Callable[..., Any])

FLOATS = ("float32", "float64")
"""The dtypes that networks, inputs and results may have."""

_CACHE_BYTES = 2**20
"""Size of the scratch array that `row_blocks` aims at on the host: about a core's second-level cache."""

_GPU_BYTES = 2**29
"""The same on a GPU, where few large products win and memory alone is the limit."""


def is_array(x: object) -> bool:
    """Whether `x` is a NumPy or CuPy array; masked arrays and matrices, whose operations differ, are not."""
    plain = isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray | np.matrix)
    return plain or _is_cupy(x)


def _is_cupy(x: object) -> bool:
    cupy = sys.modules.get("cupy")  # an array of CuPy's cannot exist before CuPy was imported
    return cupy is not None and isinstance(x, cupy.ndarray)


def array_module(x: Array) -> ModuleType:
    """The module, NumPy or CuPy, that `x` belongs to."""
    return sys.modules["cupy"] if _is_cupy(x) else np


def device_of(x: Array) -> str:
    """``"cpu"``, or ``"cuda:0"`` and so on."""
    return f"cuda:{x.device.id}" if _is_cupy(x) else "cpu"


def on_device_of(x: Any) -> AbstractContextManager:
    """A context in which new arrays lie where `x` does: CuPy makes them on the thread's current device, at first 0."""
    return x.device if _is_cupy(x) else nullcontext()


def beside(find: Callable[[Any], Any]) -> Callable[[Method], Method]:
    """A decorator for methods whose new arrays shall lie where the array ``find(self)`` does."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def there(self: Any, *args: Any, **keywords: Any) -> Any:
            with on_device_of(find(self)):
                return method(self, *args, **keywords)

        return cast(Method, there)

    return decorate


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
    cupy = cupy_with_gpu(device)
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
        cupy_with_gpu(device)


def _device_index(device: str) -> int:
    kind, colon, index = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind != "cuda" or (colon and not index.isdigit()):
        raise ValueError(f"device: expected 'cpu', 'cuda' or 'cuda:0', 'cuda:1', …, got {device!r}")
    return int(index or 0)


def cupy_with_gpu(device: str) -> ModuleType:
    """CuPy, once a GPU can really be used; the errors are those of `asarray`."""
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
        too_old = "InsufficientDriver" in str(error)
        advice = ": there is no driver, or one too old for this CuPy; with an older one, install gbackprop[cuda12x]"
        raise RuntimeError(
            f"device {device!r}: CuPy is installed but finds no working GPU ({error}){advice if too_old else ''}"
        ) from error
    if index >= count:
        raise RuntimeError(f"device {device!r}: there are {count} GPUs here, numbered from 0")
    return cupy


def free_memory(device: str) -> int:
    """Bytes that can still be allocated on a device, as far as it tells."""
    if device != "cpu":
        cupy = cupy_with_gpu(device)
        with cupy.cuda.Device(_device_index(device)):
            return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":") for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: no limit that we could know of
        return sys.maxsize


def all_finite(*arrays: Array) -> bool:
    """Whether arrays of one device hold neither NaN nor infinity.

    One sum tells in nearly every case, several times faster than looking at each number: it cannot be finite if a
    number is not. Only when it overflows does each number have to be looked at. A GPU is waited for once.
    """
    if not arrays:
        return True
    xp = array_module(arrays[0])
    with np.errstate(over="ignore", invalid="ignore"), on_device_of(arrays[0]):
        return bool(xp.isfinite(_sum_of_all(arrays))) or all(bool(xp.isfinite(x).all()) for x in arrays)


def _sum_of_all(arrays: tuple[Array, ...]) -> Any:
    if len(arrays) > 1 and _is_cupy(arrays[0]):
        try:  # a copy, in one kernel, costs less than a kernel for each
            return array_module(arrays[0]).concatenate([x.ravel() for x in arrays]).sum()
        except MemoryError:
            pass
    return sum(x.sum() for x in arrays)


def bounds(x: Array) -> tuple[Any, Any]:
    """The least and the largest number as Python's; a GPU is waited for once."""
    if not _is_cupy(x):
        return x.min().item(), x.max().item()
    with on_device_of(x):
        least, most = asnumpy(array_module(x).stack([x.min(), x.max()])).tolist()
    return least, most


# ------------------------------------------------------------------------------------------------ layouts and blocks


def compact(x: Array) -> bool:
    """Whether the numbers of `x` lie side by side in memory, in whatever order of the axes, each of them once."""
    expected = x.itemsize
    for step, n in sorted((abs(step), n) for n, step in zip(x.shape, x.strides, strict=True) if n > 1):
        if step != expected:
            return False
        expected *= n
    return True


def channels_last(x: Array, lead: int = 1) -> Array:
    """``[*lead, C, *S]`` seen as ``[*lead, *S, C]`` (a view)."""
    return x.transpose(*range(lead), *range(lead + 1, x.ndim), lead)


def channels_first(x: Array, lead: int = 1) -> Array:
    """``[*lead, *S, C]`` seen as ``[*lead, C, *S]`` (a view)."""
    return x.transpose(*range(lead), x.ndim - 1, *range(lead, x.ndim - 1))


def scratch_bytes(x: Array, wanted: int) -> int:
    """Bytes that `row_blocks` leaves of a scratch array of `wanted`, for three of them at a time."""
    return 3 * min(wanted, _GPU_BYTES if _is_cupy(x) else _CACHE_BYTES)


def row_blocks(rows: int, row_bytes: int, x: Array) -> Iterator[slice]:
    """Slices of `rows` such that a scratch array of `row_bytes` per row stays in cache (on the GPU: in bounds)."""
    budget = _GPU_BYTES if _is_cupy(x) else _CACHE_BYTES
    step = max(1, budget // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
