"""A curvature block given by Kronecker factors of each group of a weight's outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gbackprop.array import Array
from gbackprop.kronecker.factored import FactoredBlock
from gbackprop.kronecker.kronecker import Kronecker


@dataclass(frozen=True, eq=False)
class GroupedKronecker(FactoredBlock):
    """The block-diagonal matrix of B[γ] ⊗ A[γ], γ = 0 … G − 1, for a weight with G groups of outputs.

    The weight's outputs, and with `channels_first` its input channels, are numbered group by group, so that the entries
    of a group, in row-major order, are side by side. Each group is damped for itself.

    Attributes
    ----------
    A : ndarray, shape (G, I, I)
        Input factor of each group.
    B : ndarray, shape (G, O / G, O / G)
        Output factor of each group.
    channels_first : int, optional
        C / G of a weight (C, O / G, *kernel), see `Kronecker`.
    """

    axes = 3

    A: Array
    B: Array
    channels_first: int | None = None

    @property
    def blocks(self) -> tuple[Kronecker, ...]:
        """The block of each group."""
        return tuple(Kronecker(a, b, self.channels_first) for a, b in zip(self.A, self.B, strict=True))


def _channels_first(a: Array, b: Array) -> Kronecker | GroupedKronecker:
    """Return the block of a weight that has its outputs between the two axes, C and ∏ kernel, that are rows of A."""
    *groups, channels, places = a.shape[:-2]
    return BLOCKS[b.ndim](a.reshape(*groups, channels * places, channels * places), b, channels)


BLOCKS: dict[int, Callable[..., Kronecker | GroupedKronecker]] = {
    2: Kronecker,
    3: GroupedKronecker,
    4: _channels_first,
    5: _channels_first,
}
"""The class of a block, by the number of axes of A as a statistic, or of B without A: an odd one begins with groups."""


def with_factors(block: Kronecker | GroupedKronecker, a: Array | None, b: Array) -> Kronecker | GroupedKronecker:
    """Return the block of other factors of the same shapes, with its entries in the order of `block`'s."""
    factors: dict[str, Any] = {"A": a, "B": b}
    return replace(block, **factors)
