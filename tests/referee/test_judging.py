"""The referee finds right libraries right, and planted faults of an adapter for what they are."""

from math import prod

import numpy as np
import pytest
from numpy_models import softmax
from own_engine import ADAPTER as ENGINE
from plain_library import ADAPTER

import gbackprop as gb
from gbackprop.testing import referee
from gbackprop.testing.referee.posed import FAMILIES, problems
from gbackprop.testing.referee.verdicts import FEWEST, checked

KNOWN = {}


def once(function):
    """A function of a problem, computed once for each."""

    def known(problem):
        key = (function, problem.family, problem.loss, problem.reduction, len(problem.x))
        if key not in KNOWN:
            KNOWN[key] = function(problem)
        return KNOWN[key]

    return known


BRUTE, DRAWS = once(referee.Brute), once(ENGINE["diag_ggn_mc"])


def judged(families=("ReLU",), **adapter):
    return {(each.quantity, each.claim): each for each in referee.judge(adapter, families, brute=BRUTE)}


def scaled(name, factor):
    """The adapter's function times a number that depends on the problem."""
    return lambda problem: {key: factor(problem) * value for key, value in ADAPTER[name](problem).items()}


CLAIMS = {"permuted", "repeated", "shifted", "sum and mean"}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sizes_of_a_problem_are_those_of_its_arrays(family):
    for problem in (problem for group in problems(family) for problem in group):
        network, loss = problem.build()
        shape, c = problem.x.shape[1:], network(problem.x).size / len(problem.x)
        for name, layer in network.named_layers():
            shape = layer.output_shape(shape)
            for key, value in layer.parameters.items():
                assert problem.sizes(f"{name}.{key}") == {"N": len(problem.x), "C": c, "T": prod(shape) / len(value)}
        assert problem.sizes("") == {"N": len(problem.y), "C": c, "T": 1}
        loss.check_target("y", problem.y, network(problem.x))


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"positions"}))
def test_no_class_is_so_unlikely_that_few_draws_would_miss_it(family):
    for problem in problems(family)[0]:
        assert problem.loss == "CrossEntropyLoss"
        assert softmax(problem.build()[0](problem.x)).min() > 1e-3


@pytest.mark.parametrize("family", ["MLP", "ReLU"])
def test_a_library_in_plain_numpy_is_right_everywhere(family):
    found = referee.judge(ADAPTER, [family], brute=BRUTE)
    assert {each.verdict for each in found} == {"right"}, [each for each in found if each.verdict != "right"]
    for name in ADAPTER:
        relations = set() if name == "batch_grad" else {"relations"}
        assert {each.claim for each in found if each.quantity == name} == {family} | CLAIMS | relations


EXACT = {name: function for name, function in ENGINE.items() if not referee.DEFINITIONS[name].drawn}


def test_our_engine_is_right_for_each_definition():
    assert set(ENGINE) == set(referee.DEFINITIONS)
    found = referee.judge(EXACT, ["ReLU"], brute=BRUTE)
    assert {each.verdict for each in found} == {"right"}, [each for each in found if each.verdict != "right"]
    assert {each.claim for each in found} == {"ReLU", "relations", "labels"} | CLAIMS
    without_labels = {"diag_ggn", "batch_diag_ggn", "kfac_exact_bias", "kfra"}  # of H alone, which has none
    assert {each.quantity for each in found if each.claim == "labels"} == without_labels


@pytest.mark.long
@pytest.mark.parametrize("family", ["MLP", "convolution", "groups", "sequence", "positions"])
def test_our_engine_is_right_for_other_networks(family):
    found = referee.judge(ENGINE, [family])
    assert {each.verdict for each in found} == {"right"}, [each for each in found if each.verdict != "right"]


def test_what_depends_on_no_labels_has_that_claim_and_no_other():
    found = judged(diag_ggn=ENGINE["diag_ggn"], batch_grad=ADAPTER["batch_grad"])
    assert ("diag_ggn", "labels") in found
    assert ("batch_grad", "labels") not in found


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (lambda p: len(p.x), "× N"),
        (lambda p: 1 / (2 * len(p.x) ** 2), "× 1/2 · 1/N²"),
        (lambda p: 3**0.5, "× √C"),
        (lambda p: 3 / len(p.x), "× C · 1/N"),
        (lambda p: len(p.x) if p.reduction == "mean" else 1, "× N (mean)"),
        (lambda p: 0.5 if p.loss == "MSELoss" else 1, "× 1/2 (MSELoss)"),
    ],
)
def test_a_factor_is_named_with_where_it_is(factor, text):
    found = judged(gradient=scaled("gradient", factor))["gradient", "ReLU"]
    assert (found.verdict, found.detail) == ("factor", text)


