"""Derivatives by central differences, where a curve does not take complex numbers."""

import numpy as np
import pytest

from gbackprop.testing.differences import REAL_STEP, derivative
from gbackprop.testing.points import size_of, smooth


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
