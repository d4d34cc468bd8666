"""Solutions of systems with an operator, of several columns at a time: by conjugate gradients, LSMR, and a series.

SciPy's solvers take one right-hand side. K of them, each made of length 1, are one for the block-diagonal matrix with K
times the same block: each step is then one product of the operator with K vectors, and ends when all are solved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gbackprop.array import Array, all_finite, array_module, on_device_of, scipy_module
from gbackprop.base.checks import number, positive
from gbackprop.base.errors import NotConvergedWarning, warn

TERMS = 100
"""Terms of a Neumann series, unless given."""

ROUNDINGS = 32
"""The least residual that can be asked for, in units of the dtype's rounding: below it A x itself is rounded."""

HELP = "more damping, a larger rtol or maxiter, or float64"


@dataclass(frozen=True)
class Solved:
    """The result of a solver.

    Attributes
    ----------
    x : ndarray, shape (n, K)
    steps : int
        After which it ended.
    residual : float
        Of x itself: a solver's own, of its recurrences, may be far smaller.
    why : str
        What may help if it did not converge.
    """

    x: Array
    steps: int
    residual: float
    why: str

    def converged(self, rtol: float) -> bool:
        """Return whether the residual is that which was asked for, as far as the dtype's rounding allows."""
        return self.residual <= max(2 * rtol, ROUNDINGS * float(np.finfo(self.x.dtype).eps))


def inverted(
    matrix: Any, method: str, damping: float, rtol: float | None, maxiter: int | None, scale: float
) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Check the arguments; return the functions that multiply by the inverse, and by its transpose."""
    if method not in ("cg", "lsmr", "neumann"):
        raise ValueError(f"method: expected 'cg', 'lsmr' or 'neumann', got {method!r}")
    if method != "lsmr" and not matrix.symmetric:
        raise ValueError(f"method: expected 'lsmr' for an operator that is not symmetric, got {method!r}")
    rtol = float(np.finfo(matrix.dtype).eps) ** 0.5 if rtol is None else number("rtol", rtol, above=0, below=1)
    usual = TERMS if method == "neumann" else 10 * min(matrix.shape)
    maxiter = usual if maxiter is None else positive("maxiter", maxiter)
    scale = number("scale", scale, above=0)

    def solved(A: Any, B: Array) -> Array:
        if method == "cg":
            found = conjugate_gradients(A, B, rtol, maxiter)
        elif method == "lsmr":
            found = least_squares(A, B, rtol, maxiter, damping)
        else:
            found = series(A, B, rtol, maxiter, scale)
        if not found.converged(rtol):
            steps = f"{method}: the residual is {found.residual:.1e} after {found.steps} steps"
            warn(f"{steps}, expected {rtol:.1e} ({found.why})", NotConvergedWarning)
        return found.x

    return partial(solved, matrix), partial(solved, matrix.T)


def conjugate_gradients(A: Any, B: Array, rtol: float, maxiter: int | None) -> Solved:
    """Solve A X = B by SciPy's `cg`, for a symmetric positive definite operator A."""
    steps: list[Array] = []
    with on_device_of(B):
        units, lengths = _units(B)
        module = scipy_module(B, "sparse.linalg")
        relative = "rtol" if "rtol" in inspect.signature(module.cg).parameters else "tol"  # CuPy's older name
        limits = {relative: 0.0, "atol": rtol, "maxiter": maxiter, "callback": lambda x: steps.append(x[:0])}
        with np.errstate(all="ignore"):  # what is not finite is an error of the next product
            x = module.cg(_side_by_side(module, A, B.shape[1], "cg"), units.reshape(-1), **limits)[0]
        x = x.reshape(B.shape)
        along = (x * units).sum(0)
        if not bool(((along > 0) | (lengths == 0)).all()):  # NaN, too
            raise np.linalg.LinAlgError("cg: the matrix is not positive definite: more damping")
        return Solved(x * lengths, len(steps), residual(A, x, units), HELP)


