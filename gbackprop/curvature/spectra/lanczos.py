"""The spectral density of a symmetric matrix, by Lanczos's method from random vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal

from gbackprop.array import Array, array_module, asnumpy, on_device_of
from gbackprop.base.checks import generator, number, positive
from gbackprop.curvature.spectra.products import Estimate, Products
from gbackprop.curvature.spectra.sketch import averaged


@dataclass(frozen=True)
class SpectralDensity:
    """An estimate of the density φ of the eigenvalues λ of an n × n matrix, φ(t) = 1/n Σᵢ δ(t − λᵢ).

    Attributes
    ----------
    nodes : ndarray, shape (vectors, min(steps, n))
        For each random vector v, of length 1, the nodes θ of a quadrature with weights: vᵀ f(A) v ≈ Σⱼ wⱼ f(θⱼ), exact
        for polynomials f of degree 2 · steps − 1.
    weights : ndarray, shape (vectors, min(steps, n))
        w; those of a vector sum to 1.
    n : int
    """

    nodes: np.ndarray
    weights: np.ndarray
    n: int

    def __call__(self, points: Any, width: float | None = None) -> np.ndarray:
        """Compute the density at points, broadened by a Gaussian.

        Parameters
        ----------
        points : array_like, shape (P,)
        width : float, optional
            The Gaussian's standard deviation; by default a hundredth of the range of the nodes, or of their size where
            they are all the same.

        Returns
        -------
        ndarray, shape (P,)
            Its integral is 1.
        """
        spread, size = float(np.ptp(self.nodes)), float(abs(self.nodes).max())
        spread = spread if spread > 1e-6 * size else size or 1.0  # nodes that differ by rounding are one
        sigma = spread / 100 if width is None else number("width", width, above=0)
        distances = (np.asarray(points, np.float64).reshape(-1, 1) - self.nodes.reshape(1, -1)) / sigma
        weights = self.weights.reshape(-1) / (len(self.nodes) * sigma * (2 * np.pi) ** 0.5)
        return np.exp(-(distances**2) / 2) @ weights

    def trace(self, function: Callable[[np.ndarray], Any]) -> Estimate:
        """Estimate tr f(A) = n ∫ f φ, for instance the logarithm of a determinant with f = log.

        Parameters
        ----------
        function : callable
            f, of arrays, elementwise.

        Returns
        -------
        Estimate
            With the standard error over the vectors; NaN for a single one.
        """
        # Nodes of weight 0 stand for steps that there were no directions for: f need not be defined there.
        values = np.where(self.weights > 0, function(np.where(self.weights > 0, self.nodes, self.nodes[:, :1])), 0.0)
        found = averaged(self.n * (self.weights * values).sum(1))
        return Estimate(float(found.value), float(found.error) if len(self.nodes) > 1 else float("nan"))


def density(A: Any, steps: int = 50, vectors: int = 8, rng: int | np.random.Generator | None = None) -> SpectralDensity:
    """Estimate the spectral density of a symmetric matrix by stochastic Lanczos quadrature.

    Parameters
    ----------
    A : ndarray, sparse matrix or LinearOperator, shape (n, n)
        Real and symmetric.
    steps : int
        Number of steps of Lanczos's method: a product with a block of `vectors` vectors each. At most n are done.
    vectors : int
        Number of random vectors of uniform direction.
    rng : None, int or numpy.random.Generator

    Returns
    -------
    SpectralDensity
        A function of points, with nodes and weights.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, a product is not finite, or A turns out not to be symmetric.

    Notes
    -----
    All vectors go through the steps together. Each is orthogonalized against all of its earlier ones, twice, so that no
    eigenvalue appears twice: the memory is that of ``steps * vectors`` vectors.

    Source: Golub, Meurant 1994; Ubaru, Chen, Saad 2017; Ghorbani, Krishnan, Xiao 2019.
    """
    positive("steps", steps)
    products = Products(A, positive("vectors", vectors))
    with on_device_of(A):
        start = products.directions(vectors, generator(rng))
        diagonals, offs = _lanczos(products, start, min(steps, products.n))
    nodes, weights = np.zeros((2, *diagonals.shape))
    for i, (diagonal, off) in enumerate(zip(diagonals, offs, strict=True)):
        count = 1 + int((off > 0).cumprod().sum())  # the others are beyond the span of A's powers
        theta, v = eigh_tridiagonal(diagonal[:count], off[: count - 1])
        nodes[i, :count], weights[i, :count] = theta, v[0] ** 2
        nodes[i, count:] = theta[0]
    return SpectralDensity(nodes, weights, products.n)


def _lanczos(products: Products, start: Array, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the tridiagonal matrices of K vectors (n, K): diagonals (K, steps) and off-diagonals (K, steps − 1).

    An off-diagonal is 0 where a vector's Krylov space has no further direction.
    """
    xp, (n, count) = array_module(start), start.shape
    basis = xp.zeros((count, steps, n), dtype=start.dtype)
    basis[:, 0] = start.T
    diagonals, offs = xp.zeros((count, steps)), xp.zeros((count, steps))
    eps, scale, unit = float(np.finfo(start.dtype).eps), 0.0, 0.0
    for j in range(steps):
        known = basis[:, : j + 1]
        w = xp.ascontiguousarray(products(xp.ascontiguousarray(basis[:, j].T)).T)[:, :, None]  # (K, n, 1)
        unit = unit or float(xp.abs(w).max()) or 1.0  # of A, so that no square is beyond the range of its dtype
        w = w / unit  # a new array: the product may be the operator's own, or the basis
        scale = max(scale, float(xp.sqrt((w * w).sum(1)).max()))
        along = known @ w
        _check_symmetric(along[:, :, 0], offs, eps**0.5 * scale)
        diagonals[:, j] = along[:, j, 0]
        w = w - known.swapaxes(1, 2) @ along
        w = (w - known.swapaxes(1, 2) @ (known @ w))[:, :, 0]
        length = xp.sqrt((w * w).sum(1))
        length = xp.where(length > 100 * eps * scale, length, 0)
        offs[:, j] = length
        if j + 1 < steps:
            basis[:, j + 1] = w / xp.where(length > 0, length, 1)[:, None] * (length > 0)[:, None]
    return unit * asnumpy(diagonals), unit * asnumpy(offs[:, : steps - 1])


def _check_symmetric(along: Array, offs: Array, tolerance: float) -> None:
    """Check that A v has nothing along earlier vectors but, along the last one, the off-diagonal."""
    xp, j = array_module(along), along.shape[1] - 1
    if j == 0:
        return
    excess = xp.abs(along[:, :j])
    excess[:, j - 1] = xp.abs(along[:, j - 1] - offs[:, j - 1])
    if float(excess.max()) > tolerance:
        raise ValueError("A: expected a symmetric matrix, got one that is not")
