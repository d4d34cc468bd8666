"""Factors of low rank: the same eigenvectors as of any other, by another way."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
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
@pytest.mark.parametrize("rank", [20, 400])
def test_one_large_input_hides_no_others(rank, dtype):
    """The rank counts what is within the rounding of each entry, not of the largest."""
    a, large = gram(rank, dtype), np.ones(SIZE, dtype)
    large[1] = 3000
    a *= large * large[:, None]
    root, spread = root_of_low_rank(a), np.sqrt(np.outer(a.diagonal(), a.diagonal())).astype("float64")
    if rank > SIZE / 2:
        assert root is None
        return
    assert root.shape == (SIZE, rank)
    rounding = 4 * SIZE**0.5 * np.finfo(dtype).eps
    assert (np.abs(root.astype("float64") @ root.T - a) <= rounding * spread).all()


@PRECISIONS
def test_what_is_not_positive_semi_definite_has_no_root(dtype):
    a = np.zeros((SIZE, SIZE), dtype)
    a[:10, :10] = np.eye(10)
    assert root_of_low_rank(a).shape == (SIZE, 10)
    for i, j, value in ((10, 10, -5), (20, 21, 0.5), (1, 2, 3), (0, 30, 0.1)):
        other = a.copy()
        other[i, j] = other[j, i] = value
        assert root_of_low_rank(other) is None


def test_ekfac_gives_each_parameter_arrays_of_its_own():
    rng = np.random.default_rng(0)
    net = gb.Sequential(layers.Linear(80, 70), layers.Tanh(), layers.Linear(70, 3), rng=0)
    x, y = rng.standard_normal((9, 80), dtype=np.float32), rng.integers(0, 3, 9)
    found = gb.backward(net, losses.CrossEntropyLoss(), x, y, q.EKFAC(), rng=0)["ekfac"]
    weight, bias = found["0.weight"], found["0.bias"]
    np.testing.assert_array_equal(weight.QB, bias.QB)
    assert not np.shares_memory(weight.QB, bias.QB)
