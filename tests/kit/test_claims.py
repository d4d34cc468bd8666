"""The claims that are made: what a report of a right loss, or layer, says that it has looked at."""

import math
import re
from itertools import groupby
from pathlib import Path

import claims_table
import numpy as np
import pytest

from gbackprop import Sequential, backward, layers, losses
from gbackprop import quantities as q
from gbackprop.array import device_of
from gbackprop.testing import check_layer, check_loss, check_quantity
from gbackprop.testing.cases.loss_rows import targets
from gbackprop.testing.claims import NotGivenError
from gbackprop.testing.estimates import _total
from gbackprop.testing.likelihood import LEVEL
from gbackprop.testing.networks import _signals
from gbackprop.testing.report import Proposal, Row
from gbackprop.testing.samples import near
from gbackprop.testing.setting import CheckedNetwork

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
ROOT = "gradients hessian_sqrt hessian_sum hessian_sqrt_mc"

OF_A_LOSS = f"""
is the target's: target_shape
is pure: values {ROOT}
are finite numbers, one for each sample: values
samples do not interact: values gradients hessian_sqrt
is R: factor
is R Σₙ ℓₙ: value
are ∇ℓ[n, *out]: gradients
S Sᵀ = ∇²ℓ[n, i, j]: hessian_sqrt
is the number of hessian_sqrt's columns: columns
blocks of columns are those of the whole: hessian_sqrt
is Σₙ ∇²ℓₙ: hessian_sum
gives targets that the loss takes, the same from the same rng: draw
follows exp(−ℓ/c) (χ² test, false alarms 1e-06): draw
of M targets is that of each over √M: hessian_sqrt_mc
E[s sᵀ] = ∇²ℓ[n, i, j] (z test, false alarms 1e-06): hessian_sqrt_mc
is 1/C for 'mean' where it is 1 for 'sum': summed_weight
of 'mean' are c times those of 'sum': values gradients
float32 stays float32: values {ROOT}
layout in memory does not matter: values {ROOT}
is finite at the ends of its range: values {ROOT}
refuses wrong shapes and types: check_target
"""

OF_A_LAYER = """
are the shapes of the parameters: parameter_shapes
gives finite numbers for each sample: forward
is a pure function: forward
samples do not interact: forward jmp mjp residual
is the output's: output_shape
there is one for each parameter: parameter_jacobians
is pure, whatever goes forward: jmp mjp vjp residual forward average
is J[n, *out, *in]: jmp
is Jᵀ, entries J[n, *out, *in]: mjp
is linear: jmp mjp
columns do not interact: jmp mjp
⟨J u, v⟩ = ⟨u, Jᵀ v⟩: mjp
adds up where all inputs are equal and move as one: mjp
is Jᵀ: vjp
is one of zero, diagonal, dense: curvature
is diagonal: curvature
is Σⱼ (∇² yⱼ) gⱼ: residual
is 1/N Σₙ Jₙᵀ Ḡ Jₙ: average
the fast form gives the same: mjp
the form in place gives the same: mjp
float32 stays float32: forward jmp mjp vjp residual average
layout in memory does not matter: forward jmp mjp vjp residual average
other shapes are refused with a ValueError, or go through: output_shape
"""


@pytest.mark.parametrize(("report", "claims"), [
    (lambda: check_loss(losses.MSELoss(), X, X[::-1]), OF_A_LOSS), (lambda: check_layer(layers.Tanh(), X), OF_A_LAYER),
], ids=["loss", "layer"])  # fmt: skip
def test_what_is_claimed(report, claims):
    rows = sorted(report().rows, key=lambda row: row.claim)
    made = {claim: {row.method for row in some} for claim, some in groupby(rows, lambda row: row.claim)}
    wanted = [line.rsplit(": ", 1) for line in claims.strip().splitlines()]
    assert made == {claim: set(methods.split()) for claim, methods in wanted}


@pytest.mark.parametrize("name", claims_table.networks())
def test_what_is_claimed_of_networks_and_of_which_methods(name):
    """Whatever is no longer judged, or is with another reason, shows here; the file is the output of `claims_table`."""
    written = Path(__file__).with_name("claims.txt").read_text(encoding="utf-8").splitlines()
    heads = [i for i, line in enumerate(written) if line.startswith("---")]
    start, _, end = (*heads, len(written))[(at := 2 * [*claims_table.networks()].index(name)) : at + 3]
    assert [*claims_table.table(name)] == written[start:end]


def flat(name):
    """A layer of which a method gives all features on one axis."""
    method = getattr(layers.Tanh, name)
    return type("Flat", (layers.Tanh,), {name: lambda self, saved, g: method(self, saved, g).reshape(len(g), -1)})()


