"""What must hold between quantities: variances of equal samples, means over draws, columns of residuals."""

from itertools import combinations, product

import numpy as np
import pytest
from common import assert_equal, batch, chain

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.columns import StoredColumns
from gbackprop.calculus.residual import residual_columns
from gbackprop.calculus.signals import Columns
from gbackprop.quantities.kronecker_error import estimated_norm, square_norm

N, C = 6, 3
RNG = np.random.default_rng(7)
VECTORS, LABELS = batch(N, 5)
TARGETS = RNG.random((N, C))
KINDS = [losses.CrossEntropyLoss, losses.MSELoss, losses.BCEWithLogitsLoss]
ALL_LOSSES = pytest.mark.parametrize("loss", [kind(r) for kind in KINDS for r in ("mean", "sum")], ids=repr)


def target(loss):
    return LABELS if isinstance(loss, losses.CrossEntropyLoss) else TARGETS


def mlp(dtype="float64"):
    return chain(layers.Linear(5, 4), layers.Tanh(), layers.Linear(4, C), rng=1, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_equal_samples_have_no_variance(dtype, reduction):
    x, y = VECTORS[:1].repeat(7, 0).astype(dtype), LABELS[:1].repeat(7)
    result = gb.backward(mlp(dtype), losses.CrossEntropyLoss(reduction), x, y, q.Variance(), q.SecondMoment())
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


def test_curved_networks_have_a_residual_below_the_curvature_only():
    result = gb.backward(mlp(), losses.MSELoss(), VECTORS, TARGETS, q.DiagGGN(), q.DiagHessian())
    difference = result["diag_hessian"]["0.weight"] - result["diag_ggn"]["0.weight"]
    assert np.abs(difference).max() > 1e-2 * result["diag_ggn"]["0.weight"].max()
    np.testing.assert_allclose(result["diag_hessian"]["2.bias"], result["diag_ggn"]["2.bias"], rtol=1e-12)


def test_kfra_averages_between_layers_and_so_differs_from_kflr():
    result = gb.backward(mlp(), losses.CrossEntropyLoss(), VECTORS, LABELS, q.KFLR(), q.KFRA())
    np.testing.assert_allclose(result["kfra"]["2.bias"].B, result["kflr"]["2.bias"].B, rtol=1e-10)
    assert not np.allclose(result["kfra"]["0.bias"].B, result["kflr"]["0.bias"].B, rtol=1e-2)


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
    exact, drawn, kflr, kfac = gb.backward(UNIFORM, loss, VECTORS, target(loss), *asked).values
    assert_equal(drawn, exact, 1e-10)
    assert_equal(kfac, kflr, 1e-10)


@ALL_LOSSES
def test_the_expectation_of_the_draw(loss):
    # 20,000 draws: the standard error of a mean square is at most about 1 % of it here; five of them are allowed.
    asked = q.DiagGGN(), q.DiagGGNMC(20_000), q.KFLR(), q.KFAC(20_000)
    network = chain(layers.Linear(5, C), rng=3)
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


class _Chooses:
    """Random numbers that choose given columns."""

    def __init__(self, which):
        self.which = which

    def choice(self, count, chosen, replace):
        assert (chosen, replace) == (len(self.which), False)
        return np.array(self.which)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_a_norm_is_estimated_without_bias_and_so_is_its_error(m):
    """Over all choices of m of the 6 columns, without replacement."""
    rng = np.random.default_rng(0)
    columns = StoredColumns(((rng.standard_normal((2, 3, 1, 1, 4)), rng.standard_normal((3, 1, 1, 5))),))
    found = np.array([estimated_norm(columns, m, _Chooses(which)) for which in combinations(range(6), m)])
    exact = float(square_norm(columns))
    np.testing.assert_allclose(found[:, 0].mean(), exact, rtol=1e-12)
    np.testing.assert_allclose((found[:, 1] ** 2).mean(), np.mean((found[:, 0] - exact) ** 2), rtol=1e-12)
