"""`Parameters`, the parameters of a network by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from gbackprop.array import Array, asarray, device_of, is_array, on_device_of
from gbackprop.layers.base import Layer


class Parameters(MutableMapping[str, Array]):
    """The parameters of a network by name, as a view: assignments change the layers.

    Parameters
    ----------
    owners : mapping of str to (Layer, str)
        The layer of each parameter, and the parameter's name there.
    """

    def __init__(self, owners: Mapping[str, tuple[Layer, str]]) -> None:
        self._owners = owners

    def __getitem__(self, name: str) -> Array:
        layer, key = self._owners[name]
        return layer.parameters[key]

    def __setitem__(self, name: str, value: Any) -> None:
        current = self[name]
        if value is current:  # `parameters[name] -= step` ends here
            return
        self.check(name, value)
        value = asarray(value, device_of(current), current.dtype)
        self.put(name, copy_of(value))  # later changes of the caller's array have no effect

    def put(self, name: str, value: Array) -> None:
        """Set a parameter without any check."""
        layer, key = self._owners[name]
        layer.parameters[key] = value

    def check(self, name: str, value: Any) -> None:
        """Check that `value` is an array of floats of the parameter's shape; the error names the parameter."""
        current = self[name]
        if not is_array(value):
            raise TypeError(f"parameter {name}: expected a NumPy or CuPy array of floats, got {type(value).__name__}")
        if value.dtype.kind != "f":
            raise TypeError(f"parameter {name}: expected an array of floats, got {value.dtype}")
        if value.shape != current.shape:
            raise ValueError(f"parameter {name}: expected shape {current.shape}, got {value.shape}")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"parameter {name} cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)

    def __repr__(self) -> str:
        return f"Parameters({ {name: (value.shape, value.dtype.name) for name, value in self.items()} })"


def copy_of(value: Array) -> Array:
    """Return a copy on the device of `value`."""
    with on_device_of(value):
        return value.copy()
