"""docs/testing.md: its tests pass as they stand, fail for wrong formulas, and its table names what there is."""

import re
from pathlib import Path

import pytest
from hypothesis import Phase
from hypothesis.strategies import SearchStrategy

from gbackprop.testing import loss_strategies, strategies

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
BLOCKS = re.findall(
    r"<!-- tests/docs/test_testing.py runs this block -->\n```python\n(.*?)```", PAGE, re.DOTALL
)  # fmt: skip
WRONG = [
    ("(2 + x * (1 - 2 * s))", "(1 + x * (1 - 2 * s))"),
    (".tanh(output - target) * self.summed_weight(output.shape[1:])", ".tanh(output - target)"),
    ("1 / output**2", "2 / output**2"),
    ('Statistic("square", GRADIENT)', 'Statistic("sum", GRADIENT)'),
    ("v / (1 - self.beta**self.steps_of(name))", "v / (1 - self.beta**(self.steps_of(name) + 1))"),
    ("2 * (h - y) / y.size", "2 * (h - y) / len(y)"),
    ("V.mean(0)", "V.mean()"),
    ("root.T, rng", "root, rng"),
    ("return square", "return square**0.5"),
    ("(u > 0)", "(u < 0)"),
]


def run(block, **names):
    exec(block, names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()


@pytest.mark.parametrize(
    "block",
    BLOCKS,
    ids=["layer", "loss", "domain", "quantity", "rule", "gradient", "operator", "draws", "symmetry", "library"],
)
def test_each_test_of_the_page_stands_alone_and_passes(block):
    run(block.replace("max_examples=40", "max_examples=15"))


@pytest.mark.parametrize(("block", "right", "wrong"), [(b, *w) for b, w in zip(BLOCKS, WRONG)])
def test_each_test_of_the_page_finds_a_mistake(block, right, wrong):
    assert right in block
    spoiled = block.replace(right, wrong).replace("deadline=None", "deadline=None, phases=phases")
    with pytest.raises(AssertionError):
        run(spoiled, phases=[Phase.generate])  # not made smaller


def test_every_strategy_is_in_the_table():
    files = {strategies.__name__, loss_strategies.__name__, strategies.outputs.__module__}
    files.add(strategies.pads.__module__)
    own = {name for name, value in vars(strategies).items() if getattr(value, "__module__", "") in files}
    public = {name for name in own if not name.startswith("_") and name[0].islower()}
    public |= {name for name, value in vars(strategies).items() if isinstance(value, SearchStrategy)}
    layers_by_shape = (*strategies.OF_ANY, *strategies.OVER_AXES, strategies.shuffles)
    kinds = {kind.__name__ for kind in layers_by_shape}  # of which the table shows some
    table = PAGE[PAGE.index("| strategy |") :]
    assert {name for name in public - kinds if f"`{name}" not in table} == set()
    assert set(re.findall(r"`(\w+)\(", table)) - {"find"} <= public
