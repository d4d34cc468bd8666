"""Values as a tree of JSON that refers to arrays by name: what a file has beside its arrays."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from gbackprop.array import Array, asnumpy, is_array
from gbackprop.kronecker import Block, BlockDiagonal, EigenKronecker, GroupedKronecker, Kronecker, SumOfBlocks
from gbackprop.quantities.kronecker_error import BlockError

KINDS: tuple[type, ...] = (Kronecker, GroupedKronecker, EigenKronecker, SumOfBlocks, BlockDiagonal, BlockError)
"""The blocks, and their errors, that a file can have; those of a user's class it cannot."""

BLOCKS = {kind.__name__: kind for kind in KINDS}

PLAIN = (bool, int, float, str)
"""The types that JSON has; a file has them, and None, as they are."""


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
        """Return the tree of a value."""
        if value is None or type(value) in PLAIN:
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


class Reader:
    """The values of trees that `Writer` made, from the arrays of a file; each type is checked as it is read."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.left = set(arrays)
        """The names of the arrays that nothing has referred to."""

    def value(self, where: str, tree: Any) -> Any:
        """Return the value of a tree; raise a ValueError, which begins with `where`, if it is none."""
        if tree is None or type(tree) in PLAIN:
            return tree
        expect(where, tree, EXPECTED, isinstance(tree, dict) and len(tree) == 1)
        ((kind, inside),) = tree.items()
        if kind in ("array", "scalar"):
            return self._array(where, kind, inside)
        if kind == "dict":
            return self._inside(where, inside)
        if kind == "block":
            right = isinstance(inside, list) and len(inside) == 2 and isinstance(inside[0], str) and inside[0] in BLOCKS
            name, parts = expect(where, inside, "the class and the parts of a block", right)
            return self.made(where, BLOCKS[name], self._inside(where, parts))
        expect(where, kind, EXPECTED, kind in ("list", "tuple"))
        expect(where, inside, f"a {kind}", isinstance(inside, list))
        values = [self.value(f"{where}/{i}", part) for i, part in enumerate(inside)]
        return values if kind == "list" else tuple(values)

    def array(self, where: str, tree: Any) -> Array:
        """Return the array of a tree."""
        value = self.value(where, tree)
        return expect(where, value, "an array", is_array(value))

    def mapping(self, where: str, tree: Any, expected: str, right: Callable[[Any], bool]) -> dict[str, Any]:
        """Return the dict of a tree; all of its values must be right."""
        found = self.value(where, tree)
        expect(where, found, "a dict", isinstance(found, dict))
        for name, value in found.items():
            expect(f"{where}/{name}", value, expected, right(value))
        return found

    def made(self, where: str, kind: Any, arguments: dict[str, Any]) -> Any:
        """Return an object of a class, made of its arguments, which it checks."""
        try:
            made = kind(**arguments)
            if isinstance(made, Block):
                made.entries  # noqa: B018  # looks at the arrays
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from error
        if kind is BlockError:
            others = [value for name, value in arguments.items() if (name, value) != ("standard_error", None)]
            expect(where, arguments, "numbers", all(map(is_number, others)))
        return made

    def _inside(self, where: str, tree: Any) -> dict[str, Any]:
        expect(where, tree, "an object", isinstance(tree, dict))
        return {name: self.value(f"{where}/{name}", part) for name, part in tree.items()}

    def _array(self, where: str, kind: str, name: Any) -> Any:
        array = self.arrays[expect(where, name, "an array of the file", isinstance(name, str) and name in self.arrays)]
        self.left.discard(name)
        if kind == "array":
            return array
        return expect(where, array, "a scalar", not array.ndim)[()]


def is_number(value: Any) -> bool:
    """Return whether a value is a number, of Python or NumPy, and no truth value."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def expect(where: str, value: Any, expected: str, right: bool) -> Any:
    """Return the value if it is right; raise a ValueError otherwise."""
    if not right:
        raise ValueError(f"{where}: expected {expected}, got {reprlib.repr(value)}")
    return value


def parts(where: str, tree: Any, names: str, optional: str = "") -> dict[str, Any]:
    """Return an object of JSON that has these names, and no others but optional ones."""
    want, more = set(names.split()), set(optional.split())
    right = isinstance(tree, dict) and want <= set(tree) <= want | more
    return expect(where, tree, f"an object with {names.replace(' ', ', ')}", right)
