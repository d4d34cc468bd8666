"""Eigenvalues of positive semi-definite matrices H to which δ is added: each with an error that is small beside δ.

`eigh` has errors of eps ‖H‖, which may be far larger than δ and than what small features make of H. A matrix H = S C S,
S diagonal and C with a diagonal of ones, has eigenvalues that C determines to a relative accuracy: those of
S W √Ω (S W √Ω)ᵀ for C = W Ω Wᵀ, by one-sided Jacobi rotations.

Source: Demmel and Veselić 1992; Drmač and Veselić 2008 (LAPACK's dgejsv).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, asnumpy, like

Eigh = Callable[[Array], tuple[Array, Array]]
"""A function of a symmetric matrix, or several, that returns eigenvalues and eigenvectors."""

SEEN = 1e-8
"""The largest error of an eigenvalue of b H beside δ."""

ROUNDING = 64
"""The eigenvalues of C that count as 0, over D eps: H is a sum over many samples, whose rounding is larger than eps."""

UNEVEN = 1e-6
"""Row i is rounding, and counts as 0, where |h_ij − h_ji|, computed apart, is above h_ii and this share of s_i s_j."""

ROWS_AND_COLUMNS, WHOLE, NONE = 2, 1, 3
"""dgejsv's options: a matrix whose rows and columns are both badly scaled, all left singular vectors, no right ones."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A decomposition of H by eigenvalues: by `eigh`, or by `graded_eigh` where δ is small."""

    size: float  # the trace of H
    decompose: Callable[[Eigh], Any]

    @cached_property
    def _ordinary(self) -> Any:
        return self.decompose(eigh)

    @cached_property
    def _graded(self) -> Any:
        return self.decompose(graded_eigh)

    def beside(self, delta: float) -> Any:
        """Return the decomposition whose errors are small beside `delta`, which is added to eigenvalues of H."""
        return self._graded if self.size * np.finfo(np.float64).eps > SEEN * delta else self._ordinary


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Compute eigenvalues ``[..., D]`` and eigenvectors ``[..., D, D]``, with negative eigenvalues as 0."""
    xp = array_module(matrix)
    values, vectors = xp.linalg.eigh(matrix)
    return xp.maximum(values, 0), vectors


def graded_eigh(matrix: Array) -> tuple[Array, Array]:
    """Compute the same to a relative accuracy, on the host, in no order; what rounding may make of 0 is 0."""
    host = asnumpy(matrix)
    found = [_graded(each) for each in host.reshape(-1, *host.shape[-2:])]
    values, vectors = (np.stack(parts) for parts in zip(*found, strict=True))
    return like(values.reshape(host.shape[:-1]), matrix), like(vectors.reshape(host.shape), matrix)


def _graded(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.linalg.lapack import dgejsv  # it takes time to load

    size = len(matrix)
    h = np.maximum(matrix.diagonal(), 0)
    s = np.sqrt(h)
    s[(np.abs(matrix - matrix.T) > np.maximum(h[:, None], UNEVEN * s[:, None] * s)).any(1)] = 0
    inverse = np.divide(1, s, out=np.zeros(size), where=s > 0)
    omega, w = np.linalg.eigh(matrix * inverse[:, None] * inverse)
    seen = omega > ROUNDING * size * np.finfo(np.float64).eps * omega.max(initial=0)
    values, vectors = np.zeros(size), np.eye(size)
    if seen.any():
        root = s[:, None] * w[:, seen] * np.sqrt(omega[seen])
        sigma, vectors, _, work, _, info = dgejsv(root, joba=ROWS_AND_COLUMNS, jobu=WHOLE, jobv=NONE)
        if info != 0:
            raise np.linalg.LinAlgError(f"dgejsv: the rotations did not converge (info {info})")
        values[: len(sigma)] = (sigma * (work[0] / work[1])) ** 2
    return values, vectors
