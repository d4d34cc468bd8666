"""An orthonormal basis of products with test vectors, and the same basis without one of them.

With Y = A Ω = Q R of k test vectors ω, let sᵢ be the column i of R⁻ᵀ, of length 1. Q sᵢ is the direction in which Q
exceeds the span of the other columns of Y, so that Q₍ᵢ₎ Q₍ᵢ₎ᵀ = Q (I − sᵢ sᵢᵀ) Qᵀ projects to that span: estimates that
use each ω with the basis of all the others need no product of their own.

Source: Epperly, Tropp, Webber 2024 (XTrace: making the most of every sample in stochastic trace estimation).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.curvature.spectra.products import Estimate


def leave_one_out(product: Array) -> tuple[Array, Array]:
    """Compute Q (n, k) and S (k, k), whose columns are the sᵢ, of a product Y (n, k) with k ≤ n.

    R is diag(σ) Vᵀ, of Y's singular values and vectors. Where columns of Y depend on each other, up to rounding, Q has
    columns of zeros, and sᵢ is zero for each of those columns of Y: Q₍ᵢ₎ is Q. The part of Y that Q leaves out may be
    larger than rounding: it is not zero, and what is beyond Q must be estimated from Y itself.
    """
    xp = array_module(product)
    q, r = xp.linalg.qr(product)
    u, sizes, vt = xp.linalg.svd(r)
    tolerance = 10 * len(r) * float(np.finfo(r.dtype).eps)
    known = sizes > tolerance * sizes[0]  # the other directions are of rounding
    least = xp.where(known, sizes, sizes[0]).min()
    alone = 1 - (vt * vt * known[:, None]).sum(0) <= tolerance
    s = vt * xp.where(known, least / xp.where(known, sizes, 1), 0)[:, None] * alone
    return q @ u * known, s / xp.where(alone, xp.sqrt((s * s).sum(0)), 1)


def averaged(values: Any) -> Estimate:
    """Return the mean over the last axis, with the standard error of a mean of independent values; of one value 0."""
    k = values.shape[-1]
    error = values.std(-1, ddof=1) / k**0.5 if k > 1 else 0 * values[..., 0]
    return Estimate(values.mean(-1), error)
