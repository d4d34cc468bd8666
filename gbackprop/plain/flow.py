"""The flow of columns through a network whose outputs or parameters are shared, as the sweep needs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from gbackprop.calculus.layer import INPUT, Leaf
from gbackprop.calculus.mixed import mixed_width
from gbackprop.calculus.residual import FactoredLayer


@dataclass(frozen=True)
class Flow:
    """The sharing in a network.

    Attributes
    ----------
    leaves : sequence of Leaf
        The layers, in the order of computation.
    """

    leaves: Sequence[Leaf]

    @cached_property
    def uses(self) -> Counter[str]:
        """At how many places each parameter is used."""
        return Counter(name for leaf in self.leaves for name in leaf.parameters.values())

    def linear(self, leaf: Leaf) -> bool:
        """Return whether a layer takes the output of the layer before it alone, and no other layer takes that."""
        return leaf.sources == (leaf.position - 1,) and self._takers[leaf.position - 1] == 1

    def mixed(self, leaf: Leaf) -> dict[str, int]:
        """Return how many columns the mixed residual of each parameter has on which the layer's input depends too."""
        return self._mixed.get(leaf.position, {})

    @cached_property
    def _mixed(self) -> dict[int, dict[str, int]]:
        if len(self.uses) == self.uses.total():
            return {}
        below: dict[int, frozenset[str]] = {INPUT: frozenset()}
        found: dict[int, dict[str, int]] = {}
        for leaf in self.leaves:
            under = frozenset().union(*[below[source] for source in leaf.sources])
            widths = {key: mixed_width(leaf, key) for key, name in leaf.parameters.items() if name in under}
            found[leaf.position] = {key: width for key, width in widths.items() if width}
            below[leaf.position] = under | frozenset(leaf.parameters.values())
        return found

    @cached_property
    def _takers(self) -> Counter[int]:
        return Counter(source for leaf in self.leaves for source in leaf.sources)


def residual_width(leaf: Leaf, batch: int) -> int:
    """Return the number of columns of a layer's own residual, in a batch of N samples if it mixes these."""
    if not leaf.curved:
        return 0
    if isinstance(leaf.layer, FactoredLayer):
        lead = (batch,) if leaf.layer.mixes else ()
        return leaf.layer.residual_width(*[lead + shape for shape in leaf.input_shapes])
    return prod(leaf.input_shape)
