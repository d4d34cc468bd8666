"""Runs of several quantities in a setting and its variants, each made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from gbackprop import quantities as shipped
from gbackprop.calculus.gram import Pairs
from gbackprop.calculus.signals import AVERAGE, GRADIENT, RESIDUAL
from gbackprop.curvature.data.merging import Merged
from gbackprop.plain.reference import reference
from gbackprop.quantities import Quantity
from gbackprop.quantities.merging_rules import Averaged, Rows, Summed
from gbackprop.quantities.result import Result
from gbackprop.testing.claims import ROUNDING, ROUNDINGS, UNIT, Compared, NotGivenError, both, defined, largest_of
from gbackprop.testing.oracles import ORACLES, definition_of
from gbackprop.testing.setting import CheckedNetwork, Values, at_targets, values

FLOOR = 1e-8
"""Errors are never relative to less than this share of a quantity's largest entry in any parameter."""

NO_OPTIONS: Mapping[str, int] = {}

SHIPPED: dict[str, type[Quantity]] = {
    kind.name: kind for kind in vars(shipped).values() if isinstance(kind, type) and hasattr(kind, "name")
}
"""The shipped quantities by name."""


def every_quantity() -> list[Quantity]:
    """One of each shipped quantity that has an oracle."""
    return [kind() for name, kind in SHIPPED.items() if name in ORACLES]


class Runs:
    """Runs of several quantities, each made once; `members` are those that run together."""

    def __init__(self, setting: CheckedNetwork, rng: np.random.Generator) -> None:
        self.setting = setting
        self.members: list[Quantity] = []
        self.order = rng.permutation(len(setting.x))
        self.made: dict[Any, dict[int, Values]] = {}
        self.halves: dict[Any, list[Result]] = {}

    @cached_property
    def variants(self) -> dict[str, CheckedNetwork]:
        """The setting, changed in ways whose effect is known."""
        s = self.setting
        reduced = {reduction: s.reduced(reduction) for reduction in ("mean", "sum")}
        single = s.cast(np.float32)
        return {"": s, "permuted": s.permuted(self.order), "float32": single, "rounded": single.cast(float), **reduced}

    @cached_property
    def others(self) -> list[Quantity]:
        """Shipped quantities that are not asked for, but could be."""
        kinds = {type(member) for member in self.members}
        return self.setting.supported([q for q in every_quantity() if type(q) not in kinds])

    def alone(self, quantity: Quantity, variant: str = "") -> Values:
        """Compute a quantity alone."""
        return self._made(quantity, [quantity], variant, NO_OPTIONS)

    def together(self, quantity: Quantity, variant: str = "", options: Mapping[str, int] = NO_OPTIONS) -> Values:
        """Compute a quantity together with the others that are checked."""
        members = [q for q in self.members if fits(q, options)]
        return self._made(quantity, members, variant, options)

    def plain(self, quantity: Quantity) -> Values:
        """Compute a quantity together with the others by the plain engine."""
        return self._made(quantity, self.members, "", {"call": reference})

    def packed(self, quantity: Quantity) -> Values:
        """Compute a quantity together with all others."""
        return self._made(quantity, [*self.others, *self.members], "", NO_OPTIONS)

    def merged(self, quantity: Quantity, variant: str) -> Values:
        """Compute a quantity of two parts of the batch, each alone, and merge them by its own rule."""
        members = self.members if any(member is quantity for member in self.members) else [quantity]
        key = (tuple(map(id, members)), variant)
        if key not in self.halves:
            self.halves[key] = _halves(replace(self.variants[variant], device="cpu"), members)
        i = next(i for i, member in enumerate(members) if member is quantity)
        results = [replace(each, quantities=each.quantities[i : i + 1], values=each.values[i : i + 1])
                   for each in self.halves[key]]  # fmt: skip
        merged = Merged(results[0])  # not `merge`, for which pseudo-targets of two batches make two quantities
        for result in results:
            merged.add(result)
        return values(merged.finish())[0]

    def floor(self, quantity: Quantity, want: Values, tolerance: float = ROUNDING, eps: float = UNIT) -> float:
        """Size of entries that still count beside the largest; the terms of a residual are of the gradient's size."""
        residual = any(statistic.signal == RESIDUAL for statistic in quantity.statistics())
        return max(floor_of(want, tolerance), ROUNDINGS * eps / tolerance * self.gradient_size * residual)

    @cached_property
    def gradient_size(self) -> float:
        """The largest entry of the gradient."""
        return largest_of(self.setting.run().gradient)

    def beside(self, quantity: Quantity, got: Values, want: Values, oracle: str) -> Compared:
        """Return values of a quantity beside the expected ones."""
        got, want = defined(got, want)
        return Compared(got, want, oracle, floor=self.floor(quantity, want), rounding=self.rounding(quantity))

    def rounding(self, quantity: Quantity, variant: str = "") -> Callable[[], Any]:
        """Return a function that measures the errors of a quantity's values, and of its definition's, by rounding."""
        definition, setting = definition_of(quantity), self.variants[variant] if variant else self.setting

        def measured() -> Any:
            ours = setting.errors(lambda each: each.values(quantity)[0])
            return ours if definition is None else both(ours, setting.rounding(definition))

        return measured

    def spread(self, quantity: Quantity, variant: str = "") -> dict[str, Any]:
        """Return the errors of a quantity's values by rounding, as `CheckedNetwork.spread` measures them."""
        return self.variants[variant].spread(lambda setting: setting.values(quantity)[0])

    def _made(self, quantity: Quantity, members: list[Quantity], variant: str, options: Mapping[str, Any]) -> Values:
        key = (tuple(map(id, members)), variant, tuple(options.items()))
        if key not in self.made:
            found = self.variants[variant].values(*members, **options)
            self.made[key] = {id(member): each for member, each in zip(members, found, strict=True)}
        return self.made[key][id(quantity)]


