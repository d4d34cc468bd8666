"""Computations with symmetric factors, stacked over groups ``[G, n, n]``: solutions, inverses, powers, checks."""

from __future__ import annotations

from functools import reduce
from operator import mul
from types import ModuleType

import numpy as np
from scipy.linalg import cho_factor, cho_solve, get_lapack_funcs

from gbackprop.array import Array, array_module, asnumpy, device_of


def solve(name: str, factor: Array, shift: Array | None, rhs: Array, cap: float | None) -> Array:
    """(factor + shift I)⁻¹ rhs for a symmetric positive semi-definite factor; the inverse's eigenvalues are ≤ `cap`."""
    if shift is not None and _needs_no_eigenvalues(factor, shift, cap):
        on_host = device_of(factor) == "cpu"  # in float64, as NumPy computes eigenvalues: float32 would lose digits
        solution = _by_factorization(shifted(factor.astype(np.float64) if on_host else factor, shift), rhs)
        if solution is not None:
            return solution
    values, vectors = array_module(factor).linalg.eigh(factor)
    values = above(described(name, factor), values, None if shift is None else shift[:, None], cap)
    return vectors @ ((vectors.swapaxes(1, 2) @ rhs) / values[:, :, None])


def _needs_no_eigenvalues(factor: Array, shift: Array, cap: float | None) -> bool:
    """Return whether a factorization, much cheaper than the eigenvalues, gives the solution that they give.

    No eigenvalue of the inverse exceeds 1/shift. A cap that is at least that has no effect; without a cap, a shift far
    from rounding leaves nothing to refuse but an eigenvalue below −shift, which a factorization detects on the host.
    """
    if cap is not None:
        return bool((shift * cap >= 1).all())
    return array_module(factor) is np and bool(_far_from_singular(shifted(factor, shift), shift).all())


def inverse(name: str, factor: Array, shift: Array | None) -> Array:
    """(factor + shift I)⁻¹ of each group, symmetric; see `solve`."""
    whole = shifted(factor, shift)
    quick = _by_cholesky(whole) if array_module(whole) is np and len(whole) == 1 else _by_elimination(whole)
    if quick is not None and _regular(whole, quick, shift):
        return quick
    values, vectors = array_module(factor).linalg.eigh(factor)
    eigenvalues = above(described(name, factor), values, None if shift is None else shift[:, None], None)
    return recomposed(vectors, 1 / eigenvalues)


def power(name: str, factor: Array, p: float) -> Array:
    """factorᵖ of each group, by its eigenvalues; see `powers`."""
    values, vectors = array_module(factor).linalg.eigh(factor)
    return recomposed(vectors, powers(described(name, factor), values, p))


def powers(name: str, values: Array, p: float) -> Array:
    """Return valuesᵖ for the eigenvalues ``[G, …]`` of positive semi-definite matrices; negative ones count as 0."""
    if p >= 0 and p == int(p):
        return values ** int(p)
    check_positive(name, values, None, strictly=p < 0)
    return array_module(values).maximum(values, 0) ** p


def above(name: str, values: Array, shift: Array | float | None, cap: float | None) -> Array:
    """Return shifted eigenvalues ``[G, …]``: of at least 1/cap, or where there is no cap, checked to be above 0."""
    moved = values if shift is None else values + shift
    if cap is not None:
        return array_module(values).maximum(moved, 1 / cap)
    check_positive(name, moved, shift)
    return moved


def check_positive(name: str, values: Array, shift: Array | float | None, strictly: bool = True) -> None:
    """Check that eigenvalues ``[G, …]`` are above 0, or at least 0 where not `strictly`.

    An eigenvalue is 0 within rounding if it is at most n ε times the largest, n the number of them. One that contains a
    shift is known to be above 0 already if the shift is above √n ε times the largest.
    """
    xp, flat = array_module(values), values.reshape(len(values), -1)
    own = 0.0 if shift is None else shift if isinstance(shift, float) else shift.reshape(-1)
    ends = [flat.min(1), flat.max(1), flat.max(1) * 0 + own]
    rounding = max(values.shape[1:]) * float(xp.finfo(values.dtype).eps)
    for group, (least, most, moved) in enumerate(asnumpy(xp.stack(ends, axis=1)).tolist()):
        known = least > 0 and moved > most * rounding / max(values.shape[1:]) ** 0.5
        if least > most * rounding or known or (not strictly and least >= -most * rounding):
            continue
        indefinite = least < -abs(most) * rounding
        problem = "not positive semi-definite" if indefinite else f"singular within the rounding of {values.dtype}"
        prefix = f"group {group}: " if len(values) > 1 else ""
        raise np.linalg.LinAlgError(
            f"{prefix}{name} is {problem} (eigenvalues {least:.3g} to {most:.3g}): use a larger damping"
        )


