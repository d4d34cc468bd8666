"""Initial values: their distributions, against SciPy's."""

import numpy as np
import pytest
from scipy import stats

from gbackprop.experiments.initialization import constant, fans, truncated_normal, xavier_normal, xavier_uniform

SHAPE = (40, 30, 3, 2)  # 7,200 numbers; an output sees 180 inputs, an input reaches 240 outputs


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_fans_count_connections():
    assert fans(SHAPE) == (180, 240)
    assert fans((10, 784)) == (784, 10)
    with pytest.raises(ValueError, match=r"expected that of a weight, .*, got \(5,\)"):
        fans((5,))


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [
        (lambda rng: truncated_normal(rng, SHAPE, deviation=0.05), stats.truncnorm(-2, 2, scale=0.05)),
        (lambda rng: truncated_normal(rng, SHAPE), stats.truncnorm(-2, 2)),
        (lambda rng: xavier_normal(rng, SHAPE), stats.norm(scale=np.sqrt(2 / 420))),
        (lambda rng: xavier_uniform(rng, SHAPE), stats.uniform(-np.sqrt(6 / 420), 2 * np.sqrt(6 / 420))),
    ],
    ids=["truncated normal", "of deviation 1", "xavier normal", "xavier uniform"],
)
def test_distribution(rng, draw, distribution):
    values = draw(rng)
    assert values.shape == SHAPE
    assert stats.kstest(values.ravel(), distribution.cdf).pvalue > 0.01
    assert stats.kstest(1.1 * values.ravel(), distribution.cdf).pvalue < 0.01  # which the test would see
    np.testing.assert_array_equal(draw(np.random.default_rng(0)), values)


def test_truncated_normal_ends_at_the_cut(rng):
    largest = np.abs(truncated_normal(rng, (200_000,), deviation=0.05)).max()
    assert 0.0999 < largest <= 0.1


def test_constant_draws_nothing(rng):
    state = rng.bit_generator.state
    np.testing.assert_array_equal(constant(rng, (2, 3), value=0.1), np.full((2, 3), 0.1))
    assert rng.bit_generator.state == state
