"""Results with a row for each sample, filled block by block."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Any

import numpy as np

from gbackprop import recycled
from gbackprop.array import Array, array_module


class Rows:
    """Arrays for a whole batch, made when the first block of samples brings its rows.

    Blocks may come from several threads. Nothing is kept of a block but its rows: neither the blocks nor a copy that
    puts them together need memory of their own.

    Parameters
    ----------
    batch : int
        N.
    reuse : bool
        Whether memory that results before left behind may be taken for them.
    """

    def __init__(self, batch: int, reuse: bool = False) -> None:
        self.batch, self.reuse = batch, reuse
        self.arrays: dict[Hashable, Any] = {}
        self._lock = Lock()

    def put(self, key: Hashable, rows: slice, value: Array) -> Array:
        """Keep the rows of some samples; returns where they are kept."""
        if value.shape[0] == self.batch:
            self.arrays[key] = value
            return value
        place = self.room(key, rows, value)
        place[...] = value
        return place

    def room(self, key: Hashable, rows: slice, like: Array) -> Array:
        """Where the rows of some samples are kept, to be written; `like` shows how a row lies in memory."""
        with self._lock:
            if key not in self.arrays:
                self.arrays[key] = self._empty(like)
        return self.arrays[key][rows]

    def _empty(self, like: Array) -> Array:
        xp, shape = array_module(like), (self.batch, *like.shape[1:])
        if xp is not np or not self.reuse:
            return xp.empty_like(like, shape=shape)
        axes = [0, *sorted(range(1, like.ndim), key=lambda axis: -abs(like.strides[axis]))]
        array = recycled.empty([shape[axis] for axis in axes], like.dtype)
        return array.transpose([axes.index(axis) for axis in range(like.ndim)])
