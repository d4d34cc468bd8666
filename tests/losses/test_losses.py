"""Every loss through the kit."""

from fractions import Fraction

import numpy as np
import pytest
from common import in_turn
from hypothesis import given
from torch_means import divisor

from gbackprop.losses import (
    BCELoss,
    CrossEntropyLoss,
    GaussianNLLLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    PoissonNLLLoss,
)
from gbackprop.losses.base import Loss
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.testing import check_loss
from gbackprop.testing.cases import LOSSES
from gbackprop.testing.strategies import loss_cases, outputs

W4 = np.array([0.5, 2.0, 0.0, 1.5])
COMPLEX_ERROR = 1e-12
WITHOUT_DRAWS = {"draw", "hessian_sqrt_mc"}


def has_draws(loss):
    return not loss.undrawn


@pytest.mark.parametrize(("row", "reduction"), in_turn([(row,) for row in LOSSES], ["mean", "sum"]))
def test_every_row(row, reduction):
    loss, (output, target) = row.loss(reduction), row.batch()
    report = check_loss(loss, output, target, reference=row.definition(loss))
    report.assert_ok()
    assert max(row.error for row in report.rows if row.oracle.startswith("complex step")) <= COMPLEX_ERROR
    without = {row.method for row in report.rows if row.verdict != "ok"}
    assert without == (set() if has_draws(loss) else WITHOUT_DRAWS)


@pytest.mark.parametrize("row", LOSSES)
def test_mean_divides_the_sum_by_what_torch_divides_it_by(row):
    loss, (output, target) = row.loss("mean"), row.batch()
    total = row.definition(row.loss("sum"))(output, target).sum()
    np.testing.assert_allclose(loss(output, target), total / divisor(loss, target), rtol=1e-12)


@given(loss_cases())
def test_drawn_losses(case):
    check_loss(case.loss, case.output, case.target, case.seed).assert_ok()


def test_output_and_target_are_left_as_they_are():
    output, target = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    check_loss(MSELoss(), output, target).assert_ok()
    np.testing.assert_array_equal(output, 1)
    np.testing.assert_array_equal(target, 0)


ABSTRACT = [
    ("values", 2), ("gradients", 2), ("hessian_sqrt", 2), ("noise", 3), ("pseudo_targets", 2), ("target_shape", 1),
    ("check_values", 4),
]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments"), ABSTRACT)
def test_what_a_loss_of_a_users_lacks_is_named(method, arguments):
    class Half(Loss):
        pass

    with pytest.raises(NotImplementedError, match=f"Half has no {method}"):
        getattr(Half(), method)(*[None] * arguments)


# ------------------------------------------------------------------------------------------------- a loss of a user's


