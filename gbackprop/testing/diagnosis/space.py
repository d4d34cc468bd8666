"""An end to the memory that edits may take: the size of an array may be one of the numbers that they change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

SPACE = 2 << 30
"""The bytes that the process may take beyond those that it has."""

LIMITING = Lock()
"""Of the thread that limits it: two would leave the limit of one behind."""

STATUS = Path("/proc/self/statm")
"""The file that begins with the number of its pages, on Linux."""


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
