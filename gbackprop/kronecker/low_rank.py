"""The rank of a positive semi-definite factor, where it is low.

A = Σ u uᵀ over fewer rows than u has entries is of low rank, and so are B of few columns and A of inputs most of which
are always zero. The eigenvectors of such a factor take much less from L with A = L Lᵀ than from A.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs

from gbackprop.base.threads import one_blas_thread

LEAST_SIZE = 64
"""Smaller matrices are decomposed in less than a millisecond."""


def root_of_low_rank(factor: np.ndarray) -> np.ndarray | None:
    """Return L (n, r) with A = L Lᵀ for a matrix A (n, n) of rank r ≤ n/2, in Fortran's order; None for any other.

    By Cholesky with pivots of A scaled to a diagonal of ones, in float64. It ends where all that is left of the
    diagonal is within the rounding of A's entries: 8 ε of float32, and √n ε of float64, in which the rounding is its
    own. What is left of A is then at most some ε √(a[i, i] a[j, j]), which is checked: it could be more for a matrix
    that is not positive semi-definite.

    No block on the diagonal has a larger rank than A: one that does, with more than half of the rows, shows first that
    A's is not low, and takes a fifth of the time.
    """
    n, diagonal = len(factor), factor.diagonal().astype(np.float64)
    zero = diagonal == 0
    if n < LEAST_SIZE or not np.isfinite(diagonal).all() or (diagonal < 0).any() or factor[zero].any():
        return None
    scale = np.sqrt(diagonal)
    inverse = np.divide(1, scale, out=np.zeros(n), where=~zero)
    epsilon = np.finfo(factor.dtype).eps
    rounding = max(8 * epsilon, n**0.5 * np.finfo(np.float64).eps)
    (pstrf,) = get_lapack_funcs(("pstrf",), dtype=np.float64)
    for part in (9 * n // 16, n):
        block = factor[:part, :part] * inverse[:part] * inverse[:part, None]
        with one_blas_thread():
            root, pivots, rank, _ = pstrf(block.T, tol=rounding, lower=True)
        if not 0 < 2 * rank <= n:
            return None
    lower = np.zeros((n, rank), factor.dtype, order="F")
    lower[pivots - 1] = np.tril(root[:, :rank])
    block -= lower @ lower.copy().T  # `copy`: NumPy mirrors one half of L Lᵀ, which takes longer than computing it
    if max(block.max(), -block.min()) > 4 * max(rounding, n**0.5 * epsilon):
        return None
    lower *= scale[:, None]
    return lower
