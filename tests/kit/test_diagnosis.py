"""Tests of the diagnosis: the smallest edits with which a failed claim holds, and silence where nothing fits."""

import io

import numpy as np
import pytest
from common import one_in
from faults_of_further_users import FURTHER, Alone
from faults_of_users import USERS, SnakeWithoutA, batch

import gbackprop as gb
from gbackprop import Sequential, layers, losses
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.signals import EXACT
from gbackprop.quantities import Quantity, Statistic
from gbackprop.quantities.diagonal import Sampled
from gbackprop.testing import check_layer, check_loss, check_network, check_operator, check_quantity
from gbackprop.testing.audit.findings import Auditor
from gbackprop.testing.audit.page import page
from gbackprop.testing.audit.table import Terminal
from gbackprop.testing.diagnosis import rewriting, search

ALL = USERS | FURTHER


@pytest.mark.parametrize("name", one_in(2, ALL))
def test_a_wrong_line_of_a_user_is_named(name, monkeypatch):
    """Named by edits of numbers alone, without those of the source: see test_edits_of_source.py."""
    monkeypatch.setattr(search, "SECONDS", 60)  # of a machine that does something else, too
    monkeypatch.setattr(rewriting, "EDITS", 0)
    check, words = ALL[name]
    found = check().failures[0].diagnosis
    if words is None:
        assert found == ()
    else:
        assert words in found[0].words, found
        assert len(set(found[0].samples)) > 1, "verified on batches of several sizes"


def test_a_loss_of_one_reduction_is_not_tried_with_the_other():
    row = check_loss(Alone(), batch(3, 3), batch(3, 3, seed=1)).failures[0]
    assert [each.words for each in row.diagnosis] == ["right if divided by 2"]


class Product:
    """The product with a matrix, by a function."""

    shape = (4, 4)

    def __init__(self, function):
        self.function = function

    def __matmul__(self, v):
        return self.function(v)


A = np.random.default_rng(0).standard_normal((4, 4))
PRODUCTS = {
    "with this: axes 0 and 1 exchanged": lambda v: A.T @ v,
    "if divided by 2": lambda v: 2 * A @ v,
    "if it had the other sign": lambda v: -A @ v,
    "if -1 were added on the diagonal": lambda v: A @ v + v,
    "without this: the diagonal of axes 0 and 1 alone": lambda v: np.diag(A)[(slice(None), *[None] * (v.ndim - 1))] * v,
    "if multiplied by 3, at 1 along axis 0 alone": lambda v: np.diag([1, 1 / 3, 1, 1]) @ A @ v,
}


@pytest.mark.parametrize("words", PRODUCTS)
def test_a_wrong_operator_is_named(words):
    failures = check_operator(Product(PRODUCTS[words]), A).failures
    assert failures[0].diagnosis[0].words == f"right {words}"
    assert failures[0].diagnosis[0].evidence == "verified on 16 numbers"


class PositionsApart(layers.Linear):
    """The squared norm is the sum of those of each position, where features are the last axis."""

    kronecker_factors = "it has none"

    def parameter_jacobians(self, saved):
        weight = ParameterJacobian()
        weight.per_sample = lambda mat: np.einsum("vnto,nti->vnoi", mat, saved)
        weight.square_norm = lambda mat, sign=None: self.of_each(mat, saved, sign)
        return {"weight": weight}

    def of_each(self, mat, x, sign):
        found = np.einsum("vnto,nti->vntoi", mat, x) ** 2
        return ((found if sign is None else found * sign[..., None, None, None]).sum((2, 3, 4))).sum(0)


def test_positions_before_the_features_may_be_taken_apart(monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 60)
    monkeypatch.setattr(rewriting, "EDITS", 0)
    report = check_layer(PositionsApart(3, 2, bias=False), np.random.default_rng(0).standard_normal((3, 4, 3)))
    (row,) = report.failures
    assert row.method == "weight.square_norm"
    assert row.diagnosis[0].words.endswith("right if it were asked for of each position alone, and summed")


def test_nothing_is_searched_for_before_it_is_asked_for():
    report = check_layer(SnakeWithoutA(), batch(3, 4))
    row = report.failures[0]
    assert row.known == ()
    assert "diagnosis" not in row.explain()
    assert report.diagnose(most=0).failures[0].known == ()
    assert report.diagnose().failures[0].known == row.diagnosis
    assert "diagnosis: right if multiplied by a = 1.5 (verified on" in row.explain()


def test_claims_that_hold_have_no_diagnosis():
    rows = check_layer(layers.Tanh(), batch(3, 4)).rows
    assert not any(row.diagnosis for row in rows)


def test_the_error_of_a_test_says_why():
    report = check_layer(SnakeWithoutA(), batch(3, 4))
    with pytest.raises(AssertionError) as caught:
        report.assert_ok()
    assert "diagnosis" not in report.failures[0].explain(), "searched for before the message is read"
    assert "right if multiplied by a = 1.5" in str(caught.value)


