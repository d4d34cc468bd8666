"""Names of constants, as a diagnosis gives them: small rationals times powers of sizes that differ."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.testing.diagnosis.numbers import factor, rationals, recognized
from gbackprop.testing.diagnosis.terms import sizes_of
from gbackprop.testing.setting import CheckedNetwork

SIZES = [{"N": 3, "d": 4, "k": 2, "one": 1}, {"N": 5, "d": 4, "k": 6, "one": 1}, {"N": 7, "d": 4, "k": 3, "one": 1}]
NAMED = {
    "lambda s: 1": (0, "1", "divided by 1"), "lambda s: -1": (0.25, "-1", "it had the other sign"),
    "lambda s: 2": (0.8, "2", "multiplied by 2"), "lambda s: 1 / 2": (0.8, "1/2", "divided by 2"),
    "lambda s: 3 / 2": (1.55, "3/2", "divided by 2/3"), "lambda s: 13 / 14": (8, "0.92857143", "divided by 1.0769231"),
    "lambda s: 2**0.5": (1.8, "√2", "multiplied by √2"),
    "lambda s: -(1 / 3) ** 0.5": (2.3, "-√(1/3)", "divided by -√3"),
    "lambda s: s['N']": (0.9, "N = 3", "multiplied by N = 3"),
    "lambda s: 1 / s['N']": (0.9, "1/N = 0.333333", "divided by N = 3"),
    "lambda s: 2 * s['N']": (1.7, "2 · N = 6", "multiplied by 2 · N = 6"),
    "lambda s: -s['N'] ** 2": (1.45, "-N² = -9", "multiplied by -N² = -9"),
    "lambda s: s['N'] ** -0.5": (1.2, "1/√N = 0.57735", "divided by √N = 1.73205"),
    "lambda s: s['k'] ** 0.5": (1.24, "√k = 1.41421", "multiplied by √k = 1.41421"),
    "lambda s: s['N'] * s['k']": (2.34, "N · k", "multiplied by N · k"),
    "lambda s: s['N'] / s['k']": (2.34, "N · 1/k", "divided by k · 1/N"),
    "lambda s: 3 / 4 * s['k']": (2.74, "3/4 · k = 1.5", "multiplied by 3/4 · k = 1.5"),
    "lambda s: s['d']": (0.92, "d = 4", "multiplied by d = 4"), "lambda s: 0.123": (8, "0.123", "multiplied by 0.123"),
    "lambda s: 1 / 10": (2.8, "1/10", "divided by 10"),
    "lambda s: -0.123": (8.25, "-0.123", "multiplied by -0.123"),
}  # fmt: skip


@pytest.mark.parametrize("rule", NAMED)
def test_a_constant_has_a_name_and_a_cost(rule):
    cost, name, words = NAMED[rule]
    values = [eval(rule)(sizes) for sizes in SIZES]
    assert recognized(values, SIZES, 1e-9) == (pytest.approx(cost), name)
    assert factor(values, SIZES, 1e-9) == (pytest.approx(cost), words)


@pytest.mark.parametrize("values", [[3.1, 5.1, 7.1], [1, 1, -1], [1, 1, np.inf], [0, 0, 0], [1, 1, 1.01], [0, 5, 7]])
def test_what_is_no_constant_has_none(values):
    assert recognized(values, SIZES, 1e-9) is factor(values, SIZES, 1e-9) is None


def test_a_size_is_a_name_where_it_differs_from_1_and_is_none_of_0():
    assert recognized([5, 5, 5], [{"a": 5, "b": 1}] * 3, 1e-9) == (pytest.approx(0.9), "a = 5")
    assert recognized([5, 5, 5], [{"a": 5}, {"a": 0}, {"a": 5}], 1e-9)[1] == "5"
    assert recognized([5, 5, 5], [{"the a": 5}] * 3, 1e-9)[1] == "(the a) = 5"
    assert recognized([5, 6, 7], [{"x features − 1": size} for size in (5, 6, 7)], 1e-9)[0] == pytest.approx(1.4)


def test_two_names_of_one_number_are_both_said():
    sizes = [{"input features": 4, "N": n, "R": 1 / n, "k": 4} for n in (3, 5, 7)]
    assert recognized([3, 5, 7], sizes, 1e-9)[1] == "N = 3 (or 1/R)"
    assert recognized([-3, -5, -7], sizes, 1e-9)[1] == "-N = -3 (or -1/R)"
    assert recognized([4, 4, 4], sizes, 1e-9)[1] == "(input features) = 4 (or k)"
    assert recognized([2, 2, 2], sizes, 1e-9)[1] == "2"
    assert factor([1 / 3, 1 / 5, 1 / 7], sizes, 1e-9)[1] == "divided by N = 3 (or 1/R)"


def test_what_is_less_common_costs_more():
    found = rationals.__wrapped__()
    assert len(found) == 211
    given = {1: 0, 2: 0.8, 3: 1.05, 12: 3.3, 16: 3.3, 64: 3.3, 1.5: 1.55, 12 / 11: 3.8, 2**0.5: 1.8, 0.5**0.5: 1.8}
    for value, cost in given.items():
        assert found[value] == pytest.approx(cost)
    assert 16 / 5 not in found
    assert 13.0 not in found


def test_a_sum_of_weights_is_named_where_no_option_is_this_number():
    sizes = [{"N": n, "Σ weight": 4.0, "temperature": 2.0} for n in (3, 5, 7)]
    assert factor([4.0] * 3, sizes, 1e-9)[1].startswith("multiplied by temperature² = 4")
    assert factor([5.5] * 3, [each | {"Σ weight": 5.5} for each in sizes], 1e-9)[1] == "multiplied by (Σ weight) = 5.5"


def test_the_number_of_draws_is_named_before_that_of_outputs():
    net = gb.Sequential(layers.Linear(2, 3), rng=0, dtype="float64")
    x, y = np.ones((4, 2)), np.array([0, 1, 2, 0])
    setting = CheckedNetwork(net, losses.CrossEntropyLoss(), x, y, targets=np.zeros((3, 4), dtype=int))
    names = list(sizes_of((setting,)))
    assert names.index("N") < names.index("M") < names.index("output features")
