"""The parts of a call that have names: layers and containers by their paths, the loss, the quantities."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from gbackprop.array import Array
from gbackprop.base.names import inside
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.state.digests import Walk, numbers_of

STATE = frozenset({"drawn", "buffers", "dtype", "frozen"})
"""Attributes of layers that have no part in what function they compute of inputs and parameters, but for buffers."""


def parts_of(network: Layer, loss: Any = None, quantities: Sequence[Any] = ()) -> dict[str, Any]:
    """Return layers, the containers around them, the loss and the quantities, by name, each once."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for path, layer in _inside(network, ""):
        if id(layer) not in seen:
            seen.add(id(layer))
            found[f"layer {path}" if path else "network"] = layer
    found |= {} if loss is None else {"loss": loss}
    return found | {f"quantity {i}": quantity for i, quantity in enumerate(quantities)}


def digests_of(
    parts: dict[str, Any], numbers: Callable[[Array], bytes] = numbers_of, left_out: Collection[str] = ()
) -> tuple[dict[str, str], Walk]:
    """Return the digest of each part, in which the others count by their names; and the walk over them."""
    names: dict[int, str] = {}
    for name, part in parts.items():
        names.setdefault(id(part), name)
    walk = Walk(names, numbers, left_out)
    return {name: walk.root(part).hex() for name, part in parts.items()}, walk


def settings_of(network: Layer) -> dict[str, str]:
    """Return the digest of each layer and container without parameters, buffers, and which parameters are frozen."""
    return digests_of(parts_of(network), left_out=STATE)[0]


def _inside(layer: Layer, path: str) -> Iterator[tuple[str, Layer]]:
    for key, child in getattr(layer, "children", {}).items():
        if isinstance(child, Layer):
            yield from _inside(child, inside(path, key))
    yield path, layer
