"""The array module: one interface to NumPy on the host and CuPy on a GPU.

This is the only file that imports CuPy, and it does so only when a device ``"cuda"`` is asked for. There is no global
switch: every function takes its module, `xp`, from its array arguments.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from math import isfinite
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""A NumPy or CuPy array; which of the two is known only at run time. To type checkers it is NumPy's."""

Method = TypeVar("Method", bound=Callable[..., Any])

FLOATS = ("float32", "float64")
"""The dtypes that networks, inputs and results may have."""

FLOAT_NAMES = {np.dtype(order + name[0] + str(int(name[5:]) // 8)): name for name in FLOATS for order in "<>"}
"""The name of each such dtype: NumPy takes 3 µs to put one together."""

ODD = np.ma.MaskedArray | np.matrix
"""Arrays of NumPy whose operations differ."""


class ModuleArray:
    """Base class of arrays that compute as those of NumPy, with a module of their own."""

    def __array_namespace__(self) -> Any:
        """Return the module that makes new arrays of the same kind."""


class RecordedArray(ModuleArray):
    """Base class of arrays, without memory, that write down what is done to them."""


def is_array(x: object) -> bool:
    """Return whether `x` is a NumPy or CuPy array, and no masked array or matrix, whose operations differ."""
    return type(x) is np.ndarray or _is_cupy(x) or (isinstance(x, np.ndarray | ModuleArray) and not isinstance(x, ODD))


def _is_cupy(x: object) -> bool:
    # no CuPy array exists before CuPy is imported
    return "cupy" in sys.modules and isinstance(x, sys.modules["cupy"].ndarray)


def array_module(x: Array) -> ModuleType:
    """Return the module to which `x` belongs: NumPy, CuPy, or the one that records."""
    if type(x) is not np.ndarray and isinstance(x, ModuleArray):
        return x.__array_namespace__()
    return np if type(x) is np.ndarray or not _is_cupy(x) else sys.modules["cupy"]


def device_of(x: Any) -> str:
    """Return the device of `x`: ``"cpu"``, or ``"cuda:0"`` and so on."""
    return "cpu" if type(x) is np.ndarray or not _is_cupy(x) else f"cuda:{x.device.id}"


def on_device_of(x: Any) -> AbstractContextManager:
    """Return a context in which CuPy makes new arrays on the device of `x`, not on the thread's device (at first 0)."""
    return x.device if type(x) is not np.ndarray and _is_cupy(x) else nullcontext()


def beside(find: Callable[[Any], Any]) -> Callable[[Method], Method]:
    """Make a decorator for methods whose new arrays must be on the device of the array ``find(self)``."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def there(self: Any, *args: Any, **keywords: Any) -> Any:
            with on_device_of(find(self)):
                return method(self, *args, **keywords)

        return cast(Method, there)

    return decorate


def asarray(x: Any, device: str = "cpu", dtype: Any = None) -> Array:
    """Convert `x` to an array on a device.

    Parameters
    ----------
    x : array_like or CuPy array, shape (...)
    device : {"cpu", "cuda", "cuda:0", ...}
    dtype : dtype, optional
        Unchanged by default.

    Raises
    ------
    RuntimeError
        If the device is a GPU and CuPy is missing or finds none.
    TypeError
        If `x` is a masked array.
    ValueError
        If the device is unknown.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("expected an array, got MaskedArray (its method `filled` gives one)")
    if isinstance(x, ModuleArray):
        return cast(Array, x.__array_namespace__().asarray(x, dtype))
    if device == "cpu":
        return np.asarray(x.get() if type(x) is not np.ndarray and _is_cupy(x) else x, dtype=dtype)
    cupy = cupy_with_gpu(device)
    with cupy.cuda.Device(device_index(device)):
        return cupy.asarray(x, dtype=dtype)


def asnumpy(x: Any) -> np.ndarray:
    """Return `x` as a NumPy array, copied from the GPU if it is there."""
    return asarray(x, "cpu")


def like(x: Any, other: Array, dtype: Any = None) -> Array:
    """Return host data `x`, such as random numbers, on the device of `other`."""
    return asarray(x, device_of(other), dtype)


def check_device(device: str) -> None:
    """Check that the device exists; raise an error otherwise."""
    if device != "cpu":
        cupy_with_gpu(device)


def device_index(device: str) -> int:
    """Return the number of a GPU from the name of its device."""
    kind, colon, index = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind != "cuda" or (colon and not index.isdigit()):
        raise ValueError(f"device: expected 'cpu', 'cuda' or 'cuda:0', 'cuda:1', …, got {device!r}")
    return int(index or 0)


def cupy_with_gpu(device: str) -> ModuleType:
    """Return CuPy after checking that the GPU can be used; the errors are those of `asarray`."""
    index = device_index(device)
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


def all_finite(*arrays: Array) -> bool:
    """Return whether arrays of one device contain neither NaN nor infinity.

    One sum, on the host of squares, decides nearly every case, several times faster than a test of each number: it is
    not finite if a number is not. Each number is tested only if the sum is not finite, which can be an overflow. The
    host waits for a GPU once.
    """
    if not arrays:
        return True
    if array_module(arrays[0]) is np:
        rows = [x if x.flags.c_contiguous else x.ravel("K") for x in arrays]
        squares = sum(map(float, map(np.vdot, rows, rows)))  # neither a product by BLAS nor Python warns of overflow
        return isfinite(squares) or all(np.isfinite(x).all() for x in arrays)
    with on_device_of(arrays[0]):
        xp, together = array_module(arrays[0]), arrays
        if len(arrays) > 1:
            with suppress(MemoryError):  # one kernel that copies costs less than a kernel for each
                together = (xp.concatenate([x.ravel() for x in arrays]),)
        return bool(xp.isfinite(sum([x.sum() for x in together]))) or all(bool(xp.isfinite(x).all()) for x in arrays)


def bounds(x: Array) -> tuple[Any, ...]:
    """Return the smallest and the largest number as Python numbers; the host waits for a GPU once."""
    if type(x) is np.ndarray or not _is_cupy(x):
        low, high = (x, x) if x.size == 1 else (np.minimum.reduce(x, axis=None), np.maximum.reduce(x, axis=None))
        return low.item(), high.item()
    with on_device_of(x):
        return tuple(asnumpy(array_module(x).stack([x.min(), x.max()])).tolist())


def scipy_module(x: Array, name: str) -> ModuleType:
    """Return a module of SciPy, or the one of CuPy's for arrays on a GPU."""
    return import_module(f"cupyx.scipy.{name}" if _is_cupy(x) else f"scipy.{name}")


# ------------------------------------------------------------------------------------------------------------ layouts


def channels_last(x: Array, lead: int = 1) -> Array:
    """Return the view ``[*lead, *S, C]`` of ``[*lead, C, *S]``."""
    return x.transpose(*range(lead), *range(lead + 1, x.ndim), lead) if x.ndim > lead else x


def channels_first(x: Array, lead: int = 1) -> Array:
    """Return the view ``[*lead, C, *S]`` of ``[*lead, *S, C]``."""
    return x.transpose(*range(lead), x.ndim - 1, *range(lead, x.ndim - 1)) if x.ndim > lead else x
