"""What must hold between quantities, whatever the numbers are."""

from itertools import product

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.residual import residual_columns
from gbackprop.calculus.signals import Columns

N, C = 6, 3
RNG = np.random.default_rng(7)
IMAGES, VECTORS = RNG.standard_normal((N, 2, 4, 4)), RNG.standard_normal((N, 5))
THIN, SEQUENCES = RNG.standard_normal((N, 6, 3, 2)), RNG.standard_normal((N, 2, 8))  # many features, few positions
LABELS, TARGETS = RNG.integers(0, C, N), RNG.random((N, C))
LOSSES = [losses.CrossEntropyLoss, losses.MSELoss, losses.BCEWithLogitsLoss]
REDUCTIONS = ["mean", "sum"]


def target(loss):
    return LABELS if isinstance(loss, losses.CrossEntropyLoss) else TARGETS


def mlp(activation):
    return gb.Sequential(layers.Linear(5, 4), activation, layers.Linear(4, C), rng=1, dtype="float64")


def convnet(activation, pool):
    head = layers.Flatten(), layers.Linear(8, C)
    return gb.Sequential(layers.Conv2d(2, 2, 3, padding=1), activation, pool, *head, rng=1, dtype="float64")


def with_head(layer, activation):
    """A layer of 12 outputs below a linear one."""
    return gb.Sequential(layer, activation, layers.Flatten(), layers.Linear(12, C), rng=1, dtype="float64")


CURVED = [(mlp(layers.Tanh()), VECTORS), (convnet(layers.Sigmoid(), layers.MaxPool2d(2)), IMAGES)]
PIECEWISE = [
    (mlp(layers.ReLU()), VECTORS),
    (mlp(layers.Identity()), VECTORS),
    (convnet(layers.ReLU(), layers.MaxPool2d(2)), IMAGES),
    (convnet(layers.Identity(), layers.AvgPool2d(2)), IMAGES),
    (with_head(layers.Conv2d(6, 6, 2), layers.ReLU()), THIN),
    (with_head(layers.Linear(8, 6), layers.ReLU()), SEQUENCES),
]


def label(value):
    """Short name of a network or a batch."""
    return "-".join(type(layer).__name__ for layer in value) if isinstance(value, gb.Sequential) else str(value.shape)


NETWORKS = pytest.mark.parametrize(("network", "x"), CURVED + PIECEWISE, ids=label)
ALL_LOSSES = pytest.mark.parametrize("loss", [kind(r) for kind, r in product(LOSSES, REDUCTIONS)], ids=repr)


def equal(got, want, rtol=1e-10):
    """Two mappings of arrays agree."""
    assert set(got) == set(want)
    for name, value in want.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(got[name], value, rtol=rtol, atol=rtol * scale, err_msg=name)


# ----------------------------------------------------------------------------------------------------- sums and moments


@NETWORKS
@ALL_LOSSES
def test_individual_gradients(network, x, loss):
    asked = q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance()
    result = gb.backward(network, loss, x, target(loss), *asked)
    each, norms, second, variance = result.values
    factor = loss.factor(N, target(loss))
    equal({name: g.sum(0) for name, g in each.items()}, result.gradient)
    equal(norms, {name: (g.reshape(N, -1) ** 2).sum(1) for name, g in each.items()})
    equal(second, {name: ((g / factor) ** 2).mean(0) for name, g in each.items()})
    equal(variance, {name: (g / factor).var(0) for name, g in each.items()})


