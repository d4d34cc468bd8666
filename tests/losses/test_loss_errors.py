"""Losses with options: bad arguments and targets, targets that do not count, and draws that some losses do not have."""

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import UnsupportedError, layers, losses, operators
from gbackprop import quantities as q
from gbackprop.curvature import spectra

CE, BCE, NLL = losses.CrossEntropyLoss, losses.BCEWithLogitsLoss, losses.NLLLoss
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
    (lambda: losses.GaussianNLLLoss(eps=0), ["GaussianNLLLoss, eps", "above 0", "0"]),
    (lambda: losses.GaussianNLLLoss(full=1), ["GaussianNLLLoss, full", "True or False", "1"]),
    (lambda: losses.BCELoss(THREE), ["BCELoss, reduction", "'mean' or 'sum'", "array"]),
    (lambda: losses.BCELoss(pos_weight=THREE), ["BCELoss has no argument 'pos_weight'", "it takes reduction, weight"]),
    (lambda: NLL(weight=np.ones((2, 2))), ["NLLLoss, weight", "(C,)", "(2, 2)"]),
    (lambda: NLL(label_smoothing=0.1), ["NLLLoss has no argument 'label_smoothing'", "weight, ignore_index"]),
]
ARGUMENTS += [
    (lambda kind=kind, name=name, given=given: kind(**{name: given}),
     [f"{kind.__name__}, {name}: expected a NumPy or CuPy array", f"got {type(given).__name__} (make", "numpy.array"])
    for kind, name in [*((kind, "weight") for kind in (CE, NLL, BCE, losses.BCELoss)), (BCE, "pos_weight")]
    for given in ([1, 2, 3], [1.0, 2.0], (1.0, 2.0), [])
]  # fmt: skip


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
    "a sum further below 1 than another is above": (
        CE(), np.array([[0.25, 0.25, 0], [1, 0.25, 0], [1, 0, 0], [1, 0, 0]]), ["sum to 1", "got the sum 0.5"]),
    "probabilities that sum to 0": (CE(), 0 * Q, ["y of CrossEntropyLoss", "sum to 1", "0.0"]),
    "probabilities that sum to 0.5 and 2": (
        CE(), np.array([[0.25, 0.25, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]]), ["sum to 1", "got the sum 2.0"]),
    "probability below 0": (CE(), Q - [0, 0.5, -0.5], ["y of CrossEntropyLoss", "[0, 1]", "-0.1"]),
    "probability NaN": (CE(), Q * [1, NAN, 1], ["y of CrossEntropyLoss", "[0, 1]", "nan"]),
    "probabilities of another dtype": (CE(), Q.astype("f4"), ["y of CrossEntropyLoss", "float64", "float32"]),
    "a class to ignore, probabilities": (CE(ignore_index=1), Q, ["y of CrossEntropyLoss", "ignore_index=1", "labels"]),
    "the first class to ignore, probabilities": (CE(ignore_index=0), Q, ["y of CrossEntropyLoss", "ignore_index=0"]),
    "a weight of other outputs": (BCE(weight=np.ones(2)), Q, ["BCEWithLogitsLoss", "weight", "(3,)", "(2,)"]),
    "a weight of each sample": (BCE(weight=np.ones((N, 1))), Q, ["BCEWithLogitsLoss", "every sample", "(4, 1)"]),
    "a pos_weight of each sample": (BCE(pos_weight=np.ones((N, 3))), Q, ["pos_weight", "every sample", "(4, 3)"]),
    "negative counts": (losses.PoissonNLLLoss(), -Q, ["y of PoissonNLLLoss", "at least 0", "-0.33"]),
    "counts of ints": (losses.PoissonNLLLoss(), Y[:, None] * [1, 1, 1], ["y of PoissonNLLLoss", "float64", "int64"]),
    "NaN": (losses.HuberLoss(), Q * NAN, ["y of HuberLoss", "finite", "NaN"]),
    "bits above 1": (losses.BCELoss(), Q + 1, ["y of BCELoss", "[0, 1]", "got 1.33"]),
    "bits below 0": (losses.BCELoss(), Q - 1, ["y of BCELoss", "[0, 1]", "got -0.66"]),
    "a weight of each sample of BCELoss": (losses.BCELoss(weight=np.ones((N, 3))), Q, ["weight", "every sample"]),
    "label -100 of NLLLoss": (NLL(), Y - 100, ["y of NLLLoss", "0 to 2", "ignore_index=-100 leaves"]),
    "one-hot rows": (NLL(), Q, ["y of NLLLoss", "(4,)", "(4, 3) (of one-hot rows give the labels, target.argmax(1))"]),
    "no variances": (losses.GaussianNLLLoss(), Q, ["y of GaussianNLLLoss", "(4, 2, 3)", "np.stack([target, var]"]),
    "a negative variance": (losses.GaussianNLLLoss(), np.stack([Q, -Q], 1), ["GaussianNLLLoss", "variances", "-0.33"]),
}


