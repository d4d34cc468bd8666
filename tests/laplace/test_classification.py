"""Classification: evidence and predictive beside quadrature, and scales that follow from the sum over the data."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, softmax
from scipy.stats import norm

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.curvature.laplace import Laplace
from gbackprop.curvature.laplace.likelihoods import probit, sampled


def logistic(n, delta):
    """Logistic regression with one parameter at its maximum, and h with p(D, θ) ∝ e^(−h(θ))."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 1))
    y = (rng.random((n, 1)) < expit(1.3 * x)).astype(float)

    def h(theta):
        return -log_expit((2 * y - 1) * x * theta).sum() + delta / 2 * theta**2 - 0.5 * np.log(delta / (2 * np.pi))

    theta = minimize_scalar(h, method="brent", options={"xtol": 1e-12}).x
    network = gb.Sequential(layers.Linear(1, 1, bias=False), rng=0, dtype="float64")
    network.parameters["0.weight"] = np.array([[theta]])
    return network, x, y, h, theta


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("n", [10, 40, 160])
def test_evidence_beside_quadrature(n, reduction):
    delta = 0.8
    network, x, y, h, theta = logistic(n, delta)
    laplace = Laplace(network, losses.BCEWithLogitsLoss(reduction), (x, y), "full", prior_precision=delta)
    least = h(theta)
    exact = (
        np.log(quad(lambda t: np.exp(least - h(t)), theta - 15, theta + 15, points=[theta], epsabs=1e-12)[0]) - least
    )
    # the next term of Laplace's expansion, from the third and the fourth derivative of h
    p = expit(x * theta)
    second = (x**2 * p * (1 - p)).sum() + delta
    third = (x**3 * p * (1 - p) * (1 - 2 * p)).sum()
    fourth = (x**4 * p * (1 - p) * (1 - 6 * p + 6 * p**2)).sum()
    correction = -fourth / (8 * second**2) + 5 * third**2 / (24 * second**3)
    found = laplace.log_marginal_likelihood()
    assert found == pytest.approx(exact, abs=2 * abs(correction))
    # the error falls as 1/n, what the correction leaves of it as 1/n²
    assert abs(found + correction - exact) < 5 / n * abs(found - exact)
    assert laplace.decrement() < 1e-12


def test_predictive_beside_quadrature():
    network, x, y, h, theta = logistic(20, 0.8)
    laplace = Laplace(network, losses.BCEWithLogitsLoss(), (x, y), "full", prior_precision=0.8)
    new = np.array([[-3.0], [-0.5], [0.2], [4.0]])
    _, covariance = laplace.functional(new)
    p = expit(x * theta)

    def weight(t):
        return np.exp(h(theta) - h(t))

    np.testing.assert_allclose(covariance[:, 0, 0], new[:, 0] ** 2 / ((x**2 * p * (1 - p)).sum() + 0.8), rtol=1e-12)
    for row, near, drawn in zip(
        new[:, 0], laplace.predict(new)[:, 0], laplace.predict(new, "mc", 20000, rng=0)[:, 0], strict=True
    ):
        spread = abs(row) * ((x**2 * p * (1 - p)).sum() + 0.8) ** -0.5
        exact = quad(
            lambda f, row=row, s=spread: expit(f) * norm.pdf(f, row * theta, s), -60, 60, points=[row * theta]
        )[0]
        assert near == pytest.approx(exact, abs=0.01)
        assert drawn == pytest.approx(exact, abs=5 * 0.5 / 20000**0.5)
        # the true posterior's, which is not Gaussian
        area = quad(weight, theta - 15, theta + 15, points=[theta])[0]
        true = quad(lambda t, row=row: expit(row * t) * weight(t), theta - 15, theta + 15, points=[theta])[0] / area
        assert near == pytest.approx(true, abs=0.05)


@pytest.mark.parametrize("size", [1, 0.1])
def test_draws_of_two_classes_follow_their_covariance(size):
    # E softmax(f)₀ = E σ(f₀ − f₁), and f₀ − f₁ is one Gaussian: its variance has the covariance in it
    mean, covariance = np.array([[0.5, -0.4]]), size * np.array([[[3.0, 2.5], [2.5, 4.0]]])
    found = sampled(losses.CrossEntropyLoss(), mean, covariance, 20000, np.random.default_rng(0))
    s = (size * (3 + 4 - 5)) ** 0.5
    want = quad(lambda f: expit(f) * norm.pdf(f, 0.9, s), -30, 30)[0]
    assert found[0, 0] == pytest.approx(want, abs=5 * 0.5 / 20000**0.5)
    assert found.sum() == pytest.approx(1)


def test_probit_of_classes_scales_each_output_by_its_own_variance():
    mean, covariance = np.array([[1.0, -2.0, 0.3]]), np.array([np.diag([0.5, 2.0, 9.0]) + 0.1])
    want = softmax(
        [1 / (1 + np.pi / 8 * 0.6) ** 0.5, -2 / (1 + np.pi / 8 * 2.1) ** 0.5, 0.3 / (1 + np.pi / 8 * 9.1) ** 0.5]
    )
    np.testing.assert_allclose(probit(losses.CrossEntropyLoss(), mean, covariance)[0], want, rtol=1e-13)


def classes(n=6, hidden=None, dtype="float64"):
    rng = np.random.default_rng(2)
    inner = [layers.Linear(3, hidden), layers.Tanh()] if hidden else []
    network = gb.Sequential(*inner, layers.Linear(hidden or 3, 4), rng=5, dtype=dtype)
    return network, rng.standard_normal((n, 3)).astype(dtype), rng.integers(0, 4, n)


@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_half_the_temperature_is_the_data_twice(structure):
    network, x, y = classes(hidden=5)
    cold = Laplace(network, losses.CrossEntropyLoss(), (x, y), structure, temperature=0.5, prior_precision=2.0)
    twice = Laplace(network, losses.CrossEntropyLoss(), [(x, y)] * 2, structure, prior_precision=2.0)
    assert cold.log_marginal_likelihood() == pytest.approx(twice.log_marginal_likelihood(), rel=1e-12)
    assert cold.decrement() == pytest.approx(twice.decrement(), rel=1e-10)
    np.testing.assert_allclose(cold.functional(x)[1], twice.functional(x)[1], rtol=1e-9)


@pytest.mark.parametrize("loss", [losses.CrossEntropyLoss, losses.BCEWithLogitsLoss])
@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_mean_and_sum_have_one_posterior(structure, loss):
    network, x, y = classes(hidden=5)
    if loss is losses.BCEWithLogitsLoss:
        y = np.eye(4)[y]
    one, other = (Laplace(network, loss(kind), (x, y), structure) for kind in ("mean", "sum"))
    assert one.log_marginal_likelihood() == pytest.approx(other.log_marginal_likelihood(), rel=1e-12)
    assert one.decrement() == pytest.approx(other.decrement(), rel=1e-10)
    np.testing.assert_allclose(one.predict(x), other.predict(x), rtol=1e-10)


def test_where_one_sample_is_a_kronecker_product_the_block_is_the_matrix():
    network, x, y = classes(1)
    network.freeze("0.bias")
    full, kron = (Laplace(network, losses.CrossEntropyLoss(), (x, y), each) for each in ("full", "kron"))
    assert kron.log_marginal_likelihood() == pytest.approx(full.log_marginal_likelihood(), rel=1e-12)
    new = np.random.default_rng(0).standard_normal((3, 3))
    np.testing.assert_allclose(kron.functional(new)[1], full.functional(new)[1], rtol=1e-10)
    np.testing.assert_allclose(kron.decrement(), full.decrement(), rtol=1e-10)
