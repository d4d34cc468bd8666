"""Progress of a call: a function is called after each step with the number of steps done.

A step is a layer in the backward sweep of a block of samples and of columns, or the start of that sweep at the loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import Signals
from gbackprop.engine.blocks import Cut
from gbackprop.plain.observer import Observer
from gbackprop.plain.plan import Plan

Progress = bool | Callable[[int, int], object]
"""True to write a line to stderr; or a function of the steps done and of all steps."""


def check_progress(progress: Any) -> None:
    """Check that `progress` is a bool or can be called; raise a TypeError otherwise."""
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress: expected True, False or a function of (done, total), got {progress!r}")


@contextmanager
def reported(progress: Progress, plan: Plan, cut: Cut) -> Iterator[Reporter]:
    """Yield the observer that reports the steps of sweeps."""
    line = Line() if progress is True else None
    try:
        yield Reporter(line or progress, len(cut.samples) * len(cut.spans) * (1 + len(plan.swept)))  # type: ignore[arg-type]
    finally:
        if line is not None:
            line.end()


class Reporter(Observer):
    """An observer that calls a function after each step with the number of steps done and of all."""

    def __init__(self, report: Callable[[int, int], object], total: int) -> None:
        self.report, self.total, self.done, self.lock = report, total, 0, Lock()

    def at_loss(self, signals: Signals) -> None:
        with self.lock:  # threads report one after the other, in order
            self.done += 1
            self.report(self.done, self.total)

    def at_layer(self, leaf: Leaf, arriving: Signals, leaving: Any) -> None:
        self.at_loss(arriving)


class Line:
    """A line on stderr that is written over, at most once for each percent."""

    def __init__(self) -> None:
        self.percent = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // total
        if percent > self.percent:
            self.percent = percent
            print(f"\rgbackprop: {percent:3d} % of {total} steps", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line, so that what follows, an error too, starts on one of its own."""
        if self.percent >= 0:
            print(file=sys.stderr, flush=True)
