"""Arguments that several subcommands share."""

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

PICTURES = (".png", ".pdf", ".svg")
"""Formats of pictures."""

FAILED, USAGE, INTERRUPTED, CLOSED = 1, 2, 130, 141
"""Exit statuses, besides 0; the last two as shells report SIGINT and SIGPIPE: 128 and the signal's number."""


class UserError(Exception):
    """Something that the user can put right; one line says what."""


@contextmanager
def users_errors(*kinds: type[Exception], prefix: str = "") -> Iterator[None]:
    """Turn errors into a `UserError` of one line."""
    try:
        yield
    except kinds as error:
        raise UserError(prefix + " ".join(str(error).split())) from error


def _number(kind: Callable[[str], T], holds: Callable[[T], bool], expected: str) -> Callable[[str], T]:
    """Return a type of argument for argparse: a number for which something holds."""

    def number(text: str) -> T:
        with suppress(ValueError):
            if holds(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text}")

    return number


def at_least(least: int) -> Callable[[str], int]:
    """Return a type of argument: a whole number of at least so much."""
    return _number(int, lambda number: number >= least, f"a whole number ≥ {least}")


above_zero = _number(float, lambda number: 0 < number < math.inf, "a number > 0")
zero_or_more = _number(float, lambda number: 0 <= number < math.inf, "a number ≥ 0")
