"""Quantities that a network, loss or machine cannot give, and their bad arguments: errors that name them, in time."""

import re
from functools import partial

import numpy as np
import pytest
from own_layers import Times
from refusals import refuse, watched_forwards

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.base.memory import KFRA_COPIES

CE, MSE = losses.CrossEntropyLoss(), losses.MSELoss()
X = np.random.default_rng(1).standard_normal((4, 3))
Y, Z = np.array([0, 1, 1, 0]), np.zeros((4, 2))


def mlp():
    return gb.Sequential(layers.Linear(3, 4), layers.ReLU(), layers.Linear(4, 2), rng=0, dtype="float64")


class WithReason(Times):
    kronecker_factors = "a gain is no matrix"


KRONECKER = [q.KFAC(), q.KFLR(), q.KFRA(), q.EKFAC(), q.NearestKronecker(), q.KFAC(sharing="reduce")]


@pytest.mark.parametrize("quantity", KRONECKER)
@pytest.mark.parametrize(
    ("kind", "reason"), [(Times, "its p has no Kronecker factors"), (WithReason, "a gain is no matrix")]
)
def test_a_layer_without_kronecker_factors_can_be_left_out(quantity, kind, reason):
    net = gb.Sequential(layers.Linear(3, 3), kind(), layers.Linear(3, 2), rng=0, dtype="float64")
    words = f"layer 1, {kind.__name__}() cannot give {type(quantity).__name__}: {reason} (leave it out with network."
    with watched_forwards() as calls, pytest.raises(gb.UnsupportedError, match=re.escape(f"{words}freeze('1.p')")):
        gb.backward(net, CE, X, Y, q.DiagGGN(), quantity)
    assert not calls or kind is not WithReason or quantity is KRONECKER[-1]
    assert issubclass(gb.UnsupportedError, ValueError)
    net.freeze("1.p")
    assert set(gb.backward(net, CE, X, Y, quantity)[quantity]) == set(net.trainable)


class Shifted(layers.Linear):
    """y = W x + b + p, where p has no Kronecker factors."""

    def parameter_shapes(self):
        return {**super().parameter_shapes(), "p": (2,)}

    def draw(self, rng):
        return {**super().draw(rng), "p": rng.standard_normal(2)}

    def forward(self, x):
        y, saved = super().forward(x)
        return y + self.parameters["p"], saved

    def parameter_jacobians(self, saved):
        class Itself(layers.ParameterJacobian):
            def per_sample(self, mat):
                return mat

        return {**super().parameter_jacobians(saved), "p": Itself()}


@pytest.mark.parametrize("quantity", KRONECKER)
def test_a_parameter_without_kronecker_factors_can_be_left_out_alone(quantity):
    net = gb.Sequential(layers.Linear(3, 3), Shifted(3, 2), rng=0, dtype="float64")
    words = f"cannot give {type(quantity).__name__}: its p has no Kronecker factors"
    with pytest.raises(gb.UnsupportedError, match=rf"^layer 1, Shifted\(.*\) {words}"):
        gb.backward(net, CE, X, Y, quantity)
    net.freeze("1.p")
    assert set(gb.backward(net, CE, X, Y, quantity)[quantity]) == {"0.weight", "0.bias", "1.weight", "1.bias"}


@pytest.mark.parametrize("layer", [layers.PReLU(4), layers.Scale(4), layers.BatchNorm1d(4)], ids=repr)
def test_kfra_has_no_factor_of_a_slope_and_kfac_has(layer):
    network = gb.Sequential(layers.Linear(3, 4), layer, layers.Linear(4, 2), rng=0, dtype="float64")
    words = [f"layer 1, {layer!r}", "KFRA", "its weight has no Kronecker factors of KFRA"]
    refuse(gb.UnsupportedError, words, lambda: gb.backward(network, CE, X, Y, q.DiagGGN(), q.KFRA()), in_time=False)
    block = gb.backward(network, CE, X, Y, q.KFAC(), rng=0)["kfac"]["1.weight"]
    assert (block.A, block.B.shape) == (None, (4, 4))


