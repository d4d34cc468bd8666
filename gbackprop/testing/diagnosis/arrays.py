"""The grammar's edits of an array: one axis for another, orders, parts for the whole, sums and means, functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

Change = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Operation:
    """A change of an array that keeps its shape."""

    name: str  # of the kind of change
    words: str  # "axis 1 reversed"
    cost: float
    change: Change

    @property
    def bijective(self) -> bool:
        """Whether nothing is lost, so that it can be undone by one of its kind."""
        return self.name in ("reversed", "transposed", "rolled", "blocks reversed", "interleaved")


def operations(shape: tuple[int, ...]) -> list[Operation]:
    """Return the changes of an array of some number of axes, of which the samples' may have another size elsewhere."""
    found = [*_of_entries(), *_of_each_axis(len(shape)), *_of_two_axes(len(shape)), *_of_blocks(shape)]
    return [*found, *_of_orders(len(shape))]


def _of_entries() -> Iterator[Operation]:
    """Functions of the entries."""
    yield Operation("square", "squared", 1, np.square)
    yield Operation("root", "its square root", 1, lambda a: np.sqrt(np.abs(a)))
    yield Operation("signed root", "its square root with its sign", 1.5, lambda a: np.sign(a) * np.sqrt(np.abs(a)))
    yield Operation("reciprocal", "its reciprocal", 1.2, lambda a: np.divide(1, a, out=np.zeros_like(a), where=a != 0))
    yield Operation("absolute value", "its absolute value", 1, np.abs)
    yield Operation("positive part", "its positive part", 1.2, lambda a: np.maximum(a, 0))
    yield Operation("negative part", "its negative part", 1.2, lambda a: np.minimum(a, 0))
    yield Operation("sign", "its sign alone", 1.2, np.sign)
    yield Operation("log", "its logarithm", 1.5, lambda a: np.log(np.where(a > 0, a, 1)))
    yield Operation("exp", "its exponential", 1.5, lambda a: np.exp(np.minimum(a, 50)))
    yield Operation("1 − it", "1 minus it", 1.5, lambda a: 1 - a)
    for limit in (1.0, 0.5, 2.0, 6.0):
        yield Operation("clip", f"clipped to ±{limit:g}", 1.5, lambda a, limit=limit: np.clip(a, -limit, limit))


def _of_each_axis(axes: int) -> Iterator[Operation]:
    for i in range(axes):
        at, last = f"axis {i}", {"axis": i, "keepdims": True}
        yield Operation("reversed", f"{at} reversed", 1, lambda a, i=i: np.flip(a, i))
        yield Operation("rolled", f"{at} moved on by one", 1.2, lambda a, i=i: np.roll(a, 1, i))
        yield Operation("rolled", f"{at} moved back by one", 1.2, lambda a, i=i: np.roll(a, -1, i))
        for name, at_end in (("first", 0), ("last", -1)):
            yield Operation(f"{name} for all", f"the {name} along {at} for all", 1.3,
                            lambda a, i=i, e=at_end: np.broadcast_to(a.take([e], i), a.shape))  # fmt: skip
            yield Operation(f"{name} alone", f"the {name} along {at} alone, and 0", 1.5,
                            lambda a, i=i, e=at_end: _alone(a, i, e))  # fmt: skip
            yield Operation(f"without the {name}", f"0 for the {name} along {at}", 1.5,
                            lambda a, i=i, e=at_end: a - _alone(a, i, e))  # fmt: skip
        yield Operation("mean for each", f"the mean over {at} for each", 1.2,
                        lambda a, k=last: np.broadcast_to(a.mean(**k), a.shape))  # fmt: skip
        yield Operation("sum for each", f"the sum over {at} for each", 1.2,
                        lambda a, k=last: np.broadcast_to(a.sum(**k), a.shape))  # fmt: skip
        yield Operation("centered", f"the mean over {at} subtracted", 1.2, lambda a, k=last: a - a.mean(**k))
        yield Operation("cumulated", f"summed up along {at}", 1.5, lambda a, i=i: np.cumsum(a, i))
    for some in (c for k in range(2, axes + 1) for c in combinations(range(axes), k) if c[-1] - c[0] == k - 1):
        named = " and ".join(map(str, some))
        yield Operation("reversed", f"axes {named} reversed", 1.5, lambda a, some=some: np.flip(a, some))
        yield Operation("mean for each", f"the mean over axes {named} for each", 1.5,
                        lambda a, some=some: np.broadcast_to(a.mean(some, keepdims=True), a.shape))  # fmt: skip


