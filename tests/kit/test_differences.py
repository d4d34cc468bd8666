"""Derivatives by central differences, where a curve does not take complex numbers."""

import numpy as np

from gbackprop.testing.differences import REAL_STEP, derivative


def test_two_extrapolations_leave_an_error_of_sixth_order():
    """Of sin(c t) with c h = 0.3: 0.3⁶/(7! 64) = 2e-9; one extrapolation would leave 3e-7, none 9e-4."""
    c = 0.3 / REAL_STEP
    found = derivative(lambda t: np.array([np.sin(c * float(t))]))
    assert not found.analytic
    assert abs(found.values[0] / c - 1) < 1e-8
    assert found.error / c < 1e-5
