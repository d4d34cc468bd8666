"""Reused memory: for the temporary arrays of a sweep, and for large results that are no longer referenced.

The C library returns large arrays to the operating system as soon as they are freed, and the system clears every page
before it provides it again: on a virtual machine that took a third of a call's time. Therefore

- a block of samples takes its arrays from an `arena`, a few large slabs of memory in which new arrays take the place of
  freed ones (CuPy's pools do the same on a GPU);
- results with a row for each sample, from `LEAST_RESULT` on, are made by `result_array`, and their memory is reused for
  a later result when no view of them is left; so are the temporary arrays of operators (`Reused`).

Memory is freed automatically: a piece is free again when the last array that refers to it is deleted. Between calls at
most `IDLE_BYTES` of each kind stay in the process, none of it part of a result in use, until `free_memory`. A call with
a memory budget uses neither.

The two caches of idle memory at the end of this file are the only state that outlives a call, apart from BLAS's number
of threads (`base.threads`) and CuPy's TF32 setting (`kernels.precision`), which belong to the process.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, ModuleArray, array_module

IDLE_BYTES = 2**29
"""Largest number of bytes cached for the next call, for arenas and for results each."""

LEAST_RESULT = 2**22
"""NumPy allocates smaller results."""

LEAST_REUSED = 2**18
"""NumPy allocates smaller temporary arrays of operators."""

IDLE_PIECES = 64
"""Largest number of idle pieces of results and of operators' arrays: a search through 64 of them takes 4 µs."""


def compact(x: Array) -> bool:
    """Return whether the numbers of `x` are adjacent in memory, in any order of the axes, each of them once."""
    if x.flags.c_contiguous:
        return True
    expected = x.itemsize
    for step, n in sorted(zip(map(abs, x.strides), x.shape, strict=True)):
        if n > 1 and step != expected:
            return False
        expected *= n
    return True


class Allocator:
    """An allocator that makes arrays by the module, NumPy or CuPy, of the array `like`."""

    def empty(self, like: Array, shape: Sequence[int], dtype: Any = None) -> Array:
        """Return an uninitialized C-contiguous array of shape `shape`, by default of the dtype of `like`."""
        return array_module(like).empty(shape, like.dtype if dtype is None else dtype)

    def empty_like(self, x: Array, dtype: Any = None) -> Array:
        """Return an uninitialized array with the shape of `x` and the memory order of its axes."""
        return array_module(x).empty_like(x, dtype=dtype)

    def matmul(self, a: Array, b: Array) -> Array:
        """Compute ``a @ b`` for matrices, or for stacks of equally many."""
        return a @ b

    def multiply(self, a: Array, b: Array) -> Array:
        """Compute ``a * b``, where `b` has at most the shape of `a`."""
        return a * b

    def contiguous(self, x: Array) -> Array:
        """Return `x`, or a copy, in C order."""
        if x.flags.c_contiguous:
            return x
        array = self.empty(x, x.shape)
        array[...] = x
        return array


class Filling(Allocator):
    """Base class of allocators whose products are computed into arrays of their own `empty`."""

    def empty_like(self, x: Array, dtype: Any = None) -> Array:
        axes = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
        array = self.empty(x, [x.shape[axis] for axis in axes], dtype)
        return array.transpose([axes.index(axis) for axis in range(x.ndim)])

    def matmul(self, a: Array, b: Array) -> Array:
        xp = array_module(a)
        return xp.matmul(a, b, out=self.empty(a, (*a.shape[:-1], b.shape[-1]), xp.result_type(a, b)))

    def multiply(self, a: Array, b: Array) -> Array:
        xp = array_module(a)
        return xp.multiply(a, b, out=self.empty_like(a, xp.result_type(a, b)))


class Reused(Filling):
    """An allocator on the host that makes arrays in the memory of deleted ones, and of deleted results.

    Its arrays may be stored as long as wanted, unlike those of an arena, which would keep a slab in use.
    """

    def empty(self, like: Array, shape: Sequence[int], dtype: Any = None) -> Array:
        return result_like(like, shape, dtype, LEAST_REUSED)

    def add(self, a: Array, b: Array) -> Array:
        """Compute ``a + b`` for arrays of one shape."""
        xp = array_module(a)
        return xp.add(a, b, out=self.empty_like(a, xp.result_type(a, b)))


def result_array(shape: Sequence[int], dtype: Any, least: int | None = None) -> np.ndarray:
    """Return an uninitialized C-contiguous array for a result, in the memory of a deleted result if there is one.

    NumPy allocates arrays of less than `least` bytes, by default `LEAST_RESULT`.
    """
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    if not (LEAST_RESULT if least is None else least) <= size <= IDLE_BYTES:
        return np.empty(shape, dtype)
    memory = _found(size)
    if memory is None:
        memory = _new(size)
    # Its base is not an array, so all views refer to this very array, which is deleted with the last of them.
    array = np.frombuffer(memory.data, np.uint8, size)
    weakref.finalize(array, _keep, memory).atexit = False
    return array.view(dtype).reshape(shape)


def result_like(x: Any, shape: Sequence[int], dtype: Any = None, least: int | None = None) -> Array:
    """Return an array as from `result_array`, of the module of `x` and by default of its dtype."""
    dtype = x.dtype if dtype is None else dtype
    if not isinstance(x, np.ndarray):
        return array_module(x).empty(shape, dtype)
    if isinstance(x, ModuleArray):
        return x.made(result_array, shape, dtype, least)  # type: ignore[attr-defined]
    return result_array(shape, dtype, least)


def free_memory() -> None:
    """Return the memory cached for the next call to the operating system: at most 1 GiB, on the host.

    Notes
    -----
    After a call that was cut into blocks of samples up to 512 MiB are cached, and as much from large results and from
    operators' temporary arrays that are no longer referenced. Results that are still in use are not touched.
    """
    idle_arenas.clear()
    _idle_results.clear()


def idle_bytes() -> int:
    """Return the number of bytes that `free_memory` would free."""
    return sum(each.nbytes for each in idle_arenas) + _idle_result_bytes()


def _idle_result_bytes() -> int:
    return sum(memory.nbytes for memory in list(_idle_results.values()))


def _found(size: int) -> np.ndarray | None:
    """Take an idle piece of at least `size` and at most twice as many bytes, if there is one."""
    fitting = [memory for memory in list(_idle_results.values()) if size <= memory.nbytes <= 2 * size]
    for memory in sorted(fitting, key=lambda memory: memory.nbytes):
        if _idle_results.pop(id(memory), None) is not None:
            return memory
    return None


def _new(size: int) -> np.ndarray:
    try:
        return np.empty(size, np.uint8)
    except MemoryError:  # the idle memory, no piece of which fitted, may be enough
        free_memory()
        return np.empty(size, np.uint8)


def _keep(memory: np.ndarray) -> None:
    """Cache the memory of a deleted result, in place of the oldest ones, whose sizes are no longer asked for."""
    for key in list(_idle_results):
        if _idle_result_bytes() + memory.nbytes <= IDLE_BYTES and len(_idle_results) < IDLE_PIECES:
            break
        _idle_results.pop(key, None)
    _idle_results[id(memory)] = memory


idle_arenas: list[Any] = []
_idle_results: dict[int, np.ndarray] = {}  # by identity: removing one is a single, atomic step
