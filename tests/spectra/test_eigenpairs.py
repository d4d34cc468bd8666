"""Gram matrices, and the GGN's eigenpairs from them, against dense matrices by complex steps."""

import tracemalloc

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.curvature.spectra import ggn_eigenpairs
from gbackprop.engine import blocks
from gbackprop.testing.oracles import Dense

L = layers.Linear


def tied():
    t = L(3, 3)
    return gb.Sequential(t, layers.Tanh(), gb.Residual(t, layers.Sigmoid()), L(3, 2), rng=0, dtype="float64"), (3,)


def conv():
    chain = [layers.Conv2d(1, 2, 2), layers.Sigmoid(), layers.Flatten(), L(8, 3)]
    return gb.Sequential(*chain, rng=0, dtype="float64"), (1, 3, 3)


def mlp():
    return gb.Sequential(L(4, 3), layers.Tanh(), L(3, 3, bias=False), rng=0, dtype="float64"), (4,)


def groups():
    chain = [layers.Conv1d(2, 4, 3, groups=2), layers.Sigmoid(), layers.Flatten(), L(4, 2)]  # one position
    return gb.Sequential(*chain, rng=0, dtype="float64"), (2, 3)


NETWORKS = pytest.mark.parametrize("make", [tied, conv, mlp, groups])
LOSSES = pytest.mark.parametrize(
    "loss",
    [losses.CrossEntropyLoss(), losses.CrossEntropyLoss("sum", label_smoothing=0.1), losses.MSELoss()],
    ids=repr,
)


def problem(make, loss, n=4):
    network, shape = make()
    rng = np.random.default_rng(1)
    x, outputs = rng.standard_normal((n, *shape)), network.output_shape(shape)
    y = rng.standard_normal((n, *outputs)) if isinstance(loss, losses.MSELoss) else rng.integers(0, outputs[0], n)
    return network, loss, x, y


def dense(network, loss, x, y):
    """∇ℓₙ (N, D), Jₙ (N, C, D) and Hₙ (N, C, C) over all parameters side by side."""
    parts = Dense(network, loss, x, y).parts
    n = len(x)
    each = [parts[name] for name in network.parameters]
    gradients = np.concatenate([part.gradients.reshape(n, -1) for part in each], axis=1)
    jacobians = np.concatenate([part.jacobians.reshape(*part.jacobians.shape[:2], -1) for part in each], axis=2)
    return gradients, jacobians, each[0].hessians


@NETWORKS
@LOSSES
def test_the_sum_over_parameters_is_the_matrix_of_the_whole(make, loss):
    case = problem(make, loss)
    gradients, jacobians, hessians = dense(*case)
    result = gb.backward(*case, q.GramGradients(), q.GramGGN(), q.BatchL2Grad())
    r = result.scale.factor
    np.testing.assert_allclose(sum(result["gram_gradients"].values()), r**2 * gradients @ gradients.T, atol=1e-13)
    for name, gram in result["gram_gradients"].items():
        np.testing.assert_allclose(np.diag(gram), result["batch_l2_grad"][name], rtol=1e-10, atol=1e-16)
    ggn = r * np.einsum("nci,ncd,ndj->ij", jacobians, hessians, jacobians)
    want, gram = np.linalg.eigvalsh(ggn)[::-1], sum(result["gram_ggn"].values())
    got = np.linalg.eigvalsh(gram)[::-1]
    count = min(len(want), len(got))
    np.testing.assert_allclose(got[:count], want[:count], atol=1e-13)
    assert max(np.abs(want[count:]).max(initial=0), np.abs(got[count:]).max(initial=0)) < 1e-13


@NETWORKS
def test_rows_are_in_the_order_of_samples_then_of_columns(make):
    network, loss, x, y = problem(make, losses.CrossEntropyLoss())
    _, jacobians, _ = dense(network, loss, x, y)
    roots = loss.hessian_sqrt(network(x), y)  # (V, N, C)
    rows = np.einsum("vnc,ncd->nvd", roots, jacobians).reshape(len(x) * len(roots), -1) / len(x) ** 0.5
    gram = sum(gb.backward(network, loss, x, y, q.GramGGN())["gram_ggn"].values())
    np.testing.assert_allclose(gram, rows @ rows.T, atol=1e-13)


