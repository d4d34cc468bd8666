"""A curvature block given by Kronecker factors of each group of a weight's outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, beside
from gbackprop.kronecker.kronecker import Kronecker, check_vector


def _factor(block: GroupedKronecker) -> Array:
    return block.B


@dataclass(frozen=True, eq=False)
class GroupedKronecker:
    """The block-diagonal matrix of B[γ] ⊗ A[γ], γ = 0 … G − 1, for a weight with G groups of outputs.

    The weight's outputs, and with `channels_first` its input channels, are numbered group by group, so that the entries
    of a group, in row-major order, are side by side. Each group is damped for itself.

    Attributes
    ----------
    A : ndarray, shape (G, I, I)
        Input factor of each group.
    B : ndarray, shape (G, O / G, O / G)
        Output factor of each group.
    channels_first : int, optional
        C / G of a weight (C, O / G, *kernel), see `Kronecker`.
    """

    __array_ufunc__ = None  # so that `v @ block` is a TypeError in plain words

    A: Array
    B: Array
    channels_first: int | None = None

    @property
    def blocks(self) -> tuple[Kronecker, ...]:
        """The block of each group."""
        return tuple(Kronecker(a, b, self.channels_first) for a, b in zip(self.A, self.B, strict=True))

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (D, D) of the whole block, D = O I."""
        d = self.B.shape[0] * self.B.shape[1] * self.A.shape[1]
        return d, d

    @property
    def dtype(self) -> np.dtype:
        """dtype of the factors."""
        return self.B.dtype

    @beside(_factor)
    def to_dense(self) -> Array:
        """Return the block as a matrix, shape (D, D), with zeros between groups."""
        dense = array_module(self.B).zeros(self.shape, dtype=self.dtype)
        size = self.shape[0] // len(self.B)
        for start, block in zip(range(0, len(dense), size), self.blocks):
            dense[start : start + size, start : start + size] = block.to_dense()
        return dense

    @beside(_factor)
    def trace(self) -> Array:
        """Compute the trace of the block, a scalar: Σ tr B[γ] tr A[γ]."""
        return (self.B.trace(axis1=1, axis2=2) * self.A.trace(axis1=1, axis2=2)).sum()

    @beside(_factor)
    def matvec(self, v: Array) -> Array:
        """Multiply the block by a vector, or by each column of a matrix, group by group. Also written ``block @ v``.

        Parameters
        ----------
        v : ndarray, shape (D,), (D, K), or the parameter's shape

        Returns
        -------
        ndarray, shape of `v`

        Raises
        ------
        TypeError
            If `v` is not an array of the factors' dtype on their device.
        ValueError
            If `v` has another shape.
        """
        return self._by_group(v, lambda block, part: block.matvec(part))

    __matmul__ = matvec

    @beside(_factor)
    def solve(self, v: Array, damping: float = 0.0, cap: float | None = None) -> Array:
        """Multiply the inverse of the damped block by a vector or each column of a matrix: `Kronecker.solve` by groups.

        Each group has its own π, and so its own shares of λ in its factors.

        Parameters
        ----------
        v : ndarray, shape (D,), (D, K), or the parameter's shape
        damping : float
            λ, not negative.
        cap : float, optional
            The largest eigenvalue that the inverse of a factor may have; with it a singular factor is no error.

        Returns
        -------
        ndarray, shape of `v`

        Raises
        ------
        TypeError
            If `v` is not an array of the factors' dtype on their device.
        ValueError
            If `damping` is negative or not finite, `cap` is not above 0, or `v` has another shape.
        numpy.linalg.LinAlgError
            If a group is singular even with the damping, and there is no `cap`.
        """
        return self._by_group(v, lambda block, part: block.solve(part, damping, cap))

    def _by_group(self, v: Array, product: Callable[[Kronecker, Array], Array]) -> Array:
        """Compute the product of each group's block with its entries of v; return them in the shape of v."""
        groups, outputs = self.B.shape[:2]
        check_vector(v, self.B, groups * (self.channels_first or outputs), self.shape[0])
        parts = v.reshape(groups, self.shape[0] // groups, -1)
        products = []
        for group, (block, part) in enumerate(zip(self.blocks, parts, strict=True)):
            try:
                products.append(product(block, part))
            except np.linalg.LinAlgError as error:
                raise np.linalg.LinAlgError(f"group {group}: {error}") from error
        return array_module(v).stack(products).reshape(v.shape)


def _channels_first(a: Array, b: Array) -> Kronecker | GroupedKronecker:
    """Return the block of a weight that has its outputs between the two axes, C and ∏ kernel, that are rows of A."""
    *groups, channels, places = a.shape[:-2]
    return BLOCKS[b.ndim](a.reshape(*groups, channels * places, channels * places), b, channels)


BLOCKS: dict[int, Callable[..., Kronecker | GroupedKronecker]] = {
    2: Kronecker,
    3: GroupedKronecker,
    4: _channels_first,
    5: _channels_first,
}
"""What makes a block, by the number of axes of A as a statistic, or of B without A: an odd one begins with groups."""


def with_factors(block: Kronecker | GroupedKronecker, a: Array | None, b: Array) -> Kronecker | GroupedKronecker:
    """Return the block of other factors of the same shapes, with its entries in the order of `block`'s."""
    factors: dict[str, Any] = {"A": a, "B": b}
    return replace(block, **factors)
