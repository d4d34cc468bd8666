"""Vectors over all parameters: one array of D numbers, or one array for each parameter.

The D numbers are those of the parameters that are not frozen, in the order of `Plan.parameters`; those of each
parameter are in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from copy import copy
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite, array_module, is_array
from gbackprop.base.checks import check_same, kind_of
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.several import flattened, structured
from gbackprop.calculus.wrt import X
from gbackprop.engine.memory import result_like


class Layout:
    """The places of parameters in a vector of all their numbers.

    Parameters
    ----------
    values : dict
        The parameters' values by name.
    own : set of str
        The names of what has a row for each sample of the data: the input.
    network : Layer, optional
        By which several inputs have their structure in dictionaries.

    Attributes
    ----------
    shapes : dict
        The shape of each.
    size : int
        D.
    """

    def __init__(self, values: Mapping[str, Array], own: Set[str] = frozenset(), network: Any = None) -> None:
        self.shapes: dict[str, Shape] = {name: value.shape for name, value in values.items()}
        self.own, self.part, self.network = own, slice(None), network
        self.like = next(iter(values.values()))
        self.size = sum(map(prod, self.shapes.values()))

    def only(self, names: Iterable[str]) -> Layout:
        """Return the layout of some of the parameters, in the order of their names here."""
        some = copy(self)
        some.shapes = {name: self.shapes[name] for name in names}
        some.size = sum(map(prod, some.shapes.values()))
        return some

    def named(self, parts: dict[str, Array], single: bool = False) -> dict[str, Array]:
        """Return a dictionary for the user, of K vectors or of one."""
        return structured(self.network, {name: value[0] for name, value in parts.items()} if single else parts)

    def within(self, part: slice) -> Layout:
        """Return the layout for a piece of data: `split` takes its rows of the input, `join` puts zeros elsewhere."""
        some = copy(self)
        some.part = part
        return some

    def shape_of(self, name: str) -> Shape:
        """Return the shape of what a piece of the data has of a parameter."""
        shape = self.shapes[name]
        return (len(range(shape[0])[self.part]), *shape[1:]) if name in self.own else shape

    def places(self) -> dict[str, slice]:
        """Return the place of each parameter in a vector."""
        found, start = {}, 0
        for name, shape in self.shapes.items():
            found[name] = slice(start, start + prod(shape))
            start += prod(shape)
        return found

    def split(self, rows: Array) -> dict[str, Array]:
        """Return the parts of K vectors: ``[K, D] -> {name: [K, *p]}``."""
        places = self.places()
        found = {name: rows[:, places[name]].reshape(len(rows), *shape) for name, shape in self.shapes.items()}
        return {name: part[:, self.part] if name in self.own else part for name, part in found.items()}

    def join(self, parts: Mapping[str, Array]) -> Array:
        """Return K vectors from their parts: ``{name: [K, *p]} -> [K, D]``."""
        first = next(iter(parts.values()))
        rows = result_like(first, (len(first), self.size))
        for name, place in self.places().items():
            value = parts[name]
            if value.shape[1:] != self.shapes[name]:  # of the samples of a piece
                value = array_module(first).zeros((len(first), *self.shapes[name]), dtype=first.dtype)
                value[:, self.part] = parts[name]
            rows[:, place] = value.reshape(len(first), -1)
        return rows

    def rows(self, columns: Array, factor: float = 1) -> Array:
        """Return `factor` times K vectors that are columns as rows, in the parameters' dtype: ``[D, K] -> [K, D]``."""
        rows = result_like(columns, columns.shape[::-1], self.like.dtype)
        number = rows.dtype.type(factor)
        return array_module(rows).multiply(columns.T, number, out=rows, dtype=rows.dtype, casting="same_kind")

    def read(self, name: str, given: Mapping[str, Any]) -> tuple[Array, bool]:
        """Check a dictionary of arrays; return K vectors (K, D), and whether it is one without the axis K."""
        given = flattened(given) if X in given and X not in self.shapes else given
        given = {key: np.asarray(value) if isinstance(value, np.number) else value for key, value in given.items()}
        if set(given) != set(self.shapes):
            missing, unknown = [key for key in self.shapes if key not in given], list(given.keys() - self.shapes)
            names = list(self.shapes)
            raise ValueError(f"{name}: expected the parameters {names}, missing {missing}, unknown {unknown}")
        counts: dict[str, int | None] = {}
        for key, shape in self.shapes.items():
            value = given[key]
            check_numbers(f"{name}[{key!r}]", value, self.like)
            if value.shape != shape and value.shape[1:] != shape:
                raise ValueError(f"{name}[{key!r}]: expected shape {shape} or {('K', *shape)}, got {value.shape}")
            counts[key] = None if value.shape == shape else len(value)
        if len(set(counts.values())) != 1:
            raise ValueError(f"{name}: expected the same number K of vectors for each parameter, got {counts}")
        single = None in counts.values()
        cast = {key: given[key].astype(self.like.dtype, copy=False) for key in self.shapes}
        return self.join({key: value[None] if single else value for key, value in cast.items()}), single


def check_numbers(name: str, value: Any, like: Array, finite: bool = True) -> None:
    """Check that a vector is an array of floats, finite ones if asked for, on the device of `like`."""
    if not is_array(value):
        raise TypeError(f"{name}: expected a NumPy or CuPy array, got {kind_of(value)}")
    check_same(name, value, "the parameters", like, dtype=False)
    if value.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name}: expected float32 or float64, got {value.dtype}")
    if value.size == 0:
        raise ValueError(f"{name}: expected at least one vector, got shape {value.shape}")
    if finite and not all_finite(value):
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
