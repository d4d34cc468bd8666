"""Quantities of a network against brute force."""

import numpy as np

import gbackprop as gb
from gbackprop import losses
from gbackprop import quantities as q
from gbackprop.testing.oracles import Dense


def compare_with_dense(network, x):
    """Compare gradients of samples, DiagGGN and DiagHessian in float64 with brute force, for drawn targets."""
    y = np.random.default_rng(1).standard_normal(network(x).shape)
    loss = losses.MSELoss()
    dense, result = (
        Dense(network, loss, x, y),
        gb.backward(network, loss, x, y, q.BatchGrad(), q.DiagGGN(), q.DiagHessian()),
    )
    for name in ("batch_grad", "diag_ggn", "diag_hessian"):
        assert set(result[name]) == set(dense[name]) != set()
        for key, expected in dense[name].items():
            scale = max(1.0, abs(expected).max(initial=0))
            np.testing.assert_allclose(result[name][key], expected, atol=1e-9 * scale, rtol=0, err_msg=f"{name} {key}")
