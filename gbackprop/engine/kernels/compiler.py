"""Numba as the compiler of loops: compiled code is stored, so that only the first process on a machine waits for it."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Timer
from typing import Any

from numba import njit
from numba.core import event

PATIENCE = 2.0
"""Seconds of compilation in one process after which a line says so."""


def compiled(loop: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop at its first call for each kind of arrays, which takes seconds; it writes into its last argument.

    What is divided by 0 is infinite or NaN, as in NumPy.

    Numba stores the code in the folder of the loop's file, else in the user's cache, or in NUMBA_CACHE_DIR.
    """
    fast = njit(nogil=True, cache=True, error_model="numpy")(loop)

    @functools.wraps(loop)
    def call(*arguments: Any) -> None:
        try:
            fast(*arguments)
        except OSError:  # the code is compiled, but could not be stored, on a full disk for instance; nothing has run
            fast(*arguments)

    return call


class Notice(event.Listener):
    """Write a line to stderr, once, when a process has compiled this package's loops for `PATIENCE` seconds.

    Numba notifies of the start and end of a compilation, one at a time, not of code that was stored: a call that
    compiles nothing does not come here.
    """

    def __init__(self) -> None:
        self.left, self.depth, self.written = PATIENCE, 0, False

    def on_start(self, event: Any) -> None:
        """Start the timer; it stands still between compilations."""
        loop = event.data["dispatcher"]
        if self.written or not loop.py_func.__module__.startswith("gbackprop."):
            return
        self.depth += 1
        if self.depth == 1:
            self.since, self.timer = time.monotonic(), Timer(self.left, self.tell, [loop.stats.cache_path])
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        """Stop the timer."""
        if self.depth == 0 or not event.data["dispatcher"].py_func.__module__.startswith("gbackprop."):
            return
        self.depth -= 1
        if self.depth == 0:
            self.timer.cancel()
            self.left = max(0.0, self.left - (time.monotonic() - self.since))

    def tell(self, folder: str) -> None:
        """Write the line."""
        self.written = True
        if sys.stderr is not None:
            with suppress(OSError, ValueError):  # closed
                words = "Numba compiles loops, which takes some seconds once: the code is stored in"
                print(f"\rgbackprop: {words} {folder}", file=sys.stderr, flush=True)


NOTICE = Notice()
event.register("numba:compile", NOTICE)
