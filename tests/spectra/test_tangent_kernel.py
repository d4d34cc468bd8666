"""The neural tangent kernel beside products of Jacobians; drawn networks are in tests/operators/test_drawn.py."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import Outer
from gbackprop.curvature.spectra import ntk

X = np.random.default_rng(0).standard_normal((7, 1, 4, 4))


def network(dtype="float64"):
    return gb.Sequential(
        layers.Conv2d(1, 2, 3), layers.Tanh(), layers.Flatten(), layers.Linear(8, 3), rng=1, dtype=dtype
    )


@pytest.mark.parametrize("whole", [True, False])
def test_the_kernel_is_the_product_of_jacobians(whole, monkeypatch):
    net = network().freeze("3.bias")
    J = gb.operators.Jacobian(net, X).to_dense()
    if not whole:  # two samples in a block
        entries = 2 * (8 + 8 + 8 + 3 + 24) * 3 * 8
        monkeypatch.setattr("gbackprop.curvature.spectra.tangent_kernel.BLOCK_BYTES", entries)
    kernel = ntk(net, X)
    assert kernel.shape == (7, 3, 7, 3)
    np.testing.assert_allclose(kernel.reshape(21, 21), J @ J.T, atol=1e-12)
    np.testing.assert_allclose(kernel, kernel.transpose(2, 3, 0, 1), atol=1e-13)
    assert np.linalg.eigvalsh(kernel.reshape(21, 21)).min() > -1e-12
    np.testing.assert_allclose(ntk(net, X[:3], X[2:]), kernel[:3, :, 2:], atol=1e-12)
    gram = gb.backward(net, losses.MSELoss("sum"), X, np.zeros((7, 3)), q.GramGGN())["gram_ggn"]
    np.testing.assert_allclose(kernel.reshape(21, 21), sum(gram.values()) / 2, atol=1e-12)
    single = ntk(network("float32").freeze("3.bias"), X.astype("float32"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, kernel, atol=1e-4)


def test_no_jacobian_of_a_linear_layer_is_formed(monkeypatch):
    net = gb.Sequential(layers.Linear(4, 3), layers.Tanh(), layers.Linear(3, 2), rng=0, dtype="float64")
    x = X[:, 0, 0]
    want = np.einsum("ncd,mkd->ncmk", *[gb.operators.Jacobian(net, x).to_dense().reshape(7, 2, -1)] * 2)
    monkeypatch.setattr("gbackprop.engine.forms.gram._individual", only_biases)
    np.testing.assert_allclose(ntk(net, x, x), want, atol=1e-12)


@pytest.mark.parametrize("uses", [2, 3])
def test_the_jacobian_of_a_shared_parameter_is_the_sum_over_its_uses(uses):
    shared = [layers.Linear(4, 4), layers.Tanh()] * uses
    net, x = gb.Sequential(*shared, layers.Linear(4, 2), rng=0, dtype="float64"), X[:, 0, 0]
    J = gb.operators.Jacobian(net, x).to_dense()
    np.testing.assert_allclose(ntk(net, x).reshape(14, 14), J @ J.T, atol=1e-12)


def only_biases(jacobian, mat):
    assert not isinstance(jacobian, Outer)
    each = jacobian.per_sample(mat).swapaxes(0, 1)
    return each.reshape(1, -1, each.shape[2]), None


NET = network()
WRONG = {
    "x1": (lambda: ntk(NET, [X]), TypeError, "x1: expected a NumPy or CuPy array, got list"),
    "x2": (lambda: ntk(NET, X, 3), TypeError, "x2: expected a NumPy or CuPy array, got int"),
    "NaN": (lambda: ntk(NET, X * np.nan), ValueError, "x: expected finite numbers"),
    "frozen": (lambda: ntk(network().freeze("0").freeze("3"), X), ValueError, "with parameters that are not frozen"),
    "dtype": (lambda: ntk(NET, X, X.astype("float32")), TypeError, "x: expected float64"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        call()


def test_another_shape_that_the_network_takes():
    net = gb.Sequential(layers.Linear(4, 2), rng=0, dtype="float64")
    with pytest.raises(ValueError, match=r"x2: expected shape \('M', 5, 4\) as x1 has, got \(2, 6, 4\)"):
        ntk(net, np.zeros((2, 5, 4)), np.zeros((2, 6, 4)))


def test_a_kernel_that_does_not_fit(monkeypatch):
    monkeypatch.setattr("gbackprop.base.memory.available_memory", lambda device: 1000)
    with pytest.raises(gb.TooLargeError, match=r"the kernel of 7 and 7 samples, 3 outputs: 3.4 KiB, with 1000 B free"):
        ntk(NET, X)
