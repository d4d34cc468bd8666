"""Samples and parameters like those of an example, with which a function is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbackprop.base.recording.tape import Tape

Recording = Callable[[int], tuple[Tape, Any]]
"""A function that records n samples."""


def moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return other numbers of equal signs, and small positive ones for zeros."""
    factor = rng.uniform(0.8, 1.2, value.shape)
    return np.where(value == 0, rng.uniform(0.05, 0.1, value.shape), value * factor)


def samples(x: np.ndarray, n: int, rng: np.random.Generator, beside: int | None = 1) -> np.ndarray:
    """Return n samples like those of a batch, with other numbers; integers stay such.

    No integer is the same in all samples: where the batch has one alone, others are between it and 0, and for 0 they
    are `beside`. Where that is None, integers are those of the batch.
    """
    if x.dtype.kind not in "iub":
        return moved(x[np.arange(n) % len(x)], rng)
    rows = np.unique(x.reshape(len(x), -1), axis=0)
    rows = rows[np.sort(rng.choice(len(rows), min(n, len(rows)), replace=False))].reshape(-1, *x.shape[1:])
    some = rows[_places(len(rows), n)]
    if beside is not None:
        some = np.where((x == x[0]).all(0), _between(x[0], n, beside), some)
    return some.astype(x.dtype)


def _places(k: int, n: int) -> np.ndarray:
    """Return places of n ≤ 3 samples among k ordered ones: the largest, the smallest, one between them."""
    return np.array([0, 0, 0] if k == 1 else [1, 0, 0] if k == 2 else [2, 0, 1])[:n]


def _between(value: np.ndarray, n: int, beside: int) -> np.ndarray:
    """Return n ≤ 3 samples' integers, each between the given one and 0; for 0 it and `beside`, and both booleans."""
    value = value.astype("int64")
    step = np.sign(value)
    nearer = np.where(value == 0, beside, value - step)
    last = np.where(abs(value) < 2, nearer, nearer - step)
    low, high = np.minimum(value, last), np.maximum(value, last)
    return np.stack([high, low, np.where(abs(value) < 2, low, nearer)])[:n]


def two_and_three(
    record: Callable[[int, int | None], tuple[Tape, Any]], name: str, otherwise: int
) -> tuple[Any, Any, Recording]:
    """Return the records of 2 and of 3 samples, and the function that makes them.

    A function that cannot take integers that differ among the samples, as those of the example do not, is an error.
    Beside 0 there is 1, or `otherwise`: −1 is another index of a single output, and of a single row there is no other.
    """
    for beside in (1, otherwise):
        try:
            return record(2, beside), record(3, beside), lambda n, beside=beside: record(n, beside)
        except Exception as error:
            failed = error
    record(2, None)  # an error at the example is the function's
    raise ValueError(
        f"{name}: expected an example in which integers differ among samples, or a function that mixes these would "
        f"not show; with others it raised {type(failed).__name__}: {failed}"
    ) from failed
