"""Blocks of rows whose scratch arrays fit into the cache."""

from __future__ import annotations

from collections.abc import Iterator

from gbackprop.array import Array, device_of

_CACHE_BYTES = 2**20
"""Target size of the scratch array of `row_blocks` on the host: about the second-level cache of a core."""

_GPU_BYTES = 2**29
"""Target size on a GPU, where few large products are fastest and memory is the only limit."""


def scratch_bytes(x: Array, wanted: int) -> int:
    """Return the bytes of three scratch arrays of `wanted` bytes each, after `row_blocks` has limited their size."""
    return 3 * min(wanted, _budget(x))


def row_blocks(rows: int, row_bytes: int, x: Array) -> Iterator[slice]:
    """Return slices of `rows` whose scratch array, `row_bytes` per row, fits into the cache (`_GPU_BYTES` on a GPU)."""
    step = max(1, _budget(x) // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _budget(x: Array) -> int:
    return _CACHE_BYTES if device_of(x) == "cpu" else _GPU_BYTES
