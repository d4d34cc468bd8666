"""The posterior's precision P = b H + Δ in three structures: full, Kronecker blocks, diagonal.

H is the curvature of Σₙ ℓ'ₙ, b the multiple of the likelihood, Δ the prior's precision, one number δ for each
parameter. All is computed in float64. H is positive semi-definite: where rounding makes an eigenvalue negative, it
counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, on_device_of
from gbackprop.calculus.layer import Shape
from gbackprop.kronecker import EigenKronecker, GroupedKronecker, Kronecker
from gbackprop.quantities.sharing import joined_bias

Precisions = Mapping[str, float]
"""δ by parameter name; of a weight with its bias in one block, by the weight's name."""

Rows = Mapping[str, Array]
"""K vectors over all parameters, ``[K, *p]`` of each."""

Root = Callable[[Rows], dict[str, Array]]
"""A matrix as a function of rows."""


class Structure(Protocol):
    """The functions of H that a posterior uses."""

    @property
    def names(self) -> list[str]:
        """The names of the parts that have a precision each."""

    def logdet(self, multiple: float, delta: Precisions) -> float:
        """Compute log det P."""

    def traces(self, multiple: float, delta: Precisions) -> dict[str, float]:
        """Compute the trace of P⁻¹ over the entries that each δ belongs to."""

    def root(self, multiple: float, delta: Precisions) -> Root:
        """Return the product of P^(−1/2), the symmetric root, with rows: ``[K, *p]`` to ``[K, d]``, in float64."""


@dataclass(frozen=True, eq=False)
class Full:
    """H as a matrix (D, D) over all parameters, in the order of their shapes."""

    shapes: Mapping[str, Shape]
    matrix: Array

    @property
    def names(self) -> list[str]:
        """The names of the parts that have a precision each."""
        return list(self.shapes)

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        xp = array_module(self.matrix)
        values, vectors = xp.linalg.eigh(self.matrix)
        return xp.maximum(values, 0), vectors

    def _decomposed(self, multiple: float, delta: Precisions) -> tuple[Array, Array]:
        """Return the eigenvalues and eigenvectors of P; those of H, once computed, where all δ are equal."""
        least = min(delta.values())
        if least == max(delta.values()):
            values, vectors = self._spectrum
            return multiple * values + least, vectors
        xp, size = array_module(self.matrix), len(self.matrix)
        added = np.concatenate([np.full(prod(shape), delta[name]) for name, shape in self.shapes.items()])
        whole = multiple * self.matrix
        whole[xp.arange(size), xp.arange(size)] += xp.asarray(added)
        values, vectors = xp.linalg.eigh(whole)
        return xp.maximum(values, least), vectors  # P is no smaller than Δ

    def logdet(self, multiple: float, delta: Precisions) -> float:
        with on_device_of(self.matrix):
            values, _ = self._decomposed(multiple, delta)
            return float(array_module(values).log(values).sum())

    def traces(self, multiple: float, delta: Precisions) -> dict[str, float]:
        with on_device_of(self.matrix):
            values, vectors = self._decomposed(multiple, delta)
            diagonal, traces, start = asnumpy((vectors**2 / values).sum(1)), {}, 0
        for name, shape in self.shapes.items():
            traces[name] = float(diagonal[start : start + prod(shape)].sum())
            start += prod(shape)
        return traces

    def root(self, multiple: float, delta: Precisions) -> Root:
        xp, stops = array_module(self.matrix), np.cumsum([prod(shape) for shape in self.shapes.values()])[:-1].tolist()
        with on_device_of(self.matrix):
            values, vectors = self._decomposed(multiple, delta)

        def product(rows: Rows) -> dict[str, Array]:
            with on_device_of(self.matrix):
                flat = xp.concatenate([flattened(rows[name]) for name in self.shapes], axis=1)
                whole = ((flat @ vectors) / xp.sqrt(values)) @ vectors.T
                return dict(zip(self.shapes, xp.split(whole, stops, axis=1), strict=True))

        return product


@dataclass(frozen=True, eq=False)
class Blocks:
    """H with a Kronecker block for each parameter, or for a weight with its bias as last column, by its name."""

    blocks: Mapping[str, EigenKronecker]

    @property
    def names(self) -> list[str]:
        """The names of the parts that have a precision each."""
        return list(self.blocks)

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        """The eigenvalues of each block, on the host."""
        return {name: asnumpy(block.eigenvalues) for name, block in self.blocks.items()}

    def logdet(self, multiple: float, delta: Precisions) -> float:
        return sum(float(np.log(multiple * values + delta[name]).sum()) for name, values in self.values.items())

    def traces(self, multiple: float, delta: Precisions) -> dict[str, float]:
        return {name: float((1 / (multiple * each + delta[name])).sum()) for name, each in self.values.items()}

    def root(self, multiple: float, delta: Precisions) -> Root:
        roots = {
            name: replace(block, eigenvalues=(multiple * block.eigenvalues + delta[name]) ** -0.5)
            for name, block in self.blocks.items()
        }

        def product(rows: Rows) -> dict[str, Array]:
            found = {}
            for name, root in roots.items():
                flat, bias = flattened(rows[name]), joined_bias(name)
                if bias in roots or bias not in rows:
                    found[name] = (root @ flat.T).T
                    continue
                k, outputs = flat.shape[0], rows[bias].shape[1]
                last, xp = flattened(rows[bias])[:, :, None], array_module(flat)
                both = xp.concatenate([flat.reshape(k, outputs, -1), last], axis=2).reshape(k, -1)
                both = (root @ both.T).T.reshape(k, outputs, -1)
                found[name], found[bias] = both[:, :, :-1].reshape(k, -1), both[:, :, -1]
            return found

        return product


class Diagonal(Blocks):
    """H as a diagonal, an array for each parameter."""

    blocks: Mapping[str, Any]

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        return {name: asnumpy(block) for name, block in self.blocks.items()}

    def root(self, multiple: float, delta: Precisions) -> Root:
        roots = {name: (multiple * block.ravel() + delta[name]) ** -0.5 for name, block in self.blocks.items()}
        return lambda rows: {name: flattened(rows[name]) * root for name, root in roots.items()}


def flattened(rows: Array) -> Array:
    """Return ``[K, *p]`` as ``[K, d]`` in float64."""
    return rows.reshape(len(rows), -1).astype("float64")


def of_blocks(values: Mapping[str, Any], factor: float) -> Blocks:
    """Return the structure of a quantity's values times `factor`: Kronecker blocks, or diagonals."""
    if not all(isinstance(value, Kronecker | GroupedKronecker | EigenKronecker) for value in values.values()):
        diagonals = {name: value.astype("float64") * factor for name, value in values.items()}
        return Diagonal({name: array_module(value).maximum(value, 0) for name, value in diagonals.items()})
    return Blocks({name: _eigen(value, factor) for name, value in values.items()})


def _eigen(block: Any, factor: float) -> EigenKronecker:
    """Return the block times `factor` by eigenvectors, in float64."""
    names = ("QA", "QB", "eigenvalues") if isinstance(block, EigenKronecker) else ("A", "B")
    arrays = {name: getattr(block, name) for name in names}
    with on_device_of(block.QB if isinstance(block, EigenKronecker) else block.B):
        wide = {name: value if value is None else value.astype("float64") for name, value in arrays.items()}
        eigen = replace(block, **wide).eigh()
        values = array_module(eigen.QB).maximum(eigen.eigenvalues, 0)
        return replace(eigen, eigenvalues=values * factor)
