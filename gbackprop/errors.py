"""The two errors that Python has no name for; everything else is a ValueError, TypeError or RuntimeError."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UnsupportedError(NotImplementedError, ValueError):
    """A layer cannot give what a quantity needs; the message names both."""


class TooLargeError(MemoryError, ValueError):
    """A matrix that was asked for would not fit into memory; the message says how large it would be."""


@contextmanager
def naming(doing: Callable[[], str]) -> Iterator[None]:
    """A context in which running out of memory is a `TooLargeError` that says what was being computed."""
    try:
        yield
    except TooLargeError:  # it knows already
        raise
    except MemoryError as error:
        raise TooLargeError(f"{doing()}: out of memory ({error})") from error


def release(error: BaseException | None) -> None:
    """Let go of what the calls that an error came through still hold: their arrays, above all."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
