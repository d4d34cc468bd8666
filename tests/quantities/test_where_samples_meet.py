"""Networks in which samples meet, against complex steps through the whole batch."""

import pickle

import numpy as np
import pytest
import scipy.stats
from common import assert_equal, assert_same
from whole_batch import WholeBatch

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses, operators
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import Bias
from gbackprop.calculus.layer import Layer
from gbackprop.engine.registry import PLAIN
from gbackprop.operators.linearized import Linearized
from gbackprop.testing import check_layer

CE, MSE = losses.CrossEntropyLoss(), losses.MSELoss("sum")
ASKED = (q.DiagGGN(), q.DiagHessian(), q.BatchGrad(coupled=True), q.KFLR(), q.EKFAC(fisher="exact"))


class Centered(Layer):
    """A layer of one's own, which subtracts the batch's mean, and adds a bias."""

    mixes = True

    def parameter_shapes(self):
        return {"b": (3,)}

    def draw(self, rng):
        return {"b": rng.standard_normal(3)}

    def output_shape(self, shape):
        if shape != (3,):
            raise ValueError(f"expected (3,), got {shape}")
        return shape

    def forward(self, x):
        return x - x.mean(0) + self.parameters["b"], x.shape

    def jmp(self, saved, mat):
        return mat - mat.mean(1, keepdims=True)

    def mjp(self, saved, mat):
        return mat - mat.mean(1, keepdims=True)

    def parameter_jacobians(self, saved):
        return {"b": Bias(lambda mat: mat[:, :, None])}


def chain(*parts):
    return gb.Sequential(*parts, rng=0, dtype="float64")


def shared():
    norm, linear = L.BatchNorm1d(3), L.Linear(3, 3)
    return chain(linear, norm, L.Tanh(), linear, norm, L.Sigmoid(), L.Linear(3, 2))


def residual():
    return chain(
        L.Linear(3, 3), gb.Residual(L.BatchNorm1d(3), L.SiLU(), L.Linear(3, 3, bias=False), L.BatchNorm1d(3)),
        L.Tanh(), L.Linear(3, 2)
    )  # fmt: skip


NETWORKS = {
    "chain": (lambda: chain(L.Linear(3, 4), L.BatchNorm1d(4), L.Tanh(), L.Linear(4, 2), L.BatchNorm1d(2)), (3,)),
    "without factors": (lambda: chain(L.Linear(3, 3), L.BatchNorm1d(3, eps=0.1, affine=False), L.ELU()), (3,)),
    "residual": (residual, (3,)),
    "shared": (shared, (3,)),
    "images": (lambda: chain(
        L.Conv2d(2, 2, 2, groups=2), L.BatchNorm2d(2), L.ReLU(), L.ConvTranspose2d(2, 1, 2), L.BatchNorm2d(1),
        L.MaxPool2d(2), L.Flatten(), L.Softplus(), L.Linear(1, 2)
    ), (2, 3, 3)),
    "sequences": (lambda: chain(L.Linear(3, 2), L.BatchNorm1d(2), L.PReLU(), L.Softmax(-1), L.Flatten()), (2, 3)),
    "at the input": (lambda: chain(L.BatchNorm1d(3), L.Linear(3, 2), L.Tanh()), (3,)),
    "of one's own": (lambda: chain(L.Linear(3, 3), L.Tanh(), Centered(), L.Sigmoid(), L.Linear(3, 2)), (3,)),
}  # fmt: skip


def setting(name, loss=CE, samples=4):
    """A network whose factors and shifts are drawn, and a batch."""
    rng = np.random.default_rng(7)
    make, shape = NETWORKS[name]
    network, x = make(), rng.standard_normal((samples, *shape))
    if name == "sequences":
        x = rng.standard_normal((samples, 2, 3))
    for value in network.parameters.values():
        value += 0.4 * rng.standard_normal(value.shape)
    outputs = gb.reference(network, losses.MSELoss(), x, np.zeros_like(network(x)), training=True).output
    y = rng.standard_normal(outputs.shape) if loss is MSE else rng.integers(0, outputs.shape[1], samples)
    return network, loss, x, y


def close(found, want, tolerance=1e-9):
    np.testing.assert_allclose(found, want, rtol=0, atol=tolerance * max(np.abs(want).max(), 1e-9))


