"""Hessians of samples without negative eigenvalues: their roots, and what rounding may make of an eigenvalue.

Rounding is judged for each sample, of H scaled to a diagonal of ones: H = S D S with S the diagonal matrix of s. Beside
the largest entries of H, those of another output, or sample, may be as small as they like.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gbackprop.array import Array, array_module

ROUNDING = 1e-10
"""The rounding of an eigenvalue of a matrix with a diagonal of ones."""

CANCELLED = 64
"""The bound on what all roundings make of a Hessian, over what one rounding of all values, or of its terms, does."""


def scaled_to_ones(hessian: Array) -> tuple[Array, Array]:
    """Return s and H / s sᵀ of each sample, with s the square roots of the diagonal's absolute values.

    Where Hᵢᵢ is 0 it is the number that makes the largest entry beside it, if there is any, 1: H has a negative
    eigenvalue then, and so has H / s sᵀ, of a size that does not depend on that of H.
    """
    xp = array_module(hessian)
    scale = xp.sqrt(xp.abs(xp.diagonal(hessian, 0, 1, 2)))
    largest = xp.sqrt(xp.abs(hessian).max((1, 2)))[:, None]
    beside = (xp.abs(hessian) / xp.where(scale > 0, scale, xp.where(largest > 0, largest, 1))[:, None]).max(2)
    scale = xp.where(scale > 0, scale, xp.where(beside > 0, beside, 1))
    return scale, hessian / scale[:, :, None] / scale[:, None]


def root_of(hessian: Array) -> tuple[Array, bool]:
    """Compute R with R Rᵀ = H for each sample, with negative eigenvalues as 0, and whether these are rounding."""
    xp = array_module(hessian)
    scale, scaled = scaled_to_ones(hessian)
    eigenvalues, vectors = xp.linalg.eigh(scaled)
    roots = scale[:, :, None] * vectors * xp.sqrt(xp.maximum(eigenvalues, 0))[:, None, :]
    return roots, float(eigenvalues.min()) >= -ROUNDING


def indefinite_sample(hessian: Array, moved: Sequence[Array], terms: Array) -> int | None:
    """Return the first sample with a negative eigenvalue that is no rounding, or None.

    vᵀ H v is off by at most |v|ᵀ E |v|, with E the errors of the entries; here it is asked of H / s sᵀ. E is what the
    Hessian changes by where all values are `moved` by a rounding, or a rounding of its `terms`, summed without signs.
    """
    xp = array_module(hessian)
    scale, scaled = scaled_to_ones(hessian)
    change = xp.abs(xp.stack(list(moved)) - hessian).max(0)
    error = xp.maximum(xp.where(xp.isfinite(change), change, 0), float(np.finfo(hessian.dtype).eps) * terms)
    error = CANCELLED * error / scale[:, :, None] / scale[:, None]
    eigenvalues, vectors = xp.linalg.eigh(scaled)
    allowed = ROUNDING + xp.einsum("niv,nij,njv->nv", xp.abs(vectors), error, xp.abs(vectors))
    negative = (eigenvalues < -allowed).any(1)
    return int(negative.argmax()) if bool(negative.any()) else None