def test_a_factor_of_positions_belongs_to_the_layer_that_has_them():
    def by_layer(problem):
        return {key: value * (5 if key[0] == "0" else 1) for key, value in ENGINE["gradient"](problem).items()}

    found = judged(["sequence"], gradient=by_layer)["gradient", "sequence"]
    assert (found.verdict, found.detail) == ("factor", "× T")


@pytest.mark.parametrize(
    "factor",
    [
        lambda p: -1.0,
        lambda p: 1.37,
        lambda p: len(p.x) + 1.0,
        lambda p: 7.0,  # N of the first batch size: the others refute it
        lambda p: 7.0 if len(p.x) == 7 else 1.0,
    ],
)
def test_a_number_that_no_sizes_explain_is_wrong(factor):
    assert judged(gradient=scaled("gradient", factor))["gradient", "ReLU"].verdict == "wrong"


def test_a_number_that_is_wrong_for_one_sample_alone_is_wrong():
    found = judged(gradient=scaled("gradient", lambda p: 1.0 if len(p.x) > 1 else 2.0))["gradient", "ReLU"]
    assert found.verdict == "wrong"
    assert "got" in found.detail


def test_a_transpose_is_wrong_with_the_worst_entry_or_the_shape():
    def transposed(problem):
        return {key: value.T for key, value in ADAPTER["gradient"](problem).items()}

    found = judged(gradient=transposed)["gradient", "ReLU"]
    assert (found.verdict, found.detail) == ("wrong", "0.weight: shape (5, 8), expected (8, 5)")

    def mixed(problem):
        return {key: value[::-1] for key, value in ADAPTER["gradient"](problem).items()}

    assert judged(gradient=mixed)["gradient", "ReLU"].detail.count("got") >= 1


def test_nan_is_wrong():
    assert judged(gradient=scaled("gradient", lambda p: np.nan))["gradient", "ReLU"].verdict == "wrong"


@pytest.mark.parametrize(
    ("result", "detail"),
    [
        (lambda values: None, "nothing for 0.weight"),
        (lambda values: {}, "nothing for 0.weight"),
        (lambda values: values | {"2.weight": None}, "nothing for 2.weight"),
        (lambda values: {key: value for key, value in values.items() if key != "2.bias"}, "nothing for 2.bias"),
    ],
)
def test_what_is_missing_without_an_error_is_silent(result, detail):
    found = judged(gradient=lambda problem: result(ADAPTER["gradient"](problem)))["gradient", "ReLU"]
    assert found.verdict == "silent"
    assert detail in found.detail


def test_an_error_is_a_refusal_with_its_message_and_stops_nothing():
    def refusing(problem):
        raise NotImplementedError("no sums") if problem.reduction == "sum" else ValueError("no means")

    found = judged(gradient=refusing, batch_grad=ADAPTER["batch_grad"])
    assert found["gradient", "ReLU"].verdict == "refused"
    assert "NotImplementedError: no sums (sum)" in found["gradient", "ReLU"].detail
    assert found["batch_grad", "ReLU"].verdict == "right"
    assert ("gradient", "relations") not in found


def test_the_worst_verdict_of_a_cell_is_shown():
    def partly(problem):
        if problem.reduction == "sum":
            raise ValueError("no")
        return scaled("gradient", lambda p: 1.37)(problem)

    assert judged(gradient=partly)["gradient", "ReLU"].verdict == "wrong"


def test_relations_need_no_definition_but_both_numbers():
    norms = scaled("batch_l2", lambda p: 1.1)
    found = judged(batch_l2=norms, batch_grad=ADAPTER["batch_grad"])
    assert found["batch_l2", "relations"].verdict == "wrong"
    assert ("batch_l2", "relations") not in judged(batch_l2=norms)


