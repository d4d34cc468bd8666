"""The posterior's precision P = b H + Δ in three structures: full, Kronecker blocks, diagonal.

H is the curvature of Σₙ ℓ'ₙ, b the multiple of the likelihood, Δ the prior's precision, one number δ for each
parameter. All is computed in float64. H is positive semi-definite: where rounding makes an eigenvalue negative, it
counts as 0. P is b times Δ^(1/2) (H' + 1/b) Δ^(1/2) with H' = Δ^(−1/2) H Δ^(−1/2), whose eigenvalues have errors that
are small beside those of the prior, 1/b, unless H was summed by a network in float32: its rounding is curvature here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, Protocol

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, like, on_device_of
from gbackprop.calculus.layer import Shape
from gbackprop.curvature.laplace.graded import Eigh, Spectrum
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

    def root(self, multiple: float, delta: Precisions, transposed: bool = False) -> Root:
        """Return the product of rows with R, or Rᵀ, where R Rᵀ = P⁻¹: ``[K, *p]`` to ``[K, d]``, in float64."""


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
    def _spectrum(self) -> Spectrum:
        return spectrum_of(self.matrix)

    def _decomposed(self, multiple: float, delta: Precisions) -> tuple[Array, Array, Array]:
        """Return √δ of each entry, and 1 + b λ and the eigenvectors of H'; those of H where all δ are equal."""
        least = min(delta.values())
        roots = np.concatenate([np.full(prod(shape), delta[name]) for name, shape in self.shapes.items()]) ** 0.5
        of_prior = like(roots, self.matrix)
        if least == max(delta.values()):
            spectrum = self._spectrum
        else:
            least, spectrum = 1.0, spectrum_of(self.matrix / of_prior[:, None] / of_prior)
        values, vectors = spectrum.beside(least / multiple)
        return of_prior, 1 + multiple / least * values, vectors

    def logdet(self, multiple: float, delta: Precisions) -> float:
        with on_device_of(self.matrix):
            of_prior, values, _ = self._decomposed(multiple, delta)
            xp = array_module(values)
            return float(xp.log(values).sum() + 2 * xp.log(of_prior).sum())

    def traces(self, multiple: float, delta: Precisions) -> dict[str, float]:
        with on_device_of(self.matrix):
            of_prior, values, vectors = self._decomposed(multiple, delta)
            diagonal, traces, start = asnumpy((vectors**2 / values).sum(1) / of_prior**2), {}, 0
        for name, shape in self.shapes.items():
            traces[name] = float(diagonal[start : start + prod(shape)].sum())
            start += prod(shape)
        return traces

    def root(self, multiple: float, delta: Precisions, transposed: bool = False) -> Root:
        xp, stops = array_module(self.matrix), np.cumsum([prod(shape) for shape in self.shapes.values()])[:-1].tolist()
        with on_device_of(self.matrix):
            of_prior, values, vectors = self._decomposed(multiple, delta)

        def product(rows: Rows) -> dict[str, Array]:
            with on_device_of(self.matrix):
                flat = xp.concatenate([flattened(rows[name]) for name in self.shapes], axis=1)
                whole = (((flat if transposed else flat / of_prior) @ vectors) / xp.sqrt(values)) @ vectors.T
                whole = whole / of_prior if transposed else whole
                return dict(zip(self.shapes, xp.split(whole, stops, axis=1), strict=True))

        return product


@dataclass(frozen=True, eq=False)
class Blocks:
    """H with a Kronecker block for each parameter, or for a weight with its bias as last column, by its name."""

    blocks: Mapping[str, Kronecker | GroupedKronecker | EigenKronecker]  # in float64

    @cached_property
    def _spectra(self) -> dict[str, Spectrum]:  # of EigenKronecker
        return {name: Spectrum(float(each.trace()), partial(_decomposed, each)) for name, each in self.blocks.items()}

    @property
    def names(self) -> list[str]:
        """The names of the parts that have a precision each."""
        return list(self.blocks)

    def _beside(self, multiple: float, delta: Precisions) -> dict[str, EigenKronecker]:
        return {name: each.beside(delta[name] / multiple) for name, each in self._spectra.items()}

    def eigenvalues(self, multiple: float, delta: Precisions) -> dict[str, np.ndarray]:
        """Return the eigenvalues of each block of P, on the host."""
        blocks = self._beside(multiple, delta)
        return {name: multiple * asnumpy(block.eigenvalues) + delta[name] for name, block in blocks.items()}

    def logdet(self, multiple: float, delta: Precisions) -> float:
        return sum(float(np.log(values).sum()) for values in self.eigenvalues(multiple, delta).values())

    def traces(self, multiple: float, delta: Precisions) -> dict[str, float]:
        return {name: float((1 / values).sum()) for name, values in self.eigenvalues(multiple, delta).items()}

    def root(self, multiple: float, delta: Precisions, transposed: bool = False) -> Root:  # it is symmetric
        roots = {
            name: replace(block, eigenvalues=(multiple * block.eigenvalues + delta[name]) ** -0.5)
            for name, block in self._beside(multiple, delta).items()
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

    def eigenvalues(self, multiple: float, delta: Precisions) -> dict[str, np.ndarray]:
        return {name: multiple * asnumpy(block) + delta[name] for name, block in self.blocks.items()}

    def root(self, multiple: float, delta: Precisions, transposed: bool = False) -> Root:
        roots = {name: (multiple * block.ravel() + delta[name]) ** -0.5 for name, block in self.blocks.items()}
        return lambda rows: {name: flattened(rows[name]) * root for name, root in roots.items()}


def flattened(rows: Array) -> Array:
    """Return ``[K, *p]`` as ``[K, d]`` in float64."""
    return rows.reshape(len(rows), -1).astype("float64")


def of_blocks(values: Mapping[str, Any], factor: float) -> Blocks:
    """Return the structure of a quantity's values times `factor`: Kronecker blocks, or diagonals."""
    if not all(isinstance(value, Kronecker | GroupedKronecker | EigenKronecker) for value in values.values()):
        diagonals = {name: value.astype("float64", order="C") * factor for name, value in values.items()}
        return Diagonal({name: array_module(value).maximum(value, 0) for name, value in diagonals.items()})
    return Blocks({name: _wide(value) * factor for name, value in values.items()})


def _wide(block: Any) -> Any:
    """Return the block in float64."""
    names = ("QA", "QB", "eigenvalues") if isinstance(block, EigenKronecker) else ("A", "B")
    arrays = ((name, getattr(block, name)) for name in names)
    return replace(block, **{name: value if value is None else value.astype("float64") for name, value in arrays})


def _decomposed(block: Any, by: Eigh) -> EigenKronecker:
    """Return the block by eigenvectors of its factors."""
    if isinstance(block, EigenKronecker):
        return replace(block, eigenvalues=array_module(block.QB).maximum(block.eigenvalues, 0))
    with on_device_of(block.B):
        (values, qb), qa = by(block.B), None
        if block.A is not None:
            alpha, qa = by(block.A)
            values = values[..., :, None] * alpha[..., None, :]
        return EigenKronecker(qa, qb, values, block.channels_first)


def spectrum_of(matrix: Array) -> Spectrum:
    """Return the eigenvalues and eigenvectors of a matrix."""
    with on_device_of(matrix):
        return Spectrum(float(array_module(matrix).trace(matrix)), lambda by: by(matrix))
