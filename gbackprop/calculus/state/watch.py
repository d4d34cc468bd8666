"""Checks that network, loss and quantities are as they were: by identities, and where these differ by digests."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.state.checksums import checksum
from gbackprop.calculus.state.classes import changed_class
from gbackprop.calculus.state.digests import MISSING, Walk
from gbackprop.calculus.state.parts import digests_of, parts_of


class Watch:
    """Network, loss and quantities as they were when this was made, with all numbers.

    Parameters
    ----------
    network : Layer
    loss : Loss, optional
    quantities : sequence of Quantity
    """

    def __init__(self, network: Layer, loss: Any = None, quantities: Sequence[Any] = ()) -> None:
        self.network, self.loss, self.quantities = network, loss, quantities
        self.digests, self.walk = self._look()
        self.kinds = {kind: dict(vars(kind)) for kind in self.walk.kinds}

    def changed(self) -> str | None:
        """Return the name of a part that is not as it was, None if there is none."""
        kind = changed_class(self.kinds)
        if kind is not None:
            return f"class {kind.__name__}"
        if _is_same(self.walk):
            return None
        digests, walk = self._look()
        for name in (*digests, *self.digests):
            if digests.get(name) != self.digests.get(name):
                part = parts_of(self.network, self.loss, self.quantities).get(name)
                return name if part in (None, self.network) else f"{name}, {part!r}"
        self.walk = walk  # other objects that are equal
        return None

    def __reduce__(self) -> Any:
        return Watch, (self.network, self.loss, self.quantities)

    def _look(self) -> tuple[dict[str, str], Walk]:
        return digests_of(parts_of(self.network, self.loss, self.quantities), _checksum)


def _checksum(array: Array) -> bytes:
    return checksum(array).to_bytes(8, "little")


def _is_same(walk: Walk) -> bool:
    """Return whether all that a walk met refers to the very objects that it did, and arrays have their numbers."""
    for mapping, names, values in walk.dicts:
        if len(mapping) != len(names) or not all(map(is_, mapping.values(), values)) or [*mapping] != names:
            return False
    for items, before in walk.lists:
        if len(items) != len(before) or not all(map(is_, items, before)):
            return False
    for owner, attributes, values in walk.fields:
        if not all(getattr(owner, name, MISSING) is value for name, value in zip(attributes, values, strict=True)):
            return False
    return not walk.others and all(_checksum(array) == numbers for array, numbers in walk.arrays)
