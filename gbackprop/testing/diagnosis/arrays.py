"""The grammar's edits of an array: axes exchanged, orders, one for all, sums and means, functions of its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

Change = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ArrayOperation:
    """A change of an array that keeps its shape; one of the same family undoes it if it is `closed`."""

    words: str  # "axis 1 reversed"
    cost: float
    change: Change
    closed: bool = False


ENTRIES: dict[str, Change] = {
    "squared": np.square, "its square root": np.sqrt, "its absolute value": np.abs, "its sign alone": np.sign,
    "the square root of its absolute value": lambda a: np.sqrt(np.abs(a)),
    "its square root with its sign": lambda a: np.sign(a) * np.sqrt(np.abs(a)), "1 minus it": lambda a: 1 - a,
    "its reciprocal": lambda a: np.divide(1, a, out=np.zeros_like(a), where=a != 0),
    "its positive part": lambda a: np.maximum(a, 0), "its negative part": lambda a: np.minimum(a, 0),
    "its logarithm": np.log, "its exponential": np.exp, "its square with its sign": lambda a: a * np.abs(a),
    **{f"clipped to ±{c:g}": lambda a, c=c: np.clip(a, -c, c) for c in (1.0, 0.5, 2.0, 6.0)},
}  # fmt: skip
"""Functions of the entries."""

AXIS: dict[str, tuple[float, bool, Callable[[np.ndarray, int], np.ndarray]]] = {
    "axis {} reversed": (1.0, True, np.flip),
    "axis {} moved on by one": (1.1, True, lambda a, i: np.roll(a, 1, i)),
    "axis {} moved back by one": (1.1, True, lambda a, i: np.roll(a, -1, i)),
    "the first along axis {} for all": (1.3, False, lambda a, i: np.broadcast_to(a.take([0], i), a.shape)),
    "the last along axis {} for all": (1.3, False, lambda a, i: np.broadcast_to(a.take([-1], i), a.shape)),
    "the first along axis {} alone, and 0": (1.5, False, lambda a, i: _alone(a, i, 0)),
    "the last along axis {} alone, and 0": (1.5, False, lambda a, i: _alone(a, i, -1)),
    "0 for the first along axis {}": (1.5, False, lambda a, i: a - _alone(a, i, 0)),
    "0 for the last along axis {}": (1.5, False, lambda a, i: a - _alone(a, i, -1)),
    "the mean over axis {} for each": (1.2, False, lambda a, i: np.broadcast_to(a.mean(i, keepdims=True), a.shape)),
    "the sum over axis {} for each": (1.2, False, lambda a, i: np.broadcast_to(a.sum(i, keepdims=True), a.shape)),
    "the mean over axis {} subtracted": (1.2, False, lambda a, i: a - a.mean(i, keepdims=True)),
    "summed up along axis {}": (1.5, False, np.cumsum),
    "along axis {} the last term in place of the sum (= for +=)": (1.3, False, lambda a, i: _overwritten(a, i)),
    "along axis {} the first term in place of the sum (= for +=)": (1.3, False, lambda a, i: np.flip(
        _overwritten(np.flip(a, i), i), i)),
}
"""Changes along an axis: cost, whether another one undoes it, and the function of array and axis."""

TWO_AXES: dict[str, tuple[float, bool, Callable[[np.ndarray, int, int], np.ndarray]]] = {
    "axes {} and {} exchanged": (1.0, True, np.swapaxes),
    "the symmetric part of axes {} and {} alone": (1.2, False, lambda a, i, j: (a + np.swapaxes(a, i, j)) / 2),
    "the lower triangle of axes {} and {} mirrored": (1.2, False, lambda a, i, j: _mirrored(a, i, j, np.greater_equal)),
    "the upper triangle of axes {} and {} mirrored": (1.2, False, lambda a, i, j: _mirrored(a, i, j, np.less_equal)),
    "axes {} and {} reversed": (1.4, True, lambda a, i, j: np.flip(a, (i, j))),
    "the diagonal of axes {} and {} alone": (1.2, False, lambda a, i, j: a * _mask(a, i, j, np.equal)),
    "0 on the diagonal of axes {} and {}": (1.4, False, lambda a, i, j: a * _mask(a, i, j, np.not_equal)),
    "the lower triangle of axes {} and {} alone": (1.4, False, lambda a, i, j: a * _mask(a, i, j, np.greater_equal)),
    "the upper triangle of axes {} and {} alone": (1.4, False, lambda a, i, j: a * _mask(a, i, j, np.less_equal)),
    "the mean over axes {} and {} for each": (1.4, False, lambda a, i, j: np.broadcast_to(
        a.mean((i, j), keepdims=True), a.shape)),
}  # fmt: skip

BLOCKS: dict[str, tuple[float, bool, Callable[[np.ndarray, int], np.ndarray]]] = {
    "{} in the reverse order of blocks": (1.3, True, np.flip),
    "{} interleaved": (1.3, True, lambda a, i: np.swapaxes(a, i, i + 1)),
    "{} each reversed": (1.4, True, lambda a, i: np.flip(a, i + 1)),
    "{} the first block alone, and 0": (1.5, False, lambda a, i: _alone(a, i, 0)),
    "{} the last block alone, and 0": (1.5, False, lambda a, i: _alone(a, i, -1)),
    "{} the first block for all": (1.5, False, lambda a, i: np.broadcast_to(a.take([0], i), a.shape)),
    "{} the mean of blocks for each": (1.5, False, lambda a, i: np.broadcast_to(a.mean(i, keepdims=True), a.shape)),
}
"""Changes of an axis that is made of blocks, as channels are of groups."""


SIGNS = 2.0
"""The cost of a sign alone: columns of 0 and 1 times positive numbers have such signs, whatever these are."""


def operations(shape: tuple[int, ...]) -> Iterator[ArrayOperation]:
    """Yield the changes of an array of some shape, in which the number of samples may be another elsewhere."""
    axes = range(len(shape))
    for words, of_entries in ENTRIES.items():
        cost = 1.2 if "square" in words or words == "its absolute value" else SIGNS if "sign alone" in words else 1.4
        yield ArrayOperation(words, cost, of_entries)
    for words, (cost, closed, change) in AXIS.items():
        for i in axes:
            yield ArrayOperation(words.format(i), cost, lambda a, i=i, f=change: f(a, i), closed)
    for words, (cost, closed, apply) in TWO_AXES.items():
        for i, j in combinations(axes, 2):
            yield ArrayOperation(words.format(i, j), cost, lambda a, i=i, j=j, f=apply: f(a, i, j), closed)
    for i, k in [(axis, k) for axis in axes[1:] for k in range(2, shape[axis] // 2 + 1) if shape[axis] % k == 0]:
        for words, (cost, closed, change) in BLOCKS.items():
            at = f"axis {i}, {k} blocks of {shape[i] // k},"
            apply_to = lambda a, i=i, k=k, f=change: f(  # noqa: E731
                a.reshape(*a.shape[:i], k, -1, *a.shape[i + 1 :]), i).reshape(a.shape)  # fmt: skip
            yield ArrayOperation(words.format(at), cost, apply_to, closed)
    for start, end in combinations(range(len(shape) + 1), 2):
        for order in permutations(range(start, end)) if 2 <= end - start <= 4 else ():
            if order[0] != start and order[-1] != end - 1:  # else of fewer axes
                moved, named = (*axes[:start], *order, *axes[end:]), ", ".join(map(str, order))
                yield ArrayOperation(f"axes read in the order {named}", 1.6,
                                lambda a, m=moved: a.transpose(m).reshape(a.shape))  # fmt: skip


def _alone(a: np.ndarray, axis: int, end: int) -> np.ndarray:
    found, where = np.zeros_like(a), (slice(None),) * axis + (end,)
    found[where] = a[where]
    return found


def _overwritten(a: np.ndarray, axis: int) -> np.ndarray:
    """Return an array with 0 for all but the last along an axis of what is not 0, which was written over the others."""
    later = np.flip(np.cumsum(np.flip(a != 0, axis), axis), axis)
    return np.where(later == 1, a, 0)


def _mirrored(a: np.ndarray, i: int, j: int, compare: Callable[..., np.ndarray]) -> np.ndarray:
    """Return an array with one triangle of two axes of a size in place of the other, too."""
    half = a * _mask(a, i, j, compare)
    return half + np.swapaxes(half, i, j) - a * _mask(a, i, j, np.equal)


def _mask(a: np.ndarray, i: int, j: int, compare: Callable[..., np.ndarray]) -> np.ndarray:
    index = np.indices(a.shape, sparse=True)
    return compare(index[i], index[j]).astype(float)
