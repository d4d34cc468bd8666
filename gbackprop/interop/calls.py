"""A call of one of torch's functions while a network is built: what it takes, and the nodes that compute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.interop.layouts import MIXED, Fixed, Place, TensorLayout
from gbackprop.layers import Operation
from gbackprop.layers.norms.affine import Plus, Times


@dataclass
class FunctionCall:
    """A call with its arguments by the names of torch's schema: `Place`, `Fixed` or plain values."""

    assembly: Any
    node: torch.fx.Node
    given: dict[str, Any]
    layout: TensorLayout  # of the output, or of its first tensor

    def __getattr__(self, name: str) -> Any:
        try:
            return self.given[name]
        except KeyError:
            raise AttributeError(name) from None

    # -------------------------------------------------------------------------------------------------------- nodes

    def shape(self, name: str) -> Shape:
        """Return the features of a node."""
        return self.assembly.shapes[name]

    def add(self, layer: Layer, *sources: str) -> str:
        """Add a node; return its name."""
        return self.assembly.add(self.node, layer, *sources)

    def op(self, row: str, *sources: str, **options: Any) -> str:
        """Add a node of a row of the table; return its name."""
        return self.add(Operation(row, **options), *sources)

    def dtype(self, key: str) -> torch.dtype:
        """Return the dtype that an argument has in torch."""
        names = [argument.name for argument in self.node.target._schema.arguments]
        raw = {**dict(zip(names, self.node.args)), **self.node.kwargs}[key]
        return raw.meta["val"].dtype if isinstance(raw, torch.fx.Node) else torch.as_tensor(raw).dtype

    def place(self, value: Any, floats: bool = True) -> Place:
        """Return an operand as a tensor of the network; fixed numbers become a node."""
        if isinstance(value, Place):
            return value
        if not isinstance(value, Fixed):
            dtype = torch.float64 if isinstance(value, float) else None
            value = Fixed(torch.as_tensor(value, dtype=dtype), TensorLayout(()), "number")
        return Place(self.assembly.constant(self.node, value, floats), value.layout)

    def reshape(self, name: str, shape: Shape) -> str:
        """Add a reshape to features of a shape, where it is one."""
        before = self.shape(name)
        if before == tuple(shape):
            return name
        merges, splits = _steps(before, tuple(shape)) if before and shape else (None, None)
        if merges is None and splits is None:
            return self.op("reshape", name, shape=tuple(shape))
        for layer in filter(None, (merges, splits)):
            name = self.add(layer, name)
        return name

    # ----------------------------------------------------------------------------------------------------- operands

    def aligned(self, *values: Any, floats: bool = True) -> list[str]:
        """Return operands whose features broadcast as torch's tensors do; one without samples lacks their axis."""
        places = [self.place(value, floats) for value in values]
        return [self.fitted(place, self.layout, len(self.layout.shape)) for place in places]

    def fitted(self, place: Place, to: TensorLayout, ndim: int) -> str:
        """Return a tensor's node beside others of a layout, where all have axes up to `ndim`, from the last on."""
        own, before = place.layout, ndim - len(place.layout.shape)
        if to.axis is None:
            return place.name
        if own.axis is not None:
            if own.axis + before != to.axis or (own.shape[own.axis], own.outer) != (to.shape[to.axis], to.outer):
                raise UnsupportedError(f"{MIXED}, got tensors that have the samples in different places")
            return place.name
        at = to.axis - before
        if at < 0 or to.shape[to.axis] > 1:
            return place.name
        if own.shape[at] != 1:
            raise UnsupportedError(f"{MIXED}, got a tensor of {own.shape[at]} rows for the samples")
        return self.reshape(place.name, own.shape[:at] + own.shape[at + 1 :])

    def plain(self, value: Any) -> str:
        """Return the node of a tensor that has the samples as axis 0, as layers of images take it."""
        place = self.place(value)
        if place.layout.axis is None and place.layout.shape[:1] == (1,):
            return self.reshape(place.name, place.layout.shape[1:])
        if not place.layout.is_plain:
            raise UnsupportedError(f"expected a tensor (N, …) with the samples alone as axis 0, got {place.layout}")
        return place.name

    def reshaped_to(self, value: Any) -> str:
        """Return the operand in the output's shape."""
        return self.reshape(self.place(value).name, self.layout.features)

    # -------------------------------------------------------------------------------------------------- arithmetic

    def plus(self, *values: Any) -> str:
        """Return the sum of operands, of which one may be a number."""
        return self._joined("add", layers.Add, values)

    def times(self, *values: Any) -> str:
        """Return the product of operands, of which one may be a number."""
        return self._joined("multiply", layers.Multiply, values)

    def _joined(self, row: str, kind: type[Layer], values: Sequence[Any]) -> str:
        a, b = sorted(values, key=is_number)
        if is_number(b):
            neutral = 0 if row == "add" else 1
            name = self.place(a).name
            return name if b == neutral else self.add((Plus if row == "add" else Times)(finite(b)), name)
        names = self.aligned(*values)
        varies = all(isinstance(v, Place) and v.layout.axis is not None for v in (a, b))
        if varies and self.shape(names[0]) == self.shape(names[1]):
            return self.add(kind(), *names)
        return self.op(row, *names)

    def scaled(self, name: str, factor: float) -> str:
        """Return a node times a number."""
        return name if factor == 1 else self.add(Times(finite(factor)), name)