class Squared(layers.Scale):
    def forward(self, x):
        return super().forward(x)[0] + x * self.parameters["weight"] ** 2, x


class Offset(layers.Scale):
    """A scale that is not quite linear in its weight, far from 0."""

    def forward(self, x):
        return super().forward(x)[0] + 1e3 + 2e-8 * self.parameters["weight"] ** 2, x


class Rough(layers.Tanh):
    """A layer that is wrong in float32 alone, in one method."""

    method = "residual"

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name != super().__getattribute__("method"):
            return found
        return lambda saved, g: found(saved, g) * (1.01 if g.dtype == "float32" else 1)


class Neighbours(layers.Layer):
    """y = c x ∘ P x with two features each swapped by P: the Hessian is off the diagonal, whatever its size c."""

    curvature = "diagonal"

    def __init__(self, c):
        self.c = c

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.c * x * x[:, ::-1], x

    def jmp(self, x, mat):
        return self.c * (x[:, ::-1] * mat + x * mat[..., ::-1])

    def mjp(self, x, mat):
        return self.c * x[:, ::-1] * (mat + mat[..., ::-1])

    def residual(self, x, g):
        return 0 * x


@pytest.mark.parametrize("c", [1.0, 1e-9])
def test_curvature_that_is_not_diagonal_is_found_whatever_its_size(c):
    assert "curvature" in {row.method for row in check_layer(Neighbours(c), X).failures}


@pytest.mark.parametrize("method", ["residual", "vjp", "jmp"])
def test_what_is_wrong_in_float32_alone_is_found_and_nothing_else(method):
    layer = Rough()
    layer.method = method
    failures = {(row.method, row.claim) for row in check_layer(layer, X).failures}
    assert failures == {(method, "float32 stays float32")}


@pytest.mark.parametrize(("layer", "x", "method", "text"), [
    (Offset(4), X, "weight", "linear in it"),
    (flat("vjp"), RNG.standard_normal((2, 3, 2)), "vjp", r"\(2, 3, 2\), got .*\(2, 6\)"),
    (flat("residual"), RNG.standard_normal((2, 3, 2)), "residual", r"\(2, 3, 2\), got .*\(2, 6\)"),
    (Squared(4), 1e-18 * X, "weight", "linear in it"),
], ids=["large numbers", "shape", "shape of a residual", "small numbers"])  # fmt: skip
def test_a_wrong_layer_is_found(layer, x, method, text):
    failures = [row for row in check_layer(layer, x).failures if row.method == method]
    assert failures
    assert re.search(text, " ".join(f"{row.claim} {row.problem}" for row in failures))


def test_a_mean_is_the_expected_one_within_its_standard_error_alone():
    mean, want = np.array([0.01, 0.01]), np.zeros(2)
    np.testing.assert_array_equal(near(mean, mean**2 + [1e-8, 1.0], want, 1.0, draws=10_000), [0.01, 0.0])


def test_the_factors_of_groups_are_added_up():
    assert _total({"B": np.stack([np.diag([1.0, 2.0]), np.diag([3.0, 4.0])])}) == 10


def test_a_network_at_a_kink_is_moved_by_a_thousandth_of_its_size():
    made = Sequential(layers.ReLU(), layers.Linear(4, 2), rng=0, dtype="float64")
    x = 1e-6 * X * (np.arange(4) > 0)
    moved = CheckedNetwork(made, losses.MSELoss(), x, np.ones((3, 2)), None).off_kinks().x - x
    assert 0 < abs(moved).max() < 1e-8


def test_a_batch_of_labels_is_never_ignored_as_a_whole():
    labels = [targets(losses.CrossEntropyLoss(ignore_index=1), (2, 2), seed) for seed in range(40)]
    assert not any((each == 1).all() for each in labels)
    assert any((each == 1).any() for each in labels)


def test_a_row_gives_the_error_in_words_where_numbers_were_compared():
    raised = Row("is Jᵀ", "mjp", "complex step", verdict="FAILED", problem="raised ValueError")
    assert raised.explain() == "mjp: is Jᵀ: FAILED: raised ValueError"
    off = Row("is Jᵀ", "mjp", "complex step", 6, 0.5, 1e-9, "FAILED")
    assert off.explain() == "mjp: is Jᵀ: FAILED: error 5.0e-01, allowed 1e-09, against complex step"


