"""`Parameters` and `Buffers`, the parameters and the buffers of a network by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite, array_module, asarray, bounds, device_of, is_array, on_device_of
from gbackprop.base.checks import kind_of
from gbackprop.base.names import inside
from gbackprop.calculus.layer import Layer


class Parameters(MutableMapping[str, Array]):
    """The parameters of a network by name, as a view: assignments change the layers."""

    word = "parameter"

    def __init__(self, owners: Mapping[str, tuple[Layer, str]]) -> None:
        self.owners = owners

    def _values(self, layer: Layer) -> dict[str, Array]:
        return layer.parameters

    def __getitem__(self, name: str) -> Array:
        if name not in self.owners:
            raise KeyError(f"{self.word} {name!r}: expected one of {list(self.owners)}")
        layer, key = self.owners[name]
        return self._values(layer)[key]

    def __setitem__(self, name: str, value: Any) -> None:
        if value is not self[name]:  # `parameters[name] -= step` ends here
            self.load({name: value})

    def load(self, mapping: Mapping[str, Any]) -> None:
        """Set parameters to copies of arrays, converted to their dtypes and moved to their devices: all or none."""
        for name, value in self.checked(mapping).items():
            self.put(name, value)

    def checked(self, mapping: Mapping[str, Any]) -> dict[str, Array]:
        """Return the copies that `load` sets, and set none; the errors are those of `load`."""
        mapping = {name: exchanged(f"{self.word} {name}", value) for name, value in mapping.items()}
        for name, value in mapping.items():
            self._check(name, value)
        with np.errstate(over="ignore"):
            moved = {name: asarray(value, device_of(self[name]), self[name].dtype) for name, value in mapping.items()}
        check_numbers(mapping, moved, self.word)
        return {name: copy_of(value) for name, value in moved.items()}  # the caller may change its array later

    def put(self, name: str, value: Array) -> None:
        """Set a parameter without any check."""
        layer, key = self.owners[name]
        self._values(layer)[key] = value

    def _check(self, name: str, value: Any) -> None:
        """Check that `value` is an array of the parameter's kind and shape; the error names the parameter."""
        current, where = self[name], f"{self.word} {name}"
        kinds, words = {"f": ("f", "floats"), "b": ("b", "booleans")}.get(current.dtype.kind, ("iu", "integers"))
        if not is_array(value):
            raise TypeError(f"{where}: expected a NumPy or CuPy array of {words}, got {kind_of(value)}")
        if value.dtype.kind not in kinds:
            raise TypeError(f"{where}: expected an array of {words}, got {value.dtype}")
        if value.shape != current.shape:
            raise ValueError(f"{where}: expected shape {current.shape}, got {value.shape}")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{self.word} {name} cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self.owners)

    def __len__(self) -> int:
        return len(self.owners)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {name: (value.shape, value.dtype.name) for name, value in self.items()} })"


class Buffers(Parameters):
    """The buffers of a network by name, such as running statistics, as a view: assignments change the layers."""

    word = "buffer"

    def _values(self, layer: Layer) -> dict[str, Array]:
        return buffers_of(layer)


def name_in(layer: Layer, path: str, key: str) -> str:
    """Return the name of a parameter or buffer in a network that has its layer at a path."""
    return inside(path, layer.node_parameters.get(key, (key,))[0])


def buffers_of(layer: Layer) -> dict[str, Array]:
    """Return a layer's buffers by name, the very dict: most layers have none."""
    return getattr(layer, "buffers", {})


def may_be_missing(name: str, mapping: Mapping[str, Any]) -> bool:
    """Return whether a state dict may lack a name: torch's had no num_batches_tracked before their version 2."""
    path, _, key = name.rpartition(".")
    version = getattr(mapping, "_metadata", {}).get(path, {}).get("version")
    return key == "num_batches_tracked" and (version is None or version < 2)


