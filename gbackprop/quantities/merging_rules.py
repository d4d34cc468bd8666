"""Rules by which results of batches are merged: what adds up of a quantity, free of R and 1/N.

The variance of all samples is also that between the batches' means, and Σ (R ∇ℓₙ)² contains R twice. Sums are in
float64, so that those of many batches in float32 are as precise as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from gbackprop.array import Array, array_module
from gbackprop.calculus.moments import Moments
from gbackprop.kronecker import GroupedKronecker, Kronecker, with_factors
from gbackprop.quantities.base import Scale


class Rule(Protocol):
    """A rule by which values of several results are added: the attribute `merging` of a quantity."""

    def take(self, value: Any, gradient: Array, scale: Scale) -> Any:
        """Return the summand of a batch, from its value and gradient of one parameter and its N and R."""

    def give(self, total: Any, scale: Scale) -> Any:
        """Return the value for all samples from the sum, and N and R of all."""


@dataclass(frozen=True)
class Summed:
    """The rule of values that are R to some power, times a sum over samples: divide by it, add, multiply by it."""

    power: int = 1

    def take(self, value: Array, gradient: Array, scale: Scale) -> Array:
        return value.astype("float64", copy=False) / scale.factor**self.power

    def give(self, total: Array, scale: Scale) -> Array:
        return (total * scale.factor**self.power).astype(scale.dtype, copy=False)


@dataclass(frozen=True)
class Averaged:
    """The rule of values that are 1/N times a sum over samples, whatever R is."""

    def take(self, value: Array, gradient: Array, scale: Scale) -> Array:
        return value.astype("float64", copy=False) * scale.batch

    def give(self, total: Array, scale: Scale) -> Array:
        return (total / scale.batch).astype(scale.dtype, copy=False)


@dataclass(frozen=True)
class Rows:
    """The rule of values with a row for each sample, R to some power times a function of that sample alone."""

    power: int = 1

    def take(self, value: Array, gradient: Array, scale: Scale) -> list[Array]:
        return [value / scale.factor**self.power]

    def give(self, total: list[Array], scale: Scale) -> Array:
        rows = array_module(total[0]).concatenate(total)
        rows *= scale.factor**self.power
        return rows


class Variances:
    """Chan's formula: the batches' variances and the squared differences between their mean gradients."""

    def take(self, value: Array, gradient: Array, scale: Scale) -> Moments:
        mean = gradient.astype("float64") / (scale.factor * scale.batch)
        return Moments(scale.batch, mean, value.astype("float64") * scale.batch)

    def give(self, total: Moments, scale: Scale) -> Array:
        return (total.centered / scale.batch).astype(scale.dtype, copy=False)


@dataclass(frozen=True)
class Pair:
    """Factors free of 1/N and R, which add up."""

    a: Array | None
    b: Array
    like: Kronecker | GroupedKronecker  # has the order of the parameter's entries

    def __add__(self, other: Pair) -> Pair:
        return Pair(None if self.a is None else self.a + other.a, self.b + other.b, self.like)


@dataclass(frozen=True)
class FactorPairs:
    """A is a mean over samples and B is R times a sum, each for itself: the block is not the mean of the batches'.

    `of_b` is the rule of B.
    """

    of_b: Rule = field(default_factory=Summed)
    of_a: ClassVar[Rule] = Averaged()

    def take(self, value: Kronecker | GroupedKronecker, gradient: Array, scale: Scale) -> Pair:
        b = self.of_b.take(value.B, gradient, scale)
        return Pair(None if value.A is None else self.of_a.take(value.A, gradient, scale), b, value)

    def give(self, total: Pair, scale: Scale) -> Kronecker | GroupedKronecker:
        a = None if total.a is None else self.of_a.give(total.a, scale)
        return with_factors(total.like, a, self.of_b.give(total.b, scale))
