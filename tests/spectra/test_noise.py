"""Tests of gradient noise, against their definitions from individual gradients."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.curvature.spectra import gradient_noise, signal_to_noise

N = 6


def run(*asked, loss=losses.CrossEntropyLoss("mean"), n=N, y=None, dtype="float64"):  # noqa: B008
    net = gb.Sequential(layers.Linear(4, 3), layers.Tanh(), layers.Linear(3, 3), rng=0, dtype=dtype)
    x = np.random.default_rng(0).standard_normal((n, 4)).astype(dtype)
    return gb.backward(net, loss, x, np.arange(n) % 3 if y is None else y, *asked)


@pytest.mark.parametrize(
    "loss",
    [losses.CrossEntropyLoss(), losses.CrossEntropyLoss("sum"), losses.CrossEntropyLoss(weight=np.arange(1.0, 4))],
)
def test_the_numbers_are_their_definitions(loss):
    result = run(q.GramGradients(), q.BatchGrad(), loss=loss)
    g = np.concatenate([v.reshape(N, -1) for v in result["batch_grad"].values()], axis=1) / result.scale.factor
    mean, found = g.mean(0), gradient_noise(result)
    square, along = mean @ mean, g @ mean
    across = g - np.outer(along / square, mean)
    assert found.norm == pytest.approx(np.trace(np.cov(g.T)) / N / square, rel=1e-10)
    assert found.inner_product == pytest.approx(along.var(ddof=1) / N / square**2, rel=1e-10)
    assert found.orthogonality == pytest.approx((across**2).sum() / (N * (N - 1)) / square, rel=1e-9)
    length = square - np.trace(np.cov(g.T)) / N
    expected = np.trace(np.cov(g.T)) / length if length > 0 else np.inf
    assert found.noise_scale == pytest.approx(expected, rel=1e-9)


def test_the_noise_scale_counts_samples():
    """Gradients that differ from g by independent noise of variance s² in D entries: it is D s² / ‖g‖²."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        net = gb.Sequential(layers.Linear(50, 1, bias=False), rng=0, dtype="float64")
        net.parameters["0.weight"] = np.zeros((1, 50))
        x = 1 + 0.5 * rng.standard_normal((20, 50))  # gₙ = −2 xₙ
        found.append(
            gradient_noise(gb.backward(net, losses.MSELoss(), x, np.ones((20, 1)), q.GramGradients())).noise_scale
        )
    assert np.mean(found) == pytest.approx(0.25, abs=0.005)


def test_equal_gradients_have_no_noise():
    net = gb.Sequential(layers.Linear(2, 1), rng=0, dtype="float64")
    found = gradient_noise(gb.backward(net, losses.MSELoss(), np.ones((3, 2)), np.full((3, 1), 5.0), q.GramGradients()))
    assert (found.norm, found.inner_product, found.orthogonality) == pytest.approx((0, 0, 0), abs=1e-15)
    assert found.noise_scale == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_that_is_small_beside_the_gradient_has_all_digits_where_there_is_the_variance(dtype):
    net = gb.Sequential(layers.Linear(1, 1, bias=False), rng=0, dtype=dtype)
    net.parameters["0.weight"] = np.zeros((1, 1), dtype)
    eps = np.finfo(dtype).eps
    y = np.array([[1], [1 + 4 * eps]], dtype)  # gₙ = −2 yₙ
    result = gb.backward(net, losses.MSELoss(), np.ones((2, 1), dtype), y, q.GramGradients(), q.Variance())
    found = gradient_noise(result)
    assert found.norm == pytest.approx((2 * float(eps)) ** 2, rel=1e-6, abs=0)
    assert found.noise_scale == pytest.approx(2 * found.norm, rel=1e-6, abs=0)


