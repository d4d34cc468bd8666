"""Stochastic estimates of diagonals."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.base.checks import generator
from gbackprop.calculus.moments import Moments
from gbackprop.curvature.spectra.products import Estimate, Products, chosen
from gbackprop.curvature.spectra.sketch import averaged, leave_one_out


def diagonal(
    A: Any,
    samples: int = 64,
    rng: int | np.random.Generator | None = None,
    method: Literal["hutchinson", "xdiag"] = "hutchinson",
    block: int = 32,
) -> Estimate:
    """Estimate the diagonal of a square matrix from products with random vectors. Both methods are without bias.

    Parameters
    ----------
    A : ndarray, sparse matrix or LinearOperator, shape (n, n)
        Real; symmetric for "xdiag".
    samples : int
        Number of products of A with a vector, at least 2; 6 for "xdiag".
    rng : None, int or numpy.random.Generator
    method : {"hutchinson", "xdiag"}
        "hutchinson" is the mean of z ∘ A z over vectors of ±1, exact for diagonal matrices. "xdiag" takes the diagonal
        of the projection to the range of half of the products exactly and estimates the rest, each vector with the
        range of all the others; it is exact, up to rounding, where the rank of A is less than half of `samples` (not
        in few dimensions, where vectors of ±1 depend on each other by chance), and where `samples` are at least n: by n
        unit vectors.
    block : int
        Most vectors in one product.

    Returns
    -------
    Estimate
        Arrays of shape (n,) in the dtype of A: the diagonal, and the standard error of each entry. That of "xdiag"
        takes its estimates for independent: it can be half as large as it should be where A is nearly diagonal.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, a product is not finite, or A is not symmetric for "xdiag".

    Notes
    -----
    Memory: `block` vectors for "hutchinson", about four times `samples` vectors for "xdiag".

    Source: Bekas, Kokiopoulou, Saad 2007; Epperly, Tropp, Webber 2024 (XDiag).
    """
    estimate = chosen(METHODS, method, samples)
    with on_device_of(A):
        products = Products(A, block)
        if method == "xdiag" and samples >= products.n:
            estimate = _by_units
        found = estimate(products, samples, generator(rng))
        return Estimate(found.value.astype(products.dtype), found.error.astype(products.dtype))


def _hutchinson(products: Products, samples: int, rng: np.random.Generator) -> Estimate:
    """Compute the mean of z ∘ A z and, of its squared deviations, the standard error."""
    moments: Moments | None = None
    for start in range(0, samples, products.block):
        z = products.signs(min(products.block, samples - start), rng)
        more = Moments.of((z * products(z)).T)
        moments = more if moments is None else moments.merge(more)
    assert moments is not None  # samples ≥ 2
    error = array_module(moments.mean).sqrt(moments.centered / (samples * (samples - 1)))
    return Estimate(moments.mean, error)


def _xdiag(products: Products, samples: int, rng: np.random.Generator) -> Estimate:
    """Compute the mean over i of diag(Q₍ᵢ₎ Q₍ᵢ₎ᵀ A) + ω ∘ (I − Q₍ᵢ₎ Q₍ᵢ₎ᵀ) A ω.

    With Z = Aᵀ Q the first is diag(Q Zᵀ) − Q s ∘ Z s; with Y = A Ω the second is ω ∘ (y − Q (I − s sᵀ) Qᵀ y).
    """
    omega = products.signs(min(samples // 2, products.n), rng)
    y = products(omega)
    q, s = leave_one_out(y)
    z, x = products(q), q.T @ y
    _check_symmetric(q.T @ z)
    beyond = y - q @ (x - s * (s * x).sum(0))
    values = (q * z).sum(1, keepdims=True) - (q @ s) * (z @ s) + omega * beyond
    return averaged(values.astype(np.float64))


def _by_units(products: Products, samples: int, rng: np.random.Generator) -> Estimate:
    """Compute A eᵢ of each unit vector, which is all of A."""
    matrix = products(products.here(np.eye(products.n)))
    _check_symmetric(matrix)
    return Estimate(matrix.diagonal(), array_module(matrix).zeros_like(matrix.diagonal()))


def _check_symmetric(h: Array) -> None:
    """Check that Qᵀ A Q is symmetric; otherwise A is not."""
    xp = array_module(h)
    if float(xp.abs(h - h.T).max()) > np.finfo(h.dtype).eps ** 0.5 * float(xp.abs(h).max()):
        raise ValueError(
            "A: expected a symmetric matrix for 'xdiag', got one that is not (method='hutchinson' takes it)"
        )


METHODS = {"hutchinson": (2, _hutchinson), "xdiag": (6, _xdiag)}
"""Each method's least number of samples, and the function that computes it."""
