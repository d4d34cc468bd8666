"""Methods that are two forms of one thing: a subclass, or an object, may have one of its own, and not the other."""

from __future__ import annotations

from typing import Any


def go_together(x: Any, *names: str) -> bool:
    """Whether one class defines all of these methods of `x`, so that each is the others' other form."""
    if any(name in getattr(x, "__dict__", {}) for name in names):
        return False
    kinds = [next((kind for kind in type(x).__mro__ if name in vars(kind)), None) for name in names]
    return kinds[0] is not None and len(set(kinds)) == 1
