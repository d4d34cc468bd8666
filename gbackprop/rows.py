"""Results with a row for each sample, filled block by block."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Any

from gbackprop.array import Array, array_module


class Rows:
    """Arrays for a whole batch, made when the first block of samples brings its rows.

    Blocks may come from several threads. Nothing is kept of a block but its rows: neither the blocks nor a copy that
    puts them together need memory of their own.

    Parameters
    ----------
    batch : int
        N.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
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
                shape = (self.batch, *like.shape[1:])
                self.arrays[key] = array_module(like).empty_like(like, shape=shape)
        return self.arrays[key][rows]
