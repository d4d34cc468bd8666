"""Every quantity on every layer of the table, and on drawn networks, against dense Jacobians and the laws."""

import inspect
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from around import THREE_LOSSES, around, lacking
from common import batch, chain, one_in

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.signals import EXACT, GRADIENT
from gbackprop.testing import check_network, check_quantity
from gbackprop.testing import quantities as kit
from gbackprop.testing.audit.findings import Auditor
from gbackprop.testing.audit.table import Terminal
from gbackprop.testing.cases import LAYERS
from gbackprop.testing.oracles import ORACLES, definition_of
from gbackprop.testing.quantities import BLOCKS
from gbackprop.testing.runs import every_quantity
from gbackprop.testing.strategies import targets

LAWS = {
    "sample_block=1 changes nothing",
    "sample_block=2 changes nothing",
    "workers=2 changes nothing",
    "sample_block=2, column_block=2 changes nothing",
}
"""Those that KFRA, which averages over the whole batch, does not have, and the Gram matrices, which pair samples."""

NETWORK = chain(layers.Linear(3, 2), layers.Tanh(), layers.Linear(2, 3))
PROBLEM = (NETWORK, losses.MSELoss(), batch(4, 3)[0], np.ones((4, 3)))
WITHOUT = {"kfra": LAWS, "gram_gradients": LAWS, "gram_ggn": {f"{options} changes nothing" for options in BLOCKS}}


@pytest.mark.parametrize(("row", "at"), one_in(5, zip(LAYERS, range(len(LAYERS)))), ids=str)
def test_every_quantity_on_every_layer(row, at, device, apart, monkeypatch):
    """With one loss and one way to cut the work, in turn; drawn networks have all of them, and the draws' means."""
    loss = THREE_LOSSES[at % len(THREE_LOSSES)]
    monkeypatch.setattr(kit, "BLOCKS", dict([list(BLOCKS.items())[at % len(BLOCKS)]]))
    report = check_network(around(row), loss, row.x(3), targets(loss, (3, 2), 0), device=device)
    report.assert_ok()
    judged = {r.method for r in report.rows if r.claim.startswith("is ") and r.oracle == "dense Jacobians"}
    without = lacking(row.make())[1]
    assert judged >= {type(quantity).__name__ for quantity in every_quantity() if quantity.name not in without}


@pytest.mark.parametrize("quantity", every_quantity(), ids=repr)
def test_one_quantity_alone(quantity, device):
    report = check_quantity(quantity, NETWORK, losses.CrossEntropyLoss(), *batch(4, 3), device=device)
    report.assert_ok()
    merged = {row.claim for row in report.rows if row.claim.startswith("merged results of two batches")}
    assert len(merged) == 2
    unmerged = merged if isinstance(quantity.merging, str) else set()
    assert {row.claim for row in report.rows if row.verdict != "ok"} == WITHOUT.get(quantity.name, set()) | unmerged


def test_a_lone_layer_is_a_network():
    check_network(layers.Linear(2, 3), losses.MSELoss(), np.ones((2, 2)), np.zeros((2, 3))).assert_ok()


# --------------------------------------------------------------------------------------------- a quantity of a user's


class GradientTimesCurvature(q.Quantity):
    """Σₙ (R ∇ℓₙ) ∘ diag(GGN)."""

    name = "gradient_times_curvature"
    scale = "Σₙ R ∇ℓₙ ∘ diag(R Σₙ Jₙᵀ Hₙ Jₙ)"

    def statistics(self):
        return q.Statistic("sum", GRADIENT), q.Statistic("square", EXACT)

    def finish(self, scale, gradient, square):
        return gradient * square


FORGETFUL = replace(REDUCTIONS["batch"], per_sample=False)


class Forgetful(q.BatchGrad):
    """Has a reduction that does not say that its result has a row for each sample: blocks of samples are added up."""

    name = "forgetful"

    def statistics(self):
        return (q.Statistic(FORGETFUL, GRADIENT),)


