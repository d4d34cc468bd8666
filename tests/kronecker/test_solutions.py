"""Damped blocks are solved by a factorization where eigenvalues would change nothing, and refused where they would."""

import numpy as np
import pytest

from gbackprop.kronecker import Kronecker


def block(dtype="float64", rank=6):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, min(size, rank))) for size in (6, 4))
    return Kronecker((a @ a.T).astype(dtype), (b @ b.T).astype(dtype))


@pytest.fixture
def decomposed(monkeypatch):
    """The matrices whose eigenvalues were computed."""
    found, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: found.append(matrix) or eigh(matrix))
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
@pytest.mark.parametrize("rank", [2, 6])
def test_a_large_damping_takes_no_eigenvalues(dtype, tolerance, rank, decomposed):
    one = block(dtype, rank)
    v = np.random.default_rng(1).standard_normal(24).astype(dtype)
    found = one.solve(v, 0.1)
    assert not decomposed
    want = np.linalg.solve(one.damped(0.1).to_dense().astype(float), v)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, want, rtol=0, atol=tolerance * np.abs(want).max())


def test_a_damping_within_rounding_takes_eigenvalues(decomposed):
    with pytest.raises(np.linalg.LinAlgError, match=r"singular within the rounding of float64"):
        block(rank=2).solve(np.ones(24), 1e-33)
    assert decomposed


def test_no_damping_takes_eigenvalues(decomposed):
    one = block()
    np.testing.assert_allclose(one.to_dense() @ one.solve(np.ones(24)), 1, rtol=1e-8)
    assert len(decomposed) == 2


def test_an_indefinite_factor_is_refused_whatever_the_damping():
    one = block()
    a = one.A.copy()
    a[0, 0] = -1e3
    with pytest.raises(np.linalg.LinAlgError, match=r"factor A of shape \(6, 6\) is not positive semi-definite"):
        Kronecker(a, one.B).solve(np.ones(24), 0.1)
