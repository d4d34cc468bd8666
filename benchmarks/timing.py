"""Medians of calls that take turns, so that a machine's changes of speed meet all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any


def take_turns(calls: dict[str, Callable[[], Any]], repetitions: int = 7) -> dict[str, dict[str, float]]:
    """Time calls one after the other, again and again.

    Parameters
    ----------
    calls : dict of str to callable
    repetitions : int
        Counted ones, after one that is not.

    Returns
    -------
    dict of str to dict
        Milliseconds: "median", "lower" and "upper" quartile.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repetitions + 1):
        for name, call in calls.items():
            gc.collect()
            start = time.perf_counter()
            result = call()
            passed = 1e3 * (time.perf_counter() - start)
            del result
            if turn:
                times[name].append(passed)
    return {name: summary(values) for name, values in times.items()}


def summary(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower": lower, "upper": upper}
