"""Factors of low rank: the same eigenvectors and inverses as of any other, by another way."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop.kronecker import factors
from gbackprop.kronecker.eigenbasis import eigenbasis
from gbackprop.kronecker.low_rank import LEAST_SIZE, root_of_low_rank

PRECISIONS = pytest.mark.parametrize("dtype", ["float32", "float64"])
SIZE = 96


def gram(rank, dtype, size=SIZE, seed=0):
    """A matrix of a given rank, as the products of positive inputs are, of which some are always zero."""
    u = np.maximum(np.random.default_rng(seed).standard_normal((rank, size)), 0)
    u[:, ::7] = 0
    u = u.astype(dtype)
    return u.T @ u / rank


@PRECISIONS
@pytest.mark.parametrize("rank", [1, 20, 48])
def test_a_low_rank_is_found(rank, dtype):
    a = gram(rank, dtype)
    root = root_of_low_rank(a)
    assert root.shape == (SIZE, rank)
    np.testing.assert_allclose(root @ root.T, a, rtol=0, atol=SIZE * np.finfo(dtype).eps * a.max())


@PRECISIONS
def test_a_rank_that_is_not_low_is_none(dtype):
    assert root_of_low_rank(gram(60, dtype)) is None  # more than half of the numbers, less than the block that shows it
    assert root_of_low_rank(gram(400, dtype)) is None
    assert root_of_low_rank(np.zeros((SIZE, SIZE), dtype)) is None
    assert root_of_low_rank(np.eye(SIZE, dtype=dtype)) is None
    assert root_of_low_rank(np.full((SIZE, SIZE), np.nan, dtype)) is None
    assert root_of_low_rank(gram(2, dtype, size=LEAST_SIZE - 1)) is None


@PRECISIONS
@pytest.mark.parametrize("rank", [1, 20, 48, 60, 400])
def test_eigenvectors_are_those_of_the_factor(rank, dtype):
    a = gram(rank, dtype)
    q, wide = eigenbasis(a).astype("float64"), a.astype("float64")
    rounding = 20 * SIZE**0.5 * np.finfo(dtype).eps
    np.testing.assert_allclose(q.T @ q, np.eye(SIZE), rtol=0, atol=rounding)
    inside = q.T @ wide @ q
    values, most = inside.diagonal(), np.linalg.eigvalsh(wide)
    np.testing.assert_allclose(inside - np.diag(values), 0, rtol=0, atol=rounding * most[-1])
    np.testing.assert_allclose(values, most, rtol=0, atol=rounding * most[-1])  # in ascending order
    assert eigenbasis(a).dtype == dtype


def test_groups_have_eigenvectors_of_their_own():
    stack = np.stack([gram(20, "float64"), gram(400, "float64", seed=1)])
    np.testing.assert_array_equal(eigenbasis(stack), [eigenbasis(stack[0]), eigenbasis(stack[1])])


def test_eigenvectors_of_what_is_not_finite_are_nan():
    assert np.isnan(eigenbasis(np.full((SIZE, SIZE), np.nan))).any()


@PRECISIONS
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_an_inverse_of_low_rank_is_the_inverse(scale, dtype):
    """Also where one eigenvalue is much larger than the shift: entry by entry, as its eigenvector is a single input."""
    a = gram(20, dtype)
    a[0, 0] = scale  # this input is zero otherwise
    shift = np.array([1e-2], dtype)
    assert root_of_low_rank(a) is not None
    found = factors.inverse("A", a[None], shift)[0]
    exact = np.linalg.inv(a.astype("float64") + float(shift[0]) * np.eye(SIZE))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, exact, rtol=0, atol=2000 * np.finfo(dtype).eps * abs(exact).max())
    np.testing.assert_allclose(found[0, 0], exact[0, 0], rtol=20 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(found, found.T)


def test_no_inverse_of_low_rank_without_damping():
    with pytest.raises(np.linalg.LinAlgError, match=r"factor A of shape \(96, 96\) is singular"):
        gb.kronecker.Kronecker(gram(20, "float64"), np.eye(2)).inverse()