def test_an_eps_that_is_0_in_the_dtype_of_the_outputs():
    net, loss = gb.Sequential(layers.Linear(3, 3), rng=0), losses.GaussianNLLLoss(eps=1e-50)
    x, y = np.ones((2, 3), "float32"), np.zeros((2, 2, 3), "float32")
    words = ["GaussianNLLLoss, eps: expected a number above 0 in float32, got 1e-50"]
    refuse(ValueError, words, lambda: gb.backward(net, loss, x, y))
    refuse(ValueError, words, lambda: loss(x, y))
    assert np.isfinite(losses.GaussianNLLLoss(eps=1e-50)(x.astype("float64"), y.astype("float64")))


def network():
    return gb.Sequential(layers.Linear(5, 3), rng=0, dtype="float64")


@pytest.mark.parametrize(("loss", "y", "words"), BATCHES.values(), ids=BATCHES)
def test_bad_batches(loss, y, words):
    refuse((TypeError, ValueError), words, lambda: gb.backward(network(), loss, X, y, q.DiagGGN()))


def test_a_sum_over_nothing_is_zero():
    result = gb.backward(network(), CE("sum", ignore_index=1), X, np.ones(N, int), q.DiagGGN())
    assert float(result.loss) == 0
    assert not any(value.any() for value in (*result.gradient.values(), *result["diag_ggn"].values()))


DEPENDS, ZERO = "depends on the target", "is zero"
WITHOUT_DRAWS = [
    (losses.HuberLoss(), Q, DEPENDS),
    (losses.SmoothL1Loss("sum"), Q, DEPENDS),
    (losses.PoissonNLLLoss(log_input=False), Q, DEPENDS),
    (losses.BCELoss(), Q, DEPENDS),
    (losses.GaussianNLLLoss(), np.stack([Q, Q], 1), DEPENDS),
    (losses.L1Loss(), Q, ZERO),
    (losses.NLLLoss(), Y, ZERO),
]


@pytest.mark.parametrize("kind", [q.DiagGGNMC, q.KFAC])
@pytest.mark.parametrize(("loss", "y", "reason"), WITHOUT_DRAWS)
def test_draws_that_cannot_be_are_refused_drawn_or_given(loss, y, reason, kind):
    words = [repr(loss), "Monte-Carlo", reason, "KFLR"]
    refuse(gb.UnsupportedError, words, lambda: gb.backward(network(), loss, X, y, kind()))
    refuse(gb.UnsupportedError, words, lambda: gb.backward(network(), loss, X, y, kind(targets=y[None])))
    refuse(gb.UnsupportedError, words, lambda: loss.draw(Q))
    refuse(gb.UnsupportedError, words, lambda: operators.Fisher(network(), loss, (X, y)))


def test_one_target_is_drawn_unless_more_are_asked_for():
    for kind in (losses.MSELoss, losses.CrossEntropyLoss, losses.BCEWithLogitsLoss, losses.PoissonNLLLoss):
        drawn = kind().draw(Q, rng=0)
        assert drawn.shape == (1, *kind().target_shape(Q.shape))
        np.testing.assert_array_equal(drawn, kind().draw(Q, 1, rng=0))


def test_given_targets_do_for_a_loss_without_draws_of_its_own():
    class Square(losses.MSELoss):
        noise = losses.Loss.noise

    asked = q.DiagGGNMC(targets=Q[None])
    want = gb.backward(network(), losses.MSELoss(), X, Q, asked)["diag_ggn_mc"]["0.weight"]
    np.testing.assert_array_equal(gb.backward(network(), Square(), X, Q, asked)["diag_ggn_mc"]["0.weight"], want)


RATES, BITS = losses.PoissonNLLLoss(log_input=False, eps=0.1), losses.BCELoss("sum")


class Inverse(losses.MSELoss):
    """A user's, of numbers above 0."""

    domain, ends = (0.0, np.inf), False


OUTSIDE = [
    (RATES, -0.5, ["PoissonNLLLoss('mean', log_input=False, eps=0.1)", "(-0.1, inf)", "got -0.5"]),
    (RATES, -0.1, ["(-0.1, inf)", "got -0.1"]),
    (BITS, -1e-3, ["BCELoss('sum')", "[0, 1]", "got -0.001"]),
    (BITS, 1.001, ["BCELoss('sum')", "[0, 1]", "got 1.001"]),
    (Inverse(), 0.0, ["Inverse('mean')", "(0, inf)", "got 0"]),
]
CALLS = {
    "value": lambda net, loss, x, y: loss(net(x), y),
    "backward": gb.backward,
    "blocks": lambda *given: gb.backward(*given, q.DiagGGN(), sample_block=2, column_block=1),
    "reference": gb.reference,
    "explain": lambda *given: gb.explain(*given, q.DiagGGN()),
    "GGN": lambda net, loss, x, y: operators.GGN(net, loss, (x, y)) @ np.ones(18),
    "Hessian": lambda net, loss, x, y: operators.Hessian(net, loss, [(x, y)]) @ np.ones(18),
    "accumulate": lambda net, loss, x, y: gb.data.accumulate(net, loss, [(x[:2], y[:2]), (x[2:], y[2:])], q.DiagGGN()),
    "eigenpairs": lambda *given: spectra.ggn_eigenpairs(*given),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("loss", "worst", "words"), OUTSIDE)