@pytest.mark.parametrize("quantity", [
    q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.BatchDiagGGN(), q.BatchDiagHessian(), q.KFRA(),
    q.GramGradients(), q.GramGGN(), q.NearestKronecker(), q.KroneckerError(q.KFAC()), q.KFAC(fisher="empirical")
], ids=repr)  # fmt: skip
def test_where_samples_meet_only_sums_are_given(quantity):
    norm = layers.BatchNorm1d(4, affine=False)
    network = gb.Sequential(layers.Linear(3, 4), norm, layers.Linear(4, 2), rng=0, dtype="float64")
    words = [f"layer 1, {norm!r} cannot give {type(quantity).__name__}", "samples meet there"]
    if quantity.statistics()[0].per_sample:
        words += ["BatchGrad(coupled=True)", "GroupNorm"]
    for call in (gb.backward, gb.reference, gb.explain):
        refuse(gb.UnsupportedError, words, partial(call, network, CE, X, Y, quantity, training=True))
    assert quantity in gb.backward(network, CE, X, Y, quantity, rng=0)


def test_where_samples_meet_a_batch_is_not_cut():
    network = gb.Sequential(layers.Linear(3, 4), layers.BatchNorm1d(4), layers.Linear(4, 2), rng=0, dtype="float64")
    words = ["layer 1, BatchNorm1d(4)", "samples meet there"]
    for options in ({"sample_block": 2}, {"workers": 2}):
        blocks = [*words, "sample_block and workers must be None"]
        refuse(ValueError, blocks, partial(gb.backward, network, CE, X, Y, training=True, **options))
    rows = q.BatchGrad(coupled=True)
    refuse(ValueError, ["coupled=True", "column_block"], lambda: gb.backward(
        network, CE, X, Y, rows, training=True, column_block=1))  # fmt: skip
    together = ["layer 1, BatchNorm1d(4)", "batches do not determine", "training=False"]
    refuse(gb.UnsupportedError, together, lambda: gb.data.accumulate(network, CE, [(X, Y)], training=True))
    refuse(gb.UnsupportedError, [*words, "EmpiricalFisher"],
           lambda: gb.operators.EmpiricalFisher(network, CE, (X, Y), training=True))  # fmt: skip
    arrays = gb.operators.Jacobian(network, X, training=True).to_arrays
    refuse(gb.UnsupportedError, [*words, "to_dense"], arrays)
    one = ["layer 1, BatchNorm1d(4)", "more than one number in each channel", "(1, 4)"]
    refuse(ValueError, one, lambda: gb.backward(network, CE, X[:1], Y[:1], training=True))
    refuse(TypeError, ["BatchGrad, coupled", "True or False", "1"], lambda: q.BatchGrad(coupled=1))


def test_only_the_layer_of_training_mode_has_its_derivatives():
    refuse(gb.UnsupportedError, ["BatchNorm1d(4)", "in_training"],
           lambda: layers.BatchNorm1d(4).forward_training(X, None))  # fmt: skip

    class Own(layers.BatchNorm1d):
        def forward(self, x):
            return super().forward(x)

    network = gb.Sequential(layers.Linear(3, 4), Own(4), rng=0, dtype="float64")
    refuse(gb.UnsupportedError, ["Own(4)", "forward of its own"],
           lambda: gb.backward(network, CE, X, Y, training=True))  # fmt: skip


def test_an_operator_draws_no_masks():
    network = gb.Sequential(layers.Linear(3, 4), layers.Dropout(0.5), layers.Linear(4, 2), rng=0, dtype="float64")
    refuse(gb.UnsupportedError, ["layer 1, Dropout", "draws random numbers", "one matrix"],
           lambda: gb.operators.GGN(network, CE, (X, Y), training=True))  # fmt: skip


BAD_TARGETS = {
    "samples": (CE, np.zeros((1, 3), int), ValueError, ["(M, 4)", "(1, 3)"]),
    "no M": (CE, Y, ValueError, ["(M, 4)", "(4,)"]),
    "M = 0": (CE, np.zeros((0, 4), int), ValueError, ["(M, 4)", "(0, 4)"]),
    "scalar": (CE, np.array(1), ValueError, ["(M, 4)", "()"]),
    "outputs": (MSE, np.zeros((1, 4, 3)), ValueError, ["(M, 4, 2)", "(1, 4, 3)"]),
    "float labels": (CE, np.zeros((1, 4)), TypeError, ["integer", "float64"]),
    "label": (CE, np.full((1, 4), 2), ValueError, ["0 to 1", "got 2"]),
    "ignored label": (losses.CrossEntropyLoss(ignore_index=-100), np.array([[0, -100, 1, 0]]), ValueError,
                      ["0 to 1", "got -100"]),
    "dtype": (MSE, np.zeros((1, 4, 2), np.float32), TypeError, ["float64", "float32"]),
    "NaN in the second": (MSE, np.stack([Z, Z * np.nan]), ValueError, ["[1]", "finite"]),
    "list": (CE, [[0, 1, 1, 0]], TypeError, ["array", "list"]),
}


