"""Running arrays of the parameters' shapes: momentum and its like."""

from __future__ import annotations

from collections.abc import Mapping

from gbackprop.array import Array, array_module
from gbackprop.network import Container


class Moments:
    """One running array for each parameter, by name.

    Parameters
    ----------
    network : Container
    kind : str
        What the arrays are; their names in the state are ``"kind/parameter"``.
    """

    def __init__(self, network: Container, kind: str) -> None:
        self.network = network
        self.kind = kind
        self.values: dict[str, Array] = {}

    def advance(self, name: str, keep: float, add: Array) -> Array:
        """Compute m ← keep · m + add in a new array, m = 0 before the first; return m."""
        if name in self.values:
            moment = keep * self.values[name]
            moment += add
        else:
            moment = array_module(add).array(add)
        self.values[name] = moment
        return moment

    def state(self) -> dict[str, Array]:
        """Return the arrays by the name in the state."""
        return {f"{self.kind}/{name}": value for name, value in self.values.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take the arrays of this kind over."""
        mark = f"{self.kind}/"
        self.values = {name.removeprefix(mark): value for name, value in state.items() if name.startswith(mark)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes by the name in the state."""
        return {f"{self.kind}/{name}": value.shape for name, value in self.network.trainable.items()}