def test_an_output_outside_of_the_domain_is_named(call, loss, worst, words):
    """Only the last sample has it: every block is looked at."""
    net, weight, x = network(), np.zeros((3, 5)), np.zeros((N, 5))
    weight[:, 1], x[:-1, 1], weight[1, 0], x[-1, 0] = 0.5, 1, 1, worst
    net.load_state_dict({"0.weight": weight, "0.bias": np.zeros(3)})
    refuse(ValueError, ["output given to", *words], lambda: call(net, loss, x, Q), in_time=False)


def test_a_draw_of_an_output_outside_of_the_domain_is_refused():
    refuse(ValueError, ["Inverse('mean')", "got -2"], lambda: Inverse().draw(Q - 2 - 1 / 3))
    refuse(TypeError, ["output", "float", "int64"], lambda: losses.MSELoss().draw(Y[:, None]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_ends_of_a_domain(dtype):
    loss, y = losses.PoissonNLLLoss("sum", log_input=False, eps=1e-8), np.ones((1, 1), dtype)
    end = np.array([[-1e-8]], dtype)
    refuse(ValueError, ["got -1e-08"], lambda: loss(end, y))
    assert np.isfinite(loss(np.nextafter(end, end + 1), y))
    assert np.isfinite(losses.BCELoss()(np.array([[0.0, 1.0]], dtype), np.array([[1.0, 0.0]], dtype)))
    for overflowed in (np.inf, np.nan):  # in the network, of which a warning tells
        loss.check_output(np.array([[overflowed]], dtype))


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
    (losses.GaussianNLLLoss("sum", full=True, eps=0.1), "GaussianNLLLoss('sum', full=True, eps=0.1)"),
    (losses.BCELoss(weight=THREE), "BCELoss('mean', weight of shape (3,))"),
    (NLL(weight=THREE, ignore_index=2), "NLLLoss('mean', weight of shape (3,), ignore_index=2)"),
    (losses.L1Loss(), "L1Loss('mean')"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "name"), NAMES)
def test_names(loss, name):
    assert repr(loss) == name


class Quartic(losses.elementwise.ElementwiseLoss):
    """Says nothing of draws."""

    def values(self, output, target):
        return self.summed((output - target) ** 4)

    def gradients(self, output, target):
        return 4 * (output - target) ** 3 * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 12 * (output - target) ** 2


def test_draws_of_a_loss_that_says_nothing_of_them():
    network, (x, y) = gb.Sequential(layers.Linear(2, 2), rng=0, dtype="float64"), np.ones((2, 3, 2))
    words = r"^Quartic\('mean'\) has no Monte-Carlo draws \(DiagGGNMC, .*: Quartic has no noise and no pseudo_targets$"
    with pytest.raises(gb.UnsupportedError, match=words):
        gb.backward(network, Quartic(), x, y, q.DiagGGNMC(), rng=0)
    half = type("Half", (Quartic,), {"pseudo_targets": lambda self, output, noise: output[None]})
    with pytest.raises(NotImplementedError, match=r"^Half has no noise$"):
        gb.backward(network, half(), x, y, q.DiagGGNMC(), rng=0)


class Shifted(losses.MSELoss):
    """A loss whose L is not R Σₙ ℓₙ."""

    def value(self, output, target):
        return super().value(output, target) + 10

    __call__ = value


def with_own_value():
    loss = losses.MSELoss()
    loss.value = lambda *given: 10.0
    return loss


@pytest.mark.parametrize("weights", [None, np.ones(N)], ids=["", "weights"])
@pytest.mark.parametrize("make", [Shifted, with_own_value])
def test_a_value_that_a_sweep_would_not_compute_is_refused(make, weights):
    network, y = gb.Sequential(layers.Linear(5, 3), rng=0, dtype="float64"), np.zeros((N, 3))
    before = gb.backward(network, losses.MSELoss(), X, y, sample_weight=weights).loss
    np.testing.assert_allclose(before, np.mean(network(X) ** 2), rtol=1e-12)
    with pytest.raises(UnsupportedError, match=r"got a value of its own \(override values, or factor for R\)"):
        gb.backward(network, make(), X, y, sample_weight=weights)