class FirstSample(q.Quantity):
    """Looks at the first sample's gradient alone."""

    name = "first_sample"

    def statistics(self):
        return (q.Statistic("batch", GRADIENT, per_sample=True),)

    def finish(self, scale, gradients):
        return gradients[:1] * np.ones_like(gradients)


class Remembers(q.DiagGGN):
    """Adds up what it has seen."""

    name = "remembers"
    seen = 0.0

    def finish(self, scale, square):
        self.seen = self.seen + square.sum()
        return square * self.seen


def test_the_laws_hold_for_a_users_quantity():
    report = check_quantity(GradientTimesCurvature(), *PROBLEM)
    report.assert_ok()
    # its definition, its scale, and its rule of merging, of the mean and of the sum
    assert len([row for row in report.rows if row.verdict == "not given"]) == 4


def test_the_names_of_ways_to_cut_the_work_are_their_options():
    assert list(BLOCKS) == [", ".join(f"{name}={value}" for name, value in way.items()) for way in BLOCKS.values()]


def test_a_kfac_of_another_convention_has_no_oracle_of_its_own():
    report = check_quantity(q.KFAC(fisher="exact", sharing="reduce"), *PROBLEM)
    report.assert_ok()
    assert [row.claim for row in report.rows if row.problem == kit.NO_CONVENTION] == [
        "is B ⊗ A, A = 1/N Σₙ ū ūᵀ, B = R Σₙᵥ b bᵀ"
    ]
    assert "scales with R and c as it should" in {row.claim for row in report.rows if row.verdict == "ok"}


@pytest.mark.parametrize(
    ("quantity", "claim"),
    [
        (Forgetful(), "sample_block=1 changes nothing"),
        (FirstSample(), "permuting the samples changes their order alone"),
        (Remembers(), "what else is asked for changes nothing"),
    ],
)
def test_the_laws_catch_a_users_mistake(quantity, claim):
    report = check_quantity(quantity, *PROBLEM)
    assert {row.method for row in report.failures} == {type(quantity).__name__}
    assert claim in {row.claim for row in report.failures}


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({}, "Own has no statistics: define `statistics`, or `needs`"),
        ({"needs": (q.Statistic("square", GRADIENT),) * 2}, "Own has no finish, and 2 statistics"),
        ({"statistics": lambda self: ["square"]}, "raised AttributeError: 'str' object has no attribute 'signal'"),
    ],
)
def test_a_quantity_without_its_methods_is_told_so(own, problem):
    report = check_quantity(type("Own", (q.Quantity,), {"name": "own", "scale": "…", **own})(), *PROBLEM)
    with pytest.raises(AssertionError, match=problem):
        report.assert_ok()


def test_a_loss_that_cannot_be_drawn_from_fails_the_check_of_a_network():
    class Undrawn(losses.MSELoss):
        def noise(self, batch_shape, mc_samples, rng):
            raise NotImplementedError("no likelihood")

    net = chain(layers.Linear(3, 2))
    report = check_network(net, Undrawn(), np.ones((3, 3)), np.zeros((3, 2)))
    assert [row.problem for row in report.failures] == ["not given, but required: no likelihood"]


class Cubes(q.Quantity):
    """Σₙ (R ∇ℓₙ)³, and its rows, by reductions that the engine does not know."""

    name = "cubes"
    scale = "Σₙ (R ∇ℓₙ)³ and (R ∇ℓₙ)³"
    total = q.Reduction("cube", "Σₙ (Jᵀ g)³", math.prod, False, lambda each, sign: (each**3).sum((0, 1)))
    rows = q.Reduction("cubes", "(Jᵀ g)³", math.prod, True, lambda each, sign: (each**3).sum(0))

    def statistics(self):
        return q.Statistic(self.total, GRADIENT), q.Statistic(self.rows, GRADIENT)

    def finish(self, scale, total, rows):
        return np.concatenate([total[None], rows])


