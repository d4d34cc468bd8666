"""Times after which a search ends."""

from __future__ import annotations

from time import perf_counter, process_time

WAITING = 4.0
"""Seconds of the clock for each of the processor."""

LOOKS = 0.005
"""Seconds between two looks at the processor's time, which may take as long as an edit."""


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
