"""The recipes in CONTRIBUTING.md, run as they stand."""

import re
from pathlib import Path

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.array import Array, array_module
from gbackprop.layers.activation import Elementwise, sigmoid
from gbackprop.quantities import Quantity, Scale, Statistic
from gbackprop.signals import GRADIENT
from gbackprop.testing import check_layer, golden

TESTS = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- tests/docs/test_contributing.py runs this block -->\n```python\n(.*?)```", re.DOTALL)
NAMES = {
    "Array": Array,
    "Elementwise": Elementwise,
    "GRADIENT": GRADIENT,
    "Quantity": Quantity,
    "Scale": Scale,
    "Statistic": Statistic,
    "array_module": array_module,
    "sigmoid": sigmoid,
}


@pytest.fixture(scope="module")
def blocks():
    return BLOCK.findall((TESTS.parent / "CONTRIBUTING.md").read_text())


@pytest.fixture(scope="module")
def recipes(blocks):
    found = dict(NAMES)
    for block in blocks:
        exec(block, found)
    return found


def test_there_are_two_recipes(blocks):
    assert len(blocks) == 2


def test_an_activation_takes_at_most_15_lines(blocks):
    assert blocks[0].startswith("class Softplus")
    assert len(blocks[0].strip().splitlines()) <= 15


def test_softplus_is_right(recipes):
    check_layer(recipes["Softplus"](beta=1.7), np.random.default_rng(0).standard_normal((3, 4))).assert_ok()


def test_softplus_gets_every_quantity(recipes, monkeypatch):
    monkeypatch.setattr(layers, "Softplus", recipes["Softplus"], raising=False)
    monkeypatch.setattr(layers, "__all__", [*layers.__all__, "Softplus"])
    with np.load(TESTS / "golden_breadth" / "act_softplus.npz") as case:
        cells = golden.check_case("act_softplus", dict(case))
    assert len(cells) == 15
    assert np.max([cell.error for cell in cells]) < 1e-8  # NaN, for a cell that failed, is not


def test_the_quantity_is_the_sum_of_squares(recipes):
    net = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((5, 3)), rng.integers(0, 2, 5)
    quantity, each = recipes["SumGradSquared"](), gb.quantities.BatchGrad()
    result = gb.backward(net, losses.CrossEntropyLoss(), x, y, quantity, each)
    for name, value in result["sum_grad_squared"].items():
        np.testing.assert_allclose(value, (result[each][name] ** 2).sum(0), rtol=1e-12)
