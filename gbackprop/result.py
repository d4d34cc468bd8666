"""`Result`, the return value of a backward call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array, is_array
from gbackprop.quantities.base import Quantity


@dataclass(frozen=True, eq=False)
class Result:
    """Loss, output, gradient, and the quantities that were asked for.

    ``result[quantity]`` maps parameter names to arrays, or to `Kronecker` objects for KFAC, KFLR and KFRA. A quantity
    is found by the object that was passed, by an equal one (of the same class, with the same arguments), or by name.

    Attributes
    ----------
    loss : scalar array
        L.
    output : ndarray, shape (N, *out)
    gradient : dict of str to ndarray, shape (*p)
        ∇L by parameter name.
    quantities : tuple of Quantity
        The quantities asked for, in order.
    """

    loss: Array
    output: Array
    gradient: dict[str, Array]
    quantities: Sequence[Quantity]
    values: Sequence[Mapping[str, Any]]

    def __getitem__(self, key: Quantity | str) -> Mapping[str, Any]:
        """Return the values of a quantity by parameter name.

        Raises
        ------
        KeyError
            If the quantity was not asked for, or quantities that differ have that name.
        """
        found = self._found(key)
        if found and all(alike(self.quantities[i], self.quantities[found[0]]) for i in found):
            return self.values[found[0]]
        problem = f"{len(found)} quantities are called" if found else "no quantity was asked for as"
        hint = "" if not found else ": index by quantity"
        if not found and repr(key) in map(repr, self.quantities):
            hint = " (that one has other arrays as arguments: index by the object that was passed)"
        raise KeyError(f"{problem} {key!r}; there are {list(self.quantities)}{hint}")

    def __contains__(self, key: object) -> bool:
        return bool(self._found(key))

    def _found(self, key: object) -> list[int]:
        """Return the places of a quantity: of the object itself, of equal ones, or of those of a name."""
        if isinstance(key, str):
            return [i for i, quantity in enumerate(self.quantities) if quantity.name == key]
        same = [i for i, quantity in enumerate(self.quantities) if quantity is key]
        return same or [i for i, quantity in enumerate(self.quantities) if alike(quantity, key)]

    def __repr__(self) -> str:
        return f"Result(loss={float(self.loss):.6g}, quantities={list(self.quantities)})"


def alike(one: object, other: object) -> bool:
    """Return whether two quantities are of one class and have equal arguments; arrays must be the same objects."""
    if not isinstance(one, Quantity) or type(one) is not type(other) or vars(one).keys() != vars(other).keys():
        return False
    pairs = [(value, vars(other)[name]) for name, value in vars(one).items()]
    return all(a is b or (type(a) is type(b) and not is_array(a) and _equal(a, b)) for a, b in pairs)


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays inside, which cannot be told apart by ==
        return False
