"""Attributes of classes: which of them count, and whether they are as they were."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

LIBRARIES = (sys.stdlib_module_names | {"gbackprop", "numpy", "scipy", "cupy", "torch", "numba"}) - {"test", "this"}
"""Packages whose classes count by name: they change with their versions alone."""

_PYTHONS = {"__slotnames__", "__annotations__", "__doc__"}
"""Attributes that Python itself writes into a class, as copies and pickles do, or that change no number."""


def attributes_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class in the order of their names, without those that Python makes of its text."""
    for name, value in sorted(vars(kind).items()):
        function = isinstance(value, FunctionType | staticmethod | classmethod | property)
        if function or not (name.startswith("__") or name == "_abc_impl"):
            yield name, value


def is_foreign(kind: type) -> bool:
    """Return whether a class belongs to no library, so that its attributes count."""
    return not is_of_library(str(kind.__module__))


def is_of_library(module: str) -> bool:
    """Return whether a module is one of a library, or of Python's own."""
    return module.partition(".")[0] in LIBRARIES


def changed_class(kinds: Mapping[type, dict[str, Any]]) -> type | None:
    """Return a class that lacks the attributes that it had; what Python has written since is added to them."""
    for kind, before in kinds.items():
        if kind.__dict__ != before:
            if _counting(vars(kind)) != _counting(before):
                return kind
            before.update(vars(kind))
    return None


def _counting(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in _PYTHONS}