def exchanged(where: str, value: Any) -> Any:
    """Return what NumPy can read by the DLPack protocol, or a number of NumPy's, as an array; all else as it is."""
    if is_array(value) or isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value) if isinstance(value, np.generic) else value
    try:
        for name in ("resolve_conj", "resolve_neg"):  # what torch changes as it reads, DLPack gives as it was
            value = getattr(value, name)() if hasattr(value, name) else value
        return np.from_dlpack(value)
    except Exception as error:  # what it raises is up to the other library
        dtype, device = (getattr(value, name, "unknown") for name in ("dtype", "device"))
        got = f"{type(value).__name__} of dtype {dtype} on device {device}: {str(error).strip().partition(chr(10))[0]}"
        raise TypeError(f"{where}: expected an array that NumPy can read, got {got}") from error


def check_numbers(before: Mapping[str, Array], after: Mapping[str, Array], word: str = "parameter") -> None:
    """Check that parameters are finite after a conversion; the error calls them `word`. A mask may have −∞ and ∞."""
    after = {
        name: value for name, value in after.items() if word != "buffer" or not _is_mask(name, before[name], value)
    }
    if all_finite(*after.values()):
        for name, value in after.items():
            if name.rpartition(".")[2] == "running_var" and word == "buffer" and bounds(value)[0] < 0:
                raise ValueError(f"{word} {name}: expected a variance of at least 0, got {bounds(value)[0]:.3g}")
        return
    name, value = next((name, value) for name, value in after.items() if not all_finite(value))
    if not all_finite(before[name]):
        raise ValueError(f"{word} {name}: expected finite numbers, got NaN or infinity")
    largest = max(bounds(before[name]), key=abs)
    raise ValueError(f"{word} {name}: expected numbers within the range of {value.dtype}, got {largest:.3g}")


def _is_mask(name: str, before: Array, after: Array) -> bool:
    """Return whether a buffer has infinite numbers, which a conversion has not made; running statistics have none."""
    xp = array_module(after)
    infinite = (
        after.dtype.kind == "f" and not name.rpartition(".")[2].startswith("running_") and bool(xp.isinf(after).any())
    )
    return infinite and bool((xp.isinf(before) == xp.isinf(after)).all() and not xp.isnan(after).any())


def converted(value: Array, dtype: str) -> Array:
    """Return an array of floats in another dtype, on its device; numbers beyond its range become infinite."""
    with on_device_of(value), np.errstate(over="ignore"):
        return value.astype(dtype, copy=False) if value.dtype.kind == "f" else value


def set_dtype(layers: Iterable[tuple[str, Layer]], dtype: str) -> None:
    """Give layers a dtype, for what they draw, and convert buffers; parameters that are drawn must have it."""
    for name, layer in layers:
        for key, value in (layer.drawn or {}).items():
            if value.dtype != dtype:
                raise ValueError(
                    f"dtype: layer {name}, {layer!r}, has its {key} in {value.dtype}, not {dtype} "
                    "(astype converts a network)"
                )
        buffers_of(layer).update({key: converted(value, dtype) for key, value in buffers_of(layer).items()})
        layer.dtype = dtype


def convert(layers: Sequence[tuple[str, Layer]], dtype: str) -> None:
    """Convert the parameters and buffers of layers, and what they draw later, to a dtype: all or none."""
    changed: list[tuple[Any, str, Array]] = []
    for word, owned in (("parameter", lambda layer: layer.drawn or {}), ("buffer", buffers_of)):
        at = {name_in(layer, path, key): (owned(layer), key) for path, layer in layers for key in owned(layer)}
        before = {name: values[key] for name, (values, key) in at.items()}
        after = {name: converted(value, dtype) for name, value in before.items()}
        check_numbers(before, after, word)
        changed += [(*at[name], value) for name, value in after.items()]
    for values, key, new in changed:
        values[key] = new
    for _, layer in layers:
        layer.dtype = dtype


def copy_of(value: Array) -> Array:
    """Return a copy on the device of `value`."""
    with on_device_of(value):
        return value.copy()
