"""Results with a row for each sample, filled block by block."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.engine.memory import result_like


class SampleRows:
    """Storage for results of a whole batch, allocated when the first block of samples is stored.

    Several threads may store blocks. Each block is written into its rows: neither the blocks nor a copy that
    concatenates them need memory of their own.

    Parameters
    ----------
    batch : int
        N.
    reuse : bool
        Whether the memory of deleted results may be reused.
    copies : bool
        Whether to copy the rows of a block that is the whole batch, too.
    """

    def __init__(self, batch: int, reuse: bool = False, copies: bool = False) -> None:
        self.batch, self.reuse, self.copies = batch, reuse, copies
        self.arrays: dict[Hashable, Any] = {}
        self._lock = Lock()

    def put(self, key: Hashable, rows: slice, value: Array) -> Array:
        """Store the rows of some samples; return the stored rows."""
        if value.shape[0] == self.batch and not self.copies and getattr(value.flags, "writeable", True):
            self.arrays[key] = value
            return value
        place = self.place(key, rows, value)
        place[...] = value
        return place

    def place(self, key: Hashable, rows: slice, like: Array) -> Array:
        """Return the stored rows of some samples, to be written; `like` gives the memory order of a row's axes."""
        with self._lock:
            if key not in self.arrays:
                self.arrays[key] = self._empty(like)
        return self.arrays[key][rows]

    def _empty(self, like: Array) -> Array:
        xp, shape = array_module(like), (self.batch, *like.shape[1:])
        if not isinstance(like, np.ndarray) or not self.reuse:
            return xp.empty_like(like, shape=shape)
        axes = [0, *sorted(range(1, like.ndim), key=lambda axis: -abs(like.strides[axis]))]
        array = result_like(like, [shape[axis] for axis in axes])
        return array.transpose([axes.index(axis) for axis in range(like.ndim)])
