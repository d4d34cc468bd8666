"""The base class of results in Kronecker form: products, sums, multiples, traces, without forming the matrix."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.linalg import LinearOperator

from gbackprop.array import Array, array_module, beside, device_of, is_array
from gbackprop.base.checks import check_same, number
from gbackprop.kronecker.entries import Entries

on_own_device = beside(lambda block: block._array())


class Block:
    """Base class of square matrices over the entries of one parameter, in their order, with zeros between groups.

    A subclass says what its product, its matrix and its diagonal are, with groups, outputs and inputs as axes.
    """

    __array_ufunc__ = None  # so that `v @ block` is a TypeError in plain words

    source: ClassVar[str] = "B"
    """The attribute that has the block's dtype and device, in errors."""

    multiplied: ClassVar[tuple[str, ...]] = ()
    """The arrays of whose product the block is a multiple."""

    # ------------------------------------------------------------------------------------------------- to be written

    @cached_property
    def entries(self) -> Entries:
        """The numbering of the parameter's entries; the block's arrays are checked where this is first used."""
        raise NotImplementedError

    @property
    def T(self) -> Any:
        """The transpose, a block."""
        raise NotImplementedError

    def _array(self) -> Array:
        """Return an array of the block: its dtype and device are those of the block."""
        raise NotImplementedError

    def _multiply(self, v: Array) -> Array:
        """Return the product with ``[G, O, I, K]``."""
        raise NotImplementedError

    def _blocks(self) -> Array:
        """Return the matrix of each group, ``[G, O, I, O, I]``."""
        raise NotImplementedError

    def _diagonal(self) -> Array:
        """Return the diagonal, ``[G, O, I]``."""
        raise NotImplementedError

    def _inner(self, other: Any) -> Array:
        """Return the sum of the products of the entries of two blocks, Σᵢⱼ X[i, j] Y[i, j]."""
        raise NotImplementedError

    def _scaled(self, factor: float) -> Any:
        """Return the block times a number."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------- derived

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (D, D) of the whole block, D the number of the parameter's entries."""
        return self.entries.size, self.entries.size

    @property
    def dtype(self) -> np.dtype:
        """dtype of the block's arrays."""
        return self._array().dtype

    @on_own_device
    def to_dense(self) -> Array:
        """Return the block as a matrix, shape (D, D), with zeros between groups."""
        return self.entries.dense(self._blocks())

    @on_own_device
    def matvec(self, v: Array) -> Array:
        """Multiply the block by a vector, or by each column of a matrix. Also written ``block @ v``.

        Parameters
        ----------
        v : ndarray, shape (D,), (D, K), or the parameter's shape

        Returns
        -------
        ndarray, shape of `v`

        Raises
        ------
        TypeError
            If `v` is not an array of the block's dtype on its device.
        ValueError
            If `v` has another shape, or a number that is not finite.
        """
        self.entries.check(v, self.source, self._array())
        return self.entries.join(self._multiply(self.entries.split(v))).reshape(v.shape)

    __matmul__ = matvec

    @on_own_device
    def diagonal(self) -> Array:
        """Compute the diagonal of the block, shape (D,), in the order of the parameter's entries."""
        return self.entries.join(self._diagonal())

    @on_own_device
    def trace(self) -> Array:
        """Compute the trace of the block, a scalar."""
        return self._diagonal().sum()

    @on_own_device
    def frobenius_norm(self) -> Array:
        """Compute the root of the sum of the squares of the block's entries, a scalar.

        It is computed in float64. The rounding error of a sum whose terms cancel is 1e-16 of the largest term's norm,
        or 1e-8 of it where a term is given by eigenvectors.
        """
        return self._in_double()._norm().astype(np.result_type(self.dtype, np.float32))

    def _norm(self) -> Array:
        """Compute the Frobenius norm in the block's dtype, without squares beyond its range."""
        size, block = self._in_unit()
        return size * block._root()

    def _in_unit(self) -> tuple[Array, Any]:
        """Return a number, and the block divided by it: each of the arrays `multiplied` by its own largest number."""
        arrays = {name: value for name in self.multiplied if (value := getattr(self, name)) is not None}
        sizes = {name: _largest(value) for name, value in arrays.items()}
        divided = {name: value / sizes[name] for name, value in arrays.items()}
        return functools.reduce(operator.mul, sizes.values()), replace(self, **divided)  # type: ignore[type-var]

    def _root(self) -> Array:
        """Compute the root of the sum of squares."""
        squares = self._inner(self)
        return array_module(squares).sqrt(array_module(squares).maximum(squares, 0))

    def _in_double(self) -> Any:
        """Return the block with arrays in float64."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        wide = {name: value.astype("float64", copy=False) for name, value in values.items() if is_array(value)}
        return replace(self, **wide)  # type: ignore[type-var]  # subclasses are dataclasses

    def _pair(self) -> tuple[Array, Array] | None:
        """Return A and B with an axis of groups, if the block is B ⊗ A."""
        return None

    def as_linear_operator(self) -> LinearOperator:
        """Return the block as an operator for SciPy's functions, such as ``scipy.sparse.linalg.eigsh``.

        Raises
        ------
        TypeError
            If the block is on a GPU, where SciPy does not compute.
        """
        if (device := device_of(self._array())) != "cpu":
            raise TypeError(f"as_linear_operator: expected a block on the cpu, as SciPy computes there, got {device}")

        def product(block: Block, v: np.ndarray) -> np.ndarray:
            if v.dtype.kind == "c":
                return product(block, v.real) + 1j * product(block, v.imag)
            return block @ (v.astype(block.dtype, copy=False) if v.dtype.kind in "biuf" else v)

        plain, back = functools.partial(product, self), functools.partial(product, self.T)
        return LinearOperator(self.shape, matvec=plain, matmat=plain, rmatvec=back, rmatmat=back, dtype=self.dtype)

    # -------------------------------------------------------------------------------------------- sums and multiples

    def __add__(self, other: Any) -> SumOfBlocks:
        """Return the sum of two blocks of one parameter, which is in general no Kronecker product."""
        if not isinstance(other, Block):
            return NotImplemented
        return SumOfBlocks((*_terms(self), *_terms(other)))

    def __sub__(self, other: Any) -> SumOfBlocks:
        """Return the difference of two blocks of one parameter."""
        return self + -other if isinstance(other, Block) else NotImplemented

    @on_own_device
    def __mul__(self, factor: Any) -> Any:
        """Return the block times a number, a block of the same class."""
        if not isinstance(factor, Real) or isinstance(factor, bool):
            return NotImplemented
        return self._scaled(number("factor", factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        """Return the block divided by a number, a block of the same class."""
        return self * (1 / divisor) if isinstance(divisor, Real) else NotImplemented

    def __neg__(self) -> Any:
        """Return the block times −1."""
        return self * -1


@dataclass(frozen=True, eq=False)
class SumOfBlocks(Block):
    """A sum of blocks of one parameter, each in its own form: what ``one + other`` gives.

    All that is linear is a sum over the terms. The norm is that of U Vᵀ, with columns vec Bₖ and vec Aₖ for each term,
    and is computed as ‖R Sᵀ‖ from the triangular factors R of U and S of V. Where a term has no factors, it is a sum
    over pairs, ‖Σₖ Xₖ‖² = Σₖₗ tr XₖᵀXₗ, which cancels where terms do. There is no inverse in Kronecker form:
    ``as_linear_operator`` and SciPy's ``cg`` solve with it.

    Attributes
    ----------
    terms : tuple of Block
        Of equal shapes, dtypes and devices.

    Raises
    ------
    TypeError
        If a term is no block, or dtypes or devices differ.
    ValueError
        If there is no term, or they are of different parameters: other groups, outputs, inputs or orders of entries.
    """

    source = "each term"
    terms: tuple[Block, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple(self.terms))
        if not self.terms:
            raise ValueError("terms: expected at least one block, got none")
        for i, term in enumerate(self.terms):
            if not isinstance(term, Block):
                raise TypeError(f"term {i}: expected a block, got {type(term).__name__}")
            if term.entries != self.terms[0].entries:
                raise ValueError(f"term {i}: expected {self.terms[0].entries} as term 0 has, got {term.entries}")
            check_same(f"term {i}", term._array(), "term 0", self.terms[0]._array())

    @cached_property
    def entries(self) -> Entries:
        return self.terms[0].entries

    @property
    def T(self) -> SumOfBlocks:
        """The transpose."""
        return SumOfBlocks(tuple(term.T for term in self.terms))

    def _array(self) -> Array:
        return self.terms[0]._array()

    def _multiply(self, v: Array) -> Array:
        return _added(term._multiply(v) for term in self.terms)

    def _blocks(self) -> Array:
        return _added(term._blocks() for term in self.terms)

    def _diagonal(self) -> Array:
        return _added(term._diagonal() for term in self.terms)

    def _inner(self, other: Any) -> Array:
        return _added(term._inner(another) for term in self.terms for another in _terms(other))

    def _in_double(self) -> SumOfBlocks:
        return SumOfBlocks(tuple(term._in_double() for term in self.terms))

    def _in_unit(self) -> tuple[Array, Any]:
        sizes, blocks = zip(*[term._in_unit() for term in self.terms], strict=True)
        size = _largest(array_module(sizes[0]).stack(sizes))
        return size, SumOfBlocks(tuple(block._scaled(each / size) for each, block in zip(sizes, blocks, strict=True)))

    def _root(self) -> Array:
        pairs = [pair for term in self.terms if (pair := term._pair()) is not None]
        if len(pairs) < len(self.terms):
            return super()._root()
        xp = array_module(pairs[0][0])
        sides = (xp.stack([each.reshape(len(each), -1) for each in side], axis=2) for side in zip(*pairs, strict=True))
        v, u = (xp.linalg.qr(side, mode="r") for side in sides)
        return xp.sqrt(((u @ v.swapaxes(1, 2)) ** 2).sum())

    def _scaled(self, factor: float) -> SumOfBlocks:
        return SumOfBlocks(tuple(term._scaled(factor) for term in self.terms))


def _largest(values: Array) -> Array:
    """Return the largest absolute value; 1 if all are 0."""
    largest = abs(values).max()
    return largest + (largest == 0)


def _terms(block: Block) -> tuple[Block, ...]:
    return block.terms if isinstance(block, SumOfBlocks) else (block,)


def _added(parts: Iterable[Array]) -> Array:
    return functools.reduce(operator.add, parts)