def least_squares(A: Any, B: Array, rtol: float, maxiter: int, damping: float) -> Solved:
    """Minimize ‖A X − B‖² + λ ‖X‖² by SciPy's `lsmr`."""
    with on_device_of(B):
        units, lengths = _units(B)
        module, limit = scipy_module(B, "sparse.linalg"), rtol / B.shape[1] ** 0.5
        # a symmetric system has a solution: no end at what is one of least squares within its condition
        limits = {"atol": 0.0 if A.symmetric else limit, "btol": limit, "conlim": 0.0, "maxiter": maxiter}
        limits["damp"] = damping**0.5
        with np.errstate(all="ignore"):  # its first numbers overflow in float32
            found = module.lsmr(_side_by_side(module, A, B.shape[1], "lsmr"), units.reshape(-1), **limits)
            x = found[0].reshape(-1, B.shape[1]).astype(B.dtype, copy=False)
        return Solved(x * lengths, int(found[2]), residual(A, x, units, damping, float(found[5])), HELP)


def series(A: Any, B: Array, rtol: float, maxiter: int, scale: float) -> Solved:
    """Sum X = α Σₖ (I − α A)ᵏ B for a symmetric operator A; the residual B − A X of k terms is (I − α A)ᵏ B.

    It is never longer than B if the series converges.
    """
    with on_device_of(B):
        units, lengths = _units(B)
        x, left, why = 0 * units, units, "a larger maxiter or rtol, or another scale"
        for k in range(1, maxiter + 1):
            x = x + scale * left
            left = left - scale * A._matmat(left)
            largest = float(_lengths(left).max())
            if largest <= rtol:
                return Solved(x * lengths, k, residual(A, x, units), why)
            if not largest <= 1 + rtol:
                why = "it diverges: expected a positive definite matrix and a scale below 2 over its largest eigenvalue"
                break
        return Solved(x * lengths, k, residual(A, x, units), why)


def residual(A: Any, X: Array, B: Array, damping: float = 0.0, norm: float = 1.0) -> float:
    """Return the largest ‖A x − b‖ / ‖b‖; of one that is not symmetric, ‖Aᵀ(A x − b) + λ x‖ / (‖A‖ (‖b‖ + ‖A‖ ‖x‖))."""
    rest, lengths = A._matmat(X) - B, _lengths(B)
    if not A.symmetric:
        rest, lengths = A._rmatmat(rest) + damping * X, norm * (lengths + norm * _lengths(X))
    return float((_lengths(rest) / array_module(B).where(lengths > 0, lengths, 1)).max())


def _lengths(V: Array) -> Array:
    """Return the length of each column, ``[K]``."""
    return array_module(V).linalg.norm(V, axis=0)


def _units(B: Array) -> tuple[Array, Array]:
    """Return columns of length 1, or 0, and their lengths, whose squares may be beyond the range of the dtype."""
    xp = array_module(B)
    largest = xp.abs(B).max(0)
    largest = xp.where(largest > 0, largest, 1)
    scaled = B / largest
    lengths = _lengths(scaled)
    return scaled / xp.where(lengths > 0, lengths, 1), lengths * largest


def _side_by_side(module: Any, A: Any, count: int, name: str) -> Any:
    """Return the operator on K columns as one vector: ``[n K] -> [m K]``."""

    def flat(product: Callable[[Array], Array], v: Array) -> Array:
        if not all_finite(v):
            raise np.linalg.LinAlgError(
                f"{name}: a step is beyond the range of {A.dtype}: the matrix is singular: more damping"
            )
        return product(v.reshape(-1, count)).reshape(-1)

    shape, products = (A.shape[0] * count, A.shape[1] * count), (partial(flat, A._matmat), partial(flat, A._rmatmat))
    return module.LinearOperator(shape, matvec=products[0], rmatvec=products[1], dtype=A.dtype)
