"""Forms of layers that take a part of an axis: columns are added into those that others carried to the same place."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.layers.moves.indexing import Select, Slice


def into(layer: Slice | Select, saved: Any, mat: Array, place: Array) -> None:
    """Add Pᵀ g ``[V, N, *out]`` to `place`, ``[V, N, *in]``: nothing is made of the size of the whole axis."""
    place[(slice(None), *layer._where(len(saved)))] += mat
