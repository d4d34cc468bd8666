"""Statements whose large arrays lie in an arena: pages of those that NumPy makes are cleared in each call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gbackprop.engine.calls.statements import Named, Statement

TAKE = "take"
"""The argument of a function that is given one for its large arrays, in place of `taken`."""

LEAST = 2**18
"""Least bytes of a large array: an arena takes some microseconds to find a place, as the system does for few pages."""

EMPTY = np.empty, np.empty_like
"""Functions that make an array without numbers."""


def taken(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array without numbers."""
    return np.empty(shape, dtype)


def in_arena(lines: Sequence[Statement], results: set[str]) -> Iterator[Statement]:
    """Yield statements of which each makes no large array, but one of `taken`, unless its memory is a result's."""
    for line in lines:
        made = line.made[0] if len(line.made) == 1 and not line.several else None
        if made is None or made.memory in results or not _is_large(made):
            yield line
        elif line.function in EMPTY:
            yield _of(made)
        elif isinstance(line.function, np.ufunc) and not line.named:
            yield _of(made)
            yield replace(line, named={"out": made}, made=[], writes={made.memory})
        else:
            yield line


def _of(made: Named) -> Statement:
    return Statement(taken, [made.shape, made.dtype], {}, [made], False, set(), {})


def _is_large(made: Named) -> bool:
    """Return whether a statement makes a new array, in C order, that an arena would not leave to NumPy."""
    return made.name == made.memory and made.flat and made.size * made.dtype.itemsize >= LEAST