@pytest.mark.parametrize("loss", [CE, MSE], ids=repr)
@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_those_of_the_whole_batch(name, loss):
    network, loss, x, y = setting(name, loss)
    truth = WholeBatch(network, loss, x, y)
    hessian = truth.hessian()
    close(hessian, hessian.T)
    for engine in (gb.backward, gb.reference):
        result = engine(network, loss, x, y, *ASKED, training=True)
        close(result.output, truth.output)
        close(truth.joined(result.gradient), truth.individual.sum(0))
        close(truth.joined(result["batch_grad"]), truth.individual)
        close(truth.joined(result["diag_ggn"]), np.diag(truth.ggn))
        close(truth.joined(result["diag_hessian"]), np.diag(hessian))
        for key, value in truth.values.items():
            block, corrected, rows = result["kflr"][key], result["ekfac"][key], truth.block(key)
            if block.A is None:  # the whole block
                close(block.B, truth.ggn[rows, rows])
            close(np.sum(corrected.eigenvalues), np.trace(truth.ggn[rows, rows]))
            assert np.prod(corrected.shape) == value.size**2


@pytest.mark.parametrize("name", NETWORKS)
def test_operators_are_those_of_the_whole_batch(name, monkeypatch):
    network, loss, x, y = setting(name)
    truth = WholeBatch(network, loss, x, y)
    buffers = {key: value.copy() for key, value in network.buffers.items()}
    hessian = truth.hessian()

    def check():
        close(operators.GGN(network, loss, (x, y), training=True).to_dense(), truth.ggn)
        close(operators.Hessian(network, loss, (x, y), training=True).to_dense(), hessian)
        jacobian = operators.Jacobian(network, x, training=True)
        close(jacobian.to_dense(), truth.jacobian.reshape(jacobian.shape))
        weights = np.random.default_rng(0).standard_normal(jacobian.shape[0])
        close(jacobian.T @ weights, truth.jacobian.reshape(jacobian.shape).T @ weights)

    check()
    monkeypatch.setattr(Linearized.__init__, "__defaults__", (PLAIN,))
    check()
    for key, value in network.buffers.items():  # an operator is of one batch, and learns nothing
        np.testing.assert_array_equal(value, buffers[key])


def test_further_passes_and_a_budget_of_memory_change_rounding_alone():
    network, loss, x, y = setting("images")
    asked = q.DiagGGN(), q.DiagHessian(), q.KFLR()
    whole = gb.backward(network, loss, x, y, *asked, training=True)
    for options in ({"column_block": 1}, {"column_block": 7}, {"memory": "60 kB"}):
        both = gb.backward(network, loss, x, y, *asked, training=True, **options)
        assert_same(both, whole, 1e-10)


def test_a_network_where_samples_do_not_meet_has_the_same_rows():
    network, loss, x, y = setting("chain")
    plain, coupled = gb.backward(network, loss, x, y, q.BatchGrad()), q.BatchGrad(coupled=True)
    assert_equal(gb.backward(network, loss, x, y, coupled)["batch_grad"], plain["batch_grad"])
    assert repr(coupled) == "BatchGrad(coupled=True)"
    assert pickle.loads(pickle.dumps(coupled)).coupled


def test_weights_of_samples_multiply_their_losses():
    network, loss, x, y = setting("chain")
    weights = np.array([0.0, 2.0, 1.0, 1.0])
    asked = q.DiagGGN(), q.BatchGrad(coupled=True)
    once = gb.backward(network, loss, x, y, *asked, training=True, sample_weight=weights)
    each = [gb.backward(network, loss, x, y, *asked, training=True, sample_weight=np.eye(4)[n]) for n in range(4)]
    for name in network.parameters:
        close(once["diag_ggn"][name], sum(w * one["diag_ggn"][name] for w, one in zip(weights, each, strict=True)))
        rows = [w * one["batch_grad"][name][n] for n, (w, one) in enumerate(zip(weights, each, strict=True))]
        close(once["batch_grad"][name], np.stack(rows))


CALLS, DRAWS, ALARMS = 250, 8, 1e-6
"""Calls, draws in each, and the rate at which right estimates would fail a test: the seeds are fixed."""


@pytest.mark.parametrize("name", ["chain", "images"])
def test_estimates_from_one_column_a_draw_are_unbiased(name):
    network, loss, x, y = setting(name)
    exact = gb.backward(network, loss, x, y, q.DiagGGN(), q.KFLR(), training=True)
    call = gb.prepare(network, loss, q.DiagGGNMC(DRAWS), q.KFAC(DRAWS), training=True)
    drawn = [call(x, y, rng=seed) for seed in range(CALLS)]
    want, found = ([np.concatenate([
        each.ravel() for key in network.parameters for each in (result[ggn][key], result[kron][key].B)
    ]) for result in results] for ggn, kron, results in (("diag_ggn", "kflr", [exact]), ("diag_ggn_mc", "kfac", drawn)))
    error, spread = np.mean(found, 0) - want[0], np.std(found, 0, ddof=1) / CALLS**0.5
    rounding = 1e-12 * np.abs(want[0]).max()  # a bias below has no curvature: the mean is subtracted
    assert (np.abs(error) < scipy.stats.t.isf(ALARMS / 2 / error.size, CALLS - 1) * spread + rounding).all()
    assert (spread > rounding).mean() > 0.5
    for key, block in exact["kflr"].items():
        if block.A is not None:
            assert_equal({"A": drawn[0]["kfac"][key].A}, {"A": block.A})


