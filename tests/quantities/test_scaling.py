"""Kronecker factors in the scales of other libraries: what is known of them, against sums over single samples.

``benchmarks/conventions.py`` holds the same table against the libraries themselves.
"""

from dataclasses import replace

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

N, C = 5, 3
RNG = np.random.default_rng(0)
X, NUMBERS, LABELS = RNG.standard_normal((N, 4)), RNG.standard_normal((N, C)), RNG.integers(0, C, N)
CASES = [(losses.MSELoss("mean"), NUMBERS), (losses.MSELoss("sum"), NUMBERS), (losses.CrossEntropyLoss("mean"), LABELS)]
EACH = pytest.mark.parametrize(("loss", "y"), CASES, ids=lambda value: repr(value)[:24])


def found(loss, y, quantity, library):
    net = gb.Sequential(layers.Linear(4, C), rng=0, dtype="float64")
    result = gb.backward(net, loss, X, y, quantity)
    f = X @ net.parameters["0.weight"].T + net.parameters["0.bias"]
    return result.scaled(quantity, library), f


def likelihoods(loss, y, f):
    """∇ℓ' and ∇²ℓ' of each sample, ℓ' = ‖f − y‖² or the cross-entropy."""
    if isinstance(loss, losses.MSELoss):
        return 2 * (f - y), [2 * np.eye(C)] * N
    p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    return p - np.eye(C)[y], [np.diag(each) - np.outer(each, each) for each in p]


@EACH
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_laplace_is_the_sum_of_h_times_the_likelihoods(loss, y, fisher):
    blocks, f = found(loss, y, q.KFAC(fisher=fisher, sharing="expand"), "laplace")
    gradients, hessians = likelihoods(loss, y, f)
    h = 0.5 if isinstance(loss, losses.MSELoss) else 1.0
    b = sum(hessians) if fisher == "exact" else gradients.T @ gradients
    np.testing.assert_allclose(blocks["0.bias"].to_dense(), h * b, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(blocks["0.weight"].to_dense(), h * np.kron(b, X.T @ X / N), rtol=1e-12, atol=1e-14)


@EACH
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_kfac_jax_is_the_mean_of_the_likelihoods(loss, y, fisher):
    blocks, f = found(loss, y, q.KFAC(fisher=fisher, sharing="expand", joint_bias=True), "kfac-jax")
    gradients, hessians = likelihoods(loss, y, f)
    b = sum(hessians) if fisher == "exact" else gradients.T @ gradients
    np.testing.assert_allclose(blocks["0.weight"].B, b / N, rtol=1e-12, atol=1e-15)
    extended = np.c_[X, np.ones(N)]
    np.testing.assert_allclose(blocks["0.weight"].A, extended.T @ extended / N, rtol=1e-12)


@EACH
def test_curvlinops_divides_squares_of_gradients_by_the_loss_s_weight_once(loss, y):
    blocks, f = found(loss, y, q.KFAC(fisher="empirical", sharing="reduce"), "curvlinops")
    gradients, _ = likelihoods(loss, y, f)
    c, factor = loss.summed_weight((C,)), loss.factor(N, y)
    np.testing.assert_allclose(blocks["0.bias"].B, factor * c * gradients.T @ gradients, rtol=1e-12)
    exact, _ = found(loss, y, q.KFAC(fisher="exact", sharing="reduce"), "curvlinops")
    ours, _ = found(loss, y, q.KFLR(), "backpack")
    np.testing.assert_allclose(exact["0.weight"].to_dense(), ours["0.weight"].to_dense(), rtol=1e-12, atol=1e-15)


def test_what_a_library_does_not_have_is_an_error():
    loss, y = CASES[0]
    for quantity, library in (
        (q.KFLR(), "curvlinops"),
        (q.KFRA(), "laplace"),
        (q.KFAC(sharing="expand"), "backpack"),
        (q.KFAC(fisher="forward-only", sharing="expand"), "laplace"),
    ):
        with pytest.raises(ValueError, match=f"scaled: {library} has sharing in .* got KF"):
            found(loss, y, quantity, library)
    with pytest.raises(ValueError, match=r"scaled, library: expected one of 'backpack', .*, got 'torch'"):
        found(loss, y, q.KFLR(), "torch")
    with pytest.raises(TypeError, match=r"scaled: expected KFAC, KFLR or KFRA, got DiagGGN\(\)"):
        found(loss, y, q.DiagGGN(), "laplace")


def test_a_result_without_a_loss_has_no_scale():
    loss, y = CASES[0]
    net = gb.Sequential(layers.Linear(4, C), rng=0, dtype="float64")
    result = replace(gb.backward(net, loss, X, y, q.KFLR()), objective=None)
    with pytest.raises(ValueError, match=r"scaled: expected a result of gb\.backward, got one that does not say"):
        result.scaled("kflr", "backpack")