def test_a_proposal_says_on_what_it_was_verified():
    words = "right if multiplied by 2"
    assert str(Proposal(words, (3, 4, 7))) == f"{words} (verified on batches of 3, 4 and 7 samples)"
    assert str(Proposal(words, points=12)) == f"{words} (verified on 12 numbers)"
    assert str(Proposal(words, (3, 4), 12)) == f"{words} (verified on 12 numbers of batches of 3 and 4 samples)"


def test_outputs_outside_of_a_losss_domain_are_refused_before_anything_is_judged():
    x = np.random.default_rng(0).standard_normal((4, 3))
    (row,) = check_loss(losses.BCELoss(), 2 + abs(x), (x > 0).astype(float)).rows
    assert (row.method, row.claim, row.verdict) == ("loss", "can be checked", "FAILED")
    assert "expected numbers in [0, 1], got" in str(row)


def test_what_is_checked_on_a_device_is_computed_there(gpu):
    network, rng, seen = Sequential(layers.Linear(3, 2), rng=0), np.random.default_rng(0), []

    def call(network, loss, x, y, **options):
        seen.append({device_of(each).partition(":")[0] for each in (x, y, *network.parameters.values())})
        return backward(network, loss, x, y, **options)

    for device in ("cpu", gpu):
        setting = CheckedNetwork.of(network, losses.MSELoss(), np.ones((2, 3)), np.ones((2, 2)), rng, device)
        assert isinstance(setting.run(call=call).gradient["0.weight"], np.ndarray)
    assert seen == [{"cpu"}, {"cuda"}]


class Doubled(q.DiagGGNMC):
    """Twice what it should estimate."""

    name = "doubled"

    def finish(self, scale, square):
        return 2 * square

    def estimates(self):
        return q.DiagGGN()


@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_a_wrong_estimate_is_found_whatever_the_size_of_the_inputs(size):
    network = Sequential(layers.Linear(3, 2, bias=False), rng=0, dtype="float64")
    x = size * np.random.default_rng(0).standard_normal((4, 3))
    (row,) = check_quantity(Doubled(), network, losses.MSELoss(), x, network(x)).failures
    assert row.claim.startswith("estimates what it should")


def test_a_tuple_of_one_batch_is_that_batch():
    for layer, x in ((layers.Conv1d(2, 3, 2), RNG.standard_normal((3, 2, 5))), (layers.Linear(4, 2), X)):
        assert check_layer(layer, (x,), 0).rows == check_layer(layer, x, 0).rows


def test_what_is_too_large_for_dense_matrices_is_not_given():
    net = Sequential(layers.Linear(2, 600), layers.Linear(600, 1), rng=0)
    setting = CheckedNetwork.of(net, losses.MSELoss(), np.ones((1, 2)), np.ones((1, 1)), np.random.default_rng(0))
    with pytest.raises(NotGivenError, match="2401 parameters are too many for dense Jacobians"):
        setting.defined(lambda parts: {})
    with pytest.raises(NotGivenError, match="600 features are too many for dense matrices"):
        _signals(setting, [])


class Bent(layers.Layer):
    """y = x ∘ max(p, 0), of which a parameter stands at the kink."""

    def __init__(self, slope):
        self.slope = slope

    def output_shape(self, shape):
        return shape

    def parameter_shapes(self):
        return {"p": (3,)}

    def draw(self, rng):
        return {"p": np.array([-1.0, 0.0, 1.0])}

    def forward(self, x):
        p = self.parameters["p"]
        return x * (p * (p.real > 0)), x

    def jmp(self, saved, mat):
        return mat * np.maximum(self.parameters["p"], 0)

    mjp = jmp

    def parameter_jacobians(self, saved):
        class Own(layers.ParameterJacobian):
            def per_sample(jacobian, mat):
                p = self.parameters["p"]
                return mat * saved * np.where(p == 0, self.slope, p > 0).astype(mat.dtype)

        return {"p": Own()}


@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_at_a_kink_in_a_parameter_any_slope_is_as_good(slope):
    layer = Sequential(Bent(slope), rng=0, dtype="float64")[0]
    rows = check_layer(layer, np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]])).rows
    assert [(row.method, row.claim) for row in rows if row.method == "p.per_sample" and row.failed] == []


def test_means_over_draws_may_be_off_by_what_chance_makes_of_as_many():
    """By more than the tolerance a standard normal is off with a probability of the level over 2 · 3 · 3 means."""
    rng = np.random.default_rng(0)
    report = check_loss(losses.MSELoss(), rng.standard_normal((2, 3)), rng.standard_normal((2, 3)))
    (row,) = [row for row in report.rows if "standard errors" in row.oracle]
    assert 18 * math.erfc(row.tolerance / 2**0.5) == pytest.approx(LEVEL, rel=1e-6)
