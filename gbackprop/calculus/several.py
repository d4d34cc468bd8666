"""Several inputs of a network: the columns of one array [N, F], side by side, from which each is taken."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import FLOAT_NAMES, FLOATS, Array, array_module, bounds, is_array
from gbackprop.base.checks import check_array, check_same
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import INPUT, Nodes, Shape
from gbackprop.calculus.wrt import InputRows, X

KINDS = {"floats": "f", "integers": "iu", "numbers": "iub"}
"""The kinds of inputs, and of the dtypes that they have: "integers" are indices, "numbers" (masks) become floats."""

LARGEST = {"float32": 2**24, "float64": 2**53, "int64": 2**63 - 1}
"""The largest integer up to which a dtype has all of them."""


class InputPart(InputRows):
    """One of several inputs, and its rows as a parameter where derivatives in it are asked for."""

    asked = False  # of each copy in a network
    formulas = {"forward": "y = columns of x", "mjp": "g in these columns"}

    def __init__(self, shape: Shape, start: int, kind: str) -> None:
        super().__init__(shape)
        self.start, self.kind = start, kind
        self.takes = "integers" if kind == "integers" else "floats"  # type: ignore[misc]

    def parameter_shapes(self) -> dict[str, Shape]:
        return super().parameter_shapes() if self.asked else {}

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return super().parameter_jacobians(saved) if self.asked else {}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 1 or shape[0] < self.start + prod(self.shape):
            raise ValueError(f"expected the inputs side by side, with {self.start + prod(self.shape)} columns or more, "
                             f"got features {shape}")  # fmt: skip
        return self.shape

    def _columns(self, x: Array) -> Array:
        return x[..., self.start : self.start + prod(self.shape)]

    def forward(self, x: Array) -> tuple[Array, Any]:
        part = array_module(x).ascontiguousarray(self._columns(x)).reshape(len(x), *self.shape)
        return part.real.astype("int64") if self.kind == "integers" else part, x.shape[1:]

    def indices(self, x: Array) -> Array | None:
        """Return the values of an input of integers, None for one of floats."""
        if self.kind != "integers":
            return None
        part, _ = self.forward(x)
        if x.dtype.kind == "f" and not bool((part.reshape(len(x), -1) == self._columns(x)).all()):
            raise TypeError("x: expected integers in the columns of an input of integers, got others")
        return part

    def jmp(self, saved: Any, mat: Array) -> Array:
        return self._columns(mat).reshape(*mat.shape[:2], *self.shape)

    def mjp(self, saved: Any, mat: Array) -> Array:
        whole = array_module(mat).zeros((*mat.shape[:2], *saved), dtype=mat.dtype)
        self._columns(whole)[...] = mat.reshape(*mat.shape[:2], -1)
        return whole


class Inputs:
    """The inputs of a network that has several.

    Parameters
    ----------
    given : mapping of str to shape, or sequence of shapes
        A tuple of integers for each, without the batch axis; ("integers", …) for indices, ("numbers", …) for other
        integers or booleans.

    Attributes
    ----------
    named : bool
        Whether x is a dictionary; a tuple otherwise.
    parts : dict of str to InputPart
        By name, or by number as text.
    width : int
        F, the number of columns of all.
    """

    def __init__(self, given: Any) -> None:
        self.named, self.parts, self.width = isinstance(given, Mapping), dict[str, InputPart](), 0
        if not given or not isinstance(given, Mapping | list | tuple):
            raise TypeError(f"inputs: expected shapes by name, or in a list, got {given!r:.80}")
        for key, each in given.items() if isinstance(given, Mapping) else enumerate(given):
            sizes = tuple(each) if isinstance(each, tuple | list) else (each,)
            kind = sizes[0] if sizes and sizes[0] in KINDS else "floats"
            shape = tuple(sizes[1:] if sizes[:1] == (kind,) else sizes)
            if (self.named and not isinstance(key, str)) or not all(type(size) is int and size > 0 for size in shape):
                raise ValueError(f"inputs: expected names with positive sizes after the batch, got {key!r}: {each!r}")
            self.parts[str(key)] = InputPart(shape, self.width, kind)
            self.width += prod(shape)

    @classmethod
    def of(cls, x: Any) -> Inputs | None:
        """Return the inputs of which arrays in a dictionary or tuple are a batch, None for one array."""
        kinds = {"f": (), "b": ("numbers",)}
        found = {key: kinds.get(part.dtype.kind, ("integers",)) + part.shape[1:] for key, part in items_of(x)}
        return cls(found if isinstance(x, Mapping) else list(found.values())) if found else None

    @property
    def shapes(self) -> Any:
        """The shapes as they are given."""
        shapes = {key: ((part.kind,) * (part.kind != "floats")) + part.shape for key, part in self.parts.items()}
        return shapes if self.named else list(shapes.values())

    def place(self, nodes: Nodes, source: int) -> dict[str, int]:
        """Append each input; return their positions by name."""
        at = {}
        for key, part in self.parts.items():
            name = f"{X}.{key}"
            layer = copy(part)
            layer.asked = source == INPUT and name in (nodes.wrt or ())
            at[key] = nodes.add(name, layer, source)
        return at

    def packed(self, x: Any, dtype: Any = "float32") -> Array:
        """Check a batch of all inputs; return their columns side by side, in the dtype of those of floats.

        Indices alone are packed as such; with numbers, but without floats, in `dtype`.
        """
        if is_array(x):
            if x.ndim != 2 or x.shape[1] != self.width:
                raise ValueError(f"x: expected {self._expected()}, got an array of shape {x.shape}")
            return x
        given, first = self._given(x), ""
        for name, part in given.items():
            self._check(name, part, list(self.parts.values())[list(given).index(name)])
            if first and len(part) != len(given[first]):
                raise ValueError(f"{name}: expected {len(given[first])} samples as in {first}, got {len(part)}")
            check_same(name, part, first or name, given[first or name], dtype=False)
            first = first or name
        floats = [name for name, part in given.items() if part.dtype.kind == "f"]
        for name in floats:
            check_same(name, given[name], floats[0], given[floats[0]])
        all_indices = all(part.kind == "integers" for part in self.parts.values())
        dtype = given[floats[0]].dtype.name if floats else "int64" if all_indices else np.dtype(dtype).name
        for name, part in given.items():
            if part.dtype.kind != "f" and max(map(abs, map(int, bounds(part)))) > LARGEST[dtype]:
                raise ValueError(f"{name}: expected integers up to {LARGEST[dtype]}, which {dtype} has, got larger")
        columns = [part.reshape(len(part), -1).astype(dtype, copy=False) for part in given.values()]
        return array_module(columns[0]).concatenate(columns, axis=1)

    def _expected(self) -> str:
        return f"a {'dictionary' if self.named else 'tuple'} of arrays of shapes {self.shapes!r}"

    def _given(self, x: Any) -> dict[str, Any]:
        """Return the arrays of x by their names in messages, in order."""
        keys = list(self.parts)
        if isinstance(x, Mapping) and self.named:
            if set(x) != set(keys):
                missing, unknown = [key for key in keys if key not in x], [key for key in x if key not in keys]
                raise ValueError(f"x: expected the inputs {keys}, missing {missing}, unknown {unknown}")
            return {f"x[{key!r}]": x[key] for key in keys}
        if not isinstance(x, tuple | list):
            raise TypeError(f"x: expected {self._expected()}, got {type(x).__name__}")
        if len(x) != len(keys):
            raise ValueError(f"x: expected {len(keys)} inputs, {self._expected()}, got {len(x)}")
        return {f"x[{key!r}]" if self.named else f"x[{key}]": part for key, part in zip(keys, x, strict=True)}

    @staticmethod
    def _check(name: str, x: Any, part: InputPart) -> None:
        check_array(name, x)
        if x.dtype.kind not in KINDS[part.kind] or (x.dtype.kind == "f" and x.dtype not in FLOAT_NAMES):
            expected = {"floats": " or ".join(FLOATS), "numbers": "integers or booleans"}.get(part.kind, part.kind)
            raise TypeError(f"{name}: expected {expected}, got {x.dtype}")
        if x.ndim == 0 or len(x) == 0 or x.shape[1:] != part.shape:
            raise ValueError(f"{name}: expected shape {('N', *part.shape)}, N at least 1, got {x.shape}")


class ByInput(dict[str, Any]):
    """Values by name; those of all inputs, in the structure of x, have the name "x", None where there are none."""

    def __init__(self, values: Mapping[str, Any], inputs: Inputs) -> None:
        super().__init__(values)
        self.inputs = inputs

    def __missing__(self, key: str) -> Any:
        if key != X:
            raise KeyError(key)
        found = {each: self.get(f"{X}.{each}") for each in self.inputs.parts}
        return found if self.inputs.named else tuple(found.values())


def structured(network: Any, values: Mapping[str, Any]) -> Any:
    """Return values by name, among them those of several inputs, with all of these by "x", too."""
    return of_inputs(getattr(network, "several", None), values)


def of_inputs(inputs: Inputs | None, values: Mapping[str, Any]) -> Any:
    """Return values by name, with those of all inputs by "x", too, if there are any."""
    if inputs is None or not any(f"{X}.{key}" in values for key in inputs.parts):
        return values
    return ByInput(values, inputs)


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with those of "x" by the names of the inputs."""
    rest = {name: value for name, value in values.items() if name != X}
    return rest | {f"{X}.{key}": value for key, value in items_of(values[X]) if value is not None}


def items_of(x: Any) -> list[tuple[str, Any]]:
    """Return the keys of several inputs as text, with the inputs; nothing for one input."""
    pairs = x.items() if isinstance(x, Mapping) else enumerate(x) if isinstance(x, tuple | list) else ()
    return [(str(key), value) for key, value in pairs]
