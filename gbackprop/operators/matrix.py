"""Operators as SciPy knows them, and as dictionaries: products with vectors of all kinds, and operators made of others.

A `Matrix` says what it is times the columns of an array of its own dtype, `_matmat`, and its transpose, `_rmatmat`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.sparse.linalg import LinearOperator

from gbackprop.array import Array, array_module, is_array, on_device_of, scipy_module
from gbackprop.checks import Constructed, number
from gbackprop.operators.chosen import Chosen
from gbackprop.operators.inverses import inverted
from gbackprop.operators.vectors import Layout, check_numbers


class Matrix(Constructed):
    """Base of all operators: a real matrix, whose rows or columns may be the entries of parameters."""

    symmetric: bool = False
    """Whether the matrix is its transpose."""

    narrow: ClassVar[bool] = False
    """Whether `_part` takes rows and columns of some parameters alone."""

    rows: Layout | None = None
    columns: Layout | None = None
    """The parameters whose entries are the rows, and the columns; None where these are other numbers."""

    like: Array
    """An array of the operator's dtype on its device."""

    dtype: np.dtype
    shape: tuple[int, int]

    def _part(self, V: Array, rows: Layout | None, columns: Layout | None) -> Array:
        """Return the product with ``[D, K]``, from the columns of some parameters to the rows of some, if `narrow`."""
        raise NotImplementedError

    def _rpart(self, V: Array, rows: Layout | None, columns: Layout | None) -> Array:
        """Return the product of the transpose of this part."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------- SciPy's names

    def _matmat(self, V: Array) -> Array:
        return self._part(V, self.rows, self.columns)

    def _rmatmat(self, V: Array) -> Array:
        return self._rpart(V, self.rows, self.columns)

    def _matvec(self, x: Array) -> Array:
        return self._matmat(x.reshape(-1, 1))[:, 0]

    def _rmatvec(self, x: Array) -> Array:
        return self._rmatmat(x.reshape(-1, 1))[:, 0]

    def matvec(self, x: Array) -> Array:
        """Multiply by a vector, shape (D,) or (D, 1)."""
        return self._applied("v", x, (1, 2), 1)

    def matmat(self, X: Array) -> Array:
        """Multiply by each column of a matrix, shape (D, K)."""
        return self._applied("V", X, (2,))

    def rmatvec(self, x: Array) -> Array:
        """Multiply the transpose by a vector."""
        return self._applied("v", x, (1, 2), 1, transposed=True)

    def rmatmat(self, X: Array) -> Array:
        """Multiply the transpose by each column of a matrix."""
        return self._applied("V", X, (2,), transposed=True)

    def dot(self, x: Any) -> Any:
        """Multiply by a vector, a matrix, a dictionary of parameters' directions, a number, or another operator.

        Parameters
        ----------
        x : ndarray, shape (D,) or (D, K); or dict {parameter: ndarray, shape (*p) or (K, *p)}

        Returns
        -------
        ndarray or dict
            Of the structure of `x`; complex where `x` is.

        Raises
        ------
        TypeError
            If `x` is not of numbers on the operator's device, or a dictionary of others than real floats.
        ValueError
            If a shape or a parameter's name is wrong, a number is not finite, or data or parameters have changed since
            the operator was made.
        """
        if isinstance(x, Mapping):
            if self.columns is None:
                raise TypeError("v: expected an array, as the columns are not all entries of parameters, got a dictionary")
            with on_device_of(self.like):
                given, single = self.columns.read("v", x)
                product = self._matmat(given.T)
                if self.rows is None:
                    return product[:, 0] if single else product
                parts = self.rows.split(product.T)
                return {name: value[0] for name, value in parts.items()} if single else parts
        if is_array(x) and x.ndim not in (1, 2):
            self._checked("v", x, self.shape[1], (1, 2))
        return super().dot(x)  # type: ignore[misc]

    def _transpose(self) -> Any:
        if self.symmetric:
            return self
        return derived(self, self._rmatmat, self._matmat, self.columns, self.rows, self.shape[::-1])

    _adjoint = _transpose

    def _applied(
        self, name: str, x: Any, dims: tuple[int, ...], most: int | None = None, transposed: bool = False
    ) -> Array:
        """Return the product with an array of any numbers; with a complex one, of both its parts in one pass."""
        parts = [x.real, x.imag] if is_array(x) and x.dtype.kind == "c" else [x]
        length = self.shape[0 if transposed else 1]
        with on_device_of(self.like):
            columns = [self._checked(name, part, length, dims, most).reshape(length, -1) for part in parts]
            product = self._rmatmat if transposed else self._matmat
            if len(columns) == 1:
                found = product(columns[0])
            else:
                both = product(array_module(x).concatenate(columns, axis=1))
                k = both.shape[1] // 2
                found = both[:, :k] + 1j * both[:, k:]
            return found.reshape(-1, *x.shape[1:])

    def _checked(self, name: str, value: Any, length: int, dims: tuple[int, ...], most: int | None = None) -> Array:
        """Return an array of floats; raise an error if it is none of numbers, or has another shape."""
        if is_array(value) and value.dtype.kind in "biu":
            value = value.astype(self.dtype)
        check_numbers(name, value, self.like)
        fits = value.ndim in dims and value.shape[0] == length
        if not fits or (most and value.ndim == 2 and value.shape[1] != most):
            shapes = {1: f"({length},)", 2: f"({length}, {most or 'K'})"}
            raise ValueError(f"{name}: expected shape {' or '.join(shapes[d] for d in dims)}, got {value.shape}")
        return value

    def to_dense(self) -> Array:
        """Return the matrix: as many products as it has columns, so for small networks alone."""
        with on_device_of(self.like):
            return self._matmat(array_module(self.like).eye(self.shape[1], dtype=self.dtype))

    # --------------------------------------------------------------------------------------------- vectors by parameter

    def pack(self, parts: Mapping[str, Array]) -> Array:
        """Return arrays of all parameters as one: ``{name: (*p)} -> (D,)``, ``{name: (K, *p)} -> (D, K)``.

        Raises
        ------
        TypeError, ValueError
            If a name, a shape, a dtype or a number is wrong.
        """
        with on_device_of(self.like):
            rows, single = self._parameters().read("v", parts)
            return rows[0] if single else rows.T

    def unpack(self, v: Array) -> dict[str, Array]:
        """Return what `pack` takes, from what it returns."""
        layout = self._parameters()
        check_numbers("v", v, self.like, finite=False)
        if v.ndim not in (1, 2) or len(v) != layout.size:
            raise ValueError(f"v: expected shape ({layout.size},) or ({layout.size}, K), got {v.shape}")
        parts = layout.split(v.T if v.ndim == 2 else v[None])
        return {name: value[0] for name, value in parts.items()} if v.ndim == 1 else parts

    def _parameters(self) -> Layout:
        layout = self.columns or self.rows
        if layout is None:
            raise TypeError("neither rows nor columns are all entries of parameters: there are no dictionaries of these")
        return layout

    # --------------------------------------------------------------------------------------- operators made of this one

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
            return lambda V: apply(V) + (shift * V).astype(self.dtype, copy=False)

        return derived(
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
        r = Chosen("rows", rows, self.rows, self.shape[0], self.like, self.narrow)
        c = Chosen("columns", columns, self.columns, self.shape[1], self.like, self.narrow)

        def product(V: Array) -> Array:
            return r.take(self._part(c.put(V), r.layout, c.layout))

        def transposed(V: Array) -> Array:
            return c.take(self._rpart(r.put(V), r.layout, c.layout))

        symmetric = self.symmetric and np.array_equal(r.places, c.places)
        shape = len(r.places), len(c.places)
        return derived(self, product, transposed, r.named, c.named, shape, symmetric)

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
            matrix: the solution of (A + λ I) x = b for a symmetric A, and else of min ‖A x − b‖² + λ ‖x‖², so that for a
            Jacobian the inverse is (JᵀJ + λ I)⁻¹ Jᵀ, or the pseudoinverse. "neumann": the sum
            α Σₖ (I − α (A + λ I))ᵏ over `maxiter` terms, of a symmetric A.
        damping : float
            λ, not negative.
        rtol : float, optional
            The residual at which a solution is complete, relative to b; of "lsmr" see SciPy. By default the root of
            the dtype's rounding, 1.5e-8 in float64.
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
            In a product, if the residual of a system is above `rtol` after the last step, or the series diverges.

        Notes
        -----
        A product is an error (LinAlgError) where "cg" meets a direction in which the matrix is not positive.

        Source: Hestenes & Stiefel 1952 (cg); Fong & Saunders 2011 (LSMR); Lorraine, Vicol, Duvenaud 2020 (the truncated
        series for products with inverse Hessians).
        """
        if self.symmetric:
            matrix, least = (self.damped(damping) if damping != 0 else self), 0.0
        else:
            matrix, least = self, number("damping", damping, least=0)
        product, transposed = inverted(matrix, method, least, rtol, maxiter, scale)
        return derived(self, product, transposed, self.columns, self.rows, self.shape[::-1], self.symmetric)

    def _check_square(self, name: str) -> None:
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"{name}: expected a square operator, got one of shape {self.shape}")