@NETWORKS
@ALL_LOSSES
def test_batch_quantities_add_up(network, x, loss):
    pairs = (q.BatchDiagGGN(), q.DiagGGN()), (q.BatchDiagHessian(), q.DiagHessian())
    result = gb.backward(network, loss, x, target(loss), *sum(pairs, ()))
    for batch, total in pairs:
        assert all(value.shape[0] == N for value in result[batch].values())
        equal({name: value.sum(0) for name, value in result[batch].items()}, result[total])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_equal_samples_have_no_variance(dtype, reduction):
    network = gb.Sequential(layers.Linear(5, 4), layers.Tanh(), layers.Linear(4, C), rng=1, dtype=dtype)
    x, y = VECTORS[:1].repeat(7, 0).astype(dtype), LABELS[:1].repeat(7)
    result = gb.backward(network, losses.CrossEntropyLoss(reduction), x, y, q.Variance(), q.SecondMoment())
    for name, value in result["variance"].items():
        assert value.dtype == dtype
        assert value.max() <= 1e-6 * result["second_moment"][name].max()
        assert value.min() >= 0


def test_a_small_variance_beside_a_large_mean_survives_float32():
    network = gb.Sequential(layers.Linear(1, 1, bias=False)).load_state_dict({"0.weight": np.zeros((1, 1))})
    x = np.ones((4, 1), np.float32)
    y = np.array([[1000.0], [1000.5], [1001.0], [1001.5]], np.float32)  # gradients −2 y
    variance = gb.backward(network, losses.MSELoss("sum"), x, y, q.Variance())["variance"]["0.weight"]
    np.testing.assert_allclose(variance, 4 * y.var(), rtol=1e-5)


# ------------------------------------------------------------------------------------------------------------ curvature


@pytest.mark.parametrize(("network", "x"), PIECEWISE, ids=label)
@ALL_LOSSES
def test_piecewise_linear_networks_have_no_residual(network, x, loss):
    result = gb.backward(network, loss, x, target(loss), q.DiagGGN(), q.DiagHessian())
    equal(result["diag_hessian"], result["diag_ggn"])
    assert all((value >= 0).all() for value in result["diag_ggn"].values())


@pytest.mark.parametrize(("network", "x"), CURVED, ids=label)
def test_curved_networks_have_one_below_the_curvature_only(network, x):
    result = gb.backward(network, losses.MSELoss(), x, TARGETS, q.DiagGGN(), q.DiagHessian())
    first, *_, last = network.parameters
    difference = result["diag_hessian"][first] - result["diag_ggn"][first]
    assert np.abs(difference).max() > 1e-2 * result["diag_ggn"][first].max()
    np.testing.assert_allclose(result["diag_hessian"][last], result["diag_ggn"][last], rtol=1e-12)


@pytest.mark.parametrize("loss", [losses.CrossEntropyLoss(), losses.CrossEntropyLoss("sum")], ids=repr)
def test_kronecker_factors_of_one_sample_and_a_linear_layer_are_exact(loss):
    network, x = gb.Sequential(layers.Linear(5, C), rng=2, dtype="float64"), VECTORS[:1]
    result = gb.backward(network, loss, x, LABELS[:1], q.KFLR(), q.KFRA())
    p = np.exp(result.output[0]) / np.exp(result.output[0]).sum()
    hessian = np.diag(p) - np.outer(p, p)
    for name in ("kflr", "kfra"):
        np.testing.assert_allclose(result[name]["0.bias"].to_dense(), hessian, atol=1e-14)
        block = result[name]["0.weight"].to_dense()
        np.testing.assert_allclose(block, np.kron(hessian, np.outer(x, x)), atol=1e-13)


@ALL_LOSSES
def test_kflr_and_kfra_of_one_sample_agree_through_a_network_and_hold_the_diagonal(loss):
    x, y = VECTORS[:1], target(loss)[:1]
    result = gb.backward(mlp(layers.Tanh()), loss, x, y, q.KFLR(), q.KFRA(), q.DiagGGN())
    dense = [{name: block.to_dense() for name, block in result[key].items()} for key in ("kflr", "kfra")]
    equal(*dense)
    equal({name: block.diagonal() for name, block in dense[0].items()},
          {name: value.ravel() for name, value in result["diag_ggn"].items()})  # fmt: skip