def _alone(a: np.ndarray, axis: int, end: int) -> np.ndarray:
    found = np.zeros_like(a)
    where = (slice(None),) * axis + (end,)
    found[where] = a[where]
    return found


def _of_two_axes(axes: int) -> Iterator[Operation]:
    for i, j in combinations(range(axes), 2):
        at = f"axes {i} and {j}"
        yield Operation("transposed", f"{at} exchanged", 1, lambda a, i=i, j=j: np.swapaxes(a, i, j))
        yield Operation("diagonal alone", f"the diagonal of {at} alone", 1.2,
                        lambda a, i=i, j=j: a * _mask(a, i, j, np.equal))  # fmt: skip
        yield Operation("without its diagonal", f"without the diagonal of {at}", 1.4,
                        lambda a, i=i, j=j: a * _mask(a, i, j, np.not_equal))  # fmt: skip
        yield Operation("triangle alone", f"the lower triangle of {at} alone", 1.4,
                        lambda a, i=i, j=j: a * _mask(a, i, j, np.greater_equal))  # fmt: skip
        yield Operation("triangle alone", f"the upper triangle of {at} alone", 1.4,
                        lambda a, i=i, j=j: a * _mask(a, i, j, np.less_equal))  # fmt: skip
        yield Operation("symmetric part", f"the symmetric part over {at}", 1.4,
                        lambda a, i=i, j=j: (a + np.swapaxes(a, i, j)) / 2)  # fmt: skip


def _mask(a: np.ndarray, i: int, j: int, compare: Callable[..., np.ndarray]) -> np.ndarray:
    index = np.indices(a.shape, sparse=True)
    return compare(index[i], index[j]).astype(float)


def _of_blocks(shape: tuple[int, ...]) -> Iterator[Operation]:
    """Changes of axes that are made of several, as channels are of groups."""
    for i, size in enumerate(shape):
        for k in range(2, size // 2 + 1) if i else ():
            if size % k:
                continue
            parts = (k, size // k)
            at = f"axis {i}, of {parts[0]} blocks of {parts[1]},"
            yield Operation("blocks reversed", f"{at} in the reverse order of blocks", 1.3,
                            lambda a, i=i, p=parts: _split(a, i, p, lambda b: np.flip(b, i)))  # fmt: skip
            yield Operation("blocks rolled", f"{at} moved on by a block", 1.5,
                            lambda a, i=i, p=parts: _split(a, i, p, lambda b: np.roll(b, 1, i)))  # fmt: skip
            yield Operation("blocks reversed", f"{at} each reversed", 1.4,
                            lambda a, i=i, p=parts: _split(a, i, p, lambda b: np.flip(b, i + 1)))  # fmt: skip
            yield Operation("interleaved", f"{at} interleaved", 1.3,
                            lambda a, i=i, p=parts: _split(a, i, p, lambda b: np.swapaxes(b, i, i + 1)))  # fmt: skip
            for j, name in ((0, "first"), (-1, "last")):
                yield Operation(f"{name} block alone", f"{at} the {name} block alone", 1.5,
                                lambda a, i=i, p=parts, j=j: _split(a, i, p, lambda b: _alone(b, i, j)))  # fmt: skip
                yield Operation(f"without the {name} block", f"{at} 0 for the {name} block", 1.5,
                                lambda a, i=i, p=parts, j=j: _split(a, i, p, lambda b: b - _alone(b, i, j)))  # fmt: skip
                yield Operation(f"{name} block for all", f"{at} the {name} block for all", 1.5,
                                lambda a, i=i, p=parts, j=j: _split(
                                    a, i, p, lambda b: np.broadcast_to(b.take([j], i), b.shape)))  # fmt: skip


def _split(a: np.ndarray, axis: int, parts: tuple[int, int], change: Change) -> np.ndarray:
    """Change an array of which an axis is split into blocks."""
    return change(a.reshape(*a.shape[:axis], *parts, *a.shape[axis + 1 :])).reshape(a.shape)


def _of_orders(axes: int) -> Iterator[Operation]:
    """The numbers of neighbouring axes, read in another order."""
    for start in range(axes):
        for end in range(start + 2, min(axes, start + 4) + 1):
            for order in permutations(range(start, end)):
                if order[0] == start or order[-1] == end - 1:  # orders of fewer axes
                    if end - start > 2 or order == tuple(range(start, end)):
                        continue
                moved = (*range(start), *order, *range(end, axes))
                named = ", ".join(map(str, order))
                yield Operation("another order", f"axes {named} read as axes {', '.join(map(str, range(start, end)))}",
                                1.6, lambda a, moved=moved: a.transpose(moved).reshape(a.shape))  # fmt: skip
