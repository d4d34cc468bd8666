"""Posteriors of features, and of priors, whose sizes differ by far: the numbers of the scaled problem."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.curvature.laplace import Laplace
from gbackprop.curvature.laplace.graded import eigh, graded_eigh

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((20, 5)), RNG.standard_normal((20, 1))
ORDERS = {"large last": [0, 0, 1, 1, 1], "large first": [1, 1, 1, 0, 0], "alternating": [1, 0, 1, 0, 1]}


def regression(scales, structure, prior, bias=True):
    """A linear model at θ = 0 with features of these scales, and σ² = ½."""
    network = gb.Sequential(layers.Linear(5, 1, bias=bias), rng=0, dtype="float64")
    network.parameters.load({name: 0 * value for name, value in network.parameters.items()})
    return Laplace(network, losses.MSELoss(), (X * scales, Y), structure, prior_precision=prior, noise_variance=0.5)


def of_scaled(x, scales, delta):
    """Variances at the data, log det P and the diagonal of P⁻¹, from P = S (2 xᵀx + Δ / s sᵀ) S."""
    p = 2 * x.T @ x + np.diag(delta / scales**2)
    inverse = np.linalg.inv(p)
    return (x @ inverse * x).sum(1), np.linalg.slogdet(p)[1] + 2 * np.log(scales).sum(), inverse.diagonal() / scales**2


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("prior", [1e-3, {"0.weight": 1e-3, "0.bias": 2.0}], ids=["one", "each"])
def test_the_whole_matrix_of_features_of_other_sizes(order, scale, prior):
    scales = scale ** np.array(ORDERS[order])
    laplace = regression(scales, "full", prior)
    delta = np.array([1e-3] * 5 + [prior["0.bias"] if isinstance(prior, dict) else prior])
    variances, logdet, inverse = of_scaled(np.c_[X, np.ones(20)], np.r_[scales, 1.0], delta)
    np.testing.assert_allclose(laplace.functional(X * scales).covariance.ravel(), variances, rtol=1e-6)
    want = -(Y**2).sum() - 10 * np.log(np.pi) + np.log(delta).sum() / 2 - logdet / 2
    assert laplace.log_marginal_likelihood() == pytest.approx(want, rel=1e-10)
    effective = laplace.effective_parameters()
    assert effective["0.bias"] == pytest.approx(1 - delta[5] * inverse[5], rel=1e-8)
    assert effective["0.weight"] == pytest.approx(5 - 1e-3 * inverse[:5].sum(), rel=1e-8)
    drawn = laplace.sample_functions(X * scales, 20000, rng=0).reshape(20000, 20).var(0)
    np.testing.assert_allclose(drawn, variances, rtol=0.06)


@pytest.mark.parametrize("scale", [1e4, 1e8])
def test_two_features_that_are_the_same_are_known_by_their_sum_alone(scale):
    x, scales = X[:, [0, 1, 2, 2, 3]], np.array([1, 1, scale, scale, 1])
    network = gb.Sequential(layers.Linear(5, 1, bias=False), rng=0, dtype="float64")
    laplace = Laplace(network, losses.MSELoss(), (x * scales, Y), "full", prior_precision=1e-3, noise_variance=0.5)
    once = np.array([1, 1, 2**0.5 * scale, 1])  # (w₁ + w₂) / √2, and no data on w₁ − w₂
    variances, logdet, inverse = of_scaled(X[:, :4], once, np.full(4, 1e-3))
    np.testing.assert_allclose(laplace.functional(x * scales).covariance.ravel(), variances, rtol=1e-6)
    assert laplace.evidence.structure.logdet(1.0, {"0.weight": 1e-3}) == pytest.approx(logdet + np.log(1e-3), rel=1e-9)
    trace = inverse.sum() + 1e3
    assert laplace.effective_parameters()["0.weight"] == pytest.approx(5 - 1e-3 * trace, rel=1e-9)


@pytest.mark.parametrize("size", [1e6, 1e10, 1e14, 1e18])
def test_a_prior_that_leaves_no_freedom_is_a_frozen_parameter(size):
    network = gb.Sequential(layers.Linear(5, 8), layers.Tanh(), layers.Linear(8, 3), rng=0, dtype="float64")
    data = X, RNG.integers(0, 3, 20)
    prior = {name: size if name[0] == "0" else 1e-2 for name in network.parameters}
    found, want = (
        Laplace(network, losses.CrossEntropyLoss(), data, "full", **options).functional(X).covariance
        for options in ({"prior_precision": prior}, {"prior_precision": 1e-2, "parameters": "last"})
    )
    np.testing.assert_allclose(found, want, rtol=1e3 / size + 1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("order", ORDERS)
def test_a_kronecker_block_of_features_of_other_sizes(order, scale):
    scales = scale ** np.array(ORDERS[order])
    laplace = regression(scales, "kron", 1.0, bias=False)
    variances, logdet, _ = of_scaled(X, scales, np.ones(5))
    np.testing.assert_allclose(laplace.functional(X * scales).covariance.ravel(), variances, rtol=1e-6)
    assert laplace.evidence.structure.logdet(1.0, {"0.weight": 1.0}) == pytest.approx(logdet, rel=1e-11)


def test_eigenvalues_to_a_relative_accuracy():
    scales = 10.0 ** np.arange(0, 24, 6)
    c = np.array([[4, 1, 0, 2], [1, 3, 1, 0], [0, 1, 5, 1], [2, 0, 1, 6.0]])
    values, vectors = graded_eigh(c * scales * scales[:, None])
    order, left = np.argsort(values), np.linalg.cholesky(c[::-1, ::-1]).diagonal()[::-1] ** 2
    np.testing.assert_allclose(values[order], left * scales**2, rtol=1e-10)  # of what is left of each beside the larger
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-14)
    stack = np.stack([c, np.zeros((4, 4)), np.ones((4, 4))])
    for found, want in zip(graded_eigh(stack), eigh(stack), strict=True):
        assert found.shape == want.shape
    values, vectors = graded_eigh(stack)
    np.testing.assert_allclose(np.sort(values, 1), eigh(stack)[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose((vectors * values[:, None]) @ vectors.swapaxes(1, 2), stack, atol=1e-13)
    assert np.count_nonzero(values[2]) == 1, "what rounding may make is 0"


@pytest.mark.parametrize("structure", ["kron", "full"])
@pytest.mark.parametrize(("n", "classes", "scale"), [(30, 3, 1e8), (5000, 4, 1e4), (5000, 4, 1e8)])
def test_classes_have_one_direction_without_curvature(structure, n, classes, scale):
    """At θ = 0 the GGN is of rank C − 1 in the outputs: what rounding makes of the last one is no parameter."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, 4)) * np.array([1, scale, 1, scale]), rng.integers(0, classes, n)
    network = gb.Sequential(layers.Linear(4, classes, bias=False), rng=0, dtype="float64")
    network.parameters.load({"0.weight": np.zeros((classes, 4))})
    laplace = Laplace(network, losses.CrossEntropyLoss(), (x, y), structure, prior_precision=0.01)
    assert 4 * (classes - 1) - 0.01 <= laplace.effective_parameters()["0.weight"] <= 4 * (classes - 1)


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_a_bias_of_keys_has_no_curvature_but_rounding(delta):
    """No more is known than there are outputs, 60, and as much as the singular values of J say."""
    network = gb.Sequential(gb.MultiheadAttention(4, 2), layers.Flatten(), layers.Linear(12, 3), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((20, 3, 4)), Y[:, :1] + np.zeros(3)
    laplace = Laplace(network, losses.MSELoss(), (x, y), "full", prior_precision=delta, noise_variance=delta)
    rows = gb.operators.Jacobian(network, x).to_arrays().values()
    values = np.linalg.svd(np.concatenate([each.reshape(60, -1) for each in rows], 1), compute_uv=False) ** 2 / delta
    assert sum(laplace.effective_parameters().values()) == pytest.approx((values / (values + delta)).sum(), rel=1e-10)