def test_the_terminal_and_the_page_say_why():
    finding = Auditor().layer(SnakeWithoutA(), batch(3, 4))
    out = io.StringIO()
    Terminal(out).rows(finding)
    assert "diagnosis: right if multiplied by a = 1.5 (verified on 48 numbers of batches of" in out.getvalue()
    assert "<strong>Diagnosis: right if multiplied by a = 1.5</strong> (verified on" in page([finding], "")


def test_a_diagnosis_changes_nothing():
    layer = SnakeWithoutA()
    network = Sequential(layers.Linear(3, 4), layer, rng=0, dtype="float64")
    options = dict(vars(layer))
    before = {name: array.copy() for name, array in network.parameters.items()}
    report = check_network(network, losses.MSELoss(), batch(5, 3), batch(5, 4, seed=1))
    assert report.failures[0].diagnosis
    assert vars(layer) == options
    assert all(np.array_equal(before[name], array) for name, array in network.parameters.items())


def test_a_diagnosis_is_the_same_again():
    one, other = (check_layer(SnakeWithoutA(), batch(3, 4)).failures[0].diagnosis for _ in range(2))
    assert one == other


class Concave(losses.MSELoss):
    def second(self, output, target):
        return -super().second(output, target)


def test_a_root_of_negative_numbers_is_nan_and_not_zero():
    words = [each.words for each in check_loss(Concave(), batch(3, 4), batch(3, 4, seed=1)).failures[0].diagnosis]
    assert words
    assert not any("is 0 everywhere" in each for each in words)


class MeanCurvature(Quantity):
    """The mean of the GGN's diagonal over a parameter's entries."""

    name = "mean_curvature"
    scale = "tr(R Σ Jᵀ H J) over the number of entries"
    merging, powers = gb.data.Summed(), (1, 1)

    def statistics(self):
        return (Statistic("square", EXACT),)

    def finish(self, scale, square):
        return np.asarray(square.mean())


class Misstated(MeanCurvature):
    """A power of c is wrong, of which the check has 1/3, for three outputs."""

    powers = (1, 0)


def test_a_factor_has_not_the_name_of_the_number_of_draws_where_nothing_is_drawn():
    network = Sequential(layers.Linear(3, 3), rng=0, dtype="float64")
    report = check_quantity(Misstated(), network, losses.CrossEntropyLoss(), batch(4, 3), np.array([0, 2, 1, 1]))
    assert [each.words for each in report.failures[0].diagnosis] == ["right if multiplied by (output features) = 3"]


class Estimated(Sampled):
    """The same from M pseudo-targets of each sample, times a factor of the scale and of M."""

    name = "mean_curvature_mc"
    scale = "tr(R Σ Jᵀ (1/M Σ s sᵀ) J) over the number of entries"
    merging, powers, estimates = gb.data.Summed(), (1, 1), MeanCurvature

    def statistics(self):
        return (Statistic("square", self.signal),)

    def finish(self, scale, square):
        return np.asarray(square.mean() * self.factor(scale, self.mc_samples))


@pytest.mark.parametrize("wrong", range(3))
def test_of_three_inputs_the_one_is_named_whose_derivative_is_wrong(wrong):
    class Turned(layers.Add):
        def mjp(self, saved, mat):
            return tuple(-mat if i == wrong else mat for i in range(3))

    (row,) = check_layer(Turned(), tuple(batch(3, 4, seed=i) for i in range(3))).failures
    assert [each.words for each in row.diagnosis] == [f"right if it had the other sign, in input {wrong}"]


FACTORS = {
    "multiplied by M": lambda scale, m: 1 / m,
    "divided by M": lambda scale, m: m,
    "divided by N": lambda scale, m: scale.batch,
    "multiplied by N²": lambda scale, m: scale.batch**-2.0,
}


@pytest.mark.parametrize("words", FACTORS)
def test_a_factor_of_what_draws_estimate_has_its_name(words):
    network = Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 3), rng=0, dtype="float64")
    quantity = type("Own", (Estimated,), {"factor": staticmethod(FACTORS[words])})()
    report = check_quantity(quantity, network, losses.CrossEntropyLoss(), batch(4, 3), np.array([0, 2, 1, 1]))
    (row,) = [row for row in report.failures if row.claim.startswith("estimates")]
    assert [each.words for each in row.diagnosis] == [f"right if {words}"]


@pytest.mark.parametrize("number", [0.8, 15.84, 1 / 15.84, 2])
def test_a_factor_without_a_name_of_what_draws_estimate_has_its_error(number):
    """One is near the root of M, which is the same on all batches, and so no name."""
    network = Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 3), rng=0, dtype="float64")
    quantity = type("Own", (Estimated,), {"factor": staticmethod(lambda scale, m: number)})()
    report = check_quantity(quantity, network, losses.CrossEntropyLoss(), batch(4, 3), np.array([0, 2, 1, 1]))
    (row,) = [row for row in report.failures if row.claim.startswith("estimates")]
    factor, error = row.diagnosis[0].words.removeprefix("right if divided by ").split(" ± ")
    assert abs(float(factor) - number) < 1.5 * float(error) < 0.0125 * number  # it is printed with one digit
