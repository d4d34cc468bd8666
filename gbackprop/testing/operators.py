"""Check linear operators against the laws of a matrix, and quadratures against products with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gbackprop.base.checks import kind_of
from gbackprop.testing.claims import ROUNDING, Claims, Compared, expect_shape
from gbackprop.testing.diagnosis.search import diagnosed
from gbackprop.testing.purity import impurity
from gbackprop.testing.report import Report

VECTORS, MOMENTS = 3, 8  # to multiply an operator with; of a quadrature


def check_operator(
    operator: Any, dense: Any = None, rng: int | np.random.Generator = 0, tolerance: float | None = None
) -> Report:
    """Check that products of a linear operator follow the laws of a matrix, and are those of the matrix it should be.

    Parameters
    ----------
    operator : LinearOperator or ndarray, shape (m, n)
        Or anything on the host with ``shape`` and ``@``; symmetric if its attribute `symmetric` says so.
    dense : array_like, shape (m, n), optional
        The matrix: without it nothing says that the operator is the one that you meant.
    rng : int or numpy.random.Generator
    tolerance : float, optional
        Largest error allowed, for instance that of a solver: 1e-10 by default, and 1e-3 in float32.

    Returns
    -------
    Report
        A row for each claim. What the operator raises becomes a row. Failures have a diagnosis.
    """
    shape, single = _shape_of(operator), getattr(operator, "dtype", None) == np.float32
    if dense is not None and np.shape(dense) != shape:
        raise ValueError(f"dense: expected shape {shape} as the operator has, got {np.shape(dense)}")
    allowed = (1e-3 if single else ROUNDING) if tolerance is None else tolerance
    check = partial(_check, dense=None if dense is None else np.asarray(dense), allowed=allowed)
    return diagnosed(type(operator).__name__, ("matvec", "matmat"), check, operator, rng)


def _check(claims: Claims, operator: Any, rng: np.random.Generator, dense: Any, allowed: float) -> None:
    """Add the rows of an operator."""
    shape, dtype = _shape_of(operator), "f4" if getattr(operator, "dtype", None) == np.float32 else "f8"
    U, V = (rng.standard_normal((size, VECTORS)).astype(dtype) for size in shape)

    def columns(of: np.ndarray, A: Any = operator, size: int = shape[0]) -> np.ndarray:
        found = [A @ column.copy() for column in of.T]
        expect_shape(found[0], (size,))
        return np.stack(found, 1)

    def equal(method: str, claim: str, got: Callable[[Any], Any], want: Callable[[Any], Any], oracle: str) -> None:
        def pair(A: Any) -> Compared:
            return Compared(got(A), want(A), oracle, allowed)

        claims.equal(method, claim, pair, operator, needs=["matvec"])

    claims.hold("matvec", "is pure", impurity, lambda: operator @ V[:, 0], {"its argument": V}, lambda: columns(V))
    equal("matvec", "is linear", lambda A: A @ V.sum(1), lambda A: columns(V, A).sum(1), "the sum of its parts")
    equal("matmat", "columns do not interact", lambda A: A @ V, lambda A: columns(V, A), "one column at a time")
    if dense is not None:
        units = np.eye(shape[1], dtype=V.dtype)
        equal("matvec", "is A[i, j]", lambda A: columns(units, A), lambda A: dense, "the dense matrix")
    if hasattr(operator, "T"):
        transposed = lambda A: columns(U, A.T, shape[1])  # noqa: E731
        equal("rmatvec", "⟨Aᵀ u, v⟩ = ⟨u, A v⟩", lambda A: transposed(A).T @ V, lambda A: U.T @ columns(V, A), "matvec")
        equal("rmatmat", "columns do not interact", lambda A: A.T @ U, transposed, "one column at a time")
    if getattr(operator, "symmetric", False):
        equal("matvec", "is symmetric", lambda A: V.T @ columns(V, A), lambda A: columns(V, A).T @ V, "its transpose")


def check_quadrature(
    rule: Callable[[Any, np.ndarray], tuple[Any, Any]], operator: Any, rng: int | np.random.Generator = 0
) -> Report:
    """Compare nodes and weights for vᵀ f(A) v ≈ Σⱼ wⱼ f(θⱼ), as Lanczos's method gives them, with products with A.

    Parameters
    ----------
    rule : callable
        ``rule(A, v) -> (nodes, weights)``, arrays (m,), for a vector v of length 1.
    operator : LinearOperator or ndarray, shape (n, n)
        A, symmetric; its own products are taken at their word.
    rng : int or numpy.random.Generator

    Returns
    -------
    Report
        A row on the first of the 2m moments that m nodes reproduce; that of k = 0 is 1.
    """
    v, claims = np.random.default_rng(rng).standard_normal(_shape_of(operator)[1]), Claims("quadrature")
    v = v / np.linalg.norm(v)

    def moments() -> Compared:
        nodes, weights = (np.asarray(each) for each in rule(operator, v.copy()))
        scale, power, want = float(np.abs(nodes).max()) or 1.0, v, []
        for _ in range(min(2 * len(nodes), MOMENTS)):  # of a matrix of about length 1
            want.append(v @ power)
            power = operator @ power / scale
        got = [weights @ (nodes / scale) ** k for k in range(len(want))]
        return Compared(np.array(got), np.array(want), "products", 1e-8)

    claims.equal("weights", "Σⱼ wⱼ θⱼᵏ = vᵀ Aᵏ v", moments)
    return claims.report


def is_operator(subject: Any) -> bool:
    """Return whether something is a matrix or a linear operator: an instance with `shape` and `@`."""
    shape = getattr(subject, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2 and hasattr(type(subject), "__matmul__")


def _shape_of(operator: Any) -> tuple[int, int]:
    """Return the shape of a matrix; raise an error that something else is none."""
    shape = getattr(operator, "shape", None)
    if not is_operator(operator) or shape is None:
        raise TypeError(f"operator: expected a matrix or linear operator, with shape and @, got {kind_of(operator)}")
    return shape
