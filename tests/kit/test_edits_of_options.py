"""Edits of options, parameters, layers and methods of a subject, by name."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses
from gbackprop.calculus.layer import leaves_of
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.testing import check_layer, check_loss
from gbackprop.testing.diagnosis.arguments import ARRAYS, of_arrays, of_definitions
from gbackprop.testing.diagnosis.care import CARE, DRAWS, RESULTS, _draws, of_care, of_methods
from gbackprop.testing.diagnosis.options import _others, of_leaves, of_options, with_option
from gbackprop.testing.diagnosis.terms import constants_of
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.probe import Probe

RNG = np.random.default_rng(0)
NUMBERS = {
    "0": 0, "1": 1, "its negative": -0.25, "larger by 1": 1.25, "smaller by 1": -0.75, "doubled": 0.5, "halved": 0.125,
    "squared": 0.0625, "1 over it": 4, "1 less it": 0.75,
}  # fmt: skip
"""Of 0.25, each number once: its square root is twice that."""


def edits(subject):
    return {words: (cost, change) for cost, words, change in of_options(subject)}


def test_numbers_have_their_default_and_what_is_near():
    layer = L.LeakyReLU(0.25)
    found = edits(layer)
    got = {words: (cost, change(layer).negative_slope) for words, (cost, change) in found.items()}
    assert got.pop("negative_slope were 0.01, its default") == (1, 0.01)
    assert got == {f"negative_slope were {words}": (1.2, value) for words, value in NUMBERS.items()}
    assert layer.negative_slope == 0.25
    zero = {words: change(L.LeakyReLU(0.0)).negative_slope for words, (_, change) in edits(L.LeakyReLU(0.0)).items()}
    wanted = {"0.01, its default": 0.01, "1": 1}
    assert zero == {f"negative_slope were {words}": value for words, value in wanted.items()}


class Leaky(L.LeakyReLU):
    slope, weights = 0.5, (1.0, 2.0)


class MoreLeaky(Leaky):
    slope, weights = 0.25, (3.0, 4.0)


def test_an_option_of_a_subclass_is_the_one_that_is_changed():
    found = {words: change for words, (_, change) in edits(MoreLeaky()).items() if words.startswith("slope were")}
    got = {words: change(MoreLeaky()).slope for words, change in found.items()}
    assert got == {f"slope were {words}": value for words, value in NUMBERS.items()}
    (weights,) = (value for name, value in constants_of(MoreLeaky()) if name == "weights")
    np.testing.assert_array_equal(weights, [3, 4])


def test_parameters_have_other_entries():
    (layer,) = gb.Sequential(L.Linear(2, 2), rng=0, dtype="float64").layers
    before = layer.parameters["weight"].copy()
    before[...] = layer.parameters["weight"][...] = [[0.25, 1], [4, 16]]
    found = {words: (cost, change(layer).parameters["weight"]) for words, (cost, change) in edits(layer).items()
             if words.startswith("weight were ")}  # fmt: skip
    wanted = {
        "0": 0 * before, "1": 0 * before + 1, "its negative": -before, "larger by 1": before + 1,
        "smaller by 1": before - 1, "doubled": 2 * before, "halved": before / 2, "squared": before * before,
        "its square root": [[0.5, 1], [2, 4]], "1 over it": [[4, 1], [0.25, 0.0625]],
        "1 less it": [[0.75, 0], [-3, -15]], "reversed": [[4, 16], [0.25, 1]],
        "transposed": before.T, "its first for all": [[0.25, 1], [0.25, 1]],
    }  # fmt: skip
    assert {f"weight were {words}" for words in wanted} == set(found)
    for words, want in wanted.items():
        cost, got = found[f"weight were {words}"]
        assert cost == pytest.approx(1.7)
        np.testing.assert_array_equal(got, want, words)
    np.testing.assert_array_equal(layer.parameters["weight"], before)


class Refusing(L.Layer):
    """The sum of two features, which says of any shape that it is taken."""

    def output_shape(self, shape):
        return (1,)

    def forward(self, x):
        return x @ np.ones((2, 1), x.dtype), x.shape

    def mjp(self, shape, mat):
        return np.repeat(mat, 2, 2)

    def jmp(self, shape, mat):
        return mat.sum(2, keepdims=True)


class Temperature(L.Layer):
    """A parameter and an option that are arrays of shape ()."""

    def __init__(self):
        self.option = np.array(0.25)

    def parameter_shapes(self):
        return {"a": ()}

    def draw(self, rng):
        return {"a": np.array(0.25)}


def test_arrays_without_axes_are_other_numbers():
    (layer,) = gb.Sequential(Temperature(), rng=0, dtype="float64").layers
    found = edits(layer)
    wanted = NUMBERS | {"its square root": 0.5}
    for name, value in (("a", lambda layer: layer.parameters["a"]), ("option", lambda layer: layer.option)):
        got = {words: value(change(layer)) for words, (_, change) in found.items() if words.startswith(f"{name} were ")}
        assert got == {f"{name} were {words}": number for words, number in wanted.items()}


def test_flags_are_turned_and_tuples_have_their_entries_in_other_orders():
    loss = losses.HuberLoss(delta=2.0)
    found = edits(loss)
    assert [found[f"{name} were {value}"][0] for name, value in (("weighted", True), ("ends", False))] == [1, 1]
    assert found["weighted were True"][1](loss).weighted is True
    layer = L.Permute((0, 2, 1))
    cost, change = edits(layer)["dims were (0, 1, 2)"]
    assert (cost, change(layer).dims) == (1.3, (0, 1, 2))
    softplus = L.Softplus(2.0, 10.0)
    cost, change = edits(softplus)["all options had their defaults"]
    assert (cost, vars(change(softplus))["beta"], vars(change(softplus))["threshold"]) == (1.1, 1.0, 20.0)


def test_layers_of_a_network_are_others_exchanged_or_placed_elsewhere():
    net = gb.Sequential(L.Linear(3, 4), L.LeakyReLU(0.25), L.Softplus(2.0), L.Linear(4, 2), rng=0, dtype="float64")
    leaves = leaves_of(net, (3,))
    found = {words: (cost, changed) for cost, words, changed in of_leaves(leaves, [4.0])}
    shown = {
        "1 were Tanh()": (1.5, 1, L.Tanh()), "2 were ReLU()": (1.5, 2, L.ReLU()),
        "of 1 negative_slope were 0.01, its default": (1.2, 1, L.LeakyReLU()),
        "of 1 negative_slope were doubled": (1.4, 1, L.LeakyReLU(0.5)),
        "of 1 negative_slope were 2": (1.7, 1, L.LeakyReLU(2.0)),
        "of 2 beta were 0.5": (1.7, 2, L.Softplus(0.5)), "1 and 2 were exchanged": (1.8, 1, L.Softplus(2.0)),
    }  # fmt: skip
    for words, (cost, place, layer) in shown.items():
        assert (found[words][0], repr(found[words][1][place].layer)) == (pytest.approx(cost), repr(layer))
        assert len(found[words][1]) == 4
    assert "2 were Softplus()" not in found
    moved = {words: changed for words, (cost, changed) in found.items() if cost == 1.7 and "input" in words}
    places = [(3, k) for k in (0, 1, 2)] + [(2, k) for k in (0, 1)] + [(1, 0)]
    wanted = {f"input 0 of {at} were {k}": (at, k) for at, k in places}
    wanted |= {f"input 0 of {at} were the input": (at, -1) for at in range(4)}
    assert set(moved) == set(wanted)
    for words, (at, k) in wanted.items():
        sources = [(k,) if i == at else leaf.sources for i, leaf in enumerate(leaves)]
        assert [leaf.sources for leaf in moved[words]] == sources
    join = [replace(leaves[1], layer=L.Add())]
    (one, *_) = of_leaves(join, [])
    assert (one[0], one[1], type(one[2][0].layer)) == (1.4, "every Add were Multiply", L.Multiply)


def test_a_shape_may_be_an_option():
    probe = Probe.at(L.AdaptiveAvgPool2d((2, 3)), RNG.standard_normal((5, 1, 4, 6)), None, False, RNG)
    found = {words: change for _, words, change in of_care("output_shape", probe)}
    (changed,) = found["the last axes of its result were output_size"]((probe,))
    assert changed.layer.output_shape((7, 4, 6)) == (7, 2, 3)


def test_an_edit_costs_less_than_two_others():
    for table in (ARRAYS, CARE, DRAWS):
        assert [words for words, (cost, _) in table.items() if not 1 <= cost < 2] == []


def test_edits_of_what_a_probe_has():
    probe = Probe.at(L.Tanh(), RNG.standard_normal((3, 4)), None, False, RNG)
    found = {words: (cost, change) for cost, words, change in of_arrays((7, probe))}
    cost, change = found["the input had the other sign"]
    assert (cost, change((7, probe))[0]) == (1.5, 7)
    np.testing.assert_array_equal(change((7, probe))[1].x, -probe.x)
    cost, change = found["the columns were squared"]
    assert cost == 1.1
    np.testing.assert_array_equal(change((probe,))[0].columns, probe.columns**2)
    cost, change = found["the input had axis 1 moved on by one"]
    assert cost == pytest.approx(1.4)
    np.testing.assert_array_equal(change((probe,))[0].x, np.roll(probe.x, 1, 1))
    cost, change = found["the tangents had gone through jmp"]
    assert cost == 1.5
    np.testing.assert_allclose(change((probe,))[0].tangents, probe.tangents * (1 - np.tanh(probe.x) ** 2))
    with pytest.raises(ValueError, match=r"^expected shape \(3, 4\), got \(4, 3\)"):
        found["the input had axes 0 and 1 exchanged"][1]((probe,))
    labels = LossProbe(losses.CrossEntropyLoss(), RNG.standard_normal((3, 4)), np.array([0, 3, 1]), "")
    found = {words: (cost, change) for cost, words, change in of_arrays((labels,))}
    for words, want in (("next", [1, 0, 2]), ("previous", [3, 2, 0])):
        cost, change = found[f"the target were the {words} class"]
        assert (cost, list(change((labels,))[0].target)) == (1, want)


GIVEN = {
    "its result were larger by 1": 1.2, "its result were smaller by 1": 1.2, "its result were doubled": 1.3,
    "its result were halved": 1.3, "its result were 1 minus it": 1.4,
}  # fmt: skip


def test_edits_of_methods():
    costs = {words: cost for words, (cost, _) in (CARE | RESULTS).items()}
    assert {words: costs[words] for words in GIVEN} == GIVEN
    assert min(costs, key=lambda words: costs[words]) == "its arguments were copied"
    wrap = {words: wrapper(lambda y, f=None: y, None, "") for words, (_, wrapper) in (CARE | RESULTS).items()
            if words not in ("it were the inherited one",)}  # fmt: skip
    assert [int(wrap[words](5)) for words in GIVEN] == [6, 4, 10, 2, -4]
    cube = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(wrap["its result had no last axis"](cube), cube[..., 0])
    np.testing.assert_array_equal(wrap["its result had no first axis"](cube), cube[0])
    assert (wrap["its result had no last axis"]((2, 3)), wrap["its result had no first axis"]((2, 3))) == ((2,), (3,))
    np.testing.assert_array_equal(wrap["the last axes of its result were exchanged"](cube), cube.swapaxes(1, 2))
    np.testing.assert_array_equal(wrap["the last three axes of its result were reversed"](cube), cube.T)
    assert wrap["its shapes were reversed"]({"w": (2, 3)}) == {"w": (3, 2)}
    for words, want in (("next", [1, 0]), ("previous", [2, 1])):
        cost, wrapper = DRAWS[f"the {words} class were drawn"]
        assert (cost, list(wrapper(lambda f: np.array([0, 2]), None, "")(np.zeros((2, 3))))) == (1.2, want)
    for words, want in (("√2 times", 2 + 2**0.5), ("1/√2 times", 2 + 0.5**0.5), ("twice", 4), ("half", 2.5)):
        cost, wrapper = DRAWS[f"draws were {words} as far from the output"]
        assert (cost, wrapper(lambda f: 3.0, None, "")(2.0)) == (1.3, pytest.approx(want))


def test_draws_may_be_as_far_off_as_a_positive_array_of_the_loss_says():
    loss = losses.MSELoss()
    loss.spread, loss.shift, loss.rate = np.array([0.25, 4.0]), np.array([0.0, 1.0]), 0.2
    found = _draws(loss)
    for form, want in (("spread", [2.25, 6]), ("1/spread", [6, 2.25]), ("√spread", [2.5, 4]), ("1/√spread", [4, 2.5])):
        cost, wrapper = found[f"draws were {form} times as far from the output"]
        assert (cost, wrapper(lambda f: f + 1, None, "")(np.full(2, 2.0)).tolist()) == (1.25, want)
    assert "draws were shift times as far from the output" not in found  # of 0 there is no reciprocal
    names = "rate", "(1 − rate)"  # what is computed of an option comes after it
    assert [found[f"draws were {name} times as far from the output"][0] for name in names] == [1.25, 1.45]


class Counting(L.Tanh):
    """tanh, whose derivative is larger in every other call."""

    calls = [0]

    def first(self, x, y):
        Counting.calls[0] += 1
        return super().first(x, y) * (1 + 1e-3 * (Counting.calls[0] % 2))


class Centred(L.Tanh):
    """tanh of the input less its mean, which is subtracted in place."""

    def value(self, x):
        x -= x.mean(1, keepdims=True)
        return np.tanh(x)


class Cancelling(ElementwiseLoss):
    """Σ log cosh (f − y) in a form whose second derivative cancels in float32."""

    def values(self, output, target):
        off = np.where((output - target).real < 0, target - output, output - target)
        return self.summed(off + np.log1p(np.exp(-2 * off)) - np.log(2))

    def gradients(self, output, target):
        return np.tanh(output - target) * self.summed_weight(output.shape[1:])

    def second(self, output, target):
        return 1 - np.tanh(output - target) ** 2


@pytest.mark.parametrize(("report", "claim"), [
    (lambda: check_layer(Counting(), RNG.standard_normal((3, 4))), "is pure"),
    (lambda: check_layer(Centred(), RNG.standard_normal((3, 4))), "is a pure function"),
    (lambda: check_loss(Cancelling(), np.zeros((3, 2)), np.full((3, 2), 9.3)), "float32 stays float32"),
], ids=["pure", "in place", "float32"])  # fmt: skip
def test_what_is_compared_with_itself_is_not_mended_by_another_number(report, claim):
    rows = [row for row in report().failures if row.claim.startswith(claim)]
    assert rows
    words = [each.words for row in rows for each in row.diagnosis]
    assert not [each for each in words if any(word in each for word in ("by 1", "doubled", "halved", "subtracted"))]


def test_shapes_are_refused_by_no_edit_of_arrays():
    report = check_layer(Refusing(), np.ones((3, 2)))
    (row,) = report.failures
    assert row.method == "output_shape"
    assert not [each.words for each in row.diagnosis if "axes of its result were" in each.words]


def test_other_rules_for_the_shape_of_the_output():
    probe = Probe.at(L.Unflatten(1, (2, 3)), np.zeros((2, 6)), None, False, RNG)
    found = {words: (cost, change((probe,))[0].layer.output_shape((6,)))
             for cost, words, change in of_care("output_shape", probe)
             if "axis 0 of its result" in words or "input's shape" in words}  # fmt: skip
    assert found["it gave the input's shape"] == (1.2, (6,))
    assert found["axis 0 of its result were larger by 1"] == (1.2, (3, 3))
    assert found["axis 0 of its result were smaller by 1"] == (1.2, (1, 3))
    rules = {"{1}": 1, "{0} times {1}": 6, "{0} over {1}": 6, "{0} plus {1}": 7, "{0} minus {1}": 5,
             "{0} minus {1} plus 1": 6}  # fmt: skip
    for rule, size in rules.items():
        words = rule.format("the input's axis 0", "dim")
        assert found[f"axis 0 of its result were {words}"] == (1.2, (size, 3)), words
        assert found[f"it gave the input's shape but for axis 0: {words}"] == (1.3, (size,)), words
    assert list(of_care("output_shape", None)) != []


@dataclass(frozen=True)
class Frozen:
    a: float


class Guarded:
    """An option that is written to through a property, which keeps its square."""

    def __init__(self, a):
        self.a = a

    @property
    def a(self):
        return self.square**0.5

    @a.setter
    def a(self, value):
        self.square = value**2


@pytest.mark.parametrize("kind", [Frozen, Guarded])
def test_an_option_is_changed_in_a_copy_however_it_is_kept(kind):
    subject = kind(2.0)
    assert (with_option("a", 3.0, subject).a, subject.a) == (3, 2)


SQUARES = {
    "batch_square": {"": "ᵥ"}, "square": {"Σₙ ": "ᵥ", "Σᵥ ": "ₙ", "": "ᵥₙ"},
    "square_norm": {"Σᵢ ": "ᵥ", "Σᵥ ": "ᵢ", "": "ᵥᵢ"},
}  # fmt: skip


@pytest.mark.parametrize("method", SQUARES)
def test_a_sum_of_squares_may_have_been_the_square_of_a_sum_over_each_of_its_axes(method):
    each, weights, axes = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 3, 1)), {"ᵥ": 0, "ₙ": 1, "ᵢ": 2}
    found = {words: change for _, words, change in of_definitions((method, np.sum)) if "²" in words}
    wanted = {f"it were {outer}(Σ{inner} {sign}Jᵀg)²": (outer[1:-1], inner, sign)
              for outer, inner in SQUARES[method].items() for sign in ("s ", "")}  # fmt: skip
    assert found.keys() == wanted.keys()
    for words, (outer, inner, sign) in wanted.items():
        *_, define = found[words]((method, np.sum))
        square = (each * (weights if sign else 1)).sum(tuple(axes[name] for name in inner), keepdims=True) ** 2
        want = square.sum(tuple(axes[name] for name in outer), keepdims=True)
        np.testing.assert_allclose(np.ravel(define(each, weights)), np.ravel(want), rtol=1e-12)


def test_an_array_that_is_an_option_may_have_been_transposed():
    stack = np.arange(1.0, 19.0).reshape(2, 3, 3)
    found = {words: value for _, words, value in _others(stack, None)}
    np.testing.assert_array_equal(found["transposed in its last two axes"], np.einsum("kij->kji", stack))
    assert "transposed" not in found  # it would be of another shape
    assert "transposed in its last two axes" not in {words for _, words, _ in _others(stack[0], None)}  # named already


@pytest.mark.parametrize("exchanged", [True, False])
def test_a_root_of_the_hessian_may_have_its_columns_for_its_outputs(exchanged):
    class Correlated(losses.MSELoss):
        """ℓ = ½ ‖A (f − y)‖²: the Hessian is Aᵀ A."""

        root = np.array([[1.0, 2.0], [0.0, 3.0]])

        def values(self, output, target):
            return (((output - target) @ self.root.T) ** 2).sum(1) / 2

        def gradients(self, output, target):
            return (output - target) @ self.root.T @ self.root

        def hessian_sqrt(self, output, target, columns=slice(None)):
            root = self.root.T if exchanged else self.root
            return np.repeat(root[columns, None], len(output), axis=1)

    words = "its columns and the outputs were exchanged"
    (edit,) = (edit for _, said, edit in of_methods("hessian_sqrt", ()) if said == words)
    f, y = np.ones((2, 2)), np.zeros((2, 2))
    (loss,) = edit((Correlated("sum"),))
    root = loss.hessian_sqrt(f, y)[:, 0]
    assert np.allclose(root.T @ root, Correlated.root.T @ Correlated.root) is exchanged
    assert words not in [said for _, said, _ in of_methods("gradients", ())]