class _Derived(Matrix):
    """An operator that is made of another, by functions of the columns of an array."""

    def __init__(
        self,
        of: Matrix,
        product: Callable[[Array], Array],
        transposed: Callable[[Array], Array],
        rows: Layout | None,
        columns: Layout | None,
        shape: tuple[int, int],
        symmetric: bool = False,
    ) -> None:
        self.like, self.dtype, self.shape, self.symmetric = of.like, of.dtype, shape, symmetric
        self.rows, self.columns, self.product, self.transposed = rows, columns, product, transposed

    def _part(self, V: Array, rows: Layout | None, columns: Layout | None) -> Array:
        return self.product(V.astype(self.dtype, copy=False))

    def _rpart(self, V: Array, rows: Layout | None, columns: Layout | None) -> Array:
        return self.transposed(V.astype(self.dtype, copy=False))


class Derived(_Derived, LinearOperator):
    """An operator that is made of another: damped, a part of it, its transpose, or its inverse."""


def derived(of: Matrix, *given: Any) -> Any:
    """Return a `Derived` for the device of an operator."""
    return beside(Derived, of.like)(of, *given)


def beside(cls: type, like: Array) -> Any:
    """Return a class of operators, on a GPU one of CuPy's, so that sums and products of operators are computed there."""
    kind = scipy_module(like, "sparse.linalg").LinearOperator
    if issubclass(cls, kind):
        return cls
    bases = tuple(base for base in cls.__bases__ if issubclass(base, Matrix))
    return type(cls.__name__, (*bases, kind), {"__doc__": cls.__doc__, "__module__": cls.__module__})
