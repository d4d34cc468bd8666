"""Derivatives by central differences, where a curve does not take complex numbers."""

import numpy as np
import pytest

from gbackprop.layers import Tanh
from gbackprop.testing.claims import MOVED
from gbackprop.testing.differences import REAL_STEP, derivative
from gbackprop.testing.points import rounding_of_values, size_of, smooth
from gbackprop.testing.rounded import round_products


def test_two_extrapolations_leave_an_error_of_sixth_order():
    """Of sin(c t) with c h = 0.3: 0.3⁶/(7! 64) = 2e-9; one extrapolation would leave 3e-7, none 9e-4."""
    c = 0.3 / REAL_STEP
    found = derivative(lambda t: np.array([np.sin(c * float(t))]))
    assert not found.analytic
    assert abs(found.values[0] / c - 1) < 1e-8
    assert found.error / c < 1e-5


@pytest.mark.parametrize("seed", range(20))
def test_points_are_off_kinks_by_a_step_of_the_size_that_they_have_in_the_end(seed):
    """The zero is moved, by which numbers are larger, and the step from the one near 0 is longer."""
    x, where = np.array([[0.65e-3, 0.0, 1.0]]), np.arange(3)
    found, jacobian = smooth(lambda moved: np.maximum(moved, 0), x, where, np.random.default_rng(seed))
    assert (np.abs(found) > 0.99 * REAL_STEP * size_of(found)).all()
    assert not jacobian.kinks.any()


def test_values_that_are_small_are_rounded_by_no_more_but_where_they_cancel():
    x = np.array([[1.3, -0.4, 2.2]])
    for function in (np.tanh, np.exp, lambda x: np.maximum(x, 0)):
        for scale in (1.0, 1e-9):
            assert rounding_of_values(lambda x, f=function, c=scale: c * f(x), x) < 1e-12
    few = rounding_of_values(lambda x: x - np.tanh(x), 1e-5 * x)
    assert 1e-8 < few < 1e-4
    jumps = rounding_of_values(lambda x: x + 1e-3 * np.sign(np.sin(1e9 * x)), x)
    assert jumps < 1e-15


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_kinks_are_found_whatever_the_size_of_values(scale):
    x, where = np.array([[0.0, 1.0, -1.0]]), np.arange(3)
    found, _ = smooth(lambda x: scale * np.where(x > 0, x, 0.999 * x), x, where, np.random.default_rng(0))
    assert found[0, 0] != 0
    np.testing.assert_array_equal(found[0, 1:], x[0, 1:])


@pytest.mark.parametrize("x", [1e-3, 1e-6, 1e-15])
def test_a_step_is_shorter_where_a_function_is_not_defined_over_it(x):
    """Differences alone, then the complex step, which is believed as they agree with it."""
    points = np.array([x, 1.0])
    with np.errstate(all="ignore"):
        real = derivative(lambda t: np.log(points + float(t)))
        exact = derivative(lambda t: np.log(points + t))
        mistaken = derivative(lambda t: np.log(points + 2 * t.imag * 1j if isinstance(t, complex) else points + t))
    np.testing.assert_allclose(real.values, 1 / points, rtol=1e-7)
    assert exact.analytic
    assert exact.tolerance < 1e-10
    assert (real.analytic, mistaken.analytic) == (False, False)


def test_what_a_short_step_rounds_widens_no_tolerance():
    """−log(1 − p) has the slope 1 at a tiny p: rounding leaves nothing of it where 0 log p allows a tiny step alone."""
    points = np.array([0.5, 1e-15])
    with np.errstate(all="ignore"):
        found = derivative(lambda t: -np.log(1 - (points + float(t))) - 0 * np.log(points + float(t)))
    assert found.tolerance < 1e-7
    assert found.kinks.tolist() == [False, True]
    np.testing.assert_allclose(found.values[0], 2, rtol=1e-9)


def test_where_no_step_is_short_enough_there_is_no_derivative():
    with np.errstate(invalid="ignore"):
        found = derivative(lambda t: np.sqrt(np.array([0.0, 1.0]) + t))
    assert np.isnan(found.values).tolist() == [True, False]


@pytest.mark.parametrize("seed", range(5))
def test_points_are_moved_to_where_a_function_is_defined(seed):
    x, where = np.array([[0.01, 1.0, 2.0]]), np.arange(3)
    with np.errstate(invalid="ignore"):
        found, jacobian = smooth(np.log, x, where, np.random.default_rng(seed))
    assert (found > 0).all()
    assert np.isfinite(jacobian.values).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_products_are_rounded_by_a_share_of_the_columns_that_they_multiply(scale):
    layer, (x, g) = Tanh(), np.random.default_rng(0).standard_normal((2, 1, 50))
    _, saved = layer.forward(x)
    want = layer.mjp(saved, scale * g[None])
    round_products([layer], np.random.default_rng(1), 1e-9)
    error, size = np.abs(layer.mjp(saved, scale * g[None]) - want).max(), scale * np.abs(g).max()
    assert 0.9 * MOVED * 1e-9 * size < error <= MOVED * 1.001e-9 * size