@NETWORKS
@LOSSES
def test_eigenpairs_are_those_of_the_dense_matrix(make, loss):
    case = problem(make, loss)
    gradients, jacobians, hessians = dense(*case)
    found = ggn_eigenpairs(*case)
    each = np.einsum("nci,ncd,ndj->nij", jacobians, hessians, jacobians)
    ggn, k = found.factor * each.sum(0), len(found.values)
    want = np.linalg.eigvalsh(ggn)[::-1]
    np.testing.assert_allclose(found.values, want[:k], rtol=1e-8)
    assert np.abs(want[k:]).max(initial=0) < 1e-12 * want[0]
    e = np.concatenate([found.vectors[name].reshape(k, -1) for name in case[0].parameters], axis=1)
    np.testing.assert_allclose(e @ e.T, np.eye(k), atol=1e-7)
    np.testing.assert_allclose(ggn @ e.T, e.T * found.values, atol=1e-9 * want[0])
    np.testing.assert_allclose(found.gradients, gradients @ e.T, atol=1e-7)
    np.testing.assert_allclose(found.curvatures, np.einsum("ki,nij,kj->nk", e, each, e), atol=1e-9)


def test_some_eigenpairs_are_the_largest():
    case = problem(conv, losses.CrossEntropyLoss())
    every, some = ggn_eigenpairs(*case), ggn_eigenpairs(*case, k=2)
    np.testing.assert_array_equal(some.values, every.values[:2])
    np.testing.assert_allclose(some.gradients, every.gradients[:, :2], atol=1e-14)
    assert {name: v.shape[0] for name, v in some.vectors.items()} == dict.fromkeys(case[0].parameters, 2)


def test_frozen_parameters_are_left_out():
    network, *rest = problem(mlp, losses.CrossEntropyLoss())
    network.freeze("0")
    found, gram = ggn_eigenpairs(network, *rest), gb.backward(network, *rest, q.GramGGN())["gram_ggn"]
    assert list(found.vectors) == list(gram) == ["2.weight"]
    np.testing.assert_allclose(found.values[0], np.linalg.eigvalsh(gram["2.weight"])[-1], rtol=1e-10)
    network.freeze()
    with pytest.raises(ValueError, match="network: expected a parameter that is not frozen, got none"):
        ggn_eigenpairs(network, *rest)


def test_a_loss_without_curvature_has_no_eigenpairs():
    network, _, x, _ = problem(mlp, losses.CrossEntropyLoss())
    found = ggn_eigenpairs(network, losses.HuberLoss(), x, np.full((4, 3), 1e3))
    assert found.values.shape == (0,)
    assert found.gradients.shape == found.curvatures.shape == (4, 0)


@pytest.mark.parametrize("layer", [layers.PReLU(1), layers.LayerNorm(2), layers.ConvTranspose1d(2, 2, 1)], ids=repr)
def test_of_sure_classes_there_are_none(layer):
    shape = (2, 3) if isinstance(layer, layers.ConvTranspose1d) else (2,)
    last = layers.Linear(int(np.prod(shape)), 3)
    network = gb.Sequential(layer, layers.Flatten(), last, rng=0, dtype="float64")
    network.parameters["2.weight"][:] *= 1e-3
    network.parameters["2.bias"][:] = 2000, 0, 0
    x = np.random.default_rng(0).standard_normal((4, *shape))
    found = ggn_eigenpairs(network, losses.CrossEntropyLoss(), x, np.zeros(4, int))
    assert found.values.shape == (0,)
    assert {name: value.shape for name, value in found.vectors.items()} == {
        name: (0, *value.shape) for name, value in network.parameters.items()
    }