def shifted(factor: Array, shift: Array | None) -> Array:
    """Return factor + shift I of each group, a new array."""
    whole, places = factor.copy(), array_module(factor).arange(factor.shape[1])
    if shift is not None:
        whole[:, places, places] += shift[:, None]
    return whole


def recomposed(vectors: Array, values: Array) -> Array:
    """Q diag(values) Qᵀ of each group."""
    return (vectors * values[:, None, :]) @ vectors.swapaxes(1, 2)


def product(parts: dict[str, Array]) -> Array:
    """Return the eigenvalues ``[G, O, I]`` of a block from parts that broadcast to them."""
    return reduce(mul, parts.values())


def described(name: str, factor: Array) -> str:
    """Return what errors call a factor."""
    return f"factor {name} of shape {factor.shape[-2:]}"


def _by_factorization(whole: Array, rhs: Array) -> Array | None:
    """Return the solutions, or None if rounding has made a matrix indefinite: LU on a GPU, which cannot tell."""
    try:
        if array_module(whole) is np and len(whole) == 1:
            root = cho_factor(whole[0], lower=True, overwrite_a=True, check_finite=False)
            found = cho_solve(root, rhs[0], check_finite=False)[None]
        else:
            found = _definite(whole).linalg.solve(_symmetric(whole), rhs)
        return found.astype(rhs.dtype, copy=False)
    except np.linalg.LinAlgError:
        return None


def _by_cholesky(whole: Array) -> Array | None:
    """Return the inverse of the one matrix of ``[1, n, n]``, or None if it is not positive definite."""
    potrf, potri = get_lapack_funcs(("potrf", "potri"), (whole,))
    root, failed = potrf(whole[0].T, lower=False, clean=True)  # the lower triangle counts, which is the upper one here
    half, singular = potri(root, lower=False, overwrite_c=True) if not failed else (root, failed)
    if failed or singular:
        return None
    full = half + half.T  # below its diagonal `half` is 0
    full[np.arange(len(full)), np.arange(len(full))] *= 0.5
    return full[None]


def _by_elimination(whole: Array) -> Array | None:
    """Return the inverses of ``[G, n, n]``, or None if one is not positive definite; see `_by_factorization`."""
    try:
        found = _definite(whole).linalg.inv(_symmetric(whole))
    except np.linalg.LinAlgError:
        return None
    return (found + found.swapaxes(1, 2)) / 2


def _symmetric(whole: Array) -> Array:
    """Return the symmetric matrices of the lower triangles of ``[G, n, n]``."""
    xp = array_module(whole)
    return xp.tril(whole) + xp.tril(whole, -1).swapaxes(1, 2)


def _definite(whole: Array) -> ModuleType:
    """Return the array module; raise LinAlgError if it is NumPy and finds a matrix that is not positive definite."""
    xp = array_module(whole)
    if xp is np:
        np.linalg.cholesky(whole)
    return xp


def _regular(whole: Array, inverted: Array, shift: Array | None) -> bool:
    """Return whether `check_positive` would accept all groups, by norms that are no less than the spectral ones."""
    rounding = whole.shape[1] * float(array_module(whole).finfo(whole.dtype).eps)
    fine = _norm(whole) * _norm(inverted) * rounding < 1
    return bool((fine if shift is None else fine | _far_from_singular(whole, shift)).all())


def _far_from_singular(whole: Array, shift: Array) -> Array:
    """Return for each group whether `check_positive` would accept a positive semi-definite factor's shift, ``[G]``.

    `whole` is the factor with its shift.
    """
    return shift > _norm(whole) * whole.shape[1] ** 0.5 * float(array_module(whole).finfo(whole.dtype).eps)


def _norm(whole: Array) -> Array:
    """Return the largest sum of absolute values in a column of each group, ``[G]``: no less than the spectral norm."""
    return array_module(whole).abs(whole).sum(1).max(1)