def test_a_mean_gradient_that_is_small_beside_the_gradients_has_all_digits():
    net = gb.Sequential(layers.Linear(1, 1, bias=False), rng=0, dtype="float32")
    net.parameters["0.weight"] = np.zeros((1, 1), "float32")
    y = np.array([[1], [-1 + 2**-20]], "float32")  # gₙ = −2 yₙ, and ḡ is −2⁻²⁰
    result = gb.backward(net, losses.MSELoss(), np.ones((2, 1), "float32"), y, q.GramGradients())
    assert gradient_noise(result).norm == pytest.approx(2.0**40 * (2 - 2**-20) ** 2, rel=1e-6)


def test_opposite_gradients_are_all_noise():
    net = gb.Sequential(layers.Linear(1, 1, bias=False), rng=0, dtype="float64")
    net.parameters["0.weight"] = np.zeros((1, 1))
    x, y = np.ones((2, 1)), np.array([[1.0], [-1.0]])
    found = gradient_noise(gb.backward(net, losses.MSELoss(), x, y, q.GramGradients()))
    assert {found.norm, found.inner_product, found.orthogonality, found.noise_scale} == {np.inf}
    nothing = gradient_noise(gb.backward(net, losses.MSELoss(), x, np.zeros((2, 1)), q.GramGradients()))
    assert np.isnan(nothing.norm)


def test_gradients_at_right_angles_are_all_noise():
    net = gb.Sequential(layers.Linear(2, 1, bias=False), rng=0, dtype="float64")
    net.parameters["0.weight"] = np.zeros((1, 2))
    result = gb.backward(net, losses.MSELoss(), np.eye(2), np.ones((2, 1)), q.GramGradients())
    assert gradient_noise(result).noise_scale == np.inf  # ‖ḡ‖² is what noise alone makes


@pytest.mark.parametrize("loss", [losses.CrossEntropyLoss(), losses.CrossEntropyLoss("sum")], ids=repr)
def test_signal_to_noise(loss):
    result = run(q.Variance(), q.BatchGrad(), loss=loss)
    for name, ratio in signal_to_noise(result).items():
        g = result["batch_grad"][name] / result.scale.factor
        np.testing.assert_allclose(ratio, g.mean(0) ** 2 / g.var(0), rtol=1e-9)
        assert ratio.dtype == np.float64
    assert {ratio.dtype.name for ratio in signal_to_noise(run(q.Variance(), dtype="float32")).values()} == {"float32"}


def test_signal_without_noise_is_infinite_and_no_signal_is_no_number():
    net = gb.Sequential(layers.Linear(2, 1, bias=False), rng=0, dtype="float64")
    x = np.array([[1.0, 0.0], [1.0, 0.0]])
    result = gb.backward(net, losses.MSELoss(), x, np.full((2, 1), 5.0), q.Variance())
    np.testing.assert_array_equal(signal_to_noise(result)["0.weight"], [[np.inf, np.nan]])


def test_on_a_device(double):
    net = gb.Sequential(layers.Linear(4, 3), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((N, 4)), np.arange(N) % 3
    asked = q.GramGradients(), q.Variance()
    want = gb.backward(net, losses.CrossEntropyLoss(), x, y, *asked)
    there = [gb.asarray(part, "cuda:1") for part in (x, y)]
    found = gb.backward(net.to("cuda:1"), losses.CrossEntropyLoss(), *there, *asked)
    assert gradient_noise(found).norm == pytest.approx(gradient_noise(want).norm, rel=1e-10)
    ratio = gb.asnumpy(signal_to_noise(found)["0.bias"])
    np.testing.assert_allclose(ratio, signal_to_noise(want)["0.bias"], rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gradient_noise(3), TypeError, "result: expected a Result, got int"),
        (lambda: gradient_noise(run()), ValueError, r"result: expected one with GramGradients, got \[\]"),
        (lambda: gradient_noise(run(q.GramGradients(), n=1)), ValueError, "at least two samples, got 1 sample"),
        (
            lambda: signal_to_noise(run(q.GramGradients())),
            ValueError,
            r"expected one with Variance, got \[GramGradients",
        ),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