@pytest.mark.parametrize("layer", [
    layers.Conv1d(1, 2, 3), layers.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), layers.Conv3d(2, 4, 2, groups=2),
    layers.ConvTranspose1d(1, 2, 3, 2), layers.ConvTranspose2d(2, 4, 2, groups=2), layers.ConvTranspose3d(1, 2, 2),
], ids=repr)  # fmt: skip
def test_of_no_curvature_above_a_convolution_there_are_none(layer):
    shape = (layer.in_channels, *[4] * layer.dims)
    network = gb.Sequential(layers.PReLU(), layer, layers.Flatten(), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((3, *shape))
    found = ggn_eigenpairs(network, losses.L1Loss(), x, np.full((3, *network.output_shape(shape)), 99.0))
    assert {name: value.shape for name, value in found.vectors.items()} == {
        name: (0, *value.shape) for name, value in network.parameters.items()
    }
    assert found.values.shape == (0,)


def test_float32_stays_float32():
    network, shape = mlp()
    x, y = np.random.default_rng(1).standard_normal((4, *shape), dtype=np.float32), np.array([0, 1, 2, 0])
    found = ggn_eigenpairs(network.astype("float32"), losses.CrossEntropyLoss(), x, y, k=3)
    arrays = [found.values, found.gradients, found.curvatures, *found.vectors.values()]
    assert {array.dtype.name for array in arrays} == {"float32"}


def test_on_a_device(double):
    network, loss, x, y = problem(conv, losses.CrossEntropyLoss())
    want = ggn_eigenpairs(network, loss, x, y, k=3)
    there = [gb.asarray(part, "cuda:1") for part in (x, y)]
    found = ggn_eigenpairs(network.to("cuda:1"), loss, *there, k=3)
    np.testing.assert_allclose(gb.asnumpy(found.values), want.values, rtol=1e-10)
    np.testing.assert_allclose(gb.asnumpy(found.curvatures), want.curvatures, atol=1e-10)
    gram = gb.backward(network, loss, *there, q.GramGGN(), q.GramGradients())["gram_gradients"]["0.bias"]
    assert gb.asnumpy(gram).shape == (4, 4)


# ---------------------------------------------------------------------------------------------------- blocks and memory


@pytest.mark.parametrize(
    ("quantity", "options", "message"),
    [
        (q.GramGGN(), {"sample_block": 2}, "GramGGN pairs all samples: sample_block and workers must be None"),
        (q.GramGradients(), {"workers": 2}, "GramGradients pairs all samples: sample_block and workers must be None"),
        (q.GramGGN(), {"column_block": 1}, "GramGGN pairs all columns: column_block must be None"),
    ],
)
def test_blocks_that_would_miss_pairs_are_refused(quantity, options, message):
    with pytest.raises(ValueError, match=message):
        gb.backward(*problem(conv, losses.CrossEntropyLoss()), quantity, **options)


def test_other_blocks_change_nothing():
    case = problem(conv, losses.CrossEntropyLoss(), n=9)
    asked = [q.GramGradients(), q.DiagHessian()]
    whole = gb.backward(*case, *asked)
    for options in ({"column_block": 2}, {"sample_block": 9}, {"memory": "1MiB"}):
        again = gb.backward(*case, *asked, **options)
        for name, gram in whole["gram_gradients"].items():
            np.testing.assert_allclose(again["gram_gradients"][name], gram, rtol=1e-10, atol=1e-16)


def test_matrices_that_do_not_fit_are_told_before_anything_is_computed(monkeypatch):
    case = problem(conv, losses.CrossEntropyLoss(), n=50)
    monkeypatch.setattr(blocks, "available_memory", lambda device: 2**20)
    message = r"GramGGN\(\): the matrices of 50 samples for 4 parameters need 1.0 MiB, with 1.0 MiB free"
    with pytest.raises(gb.TooLargeError, match=message):
        gb.backward(*case, q.GramGGN())
    with pytest.raises(gb.TooLargeError, match="the matrices of 50 samples"):
        ggn_eigenpairs(*case)
    gb.backward(*case, q.GramGradients())


def test_a_budget_that_is_too_small_is_told():
    with pytest.raises(ValueError, match=r"memory: at least .* are needed"):
        gb.backward(*problem(conv, losses.CrossEntropyLoss(), n=200), q.GramGGN(), memory="1MiB")


def test_a_weight_at_one_position_needs_no_products_of_its_size():
    network = gb.Sequential(L(400, 300), layers.Tanh(), L(300, 2), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((50, 400)), np.arange(50) % 2
    gb.backward(network, losses.CrossEntropyLoss(), x, y)
    tracemalloc.start()
    gb.backward(network, losses.CrossEntropyLoss(), x, y, q.GramGradients(), q.GramGGN())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 400 * 300 * 8 / 2  # half of the individual gradients
