"""Casts of torch's integers to narrow ones, which wrap what is too large: numbers here do not."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import torch

from gbackprop.base.errors import UnsupportedError

NARROW = {torch.uint8, torch.int8, torch.int16}
"""Integers for which what is larger in others has another value."""


def check_cast(value: torch.fx.Node, before: torch.dtype, after: torch.dtype) -> None:
    """Check that integers of one dtype are the same in another."""
    from_, to = torch.iinfo(before), torch.iinfo(after)
    if (from_.min < to.min or from_.max > to.max) and largest(value) > to.max:
        raise UnsupportedError(f"expected a cast to integers that have all of {before}, got {after}")


def largest(value: Any) -> float:
    """Return a bound of integers from 0 on that follow from conditions, infinity for others."""
    if not isinstance(value, torch.fx.Node):
        return value if isinstance(value, int) and value >= 0 else inf
    found, args = value.meta["val"], value.args
    name = value.target._schema.name.partition("::")[2] if value.op == "call_function" else ""
    if found.dtype == torch.bool:
        return 1
    if name in ("_to_copy", "to", "type_as"):
        return largest(args[0])
    if name == "cumsum" and isinstance(count := found.shape[args[1]], int):
        return count * largest(args[0])
    return prod(map(largest, args)) if name == "mul" else inf
