"""Arguments that several rooms take, checked alike."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np


def positive(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int.

    Raises
    ------
    ValueError
        If it is not an integer of at least `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")
    return int(value)


def generator(rng: Any) -> np.random.Generator:
    """A Generator from None, an int or a Generator.

    Raises
    ------
    TypeError, ValueError
        If it is none of these.
    """
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng: expected None, an integer of at least 0 or a Generator, got {rng!r}") from None
