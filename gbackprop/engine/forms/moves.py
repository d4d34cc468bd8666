"""Forms of layers that move numbers, and padding for other forms.

Only the margins of a padded image are filled, in reused memory. Columns through a part of an axis are added into those
that others carried to the same place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gbackprop.array import Array, channels_first, channels_last
from gbackprop.calculus.window import Padding, pad
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, LayerForms
from gbackprop.engine.routes import Route, numbered
from gbackprop.layers.moves.indexing import Select, Slice
from gbackprop.layers.moves.reshape import Flatten, Identity, _ZeroPad
from gbackprop.layers.windows.padding import _ConstantPad


def padded(x: Array, padding: Padding, memory: Allocator, value: float = 0.0) -> Array:
    """Compute `calculus.window.pad`."""
    if not any(map(any, padding)):
        return x
    if not isinstance(x, np.ndarray) or max(map(max, padding)) <= 0:
        return pad(x, padding, value)
    spatial = x.shape[1:-1]
    crop = tuple(slice(max(-b, 0), s - max(-a, 0)) for s, (b, a) in zip(spatial, padding, strict=True))
    into = tuple(slice(max(b, 0), max(b, 0) + c.stop - c.start) for c, (b, _) in zip(crop, padding, strict=True))
    out = memory.empty(x, (x.shape[0], *(s + b + a for s, (b, a) in zip(spatial, padding)), x.shape[-1]))
    for axis, inside in enumerate(into, start=1):
        out[(slice(None),) * axis + (slice(0, inside.start),)] = value
        out[(slice(None),) * axis + (slice(inside.stop, None),)] = value
    out[(slice(None), *into)] = x[(slice(None), *crop)]
    return out


def pad_forward(layer: _ZeroPad, x: Array, context: Context) -> tuple[Array, Any]:
    """y = x with zeros around."""
    return channels_first(padded(channels_last(x), layer.padding, context.memory)), x.shape[2:]


def pad_carry(layer: _ZeroPad, saved: Any, mat: Array, context: Context) -> Array:
    """g without the padding."""
    padding = tuple((-before, -after) for before, after in layer.padding)
    rows = padded(channels_last(mat.reshape(-1, *mat.shape[2:])), padding, context.memory)
    return channels_first(rows).reshape(*mat.shape[:3], *rows.shape[1:-1])


def through_padding(layer: _ZeroPad, saved: Any, above: Route | None, context: Context) -> Route | None:
    """Return the route to the moved places."""
    return None if above is None else above.through(pad(numbered(saved), layer.padding, -1).reshape(1, -1, 1))


def through_identity(layer: Identity, saved: Any, above: Route | None, context: Context) -> Route | None:
    """Return the same route."""
    return above


def add_to(layer: Slice | Select, saved: Any, mat: Array, place: Array) -> None:
    """Add Pᵀ g ``[V, N, *out]`` to `place`, ``[V, N, *in]``: nothing is made of the size of the whole axis."""
    place[(slice(None), *layer._where(len(saved)))] += mat


ZERO_PAD = LayerForms(_ZeroPad, forward=pad_forward, carry=pad_carry, pure=True, routes=through_padding)

ROWS = [
    ZERO_PAD,
    replace(ZERO_PAD, kind=_ConstantPad, forward=None, routes=None),
    LayerForms(Flatten, pure=True),
    LayerForms(Identity, pure=True, routes=through_identity),
    LayerForms(Slice, add_to=add_to, pure=True),
    LayerForms(Select, add_to=add_to, pure=True),
]
