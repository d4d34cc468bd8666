"""The referee finds our own engine right, and planted faults of an adapter for what they are."""

import numpy as np
import pytest
from own_engine import ADAPTER

from gbackprop.testing import referee


def judged(families=("MLP",), **adapter):
    return {(each.quantity, each.claim): each for each in referee.judge(adapter, families)}


def scaled(name, factor):
    """The adapter's function times a number that depends on the problem."""
    return lambda problem: {key: factor(problem) * value for key, value in ADAPTER[name](problem).items()}


def test_there_is_a_function_for_each_definition():
    assert set(ADAPTER) == set(referee.DEFINITIONS)


EXACT = {name: function for name, function in ADAPTER.items() if not referee.DEFINITIONS[name].drawn}


@pytest.mark.parametrize("family", ["MLP", "sequence"])
def test_our_engine_is_right_everywhere(family):
    found = referee.judge(EXACT, [family])
    assert {each.verdict for each in found} == {"right"}, [each for each in found if each.verdict != "right"]
    claims = {each.claim for each in found}
    assert claims == {family, "relations", "permuted", "repeated", "labels", "sum and mean"}


@pytest.mark.long
@pytest.mark.parametrize("family", ["MLP", "ReLU", "convolution", "groups", "positions"])
def test_our_engine_is_right_for_other_networks(family):
    found = referee.judge(ADAPTER, [family])
    assert {each.verdict for each in found} == {"right"}, [each for each in found if each.verdict != "right"]


def test_what_depends_on_no_labels_has_that_claim_and_no_other():
    found = judged(diag_ggn=ADAPTER["diag_ggn"], batch_grad=ADAPTER["batch_grad"])
    assert ("diag_ggn", "labels") in found
    assert ("batch_grad", "labels") not in found


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (lambda p: len(p.x), "× N"),
        (lambda p: 1 / (2 * len(p.x) ** 2), "× 1 / (N² 2)"),
        (lambda p: 3**0.5, "× √C"),
        (lambda p: len(p.x) if p.reduction == "mean" else 1, "× N (mean)"),
        (lambda p: 0.5 if p.loss == "MSELoss" else 1, "× 1 / 2 (MSELoss)"),
    ],
)
def test_a_factor_is_named_with_where_it_is(factor, text):
    found = judged(gradient=scaled("gradient", factor))["gradient", "MLP"]
    assert (found.verdict, found.detail) == ("factor", text)


def test_a_factor_of_positions_belongs_to_the_layer_that_has_them():
    def by_layer(problem):
        return {key: value * (5 if key[0] == "0" else 1) for key, value in ADAPTER["gradient"](problem).items()}

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
    assert judged(gradient=scaled("gradient", factor))["gradient", "MLP"].verdict == "wrong"


def test_a_number_that_is_wrong_for_one_sample_alone_is_wrong():
    found = judged(gradient=scaled("gradient", lambda p: 1.0 if len(p.x) > 1 else 2.0))["gradient", "MLP"]
    assert found.verdict == "wrong"
    assert "got" in found.detail


def test_a_transpose_is_wrong_with_the_worst_entry_or_the_shape():
    def transposed(problem):
        return {key: value.T for key, value in ADAPTER["gradient"](problem).items()}

    found = judged(gradient=transposed)["gradient", "MLP"]
    assert (found.verdict, found.detail) == ("wrong", "0.weight: shape (5, 4), expected (4, 5)")

    def mixed(problem):
        return {key: value[::-1] for key, value in ADAPTER["gradient"](problem).items()}

    assert judged(gradient=mixed)["gradient", "MLP"].detail.count("got") >= 1


def test_nan_is_wrong():
    assert judged(gradient=scaled("gradient", lambda p: np.nan))["gradient", "MLP"].verdict == "wrong"


@pytest.mark.parametrize(
    ("result", "detail"),
    [
        (lambda values: None, "nothing for 0.weight"),
        (lambda values: {}, "nothing for 0.weight"),
        (lambda values: values | {"2.weight": None}, "nothing for 2.weight"),
        (lambda values: {key: value for key, value in values.items() if key != "4.bias"}, "nothing for 4.bias"),
    ],
)
def test_what_is_missing_without_an_error_is_silent(result, detail):
    found = judged(gradient=lambda problem: result(ADAPTER["gradient"](problem)))["gradient", "MLP"]
    assert found.verdict == "silent"
    assert detail in found.detail


def test_an_error_is_a_refusal_with_its_message_and_stops_nothing():
    def refusing(problem):
        raise NotImplementedError("no sums") if problem.reduction == "sum" else ValueError("no means")

    found = judged(gradient=refusing, batch_grad=ADAPTER["batch_grad"])
    assert found["gradient", "MLP"].verdict == "refused"
    assert "NotImplementedError: no sums (sum)" in found["gradient", "MLP"].detail
    assert found["batch_grad", "MLP"].verdict == "right"
    assert ("gradient", "relations") not in found


def test_the_worst_verdict_of_a_cell_is_shown():
    def partly(problem):
        if problem.reduction == "sum":
            raise ValueError("no")
        return scaled("gradient", lambda p: 1.37)(problem)

    assert judged(gradient=partly)["gradient", "MLP"].verdict == "wrong"


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
    assert judged(diag_ggn=ADAPTER["diag_hessian"])["diag_ggn", "labels"].verdict == "wrong"
    odd = scaled("gradient", lambda p: 1.1 if p.reduction == "sum" else 1.0)
    assert judged(gradient=odd)["gradient", "sum and mean"].verdict == "wrong"


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "right"), (2.0, "factor"), (5.0, "wrong")])
def test_means_of_draws_are_judged_within_their_errors(factor, verdict):
    found = judged(diag_ggn_mc=scaled("diag_ggn_mc", lambda p: factor))["diag_ggn_mc", "MLP"]
    assert found.verdict == verdict, found


def test_another_convention_is_tried_before_a_number_is_called_wrong():
    definition = referee.DEFINITIONS["gradient"]
    others = {"squared": lambda brute: {k: v**2 for k, v in definition.values(brute).items()}}
    mine = {"gradient": referee.Definition("∇L", definition.values, others=others)}

    def squares(problem):
        return {key: 3 * value**2 for key, value in ADAPTER["gradient"](problem).items()}

    found = {each.claim: each for each in referee.judge({"gradient": squares}, ["MLP"], mine)}["MLP"]
    assert (found.verdict, found.detail) == ("factor", "squared × C")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({"kfca": ADAPTER["kfra"]},), "adapter: expected names in gradient, batch_grad"),
        ((ADAPTER, ["mlp"]), "families: expected names in MLP, ReLU"),
    ],
)
def test_unknown_names_are_an_error_before_anything_is_computed(arguments, words):
    with pytest.raises(ValueError, match=words):
        referee.judge(*arguments)
