"""Arenas: the temporary arrays of a block of samples, out of a few large slabs of memory; see `memory`."""

from __future__ import annotations

import weakref
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.engine import memory
from gbackprop.engine.memory import Allocator, Filling

SLAB_BYTES = 2**22
"""Least size of a slab of an arena; from this size on NumPy requests pages of 2 MiB."""

LEAST_ARRAY = 2**16
"""NumPy allocates smaller arrays: the C library reuses their pages."""

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


class Arena(Filling):
    """An allocator on the host that makes arrays out of a few slabs of memory, for one thread at a time."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, int]] = []  # (slab, start, stop), sorted
        self._slabs: list[memoryview] = []
        self._used: dict[int, tuple[Any, tuple[int, int, int]]] = {}
        self._dropped: deque[Any] = deque()  # filled at any time, by any thread that deletes an array
        self._now = self._most = self._needed = 0  # bytes in use, their maximum, and those of the next slab

    @property
    def nbytes(self) -> int:
        """Bytes of all slabs."""
        return sum(slab.nbytes for slab in self._slabs)

    @property
    def wanted(self) -> int:
        """Bytes of all slabs, or of the single slab that will replace them."""
        return self.nbytes or self._needed

    def empty(self, like: Array, shape: Sequence[int], dtype: Any = None) -> Array:
        if not isinstance(like, np.ndarray):
            return super().empty(like, shape, dtype)
        dtype = np.dtype(like.dtype if dtype is None else dtype)
        size = prod(shape) * dtype.itemsize
        if size < LEAST_ARRAY:
            return np.empty(shape, dtype)
        self._take_back()
        slab, start, stop = place = self._find(-(-size // _ALIGNMENT) * _ALIGNMENT)
        self._now += stop - start
        self._most = max(self._most, self._now)
        # Its base is not an array, so all views refer to this very array, which is deleted with the last of them.
        array = np.frombuffer(self._slabs[slab], np.uint8, size, start)
        reference = weakref.ref(array, self._dropped.append)
        self._used[id(reference)] = (reference, place)
        return array.view(dtype).reshape(shape)

    def _find(self, size: int) -> tuple[int, int, int]:
        """Take `size` bytes from the smallest free piece that is large enough; the rest of it stays free."""
        fitting = [piece for piece in self._free if piece[2] - piece[1] >= size]
        if not fitting:
            slab = len(self._slabs)
            fitting.append((slab, *self._grow(size)))
            self._free.append(fitting[0])  # sorted: the last slab has the largest number
        slab, start, stop = piece = min(fitting, key=lambda piece: piece[2] - piece[1])
        self._free.remove(piece)
        if start + size < stop:
            insort(self._free, (slab, start + size, stop))
        return slab, start, start + size

    def _grow(self, size: int) -> tuple[int, int]:
        """Add a slab; return where its free bytes start, aligned to a cache line, and stop."""
        more = max(size, SLAB_BYTES, self._needed or self.nbytes)  # large, so that there are few slabs
        try:
            slab = np.empty(more + _ALIGNMENT, np.uint8)
        except MemoryError:
            more = size
            slab = np.empty(more + _ALIGNMENT, np.uint8)
        start = -slab.__array_interface__["data"][0] % _ALIGNMENT
        self._slabs.append(slab.data)
        return start, start + more

    def settle(self) -> None:
        """Replace several slabs by a single one of the size that was needed; called after a block."""
        self._take_back()
        if len(self._slabs) > 1 and not self._used:
            self._needed = self.nbytes if self._needed else self._most + self._most // 4
            self._slabs, self._free = [], []

    def _take_back(self) -> None:
        """Free the pieces whose arrays are deleted, and merge each with its free neighbours."""
        while self._dropped:
            known = self._used.pop(id(self._dropped.popleft()), None)
            if known is None:  # an interrupt came before it was stored
                continue
            slab, start, stop = known[1]
            self._now -= stop - start
            for piece in [p for p in self._free if p[0] == slab and (p[2] == start or p[1] == stop)]:
                self._free.remove(piece)
                start, stop = min(start, piece[1]), max(stop, piece[2])
            insort(self._free, (slab, start, stop))


@contextmanager
def arena() -> Iterator[Arena]:
    """Enter a context with an arena that no other thread uses."""
    try:
        one = memory.idle_arenas.pop()  # without a test before, after which another thread could take it
    except IndexError:
        one = Arena()
    try:
        yield one
    finally:
        one.settle()
        if sum(each.wanted for each in [one, *memory.idle_arenas]) <= memory.IDLE_BYTES:
            memory.idle_arenas.append(one)


@contextmanager
def fresh() -> Iterator[Allocator]:
    """Enter a context with an allocator that reuses no memory."""
    yield Allocator()
