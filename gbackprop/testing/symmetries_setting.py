"""A network with loss and batch as it is given, and what becomes of results when one of these is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.base.checks import is_shipped
from gbackprop.calculus.signals import GRADIENT
from gbackprop.engine.backward import backward
from gbackprop.kronecker import EigenKronecker
from gbackprop.losses.base import Loss
from gbackprop.network.container import Container
from gbackprop.quantities import Quantity, Statistic
from gbackprop.quantities.merging_rules import Summed
from gbackprop.quantities.result import Result
from gbackprop.testing.claims import NotGivenError
from gbackprop.testing.runs import pairs
from gbackprop.testing.setting import SEED, Values, at_targets
from gbackprop.testing.setting import values as values_of


class Gradient(Quantity):
    """The gradient and the loss of each call, by the properties that quantities state."""

    name, scale, merging, powers = "gradient", "∇L", Summed(), (1, 1)
    needs = (Statistic("sum", GRADIENT),)


@dataclass(frozen=True)
class Posed:
    """A network with loss and batch, and the quantities that are computed together there."""

    network: Container
    loss: Loss
    x: Any
    y: Any
    asked: tuple[Quantity, ...]
    targets: Any = None  # [M, N, ...], of the Monte-Carlo quantities
    options: Mapping[str, Any] = field(default_factory=dict)  # of the call
    call: Callable[..., Result] = backward

    @cached_property
    def result(self) -> Result:
        """The result of the call."""
        asked = [at_targets(each, self.targets) for each in self.asked]
        return self.call(self.network, self.loss, self.x, self.y, *asked, **{"rng": SEED, **self.options})

    def of(self, quantity: Quantity, result: Result | None = None) -> Values:
        """Return the values of a quantity on the host: arrays, factors by name, and the trace of an `EigenKronecker`."""
        result = result or self.result
        if isinstance(quantity, Gradient):
            return {name: asnumpy(value) for name, value in {**result.gradient, "loss": result.loss}.items()}
        found = result.values[next(i for i, each in enumerate(self.asked) if each is quantity)]
        if any(isinstance(value, EigenKronecker) for value in found.values()):
            return {name: asnumpy(value.trace()) for name, value in found.items()}
        (arrays,) = values_of(Result(result.loss, result.output, {}, (quantity,), [found]))
        return {f"{name}/{key}" if key else name: asnumpy(array) for name, value in arrays.items()
                for key, array in (value.items() if isinstance(value, dict) else [("", value)]) if array is not None}  # fmt: skip


@dataclass(frozen=True)
class Entries:
    """A parameter's new values: θ'[o, i] = θ[rows[o], columns[i]] out / into, or one of several groups of outputs."""

    rows: Any = None
    columns: Any = None
    out: float = 1.0
    into: float = 1.0
    group: tuple[int, int] | None = None
    old: str = ""  # the parameter of which it is a group

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return the new values from the old: ``[O, *in] -> [O, *in]``."""
        return (self._moved(array.reshape(1, len(array), -1))[0] * (self.out / self.into)).reshape(array.shape)

    def _moved(self, flat: np.ndarray) -> np.ndarray:
        flat = flat if self.rows is None else flat[:, self.rows]
        return flat if self.columns is None else flat[:, :, self.columns]

    def expected(self, quantity: Quantity, key: str, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return what a quantity's array, the factor `key` or all of it, becomes; None if nothing is known of it."""
        rows = per_sample(quantity)
        if self.group is not None:
            return self._of_group(key, value, shape, rows)
        if key:
            order, scale = (self.rows, self.out**-2) if key == "B" else (self.columns, self.into**2)
            return scale * (value if order is None else value[..., order, :][..., order])
        if value.ndim == len(shape) + rows and value.shape[rows:] == shape:
            moved = self._moved(value.reshape(len(value) if rows else 1, shape[0], -1)).reshape(value.shape)
        else:  # a norm, or products of pairs: the same for entries in any order
            moved = value
        if self.out != self.into and not is_shipped(quantity):
            raise NotGivenError("how it changes with the scale of a parameter is not stated")
        return moved * (self.into / self.out) ** degree(quantity)

    def _of_group(self, key: str, value: np.ndarray, shape: tuple[int, ...], rows: int) -> np.ndarray | None:
        group, count = self.group or (0, 1)
        some = slice(group * shape[0] // count, (group + 1) * shape[0] // count)
        if key:
            return value[group] if value.ndim == 3 else value[some, some]
        return value[(slice(None),) * rows + (some,)] if value.ndim == len(shape) + rows else None


@dataclass(frozen=True)
class Change:
    """A changed setting, and how results change with it."""

    posed: Posed
    rows: Any = None  # the sample of the given batch that each new sample is
    r: float = 1.0  # the new R over the given one
    c: float = 1.0  # the new weight of the loss over the given one
    entries: Mapping[str, Entries] = field(default_factory=dict)  # of the parameters that become others
    lacks: Callable[[Quantity], str] = lambda quantity: ""  # the reason why a quantity is not judged
    without: tuple[str, ...] = ()  # names that are not compared

    def expected(self, quantity: Quantity, values: Values, shapes: Mapping[str, Any], got: Values) -> Values:
        """Return what becomes of a quantity's values by its own statements; of the names that it still has."""
        reason, powers = self.lacks(quantity), quantity.stated("powers")
        if reason:
            raise NotGivenError(reason)
        if (self.r, self.c) != (1, 1) and powers is None:
            raise NotGivenError("its powers of R and c are not stated: give the quantity `powers`")
        factor = self.r ** powers[0] * self.c ** powers[1] if powers else 1.0
        found = {}
        for name in got:
            parameter, _, key = name.partition("/")
            entries = self.entries.get(parameter)
            old = (entries.old if entries else "") or parameter
            value = values.get(f"{old}/{key}" if key else old)
            if value is not None and self.rows is not None and name != "loss":
                value = in_rows(quantity, value, self.rows)
            if value is not None and entries is not None:
                value = entries.expected(quantity, key, value, shapes[old])
            if value is not None and name not in self.without:
                found[name] = value * (1.0 if key == "A" else factor)
        return found


def per_sample(quantity: Quantity) -> int:
    """Return 1 if a quantity has a row for each sample, else 0."""
    return int(not pairs(quantity) and any(statistic.per_sample for statistic in quantity.statistics()))


def degree(quantity: Quantity) -> int:
    """Return how many derivatives in a parameter a shipped quantity's entries have: 1 of gradients, 2 of all else."""
    return 1 if all(each.reduction.name in ("sum", "batch") for each in quantity.statistics()) else 2


def in_rows(quantity: Quantity, value: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return values of other samples of the batch, in the axes of samples that a quantity has."""
    if pairs(quantity):
        n = int(max(rows)) + 1
        blocks = value.reshape(n, -1, n, len(value) // n)[rows][:, :, rows]
        return blocks.reshape(len(rows) * blocks.shape[1], -1)
    return value[rows] if per_sample(quantity) else value
