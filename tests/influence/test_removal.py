"""Influence of training samples beside training without them: in closed form, and by Newton's method."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.curvature.influence import on_loss, removal


def ridge(x, y, r, strength):
    """The minimum of r Σₙ ‖W x − y‖² + ½ λ ‖W‖²."""
    return np.linalg.solve(2 * r * x.T @ x + strength * np.eye(x.shape[1]), 2 * r * x.T @ y).T


def regression(n, inputs, outputs, reduction, strength, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, inputs)), rng.standard_normal((n, outputs))
    network = gb.Sequential(layers.Linear(inputs, outputs, bias=False), rng=0, dtype="float64")
    r = 1 / (n * outputs) if reduction == "mean" else 1.0
    network.parameters["0.weight"] = ridge(x, y, r, strength)
    return network, x, y, r


@given(
    st.integers(2, 9), st.integers(1, 4), st.integers(1, 3), st.sampled_from(["mean", "sum"]), st.floats(0.05, 5),
    st.sampled_from(["ggn", "hessian"]), st.integers(0, 99),
)  # fmt: skip
def test_ridge_regression_without_a_sample_is_exact(n, inputs, outputs, reduction, strength, curvature, seed):
    network, x, y, r = regression(n, inputs, outputs, reduction, strength, seed)
    loss, some = losses.MSELoss(reduction), [0, n - 1]
    found = removal(network, loss, (x, y), some, damping=strength, curvature=curvature, rtol=1e-13, maxiter=500)
    for change, i in zip(found["0.weight"], some, strict=True):
        want = ridge(np.delete(x, i, 0), np.delete(y, i, 0), r, strength)
        np.testing.assert_allclose(network.parameters["0.weight"] + change, want, rtol=1e-8, atol=1e-10)


def test_without_the_correction_the_leverage_is_missing():
    # one output: the exact change is the first-order one divided by 1 − h
    network, x, y, _ = regression(8, 3, 1, "sum", 0.3)
    loss = losses.MSELoss("sum")
    first = removal(network, loss, (x, y), range(8), corrected=False, damping=0.3, rtol=1e-12)["0.weight"]
    exact = removal(network, loss, (x, y), range(8), damping=0.3, rtol=1e-12)["0.weight"]
    leverage = np.einsum("ni,ij,nj->n", x, np.linalg.inv(2 * x.T @ x + 0.3 * np.eye(3)), 2 * x)
    np.testing.assert_allclose(exact * (1 - leverage)[:, None, None], first, rtol=1e-9)
    assert leverage.max() > 0.3


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_influence_on_a_loss_is_its_slope_along_the_change(reduction):
    network, x, y, _ = regression(8, 3, 2, reduction, 0.3)
    rng, loss = np.random.default_rng(5), losses.MSELoss(reduction)
    test = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    found = on_loss(network, loss, (x, y), test, damping=0.3, rtol=1e-12)
    steps = removal(network, loss, (x, y), range(8), corrected=False, damping=0.3, rtol=1e-12)["0.weight"]
    slope = gb.backward(network, loss, *test).gradient["0.weight"]
    np.testing.assert_allclose(found, (steps * slope).sum((1, 2)), rtol=1e-8)
    # the same from the formula, in dense matrices
    matrix = gb.operators.Hessian(network, loss, (x, y)).to_dense() + 0.3 * np.eye(6)
    each = gb.backward(network, loss, x, y, gb.quantities.BatchGrad())["batch_grad"]["0.weight"].reshape(8, 6)
    np.testing.assert_allclose(found, each @ np.linalg.solve(matrix, slope.ravel()), rtol=1e-8)


def trained(network, loss, x, y, factor, strength):
    """A copy of a network, by Newton's method with the dense Hessian at the minimum of factor Σ ℓ + ½ λ ‖θ‖²."""
    network = copy.deepcopy(network)
    for _ in range(20):
        hessian = gb.operators.Hessian(network, loss, (x, y))
        theta = hessian.pack({name: value.copy() for name, value in network.parameters.items()})
        slope = factor * hessian.pack(gb.backward(network, loss, x, y).gradient) + strength * theta
        if np.abs(slope).max() < 1e-12:
            return network
        step = np.linalg.solve(factor * hessian.to_dense() + strength * np.eye(len(theta)), slope)
        network.parameters.load(hessian.unpack(theta - step))
    pytest.fail("no minimum")


