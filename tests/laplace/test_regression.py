"""Linear regression, where a Laplace approximation is exact: the evidence and the predictive in closed form.

With y = Φ θ + noise the targets of all samples are one Gaussian, N(0, Φ Δ⁻¹ Φᵀ + σ² I): the oracle knows neither the
posterior nor the curvature.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.curvature.laplace import Laplace


def problem(n=7, inputs=3, outputs=2, bias=True, seed=0):
    rng = np.random.default_rng(seed)
    network = gb.Sequential(layers.Linear(inputs, outputs, bias=bias), rng=rng, dtype="float64")
    return network, rng.standard_normal((n, inputs)), rng.standard_normal((n, outputs))


def features(network, x, prior):
    """The covariance of the outputs of all samples, output by output, under the prior: Φ Δ⁻¹ Φᵀ for one output."""
    part = x @ x.T / prior["0.weight"]
    return part + (1 / prior["0.bias"] if "0.bias" in network.parameters else 0)


def exact_evidence(network, x, y, prior, variance):
    covariance = features(network, x, prior) + variance * np.eye(len(x))
    return multivariate_normal(cov=covariance, allow_singular=False).logpdf(y.T).sum()


def exact_predictive(network, x, y, new, prior, variance):
    both = features(network, np.concatenate([x, new]), prior)
    n = len(x)
    gain = np.linalg.solve(both[:n, :n] + variance * np.eye(n), both[:n, n:])
    return (y.T @ gain).T, both[n:, n:] - both[n:, :n] @ gain


def to_mode(network, x, y, prior, variance):
    """Set the parameters to the maximum of the posterior, by least squares."""
    columns = np.concatenate([x, np.ones((len(x), 1))], axis=1) if "0.bias" in network.parameters else x
    deltas = [prior["0.weight"]] * x.shape[1] + [prior.get("0.bias")] * (columns.shape[1] - x.shape[1])
    theta = np.linalg.solve(columns.T @ columns / variance + np.diag(deltas), columns.T @ y / variance)
    network.parameters["0.weight"] = theta[: x.shape[1]].T
    if "0.bias" in network.parameters:
        network.parameters["0.bias"] = theta[-1]


@given(
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.booleans(), st.sampled_from(["mean", "sum"]),
    st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 10), st.integers(0, 99),
)  # fmt: skip
def test_evidence_and_predictive_are_exact(n, inputs, outputs, bias, reduction, delta, other, variance, seed):
    network, x, y = problem(n, inputs, outputs, bias, seed)
    prior = {"0.weight": delta} | ({"0.bias": other} if bias else {})
    to_mode(network, x, y, prior, variance)
    laplace = Laplace(
        network, losses.MSELoss(reduction), (x, y), "full", prior_precision=prior, noise_variance=variance
    )
    want = exact_evidence(network, x, y, prior, variance)
    assert laplace.log_marginal_likelihood() == pytest.approx(want, rel=1e-10, abs=1e-9)
    assert laplace.decrement() <= 1e-18 * (1 + abs(want))
    new = np.random.default_rng(seed + 1).standard_normal((3, inputs))
    mean, covariance = exact_predictive(network, x, y, new, prior, variance)
    found = laplace.predict(new)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-10)
    for i, each in enumerate(found.covariance):
        np.testing.assert_allclose(each, (covariance[i, i] + variance) * np.eye(outputs), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(laplace.functional(new).covariance[0, 0, 0], covariance[0, 0], rtol=1e-9, atol=1e-10)
    joint = np.einsum("mn,ab->manb", covariance, np.eye(outputs))  # outputs are independent of each other
    np.testing.assert_allclose(laplace.functional(new, joint=True).covariance, joint, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("structure", ["full", "kron"])
@pytest.mark.parametrize("delta", [0.3, 4.0])
def test_at_other_parameters_the_decrement_is_what_the_evidence_lacks(structure, delta):
    network, x, y = problem(bias=False)
    laplace = Laplace(network, losses.MSELoss(), (x, y), structure).with_prior(delta, noise_variance=0.2)
    want = exact_evidence(network, x, y, {"0.weight": delta}, 0.2)
    assert laplace.decrement() > 1
    assert laplace.log_marginal_likelihood() + laplace.decrement() == pytest.approx(want, rel=1e-11)


def test_the_default_noise_is_that_of_the_loss():
    network, x, y = problem()
    laplace = Laplace(network, losses.MSELoss(), (x, y), "full")
    assert laplace.noise_variance == 0.5
    want = exact_evidence(network, x, y, {"0.weight": 1.0, "0.bias": 1.0}, 0.5)
    assert laplace.log_marginal_likelihood() + laplace.decrement() == pytest.approx(want, rel=1e-11)


def test_batches_of_unequal_sizes_are_one_data_set():
    network, x, y = problem()
    batches = [(x[:4], y[:4]), (x[4:5], y[4:5]), (x[5:], y[5:])]
    for structure in ("full", "kron", "diag"):
        one, several = (Laplace(network, losses.MSELoss(), data, structure) for data in ((x, y), batches))
        for method in ("log_marginal_likelihood", "decrement"):
            assert getattr(several, method)() == pytest.approx(getattr(one, method)(), rel=1e-12)


def test_a_last_layer_is_a_regression_on_what_it_takes():
    rng = np.random.default_rng(3)
    head = layers.Linear(4, 2)
    body = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), rng=1, dtype="float64")
    network = gb.Sequential(body, head, rng=2, dtype="float64")
    x, y = rng.standard_normal((9, 3)), rng.standard_normal((9, 2))
    alone = gb.Sequential(head)
    for structure in ("full", "kron", "diag"):
        last = Laplace(network, losses.MSELoss(), (x, y), structure, parameters="last")
        named = Laplace(network, losses.MSELoss(), (x, y), structure, parameters=["1"])
        whole = Laplace(alone, losses.MSELoss(), (body(x), y), structure)
        assert list(last.mean) == ["1.weight", "1.bias"]
        want = whole.log_marginal_likelihood()
        assert last.log_marginal_likelihood() == named.log_marginal_likelihood() == pytest.approx(want, rel=1e-13)
        np.testing.assert_allclose(last.functional(x)[1], whole.functional(body(x))[1], rtol=1e-12)
    assert not any(layer.frozen for _, layer in network.named_layers())


@pytest.mark.parametrize("noise", [False, True])
def test_the_prior_of_the_largest_evidence(noise):
    network, x, y = problem(40)
    y = y * 0.3 + x @ [[1, 0], [0.5, 2], [0, 0]]
    to_mode(network, x, y, {"0.weight": 1.0, "0.bias": 1.0}, 0.2)
    start = Laplace(network, losses.MSELoss(), (x, y), "full", prior_precision=3.0, noise_variance=0.2)
    best = start.optimize_prior(noise)

    columns = np.concatenate([x, np.ones((40, 1))], axis=1)
    theta = np.concatenate([network.parameters["0.weight"], network.parameters["0.bias"][:, None]], axis=1)
    error = ((columns @ theta.T - y) ** 2).sum()

    def negative(logs):
        delta, variance = np.exp(logs[0]), np.exp(logs[1]) if noise else 0.2
        p = columns.T @ columns / variance + delta * np.eye(4)
        fit = -error / (2 * variance) - 40 * np.log(2 * np.pi * variance)
        return -(fit - delta / 2 * (theta**2).sum() + 4 * np.log(delta) - np.linalg.slogdet(p)[1])

    found = minimize(negative, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    assert best.log_marginal_likelihood() == pytest.approx(-found.fun, rel=1e-10)
    assert best.prior_precision == pytest.approx(np.exp(found.x[0]), rel=1e-4)
    if noise:
        assert best.noise_variance == pytest.approx(np.exp(found.x[1]), rel=1e-4)
    assert start.prior_precision == 3.0
    # MacKay's fixed point: γ = δ ‖θ‖²
    assert sum(best.effective_parameters().values()) == pytest.approx(best.prior_precision * (theta**2).sum(), rel=1e-5)


@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_derivatives_beside_differences(structure):
    network, x, y = problem(12)
    prior = {"0.weight": 0.7, "0.bias": 2.5}
    laplace = Laplace(
        network, losses.MSELoss(), (x, y), structure, prior_precision=prior, noise_variance=0.4, temperature=1.5
    )
    slopes, noise = laplace.evidence.derivative(laplace.hyperparameters)

    def difference(change, h=1e-5):
        up, down = (laplace.with_prior(**change(np.exp(sign * h))).log_marginal_likelihood() for sign in (1, -1))
        return (up - down) / (2 * h)

    for name, slope in slopes.items():
        want = difference(lambda e, name=name: {"prior_precision": prior | {name: prior[name] * e}})
        assert slope == pytest.approx(want, rel=1e-7)
    assert noise == pytest.approx(difference(lambda e: {"noise_variance": 0.4 * e}), rel=1e-7)


def test_one_precision_for_each_parameter_is_found_too():
    network, x, y = problem(40)
    y = y * 0.3 + x @ [[1, 0], [0.5, 2], [0, 0]]
    to_mode(network, x, y, {"0.weight": 1.0, "0.bias": 1.0}, 0.2)
    prior = {"0.weight": 1.0, "0.bias": 1.0}
    for structure in ("full", "kron", "diag"):
        start = Laplace(network, losses.MSELoss(), (x, y), structure, prior_precision=prior, noise_variance=0.2)
        best = start.optimize_prior()
        slopes, _ = best.evidence.derivative(best.hyperparameters)
        assert max(map(abs, slopes.values())) < 1e-5
        shared = start.with_prior(1.0).optimize_prior()
        assert isinstance(best.prior_precision, dict)
        assert best.log_marginal_likelihood() > shared.log_marginal_likelihood() > start.log_marginal_likelihood()


def test_no_maximum_is_told():
    network, x, y = problem()
    network.parameters["0.weight"], network.parameters["0.bias"] = np.zeros((2, 3)), np.zeros(2)
    laplace = Laplace(network, losses.MSELoss(), (x, y), "kron")
    with pytest.raises(RuntimeError, match=r"no maximum .* prior precision of .* upwards, for all parameters"):
        laplace.optimize_prior()
    with pytest.raises(RuntimeError, match=r"no maximum .* prior precision of .* upwards, for 0.weight"):
        laplace.with_prior({"0.weight": 1.0, "0.bias": 1.0}).optimize_prior()
    network.parameters["0.bias"] = np.ones(2)
    met = Laplace(network, losses.MSELoss(), (x, 0 * y + 1), "kron", parameters=["0.bias"])
    with pytest.raises(RuntimeError, match="no maximum of the evidence in the noise variance, at 1e-12"):
        met.optimize_prior(noise_variance=True)
