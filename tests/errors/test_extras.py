"""Whatever needs an optional package says which extra installs it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.base.extras import MissingExtraError, needed

ROOT = Path(__file__).parents[2]

MODULES = [
    ("gbackprop.testing.strategies", "hypothesis", "test"),
    ("gbackprop.experiments.demo", "rich", "experiments"),
    ("gbackprop.experiments.demo", "matplotlib", "experiments"),
    ("gbackprop.experiments.plots", "matplotlib", "experiments"),
    ("gbackprop.experiments.tables", "rich", "experiments"),
    ("gbackprop.experiments.view", "rich", "experiments"),
]


@pytest.mark.parametrize(("module", "package", "extra"), MODULES)
def test_a_module_whose_package_is_missing_names_the_extra(module, package, extra):
    code = f"import sys; sys.modules[{package!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    expected = f"the package {package!r} is not installed; pip install \"gbackprop[{extra}]\"\n"
    assert done.stderr.endswith(expected), done.stderr


def test_a_figure_without_matplotlib_names_the_extra(monkeypatch):
    net = gb.Sequential(layers.Linear(2, 2), rng=0)
    explanation = gb.explain(net, losses.MSELoss(), np.ones((1, 2), "float32"), np.ones((1, 2), "float32"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r'^figures: .*pip install "gbackprop\[experiments\]"$'):
        explanation.figure()


def test_a_package_that_is_broken_inside_says_so_itself():
    with pytest.raises(ModuleNotFoundError, match="no_such_part"), needed("numpy", "the demo"):
        import no_such_part  # noqa: F401
