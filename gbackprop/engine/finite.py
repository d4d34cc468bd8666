"""The warning about results that are not finite."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from gbackprop.array import Array, all_finite, device_of
from gbackprop.base.errors import NotFiniteWarning
from gbackprop.plain.plan import Plan
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.first_order import BatchGrad
from gbackprop.quantities.result import Result


def warn_not_finite(plan: Plan, result: Result, stacklevel: int = 3) -> None:
    """Warn of NaN and infinity in a result, with each quantity, the first of its parameters, and that one's layer.

    Nothing is looked at on a GPU, where the host would have to wait. There is no warning where `numpy.errstate` ignores
    what overflows and what is invalid. The cost is a sum over each array. `BatchGrad`, the largest, is left out while
    the gradient, its sum, is finite.
    """
    if device_of(result.output) != "cpu" or is_finite(result):
        return
    state = np.geterr()
    if state["over"] == state["invalid"] == "ignore":
        return
    layers = {name: leaf for leaf in reversed(plan.leaves) for name in leaf.parameters.values()}
    found: dict[str, list[str]] = {}
    for what, name, parts in _parts(result):
        if not all_finite(*parts):
            found.setdefault(what, []).append(name)
    said = [] if all_finite(result.loss) else ["the loss"]
    for what, names in found.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        said.append(f"{what} of {names[0]} ({layers[names[0]]}){more}" if names[0] else what)
    wider = ", or net.astype('float64')," if plan.scale.dtype == "float32" else ""
    warnings.warn(
        f"NaN or infinity in {'; '.join(said)}: numbers beyond the range of {plan.scale.dtype} came up (smaller inputs "
        f"or parameters{wider} can help)",
        NotFiniteWarning,
        stacklevel=stacklevel,
    )


def is_finite(result: Result) -> bool:
    """Return whether nothing in a result is NaN or infinite."""
    return all_finite(*arrays_in(result))


def arrays_in(result: Result) -> list[Array]:
    """Return the arrays of floats in a result, but for `BatchGrad`, whose sum is among them."""
    others = [part for *_, parts in _quantities(result, rows=False) for part in parts] if result.values else []
    return [result.loss, result.output, *result.gradient.values(), *others]


def _parts(result: Result) -> Iterator[tuple[str, str, list[Array]]]:
    """Yield what is in a result: a name, a parameter's name ("" for the output), and the arrays of floats."""
    yield "the output", "", [result.output]
    for name, value in result.gradient.items():
        yield "gradient", name, [value]
    for quantity, name, parts in _quantities(result, rows=True):
        yield repr(quantity), name, parts


def _quantities(result: Result, rows: bool) -> Iterator[tuple[Quantity, str, list[Array]]]:
    """Yield each quantity, a parameter's name and its arrays; `rows` says whether `BatchGrad` is among them."""
    for quantity, values in zip(result.quantities, result.values, strict=True):
        for name, value in values.items() if rows or type(quantity) is not BatchGrad else ():
            parts = [value] if hasattr(value, "flags") else getattr(value, "__dict__", {}).values()
            yield quantity, name, [part for part in parts if hasattr(part, "flags") and part.dtype.kind == "f"]