@pytest.mark.parametrize("options", [{}, {"sample_block": 1}, {"sample_block": 3, "workers": 2}, {"memory": "1GiB"}])
def test_a_new_reduction_needs_no_second_edit(options):
    asked = Cubes(), q.BatchGrad()
    for call, keywords in ((gb.backward, options), (gb.reference, {})):
        result = call(*PROBLEM, *asked, **keywords)
        for name, each in result["batch_grad"].items():
            np.testing.assert_allclose(result["cubes"][name][1:], each**3, rtol=1e-12)
            np.testing.assert_allclose(result["cubes"][name][0], (each**3).sum(0), rtol=1e-12)
    assert "Σₙ (Jᵀ g)³" in str(gb.explain(*PROBLEM, *asked))


def test_the_estimate_of_memory_knows_the_size_of_a_reduction():
    class Large(Cubes):
        name = "large"
        rows = replace(Cubes.rows, size=lambda p: 10**9)

    gb.backward(*PROBLEM, Cubes(), memory="64MiB")
    with pytest.raises(ValueError, match="memory: at least"):
        gb.backward(*PROBLEM, Large(), memory="64MiB")


@pytest.mark.parametrize("parameter", ["weight", "bias"])
@pytest.mark.parametrize("name", [name for name in REDUCTIONS if name != "moments"])
def test_the_size_of_a_reduction_is_that_of_its_result(name, parameter):
    layer, n = layers.Linear(5, 3), 2
    layer.dtype = "float64"
    jacobian = layer.parameter_jacobians(layer.forward(np.ones((n, 5)))[1])[parameter]
    arriving = {"input_square": (), "average_kronecker": (np.ones((3, 3)), (3,))}.get(name, (np.ones((4, n, 3)), None))
    value, reduction = getattr(jacobian, name)(*arriving), REDUCTIONS[name]
    of_scalar = name == "input_square" and parameter == "bias"  # A of a bias is 1, of no size
    expected = (n if reduction.per_sample else 1) * reduction.size({"weight": (3, 5), "bias": (3,)}[parameter])
    assert expected == (0 if of_scalar else np.size(value))


@pytest.mark.parametrize("name", ["moments", "batch", "square_norm"])
def test_a_mean_is_of_a_sum_over_samples(name):
    with pytest.raises(ValueError, match=f"statistic '{name}': expected mean=False, as it is no sum over samples"):
        q.Statistic(name, GRADIENT, mean=True)


class OfMatrices(q.Quantity):
    """A user's quantity that has values of matrices only, computed for all parameters at once."""

    name = "of_matrices"
    scale = "Σₙ R ∇ℓₙ of matrices"

    def statistics(self):
        return (q.Statistic("sum", GRADIENT),)

    @staticmethod
    def together(quantity, scale, found):
        return {name: value for name, (value,) in found.items() if value.ndim == 2}


@pytest.mark.parametrize("engine", [gb.reference, gb.backward])
def test_values_of_all_parameters_at_once_may_be_none_at_all(engine):
    net = chain(layers.LayerNorm(3))
    result = engine(net, losses.MSELoss(), np.ones((2, 3)), np.ones((2, 3)), OfMatrices())
    assert dict(result["of_matrices"]) == {}


def test_a_statistic_that_contradicts_its_reduction_cannot_be_made():
    assert q.Statistic("batch", GRADIENT) == q.Statistic("batch", GRADIENT, per_sample=True)
    with pytest.raises(ValueError, match=r"'batch': has a row for each sample, got per_sample=False"):
        q.Statistic("batch", GRADIENT, per_sample=False)
    with pytest.raises(ValueError, match=r"'square': adds up over samples, got per_sample=True"):
        q.Statistic("square", GRADIENT, per_sample=True)
    with pytest.raises(ValueError, match=r"expected a reduction, one of sum, .*, got 'cube'"):
        q.Statistic("cube", GRADIENT)


class SumOfSquares(q.Quantity):
    """Σₙ (R ∇ℓₙ)², with its definition."""

    name = "sum_of_squares"
    scale = "Σₙ (R ∇ℓₙ)²"
    powers = (2, 2)
    wrong = 1.0

    def statistics(self):
        return (q.Statistic("square", GRADIENT),)

    def finish(self, scale, square):
        return square * self.wrong

    def definition(self, parts):
        return ((parts.factor * parts.gradients) ** 2).sum(0)


