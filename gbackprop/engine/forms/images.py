"""Forms of `ZeroPad2d`, and padding for other forms: only the margins are filled, in reused memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, channels_first, channels_last
from gbackprop.calculus.window import Padding, pad
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.layers.moves.reshape import ZeroPad2d


def padded(x: Array, padding: Padding, memory: Allocator, value: float = 0.0) -> Array:
    """Compute `layers.window.pad`."""
    if not any(before or after for before, after in padding):
        return x
    if not isinstance(x, np.ndarray) or all(before <= 0 and after <= 0 for before, after in padding):
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


def forward(layer: ZeroPad2d, x: Array, context: Context) -> tuple[Array, Any]:
    """y = x with zeros around."""
    return channels_first(padded(channels_last(x), layer.padding, context.memory)), x.shape[2:]


def carry(layer: ZeroPad2d, saved: Any, mat: Array, context: Context) -> Array:
    """g without the padding."""
    padding = tuple((-before, -after) for before, after in layer.padding)
    rows = padded(channels_last(mat.reshape(-1, *mat.shape[2:])), padding, context.memory)
    return channels_first(rows).reshape(*mat.shape[:3], *rows.shape[1:-1])
