"""Symmetries as claims: no alarm on what is right, and each of them finds what it is there for."""

import itertools
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import symmetry_table
from common import in_module_of, one_in
from fault_table import FAULTS, RAISED
from faults import plant

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.layer import leaves_of
from gbackprop.calculus.signals import GRADIENT
from gbackprop.engine.forms import linear as linear_forms
from gbackprop.testing import check_symmetries, symmetries
from gbackprop.testing.cases import NETWORKS
from gbackprop.testing.claims import Evaluation, _compared
from gbackprop.testing.symmetries import Noise, misfit
from gbackprop.testing.symmetries_identities import _equal_samples, _loss_follows
from gbackprop.testing.symmetries_posed import Posed, Rewritten
from gbackprop.testing.symmetries_table import SYMMETRIES

NAMED = {str(fault): fault for fault in FAULTS}


@pytest.mark.parametrize(("row", "dtype"), one_in(5, itertools.product(NETWORKS, ["float64", "float32"])))
def test_no_alarm_on_right_networks(row, dtype):
    x, y = row.batch()
    report = check_symmetries(row.network().astype(dtype), row.loss, x, y)
    report.assert_ok()
    assert sum(row.verdict == "ok" for row in report.rows) > 150
    rows = [(row.method, row.claim) for row in report.rows if row.method == "backward"]
    assert len(set(rows)) == len(rows)


def test_a_difference_beside_nothing_has_its_own_size():
    assert misfit(np.array([0.5, -2.0]), np.zeros(2)) == (2.0, 0.0)
    assert misfit(np.array([3.0, 4.0]), np.array([2.0, 4.0])) == (0.25, 0.1)


@dataclass(frozen=True)
class Stated:
    """Samples of which each quantity is what it is."""

    asked: tuple = ()

    def taken(self, rows):
        return self

    def of(self, quantity):
        return {name: np.asarray(value) for name, value in quantity.items()}


@pytest.mark.parametrize(("small", "right"), [(1e-9, False), (1e-18, True)])
def test_a_small_block_is_compared_beside_itself_unless_it_is_rounding(small, right):
    known = {"kfra": {"0.weight": 2 * small, "1.weight": 1.0}, "kflr": {"0.weight": small, "1.weight": 1.0}}
    assert Evaluation(_equal_samples, (Stated(), known)).holds() == right


CAUGHT = {
    "Linear.mjp: wrong sign": "linear layers split into two",
    "BatchGrad.finish: divided by R": "sum = N × mean",
    "Loss.factor: missing 1/N": "sum = N × mean",
    "Statistic.merge: first block alone": "in blocks of samples",
    "SecondMoment.finish: missing 1/N": "is that of BatchGrad",
    "cross_entropy.exponentials: not shifted": "logits + constant",
    "BCEWithLogitsLoss.second: σ alone": "the loss written as another",
    "CrossEntropyLoss.hessian_sqrt: no rank-one part": "the loss written as another",
    "linear.forward: no bias": "linear layers as 1×1 convolutions, and back",
    "Sigmoid.first: 1 + y for 1 − y": "the loss follows the gradient where 0.weight is moved",
    "Tanh.second: wrong sign": "the gradient follows it where all parameters are moved",
    "Sweep.carry: columns times 2": "by gb.reference",
    "SpanSweep.start: average without R": "of equal samples is KFLR",
}


@pytest.mark.parametrize("name", one_in(2, CAUGHT))
def test_planted_faults_break_a_symmetry(name):
    report = symmetry_table.by_symmetries(NAMED[name])
    assert CAUGHT[name] in {row.claim for row in report.failures}, report


@pytest.mark.long
def test_most_planted_faults_break_a_symmetry():
    failures = [symmetry_table.by_symmetries(fault).failures for fault in FAULTS]
    assert sum(any(row.claim not in RAISED for row in rows[:1]) for rows in failures) >= 0.7 * len(failures)


