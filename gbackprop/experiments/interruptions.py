"""Ctrl-C as something to look at, rather than an exception between any two lines."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptions() -> Iterator[threading.Event]:
    """Note the first Ctrl-C in an event; the second does what it did before."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler

    def note(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        event.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
