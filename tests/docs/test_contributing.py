"""The recipes in CONTRIBUTING.md, run as they stand."""

import re
from pathlib import Path

import numpy as np
import pytest
from around import around

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.testing import check_layer, check_loss, check_network, check_quantity
from gbackprop.testing.audit import command
from gbackprop.testing.audit.findings import Auditor
from gbackprop.testing.cases.loss_rows import LossRow
from gbackprop.testing.cases.rows import LayerRow
from gbackprop.testing.runs import every_quantity

TESTS = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- tests/docs/test_contributing.py runs this block -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def blocks():
    return BLOCK.findall((TESTS.parent / "CONTRIBUTING.md").read_text())


@pytest.fixture(scope="module")
def recipes(blocks):
    """The classes, each from its own blocks alone: these have all imports that it needs."""
    imports, activation, _, gain, blend, _, loss, _, quantity_imports, quantity, _ = blocks
    found = {}
    for recipe in (imports + activation, gain, blend, loss, quantity_imports + quantity):
        names = {}
        exec(recipe, names)
        found |= names
    return found


def test_there_are_five_recipes(blocks):
    classes = [re.findall(r"^class (\w+)", block, re.MULTILINE) for block in blocks]
    layers_and_rows = [[], ["Snake"], [], ["Gain", "GainJacobian"], ["Blend"], []]
    assert classes == [*layers_and_rows, ["MahalanobisLoss"], [], [], ["SumGradSquared"], []]


@pytest.fixture(scope="module")
def rows(recipes, blocks):
    """The rows of the table of cases: an activation, a layer with a parameter, one of three inputs, a loss."""
    names = recipes | {"LayerRow": LayerRow, "LossRow": LossRow, "np": np}
    return eval(f"[{blocks[2]} {blocks[5]} {blocks[7]}]", names)


def test_a_row_gets_every_check(rows):
    *of_layers, of_loss = rows
    for row in of_layers:
        layer = row.layer()
        check_layer(layer, row.x(), reference=row.reference(layer)).assert_ok()
        network = around(row)
        check_network(network, losses.MSELoss(), row.x(), np.ones(network(row.x()).shape)).assert_ok()
    for reduction in ("mean", "sum"):
        loss = of_loss.loss(reduction)
        check_loss(loss, *of_loss.batch(), reference=of_loss.definition(loss)).assert_ok()


def test_a_row_gets_a_line_of_the_audit(rows, monkeypatch):
    monkeypatch.setattr(command, "ALL_LAYERS", rows[:-1])
    monkeypatch.setattr(command, "LOSSES", rows[-1:])
    monkeypatch.setattr(command, "NETWORKS", [])
    sound = [finding.title.partition("(")[0] for finding in command.shipped(Auditor()) if finding.report.ok]
    assert sound == ["Snake", "Gain", "Blend", "MahalanobisLoss", "MahalanobisLoss"]


def test_an_activation_takes_at_most_15_lines(blocks):
    assert len(blocks[1].strip().splitlines()) <= 15


def test_the_activation_is_right(recipes):
    assert not hasattr(layers, "Snake")  # it adds something
    x = np.random.default_rng(0).standard_normal((3, 4))
    check_layer(recipes["Snake"](a=1.7), x, reference=lambda x: x + np.sin(1.7 * x) ** 2 / 1.7).assert_ok()


def test_the_activation_gets_every_quantity(recipes):
    chain = [layers.Linear(3, 4), recipes["Snake"](), layers.Linear(4, 2)]
    net, rng = gb.Sequential(*chain, rng=0, dtype="float64"), np.random.default_rng(1)
    report = check_network(net, losses.CrossEntropyLoss(), rng.standard_normal((5, 3)), rng.integers(0, 2, 5))
    report.assert_ok()
    judged = {row.method for row in report.rows if row.claim.startswith("is ") and row.oracle == "dense Jacobians"}
    assert judged >= {type(quantity).__name__ for quantity in every_quantity()}


def test_the_layer_with_a_parameter_is_right(recipes):
    x = np.random.default_rng(0).standard_normal((4, 3))
    gain = gb.Sequential(recipes["Gain"](3), rng=0, dtype="float64")[0]
    check_layer(gain, x, reference=lambda x: x * gain.parameters["gain"]).assert_ok()


def test_the_layer_with_a_parameter_gets_every_quantity_but_kronecker_factors(recipes):
    chain = [layers.Linear(3, 4), layers.Tanh(), recipes["Gain"](4), layers.Linear(4, 2)]
    net = gb.Sequential(*chain, rng=0, dtype="float64")
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((5, 3)), rng.integers(0, 2, 5)
    assert check_network(net, losses.CrossEntropyLoss(), x, y).ok
    with pytest.raises(gb.UnsupportedError, match=r"layer 2, Gain\(4\) cannot give KFLR: a gain for each feature"):
        gb.backward(net, losses.CrossEntropyLoss(), x, y, gb.quantities.KFLR())
    with pytest.raises(ValueError, match=r"layer 0, Gain\(4\): expected features of shape \(4,\), got \(3,\)"):
        gb.Sequential(recipes["Gain"](4))(x.astype("float32"))


def test_the_quantity_is_the_sum_of_squares(recipes):
    net = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((5, 3)), rng.integers(0, 2, 5)
    quantity, each = recipes["SumGradSquared"](), gb.quantities.BatchGrad()
    result = gb.backward(net, losses.CrossEntropyLoss(), x, y, quantity, each)
    for name, value in result["sum_grad_squared"].items():
        np.testing.assert_allclose(value, (result[each][name] ** 2).sum(0), rtol=1e-12)


def test_the_quantity_is_what_its_oracle_and_its_attributes_say(recipes, blocks):
    class WithOracle(recipes["SumGradSquared"]):
        definition = staticmethod(eval(f"{{{blocks[-1]}}}")["sum_grad_squared"])

    net, loss = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), rng=0, dtype="float64"), losses.MSELoss()
    x, y = np.random.default_rng(1).standard_normal((5, 3)), np.ones((5, 4))
    report = check_quantity(WithOracle(), net, loss, x, y)
    report.assert_ok()
    assert {row.verdict for row in report.rows} == {"ok"}
    merged = gb.data.merge(gb.backward(net, loss, *batch, WithOracle()) for batch in gb.data.batches(x, y, 2))
    want = gb.backward(net, loss, x, y, WithOracle())["sum_grad_squared"]
    for name, value in merged["sum_grad_squared"].items():
        np.testing.assert_allclose(value, want[name], rtol=1e-12)
