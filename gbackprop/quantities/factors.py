"""A curvature block given by Kronecker factors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from numbers import Real

import numpy as np

from gbackprop.array import Array, array_module, is_array
from gbackprop.checks import check_same


@dataclass(frozen=True, eq=False)
class Kronecker:
    """The block B ⊗ A of a weight (entries in row-major order), or B of a bias.

    Attributes
    ----------
    A : ndarray, shape (I, I), or None
        Input factor; None for a bias.
    B : ndarray, shape (O, O)
        Output factor.
    """

    A: Array | None
    B: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (D, D) of the block."""
        d = self.B.shape[0] * (1 if self.A is None else self.A.shape[0])
        return d, d

    @property
    def dtype(self) -> np.dtype:
        """dtype of the factors."""
        return self.B.dtype

    def to_dense(self) -> Array:
        """The block, shape (D, D)."""
        if self.A is None:
            return self.B.copy()
        return array_module(self.B).kron(self.B, self.A)

    def trace(self) -> Array:
        """Trace of the block, a scalar: tr B tr A."""
        trace = self.B.trace()
        return trace if self.A is None else trace * self.A.trace()

    def matvec(self, v: Array) -> Array:
        """The block times a vector: (B ⊗ A) vec V = vec(B V Aᵀ).

        Parameters
        ----------
        v : ndarray, shape (D,) or the parameter's shape

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
        matrix = self._matrix(v)
        product = self.B @ matrix
        return (product if self.A is None else product @ self.A.T).reshape(v.shape)

    def solve(self, v: Array, damping: float = 0.0) -> Array:
        """The inverse of the damped block times a vector, as the paper's update rule has it.

        For a weight (B + √λ/π I)⁻¹ ⊗ (A + π √λ I)⁻¹ with π² = (tr A / dim A) / (tr B / dim B); for a bias
        (B + λ I)⁻¹. Where a factor has trace 0, π is 1.

        Parameters
        ----------
        v : ndarray, shape (D,) or the parameter's shape
        damping : float
            λ, not negative.

        Returns
        -------
        ndarray, shape of `v`

        Raises
        ------
        ValueError
            If `damping` is negative or not finite, or `v` has another number of entries.
        numpy.linalg.LinAlgError
            If the block is singular even with the damping.

        Notes
        -----
        Source: Martens & Grosse 2015 (factored Tikhonov damping); paper, update rule of its experiments.
        """
        if isinstance(damping, bool) or not isinstance(damping, Real) or not 0 <= damping < float("inf"):
            raise ValueError(f"damping: expected a finite number of at least 0, got {damping!r}")
        matrix = self._matrix(v)
        if self.A is None:
            return _solve("B", self.B, damping, matrix).reshape(v.shape)
        pi, root = self._pi(), damping**0.5
        half = _solve("B", self.B, root / pi, matrix)
        return _solve("A", self.A, root * pi, half.T).T.reshape(v.shape)

    def _pi(self) -> float:
        assert self.A is not None
        a, b = float(self.A.trace()) / self.A.shape[0], float(self.B.trace()) / self.B.shape[0]
        return (a / b) ** 0.5 if a > 0 and b > 0 else 1.0

    def _matrix(self, v: Array) -> Array:
        """V: ``[D]`` or the parameter's shape as ``[O, I]``."""
        if not is_array(v):
            raise TypeError(f"v: expected a NumPy or CuPy array, got {type(v).__name__}")
        check_same("v", v, "B", self.B)
        rows = self.B.shape[0]
        if prod(v.shape) != self.shape[0] or v.shape[:1] not in ((rows,), self.shape[:1]):
            raise ValueError(f"v: expected shape ({self.shape[0]},) or ({rows}, …) with as many entries, got {v.shape}")
        return v.reshape(self.B.shape[0], -1)


def _solve(name: str, factor: Array, shift: float, rhs: Array) -> Array:
    """(factor + shift I)⁻¹ rhs for a symmetric positive semi-definite factor, by its eigenvalues."""
    xp = array_module(factor)
    eigenvalues, vectors = xp.linalg.eigh(factor)
    shifted = eigenvalues + shift
    least, most = float(shifted.min()), float(shifted.max())
    if not least > most * factor.shape[0] * float(xp.finfo(factor.dtype).eps):
        raise np.linalg.LinAlgError(
            f"factor {name} of shape {factor.shape} is singular (eigenvalues {least:.3g} to {most:.3g}): "
            "solve with a larger damping"
        )
    return vectors @ ((vectors.T @ rhs) / shifted[:, None])
