"""Every loss through the kit."""

import definitions
import numpy as np
import pytest
from hypothesis import given

from gbackprop.losses import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from gbackprop.losses.base import Loss
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.testing import check_loss
from gbackprop.testing.strategies import loss_cases, targets

TABLE = [
    (CrossEntropyLoss, (4,)),
    (CrossEntropyLoss, (1,)),
    (CrossEntropyLoss, (200,)),
    (MSELoss, (1,)),
    (MSELoss, (3,)),
    (MSELoss, (2, 2)),
    (BCEWithLogitsLoss, (1,)),
    (BCEWithLogitsLoss, (4,)),
    (BCEWithLogitsLoss, (3, 3)),
]
COMPLEX_ERROR = 1e-12


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("kind", "shape"), TABLE)
def test_every_row(kind, shape, reduction):
    loss = kind(reduction)
    output = 2 * np.random.default_rng(0).standard_normal((3, *shape))
    report = check_loss(loss, output, targets(loss, output.shape, 1), reference=definitions.of_loss(loss))
    report.assert_ok()
    assert max(row.error for row in report.rows if row.oracle.startswith("complex step")) <= COMPLEX_ERROR
    assert not [row for row in report.rows if row.verdict != "ok"]


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
