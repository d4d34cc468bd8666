"""Times after which a search ends, and the memory that it may take: arrays of any size are among the edits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import perf_counter, process_time

WAITING = 4.0
"""Seconds of the clock for each of the processor."""

LOOKS = 0.005
"""Seconds between two looks at the processor's time, which may take as long as an edit."""

SPACE = 2 << 30
"""The bytes that the process may take beyond those that it has."""

LIMITING = Lock()
"""Of the thread that limits it: two would leave the limit of one behind."""

STATUS = Path("/proc/self/statm")
"""The file that begins with the number of its pages, on Linux."""


class Deadline:
    """A time after which nothing more is tried: some seconds of the processor, or a few times as many of the clock.

    A machine that does something else, too, finds the same; a method that waits comes to an end.
    """

    def __init__(self, seconds: float) -> None:
        self.ends = process_time() + seconds, perf_counter() + WAITING * seconds
        self.looked = float("-inf")

    @property
    def passed(self) -> bool:
        """True after it, or some milliseconds later."""
        now = perf_counter()
        if now > self.looked + LOOKS:
            self.looked, self.late = now, process_time() > self.ends[0] or now > self.ends[1]
        return self.late

    def put_off(self, since: Deadline) -> None:
        """Move it by the time since a deadline of no seconds was made."""
        self.ends = self.ends[0] + process_time() - since.ends[0], self.ends[1] + perf_counter() - since.ends[1]


@contextmanager
def limited_memory(most: int = SPACE) -> Iterator[None]:
    """Let larger allocations of this process, of other threads too, fail by a MemoryError; on Linux alone."""
    if not STATUS.exists() or not LIMITING.acquire(blocking=False):  # or another thread limits it
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(STATUS.read_text().split()[0]) * resource.getpagesize()
    ends = [taken + most, *(end for end in before if end != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(ends), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        LIMITING.release()
