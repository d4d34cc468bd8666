"""The printed scale of each signal, evaluated by differences of the loss, is that of the numbers of the sweep."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.signals import RESIDUAL

N, C, M = 3, 4, 2
CASES = [
    (loss, reduction)
    for loss in (losses.MSELoss, losses.BCEWithLogitsLoss, losses.CrossEntropyLoss)
    for reduction in ("mean", "sum")
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def case(request):
    """A network that computes f = x, so that the bias's quantities are those of the loss's signals."""
    kind, reduction = request.param
    net = gb.Sequential(layers.Linear(C, C), rng=0, dtype="float64")
    net.parameters["0.weight"], net.parameters["0.bias"] = np.eye(C), np.zeros(C)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((N, C))
    classes = kind is losses.CrossEntropyLoss
    y = rng.integers(0, C, N) if classes else rng.integers(0, 2, (N, C)).astype(float)
    targets = rng.integers(0, C, (M, N)) if classes else rng.integers(0, 2, (M, N, C)).astype(float)
    factor = 1 / N if reduction == "mean" else 1.0
    weight_of_sum = 1 / C if reduction == "mean" and not classes else 1.0
    return net, kind(reduction=reduction), x, y, targets, factor, weight_of_sum


def gradient(loss, f, y, step=1e-5):
    """∇ℓ of one sample by central differences: with N = 1, R is 1 for either reduction."""
    value = lambda at: loss.value(at[None], y[None])  # noqa: E731
    return np.array([(value(f + d) - value(f - d)) / (2 * step) for d in step * np.eye(C)])


def hessian(loss, f, y, step=1e-4):
    """∇²ℓ of one sample by central differences of `gradient`."""
    return np.array([
        (gradient(loss, f + d, y, step) - gradient(loss, f - d, y, step)) / (2 * step) for d in step * np.eye(C)
    ])  # fmt: skip


def printed(net, loss, x, y, quantity):
    return str(gb.explain(net, loss, x, y, quantity))


def test_gradient(case):
    net, loss, x, y, _, R, _ = case
    assert "R ∇ℓₙ" in printed(net, loss, x, y, q.BatchGrad())
    found = gb.backward(net, loss, x, y, q.BatchGrad())["batch_grad"]["0.bias"]
    expected = [R * gradient(loss, f, t) for f, t in zip(x, y, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_exact_columns(case):
    net, loss, x, y, _, R, _ = case
    assert "√R Sₙ, S Sᵀ = ∇²ℓₙ" in printed(net, loss, x, y, q.KFLR())
    found = gb.backward(net, loss, x, y, q.KFLR())["kflr"]["0.bias"]
    expected = R * sum(hessian(loss, f, t) for f, t in zip(x, y, strict=True))
    np.testing.assert_allclose(found.to_dense(), expected, rtol=1e-5, atol=1e-6)


def test_monte_carlo_columns(case):
    net, loss, x, y, targets, R, c = case
    quantity = q.KFAC(targets=targets)
    assert "√(R/(c M)) ∇ℓ(fₙ, ŷₙₘ)" in printed(net, loss, x, y, quantity)
    found = gb.backward(net, loss, x, y, quantity)[quantity]["0.bias"]
    columns = [
        np.sqrt(R / (c * M)) * gradient(loss, f, t)
        for drawn in targets
        for f, t in zip(x, drawn, strict=True)
    ]  # fmt: skip
    np.testing.assert_allclose(found.to_dense(), sum(np.outer(s, s) for s in columns), rtol=1e-5, atol=1e-8)


def test_scale_of_class_weights():
    net = gb.Sequential(layers.Linear(C, C), rng=0, dtype="float64")
    x, y, w = np.random.default_rng(0).standard_normal((N, C)), np.array([0, 2, -100]), np.array([0.5, 1.0, 3.0, 2.0])
    explanation = gb.explain(net, losses.CrossEntropyLoss(weight=w, ignore_index=-100), x, y, q.KFLR())
    assert explanation.scale == "N = 3, R = 0.285714, float64"  # 1/(0.5 + 3)


def test_averaged_curvature(case):
    net, loss, x, y, _, R, _ = case
    assert "R Σₙ ∇²ℓₙ" in printed(net, loss, x, y, q.KFRA())
    found = gb.backward(net, loss, x, y, q.KFRA())["kfra"]["0.bias"]
    expected = R * sum(hessian(loss, f, t) for f, t in zip(x, y, strict=True))
    np.testing.assert_allclose(found.to_dense(), expected, rtol=1e-5, atol=1e-6)


class ResidualSquare(q.Quantity):
    """Σₙᵥ sign · v vᵀ of the residual's columns v at the output of the layer that has the bias."""

    name = "residual_square"
    scale = "Σₙᵥ ± v vᵀ"

    def statistics(self):
        return (q.Statistic("kronecker", RESIDUAL),)

    def finish(self, scale, square):
        return square


def test_residual_columns(case):
    """With f = σ(x), R ∇²ℓ in x is R Jᵀ ∇²ℓ(f) J, J = diag(σ'), and the residual r beside it."""
    net, loss, x, y, _, R, _ = case
    net = gb.Sequential(net[0], layers.Sigmoid())
    assert "√|r|, signs of r, r = y (1 − y) (1 − 2y) g" in printed(net, loss, x, y, q.DiagHessian())
    sigmoid = lambda at: 1 / (1 + np.exp(-at))  # noqa: E731
    expected = np.zeros((C, C))
    for at, target in zip(x, y, strict=True):
        slope = np.array([(sigmoid(at + d) - sigmoid(at - d)).sum() / 2e-5 for d in 1e-5 * np.eye(C)])
        whole = hessian(Composed(loss, sigmoid), at, target)
        expected += R * (whole - slope[:, None] * hessian(loss, sigmoid(at), target) * slope)
    found = gb.backward(net, loss, x, y, ResidualSquare())["residual_square"]["0.bias"]
    assert (expected.diagonal() < 0).any()  # so that signs matter
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


class Composed:
    """ℓ of a function of the point."""

    def __init__(self, loss, function):
        self.loss, self.function = loss, function

    def value(self, at, target):
        return self.loss.value(self.function(at), target)
