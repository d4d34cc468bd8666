"""Losses with options: bad arguments and targets, targets that do not count, and draws that some losses do not have."""

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

CE, BCE = losses.CrossEntropyLoss, losses.BCEWithLogitsLoss
NAN, THREE = float("nan"), np.ones(3)
ARGUMENTS = [
    (lambda: CE(THREE), ["CrossEntropyLoss, reduction", "'mean' or 'sum'", "array"]),
    (lambda: CE(weight=[1.0, 2.0]), ["CrossEntropyLoss, weight", "array", "list"]),
    (lambda: CE(weight=np.array([1, 2])), ["CrossEntropyLoss, weight", "float32 or float64", "int64"]),
    (lambda: CE(weight=np.ones((2, 2))), ["CrossEntropyLoss, weight", "(C,)", "(2, 2)"]),
    (lambda: CE(weight=np.zeros(0)), ["CrossEntropyLoss, weight", "at least one", "(0,)"]),
    (lambda: CE(weight=np.array([1.0, -2.0])), ["CrossEntropyLoss, weight", "at least 0", "-2.0"]),
    (lambda: CE(weight=np.array([1.0, NAN])), ["CrossEntropyLoss, weight", "finite", "nan"]),
    (lambda: CE(weight=np.array([1.0, np.inf])), ["CrossEntropyLoss, weight", "finite", "inf"]),
    (lambda: CE(ignore_index=1.0), ["CrossEntropyLoss, ignore_index", "integer", "1.0"]),
    (lambda: CE(ignore_index=True), ["CrossEntropyLoss, ignore_index", "integer", "True"]),
    (lambda: CE(label_smoothing=1.5), ["CrossEntropyLoss, label_smoothing", "[0, 1]", "1.5"]),
    (lambda: CE(label_smoothing=NAN), ["CrossEntropyLoss, label_smoothing", "[0, 1]", "nan"]),
    (lambda: CE(label_smoothing="0.1"), ["CrossEntropyLoss, label_smoothing", "[0, 1]", "'0.1'"]),
    (lambda: BCE(weight=2.0), ["BCEWithLogitsLoss, weight", "array", "float"]),
    (lambda: BCE(pos_weight=-THREE), ["BCEWithLogitsLoss, pos_weight", "at least 0", "-1.0"]),
    (lambda: losses.HuberLoss(delta=0), ["HuberLoss, delta", "above 0", "0"]),
    (lambda: losses.HuberLoss(delta=np.inf), ["HuberLoss, delta", "finite", "inf"]),
    (lambda: losses.SmoothL1Loss(beta=0.0), ["SmoothL1Loss, beta", "above 0", "0.0"]),
    (lambda: losses.SmoothL1Loss(beta="1"), ["SmoothL1Loss, beta", "'1'"]),
    (lambda: losses.PoissonNLLLoss(False), ["PoissonNLLLoss, reduction", "False"]),
    (lambda: losses.PoissonNLLLoss(log_input=1), ["PoissonNLLLoss, log_input", "True or False", "1"]),
    (lambda: losses.PoissonNLLLoss(full="yes"), ["PoissonNLLLoss, full", "True or False", "'yes'"]),
    (lambda: losses.PoissonNLLLoss(eps=0), ["PoissonNLLLoss, eps", "above 0", "0"]),
]


@pytest.mark.parametrize(("make", "words"), ARGUMENTS)
def test_bad_arguments(make, words):
    refuse((TypeError, ValueError), words, make)


