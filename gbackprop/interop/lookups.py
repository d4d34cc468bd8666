"""torch's functions that take parts by integers: rows of a weight, entries of an axis."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from gbackprop import layers
from gbackprop.base.errors import UnsupportedError
from gbackprop.interop.calls import FunctionCall, move
from gbackprop.interop.layouts import Fixed, Place
from gbackprop.layers.embedding import OneHot


def embedding(call: FunctionCall) -> str:
    """Return rows of a weight, by integers that are the network's input or fixed."""
    indices, weight = call.indices, call.place(call.weight)
    if call.given.get("scale_grad_by_freq"):
        raise UnsupportedError("scale_grad_by_freq: expected False")
    rows, size = weight.layout.shape
    padding = call.given["padding_idx"]
    if isinstance(indices, Fixed):
        if padding >= 0:
            raise UnsupportedError("padding_idx: expected None for fixed indices")
        return call.op("take", weight.name, indices=indices.value.numpy(), axis=1)
    kind = layers.Embedding(rows, size, None if padding < 0 else padding)
    path = call.assembly.owner(call, ["weight"], lambda: kind)
    if path is not None:
        return call.assembly.owned(call.node, path, indices.name)
    chosen = call.add(OneHot(rows), indices.name)
    found = call.op("matmul", chosen, weight.name)
    if padding < 0:
        return found
    raise UnsupportedError("padding_idx: expected None of a weight that other modules use, too")


def one_hot(call: FunctionCall) -> str:
    """Return rows of the identity."""
    if call.num_classes < 1:
        raise UnsupportedError("num_classes: expected their number")
    return call.add(OneHot(call.num_classes), call.place(call.self).name)


def index(call: FunctionCall) -> str:
    """Return entries by integers; rows of a table by integers that are data."""
    if not any(isinstance(value, Place) for value in call.indices):
        return move(call, call.self)
    table, kind = call.place(call.self), call.node.args[1][0]
    if len(call.indices) > 1 or table.layout.axis is not None or kind.meta["val"].dtype == torch.bool:
        raise UnsupportedError("indices: expected fixed integers, or rows of a table, got numbers of the data")
    rows, *rest = table.layout.shape
    chosen = call.add(OneHot(rows), call.indices[0].name)
    return call.reshape(call.op("matmul", chosen, call.reshape(table.name, (rows, prod(rest)))), call.layout.features)


def gather(call: FunctionCall) -> str:
    """Return entries by fixed integers; by integers that are data, those of a fixed tensor with one axis."""
    table = call.self
    if not isinstance(call.index, Place):
        return move(call, table)
    size = None if isinstance(table, Place) else table.layout.shape[call.dim]
    if size is None or table.layout.axis == call.dim or prod(table.layout.features) != size:
        raise UnsupportedError("index: expected fixed integers, got numbers of the data")
    chosen = call.add(OneHot(size), call.index.name)
    return call.op("matmul", chosen, call.reshape(call.place(table).name, (size,)))


def index_added(call: FunctionCall) -> str:
    """Return a tensor to which parts of another are added, at fixed places of an axis."""
    if isinstance(call.index, Place) or call.dim % len(call.layout.shape) == call.layout.axis:
        raise UnsupportedError("index: expected fixed integers of an axis without the samples")
    source = call.place(call.source)
    size = call.layout.shape[call.dim]
    matrix = torch.nn.functional.one_hot(call.index.value.long(), size).T.to(call.assembly.dtype).numpy()
    axis = source.layout.axis_of(call.dim) - len(source.layout.features) - 1
    moved = call.op("along", source.name, matrix=matrix, axis=axis)
    return call.plus(call.self, Place(call.scaled(moved, call.given["alpha"]), call.layout))


LOOKUPS: dict[str, Callable[[FunctionCall], Any]] = {
    "embedding": embedding, "one_hot": one_hot, "index": index, "gather": gather, "index_select": gather,
    "index_add": index_added,
}  # fmt: skip
"""torch's functions by name: each gives the name of a node."""
