"""Products with vectors: arrays of any numbers, and dictionaries by parameter, under SciPy's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from gbackprop.array import Array, array_module, is_array, on_device_of
from gbackprop.base.checks import Constructed
from gbackprop.operators.vectors import Layout, check_numbers


class VectorProducts(Constructed):
    """A real matrix, whose rows or columns may be the entries of parameters, times vectors of all kinds.

    A subclass defines `_part` and `_rpart`.
    """

    symmetric: bool = False
    """True if the matrix is its transpose."""

    narrow: ClassVar[bool] = False
    """True if `_part` takes rows and columns of some parameters alone."""

    rows: Layout | None = None
    columns: Layout | None = None
    """The parameters whose entries are the rows, and the columns; None where these are other numbers."""

    like: Array
    """An array of the operator's dtype on its device."""

    dtype: np.dtype
    shape: tuple[int, int]

    def _part(self, V: Array, rows: Any, columns: Any) -> Array:
        """Return the product with ``[D, K]``, from the columns of some parameters to the rows of some, if `narrow`."""
        raise NotImplementedError

    def _rpart(self, V: Array, rows: Any, columns: Any) -> Array:
        """Return the product of the transpose of this part."""
        raise NotImplementedError

    def _shaped(self, dtype: Any, shape: tuple[int, int]) -> None:
        """Set dtype and shape as the linear operators of SciPy, or CuPy, do: newer ones note more than these."""
        super().__init__(dtype, shape)  # type: ignore[call-arg]

    # ---------------------------------------------------------------------------------------------------- SciPy's names

    def _matmat(self, V: Array) -> Array:
        return self._part(V, self.rows, self.columns)

    def _rmatmat(self, V: Array) -> Array:
        return self._rpart(V, self.rows, self.columns)

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
                raise TypeError("v: expected an array, as the columns are no parameters, got a dictionary")
            with on_device_of(self.like):
                given, single = self.columns.read("v", x)
                product = self._matmat(given.T)
                if self.rows is None:
                    return product[:, 0] if single else product
                return self.rows.named(self.rows.split(product.T), single)
        if is_array(x) or isinstance(x, np.ma.MaskedArray):  # which is refused as an argument is
            if x.ndim not in (1, 2):
                self._checked("v", x, self.shape[1], (1, 2))
            return self.matvec(x) if x.ndim == 1 or x.shape[1] == 1 else self.matmat(x)
        return super().dot(x)  # type: ignore[misc]

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
        return layout.named(layout.split(v.T if v.ndim == 2 else v[None]), v.ndim == 1)

    def _parameters(self) -> Layout:
        layout = self.columns or self.rows
        if layout is None:
            raise TypeError("neither rows nor columns are parameters: there are no dictionaries of these")
        return layout
