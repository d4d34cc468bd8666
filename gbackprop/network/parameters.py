"""`Parameters`, the parameters of a network by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite, asarray, bounds, device_of, is_array, on_device_of
from gbackprop.checks import kind_of
from gbackprop.layers.base import Layer


class Parameters(MutableMapping[str, Array]):
    """The parameters of a network by name, as a view: assignments change the layers.

    Parameters
    ----------
    owners : mapping of str to (Layer, str)
        The layer of each parameter, and the parameter's name there.
    """

    def __init__(self, owners: Mapping[str, tuple[Layer, str]]) -> None:
        self.owners = owners

    def __getitem__(self, name: str) -> Array:
        layer, key = self.owners[name]
        return layer.parameters[key]

    def __setitem__(self, name: str, value: Any) -> None:
        if value is not self[name]:  # `parameters[name] -= step` ends here
            self.load({name: value})

    def load(self, mapping: Mapping[str, Any]) -> None:
        """Set parameters to copies of arrays, converted to their dtypes and moved to their devices: all or none.

        Raises
        ------
        TypeError
            If a value is not an array of floats.
        ValueError
            If a shape is wrong, or a number is NaN, infinite or beyond the range of the parameter's dtype.
        """
        for name, value in mapping.items():
            self._check(name, value)
        with np.errstate(over="ignore"):
            moved = {name: asarray(value, device_of(self[name]), self[name].dtype) for name, value in mapping.items()}
        check_numbers(mapping, moved)
        for name, value in moved.items():
            self.put(name, copy_of(value))  # later changes of the caller's array have no effect

    def put(self, name: str, value: Array) -> None:
        """Set a parameter without any check."""
        layer, key = self.owners[name]
        layer.parameters[key] = value

    def _check(self, name: str, value: Any) -> None:
        """Check that `value` is an array of floats of the parameter's shape; the error names the parameter."""
        current = self[name]
        if not is_array(value):
            raise TypeError(f"parameter {name}: expected a NumPy or CuPy array of floats, got {kind_of(value)}")
        if value.dtype.kind != "f":
            raise TypeError(f"parameter {name}: expected an array of floats, got {value.dtype}")
        if value.shape != current.shape:
            raise ValueError(f"parameter {name}: expected shape {current.shape}, got {value.shape}")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"parameter {name} cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self.owners)

    def __len__(self) -> int:
        return len(self.owners)

    def __repr__(self) -> str:
        return f"Parameters({ {name: (value.shape, value.dtype.name) for name, value in self.items()} })"


def check_numbers(before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
    """Check that parameters are finite after a conversion.

    Raises
    ------
    ValueError
        If they are not; the message names the first that is not, and says whether it was before.
    """
    if all_finite(*after.values()):
        return
    name, value = next((name, value) for name, value in after.items() if not all_finite(value))
    if not all_finite(before[name]):
        raise ValueError(f"parameter {name}: expected finite numbers, got NaN or infinity")
    least, most = bounds(before[name])
    largest = most if most >= -least else least
    raise ValueError(f"parameter {name}: expected numbers within the range of {value.dtype}, got {largest:.3g}")


def converted(value: Array, dtype: str) -> Array:
    """Return an array of floats in another dtype, on its device; numbers beyond its range become infinite."""
    with on_device_of(value), np.errstate(over="ignore"):
        return value.astype(dtype, copy=False) if value.dtype.kind == "f" else value


def copy_of(value: Array) -> Array:
    """Return a copy on the device of `value`."""
    with on_device_of(value):
        return value.copy()
