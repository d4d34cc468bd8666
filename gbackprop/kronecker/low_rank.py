"""The rank of a positive semi-definite factor, where it is low.

A = Σ u uᵀ over fewer rows than u has entries is of low rank, and so are B of few columns and A of inputs most of which
are always zero. What is computed of such a factor takes much less from L with A = L Lᵀ than from A.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs

from gbackprop.system.threads import one_blas_thread

LEAST_SIZE = 64
"""Of smaller matrices nothing takes longer than a millisecond."""


def root_of_low_rank(factor: np.ndarray) -> np.ndarray | None:
    """Return L (n, r) with A = L Lᵀ for a matrix A (n, n) of rank r ≤ n/2, in Fortran's order; None for any other.

    By Cholesky with pivots, which ends where all that is left of the diagonal is within the rounding of A's entries, √n
    ε times the largest. No block on the diagonal has a larger rank than A: one that does, with more than half of the
    rows, shows that A's is not low, and takes a fifth of the time.
    """
    n = len(factor)
    part, most = 9 * n // 16, factor.diagonal().max(initial=0)
    if n < LEAST_SIZE or not np.isfinite(most) or most <= 0:
        return None
    (pstrf,) = get_lapack_funcs(("pstrf",), (factor,))
    rounding = n**0.5 * np.finfo(factor.dtype).eps * most
    with one_blas_thread():
        if 2 * pstrf(factor[:part, :part].T, tol=rounding, lower=True)[2] > n:
            return None
        root, pivots, rank, _ = pstrf(factor.T, tol=rounding, lower=True)
    if not 0 < 2 * rank <= n:
        return None
    lower = np.zeros((n, rank), factor.dtype, order="F")
    lower[pivots - 1] = np.tril(root[:, :rank])
    return lower
