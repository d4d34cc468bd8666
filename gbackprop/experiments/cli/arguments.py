"""Arguments that several subcommands share."""

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


def at_least(least: int) -> Callable[[str], int]:
    """Return a whole number of at least so much, for argparse."""

    def whole_number(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"expected a whole number ≥ {least}, got {text}")
        return number

    return whole_number


def above_zero(text: str) -> float:
    """Return a positive finite number, for argparse."""
    number = _float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number > 0, got {text}")
    return number


def zero_or_more(text: str) -> float:
    """Return a finite number that is not negative, for argparse."""
    number = _float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number ≥ 0, got {text}")
    return number


def _float(text: str) -> float:
    """Return a number, or NaN, which no bounds contain."""
    try:
        return float(text)
    except ValueError:
        return math.nan
