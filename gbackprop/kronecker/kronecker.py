"""A curvature block given by Kronecker factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from gbackprop.array import Array, array_module, beside, bounds, is_array
from gbackprop.checks import check_same, kind_of, number


def _factor(block: Kronecker) -> Array:
    return block.B


@dataclass(frozen=True, eq=False)
class Kronecker:
    """The block B ⊗ A of a weight (entries in row-major order), or B of a bias.

    B ⊗ A numbers the weight's entries output by output, as a weight (O, …) does. Products, solutions and `to_dense` are
    in the order of the parameter's entries, which is another one for a weight that has `channels_first`.

    Attributes
    ----------
    A : ndarray, shape (I, I), or None
        Input factor; None for a bias.
    B : ndarray, shape (O, O)
        Output factor.
    channels_first : int, optional
        C of a weight (C, O, *kernel), whose input channels come before its outputs: that of a transposed convolution.
        The rows of A are numbered (C, *kernel).
    """

    __array_ufunc__ = None  # so that `v @ block` is a TypeError in plain words

    A: Array | None
    B: Array
    channels_first: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (D, D) of the block."""
        d = self.B.shape[0] * (1 if self.A is None else self.A.shape[0])
        return d, d

    @property
    def dtype(self) -> np.dtype:
        """dtype of the factors."""
        return self.B.dtype

    @beside(_factor)
    def to_dense(self) -> Array:
        """Return the block as a matrix, shape (D, D)."""
        if self.A is None:
            return self.B.copy()
        dense = array_module(self.B).kron(self.B, self.A)
        return dense if self.channels_first is None else self._in_order(self._in_order(dense).T).T

    @beside(_factor)
    def trace(self) -> Array:
        """Compute the trace of the block, a scalar: tr B tr A."""
        trace = self.B.trace()
        return trace if self.A is None else trace * self.A.trace()

    @beside(_factor)
    def matvec(self, v: Array) -> Array:
        """Multiply the block by a vector, or by each column of a matrix: (B ⊗ A) vec V = vec(B V Aᵀ).

        V is the weight's part of `v` as a matrix (O, I). Also written ``block @ v``.

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
        return self._inputs_side(self.B @ self._outputs_side(v), v, lambda rows: self.A @ rows)

    __matmul__ = matvec

    @beside(_factor)
    def solve(self, v: Array, damping: float = 0.0, cap: float | None = None) -> Array:
        """Multiply the inverse of the damped block by a vector or each column of a matrix: the paper's update rule.

        For a weight (B + √λ/π I)⁻¹ ⊗ (A + π √λ I)⁻¹ with π² = (tr A / dim A) / (tr B / dim B); for a bias
        (B + λ I)⁻¹. Where a factor has trace 0, π is 1.

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
        ValueError
            If `damping` is negative or not finite, `cap` is not above 0, or `v` has another shape.
        numpy.linalg.LinAlgError
            If the block is singular even with the damping, and there is no `cap`.

        Notes
        -----
        Source: Martens & Grosse 2015 (factored Tikhonov damping); paper, update rule of its experiments.
        """
        damping = number("damping", damping, least=0)
        if cap is not None and not cap > 0:
            raise ValueError(f"cap: expected a number above 0, got {cap!r}")
        rows, a = self._outputs_side(v), self.A
        if a is None:
            return _solve("B", self.B, damping, rows, cap).reshape(v.shape)
        pi, root = self._pi(), damping**0.5
        half = _solve("B", self.B, root / pi, rows, cap)
        return self._inputs_side(half, v, lambda rows: _solve("A", a, root * pi, rows, cap))

    def _pi(self) -> float:
        assert self.A is not None
        a, b = float(self.A.trace()) / self.A.shape[0], float(self.B.trace()) / self.B.shape[0]
        return (a / b) ** 0.5 if a > 0 and b > 0 else 1.0

    def _outputs_side(self, v: Array) -> Array:
        """Return v as the matrix ``[O, I K]``, which B multiplies; K = 1 for a single vector."""
        rows = self.B.shape[0]
        check_vector(v, self.B, self.channels_first or rows, self.shape[0])
        return v.reshape(self.channels_first or 1, rows, -1).swapaxes(0, 1).reshape(rows, -1)

    def _inputs_side(self, half: Array, v: Array, multiply: Callable[[Array], Array]) -> Array:
        """Multiply ``[O, I K]`` on the side of A, turned to ``[I, O K]``; return the product in the shape of v."""
        if self.A is None:
            return half.reshape(v.shape)
        turned = half.reshape(self.B.shape[0], self.A.shape[0], -1).swapaxes(0, 1)
        product = multiply(turned.reshape(self.A.shape[0], -1)).reshape(turned.shape)
        return self._in_order(product.swapaxes(0, 1)).reshape(v.shape)

    def _in_order(self, rows: Array) -> Array:
        """Return entries ``[O, I, K]`` or ``[O I, K]`` in the order of the parameter's, ``[O I, K]``."""
        split = rows.reshape(self.B.shape[0], self.channels_first or 1, -1)
        return split.swapaxes(0, 1).reshape(self.shape[0], -1)


def check_vector(v: Array, b: Array, rows: int, d: int) -> None:
    """Check that v is an array beside b, of shape (d,), (d, K), or (rows, …) with d entries."""
    if not is_array(v):
        raise TypeError(f"v: expected a NumPy or CuPy array, got {kind_of(v)}")
    check_same("v", v, "B", b)
    single = prod(v.shape) == d and v.shape[:1] in ((rows,), (d,))
    if not single and (v.ndim != 2 or v.shape[0] != d):
        raise ValueError(f"v: expected shape ({d},), ({d}, K) or ({rows}, …) with {d} entries, got {v.shape}")


def _solve(name: str, factor: Array, shift: float, rhs: Array, cap: float | None) -> Array:
    """(factor + shift I)⁻¹ rhs for a symmetric positive semi-definite factor; the inverse's eigenvalues are ≤ `cap`."""
    if cap is None:
        return _by_eigenvalues(name, factor, shift, rhs, cap)
    # No eigenvalue of the inverse exceeds 1/shift. If that is at most the cap, the cap has no effect, and a
    # factorization, much cheaper than the eigenvalues, gives the same solution.
    solution = _by_factorization(factor, shift, rhs) if shift * cap >= 1 else None
    return _by_eigenvalues(name, factor, shift, rhs, cap) if solution is None else solution


def _by_factorization(factor: Array, shift: float, rhs: Array) -> Array | None:
    """Return the solution, or None if rounding has made the matrix indefinite: Cholesky on the host, LU on a GPU."""
    xp = array_module(factor)
    shifted = factor.copy()
    shifted[xp.arange(len(factor)), xp.arange(len(factor))] += shift
    if xp is not np:
        return xp.linalg.solve(shifted, rhs)
    try:
        root = cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    return cho_solve(root, rhs, check_finite=False)


def _by_eigenvalues(name: str, factor: Array, shift: float, rhs: Array, cap: float | None) -> Array:
    xp = array_module(factor)
    eigenvalues, vectors = xp.linalg.eigh(factor)
    shifted = eigenvalues + shift
    if cap is not None:
        shifted = xp.maximum(shifted, 1 / cap)
    least, most = bounds(shifted)
    if cap is None and not least > most * factor.shape[0] * float(xp.finfo(factor.dtype).eps):
        raise np.linalg.LinAlgError(
            f"factor {name} of shape {factor.shape} is singular (eigenvalues {least:.3g} to {most:.3g}): "
            "solve with a larger damping"
        )
    return vectors @ ((vectors.T @ rhs) / shifted[:, None])