def big_chain(dtype):
    chain = [layers.Linear(30, 40), layers.ReLU(), layers.Linear(40, 30), layers.ReLU(), layers.Linear(30, 5)]
    rng = np.random.default_rng(0)
    return gb.Sequential(*chain, rng=0, dtype=dtype), rng.standard_normal((64, 30)), rng.integers(0, 5, 64)


@pytest.mark.parametrize(("dtype", "off"), one_in(2, [("float64", 1e-3), ("float32", -1e-3)]))
def test_a_factor_of_one_in_a_thousand_is_caught_whole_batch_and_few(dtype, off, monkeypatch):
    network, x, y = big_chain(dtype)
    loss = losses.CrossEntropyLoss()
    check_symmetries(network, loss, x, y).assert_ok()
    plain = q.KFLR.finish

    def finish(self, scale, *values):
        found = plain(self, scale, *values)
        return type(found)(found.A, found.B * (1 + off * (scale.batch > 60)))

    monkeypatch.setattr(q.KFLR, "finish", in_module_of(plain, finish))
    failures = check_symmetries(network, loss, x, y).failures
    assert {(row.method, row.claim) for row in failures} >= {("KFLR", "the batch split and merged, of 64 samples")}
    assert {row.method for row in failures} == {"KFLR"}
    factors = [row.got for row in failures if "factor between" in row.oracle]
    np.testing.assert_allclose(factors, 1 + off, rtol=1e-5)


def test_a_wrong_form_in_float32_is_caught(monkeypatch):
    fault = next(fault for fault in FAULTS if fault.owner is linear_forms and fault.attribute == "carry")
    plant(monkeypatch, replace(fault, wrong=lambda sound: lambda *given: sound(*given) * np.float32(1.001)))
    network, x, y = big_chain("float32")
    assert not check_symmetries(network, losses.CrossEntropyLoss(), x, y).ok


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponentials_that_overflow_are_caught_in_each_precision(dtype, monkeypatch):
    network, x, y = big_chain(dtype)
    check = partial(check_symmetries, network, losses.CrossEntropyLoss(), x[:6], y[:6], only=["logits + constant"])
    check().assert_ok()
    plant(monkeypatch, NAMED["cross_entropy.exponentials: not shifted"])
    assert not check().ok


class Free(q.Quantity):
    """Σₙ (R ∇ℓₙ)², which states nothing."""

    name = "free"
    needs = (q.Statistic("square", GRADIENT),)


def test_of_a_users_quantity_what_it_states():
    network, x, y = big_chain("float64")
    rows = check_symmetries(network, losses.MSELoss(), x, np.eye(5)[y], quantities=[Free()]).rows
    verdicts = {row.claim: row for row in rows if row.method == "Free" and "64" not in row.claim}
    assert verdicts["samples permuted"].verdict == verdicts["hidden units permuted"].verdict == "ok"
    assert "give it `merging`" in verdicts["the batch split and merged"].problem
    assert "give the quantity `powers`" in verdicts["the loss × 3"].problem
    assert "scale of a parameter" in verdicts["W₁ × 2, W₂ / 2"].problem


def test_a_network_that_was_rewritten_shows_the_layers_that_it_has():
    network = gb.Sequential(layers.Linear(3, 2), layers.Tanh(), rng=0, dtype="float64")
    other = Rewritten(leaves_of(network, (3,)), {1: (layers.Sigmoid(), layers.ReLU())})
    assert repr(other) == "Rewritten(Linear(3, 2), Sigmoid(), ReLU())"
    x = np.random.default_rng(0).standard_normal((4, 3))
    np.testing.assert_allclose(other(x), gb.Sequential(network[0], layers.Sigmoid())(x), rtol=1e-14)


def test_a_network_without_parameters_is_named():
    network = gb.Sequential(layers.Linear(3, 2), rng=0).freeze("0")
    with pytest.raises(ValueError, match=r"^network: expected a parameter that is not frozen, got none in Sequential"):
        check_symmetries(network, losses.CrossEntropyLoss(), np.ones((4, 3)), np.array([0, 1, 1, 0]))


