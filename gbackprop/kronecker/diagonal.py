"""One matrix for all parameters, with a block for each."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import check_same
from gbackprop.kronecker.block import Block, on_own_device
from gbackprop.kronecker.spectral import Method


@dataclass(frozen=True, eq=False)
class BlockDiagonal:
    """The block-diagonal matrix of the blocks of several parameters: ``BlockDiagonal(result["kfac"])``.

    Vectors are dictionaries of arrays by parameter name, such as ``result.gradient``. Each block does what it does by
    itself, and is damped by itself; errors name the parameter.

    Attributes
    ----------
    blocks : dict of str to Block
        By parameter name, in order; of one dtype, on one device.

    Raises
    ------
    TypeError
        If there is something else than blocks in a dictionary, or dtypes or devices differ.
    ValueError
        If there is no block.
    """

    blocks: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Mapping):
            raise TypeError(f"blocks: expected blocks by parameter name, got {type(self.blocks).__name__}")
        object.__setattr__(self, "blocks", dict(self.blocks))
        if not self.blocks:
            raise ValueError("blocks: expected at least one, got none")
        first, other = next(iter(self.blocks.items()))
        for name, block in self.blocks.items():
            if not isinstance(block, Block):
                raise TypeError(f"block {name}: expected a block of gb.kronecker, got {type(block).__name__}")
            check_same(f"block {name}", block._array(), f"block {first}", other._array())

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (D, D), D the number of entries of all parameters."""
        d = sum(block.shape[0] for block in self.blocks.values())
        return d, d

    @property
    def T(self) -> BlockDiagonal:
        """The transpose."""
        return self._each(lambda block: block.T)

    # ---------------------------------------------------------------------------------------- vectors by parameter name

    def matvec(self, v: Mapping[str, Array]) -> dict[str, Array]:
        """Multiply each block by its parameter's array. Also written ``matrix @ v``.

        Parameters
        ----------
        v : dict of str to ndarray
            For each block an array as it takes it, such as one of the parameter's shape.

        Returns
        -------
        dict of str to ndarray
            Of the shapes of `v`.

        Raises
        ------
        TypeError
            If `v` is no dictionary; else as `Block.matvec`.
        ValueError
            If the names are not those of the blocks; else as `Block.matvec`.
        """
        return self._with(v, lambda block, part: block @ part)

    __matmul__ = matvec

    def solve(
        self, v: Mapping[str, Array], damping: float = 0.0, cap: float | None = None, method: Method | None = None
    ) -> dict[str, Array]:
        """Multiply the inverse of each damped block by its parameter's array, see `Kronecker.solve`."""
        return self._with(v, lambda block, part: block.solve(part, damping, cap, method))

    def diagonal(self) -> dict[str, Array]:
        """Compute the diagonal of each block, shape (D,) of its parameter."""
        return {name: block.diagonal() for name, block in self.blocks.items()}

    # ------------------------------------------------------------------------------------------------------- matrices

    def inverse(self, damping: float = 0.0, method: Method | None = None) -> BlockDiagonal:
        """Compute the inverse of each damped block, see `Kronecker.inverse`."""
        return self._each(lambda block: block.inverse(damping, method))

    def damped(self, damping: float, method: Method | None = None) -> BlockDiagonal:
        """Return the damped blocks, see `Kronecker.damped`."""
        return self._each(lambda block: block.damped(damping, method))

    def power(self, p: float) -> BlockDiagonal:
        """Compute the p-th power of each block, see `Kronecker.power`. Also written ``matrix ** p``."""
        return self._each(lambda block: block.power(p))

    __pow__ = power

    @on_own_device
    def to_dense(self) -> Array:
        """Return the matrix, shape (D, D), the parameters in the blocks' order."""
        parts, start = [block.to_dense() for block in self.blocks.values()], 0
        dense = array_module(parts[0]).zeros(self.shape, dtype=parts[0].dtype)
        for part in parts:
            stop = start + len(part)
            dense[start:stop, start:stop] = part
            start = stop
        return dense

    # -------------------------------------------------------------------------------------------------------- numbers

    def logdet(self, damping: float = 0.0) -> Array:
        """Compute log det(matrix + λ I), a scalar, see `Kronecker.logdet`."""
        return self._sum(lambda block: block.logdet(damping))

    def trace(self) -> Array:
        """Compute the trace, a scalar."""
        return self._sum(lambda block: block.trace())

    @on_own_device
    def frobenius_norm(self) -> Array:
        """Compute the root of the sum of the squares of all entries, a scalar."""
        norms = self._named(lambda name, block: block._in_double()._norm()).values()
        norm = functools.reduce(array_module(self._array()).hypot, norms)
        return norm.astype(np.result_type(self._array().dtype, np.float32))

    # -------------------------------------------------------------------------------------------------------- each one

    def _each(self, make: Callable[[Any], Any]) -> BlockDiagonal:
        return BlockDiagonal(self._named(lambda name, block: make(block)))

    def _array(self) -> Array:
        return next(iter(self.blocks.values()))._array()

    @on_own_device
    def _sum(self, compute: Callable[[Any], Array]) -> Array:
        return functools.reduce(operator.add, self._named(lambda name, block: compute(block)).values())

    def _with(self, v: Mapping[str, Array], product: Callable[[Any, Array], Array]) -> dict[str, Array]:
        if not isinstance(v, Mapping):
            raise TypeError(f"v: expected a dictionary of arrays by parameter name, got {type(v).__name__}")
        if v.keys() != self.blocks.keys():
            raise ValueError(f"v: expected arrays for {list(self.blocks)}, got {list(v)}")
        return self._named(lambda name, block: product(block, v[name]))

    def _named(self, compute: Callable[[str, Any], Any]) -> dict[str, Any]:
        """Return what is computed of each block, by name; errors name the parameter."""
        found = {}
        for name, block in self.blocks.items():
            try:
                found[name] = compute(name, block)
            except (AttributeError, TypeError, ValueError, np.linalg.LinAlgError) as error:
                raise type(error)(f"{name}: {error}") from error
        return found