def test_kfra_averages_between_layers_and_so_differs_from_kflr():
    result = gb.backward(mlp(layers.Tanh()), losses.CrossEntropyLoss(), VECTORS, LABELS, q.KFLR(), q.KFRA())
    np.testing.assert_allclose(result["kfra"]["2.bias"].B, result["kflr"]["2.bias"].B, rtol=1e-10)
    assert not np.allclose(result["kfra"]["0.bias"].B, result["kflr"]["0.bias"].B, rtol=1e-2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_networks_with_squared_error_have_exact_kronecker_factors(reduction):
    network, loss = mlp(layers.Identity()), losses.MSELoss(reduction)
    result = gb.backward(network, loss, VECTORS, TARGETS, q.KFLR(), q.KFRA())
    for name, value in network.parameters.items():
        # L is quadratic in each parameter, so a step of 1 in an entry changes the gradient by a column of the Hessian.
        columns = []
        for index in np.ndindex(value.shape):
            value[index] += 1
            columns.append(gb.backward(network, loss, VECTORS, TARGETS).gradient[name].ravel())
            value[index] -= 1
        hessian = np.array(columns) - result.gradient[name].ravel()
        for key in ("kflr", "kfra"):
            np.testing.assert_allclose(result[key][name].to_dense(), hessian, atol=1e-10 * np.abs(hessian).max())


@NETWORKS
def test_the_trace_of_a_biass_factor_is_the_sum_of_its_diagonal(network, x):
    result = gb.backward(network, losses.CrossEntropyLoss(), x, LABELS, q.KFLR(), q.DiagGGN())
    for name, factors in result["kflr"].items():
        if name.endswith("bias"):
            np.testing.assert_allclose(factors.trace(), result["diag_ggn"][name].sum(), rtol=1e-10)


# ----------------------------------------------------------------------------------------------------------- reductions

POWERS = {
    q.BatchGrad: (1, 1),
    q.BatchL2Grad: (2, 2),
    q.SecondMoment: (0, 2),
    q.Variance: (0, 2),
    q.DiagGGN: (1, 1),
    q.DiagGGNMC: (1, 1),
    q.DiagHessian: (1, 1),
    q.BatchDiagGGN: (1, 1),
    q.BatchDiagHessian: (1, 1),
    q.KFAC: (1, 1),
    q.KFLR: (1, 1),
    q.KFRA: (1, 1),
}
"""With "sum", what "mean" gives times N to the first power and, for losses over C outputs, C to the second."""


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(("network", "x"), CURVED, ids=label)
def test_sum_against_mean(network, x, kind):
    asked = [quantity() for quantity in POWERS]
    mean, total = (gb.backward(network, kind(r), x, target(kind(r)), *asked, rng=5) for r in REDUCTIONS)
    outputs = 1 if kind is losses.CrossEntropyLoss else C
    np.testing.assert_allclose(total.loss, mean.loss * N * outputs, rtol=1e-12)
    equal(total.gradient, {name: value * N * outputs for name, value in mean.gradient.items()})
    for quantity, (samples, features) in zip(asked, POWERS.values(), strict=True):
        factor = N**samples * outputs**features
        if isinstance(next(iter(mean[quantity].values())), q.Kronecker):
            pairs = [(block, total[quantity][name]) for name, block in mean[quantity].items()]
            assert all(np.array_equal(one.A, other.A) for one, other in pairs if one.A is not None)
            equal(dict(enumerate(b.B for _, b in pairs)), dict(enumerate(a.B * factor for a, _ in pairs)))
        else:
            equal(total[quantity], {name: value * factor for name, value in mean[quantity].items()})


# ---------------------------------------------------------------------------------------------------------- Monte Carlo

UNIFORM = gb.Sequential(layers.Linear(5, C), dtype="float64")
UNIFORM.load_state_dict({"0.weight": np.zeros((C, 5)), "0.bias": np.zeros(C)})
"""Outputs 0: all classes, and both values of a bit, are equally likely."""
AXES = np.eye(C) * (C / 2) ** 0.5
EVERY_TARGET = {
    "CrossEntropyLoss": np.arange(C)[:, None].repeat(N, 1),
    "BCEWithLogitsLoss": np.array(list(product((0.0, 1.0), repeat=C)))[:, None].repeat(N, 1),
    "MSELoss": np.concatenate([AXES, -AXES])[:, None].repeat(N, 1),  # covariance I/2, as the likelihood's
}


@ALL_LOSSES
def test_over_all_targets_the_monte_carlo_estimate_is_exact(loss):
    targets = EVERY_TARGET[type(loss).__name__]
    asked = q.DiagGGN(), q.DiagGGNMC(targets=targets), q.KFLR(), q.KFAC(targets=targets)
    result = gb.backward(UNIFORM, loss, VECTORS, target(loss), *asked)
    equal(result["diag_ggn_mc"], result["diag_ggn"])
    equal({name: block.B for name, block in result["kfac"].items()},
          {name: block.B for name, block in result["kflr"].items()})  # fmt: skip


@ALL_LOSSES
def test_the_expectation_of_the_draw(loss):
    # 20,000 draws: the standard error of a mean square is at most about 1 % of it here; five of them are allowed.
    asked = q.DiagGGN(), q.DiagGGNMC(20_000), q.KFLR(), q.KFAC(20_000)
    network = gb.Sequential(layers.Linear(5, C), rng=3, dtype="float64")
    result = gb.backward(network, loss, VECTORS[:2], target(loss)[:2], *asked, rng=0, column_block=5_000)
    for name, value in result["diag_ggn"].items():
        np.testing.assert_allclose(result["diag_ggn_mc"][name], value, rtol=0.05)
    exact = result["kflr"]["0.bias"].B
    np.testing.assert_allclose(result["kfac"]["0.bias"].B, exact, atol=0.05 * exact.max())


# -------------------------------------------------------------------------------------------------------------- P and N


@pytest.mark.parametrize("features", [(4,), (2, 3, 2)])
def test_factors_of_a_diagonal_residual(features):
    residual = RNG.standard_normal((N, *features))
    residual[0, 0] = 0
    columns = residual_columns(residual, features, slice(0, 99))
    p, n = columns.positive, columns.negative
    assert not (p * n).any()
    assert p.any()
    assert n.any()
    np.testing.assert_array_equal(p + n, columns.values)
    np.testing.assert_allclose((p**2 - n**2).sum(0), residual, rtol=1e-12)
    signed = columns.sign.reshape(*columns.sign.shape, *[1] * len(features)) * columns.values**2
    np.testing.assert_allclose(p**2 - n**2, signed, rtol=1e-12)


def test_factors_of_a_dense_residual():
    residual = RNG.standard_normal((N, 4, 4))
    residual += residual.swapaxes(1, 2)
    columns = residual_columns(residual, (4,), slice(0, 4))
    p, n = columns.positive, columns.negative
    assert not (np.abs(p).max(2) * np.abs(n).max(2)).any()  # a column counts as one or the other
    np.testing.assert_allclose(np.einsum("vni,vnj->nij", p, p) - np.einsum("vni,vnj->nij", n, n), residual, atol=1e-12)


def test_unsigned_columns_are_positive():
    columns = Columns(RNG.standard_normal((2, N, 3)))
    np.testing.assert_array_equal(columns.positive, columns.values)
    np.testing.assert_array_equal(columns.negative, 0 * columns.values)


@pytest.mark.parametrize("step", [1, 3, 5])
def test_windows_of_a_residual_line_up(step):
    residual = RNG.standard_normal((N, 2, 3, 2))
    whole = residual_columns(residual, residual.shape[1:], slice(0, 12))
    parts = [residual_columns(residual, residual.shape[1:], slice(i, min(i + step, 12))) for i in range(0, 12, step)]
    np.testing.assert_array_equal(np.concatenate([part.values for part in parts]), whole.values)
    np.testing.assert_array_equal(np.concatenate([part.sign for part in parts]), whole.sign)
