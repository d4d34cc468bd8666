"""Losses with options in a network: every quantity against dense Jacobians, and the gradient against torch's mean."""

import itertools

import numpy as np
import pytest
from common import one_in
from torch_means import divisor as divisor_of

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing import check_network
from gbackprop.testing.cases.loss_rows import definition_of_loss
from gbackprop.testing.complex_steps import complex_copy
from gbackprop.testing.runs import every_quantity
from gbackprop.testing.strategies import IGNORED, targets

W = np.array([0.5, 2.0, 1.5])
CE, BCE = losses.CrossEntropyLoss, losses.BCEWithLogitsLoss
VARIANTS = [
    (CE, {"weight": W}, False),
    (CE, {"ignore_index": IGNORED}, False),
    (CE, {"weight": W, "ignore_index": 1, "label_smoothing": 0.2}, False),
    (CE, {}, True),
    (CE, {"weight": W, "label_smoothing": 0.2}, True),
    (BCE, {"weight": W, "pos_weight": W[::-1].copy()}, False),
    (losses.HuberLoss, {"delta": 0.7}, False),
    (losses.SmoothL1Loss, {"beta": 0.7}, False),
    (losses.PoissonNLLLoss, {"full": True}, False),
    (losses.GaussianNLLLoss, {}, False),
    (losses.L1Loss, {}, False),
    (losses.NLLLoss, {"weight": W, "ignore_index": 1}, False),
]
POSITIONS = [(CE, {}, False), (CE, {"weight": W, "ignore_index": IGNORED}, False), (CE, {"weight": W}, True)]
STEP = 1e-5


def vectors(*last):
    chain = [layers.Linear(4, 3), layers.Tanh(), layers.Linear(3, 3), *last]
    return gb.Sequential(*chain, rng=0, dtype="float64"), np.random.default_rng(1).standard_normal((5, 4)), (5, 3)


def images():
    chain = [layers.Conv2d(1, 2, 2), layers.Tanh(), layers.Conv2d(2, 3, 2)]
    network = gb.Sequential(*chain, rng=0, dtype="float64")
    return network, np.random.default_rng(1).standard_normal((4, 1, 4, 3)), (4, 3, 2, 1)


def likely():
    return vectors(layers.Sigmoid())


def log_likely():
    return vectors(layers.LogSoftmax(1))


CASES = [(vectors, *variant) for variant in VARIANTS] + [(images, *variant) for variant in POSITIONS]
CASES += [(likely, losses.BCELoss, {"weight": W}, False), (log_likely, losses.NLLLoss, {}, False)]
CASES += [(images, losses.NLLLoss, {"weight": W, "ignore_index": IGNORED}, False)]
EACH = pytest.mark.parametrize(("make", "kind", "options", "soft"), CASES)
REDUCTIONS = pytest.mark.parametrize("reduction", ["mean", "sum"])


@pytest.mark.parametrize(
    ("make", "kind", "options", "soft", "reduction"), one_in(5, [(*each, r) for each in CASES for r in ("mean", "sum")])
)
def test_every_quantity(make, kind, options, soft, reduction, apart):
    """In float64, float32, blocks, threads, and by both engines; with the other reduction, too, by a law of the kit."""
    (network, x, shape), loss = make(), kind(reduction, **options)
    report = check_network(network, loss, x, targets(loss, shape, 2, soft))
    report.assert_ok()
    judged = {row.method for row in report.rows if row.oracle == "dense Jacobians" and row.verdict == "ok"}
    without = {"KFAC", "DiagGGNMC"} if loss.undrawn else set()
    assert judged >= {type(quantity).__name__ for quantity in every_quantity()} - without


@REDUCTIONS
@EACH
def test_the_gradient_is_that_of_what_torch_divides(make, kind, options, soft, reduction):
    (network, x, shape), loss = make(), kind(reduction, **options)
    y = targets(loss, shape, 2, soft)
    twin, total = complex_copy(network), definition_of_loss(kind("sum", **options))
    divisor = divisor_of(loss, y) if reduction == "mean" else 1
    found = gb.backward(network, loss, x, y)
    np.testing.assert_allclose(found.loss, total(network(x), y).sum() / divisor, rtol=1e-12)
    for name, value in twin.parameters.items():
        want = np.zeros(value.shape)
        for at, h in itertools.product(np.ndindex(value.shape), (STEP, -STEP)):
            value[at] += h
            want[at] += total(twin.forward(x)[0].real, y).sum() / (2 * h) / divisor
            value[at] -= h
        np.testing.assert_allclose(found.gradient[name], want, rtol=1e-7, atol=1e-8)


def test_weights_of_one_and_no_label_to_ignore_change_nothing():
    (network, x, _), rng = vectors(), np.random.default_rng(3)
    y, asked = rng.integers(0, 3, 5), every_quantity()
    plain = gb.backward(network, CE(), x, y, *asked, rng=0)
    for options in ({"weight": np.ones(3)}, {"ignore_index": -100}):
        found = gb.backward(network, CE(**options), x, y, *asked, rng=0)
        for values, want in zip(found.values, plain.values, strict=True):
            for name in want:
                same(values[name], want[name])
    one_hot = np.eye(3)[y]
    exact = gb.backward(network, CE(), x, one_hot, q.DiagGGNMC(), rng=0)["diag_ggn_mc"]
    for name, value in plain["diag_ggn_mc"].items():
        same(exact[name], value)


def same(got, want):
    if isinstance(want, q.Kronecker):
        got, want = got.B, want.B
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)


def test_draws_for_probabilities_have_the_weight_of_their_sum():
    """Class probabilities may sum to 1 only nearly: the Hessian has their sum as a factor, and so have the draws."""
    f, q_ = np.random.default_rng(0).standard_normal((2, 3)), np.full((2, 3), 1.0005 / 3)
    root = CE("sum").hessian_sqrt(f, q_)
    each = np.repeat(np.arange(3)[:, None], 2, axis=1)
    s = CE("sum").hessian_sqrt_mc(f, each, q_) * 3**0.5
    p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    want = np.einsum("vni,vnj->nij", root, root)
    np.testing.assert_allclose(np.einsum("nm,mni,mnj->nij", p, s, s), want, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(want[:, 0, 0], 1.0005 * p[:, 0] * (1 - p[:, 0]), rtol=1e-12)


@pytest.mark.parametrize("loss", [losses.MSELoss(), losses.BCEWithLogitsLoss("sum")])
def test_one_output_may_have_no_axis(loss):
    """An output (N,) has the quantities of an output (N, 1)."""
    x, y = np.arange(12.0).reshape(4, 3) / 9, np.array([0.0, 1.0, 1.0, 0.0])
    whole = gb.Sequential(layers.Linear(3, 1), rng=0, dtype="float64")
    flat = gb.Sequential(layers.Linear(3, 1), layers.Select(1, 0), dtype="float64")
    flat.load_state_dict(whole.state_dict())
    asked = [q.BatchGrad(), q.DiagGGN(), q.DiagHessian()]
    one, other = gb.backward(flat, loss, x, y, *asked), gb.backward(whole, loss, x, y[:, None], *asked)
    assert one.loss == other.loss
    for quantity in asked:
        for name, value in other[quantity].items():
            np.testing.assert_allclose(one[quantity][name], value, rtol=1e-13)
