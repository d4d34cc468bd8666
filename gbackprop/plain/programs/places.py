"""The places of arrays in a result: nested dictionaries, as a program returns them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gbackprop.base.recording.tape import Ref
from gbackprop.plain.programs.recording import arrays_in, attributes_of
from gbackprop.quantities.result import Result


def results_of(result: Result) -> dict[str, Any]:
    """Return the numbers of all arrays of a result in dictionaries: loss, output, gradient, and quantities by name."""
    found = {"loss": result.loss, "output": result.output, "gradient": result.gradient}
    for quantity, values in zip(result.quantities, result.values, strict=True):
        name = quantity.name
        while name in found:
            name += "_"
        found[name] = values
    return {name: _numbers(value) for name, value in found.items()}


def _numbers(value: Any) -> Any:
    if isinstance(value, Ref):
        return value.number
    pairs = value.items() if isinstance(value, Mapping) else attributes_of(value)
    return {key: _numbers(each) for key, each in pairs if any(True for _ in arrays_in(each))}


def leaves_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path and the number of each array."""
    if isinstance(value, int):
        yield path, value
    else:
        for key, each in value.items():
            yield from leaves_in(each, (*path, key))