def test_what_is_observed_is_stored_once_and_only_where_a_call_succeeds():
    network, loss, x, y = setting("shared")

    def tracked():
        return int(network.buffers["1.num_batches_tracked"])

    def raising(done, total):
        raise KeyboardInterrupt

    gb.reference(network, loss, x, y, training=True)
    gb.explain(network, loss, x, y, training=True)
    gb.backward(network, loss, x, y)
    with pytest.raises(KeyboardInterrupt):
        gb.backward(network, loss, x, y, training=True, progress=raising)
    before = network.buffers["1.running_mean"].copy()
    assert tracked() == 0
    gb.backward(network, loss, x, y, q.EKFAC(), training=True, column_block=2)
    assert tracked() == 2  # the layer is at two places
    assert not np.allclose(network.buffers["1.running_mean"], before)
    gb.prepare(network, loss, training=True)(x, y)
    assert tracked() == 4


STEPS = {  # of torch 2.13: ten batches, eps and momentum as in the test
    0.3: ([1.0986617497555646, 0.12993338914629507], [2.244441961846631, 2.0943848778133685]),
    None: ([0.6704232001025506, 0.21097900202395584], [1.4159343599030434, 1.3733469228792314]),
}


def batches():
    """Ten batches of images, each with a mean and a deviation of its own."""
    grid = np.arange(3 * 2 * 2 * 2).reshape(3, 2, 2, 2)
    return [np.sin(0.7 * grid + step) * (1 + 0.2 * step) + 0.1 * step for step in range(10)]


def test_results_of_batches_are_not_merged(tmp_path):
    net, rng = gb.Sequential(L.Linear(3, 4), L.BatchNorm1d(4), rng=0, dtype="float64"), np.random.default_rng(0)
    found = gb.backward(net, MSE, rng.standard_normal((5, 3)), rng.standard_normal((5, 4)), training=True)
    gb.save(found, tmp_path / "found.safetensors")
    for result in (found, gb.load_result(tmp_path / "found.safetensors")):
        with pytest.raises(NotImplementedError, match="result 0 cannot be merged: samples of a batch met"):
            gb.data.merge([result, result])


def test_the_input_has_a_gradient_alone():
    net = gb.Sequential(L.Linear(2, 3), L.BatchNorm1d(3), L.Tanh(), L.Linear(3, 2), rng=0, dtype="float64")
    x, y, step = np.random.default_rng(0).standard_normal((4, 2)), np.arange(4) % 2, 1e-6
    want = np.zeros_like(x)
    for n, i in np.ndindex(x.shape):
        moved = [x.copy(), x.copy()]
        for each, sign in zip(moved, (1, -1)):
            each[n, i] += sign * step
        above, below = (gb.reference(net, CE, each, y, training=True).loss for each in moved)
        want[n, i] = (above - below) / (2 * step)
    for call in (gb.backward, gb.reference):
        np.testing.assert_allclose(call(net, CE, x, y, wrt="x", training=True).gradient["x"], want, atol=1e-9)
        with pytest.raises(gb.UnsupportedError, match=r"samples meet there, so the entries of 'x'"):
            call(net, CE, x, y, q.DiagGGN(), wrt="x", training=True)


@pytest.mark.parametrize("momentum", STEPS)
def test_running_statistics_are_those_of_torch(momentum):
    network = chain(L.BatchNorm2d(2, momentum=momentum), L.Flatten())
    for x in batches():
        gb.backward(network, MSE, x, np.zeros((3, 8)), training=True)
    mean, variance = STEPS[momentum]
    close(network.buffers["0.running_mean"], mean, 1e-12)
    close(network.buffers["0.running_var"], variance, 1e-12)
    assert network.buffers["0.num_batches_tracked"] == 10


def test_the_kit_looks_at_layers_that_say_that_they_mix_samples():
    x = np.random.default_rng(0).standard_normal((3, 3))
    check_layer(Centered(), x).assert_ok()

    class Silent(Centered):
        mixes = False

    failures = check_layer(Silent(), x).failures
    assert any(row.claim == "samples do not interact" for row in failures)
