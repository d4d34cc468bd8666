"""What several subcommands share."""

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses, besides 0."""


class UserError(Exception):
    """Something that the user can put right; one line says what."""


@contextmanager
def users_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors into a `UserError` of one line.

    Parameters
    ----------
    *kinds : type
        Which errors; their messages say what is wrong.

    Raises
    ------
    UserError
        In their place.
    """
    try:
        yield
    except kinds as error:
        raise UserError(" ".join(str(error).split())) from error


def at_least(least: int) -> Callable[[str], int]:
    """A whole number of at least so much, for argparse.

    Parameters
    ----------
    least : int
        How much.

    Returns
    -------
    callable
        From text to int.
    """

    def whole_number(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"expected {least} or more, got {number}")
        return number

    return whole_number


def above_zero(text: str) -> float:
    """A positive finite number, for argparse.

    Parameters
    ----------
    text : str
        From the command line.

    Returns
    -------
    float
    """
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return number