N = 4
X = np.random.default_rng(0).standard_normal((N, 5))
Y, Q = np.array([0, 1, 2, 1]), np.full((N, 3), 1 / 3)
BATCHES = {
    "weights of other classes": (CE(weight=np.ones(2)), Y, ["CrossEntropyLoss", "2 classes", "(4, 3)"]),
    "label below": (CE(ignore_index=-7), Y - 1, ["y of CrossEntropyLoss", "0 to 2", "-7 to ignore", "got -1"]),
    "label -100, unasked": (CE(), Y - 100, ["y of CrossEntropyLoss", "0 to 2", "-100", "ignore_index=-100 leaves"]),
    "label -1, unasked": (CE(), Y - 1, ["y of CrossEntropyLoss", "0 to 2", "got -1"]),
    "label above": (CE(ignore_index=1), Y + 1, ["y of CrossEntropyLoss", "0 to 2", "1 to ignore", "got 3"]),
    "all ignored": (CE(ignore_index=1), np.ones(N, int), ["CrossEntropyLoss", "ignore_index=1", "weight above 0", "4"]),
    "all of weight 0": (CE(weight=np.array([0.0, 1, 1])), np.zeros(N, int), ["CrossEntropyLoss", "above 0"]),
    "labels of too many axes": (CE(), Y[:, None], ["y of CrossEntropyLoss", "(4,)", "(4, 1)"]),
    "probabilities of too few classes": (CE(), Q[:, :2], ["y of CrossEntropyLoss", "(4,", "(4, 2)"]),
    "probabilities that sum to 2": (CE(), 2 * Q, ["y of CrossEntropyLoss", "sum to 1", "2.0"]),
    "probabilities that sum to 0": (CE(), 0 * Q, ["y of CrossEntropyLoss", "sum to 1", "0.0"]),
    "probability below 0": (CE(), Q - [0, 0.5, -0.5], ["y of CrossEntropyLoss", "[0, 1]", "-0.1"]),
    "probability NaN": (CE(), Q * [1, NAN, 1], ["y of CrossEntropyLoss", "[0, 1]", "nan"]),
    "probabilities of another dtype": (CE(), Q.astype("f4"), ["y of CrossEntropyLoss", "float64", "float32"]),
    "a class to ignore, probabilities": (CE(ignore_index=1), Q, ["y of CrossEntropyLoss", "ignore_index=1", "labels"]),
    "a weight of other outputs": (BCE(weight=np.ones(2)), Q, ["BCEWithLogitsLoss", "weight", "(3,)", "(2,)"]),
    "a weight of each sample": (BCE(weight=np.ones((N, 1))), Q, ["BCEWithLogitsLoss", "every sample", "(4, 1)"]),
    "a pos_weight of each sample": (BCE(pos_weight=np.ones((N, 3))), Q, ["pos_weight", "every sample", "(4, 3)"]),
    "negative counts": (losses.PoissonNLLLoss(), -Q, ["y of PoissonNLLLoss", "at least 0", "-0.33"]),
    "counts of ints": (losses.PoissonNLLLoss(), Y[:, None] * [1, 1, 1], ["y of PoissonNLLLoss", "float64", "int64"]),
    "NaN": (losses.HuberLoss(), Q * NAN, ["y of HuberLoss", "finite", "NaN"]),
}


def network():
    return gb.Sequential(layers.Linear(5, 3), rng=0, dtype="float64")


@pytest.mark.parametrize(("loss", "y", "words"), BATCHES.values(), ids=BATCHES)
def test_bad_batches(loss, y, words):
    refuse((TypeError, ValueError), words, lambda: gb.backward(network(), loss, X, y, q.DiagGGN()))


def test_a_sum_over_nothing_is_zero():
    result = gb.backward(network(), CE("sum", ignore_index=1), X, np.ones(N, int), q.DiagGGN())
    assert float(result.loss) == 0
    assert not any(value.any() for value in (*result.gradient.values(), *result["diag_ggn"].values()))


WITHOUT_DRAWS = [losses.HuberLoss(), losses.SmoothL1Loss("sum"), losses.PoissonNLLLoss(log_input=False)]


@pytest.mark.parametrize("kind", [q.DiagGGNMC, q.KFAC])
@pytest.mark.parametrize("loss", WITHOUT_DRAWS, ids=repr)
def test_draws_that_cannot_be_are_refused_drawn_or_given(loss, kind):
    words = [repr(loss), "Monte-Carlo", "depends on the target", "KFLR"]
    refuse(gb.UnsupportedError, words, lambda: gb.backward(network(), loss, X, Q, kind()))
    refuse(gb.UnsupportedError, words, lambda: gb.backward(network(), loss, X, Q, kind(targets=Q[None])))
    refuse(gb.UnsupportedError, words, lambda: loss.draw(Q))


def test_given_targets_do_for_a_loss_without_draws_of_its_own():
    class Square(losses.MSELoss):
        noise = losses.Loss.noise

    asked = q.DiagGGNMC(targets=Q[None])
    want = gb.backward(network(), losses.MSELoss(), X, Q, asked)["diag_ggn_mc"]["0.weight"]
    np.testing.assert_array_equal(gb.backward(network(), Square(), X, Q, asked)["diag_ggn_mc"]["0.weight"], want)


def test_a_rate_below_zero_gives_nan():
    loss, f, y = losses.PoissonNLLLoss(log_input=False), np.array([[-1.0]]), np.array([[2.0]])
    assert all(np.isnan(found).all() for found in (loss(f, y), loss.gradients(f, y), loss.hessian_sqrt(f, y)))


def test_a_weight_is_a_copy():
    given = np.ones(3)
    loss = CE(weight=given)
    given[:] = 7
    np.testing.assert_array_equal(loss.weight, 1)


NAMES = [
    (CE("sum"), "CrossEntropyLoss('sum')"),
    (CE(weight=THREE, ignore_index=2, label_smoothing=0.1),
     "CrossEntropyLoss('mean', weight of shape (3,), ignore_index=2, label_smoothing=0.1)"),
    (BCE(pos_weight=THREE), "BCEWithLogitsLoss('mean', pos_weight of shape (3,))"),
    (losses.HuberLoss("sum", 0.5), "HuberLoss('sum', delta=0.5)"),
    (losses.SmoothL1Loss(), "SmoothL1Loss('mean')"),
    (losses.PoissonNLLLoss(log_input=False, full=True), "PoissonNLLLoss('mean', log_input=False, full=True)"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "name"), NAMES)
def test_names(loss, name):
    assert repr(loss) == name
