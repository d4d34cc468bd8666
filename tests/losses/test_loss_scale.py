"""R and c of a user's loss: a wrong divisor is named in every check, and one that is documented raises no alarm."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing import check_loss, check_network, check_quantity
from gbackprop.testing.cases.loss_rows import IGNORED

RNG = np.random.default_rng(0)
OUTPUT, NUMBERS, LABELS = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3)), np.array([0, 2, 2, 1])


def with_factor(kind, divisor, **more):
    """A loss whose 1/R is ``divisor(N, C)`` for "mean"."""

    def factor(self, batch, target):
        return 1 / divisor(batch, 3) if self.reduction == "mean" else 1.0

    return type("Own", (kind,), {"factor": factor} | more)


WRONG = {"1/(2N)": lambda n, c: 2 * n, "1/(NC)": lambda n, c: n * c, "1": lambda n, c: 1, "1/(N−1)": lambda n, c: n - 1}


@pytest.mark.parametrize("kind", [losses.MSELoss, losses.CrossEntropyLoss])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_r_is_named(kind, name):
    loss, target = with_factor(kind, WRONG[name])(), NUMBERS if kind is losses.MSELoss else LABELS
    report = check_loss(loss, OUTPUT, target)
    assert report.failures[0].method == "factor", report
    network, x = gb.Sequential(layers.Linear(2, 3), rng=0), RNG.standard_normal((4, 2))
    assert check_quantity(q.DiagGGN(), network, loss, x, target).failures[0].method == "factor"
    assert check_network(network, loss, x, target).failures[0].method == "factor"


def test_an_r_that_no_batch_has_is_named():
    def divisor(n, c):
        raise ValueError(f"expected another batch than one of {n} samples")

    assert check_loss(with_factor(losses.MSELoss, divisor)(), OUTPUT, NUMBERS).failures[0].method == "factor"


def test_a_wrong_r_of_sum_is_named():
    loss = type("Own", (losses.MSELoss,), {"factor": lambda self, batch, target: 1 / batch})("sum")
    assert check_loss(loss, OUTPUT, NUMBERS).failures[0].method == "factor"


def test_a_wrong_r_without_weights_is_named_where_the_weights_are_checked(monkeypatch):
    sound = losses.CrossEntropyLoss.factor
    def halved(self, batch, target):
        return sound(self, batch, target) / (1 if self.weighted else 2)

    monkeypatch.setattr(losses.CrossEntropyLoss, "factor", halved)
    row = check_loss(losses.CrossEntropyLoss(weight=np.array([1.0, 2.0, 0.5])), OUTPUT, LABELS).failures[0]
    assert (row.method, row.worst) == ("factor", ("1/R, without weights",))


OF_NO_BATCH = {"1/100, of all data": (lambda n, c: 100, "mean"), "1/(N−1)": (WRONG["1/(N−1)"], "mean"),
               "1/N of a sum": (lambda n, c: n, "sum")}  # fmt: skip


@pytest.mark.parametrize("name", OF_NO_BATCH)
@pytest.mark.parametrize("weights", [None, np.ones(4)])
def test_an_r_of_which_merged_batches_would_have_another_is_refused(name, weights):
    divisor, reduction = OF_NO_BATCH[name]
    loss = type("Own", (losses.MSELoss,), {"factor": lambda self, batch, target: 1 / divisor(batch, 3)})(reduction)
    network, x = gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64"), RNG.standard_normal((4, 2))
    for call in (gb.backward, gb.reference):
        with pytest.raises(ValueError, match=r"^Own\.factor: expected 1"):
            call(network, loss, x, NUMBERS, sample_weight=weights)
    if weights is None:
        with pytest.raises(ValueError, match=r"Own\.factor: expected 1"):
            gb.operators.GGN(network, loss, [(x[:2], NUMBERS[:2]), (x[2:], NUMBERS[2:])])


@pytest.mark.parametrize("weights", [None, np.ones(4)])
def test_an_r_that_is_assigned_is_checked_as_that_of_a_subclass(weights):
    network, x = gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64"), RNG.standard_normal((4, 2))
    loss = losses.MSELoss()
    gb.backward(network, loss, x, NUMBERS, sample_weight=weights)
    loss.factor = lambda *given: 1 / (given[-2] - 1)
    for call in (gb.backward, gb.reference):
        with pytest.raises(ValueError, match=r"^MSELoss\.factor: expected 1/N"):
            call(network, loss, x, NUMBERS, sample_weight=weights)


@pytest.mark.parametrize("counted", [[5], [4, 5], [0, 3], range(6), []])
def test_an_r_of_at_most_1_is_taken_wherever_the_targets_that_count_are(counted):
    def factor(self, batch, target):
        return 1 / max(1.0, 3.0 * (target != 0).any(1).sum())

    loss, target = type("Own", (losses.MSELoss,), {"factor": factor})(), np.zeros((6, 3))
    target[[*counted]] = 1.0
    network, x = gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64"), RNG.standard_normal((6, 2))
    found = gb.backward(network, loss, x, target)
    assert found.loss == pytest.approx(loss.values(network(x), target).sum() / max(1, 3 * len(counted)))


def test_an_r_that_adds_up_is_the_same_merged_and_in_operators():
    loss, x = with_factor(losses.MSELoss, WRONG["1/(2N)"])(), RNG.standard_normal((4, 2))
    network, parts = gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64"), [slice(0, 1), slice(1, 4)]
    one = gb.backward(network, loss, x, NUMBERS, q.DiagHessian())
    batches = [(x[part], NUMBERS[part]) for part in parts]
    merged = gb.accumulate(network, loss, batches, q.DiagHessian())
    np.testing.assert_allclose(merged.loss, one.loss, rtol=1e-12)
    for name, value in one["diag_hessian"].items():
        np.testing.assert_allclose(merged["diag_hessian"][name], value, rtol=1e-12, atol=1e-12)
    matrix = gb.operators.Hessian(network, loss, batches) @ np.eye(9)
    diagonal = np.concatenate([value.ravel() for value in one["diag_hessian"].values()])
    np.testing.assert_allclose(np.diag(matrix), diagonal, rtol=1e-12, atol=1e-12)


class Masked(losses.MSELoss):
    """The mean over the samples whose first target is not zero: R goes by the targets."""

    weighted = True

    def values(self, output, target):
        return super().values(output, target) * (target[:, 0] != 0)

    def gradients(self, output, target):
        return super().gradients(output, target) * (target[:, :1] != 0)

    def hessian_sqrt(self, output, target, columns=slice(None)):
        return super().hessian_sqrt(output, target, columns) * (target[:, :1] != 0)

    def curvature_weights(self, output, target):
        return (target[:, :1] != 0).astype(output.dtype)

    def unweighted(self):
        return losses.MSELoss(self.reduction)

    def factor(self, batch, target):
        return 1 / (target[:, 0] != 0).sum() if self.reduction == "mean" else 1.0


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_divisor_by_targets_is_allowed(reduction, declared, monkeypatch):
    monkeypatch.setattr(Masked, "weighted", declared)
    target = NUMBERS.copy()
    target[1, 0] = 0
    assert "factor" not in {row.method for row in check_loss(Masked(reduction), OUTPUT, target).failures}


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["mean", "sum"]), st.booleans(), st.booleans(), st.booleans())
def test_classes_with_weights_give_no_alarm(seed, reduction, weight, ignoring, smoothing):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, (4, 2))
    if ignoring:
        labels[rng.random(labels.shape) < 0.4] = IGNORED
        labels[0, 0] = 1
    loss = losses.CrossEntropyLoss(
        reduction, weight=rng.random(3) + 0.1 if weight else None, ignore_index=IGNORED if ignoring else None,
        label_smoothing=0.1 * smoothing,
    )  # fmt: skip
    check_loss(loss, rng.standard_normal((4, 3, 2)), labels, seed).assert_ok()


class Doubled(losses.MSELoss):
    """c = 2/C for "mean", in all that it computes."""

    def summed_weight(self, shape):
        return super().summed_weight(shape) * (2 if self.reduction == "mean" else 1)


class MeanAlone(losses.MSELoss):
    """Three times the mean, and no sum: c is the loss's own affair."""

    def __init__(self):
        super().__init__("mean")

    def summed_weight(self, shape):
        return 3 * super().summed_weight(shape)


class Unscaled(losses.MSELoss):
    """c = 1 in the values and the gradients of "mean", where `summed_weight` says 1/C."""

    def values(self, output, target):
        return ((output - target) ** 2).reshape(len(output), -1).sum(1)

    def gradients(self, output, target):
        return 2 * (output - target)


@pytest.mark.parametrize(("loss", "methods"), [
    (Doubled(), {"summed_weight"}), (Doubled("sum"), {"summed_weight"}), (MeanAlone(), set()),
    (Unscaled(), {"values", "gradients"}),
])  # fmt: skip
def test_mean_beside_sum(loss, methods):
    rows = check_loss(loss, OUTPUT, NUMBERS).rows
    of_c = [row for row in rows if "'sum'" in row.claim]
    assert {row.method for row in of_c if row.failed} == methods
    assert ({row.verdict for row in of_c} == {"not given"}) == (type(loss) is MeanAlone)
