"""Memory of large results: once nobody looks at one any longer, it waits for the next call's.

A result with a row for each sample, which blocks write in place, can be as large as all the rest, and the system hands
out every page of it anew: `scratch` tells why that is slow. A piece comes back when the last array that looks at it is
gone. About `KEPT_BYTES` wait at most, beside what `scratch` keeps, until `gbackprop.scratch.free`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

LEAST_BYTES = 2**22
"""Smaller results are left to NumPy."""

KEPT_BYTES = 2**29
"""What may wait for the next call, in total."""

_waiting: dict[int, np.ndarray] = {}  # by identity: taking out one is a single step, whatever else happens meanwhile


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array whose numbers are yet to be written, C-contiguous."""
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    if not LEAST_BYTES <= size <= KEPT_BYTES:
        return np.empty(shape, dtype)
    memory = _found(size)
    if memory is None:
        memory = _new(size)
    # Its base is no array, so views of views all hold on to this very array, and it is gone when they are.
    array = np.frombuffer(memory.data, np.uint8, size)
    weakref.finalize(array, _wait, memory).atexit = False
    return array.view(dtype).reshape(shape)


def free() -> None:
    """Give back to the system what waits for the next call."""
    _waiting.clear()


def waiting_bytes() -> int:
    """Bytes that wait."""
    return sum(memory.nbytes for memory in list(_waiting.values()))


def _found(size: int) -> np.ndarray | None:
    """A piece of at least `size` bytes, and not much more, that waits no longer."""
    fitting = [memory for memory in list(_waiting.values()) if size <= memory.nbytes <= 2 * size]
    for memory in sorted(fitting, key=lambda memory: memory.nbytes):
        if _waiting.pop(id(memory), None) is not None:
            return memory
    return None


def _new(size: int) -> np.ndarray:
    try:
        return np.empty(size, np.uint8)
    except MemoryError:  # what waits, and did not fit, may be what is missing
        free()
        return np.empty(size, np.uint8)


def _wait(memory: np.ndarray) -> None:
    """Keep what came last: what nobody took for longer is of a size that is no longer asked for."""
    for key in list(_waiting):
        if waiting_bytes() + memory.nbytes <= KEPT_BYTES:
            break
        _waiting.pop(key, None)
    _waiting[id(memory)] = memory