def test_each_symmetry_finds_its_fault():
    weights = np.arange(1.0, 20.0)

    def by_place(problem):  # depends on the place of a sample in the batch
        each = ADAPTER["batch_grad"](problem)
        return {k: np.einsum("n,n...->...", weights[: len(problem.x)], v) for k, v in each.items()}

    assert judged(gradient=by_place)["gradient", "permuted"].verdict == "wrong"
    unbiased = scaled("gradient", lambda p: 1 / (len(p.x) - 0.5))
    assert judged(gradient=unbiased)["gradient", "repeated"].verdict == "wrong"
    assert judged(["MLP"], diag_ggn=ENGINE["diag_hessian"])["diag_ggn", "labels"].verdict == "wrong"
    clipped = lambda problem: {k: np.minimum(v, 0.01) for k, v in ADAPTER["gradient"](problem).items()}  # noqa: E731
    assert judged(gradient=clipped)["gradient", "sum and mean"].verdict == "wrong"
    raw = lambda p: {k: v + p.parameters["2.bias"][0] for k, v in ADAPTER["gradient"](p).items()}  # noqa: E731
    assert judged(gradient=raw)["gradient", "shifted"].verdict == "wrong"
    odd = scaled("gradient", lambda p: 1.1 if p.reduction == "sum" else 1.0)
    assert judged(gradient=odd)["gradient", "sum and mean"].verdict == "wrong"


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "right"), (2.0, "factor"), (5.0, "wrong")])
def test_means_of_draws_are_judged_within_their_errors(factor, verdict):
    draws = lambda problem: {key: factor * value for key, value in DRAWS(problem).items()}  # noqa: E731
    found = judged(diag_ggn_mc=draws)["diag_ggn_mc", "ReLU"]
    assert found.verdict == verdict, found


def test_another_convention_is_tried_before_a_number_is_called_wrong():
    definition = referee.DEFINITIONS["gradient"]
    others = {"squared": lambda brute: {k: v**2 for k, v in definition.values(brute).items()}}
    mine = {"gradient": referee.Definition("∇L", definition.values, others=others)}

    def squares(problem):
        return {key: 3 * value**2 for key, value in ADAPTER["gradient"](problem).items()}

    found = {each.claim: each for each in referee.judge({"gradient": squares}, ["ReLU"], mine)}["ReLU"]
    assert (found.verdict, found.detail) == ("factor", "squared × C")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({"kfca": ADAPTER["gradient"]},), "adapter: expected names in gradient, batch_grad"),
        ((ADAPTER, ["mlp"]), "families: expected names in MLP, ReLU"),
    ],
)
def test_unknown_names_are_an_error_before_anything_is_computed(arguments, words):
    with pytest.raises(ValueError, match=words):
        referee.judge(*arguments)


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("gradient", None, "adapter: expected a function for 'gradient', got NoneType"),
        ("gradient", lambda p: np.zeros(3), "gradient: expected arrays by parameter, got ndarray"),
        (
            "gradient",
            lambda p: dict.fromkeys(p.parameters, "0"),
            "gradient: 0.weight: expected an array of real numbers",
        ),
        (
            "gradient",
            lambda p: {k: 1j * v for k, v in p.parameters.items()},
            "expected an array of real numbers, got nd",
        ),
        ("diag_ggn_mc", lambda p: {k: v[None] for k, v in p.parameters.items()}, "0.weight: expected 8 draws or more"),
    ],
)
def test_an_adapter_that_gives_no_result_of_numbers_is_an_error(name, function, words):
    with pytest.raises((TypeError, ValueError), match=words):
        judged(**{name: function})


def test_as_many_draws_as_are_asked_for_are_enough():
    assert checked({"": np.zeros((FEWEST, 2))}, {"": np.zeros(2)}, True)[0] == ""


def test_other_names_are_said_where_nothing_is_found():
    renamed = lambda p: {k.replace("weight", "kernel"): v for k, v in ADAPTER["gradient"](p).items()}  # noqa: E731
    found = judged(gradient=renamed)["gradient", "ReLU"]
    assert found.verdict == "silent"
    assert "nothing for 0.weight, 2.weight; there is " in found.detail
    assert "'0.kernel'" in found.detail


def test_the_package_has_the_referee_by_its_short_name():
    assert gb.referee is referee
    with pytest.raises(AttributeError, match="has no attribute 'umpire'"):
        gb.umpire  # noqa: B018
