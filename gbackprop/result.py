"""`Result`, the return value of a backward call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array
from gbackprop.quantities.base import Quantity


@dataclass(frozen=True, eq=False)
class Result:
    """Loss, output, gradient, and the quantities that were asked for.

    ``result[quantity]``, by instance or by name, maps parameter names to arrays, or to `Kronecker` objects for KFAC,
    KFLR and KFRA.

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
            If the quantity was not asked for, or several have that name.
        """
        same = [i for i, quantity in enumerate(self.quantities) if quantity is key]
        found = same[:1] or [i for i, quantity in enumerate(self.quantities) if quantity.name == key]
        if len(found) != 1:
            problem = f"{len(found)} quantities are called" if found else "no quantity was asked for as"
            raise KeyError(f"{problem} {key!r}; there are {list(self.quantities)}: index by instance")
        return self.values[found[0]]

    def __contains__(self, key: object) -> bool:
        return any(quantity is key or quantity.name == key for quantity in self.quantities)

    def __repr__(self) -> str:
        return f"Result(loss={float(self.loss):.6g}, quantities={list(self.quantities)})"
