"""Progress of a call: a function is called after each step with the number of steps done.

A step is a layer in the backward sweep of a block of samples and of columns, or the start of that sweep at the loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.signals import Signals
from gbackprop.engine.rewrites import Step
from gbackprop.engine.sweep import Execution, FastSweep

Progress = bool | Callable[[int, int], object]
"""True to write a line to stderr; or a function of the steps done and of all steps."""


def check_progress(progress: Any) -> None:
    """Check that `progress` is a bool or can be called; raise a TypeError otherwise."""
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress: expected True, False or a function of (done, total), got {progress!r}")


@contextmanager
def observed(progress: Progress, run: Execution) -> Iterator[Execution]:
    """Yield an execution whose sweeps report their steps."""
    total = len(run.cut.samples) * len(run.cut.spans) * (1 + len(run.plan.swept))
    line = Line() if progress is True else None
    try:
        yield replace(run, sweep=_reporting(line or progress, total))  # type: ignore[arg-type]
    finally:
        if line is not None:
            line.end()


def _reporting(report: Callable[[int, int], object], total: int) -> type[FastSweep]:
    done, lock = 0, Lock()

    def step() -> None:
        nonlocal done
        with lock:  # threads report one after the other, in order
            done += 1
            report(done, total)

    class Reporting(FastSweep):
        def start(self, output: Array, target: Array) -> Signals:
            signals = super().start(output, target)
            step()
            return signals

        def visit(self, leaf: Step, saved: Any, signals: Signals) -> Sequence[Signals]:
            below = super().visit(leaf, saved, signals)
            step()
            return below

    return Reporting


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
