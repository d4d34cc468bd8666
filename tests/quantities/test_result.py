"""A `Result` is read like a dictionary of its quantities."""

import re
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

TWO, THREE = q.KFAC(2), q.KFAC(3)


def result_of(*quantities):
    net = gb.Sequential(layers.Linear(3, 4), layers.ReLU(), layers.Linear(4, 2), rng=0)
    x = np.random.default_rng(0).random((5, 3), dtype=np.float32)
    return gb.backward(net, losses.CrossEntropyLoss(), x, np.zeros(5, int), *quantities, rng=0)


@pytest.fixture
def result():
    return result_of(q.Variance(), TWO, q.BatchGrad())


def test_it_is_a_dictionary_of_its_quantities(result):
    assert list(result) == list(result.keys()) == ["variance", "kfac", "batch_grad"]
    assert len(result) == 3
    assert "variance" in result
    assert "diag_ggn" not in result
    assert dict(result)["variance"] is result["variance"]
    assert [values for _, values in result.items()] == [result[key] for key in result]


def test_every_key_finds_its_quantity_where_two_have_one_name():
    result = result_of(TWO, q.Variance(), THREE)
    assert result.keys() == [TWO, "variance", THREE]
    for key, values in result.items():
        assert result[key] is values


def test_a_result_without_quantities_is_empty_and_not_false():
    result = result_of()
    assert (len(result), list(result)) == (0, [])
    assert result


def test_completion_offers_names_that_find_something():
    assert result_of(TWO, q.Variance(), THREE)._ipython_key_completions_() == ["variance"]


@pytest.mark.parametrize("key", ["2.bias", "gradient"])
def test_a_parameter_is_told_where_it_is_found(result, key):
    name = "2.bias" if key == "2.bias" else "0.weight"
    expected = f"'{key}' is no quantity: write result.gradient['{name}'], or for a quantity's values result['variance']"
    with pytest.raises(KeyError, match=re.escape(expected)):
        result[key]
    result.gradient[name], result["variance"][name]  # what the message proposes


def test_what_was_not_asked_for_is_told_with_what_was(result):
    with pytest.raises(KeyError, match=re.escape("'kflr'; there are [Variance(), KFAC(mc_samples=2), BatchGrad()]")):
        result["kflr"]


def test_repr_says_what_is_in_it(result):
    first, *rows = repr(result).splitlines()
    assert first == f"Result: loss {float(result.loss):.6g}, output (5, 2), gradient of 4 parameters"
    assert [row.split(maxsplit=2) for row in rows] == [
        ["'variance'", "Variance()", "0.weight (4, 3)"],
        ["'kfac'", "KFAC(mc_samples=2)", "0.weight B (4, 4) ⊗ A (3, 3)"],
        ["'batch_grad'", "BatchGrad()", "0.weight (5, 4, 3)"],
    ]


def test_it_cannot_be_changed_and_equals_itself_alone(result):
    with pytest.raises(FrozenInstanceError):
        result.loss = 0
    twin = replace(result)
    assert result == result
    assert result != twin
    assert len({result, twin}) == 2
