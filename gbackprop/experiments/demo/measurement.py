"""Measurements of the time of a sweep."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import gbackprop as gb
from gbackprop import losses
from gbackprop.array import Array

BUDGET = 0.7  # seconds of repetitions per measurement
FEWEST, MOST = 3, 9

T = TypeVar("T")


def sweep_times(
    net: gb.Sequential, loss: losses.Loss, x: Array, y: Array, quantities: Sequence[Any], rng: int
) -> Iterator[tuple[str, float]]:
    """Seconds for the gradient alone, for the gradient with each quantity, and with all in one sweep."""
    groups: dict[str, list[Any]] = {"gradient": []}
    groups |= {quantity.name: [quantity] for quantity in quantities}
    groups["all"] = list(quantities)

    def sweep(group: list[Any]) -> None:
        result = gb.backward(net, loss, x, y, *group, rng=rng)
        gb.asnumpy(next(iter(result.gradient.values())))  # a GPU works behind: wait for it

    for name, group in groups.items():
        yield name, median_time(partial(sweep, group))


def median_time(call: Callable[[], object]) -> float:
    """Return the median time of a few calls after one that is not counted."""
    call()
    times: list[float] = []
    while len(times) < FEWEST or (len(times) < MOST and sum(times) < BUDGET):
        times.append(timed(call)[0])
    return statistics.median(times)


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that a call took, and its result."""
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value
