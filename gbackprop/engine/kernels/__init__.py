"""Kernels: compiled loops for the host and for a GPU, each of which does in one pass what plain NumPy does in several.

`windows_of`, `transforms_of` and `steps_of` return the kernels for an array. Their results are defined in
`gbackprop.layers`.
"""

from __future__ import annotations

import functools
import threading
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from gbackprop.array import FLOAT_NAMES, Array, ModuleArray
from gbackprop.engine.kernels import device, plain, plain_tiles


def windows_of(x: Array, axes: int) -> ModuleType | None:
    """Return the kernels for moving windows over `axes` spatial axes of arrays such as `x`, or None.

    Each module has ``fold``, ``scatter``, ``first_places`` and ``largest``, with the same arguments.
    """
    if on_host(x):
        return calls_of(x, numba_kernels() or plain)
    return on_gpu(x) if axes <= device.AXES else None


def transforms_of(x: Array) -> ModuleType | None:
    """Return the transforms for `tiles` of arrays such as `x`, or None if there are none."""
    if not on_host(x):
        return None
    if numba_kernels() is None:
        return calls_of(x, plain_tiles)
    from gbackprop.engine.kernels import compiled_tiles

    return calls_of(x, compiled_tiles)


def steps_of(x: Array) -> ModuleType | None:
    """Return the loops over the time steps of recurrent layers for arrays such as `x`, or None if there are none."""
    if not on_host(x) or x.dtype != np.float32 or numba_kernels() is None:
        return None
    from gbackprop.engine.kernels import compiled_steps

    return calls_of(x, compiled_steps)


def calls_of(x: Array, kernels: ModuleType | None) -> Any:
    """Return kernels; for an array that writes down what is done to it, such that their calls are written down."""
    if kernels is None or not isinstance(x, ModuleArray):
        return kernels
    return x.module(kernels)  # type: ignore[attr-defined]


def on_host(x: Array) -> bool:
    """Return whether `x` is an array of floats on the host."""
    return isinstance(x, np.ndarray) and x.dtype in FLOAT_NAMES


def on_gpu(x: Array) -> ModuleType | None:
    """Return the module `device` if `x` is an array of floats on a GPU, else None."""
    return None if isinstance(x, np.ndarray) or x.dtype not in FLOAT_NAMES else device


_IMPORTING = threading.Lock()
"""One thread imports the kernels: another one would find a module that is not complete, which is no missing Numba."""


@functools.cache
def numba_kernels() -> ModuleType | None:
    """Return the module `host`; None if Numba is not installed, or, with a warning, if it cannot be used."""
    try:
        with _IMPORTING:
            from gbackprop.engine.kernels import host
    except ModuleNotFoundError:
        return None
    except (ImportError, RuntimeError) as error:
        place = "; set NUMBA_CACHE_DIR to a folder that can be written" if "cannot cache" in str(error) else ""
        message = f"Numba is installed but cannot be used, which makes gbackprop slower: {error}{place}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
    return host
