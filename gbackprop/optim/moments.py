"""Running arrays of the parameters' shapes: momentum and its like."""

from __future__ import annotations

from collections.abc import Mapping

from gbackprop.array import Array, array_module
from gbackprop.network import Sequential


class Moments:
    """One running array for each parameter, by name.

    Parameters
    ----------
    network : Sequential
    kind : str
        What the arrays are; their names in the state are ``"kind/parameter"``.
    """

    def __init__(self, network: Sequential, kind: str) -> None:
        self.network = network
        self.kind = kind
        self.values: dict[str, Array] = {}

    def advance(self, name: str, keep: float, add: Array) -> Array:
        """m ← keep · m + add, m = 0 before the first; returns m."""
        if name in self.values:
            moment = self.values[name]
            moment *= keep
            moment += add
        else:
            self.values[name] = array_module(add).array(add)
        return self.values[name]

    def state(self) -> dict[str, Array]:
        """The arrays by the name in the state."""
        return {f"{self.kind}/{name}": value for name, value in self.values.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take the arrays of this kind over."""
        mark = f"{self.kind}/"
        self.values = {name.removeprefix(mark): value for name, value in state.items() if name.startswith(mark)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by the name in the state."""
        return {f"{self.kind}/{name}": value.shape for name, value in self.network.parameters.items()}
