"""Samples and targets in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gbackprop.array import Array, like, on_device_of
from gbackprop.base.checks import check_array, check_flag, check_same, generator, positive


def batches(
    x: Any, y: Array, size: int, rng: int | np.random.Generator | None = None, drop_last: bool = False
) -> Iterator[tuple[Any, Array]]:
    """Cut samples and their targets into batches.

    Parameters
    ----------
    x, y : ndarray, shape (N, ...)
        Samples and targets, on one device; x a tuple or a dictionary of arrays where there are several inputs.
    size : int
        Number of samples in a batch.
    rng : None, int or numpy.random.Generator
        Shuffles the samples; None keeps their order. A Generator goes on from epoch to epoch; an integer gives the
        same order each time.
    drop_last : bool
        Whether the last batch is left out if it has fewer than `size` samples.

    Returns
    -------
    iterator of (ndarray, ndarray)
        Batches (n, ...) of `x` and `y` on their device. They are views of the arrays where the order is unchanged, and
        copies where it is shuffled.

    Raises
    ------
    TypeError
        If `x` or `y` is not an array, or they are on different devices, or `rng` or `drop_last` is of another type.
    ValueError
        If they are empty or of different lengths, `size` is not a positive integer, or `drop_last` would leave
        nothing.
    """
    named = x if isinstance(x, Mapping) else dict(enumerate(x)) if isinstance(x, tuple) else {}
    parts = {f"x[{key!r}]": part for key, part in named.items()} or {"x": x}
    for name, part in {**parts, "y": y}.items():
        check_array(name, part)
        if part.ndim == 0 or len(part) == 0:
            raise ValueError(f"{name}: expected at least one sample, got shape {part.shape}")
    first = next(iter(parts))
    n = len(parts[first])
    for name, part in {**parts, "y": y}.items():
        check_same(name, part, first, parts[first], dtype=False)
        if len(part) != n:
            raise ValueError(f"{name}: expected {n} samples as in {first}, got shape {part.shape}")
    positive("size", size)
    check_flag("drop_last", drop_last)
    if drop_last and size > n:
        raise ValueError(f"size: expected at most {n}, the number of samples, with drop_last=True, got {size}")
    order = None if rng is None else like(generator(rng).permutation(n), y)

    def batch(start: int) -> tuple[Any, Array]:
        some = slice(start, start + size)
        which = some if order is None else order[some]
        with on_device_of(y):
            taken = {key: part[which] for key, part in named.items()} or x[which]
            return tuple(taken.values()) if isinstance(x, tuple) else taken, y[which]

    return map(batch, range(0, n - size + 1 if drop_last else n, size))