def own(name, kind, **attributes):
    """A quantity that differs from another one."""
    return type(name, (kind,), {"name": name.lower(), **attributes})


WithoutOneOverN = own("WithoutOneOverN", SumOfSquares, wrong=4.0)
Undefined = own("Undefined", SumOfSquares, definition=None)
WithoutOneR = own("WithoutOneR", SumOfSquares, powers=(1, 2))
Estimate = own("Estimate", q.DiagGGNMC, estimates=q.DiagGGN)
BiasedEstimate = own("BiasedEstimate", q.DiagGGNMC, estimates=q.DiagHessian)


class Curvature(q.DiagGGN):
    """diag(R Σₙ Jₙᵀ Hₙ Jₙ), by another name."""

    name = "curvature"

    def definition(self, parts):
        return parts.factor * np.einsum("nc...,ncd,nd...->...", parts.jacobians, parts.hessians, parts.jacobians)


@pytest.mark.parametrize("kind", [q.DiagGGN, q.DiagGGNMC, q.Variance], ids=lambda kind: kind.__name__)
def test_a_subclass_of_a_shipped_quantity_has_another_formula(kind):
    own, other = kind(), type("Own", (kind,), {})()
    stated = [name for name in ("merging", "powers", "estimates") if own.stated(name) is not None]
    assert stated == [name for name in ("merging", "powers", "estimates") if getattr(kind, name) is not None]
    assert [other.stated(name) for name in stated] == [None] * len(stated)
    assert (definition_of(own), definition_of(other)) == (ORACLES[kind.name], None)
    other.powers = (1, 1)
    assert other.stated("powers") == (1, 1)
    assert type("Further", (SumOfSquares,), {})().stated("powers") == SumOfSquares.powers


SCALES, ESTIMATES = "scales with R and c as it should", "estimates what it should"


@pytest.mark.parametrize(
    ("kind", "claim", "verdict"),
    [
        (SumOfSquares, f"is {SumOfSquares.scale}", "ok"),
        (Curvature, f"is {Curvature.scale}", "ok"),
        (WithoutOneOverN, f"is {SumOfSquares.scale}", "FAILED"),
        (SumOfSquares, SCALES, "ok"),
        (WithoutOneR, SCALES, "FAILED"),
        (Undefined, SCALES, "ok"),
        (Curvature, SCALES, "not given"),
        (Estimate, ESTIMATES, "ok"),
        (BiasedEstimate, ESTIMATES, "FAILED"),
    ],
)
def test_definition_powers_and_expectation_of_a_users_quantity_are_checked(kind, claim, verdict):
    report = check_quantity(kind(), *PROBLEM)
    (row,) = [row for row in report.rows if row.claim.startswith(claim) and ", of the" not in row.claim]
    assert row.verdict == verdict
    assert row.oracle == "its definition" or not claim.startswith("is ")
    assert verdict != "FAILED" or report.failures[0] is row


@pytest.mark.parametrize(("power", "verdict"), [(2, "ok"), (1, "FAILED")])
def test_the_power_of_c_is_checked_with_a_loss_without_one_too(power, verdict):
    """c of cross-entropy is 1 where each sample has one label: any power of it is 1."""
    kind = own("Squares", SumOfSquares, powers=(2, power))
    network, rng = gb.Sequential(layers.Linear(3, 4), rng=0, dtype="float64"), np.random.default_rng(0)
    given = network, losses.CrossEntropyLoss(), rng.standard_normal((3, 3)), np.array([0, 3, 1])
    (row,) = [row for row in check_quantity(kind(), *given).rows if row.claim == SCALES]
    assert row.verdict == verdict