def _halves(setting: CheckedNetwork, members: list[Quantity]) -> list[Result]:
    """Compute quantities of two parts of the batch, each alone."""
    n, found = len(setting.x), []
    if n == 1:
        raise NotGivenError("one sample is no two batches")
    for part in map(setting.permuted, (np.arange(n // 2), np.arange(n // 2, n))):
        try:
            part.loss.factor(len(part.x), part.y)
        except ValueError as error:
            raise NotGivenError(f"a part of the batch has no R: {error}") from None
        found.append(part.run(*(at_targets(member, part.targets) for member in members)))
    if any(result.scale is not None and result.scale.meets for result in found):
        raise NotGivenError("samples of a batch meet in the network")
    return found


def averages(quantity: Quantity) -> bool:
    """Return whether a quantity needs the whole batch at each layer, as averages and pairs of samples do."""
    return any(statistic.signal == AVERAGE for statistic in quantity.statistics()) or pairs(quantity)


def has_rows(quantity: Quantity, values: Values, n: int, parameters: Mapping[str, Any]) -> bool:
    """Return whether values have a row for each of n samples: a quantity may also add up the rows that it asks for.

    Then they may have the shapes of the parameters, of which the first axes may all be n by chance, unless the rule of
    merging says that they are rows.
    """
    summed = isinstance(quantity.merging, Summed | Averaged)
    asked = any(statistic.per_sample for statistic in quantity.statistics())
    if not asked or summed or not all(value.shape[:1] == (n,) for value in values.values()):
        return False
    shapes = {name: parameters[name].shape for name in values.keys() & parameters.keys()}
    return isinstance(quantity.merging, Rows) or any(value.shape != shapes.get(name) for name, value in values.items())


def pairs(quantity: Quantity) -> bool:
    """Return whether a quantity is of pairs of samples and of columns."""
    return any(isinstance(statistic.reduction, Pairs) for statistic in quantity.statistics())


def is_of_pairs(value: np.ndarray, n: int) -> bool:
    """Return whether a value has the samples in both axes, (N V, N V): one of pairs may be reduced to another shape."""
    return value.ndim == 2 and value.shape[0] == value.shape[1] and not value.shape[0] % n


def in_both_axes(matrix: np.ndarray, n: int, rows: np.ndarray) -> np.ndarray:
    """Return a Gram matrix of n samples, (N V, N V), for others of them."""
    blocks = matrix.reshape(n, -1, n, len(matrix) // n)[rows][:, :, rows]
    return blocks.reshape(len(rows) * blocks.shape[1], -1)


def fits(quantity: Quantity, options: Mapping[str, int]) -> bool:
    """Return whether a quantity can be computed in blocks that the options of a call ask for."""
    if not options or not averages(quantity):
        return True
    gradients = all(statistic.signal == GRADIENT for statistic in quantity.statistics())
    return set(options) == {"column_block"} and (gradients or not pairs(quantity))


def floor_of(want: Values, tolerance: float = ROUNDING) -> float:
    """Return the size of entries that still count beside the largest: to the tolerance, at least one rounding of it."""
    return max(FLOOR, UNIT / tolerance) * largest_of(want)
