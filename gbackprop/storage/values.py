"""Values as a tree of JSON that refers to arrays by name: what a file has beside its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from gbackprop.array import asnumpy, is_array
from gbackprop.kronecker import BlockDiagonal, EigenKronecker, GroupedKronecker, Kronecker, SumOfBlocks
from gbackprop.quantities.kronecker_error import BlockError

KINDS = (Kronecker, GroupedKronecker, EigenKronecker, SumOfBlocks, BlockDiagonal, BlockError)
"""The blocks, and their errors, that a file can have; those of a user's class it cannot."""

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("bool", *INTEGERS, "float16", "float32", "float64", "complex64")
"""The dtypes of the format that NumPy has."""

EXPECTED = "an array, a block of gb.kronecker, a number, text, None, or a list, tuple or dict of these"


class Writer:
    """Arrays by name, as values are put into a tree. An array that is in several places is one of the file."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, tuple[str, Any]] = {}  # by identity; with the array, so that it lives as long

    def tree(self, where: str, value: Any) -> Any:
        """Return the tree of a value.

        Raises
        ------
        TypeError
            If there is something in it that a file cannot have; the message begins with `where`.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        if is_array(value) or isinstance(value, np.generic):
            return {"scalar" if isinstance(value, np.generic) else "array": self._array(where, value)}
        if type(value) in KINDS:
            parts = {field.name: getattr(value, field.name) for field in fields(value)}
            return {"block": [type(value).__name__, self._inside(where, parts)]}
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.tree(f"{where}/{i}", part) for i, part in enumerate(value)]}
        if isinstance(value, Mapping) and all(type(key) is str for key in value):
            return {"dict": self._inside(where, value)}
        raise TypeError(f"{where}: expected {EXPECTED}, got {type(value).__name__}")

    def _inside(self, where: str, parts: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.tree(f"{where}/{name}", part) for name, part in parts.items()}

    def _array(self, where: str, value: Any) -> str:
        if id(value) not in self._names:
            if value.dtype.name not in DTYPES:
                raise TypeError(f"{where}: expected a dtype among {', '.join(DTYPES)}, got {value.dtype}")
            name = where if where not in self.arrays else f"{where} ({len(self.arrays)})"
            self.arrays[name] = asnumpy(value)
            self._names[id(value)] = name, value
        return self._names[id(value)][0]


def value_of(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the value of a tree of `Writer`, with its arrays on the host.

    Raises
    ------
    KeyError, TypeError, ValueError
        If it is no such tree, or arrays are missing or do not fit together.
    """
    if not isinstance(tree, dict):
        return tree
    ((kind, inside),) = tree.items()
    if kind == "block":
        return {block.__name__: block for block in KINDS}[inside[0]](**value_of({"dict": inside[1]}, arrays))
    if kind in ("array", "scalar"):
        return arrays[inside] if kind == "array" else arrays[inside][()]
    if kind == "dict":
        return {name: value_of(part, arrays) for name, part in inside.items()}
    return {"list": list, "tuple": tuple}[kind](value_of(part, arrays) for part in inside)
