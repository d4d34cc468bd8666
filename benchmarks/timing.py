"""Medians of calls that take turns, so that a machine's changes of speed meet all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

Clock = Callable[[Callable[[], Any]], float]
"""Runs a call and says how many milliseconds it took."""


def wall_clock(call: Callable[[], Any]) -> float:
    """Until the call returns: what it took on the host."""
    start = time.perf_counter()
    result = call()
    passed = 1e3 * (time.perf_counter() - start)
    del result
    return passed


def event_clock(
    make_event: Callable[[], Any], wait: Callable[[], Any], between: Callable[[Any, Any], float]
) -> Clock:
    """A clock of a GPU: between two events, before the call and after all that it asked of the GPU.

    Parameters
    ----------
    make_event : callable
        Gives an event with ``record()`` and ``synchronize()``.
    wait : callable
        Until the GPU has nothing to do: what was asked before is not counted.
    between : callable
        Milliseconds from one event to another.
    """

    def clock(call: Callable[[], Any]) -> float:
        start, stop = make_event(), make_event()
        wait()
        start.record()
        result = call()
        stop.record()
        stop.synchronize()
        del result
        return between(start, stop)

    return clock


def take_turns(
    calls: Mapping[str, Callable[[], Any]],
    repetitions: int = 7,
    clocks: Mapping[str, Clock] | None = None,
    warm_up: int = 2,
    each: int = 1,
) -> dict[str, dict[str, float]]:
    """Time calls one after the other, again and again.

    Parameters
    ----------
    calls : mapping of str to callable
    repetitions : int
        Counted ones, after those that are not.
    clocks : mapping of str to Clock, optional
        For each call; `wall_clock` by default.
    warm_up : int
        Turns that are not counted.
    each : int
        How often a call is made in a turn: its time is the mean.

    Returns
    -------
    dict of str to dict
        Milliseconds: "median", "lower" and "upper" quartile.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repetitions + warm_up):
        for name, call in calls.items():
            gc.collect()
            passed = (clocks or {}).get(name, wall_clock)(call if each == 1 else _often(call, each))
            if turn >= warm_up:
                times[name].append(passed / each)
    return {name: summary(values) for name, values in times.items()}


def _often(call: Callable[[], Any], times: int) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(times):
            call()

    return calls


def summary(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower": lower, "upper": upper}
