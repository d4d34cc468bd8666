"""Damped blocks are solved by a factorization where eigenvalues would change nothing, and refused where they would."""

import numpy as np
import pytest

from gbackprop.kronecker import GroupedKronecker, Kronecker


def block():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)) for size in (6, 4))
    return Kronecker(a @ a.T, b @ b.T)


@pytest.fixture
def decomposed(monkeypatch):
    """The matrices whose eigenvalues were computed."""
    found, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: found.append(matrix) or eigh(matrix))
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-6)])
@pytest.mark.parametrize("cap", [None, 1e9])
@pytest.mark.parametrize("damping", [1.0, 1e-3, 1e-5])
def test_a_large_damping_takes_no_eigenvalues(dtype, tolerance, cap, damping, decomposed):
    """Of a rank below the size, so that the condition is 1/damping: float32 loses no digits by it."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((60, 20)) / 60
    factor = (root @ root.T).astype(dtype)
    v = rng.standard_normal(60).astype(dtype)
    found = Kronecker(None, factor).solve(v, damping, cap)
    assert not decomposed
    want = np.linalg.solve(factor.astype(float) + damping * np.eye(60), v)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, want, rtol=0, atol=tolerance * np.abs(want).max())


def test_groups_are_solved_each_by_itself(decomposed):
    rng = np.random.default_rng(0)
    a, b = ((f @ f.swapaxes(1, 2)).astype("float32") for f in (rng.standard_normal((3, n, n)) for n in (4, 2)))
    one, v = GroupedKronecker(a, b), rng.standard_normal(24).astype("float32")
    found = one.solve(v, 0.1)
    assert (decomposed, found.dtype) == ([], np.float32)
    want = np.linalg.solve(one.damped(0.1).to_dense().astype(float), v)
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_a_damping_within_rounding_takes_eigenvalues(decomposed):
    """Whether Cholesky succeeds or not: rounding decides about that, for one in eight of such matrices it does."""
    rng, succeeded = np.random.default_rng(0), 0
    for _ in range(60):
        root = rng.standard_normal((4, 2))
        factor = root @ root.T
        try:
            np.linalg.cholesky(factor + 1e-17 * np.eye(4))
            succeeded += 1
        except np.linalg.LinAlgError:
            pass
        with pytest.raises(np.linalg.LinAlgError, match=r"singular within the rounding of float64"):
            Kronecker(None, factor).solve(np.ones(4), 1e-17)
    assert succeeded
    assert len(decomposed) == 60


def test_no_damping_takes_eigenvalues(decomposed):
    one = block()
    np.testing.assert_allclose(one.to_dense() @ one.solve(np.ones(24)), 1, rtol=1e-8)
    assert len(decomposed) == 2


def test_an_eigenvalue_below_minus_the_damping_is_refused():
    one = block()
    a = one.A.copy()
    a[0, 0] = -1e3
    with pytest.raises(np.linalg.LinAlgError, match=r"factor A of shape \(6, 6\) is not positive semi-definite"):
        Kronecker(a, one.B).solve(np.ones(24), 0.1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_of_factors_that_are_not_symmetric_the_lower_triangles_count(groups, damping):
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((groups, size, size)) + 6 * np.eye(size) for size in (3, 2)]
    lower = [np.tril(factor) + np.tril(factor, -1).swapaxes(1, 2) for factor in factors]
    given, want = (GroupedKronecker(*each) if groups > 1 else Kronecker(*(part[0] for part in each))
                   for each in (factors, lower))  # fmt: skip
    v = rng.standard_normal(want.shape[0])
    dense = want.damped(damping).to_dense()
    np.testing.assert_allclose(given.inverse(damping).to_dense(), np.linalg.inv(dense), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(given.solve(v, damping), np.linalg.solve(dense, v), rtol=1e-10)
    exact = want.to_dense() + damping * np.eye(len(v))
    np.testing.assert_allclose(given.logdet(damping), np.linalg.slogdet(exact)[1], rtol=1e-12)
