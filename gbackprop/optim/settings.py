"""Settings of optimizers: attributes that are checked whenever they are assigned, in the constructor and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gbackprop.base.checks import number


class CheckedSetting:
    """An attribute whose values are checked; if it is `fixed`, the constructor alone may assign it."""

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


def numeric(least: float | None = 0.0, above: float | None = None, below: float | None = None) -> CheckedSetting:
    """Return a setting that is a finite float within bounds."""
    least = None if above is not None else least
    return CheckedSetting(lambda _, name, value: number(name, value, least, above, below))
