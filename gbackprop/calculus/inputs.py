"""Checks of layers' inputs: floats, or at the network's input integers; and the draws of training mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gbackprop.array import FLOATS, Array
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import INPUT, Leaf
from gbackprop.calculus.several import InputPart


def check_input(leaves: Sequence[Leaf], x: Array) -> Array:
    """Check that layers get what they take; return an array of the dtype in which the network computes."""
    integers: dict[int, Array | None] = {INPUT: x if x.dtype.kind != "f" else None}  # the values, None for floats
    makers: dict[int, Leaf | None] = {INPUT: None}  # the layer that computed the values, None if they are the input's
    for leaf in leaves:
        if not leaf.sources:
            integers[leaf.position], makers[leaf.position] = None, leaf
            continue
        if isinstance(leaf.layer, InputPart) and leaf.sources == (INPUT,):
            integers[leaf.position], makers[leaf.position] = leaf.layer.indices(x), None
            continue
        takes, at, maker = leaf.layer.takes, integers[leaf.sources[0]], makers[leaf.sources[0]]
        if takes == "integers" and maker is not None:
            raise TypeError(
                f"{leaf}: expected an array of integers, the network's input, got the output of {maker} "
                "(an index has no derivative, so this layer must be the first)"
            )
        if takes != "any" and any((integers[source] is None) != (takes == "floats") for source in leaf.sources):
            raise TypeError(f"x: expected {_expected(takes)}, got {x.dtype} ({leaf} takes {takes})")
        if takes == "integers":
            leaf.layer.check_indices(str(leaf), at)  # type: ignore[attr-defined]
        integers[leaf.position] = leaf.layer.forward(at)[0] if takes == "any" and at is not None else None
        makers[leaf.position] = maker if takes == "any" else leaf
    if integers[len(leaves) - 1] is not None:
        raise TypeError(f"x: expected {_expected('floats')}, got {x.dtype} (no layer takes integers)")
    if x.dtype.kind == "f":
        return x
    dtypes = (value.dtype for leaf in leaves for value in leaf.layer.parameters.values())
    return x[:0].astype(next(dtypes, np.dtype("float32")))


def _expected(takes: str) -> str:
    return " or ".join(FLOATS) if takes == "floats" else "an array of integers"


def noise_of(leaf: Leaf, batch: int, rng: np.random.Generator) -> Any:
    """Draw the random numbers of a layer's training pass for a batch of `batch` samples."""
    if not leaf.sources:
        return None
    try:
        return leaf.layer.noise((batch, *leaf.input_shapes[0]), rng)
    except (UnsupportedError, ValueError) as error:
        raise type(error)(f"{leaf}: {error}") from None