def is_number(value: Any) -> bool:
    """Return whether an operand is a number."""
    return isinstance(value, int | float) or (isinstance(value, Fixed) and value.number is not None)


def finite(value: Any) -> float:
    """Return a number that is finite."""
    number: Any = value.number if isinstance(value, Fixed) else value
    if isinstance(number, bool) or not abs(number) < float("inf"):
        raise UnsupportedError(f"expected tensors or finite numbers, got {number!r}")
    return float(number)


def _steps(before: Shape, after: Shape) -> tuple[Layer | None, Layer | None]:
    """Return what merges axes of features and splits them, if both shapes have as many numbers."""
    if prod(before) != prod(after) or not prod(before):
        return None, None
    first = min(_equal(before, after), len(before) - 1, len(after) - 1)  # an axis of each shape is left
    last = _equal(before[:first:-1], after[:first:-1])
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    merge = layers.Flatten(first + 1, first + len(old) if last else -1) if len(old) > 1 else None
    return merge, layers.Unflatten(first + 1, new) if len(new) > 1 else None


def _equal(one: Shape, other: Shape) -> int:
    """Return how many sizes two shapes have in common at their start."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def move(call: FunctionCall, value: Any) -> str:
    """Return a call that only moves numbers, by the places from which torch takes them in a batch of two samples."""
    place = call.place(value)
    before, shape = place.layout, place.layout.features
    count = prod(shape)
    n = 1 if before.axis is None else 2
    places = torch.arange(n * count, dtype=torch.float64).reshape(n, *shape)
    found = call.assembly.again(call.node, as_torch(places, before), n)
    rows = as_samples(found, call.layout, n).long()
    if any(not torch.equal(rows[0] + i * count, rows[i]) for i in range(n)):
        raise UnsupportedError(f"{MIXED}, got numbers that change samples")
    return call.op("gather", place.name, places=rows[0].numpy())


def as_torch(x: torch.Tensor, layout: TensorLayout) -> torch.Tensor:
    """Return samples ``(N, *features)`` as torch's tensor of a layout."""
    if layout.axis is None:
        return x.reshape(layout.shape)
    i, k = layout.axis, layout.shape[layout.axis]
    ahead, inner = layout.first, k // layout.outer
    whole = x.reshape(len(x), ahead, -1).transpose(0, 1)
    return whole.reshape(*layout.shape[:i], layout.outer * len(x) * inner, *layout.shape[i + 1 :])


def as_samples(x: torch.Tensor, layout: TensorLayout, n: int) -> torch.Tensor:
    """Return torch's tensor of a layout as samples ``(N, *features)``."""
    if layout.axis is None:
        return x.reshape(1, *layout.shape)
    if x.numel() != n * prod(layout.shape):
        raise UnsupportedError(MIXED)
    return x.reshape(layout.first, n, -1).transpose(0, 1).reshape(n, *layout.features)
