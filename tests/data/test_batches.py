"""`gb.data.batches`: which samples come when."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop.array import device_of

X = np.arange(20.0).reshape(10, 2)
Y = np.arange(10)


def labels(*arguments, **options):
    return [y.tolist() for _, y in gb.data.batches(X, Y, *arguments, **options)]


def test_without_an_rng_the_order_is_kept():
    assert labels(4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert labels(5) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert labels(99) == [Y.tolist()]


def test_the_last_batch_is_dropped_only_if_it_is_short():
    assert labels(4, drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert labels(5, drop_last=True) == labels(5)


@pytest.mark.parametrize("rng", [True, np.True_])
def test_true_is_no_seed(rng):
    with pytest.raises(TypeError, match=r"rng: expected None, an integer of at least 0 or a Generator, got .*True"):
        gb.data.batches(X, Y, 3, rng=rng)


def test_an_rng_shuffles_samples_with_their_targets():
    seen = list(gb.data.batches(X, Y, 3, rng=0))
    order = np.concatenate([y for _, y in seen])
    assert order.tolist() == np.random.default_rng(0).permutation(10).tolist()
    for x, y in seen:
        np.testing.assert_array_equal(x, X[y])


def test_an_integer_repeats_its_order_and_a_generator_goes_on():
    rng = np.random.default_rng(0)
    assert labels(10, 0) == labels(10, 0) == labels(10, rng)
    assert labels(10, rng) != labels(10, 0)


def test_batches_are_views_where_the_order_is_kept_and_copies_where_it_is_not():
    (kept, _), *_ = gb.data.batches(X, Y, 4)
    (shuffled, _), *_ = gb.data.batches(X, Y, 4, rng=0)
    assert np.shares_memory(kept, X)
    assert not np.shares_memory(shuffled, X)


@pytest.mark.parametrize("rng", [None, 0])
def test_they_stay_on_their_device(double, rng):
    x, y = gb.asarray(X, "cuda:1"), gb.asarray(Y, "cuda:1")
    for part in (each for batch in gb.data.batches(x, y, 4, rng) for each in batch):
        assert device_of(part) == "cuda:1"


def test_targets_on_another_device_are_refused(double):
    with pytest.raises(TypeError, match="y: expected an array on cuda:0 as x is, got one on cpu"):
        gb.data.batches(gb.asarray(X, "cuda"), Y, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X.tolist(), Y, 4), TypeError, "x: expected a NumPy or CuPy array, got list"),
        ((X, Y[:9], 4), ValueError, r"y: expected 10 samples as in x, got shape \(9,\)"),
        ((X[:0], Y[:0], 4), ValueError, r"x: expected at least one sample, got shape \(0, 2\)"),
        ((X, np.array(1), 4), ValueError, r"y: expected at least one sample, got shape \(\)"),
        ((X, Y, 0), ValueError, "size: expected an integer of at least 1, got 0"),
        ((X, Y, 2.0), ValueError, "size: expected an integer of at least 1, got 2.0"),
        ((X, Y, 4, "seed"), TypeError, "rng: expected None, an integer of at least 0 or a Generator, got 'seed'"),
        ((X, Y, 4, None, 1), TypeError, "drop_last: expected True or False, got 1"),
        ((X, Y, 11, None, True), ValueError, "size: expected at most 10, the number of samples, with drop_last=True"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(arguments, error, message):
    with pytest.raises(error, match=message):
        gb.data.batches(*arguments)
