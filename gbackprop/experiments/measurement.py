"""How long a sweep takes."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gbackprop as gb
from gbackprop.array import Array

BUDGET = 0.7  # seconds of repetitions per measurement
FEWEST, MOST = 3, 9


def sweep_times(
    net: gb.Sequential, loss: gb.Loss, x: Array, y: Array, quantities: Sequence[Any], rng: int
) -> dict[str, float]:
    """Seconds for the gradient alone, for the gradient with each quantity, and with all in one sweep.

    Parameters
    ----------
    net : Sequential
        The network.
    loss : Loss
        The objective.
    x : ndarray, shape (N, *in)
        Inputs, on the network's device.
    y : ndarray, shape (N, ...)
        Targets, on the network's device.
    quantities : sequence of Quantity
        What to measure.
    rng : int
        Seed of the pseudo-targets.

    Returns
    -------
    dict of str to float
        Medians under ``"gradient"``, each quantity's name, and ``"all"``.
    """
    groups: dict[str, list[Any]] = {"gradient": []}
    groups |= {quantity.name: [quantity] for quantity in quantities}
    groups["all"] = list(quantities)

    def sweep(group: list[Any]) -> None:
        result = gb.backward(net, loss, x, y, *group, rng=rng)
        gb.asnumpy(next(iter(result.gradient.values())))  # a GPU works behind: wait for it

    return {name: median_time(partial(sweep, group)) for name, group in groups.items()}


def median_time(call: Callable[[], object]) -> float:
    """The median time of a few calls after one that is not counted.

    Parameters
    ----------
    call : callable
        What to time.

    Returns
    -------
    float
        Seconds.
    """
    call()
    times: list[float] = []
    while len(times) < FEWEST or (len(times) < MOST and sum(times) < BUDGET):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
