"""Stochastic estimates of traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.base.checks import generator
from gbackprop.curvature.spectra.products import Estimate, Products, chosen
from gbackprop.curvature.spectra.sketch import averaged, leave_one_out


def trace(
    A: Any,
    method: Literal["hutchinson", "hutch++", "xtrace"] = "xtrace",
    samples: int = 64,
    rng: int | np.random.Generator | None = None,
    block: int = 32,
) -> Estimate:
    """Estimate the trace of a square matrix from products with random vectors. All methods are without bias.

    Parameters
    ----------
    A : ndarray, sparse matrix or LinearOperator, shape (n, n)
        Real; it need not be symmetric.
    method : {"hutchinson", "hutch++", "xtrace"}
        "hutchinson" is the mean of zᵀ A z over vectors of ±1, exact for diagonal matrices. "hutch++" takes the trace
        on the range of a third of the products exactly, and estimates the rest. "xtrace" does so with every vector and
        the range of all the others. The last two are exact, up to rounding, where the rank of A is less than the
        number of vectors: a third, or half, of `samples`.
    samples : int
        Number of products of A with a vector, at least 2; 4 for "hutch++" and "xtrace".
    rng : None, int or numpy.random.Generator
    block : int
        Most vectors in one product.

    Returns
    -------
    Estimate
        With the standard error. That of "hutch++" is given the range; that of "xtrace" takes its estimates for
        independent, which they nearly are. Of two or three vectors of ±1 in few dimensions it can be 0 by chance: they
        may be equal but for signs.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, or a product is not finite.

    Notes
    -----
    Memory: `block` vectors for "hutchinson"; for the others about as many vectors as there are products.

    Source: Hutchinson 1989; Meyer, Musco, Musco, Woodruff 2021 (Hutch++); Epperly, Tropp, Webber 2024 (XTrace).
    """
    estimate = chosen(METHODS, method, samples)
    with on_device_of(A):
        found = estimate(Products(A, block), samples, generator(rng))
    return Estimate(float(found.value), float(found.error))


def _hutchinson(products: Products, samples: int, rng: np.random.Generator) -> Estimate:
    """Compute the mean of zᵀ A z."""
    return averaged(_forms(products, samples, rng, lambda z: z))


def _hutch_plus_plus(products: Products, samples: int, rng: np.random.Generator) -> Estimate:
    """Compute tr(Qᵀ A Q) + mean of zᵀ P A P z, with Q a basis of the range of A S and P = I − Q Qᵀ."""
    k = min(samples // 3, products.n)
    tests = products.directions(k, rng)
    q = array_module(tests).linalg.qr(products(tests))[0]
    rest = averaged(_forms(products, samples - 2 * k, rng, lambda z: z - q @ (q.T @ z)))
    return Estimate(_dots(q, products(q)).sum() + rest.value, rest.error)


def _xtrace(products: Products, samples: int, rng: np.random.Generator) -> Estimate:
    """Compute the mean over i of tr(Q₍ᵢ₎ᵀ A Q₍ᵢ₎) + c uᵀ A u, with u = ω − Q₍ᵢ₎ Q₍ᵢ₎ᵀ ω and c = d/‖u‖².

    With w = Qᵀ ω and x = (I − s sᵀ) w, u = ω − Q x; d is the number of dimensions beyond Q₍ᵢ₎.
    """
    n, k = products.n, min(samples // 2, products.n)
    omega = products.directions(k, rng) * n**0.5
    y = products(omega)
    q, s = leave_one_out(y)
    z = products(q)  # A Q
    h, w = q.T @ z, q.T @ omega
    along = _dots(s, w)
    x = w - s * along.astype(s.dtype)
    xp, terms = array_module(s), (_dots(omega, y), -_dots(z.T @ omega, x), -_dots(x, q.T @ y), _dots(x, h @ x))
    rest, largest = sum(terms), sum(xp.abs(term) for term in terms)  # uᵀ A u
    known = xp.abs(rest) > 16 * float(np.finfo(products.dtype).eps) * largest  # otherwise it is rounding, as u may be
    square = xp.where(known, n - _dots(w, w) + along**2, 1)  # ‖u‖²
    beyond = n - q.any(0).sum() + s.any(0)  # d
    return averaged(h.diagonal().sum() - _dots(s, h @ s) + xp.where(known, beyond / square * rest, 0))


def _forms(products: Products, count: int, rng: np.random.Generator, change: Callable[[Array], Array]) -> Array:
    """Compute zᵀ A z for changed vectors of ±1, some at a time, shape (count,)."""
    found = []
    for start in range(0, count, products.block):
        z = change(products.signs(min(products.block, count - start), rng))
        found.append(_dots(z, products(z)))
    return array_module(found[0]).concatenate(found)


def _dots(one: Array, other: Array) -> Array:
    """Compute the products of columns, in float64: ``(n, K), (n, K) -> (K,)``."""
    return (one * other).sum(0, dtype=np.float64)


METHODS = {"hutchinson": (2, _hutchinson), "hutch++": (4, _hutch_plus_plus), "xtrace": (4, _xtrace)}
"""Each method's least number of samples, and the function that computes it."""