@pytest.mark.parametrize("kind", [q.KFAC, q.DiagGGNMC])
@pytest.mark.parametrize(("loss", "targets", "error", "words"), BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_bad_monte_carlo_targets(kind, loss, targets, error, words):
    y = Z if loss is MSE else Y
    words = [f"targets of {kind.__name__}", *words]
    refuse(error, words, lambda: gb.backward(mlp(), loss, X, y, kind(targets=targets)))


def test_mc_samples_and_targets_that_contradict_each_other():
    refuse(ValueError, ["KFAC", "targets", "3", "got 2"], lambda: q.KFAC(mc_samples=3, targets=np.zeros((2, 4), int)))
    assert q.KFAC(targets=np.zeros((2, 4), int)).mc_samples == 2


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "1", None])
def test_mc_samples_is_a_positive_integer(value):
    refuse(ValueError, ["DiagGGNMC", "mc_samples", repr(value)], lambda: q.DiagGGNMC(mc_samples=value))


@pytest.mark.parametrize("options", [{"sample_block": 2}, {"workers": 2}])
def test_kfra_does_not_take_blocks_of_samples(options):
    words = ["KFRA", "sample_block", "workers"]
    refuse(ValueError, words, lambda: gb.backward(mlp(), CE, X, Y, q.KFRA(), **options))


def test_kfra_too_large_says_how_large(monkeypatch):
    monkeypatch.setattr("gbackprop.base.memory.available_memory", lambda device: 2**30)
    network = gb.Sequential(layers.Linear(3, 20_000), layers.Linear(20_000, 2), rng=0, dtype="float64")
    words = ["KFRA", "layer 0, Linear(3, 20000)", "[20000, 20000]", "3.0 GiB", "1.0 GiB free"]
    refuse(gb.TooLargeError, words, lambda: gb.backward(network, CE, X, Y, q.KFRA()))
    assert issubclass(gb.TooLargeError, MemoryError)
    gb.backward(network, CE, X, Y, q.DiagHessian())  # others keep no such matrix


def test_kfra_is_refused_one_byte_short_and_not_before(monkeypatch):
    needed = KFRA_COPIES * 4 * 4 * 8  # the largest output of the network has 4 features
    monkeypatch.setattr("gbackprop.base.memory.available_memory", lambda device: needed)
    gb.backward(mlp(), CE, X, Y, q.KFRA())
    monkeypatch.setattr("gbackprop.base.memory.available_memory", lambda device: needed - 1)
    refuse(gb.TooLargeError, ["[4, 4]"], lambda: gb.backward(mlp(), CE, X, Y, q.KFRA()))


@pytest.mark.parametrize("call", [gb.backward, gb.reference, gb.explain])
@pytest.mark.parametrize(("loss", "y", "needed"), [(CE, Y, "29.8 GiB"), (MSE, Z, "59.6 GiB")])
def test_draws_that_do_not_fit_say_how_large_they_are(loss, y, needed, call, monkeypatch):
    monkeypatch.setattr("gbackprop.base.memory.available_memory", lambda device: 2**30)
    words = ["KFAC(mc_samples=1000000000) draws", "4 samples", needed, "1.0 GiB free", "fewer mc_samples"]
    refuse(gb.TooLargeError, words, lambda: call(mlp(), loss, X, y, q.DiagGGNMC(), q.KFAC(10**9)))


def test_draws_that_run_out_of_memory_name_the_quantities(monkeypatch):
    def full(self, *given):
        raise MemoryError("Unable to allocate 3.0 GiB")

    monkeypatch.setattr(losses.CrossEntropyLoss, "noise", full)
    words = ["random numbers and checks for [KFAC(mc_samples=5)]", "Unable to allocate 3.0 GiB"]
    refuse(gb.TooLargeError, words, lambda: gb.backward(mlp(), CE, X, Y, q.KFAC(5)))