class Laplace(ElementwiseLoss):
    """ℓₙ = Σ log(2 cosh(f − y)), a smooth |f − y|: its Hessian 1/cosh² depends on the target."""

    def values(self, output, target):
        d = output - target
        negative = d.real < 0
        return self.summed(np.where(negative, -d, d) + np.log1p(np.exp(np.where(negative, 2 * d, -2 * d))))

    def gradients(self, output, target):
        return np.tanh(output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 1 - np.tanh(output - target) ** 2


class Absolute(ElementwiseLoss):
    """ℓₙ = Σ |f − y|, with a kink at the target."""

    def values(self, output, target):
        return self.summed(abs(output - target))

    def gradients(self, output, target):
        return np.sign(output - target) * output.dtype.type(self.summed_weight(output.shape[1:]))

    def second(self, output, target):
        return np.zeros_like(output)


@pytest.mark.parametrize("kind", [Laplace, Absolute])
def test_what_a_loss_need_not_give_is_no_failure(kind):
    output = np.random.default_rng(0).standard_normal((3, 4))
    report = check_loss(kind(), output, output.copy())
    report.assert_ok()
    assert {row.method for row in report.rows if row.verdict == "not given"} == {"draw", "hessian_sqrt_mc"}


@pytest.mark.parametrize(("axis", "alike"), [(0, "all M"), (1, "all samples of equal outputs")])
def test_draws_that_are_all_alike_are_told(axis, alike):
    class Alike(CrossEntropyLoss):
        def draw(self, output, mc_samples, rng):
            draws = super().draw(output, mc_samples, rng)
            return np.broadcast_to(draws.take([0], axis), draws.shape).copy()

    output = np.zeros((1, 4))
    report = check_loss(Alike(), output, np.array([1]))
    assert f"is the same for {alike}" in [row.problem for row in report.failures]


@pytest.mark.parametrize("domain", [(0.0, 1.0), (-0.5, np.inf), (-np.inf, 3.0), (5.0, 9.0)])
def test_the_kit_stays_inside_the_domain(domain):
    class Bounded(Absolute):
        def values(self, output, target):
            self.check_output(output)
            return super().values(output, target)

    Bounded.domain = domain
    output = outputs(Bounded(), (3, 4), 0)
    Bounded().check_output(output)
    check_loss(Bounded(), output, output.copy()).assert_ok()  # with a kink everywhere


def test_the_kit_asks_for_finite_numbers_up_to_ten_thousand():
    seen = []

    class Watched(MSELoss):
        def values(self, output, target):
            seen.extend([output.real.min(), output.real.max()])
            return super().values(output, target)

    check_loss(Watched(), np.zeros((3, 40)), np.zeros((3, 40))).assert_ok()
    assert (min(seen), max(seen)) == (-1e4, 1e4)


def test_the_kit_says_which_output_is_outside_of_the_domain():
    report = check_loss(BCELoss(), np.array([[0.5, 1.5]]), np.ones((1, 2)))
    assert "expected numbers in [0, 1], got 1.5" in report.failures[0].problem


F, MEANS = np.array([[0.1, -0.4, 1.2], [2.0, -1.0, 0.3]]), np.array([[0.1, 0.5, -1.0], [1.0, -1.0, 0.0]])
PAIRS = np.stack([MEANS, [[0.5, 1e-9, 2.0], [1.0, 0.25, 3.0]]], axis=1)
P, BITS = np.array([[0.0, 1.0, 0.3, 1.0]]), np.array([[1.0, 0.0, 0.2, 1.0]])
OF_TORCH = [
    (BCELoss("sum"), P, BITS, 200.52613451601619, [[-1e12, 1e12, 1 / 2.1, 0]]),
    (NLLLoss(weight=W4[:3] + 0.5), F, np.array([2, 0]), -1.7333333333333334, [[0, 0, -1 / 3], [-2 / 3, 0, 0]]),
    (L1Loss(), F, MEANS, 0.7333333333333334, [[0, -1 / 6, 1 / 6], [1 / 6, 0, 1 / 6]]),
    (GaussianNLLLoss(), F, PAIRS, 67499.11223394747, [[0, -150000, 1.1 / 6], [1 / 6, 0, 0.1 / 6]]),
    (GaussianNLLLoss("sum", full=True, eps=0.3), F, PAIRS, 7.933964539236156, [[0, -3, 1.1], [1, 0, 0.1]]),
]
"""Losses, their values as torch 2.13 gave them, and its gradients, with 1e12 where it has 1.000000004e12."""


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("bit", [0.0, 0.5, 1.0])
def test_nan_stays_nan_in_the_cross_entropy_of_probabilities(bit, reduction):
    p, y, loss = np.array([[np.nan, 0.5]]), np.array([[bit, 1.0]]), BCELoss(reduction)
    assert np.isnan(loss.values(p, y)).all()
    for found in (loss.gradients(p, y), loss.second(p, y), np.diagonal(loss.hessian_sqrt(p, y), axis1=0, axis2=2)):
        assert np.isnan(found).ravel().tolist() == [True, False]


@pytest.mark.parametrize(("loss", "output", "target", "value", "gradient"), OF_TORCH)
def test_the_numbers_are_those_of_torch(loss, output, target, value, gradient):
    np.testing.assert_allclose(loss(output, target), value, rtol=1e-12)
    r = loss.factor(len(output), target)
    np.testing.assert_allclose(r * loss.gradients(output, target), gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 28), ("float64", 68)])
def test_counts_are_drawn_as_long_as_they_are_told_apart(dtype, most):
    """Beyond, ŷ − e^f is what rounding leaves."""
    loss, output = PoissonNLLLoss(), np.full((1, 1), most, dtype)
    drawn = loss.draw(output, 20_000, np.random.default_rng(0))
    root = loss.hessian_sqrt_mc(output, drawn, np.ones((1, 1), dtype)).astype(float)
    assert (root**2).sum() / np.exp(most) == pytest.approx(1, abs=0.03)
    with pytest.raises(ValueError, match=f"logarithms of rates up to {most} in {dtype}, got {most + 1}"):
        loss.draw(output + 1, 1, 0)


@pytest.mark.parametrize(("f", "y"), [(1001, 1000), (1000001, 1000000), (3.0000002, 3), (2, 0), (1e-8, 0), (5, 5)])
def test_the_gradient_of_a_rate_near_its_count_has_all_digits(f, y):
    loss, f, y = PoissonNLLLoss("sum", log_input=False), np.float32(f), np.float32(y)
    rate = Fraction(float(f)) + Fraction(loss.eps)
    found = loss.gradients(np.full((1, 1), f), np.full((1, 1), y))
    np.testing.assert_allclose(found, float((rate - Fraction(float(y))) / rate), rtol=3e-7)