def test_only_some_and_none_of_that_name():
    network, x, y = big_chain("float64")
    rows = check_symmetries(network, losses.CrossEntropyLoss(), x, y, only=["a layer frozen"]).rows
    assert {row.claim for row in rows} == {"a layer frozen"}
    with pytest.raises(ValueError, match=r"^only: expected names among samples permuted, .*, got 'frozen'$"):
        check_symmetries(network, losses.CrossEntropyLoss(), x, y, only=["frozen"])


@pytest.mark.parametrize(("kind", "axes"), [(layers.Conv1d, (4,)), (layers.Conv2d, (4, 3)), (layers.Conv3d, (4, 3, 2))])
def test_a_convolution_of_single_pixels_is_a_linear_layer_of_them(kind, axes):
    claim = "linear layers as 1×1 convolutions, and back"
    network = gb.Sequential(kind(2, 3, 1), layers.Tanh(), layers.Flatten(), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((2, 2, *axes))
    report = check_symmetries(network, losses.MSELoss(), x, 2 * network(x), only=[claim])
    report.assert_ok()
    assert any(row.verdict == "ok" for row in report.rows)


@pytest.mark.parametrize("length", [3, 5])
def test_a_linear_layer_of_sequences_is_no_convolution_of_single_pixels(length):
    claim = "linear layers as 1×1 convolutions, and back"
    network = gb.Sequential(layers.Linear(3, 3), layers.Tanh(), layers.Flatten(), rng=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((2, length, 3))
    rows = check_symmetries(network, losses.MSELoss(), x, 2 * network(x), only=[claim]).rows
    assert {row.verdict for row in rows} == {"not given"}
    assert {row.problem for row in rows} == {"no linear layer of vectors with a weight (O, I), no 1×1 convolution"}


OF_WEIGHTS = ["linear layers split into two", "hidden units permuted", "W₁ × 2, W₂ / 2"]


def of_a_function(sizes=(3, 4, 2)):
    """Return a network whose weights are (I, O), a loss and a batch."""
    rng = np.random.default_rng(0)
    i, h, o = sizes
    given = {"w": rng.standard_normal((i, h)), "v": rng.standard_normal((h, o)), "c": rng.standard_normal(o)}
    x = rng.standard_normal((4, i))
    network = gb.trace(lambda p, x: np.maximum(x @ p["w"], 0) @ p["v"] + p["c"], given, x)
    return network, losses.CrossEntropyLoss(), x, rng.integers(0, o, 4)


@pytest.mark.parametrize("sizes", [(3, 4, 2), (3, 3, 3)])
def test_no_alarm_where_outputs_are_the_second_axis_of_a_weight(sizes):
    report = check_symmetries(*of_a_function(sizes))
    report.assert_ok()
    judged = {(row.method, row.claim) for row in report.rows if row.verdict == "ok"}
    assert judged >= {*itertools.product(["BatchGrad", "DiagGGN", "KFLR"], [*OF_WEIGHTS, "Identity inserted"])}
    assert ("KFLR", "of one sample is exact for layers of vectors") in judged
    (row,) = [row for row in report.rows if row.claim == "linear layers as 1×1 convolutions, and back"]
    assert row.problem == "no linear layer of vectors with a weight (O, I), no 1×1 convolution"


def numbered(found):
    """Multiply each output by a number of its own."""
    return found * np.arange(1, 1 + found.shape[-1])


@pytest.mark.parametrize(("quantity", "wrong", "claims"), [
    (q.DiagGGN, lambda found: numbered(found), OF_WEIGHTS[:2]),
    (q.KFLR, lambda found: q.Kronecker(found.A, numbered(found.B)), OF_WEIGHTS[:2]),
    (q.KFLR, lambda found: found if found.A is None else q.Kronecker(numbered(found.A), found.B), OF_WEIGHTS[1:2]),
    (q.DiagGGN, lambda found: found**2, OF_WEIGHTS[2:]),
])  # fmt: skip
def test_faults_of_a_weight_whose_second_axis_is_that_of_outputs_are_caught(quantity, wrong, claims, monkeypatch):
    sound = quantity.finish
    monkeypatch.setattr(quantity, "finish", lambda self, *given: wrong(sound(self, *given)))
    failures = check_symmetries(*of_a_function(), only=claims).failures
    assert {(row.method, row.claim) for row in failures} == {(quantity.__name__, claim) for claim in claims}


@pytest.mark.parametrize(("most", "left"), [(4, {"KFLR"}), (5, {"KFLR", "KFRA", "DiagHessian"})])
def test_of_too_many_features_what_needs_dense_columns_is_left_out(most, left, monkeypatch):
    monkeypatch.setattr(symmetries, "FEATURES", most)
    network = gb.Sequential(layers.Linear(3, 5), layers.Tanh(), layers.Linear(5, 2), rng=0, dtype="float64")
    report = check_symmetries(network, losses.MSELoss(), np.ones((2, 3)), np.ones((2, 2)), only=[SYMMETRIES[0].name])
    assert {row.method for row in report.rows} & {"KFLR", "KFRA", "DiagHessian"} == left


def test_what_does_not_apply_says_why():
    network, x, y = big_chain("float64")
    report = check_symmetries(network, losses.HuberLoss(), x[:1], np.eye(5)[y[:1]])
    report.assert_ok()
    reasons = {row.claim: row.problem for row in report.rows if row.verdict == "not given"}
    assert reasons["groups as separate convolutions"] == "no convolution with groups"
    assert reasons["the batch split and merged"] == "one sample cannot be split"
    assert reasons["logits + constant"] == "for cross entropy of logits"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_alarm_where_all_is_0_but_for_rounding(dtype):
    """A loss of 0, and equal samples, of which gradients have no variance."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 3)).astype(dtype), rng.standard_normal((1, 2)).astype(dtype)
    network = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype=dtype)
    check_symmetries(network, losses.MSELoss(), x, network(x)).assert_ok()
    report = check_symmetries(network, losses.MSELoss(), x[[0, 0, 0]], y[[0, 0, 0]])
    report.assert_ok()
    judged = {row.method for row in report.rows if row.claim == "each sample twice" and row.verdict == "ok"}
    assert judged >= {"backward", "BatchGrad", "DiagGGN", "KFAC"}
    assert "Variance" not in judged


@pytest.mark.parametrize(("dtype", "x"), [("float32", [33, 34, 35]), ("float32", [1, 2, 33]), ("float64", [80, 1, 2])])
def test_no_alarm_where_no_counts_are_drawn(dtype, x):
    """Rates are so large that rounding hides single counts, of all samples or of one."""
    network = gb.Sequential(layers.Linear(1, 1), rng=0, dtype=dtype)
    network.parameters["0.weight"], network.parameters["0.bias"] = np.ones((1, 1)), np.zeros(1)
    report = check_symmetries(network, losses.PoissonNLLLoss(), np.array(x, dtype)[:, None], np.ones((3, 1)))
    report.assert_ok()
    judged = {row.method for row in report.rows if row.verdict == "ok"}
    assert judged >= {"backward", "BatchGrad", "DiagGGN", "DiagHessian"}
    assert not judged & {"DiagGGNMC", "KFAC"}


class Floor(layers.Elementwise):
    """⌊8 x⌋ / 8, which by chance is twice as large for twice the input at some samples."""

    curvature = "zero"

    def value(self, x):
        return np.floor(8 * x) / 8

    def first(self, x, y):
        return 0 * x


def test_no_alarm_where_few_samples_look_homogeneous():
    x = np.array([[0.26], [0.52], [0.32], [0.44]])  # of 0.32 twice ⌊8 x⌋ is 4, and ⌊16 x⌋ is 5
    network = gb.Sequential(layers.Linear(1, 1), Floor(), layers.Linear(1, 1), rng=0, dtype="float64")
    network.parameters["0.weight"], network.parameters["0.bias"] = np.ones((1, 1)), np.zeros(1)
    report = check_symmetries(network, losses.MSELoss(), x, 0 * x, only=["W₁ × 2, W₂ / 2"])
    assert {row.verdict for row in report.rows if row.method == "backward"} == {"not given"}, report


def test_the_network_stays_as_it_is_and_nonsense_is_a_row():
    network, x, y = big_chain("float32")
    before = network.state_dict()
    check_symmetries(network, losses.CrossEntropyLoss(), x[:3], y[:3])
    assert all((network.state_dict()[name] == value).all() for name, value in before.items())
    assert not check_symmetries(network, losses.CrossEntropyLoss(), x[:, :4], y).ok
    assert not check_symmetries(network, None, x, y).ok
    assert len({each.name for each in SYMMETRIES}) == len(SYMMETRIES) == 20


def test_a_loss_of_bits_is_written_as_one_of_classes_whatever_the_shape_of_the_outputs():
    network = gb.Sequential(layers.Linear(4, 6), layers.Tanh(), layers.Unflatten(1, (2, 1, 3)), rng=0, dtype="float64")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 4)), rng.integers(0, 2, (5, 2, 1, 3)).astype("float64")
    rows = check_symmetries(network, losses.BCEWithLogitsLoss(), x, y).rows
    found = {row.method: row.verdict for row in rows if row.claim == "the loss written as another"}
    assert [found[name] for name in ("backward", "BatchGrad", "DiagGGN", "DiagHessian")] == ["ok"] * 4


ENTRIES = np.ones(1000)
ENTRIES[:2] = 1.01, 0.9905  # as a whole they are nearly right


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_what_is_off_is_found_whatever_the_unit_of_the_numbers(size):
    quantity, noise = q.BatchGrad(), object.__new__(Noise)
    noise.eps, noise.tolerance, noise.found = 1e-16, 1e-10, {id(quantity): {"w": np.zeros(2)}}
    want = size * np.arange(1.0, 5.0)
    for off in (1e-9 * size, 1.0 * size):
        sides = {"w": want + off * np.eye(4)[1]}, {"w": want}
        assert _compared(noise.compared(quantity, sides, "the same before"), None)["verdict"] == "FAILED"


@pytest.mark.parametrize(("moves", "got"), [((0.0, 0.0), ENTRIES), ((0.1, 0.0), 1.0001 * np.ones(1000))])
def test_what_is_off_is_found_by_entry_or_as_a_whole_by_what_is_allowed_for_each(moves, got):
    """Single entries beyond their tolerance, or all by a factor, where rounding moves single ones more."""
    quantity, noise = q.BatchGrad(), object.__new__(Noise)
    noise.eps, noise.tolerance, noise.found = 1e-16, 1e-5, {id(quantity): {"w": np.array(moves)}}
    found = noise.compared(quantity, ({"w": got}, {"w": np.ones(1000)}), "the same before")
    assert np.max(np.abs(found.got["w"] - found.want["w"])) > found.tolerance


def test_a_gradient_is_as_exact_along_directions_across_it():
    """Where the change of the loss is a third of what it is along the gradient, so is the error that is allowed."""

    def call(network, loss, x, y, *asked, scale, **options):
        found = gb.backward(network, loss, x, y, *asked, **options)
        return replace(found, gradient={name: scale * value for name, value in found.gradient.items()})

    def compared(scale):
        network = gb.Sequential(layers.Linear(2, 1, bias=False), rng=0, dtype="float64")
        given = losses.MSELoss(), np.array([[3.0, 4.0]]), np.ones((1, 1))
        posed = Posed(network, *given, call=partial(call, scale=scale))
        return _loss_follows(posed, "0.weight", np.array([[-1.0, 1.5]]))  # 3 of 5 · 1.8

    assert _compared(compared(1.0), None)["verdict"] == "ok"
    assert _compared(compared(1 + 2 * compared(1.0).tolerance), None)["verdict"] == "FAILED"


def test_what_draws_nothing_is_judged_where_nothing_can_be_drawn():
    network = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64")
    asked = [q.EKFAC(fisher="empirical"), q.EKFAC()]
    report = check_symmetries(network, losses.HuberLoss(), np.ones((3, 3)), np.eye(3)[:, :2], quantities=asked)
    assert {row.method for row in report.rows if row.verdict == "ok"} & {"EKFAC"} == {"EKFAC"}
    report.assert_ok()


@pytest.mark.parametrize("fisher", ["mc", "exact", "empirical", "forward-only"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_no_alarm_on_the_conventions_of_kfac(fisher, reduction):
    kinds = [q.KFAC, q.EKFAC] if fisher != "forward-only" else [q.KFAC]
    conventions = itertools.product(kinds, ["bias", "expand", "reduce"], [False, True])
    asked = [kind(fisher=fisher, sharing=sharing, joint_bias=joint) for kind, sharing, joint in conventions]
    rng, dense = np.random.default_rng(0), [layers.Linear(12, 5), layers.ReLU(), layers.Linear(5, 3)]
    network = gb.Sequential(layers.Conv1d(2, 3, 2), layers.Tanh(), layers.Conv1d(3, 4, 1), layers.Flatten(), *dense)
    x, y = rng.standard_normal((6, 2, 4)), rng.standard_normal((6, 3))
    scaled = ["the loss × 3", "sum = N × mean", *OF_WEIGHTS]
    report = check_symmetries(network, losses.MSELoss(reduction=reduction), x, y, quantities=asked, only=scaled)
    report.assert_ok()
    for kind, count in zip(kinds, [9, 6], strict=False):  # three of KFAC are asked for anyway
        judged = [row.claim for row in report.rows if row.method == kind.__name__ and row.verdict == "ok"]
        assert {name: judged.count(name) for name in scaled} == dict.fromkeys(scaled, count)


@pytest.mark.parametrize("joint", [False, True])
def test_no_alarm_on_factors_that_share_their_scale(joint):
    """Of the closest product ‖A‖ = ‖B‖: where a weight is doubled, neither is that of KFAC."""
    network = gb.Sequential(layers.Linear(4, 5), layers.ReLU(), layers.Linear(5, 3), rng=0, dtype="float64")
    rng, asked = np.random.default_rng(0), [q.NearestKronecker(joint_bias=joint)]
    batch = rng.standard_normal((6, 4)), rng.standard_normal((6, 3))
    report = check_symmetries(network, losses.MSELoss(), *batch, quantities=asked, only=OF_WEIGHTS)
    report.assert_ok()
    verdicts = {row.claim: row.verdict for row in report.rows if row.method == "NearestKronecker"}
    assert verdicts["linear layers split into two"] == verdicts["W₁ × 2, W₂ / 2"] == "not given"
    assert verdicts["hidden units permuted"] == "ok"


@pytest.mark.parametrize("of", [q.KFLR(), q.KFAC(fisher="exact", joint_bias=True)], ids=repr)
def test_the_error_of_a_block_is_judged_by_the_norm_of_the_block(of):
    network = gb.Sequential(layers.Linear(4, 5), layers.ReLU(), layers.Linear(5, 3), rng=0, dtype="float64")
    batch = np.random.default_rng(0).standard_normal((2, 6, 4))
    report = check_symmetries(network, losses.MSELoss(), batch[0], batch[1, :, :3], quantities=[q.KroneckerError(of)])
    report.assert_ok()
    judged = {row.claim for row in report.rows if row.method == "KroneckerError" and row.verdict == "ok"}
    assert judged > {*OF_WEIGHTS}


def test_what_is_no_network_is_a_row():
    (row,) = check_symmetries(None, losses.MSELoss(), np.zeros((2, 3)), np.zeros((2, 3))).rows
    assert (row.claim, row.verdict) == ("takes the batch", "FAILED")
