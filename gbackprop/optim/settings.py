"""Settings of optimizers: attributes that are checked whenever they are assigned, in the constructor and after it."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np


class Setting:
    """An attribute whose values are checked.

    Parameters
    ----------
    check : callable
        ``check(optimizer, name, value)`` returns the value to store, or raises an error that names the setting.
    fixed : bool
        Whether the constructor alone may assign it, because the optimizer's state belongs to it.
    """

    def __init__(self, check: Callable[[Any, str, Any], Any], fixed: bool = False) -> None:
        self.check, self.fixed = check, fixed

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, optimizer: Any, owner: type | None = None) -> Any:
        if optimizer is None:
            return self
        if self.name not in vars(optimizer):
            raise AttributeError(f"{type(optimizer).__name__} has no {self.name} yet")
        return vars(optimizer)[self.name]

    def __set__(self, optimizer: Any, value: Any) -> None:
        if self.fixed and self.name in vars(optimizer):
            raise AttributeError(
                f"{self.name}: expected the one that this {type(optimizer).__name__} was made with, to which its state "
                f"belongs, got {value!r}: make another optimizer"
            )
        vars(optimizer)[self.name] = self.check(optimizer, self.name, value)


def numeric(least: float = 0.0, above: float | None = None, below: float | None = None) -> Setting:
    """Return a setting that is a finite float within bounds."""
    return Setting(lambda _, name, value: number(name, value, least, above, below))


def number(name: str, value: Any, least: float = 0.0, above: float | None = None, below: float | None = None) -> float:
    """Return `value` as a finite float within bounds.

    Raises
    ------
    ValueError
        If it is not; the message names the argument.
    """
    real = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and np.isfinite(float(value))
    if real and (value > above if above is not None else value >= least) and (below is None or value < below):
        return float(value)
    bounds = f"above {above:g}" if above is not None else f"of at least {least:g}"
    raise ValueError(
        f"{name}: expected a finite number {bounds}{'' if below is None else f' and below {below:g}'}, got {value!r}"
    )
