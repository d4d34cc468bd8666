"""The printed scale of each signal, evaluated by differences of the loss, is that of the numbers of the sweep."""

from dataclasses import dataclass

import numpy as np
import pytest
from common import batch, chain

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


@dataclass
class Case:
    """A network that computes f = x, so that the bias's quantities are those of the loss's signals."""

    net: gb.Sequential
    loss: losses.Loss
    x: np.ndarray
    y: np.ndarray
    targets: np.ndarray
    R: float
    weight_of_sum: float

    def over(self, function, y):
        """A function of the loss at each sample."""
        return [function(self.loss, f, target) for f, target in zip(self.x, y, strict=True)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def case(request):
    kind, reduction = request.param
    net = chain(layers.Linear(C, C))
    net.parameters["0.weight"], net.parameters["0.bias"] = np.eye(C), np.zeros(C)
    classes = kind is losses.CrossEntropyLoss
    x, labels = batch(N, C, classes=C, seed=1)
    rng = np.random.default_rng(2)
    y = labels if classes else rng.integers(0, 2, (N, C)).astype(float)
    targets = rng.integers(0, C, (M, N)) if classes else rng.integers(0, 2, (M, N, C)).astype(float)
    mean = reduction == "mean"
    weight_of_sum = 1 / C if mean and not classes else 1.0
    return Case(net, kind(reduction=reduction), x, y, targets, 1 / N if mean else 1.0, weight_of_sum)


def gradient(loss, f, y, step=1e-5):
    """∇ℓ of one sample by central differences: with N = 1, R is 1 for either reduction."""
    value = lambda at: loss.value(at[None], y[None])  # noqa: E731
    return np.array([(value(f + d) - value(f - d)) / (2 * step) for d in step * np.eye(C)])


def hessian(loss, f, y, step=1e-4):
    """∇²ℓ of one sample by central differences of `gradient`."""
    return np.array([
        (gradient(loss, f + d, y, step) - gradient(loss, f - d, y, step)) / (2 * step) for d in step * np.eye(C)
    ])  # fmt: skip


def squares(columns):
    return sum(np.outer(s, s) for s in columns)


SIGNALS = {
    "gradient": (lambda c: q.BatchGrad(), "R ∇ℓₙ", lambda c: [c.R * g for g in c.over(gradient, c.y)]),
    "exact": (lambda c: q.KFLR(), "√R Sₙ, where Sₙ Sₙᵀ = ∇²ℓₙ", lambda c: c.R * sum(c.over(hessian, c.y))),
    "average": (lambda c: q.KFRA(), "R Σₙ ∇²ℓₙ", lambda c: c.R * sum(c.over(hessian, c.y))),
    "Monte Carlo": (
        lambda c: q.KFAC(targets=c.targets),
        "√(R/(c M)) ∇ℓ(fₙ, ŷₙₘ)",
        lambda c: c.R / (c.weight_of_sum * M) * sum(squares(c.over(gradient, drawn)) for drawn in c.targets),
    ),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_scale_of_a_signal(name, case):
    make, told, expected = SIGNALS[name]
    given, quantity = (case.net, case.loss, case.x, case.y), make(case)
    assert told in str(gb.explain(*given, quantity))
    found = gb.backward(*given, quantity)[quantity]["0.bias"]
    found = found if name == "gradient" else found.to_dense()
    rounding = {"gradient": (1e-6, 1e-9), "Monte Carlo": (1e-5, 1e-8)}.get(name, (1e-5, 1e-6))
    np.testing.assert_allclose(found, expected(case), rtol=rounding[0], atol=rounding[1])


def test_scale_of_class_weights():
    net = chain(layers.Linear(C, C))
    x, y, w = np.random.default_rng(0).standard_normal((N, C)), np.array([0, 2, -100]), np.array([0.5, 1.0, 3.0, 2.0])
    explanation = gb.explain(net, losses.CrossEntropyLoss(weight=w, ignore_index=-100), x, y, q.KFLR())
    assert explanation.scale == "N = 3, R = 0.285714, float64"  # 1/(0.5 + 3)


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
    net, loss, x, y = gb.Sequential(case.net[0], layers.Sigmoid()), case.loss, case.x, case.y
    assert "√|r|, signs of r, r = y (1 − y) (1 − 2y) g" in str(gb.explain(net, loss, x, y, q.DiagHessian()))
    sigmoid = lambda at: 1 / (1 + np.exp(-at))  # noqa: E731
    expected = np.zeros((C, C))
    for at, target in zip(x, y, strict=True):
        slope = np.array([(sigmoid(at + d) - sigmoid(at - d)).sum() / 2e-5 for d in 1e-5 * np.eye(C)])
        whole = hessian(Composed(loss, sigmoid), at, target)
        expected += case.R * (whole - slope[:, None] * hessian(loss, sigmoid(at), target) * slope)
    found = gb.backward(net, loss, x, y, ResidualSquare())["residual_square"]["0.bias"]
    assert (expected.diagonal() < 0).any()  # so that signs matter
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


class Composed:
    """ℓ of a function of the point."""

    def __init__(self, loss, function):
        self.loss, self.function = loss, function

    def value(self, at, target):
        return self.loss.value(self.function(at), target)
