"""`Result`, the return value of a backward call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array, is_array
from gbackprop.base.checks import own_methods
from gbackprop.kronecker import GroupedKronecker, Kronecker
from gbackprop.losses.base import Loss
from gbackprop.quantities.base import Quantity, Scale
from gbackprop.quantities.kronecker_error import BlockError, KroneckerError
from gbackprop.quantities.scaling import scaled


@dataclass(frozen=True, eq=False)
class Result:
    """Loss, output, gradient, and the quantities that were asked for.

    ``result[quantity]`` maps parameter names to arrays; for Kronecker factors to `Kronecker` and `GroupedKronecker`
    objects, for EKFAC to `EigenKronecker`, for errors to `BlockError`. A quantity is found by the object that was
    passed, by an equal one (of the same class, with the same arguments), or by name. A result is read like a
    dictionary of its quantities: ``len(result)``, ``name in result``, ``for name in result``, ``result.keys()``,
    ``result.items()``; but `values` is an attribute, and no method. Arrays that two quantities have in common, such as
    A of KFAC and KFLR, are one array, as are the gradient and `BatchGrad` of "x": copy it before you change it.

    Attributes
    ----------
    loss : scalar array
        L.
    output : ndarray, shape (N, *out)
    gradient : dict of str to ndarray, shape (*p)
        ∇L by parameter name.
    quantities : tuple of Quantity
        The quantities asked for, in order.
    values : sequence of mappings
        The values of each, in the same order.
    objective : Loss, or None
        The loss function.
    scale : Scale, or None
        N and R, by which `gbackprop.data.merge` weighs batches.
    """

    loss: Array
    output: Array
    gradient: dict[str, Array]
    quantities: Sequence[Quantity]
    values: Sequence[Mapping[str, Any]]
    objective: Loss | None = None
    scale: Scale | None = None

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
        raise KeyError(self._problem(key, len(found)))

    def error(self, key: Quantity | str) -> Mapping[str, BlockError]:
        """Return the error of an approximation of the GGN's blocks by parameter name, see `KroneckerError`.

        Parameters
        ----------
        key : Quantity or str
            The approximation, or its name; ``KroneckerError(approximation)`` must have been asked for in the same call.

        Raises
        ------
        KeyError
            If it was not, or for several approximations of that name.
        """
        errors = [(each, i) for i, each in enumerate(self.quantities) if isinstance(each, KroneckerError)]
        found = [i for each, i in errors if each.of is key or each.of.name == key]
        found = found or [i for each, i in errors if alike(each.of, key)]
        if len(found) == 1:
            return self.values[found[0]]
        asked = f"ask for KroneckerError({key if isinstance(key, Quantity) else '…'}) in the same call"
        several = f"{len(found)} fit: index by one, result[KroneckerError(…)]"
        problem = several if found else asked
        raise KeyError(f"no error of {key!r}: {problem}; there are {list(self.quantities)}")

    def scaled(self, key: Quantity | str, library: str) -> dict[str, Any]:
        """Return the values of a quantity as another library scales them, by parameter name.

        Parameters
        ----------
        key : Quantity or str
            Of the call, or its name: one that the library has, too.
        library : {"backpack", "curvlinops", "kfac-jax", "laplace"}

        Raises
        ------
        KeyError, ValueError
            If the quantity was not asked for, or the library does not have it, or not in its convention; if there is no
            such library in the table, `gbackprop.quantities.scaling`, or no loss in it, or one that has changed.
        UnsupportedError
            If the result was read from a file and its loss is none of gbackprop's.
        """
        values = self[key]
        if self.objective is None or self.scale is None:
            raise ValueError("scaled: expected a result of gb.backward, got one that does not say of which loss")
        check_objective(self, "scaled")
        quantity = self.quantities[self._found(key)[0]]
        return scaled(quantity, values, library, self.scale, self.objective, self.output.shape[1:])

    def _problem(self, key: object, found: int) -> str:
        """Say why a key finds nothing, or too much."""
        there = f"there are {list(self.quantities)}"
        if found:
            return f"{found} quantities are called {key!r}; {there}: index by quantity"
        if key == "gradient" or (isinstance(key, str) and key in self.gradient):
            name = key if key in self.gradient else next(iter(self.gradient), "0.weight")
            quantity = next(iter(self._ipython_key_completions_()), "variance")
            return (
                f"{key!r} is no quantity: write result.gradient[{name!r}], "
                f"or for a quantity's values result[{quantity!r}][{name!r}]"
            )
        other = repr(key) in map(repr, self.quantities)
        hint = " (the one there has other arguments: index by the object that was passed)" if other else ""
        return f"no quantity was asked for as {key!r}; {there}{hint}"

    def __contains__(self, key: object) -> bool:
        return bool(self._found(key))

    def _found(self, key: object) -> list[int]:
        """Return the places of a quantity: of the object itself, of equal ones, or of those of a name."""
        if isinstance(key, str):
            return [i for i, quantity in enumerate(self.quantities) if quantity.name == key]
        same = [i for i, quantity in enumerate(self.quantities) if quantity is key]
        return same or [i for i, quantity in enumerate(self.quantities) if alike(quantity, key)]

    def __len__(self) -> int:
        return len(self.quantities)

    def __bool__(self) -> bool:
        return True  # also without quantities: there is a gradient

    def __iter__(self) -> Iterator[Quantity | str]:
        """Yield the key of each quantity, in order: its name, or the quantity itself where several have that name."""
        names = [quantity.name for quantity in self.quantities]
        return (q if names.count(q.name) > 1 else q.name for q in self.quantities)

    def keys(self) -> list[Quantity | str]:
        """Return the keys that iteration yields."""
        return list(self)

    def items(self) -> list[tuple[Quantity | str, Mapping[str, Any]]]:
        """Return the key of each quantity with its values by parameter name."""
        return list(zip(self, self.values, strict=True))

    def _ipython_key_completions_(self) -> list[str]:
        return [key for key in self if isinstance(key, str)]

    def __repr__(self) -> str:
        """Return a line on loss, output and gradient, and one for each quantity: its name, itself, a shape."""
        first = next(iter(self.gradient), "")
        lines = [
            f"Result: loss {float(self.loss):.6g}, output {_shape(self.output)}, "
            f"gradient of {len(self.gradient)} parameters"
        ]
        for quantity, values in zip(self.quantities, self.values, strict=True):
            shown = f"{first} {_shape(values[first])}" if first in values else ""
            lines.append(f"  {quantity.name!r:<20} {quantity!r:<28} {shown}".rstrip())
        return "\n".join(lines)


def _shape(value: Any) -> str:
    if isinstance(value, Kronecker | GroupedKronecker):
        return f"B {value.B.shape}" + ("" if value.A is None else f" ⊗ A {value.A.shape}")
    return str(getattr(value, "shape", type(value).__name__))


def alike(one: object, other: object) -> bool:
    """Return whether two quantities are of one class and have equal arguments; arrays must be the same objects."""
    if not isinstance(one, Quantity) or type(one) is not type(other) or vars(one).keys() != vars(other).keys():
        return False
    pairs = [(value, vars(other)[name]) for name, value in vars(one).items()]
    return all(a is b or (type(a) is type(b) and not is_array(a) and _equal(a, b)) for a, b in pairs)


def _equal(one: object, other: object) -> bool:
    try:
        return alike(one, other) or bool(one == other)  # an argument may be a quantity, too
    except ValueError:  # arrays inside, which cannot be told apart by ==
        return False


def check_objective(result: Result, what: str) -> None:
    """Check that a result's loss, the caller's object, has the R of the call: 1 for "sum", else 1/N or by weights."""
    loss, scale = result.objective, result.scale
    if loss is None or scale is None:
        return
    weighted = loss.weighted or getattr(loss, "ignore_index", None) is not None or "factor" in own_methods(loss)
    changed = scale.factor != 1 if loss.reduction == "sum" else scale.factor == 1 < scale.batch and not weighted
    if changed:
        words = f"R = {scale.factor:.6g} for {scale.batch} samples, the loss that the result is of"
        raise ValueError(f"{what}: expected a loss with {words}, got {loss!r}, which was changed after the call")
