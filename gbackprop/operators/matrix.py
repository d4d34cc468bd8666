"""Operators that are made of others: damped, a part of the rows and columns, the transpose, the inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.sparse.linalg import LinearOperator

from gbackprop.array import Array, scipy_module
from gbackprop.base.checks import number
from gbackprop.operators.inverses import inverted
from gbackprop.operators.products import VectorProducts
from gbackprop.operators.submatrix import IndexSet
from gbackprop.operators.vectors import Layout


class OperatorAlgebra(VectorProducts):
    """Base of all operators, with those that can be made of one."""

    def _transpose(self) -> Any:
        if self.symmetric:
            return self
        return composite(self, self._rmatmat, self._matmat, self.columns, self.rows, self.shape[::-1])

    _adjoint = _transpose

    def damped(self, damping: float) -> Any:
        """Return the operator plus λ I.

        Parameters
        ----------
        damping : float
            λ, not negative.

        Returns
        -------
        LinearOperator
            With dictionaries and all methods of this one.

        Raises
        ------
        ValueError
            If λ is negative or not finite, or the operator is not square.
        """
        shift = number("damping", damping, least=0)
        self._check_square("damped")

        def product(apply: Callable[[Array], Array]) -> Callable[[Array], Array]:
            return lambda V: apply(V) + shift * V

        return composite(
            self, product(self._matmat), product(self._rmatmat), self.rows, self.columns, self.shape, self.symmetric
        )

    def submatrix(self, rows: Any = None, columns: Any = None) -> Any:
        """Return some rows and some columns as an operator.

        Parameters
        ----------
        rows, columns : str, sequence of str, or sequence of int, optional
            Names of parameters, or numbers of rows, or of columns, without repetition; their order is that of the
            result. All by default.

        Returns
        -------
        LinearOperator
            It takes dictionaries of the parameters that are named for the columns, and gives dictionaries of those that
            are named for the rows; with numbers of columns, arrays only.

        Raises
        ------
        TypeError, ValueError
            If there is no parameter of a name, no row or column of a number, or one twice.

        Notes
        -----
        Directions go into the parameters alone that have one of the columns, and only those that have one of the rows
        get results: a block of the last layers takes no sweep through the others. Of a damped operator, or an inverse,
        all of it is multiplied.
        """
        r = IndexSet("rows", rows, self.rows, self.shape[0], self.like, self.narrow)
        c = IndexSet("columns", columns, self.columns, self.shape[1], self.like, self.narrow)

        def product(V: Array) -> Array:
            return r.take(self._part(c.put(V), r.layout, c.layout))

        def transposed(V: Array) -> Array:
            return c.take(self._rpart(r.put(V), r.layout, c.layout))

        symmetric = self.symmetric and np.array_equal(r.places, c.places)
        shape = len(r.places), len(c.places)
        return composite(self, product, transposed, r.named, c.named, shape, symmetric)

    def inverse(
        self,
        method: Literal["cg", "lsmr", "neumann"] = "cg",
        *,
        damping: float = 0.0,
        rtol: float | None = None,
        maxiter: int | None = None,
        scale: float = 1.0,
    ) -> Any:
        """Return the inverse as an operator: each product solves a system for each column, all of them together.

        Parameters
        ----------
        method : {"cg", "lsmr", "neumann"}
            "cg": conjugate gradients, of a symmetric positive definite matrix A + λ I. "lsmr": least squares, of any
            matrix: the solution of (A + λ I) x = b for a symmetric A, and else of min ‖A x − b‖² + λ ‖x‖², so that of
            a Jacobian it is (JᵀJ + λ I)⁻¹ Jᵀ, or the pseudoinverse. "neumann": the sum α Σₖ (I − α (A + λ I))ᵏ over
            `maxiter` terms, of a symmetric A.
        damping : float
            λ, not negative.
        rtol : float, optional
            The residual at which a solution is complete, relative to b; of least squares see SciPy's `lsmr`. By default
            the root of the dtype's rounding, 1.5e-8 in float64.
        maxiter : int, optional
            Most steps; by default ten times the smaller side of the matrix, and 100 terms of "neumann".
        scale : float
            α of "neumann", below 2 over the largest eigenvalue of A + λ I.

        Returns
        -------
        LinearOperator
            Its products take what products of this one give, and the reverse: arrays and dictionaries.

        Raises
        ------
        ValueError
            If an argument is wrong, or the matrix is not symmetric and the method not "lsmr".

        Warns
        -----
        NotConvergedWarning
            In a product, if the residual of a system is above 2 `rtol` and above 32 roundings of the dtype. It is
            computed from the solution, by one more product; of least squares it is ‖Aᵀ(A x − b) + λ x‖ relative to
            ‖A‖ (‖b‖ + ‖A‖ ‖x‖), the backward error by which LSMR ends.

        Notes
        -----
        A product is an error (LinAlgError) where the solution x of "cg" has not bᵀx > 0, so that the matrix is not
        positive definite, or a step is not finite. Not each matrix that is not positive definite is found.

        Source: Hestenes & Stiefel 1952 (cg); Fong & Saunders 2011 (LSMR); Lorraine, Vicol, Duvenaud 2020 (the truncated
        series for products with inverse Hessians).
        """
        if self.symmetric:
            matrix, least = (self.damped(damping) if damping != 0 else self), 0.0
        else:
            matrix, least = self, number("damping", damping, least=0)
        product, transposed = inverted(matrix, method, least, rtol, maxiter, scale)
        return composite(self, product, transposed, self.columns, self.rows, self.shape[::-1], self.symmetric)

    def _check_square(self, name: str) -> None:
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"{name}: expected a square operator, got one of shape {self.shape}")


class _Composite(OperatorAlgebra):
    """An operator that is made of another, by functions of the columns of an array."""

    def __init__(
        self,
        of: OperatorAlgebra,
        product: Callable[[Array], Array],
        transposed: Callable[[Array], Array],
        rows: Layout | None,
        columns: Layout | None,
        shape: tuple[int, int],
        symmetric: bool = False,
    ) -> None:
        self._shaped(of.dtype, shape)
        self.like, self.symmetric = of.like, symmetric
        self.rows, self.columns, self.product, self.transposed = rows, columns, product, transposed

    def _part(self, V: Array, rows: Any, columns: Any) -> Array:
        return self.product(V.astype(self.dtype, copy=False))

    def _rpart(self, V: Array, rows: Any, columns: Any) -> Array:
        return self.transposed(V.astype(self.dtype, copy=False))


class CompositeOperator(_Composite, LinearOperator):
    """An operator that is made of another: damped, a part of it, its transpose, or its inverse."""


def composite(of: OperatorAlgebra, *given: Any) -> Any:
    """Return a `CompositeOperator` for the device of an operator."""
    return beside(CompositeOperator, of.like)(of, *given)


def beside(cls: type, like: Array) -> Any:
    """Return a class of operators for a device: on a GPU one of CuPy's, so that their sums are computed there."""
    kind = scipy_module(like, "sparse.linalg").LinearOperator
    if issubclass(cls, kind):
        return cls
    bases = tuple(base for base in cls.__bases__ if issubclass(base, OperatorAlgebra))
    return type(cls.__name__, (*bases, kind), {"__doc__": cls.__doc__, "__module__": cls.__module__})