def test_logistic_regression_trained_again_without_each_sample():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    y = (x @ rng.standard_normal((3, 3)) + rng.standard_normal((60, 3))).argmax(1)
    test = rng.standard_normal((20, 3)), rng.integers(0, 3, 20)
    loss, strength = losses.CrossEntropyLoss(), 0.02
    network = trained(gb.Sequential(layers.Linear(3, 3), rng=0, dtype="float64"), loss, x, y, 1.0, strength)
    before = float(loss(network(test[0]), test[1]))
    changes, moved = [], []
    for i in range(60):
        without = trained(network, loss, np.delete(x, i, 0), np.delete(y, i), 59 / 60, strength)
        changes.append(float(loss(without(test[0]), test[1])) - before)
        moved.append(without.parameters["0.weight"] - network.parameters["0.weight"])
    found = on_loss(network, loss, (x, y), test, damping=strength)
    assert np.corrcoef(found, changes)[0, 1] > 0.99
    assert np.polyfit(found, changes, 1)[0] == pytest.approx(1, abs=0.25)
    first, second = (
        removal(network, loss, (x, y), range(60), corrected=corrected, damping=strength)["0.weight"]
        for corrected in (False, True)
    )
    errors = [np.linalg.norm(each - moved) / np.linalg.norm(moved) for each in (first, second)]
    assert errors[1] < 0.6 * errors[0] < 0.12


@pytest.mark.parametrize("kind", [gb.RNN, gb.LSTM, gb.GRU])
def test_the_first_use_of_a_recurrent_network(kind):
    x, y = np.random.default_rng(0).standard_normal((4, 3, 2)), np.arange(4) % 2
    network = gb.Sequential(kind(2, 2), layers.Flatten(), layers.Linear(6, 2), rng=0, dtype="float64")
    first, again = (
        on_loss(network, losses.CrossEntropyLoss(), (x, y), (x, y), damping=1.0, curvature="ggn") for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)


def test_frozen_parameters_do_not_move():
    network, x, y, _ = regression(8, 3, 2, "sum", 0.3)
    network = gb.Sequential(network, layers.Linear(2, 2, bias=False), rng=0, dtype="float64").freeze("1")
    assert list(removal(network, losses.MSELoss(), (x, y), [0], damping=0.1)) == ["0.0.weight"]


NETWORK, X, Y, _ = regression(8, 3, 2, "mean", 0.3)
MSE = losses.MSELoss()
WRONG = {
    "batches": (lambda: on_loss(NETWORK, MSE, [(X, Y)], (X, Y)), TypeError, "data: expected one batch .*got list"),
    "test": (lambda: on_loss(NETWORK, MSE, (X, Y), X), TypeError, "test: expected one batch .*got ndarray"),
    "test's shape": (lambda: on_loss(NETWORK, MSE, (X, Y), (X[:, :2], Y)), ValueError, "test: layer 0"),
    "curvature": (lambda: removal(NETWORK, MSE, (X, Y), [0], curvature="fisher"), ValueError, "curvature: .*'fisher'"),
    "damping": (lambda: removal(NETWORK, MSE, (X, Y), [0], damping=-1), ValueError, "damping: .*at least 0, got -1"),
    "rtol": (lambda: removal(NETWORK, MSE, (X, Y), [0], rtol=1), ValueError, "rtol: .*below 1, got 1"),
    "maxiter": (lambda: removal(NETWORK, MSE, (X, Y), [0], maxiter=0), ValueError, "maxiter: .*at least 1, got 0"),
    "no samples": (lambda: removal(NETWORK, MSE, (X, Y), []), ValueError, r"samples: .*from 0 to 7, got \[\]"),
    "a sample": (lambda: removal(NETWORK, MSE, (X, Y), [2, 8]), ValueError, r"samples\[1\]: .*from 0 to 7, got 8"),
    "negative": (lambda: removal(NETWORK, MSE, (X, Y), [2, -1]), ValueError, r"samples\[1\]: .*at least 0, got -1"),
    "corrected": (lambda: removal(NETWORK, MSE, (X, Y), [0], corrected=1), TypeError, "corrected: .*got 1"),
    "weights": (
        lambda: removal(NETWORK, losses.BCEWithLogitsLoss(pos_weight=np.ones(2)), (X, 0 * Y), [0]),
        ValueError,
        "loss: expected one without weights",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        call()


def test_systems_that_cannot_be_solved_are_errors():
    with pytest.raises(RuntimeError, match=r"cg: for the gradient of the test loss the residual is .* after 1 steps"):
        on_loss(NETWORK, MSE, (X, Y), (X[:2], Y[:2]), maxiter=1, rtol=1e-12)
    # far from its target tanh bends the loss downwards
    network = gb.Sequential(layers.Linear(1, 1, bias=False), layers.Tanh(), layers.Linear(1, 1, bias=False), rng=0)
    network = network.astype("float64").freeze("2")
    network.parameters["0.weight"], network.parameters["2.weight"] = np.array([[-2.0]]), np.array([[1.0]])
    x = np.array([[1.0]])
    with pytest.raises(RuntimeError, match="cg: the damped Hessian is not positive definite: more damping"):
        on_loss(network, MSE, (x, -0.2 * np.ones((1, 1))), (x, np.array([[9.0]])))
    # two samples determine two parameters: without one of them, and without damping, there is no minimum
    network = gb.Sequential(layers.Linear(2, 1, bias=False), rng=0, dtype="float64")
    with pytest.raises(RuntimeError, match="sample 1: without it the damped matrix is not positive definite"):
        removal(network, MSE, (np.array([[1.0, 2.0], [3.0, 1.0]]), np.ones((2, 1))), [1], rtol=1e-12)
