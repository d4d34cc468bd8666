"""Orthonormal eigenvectors of positive semi-definite factors."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, get_lapack_funcs, qr

from gbackprop.array import Array, array_module
from gbackprop.base.threads import one_blas_thread
from gbackprop.kronecker.low_rank import LEAST_SIZE, root_of_low_rank


def eigenbasis(factor: Array) -> Array:
    """Compute orthonormal eigenvectors of a positive semi-definite factor, or of each group's.

    Where an eigenvalue occurs several times, rounding chooses among its eigenvectors: small factors have those of
    `numpy.linalg.eigh`, which a written program calls, too.
    """
    small = factor.shape[-1] < LEAST_SIZE
    if small or array_module(factor) is not np or not np.isfinite(factor).all():
        return array_module(factor).linalg.eigh(factor)[1]
    if factor.ndim == 3:
        return np.stack([eigenbasis(each) for each in factor])
    root = root_of_low_rank(factor)
    # SciPy's BLAS has threads of its own. They and NumPy's, which wait for work, disturb each other: on two cores 1152
    # by 1152 numbers of rank 128 take 93 ms with one thread and 114 with two (and 34 from L).
    with one_blas_thread():
        return eigh(factor, driver="evd", check_finite=False)[1] if root is None else _of_root(root)


def _of_root(root: np.ndarray) -> np.ndarray:
    """Compute the eigenvectors of L Lᵀ for L (n, r), which is overwritten.

    With L = Q [R; 0] and R Rᵀ = W S Wᵀ they are Q [0, W; 1, 0]: any basis serves for the eigenvalue 0.
    """
    n, rank = root.shape
    (ormqr,) = get_lapack_funcs(("ormqr",), (root,))
    (reflectors, tau), upper = qr(root, mode="raw", overwrite_a=True, check_finite=False)
    inner = np.zeros((n, n), root.dtype, order="F")
    driver = "evd" if rank > 1 else "ev"  # SciPy 1.13 gives evd too little memory for one number
    inner[:rank, n - rank :] = eigh(upper @ upper.T, driver=driver, check_finite=False)[1]
    inner[np.arange(rank, n), np.arange(n - rank)] = 1
    vectors, _, failed = ormqr("L", "N", reflectors, tau, inner, 64 * n, overwrite_c=True)
    assert not failed
    return vectors
