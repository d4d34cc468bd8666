"""Checks that a call changes no argument, stores nothing, and gives the same result the next time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Snapshot = dict[str, Any]
"""Everything reachable from an object that can change, by path."""

VALUES = (str, bytes, int, float, complex, bool)


def snapshot(thing: Any, path: str = "", seen: frozenset[int] = frozenset()) -> Snapshot:
    """Copy all numbers reachable from `thing` through attributes, dicts, lists and tuples."""
    if isinstance(thing, np.ndarray):
        return {path: (thing.shape, thing.dtype.str, thing.tobytes())}
    if type(thing) in VALUES:
        return {path: thing}
    if id(thing) in seen:
        return {}
    if isinstance(thing, (dict, Mapping)):  # most are dicts, of which Python knows without looking further
        parts = [(f"{path}[{key!r}]", value) for key, value in thing.items()]
    elif isinstance(thing, (list, tuple)):
        parts = [(f"{path}[{i}]", value) for i, value in enumerate(thing)]
    elif isinstance(thing, np.random.Generator):
        parts = [(path, repr(thing.bit_generator.state))]
    elif hasattr(thing, "__dict__") and not callable(getattr(thing, "__get__", None)):
        parts = [(f"{path}.{name}", value) for name, value in vars(thing).items()]
    else:
        return {path: thing if isinstance(thing, VALUES) else id(thing)}
    found: Snapshot = {path: type(thing).__name__}
    for name, value in parts:
        found |= snapshot(value, name, seen | {id(thing)})
    return found


def changes(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the paths at which two snapshots differ."""
    return [path for path in before | after if before.get(path, changes) != after.get(path, changes)]


def impurity(call: Callable[[], Any], watched: Mapping[str, Any], *between: Callable[[], Any]) -> str:
    """Describe the side effect of a call, which is made again after each of others, or return an empty string."""
    before = {name: snapshot(thing) for name, thing in watched.items()}
    first = call()
    kept, found = snapshot(first), _written(before, watched)
    for other in between or (lambda: None,):
        if not found:
            other()
            found = _written(before, watched)
        if not found:
            second = call()
            found = _written(before, watched) or _changed(kept, first, second)
    return found


def _written(before: Mapping[str, Snapshot], watched: Mapping[str, Any]) -> str:
    """Describe the first thing that differs from its snapshot, or return an empty string."""
    for name, thing in watched.items():
        paths = changes(before[name], snapshot(thing))
        if paths:
            return f"writes to {name}" + (f", at {', '.join(paths[:3])}" if any(paths) else "")
    return ""


def _changed(kept: Snapshot, first: Any, second: Any) -> str:
    """Describe how a later result differs from the first, of which there is a snapshot, or return an empty string."""
    if changes(kept, snapshot(first)):
        return "a later call writes into what it returned"
    return "" if _same(first, second) else "gives another result when it is called again"


def _same(first: Any, second: Any) -> bool:
    """Return whether arrays are equal but for the last bits: threads may add up in another order."""
    if first is None or second is None:
        return first is second
    if np.shape(first) != np.shape(second):
        return False
    first, second = np.asarray(first), np.asarray(second)
    finite = np.isfinite(first)
    scale = float(np.max(np.abs(first), initial=0, where=finite))
    close = np.abs(first - second)[finite] <= 1e-6 * scale
    return bool(close.all()) and np.array_equal(first[~finite], second[~finite], equal_nan=True)
