"""The data of an operator: one batch, or batches that can be gone through again; each product sees the same data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gbackprop.array import Array, is_array
from gbackprop.base.checks import batch_of
from gbackprop.calculus.state import checksum

Batch = tuple[Array, ...]
"""x and y, or x alone."""


class Batches:
    """One batch or several, with what is needed to notice that they have changed.

    Parameters
    ----------
    data : tuple of ndarray, or iterable of these
        One batch, or an object that gives the same batches each time it is gone through.
    parts : int
        Number of arrays in a batch: 2 for (x, y), 1 for x alone.
    network : Layer, optional
        If it has several inputs, x is a tuple or a dictionary; in a list of batches, each is.

    Raises
    ------
    TypeError
        If it is neither, or an iterator, which can be gone through only once.
    """

    def __init__(self, data: Any, parts: int, network: Any = None) -> None:
        self.parts, self.prints = parts, list[Any]()
        self.network = network if getattr(network, "several", None) else None
        y = isinstance(data, tuple) and len(data) == 2 and is_array(data[1])  # and not a second batch
        if self.network is not None and (y if parts == 2 else isinstance(data, tuple | Mapping)):
            data = self._packed(data)
        self.data = data
        what = "(x, y)" if parts == 2 else "x"
        self.single = is_array(data) if parts == 1 else _is_batch(data, parts)
        if self.single:
            return
        if not isinstance(data, Iterable) or isinstance(data, str | bytes | dict) or is_array(data):
            raise TypeError(f"data: expected one batch {what}, or several in a list, got {type(data).__name__}")
        if iter(data) is data:
            raise TypeError(
                f"data: expected a batch {what}, or batches that can be gone through again, got {type(data).__name__}, "
                "which can be gone through once (make a list of it)"
            )

    def first(self) -> Iterator[tuple[int, Batch]]:
        """Yield each batch with its number for the first time, and record it."""
        for i, batch in enumerate(self._batches()):
            arrays = (batch,) if self.parts == 1 and is_array(batch) else batch
            if not _is_batch(arrays, self.parts):
                what = "a pair of arrays (x, y)" if self.parts == 2 else "an array x"
                raise TypeError(f"batch {i}: expected {what}, got {type(batch).__name__}")
            self.prints.append(fingerprint(*arrays))
            yield i, tuple(arrays)
        if not self.prints:
            raise ValueError("data: expected at least one batch, got none")

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        """Yield each batch with its number, as it was the first time."""
        count = 0
        for i, batch in enumerate(self._batches()):
            arrays = (batch,) if self.parts == 1 and is_array(batch) else tuple(batch)
            if i >= len(self.prints) or fingerprint(*arrays) != self.prints[i]:
                name = "data" if self.single else f"batch {i}"
                raise ValueError(
                    f"{name}: expected the same arrays as when the operator was made, got others "
                    "(make a new operator; batches must not be shuffled or changed between products)"
                )
            count = i + 1
            yield i, arrays
        if count != len(self.prints):
            raise ValueError(f"data: expected {len(self.prints)} batches as when the operator was made, got {count}")

    def _batches(self) -> Iterable[Any]:
        return [self.data] if self.single else self.data if self.network is None else map(self._packed, self.data)

    def _packed(self, batch: Any) -> Any:
        """Return a batch with several inputs as columns of one array."""
        if self.parts == 1:
            return batch_of(self.network, batch)
        return (batch_of(self.network, batch[0]), *batch[1:]) if isinstance(batch, tuple | list) and batch else batch


def _is_batch(data: Any, parts: int) -> bool:
    return (
        isinstance(data, tuple | list)
        and len(data) == parts
        and all(map(is_array, data))
        and (isinstance(data, tuple) or parts == 1)
    )


def fingerprint(*arrays: Any) -> tuple[Any, ...]:
    """Return shapes, dtypes and a checksum of arrays; of others it is, almost surely, another one."""
    return tuple((array.shape, array.dtype.str, checksum(array)) for array in arrays if is_array(array))