class Precision(q.Quantity):
    """1 / (Σₙ diag(Jₙᵀ Hₙ Jₙ) + 1), which has no powers of R and does not add up."""

    name, scale, needs = "precision", "1 / (Σₙ diag(Jₙᵀ Hₙ Jₙ) + 1)", (q.Statistic("square", EXACT),)
    by_n = False

    def finish(self, scale, square):
        return 1 / (square * (scale.batch if self.by_n else 1 / scale.factor) + 1)

    def definition(self, parts):
        return 1 / (np.einsum("nc...,ncd,nd...->...", parts.jacobians, parts.hessians, parts.jacobians) + 1)


@pytest.mark.parametrize(("reduction", "other"), [("mean", "sum"), ("sum", "mean")])
def test_a_definition_is_compared_with_both_reductions(reduction, other):
    """N is 1/R of the mean alone."""
    given = NETWORK, losses.MSELoss(reduction), *PROBLEM[2:]
    check_quantity(Precision(), *given).assert_ok()
    (first, *_) = check_quantity(own("Precise", Precision, by_n=True)(), *given).failures
    assert first.claim == f"is {Precision.scale}" + (f", of the {other}" if reduction == "mean" else "")


class Ratio(q.Quantity):
    """m²/v: 0/0 where a gradient is 0 for all samples."""

    name, scale, needs = "ratio", "m²/v", (q.Statistic("moments", GRADIENT),)
    instead = None

    def finish(self, scale, moments):
        found = (moments.mean**2 * scale.batch / moments.centered).astype(scale.dtype, copy=False)
        return found if self.instead is None else np.where(np.isfinite(found), found, self.instead)

    def definition(self, parts):
        return parts.gradients.mean(0) ** 2 / parts.gradients.var(0)


@pytest.mark.parametrize("instead", [None, 0.0, np.inf])
def test_what_is_no_number_on_both_sides_is_equal_and_nothing_else_is(instead):
    """An input is 0 in both samples, so that two gradients are, too."""
    network = gb.Sequential(layers.Linear(2, 1), rng=0, dtype="float64")
    given = network, losses.MSELoss(), np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[0.0], [1.0]])
    report = check_quantity(own("Ratios", Ratio, instead=instead)(), *given)
    assert report.ok == (instead is None)
    (row, *_) = [row for row in report.rows if row.claim == "is m²/v"]
    assert row.verdict == ("ok" if instead is None else "FAILED")
    alone = check_quantity(own("Ratios", Ratio, instead=instead)(), *given[:2], given[2][:1], given[3][:1])
    (row, *_) = [row for row in alone.rows if row.claim == "is m²/v"]
    assert row.verdict == ("not given" if instead is None else "FAILED")


def test_the_last_line_of_an_audit_says_what_was_not_checked(capsys):
    findings = [Auditor(0, pictures=False).quantity(kind(), *PROBLEM) for kind in (SumOfSquares, Undefined)]
    Terminal(sys.stdout).total(findings)
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.endswith("not checked against anything: the formula of Undefined (give it a definition)")
    Terminal(sys.stdout).total(findings[:1])
    assert "not checked" not in capsys.readouterr().out


def test_a_quantity_that_writes_no_finish_returns_its_only_statistic_and_no_sum_of_several():
    class Squares(q.Quantity):
        name, scale, needs = "squares", "R² Σₙ (∇ℓₙ)²", (q.Statistic("square", GRADIENT),)

    class Two(Squares):
        needs = (*Squares.needs, q.Statistic("square", EXACT))

    net, x = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64"), np.ones((4, 3))
    result = gb.backward(net, losses.MSELoss(), x, x[:, :2], Squares(), q.BatchGrad())
    for name, value in result["squares"].items():
        np.testing.assert_allclose(value, (result["batch_grad"][name] ** 2).sum(0), rtol=1e-12)
    with pytest.raises(NotImplementedError):
        gb.backward(net, losses.MSELoss(), x, x[:, :2], Two())


@pytest.mark.parametrize("name", q.__all__)
def test_what_a_quantity_takes_is_in_its_docstring(name):
    each = getattr(q, name)
    assert [argument for argument in inspect.signature(each).parameters if argument not in each.__doc__] == []
