"""Memory for what a sweep makes and drops again: the pages that one array leaves, the next one takes.

The C library gives large arrays back to the system as soon as they are dropped, and the system hands out every page
anew, cleared: on a virtual machine that took a third of a call's time. `Scratch` keeps a few large pieces of memory,
and the layers' `empty` takes from the one that is in use in its thread, if there is one. Nobody has to give anything
back: a piece is free again when the last array that looks at it is gone.

A call that is cut into blocks borrows one for each block that is under way, unless it has a budget of memory. What is
given back waits for the next: no numbers, but about `KEPT_BYTES`, until `free`. CuPy's pools do as much on a GPU.
"""

from __future__ import annotations

import weakref
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from threading import get_ident
from typing import Any

import numpy as np

from gbackprop import recycled
from gbackprop.array import Array, array_module

SLAB_BYTES = 2**22
"""Least size of what is asked of the system at a time; from here on NumPy asks for pages of 2 MiB."""

KEPT_BYTES = 2**29
"""What may wait for the next call, in total."""

LEAST_BYTES = 2**16
"""Smaller arrays are left to NumPy: the C library keeps their pages."""

_ALIGNMENT = 64  # bytes: a line of the cache, and the widest vector


class Scratch:
    """Pieces of memory, lent to the arrays of one thread at a time."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, int]] = []  # (slab, start, stop), sorted
        self._slabs: list[memoryview] = []
        self._lent: dict[int, tuple[Any, tuple[int, int, int]]] = {}
        self._dropped: deque[Any] = deque()  # filled whenever, and by whichever thread, drops an array
        self._used = self._most = self._needed = 0  # bytes that are lent, their maximum, and the next slab's

    @property
    def nbytes(self) -> int:
        """Bytes of all slabs."""
        return sum(slab.nbytes for slab in self._slabs)

    @property
    def wanted(self) -> int:
        """Bytes of all slabs, or of the one that is to come in their place."""
        return self.nbytes or self._needed

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array whose numbers are yet to be written, C-contiguous."""
        dtype = np.dtype(dtype)
        size = prod(shape) * dtype.itemsize
        if size < LEAST_BYTES:
            return np.empty(shape, dtype)
        self._take_back()
        slab, start, stop = place = self._find(-(-size // _ALIGNMENT) * _ALIGNMENT)
        self._used += stop - start
        self._most = max(self._most, self._used)
        # Its base is no array, so views of views all hold on to this very array, and it is gone when they are.
        array = np.frombuffer(self._slabs[slab], np.uint8, size, start)
        reference = weakref.ref(array, self._dropped.append)
        self._lent[id(reference)] = (reference, place)
        return array.view(dtype).reshape(shape)

    def _find(self, size: int) -> tuple[int, int, int]:
        """The smallest free piece of at least `size` bytes, the rest of it free still."""
        fitting = [piece for piece in self._free if piece[2] - piece[1] >= size]
        if not fitting:
            slab = len(self._slabs)
            fitting.append((slab, *self._grow(size)))
            self._free.append(fitting[0])  # the last slab's is the last
        slab, start, stop = piece = min(fitting, key=lambda piece: piece[2] - piece[1])
        self._free.remove(piece)
        if start + size < stop:
            insort(self._free, (slab, start + size, stop))
        return slab, start, start + size

    def _grow(self, size: int) -> tuple[int, int]:
        """Another slab: where its free bytes start, on a cache line, and stop."""
        more = max(size, SLAB_BYTES, self._needed or self.nbytes)  # few slabs, whatever is needed
        try:
            memory = np.empty(more + _ALIGNMENT, np.uint8)
        except MemoryError:
            more = size
            memory = np.empty(more + _ALIGNMENT, np.uint8)
        start = -memory.__array_interface__["data"][0] % _ALIGNMENT
        self._slabs.append(memory.data)
        return start, start + more

    def settle(self) -> None:
        """Between blocks: one slab of what was needed instead of several, in which less would fit."""
        self._take_back()
        if len(self._slabs) > 1 and not self._lent:
            self._needed = self.nbytes if self._needed else self._most + self._most // 4
            self._slabs, self._free = [], []

    def _take_back(self) -> None:
        """Make pieces free whose arrays are gone, each one with its free neighbours."""
        while self._dropped:
            known = self._lent.pop(id(self._dropped.popleft()), None)
            if known is None:  # an interrupt came before it was written down
                continue
            slab, start, stop = known[1]
            self._used -= stop - start
            for piece in [p for p in self._free if p[0] == slab and (p[2] == start or p[1] == stop)]:
                self._free.remove(piece)
                start, stop = min(start, piece[1]), max(stop, piece[2])
            insort(self._free, (slab, start, stop))


_in_use: ContextVar[tuple[Scratch, int] | None] = ContextVar("scratch", default=None)  # and the thread that has it
_waiting: list[Scratch] = []


@contextmanager
def borrowed() -> Iterator[Scratch]:
    """A context in which this thread's `empty` takes from a scratch that no other has in hand."""
    try:
        scratch = _waiting.pop()  # asking first whether there is one would leave time for others to take it
    except IndexError:
        scratch = Scratch()
    token = _in_use.set((scratch, get_ident()))
    try:
        yield scratch
    finally:
        _in_use.reset(token)
        scratch.settle()
        if sum(each.wanted for each in [scratch, *_waiting]) <= KEPT_BYTES:
            _waiting.append(scratch)


@contextmanager
def withheld() -> Iterator[None]:
    """A context in which `empty` leaves all to NumPy, within another's `borrowed` too."""
    token = _in_use.set(None)
    try:
        yield
    finally:
        _in_use.reset(token)


def free() -> None:
    """Give back to the system what waits for the next call, `recycled` included."""
    _waiting.clear()
    recycled.free()


def _lender(x: Array) -> Scratch | None:
    """Who lends memory for arrays beside `x`: nobody on a GPU, or in a thread that did not borrow."""
    in_use = _in_use.get()
    if in_use is None or array_module(x) is not np:
        return None
    return in_use[0] if in_use[1] == get_ident() else None  # a context may have been copied to other threads


def empty(like: Array, shape: Sequence[int], dtype: Any = None) -> Array:
    """An array for `shape`, C-contiguous and yet to be written, where `like` lies; of its dtype by default."""
    lender = _lender(like)
    dtype = like.dtype if dtype is None else dtype
    return array_module(like).empty(shape, dtype) if lender is None else lender.empty(shape, dtype)


def zeros(like: Array, shape: Sequence[int], dtype: Any = None) -> Array:
    """As `empty`, filled with zeros."""
    array = empty(like, shape, dtype)
    array[...] = 0
    return array


def empty_like(x: Array, dtype: Any = None) -> Array:
    """As `empty`, with the shape of `x` and its axes in the order in which they lie in memory."""
    if _lender(x) is None:
        return array_module(x).empty_like(x, dtype=dtype)
    axes = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    array = empty(x, [x.shape[axis] for axis in axes], dtype)
    return array.transpose([axes.index(axis) for axis in range(x.ndim)])


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` for matrices, or for stacks of as many."""
    if _lender(a) is None:
        return a @ b
    return np.matmul(a, b, out=empty(a, (*a.shape[:-1], b.shape[-1]), np.result_type(a, b)))


def multiply(a: Array, b: Array) -> Array:
    """``a * b``, where `b` has at most the shape of `a`."""
    return a * b if _lender(a) is None else np.multiply(a, b, out=empty_like(a, np.result_type(a, b)))


def contiguous(x: Array) -> Array:
    """`x`, or a copy, in C order."""
    if x.flags.c_contiguous:
        return x
    array = empty(x, x.shape)
    array[...] = x
    return array
