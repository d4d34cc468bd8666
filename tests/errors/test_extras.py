"""Whatever needs an optional package says which extra installs it; a tensor of torch is told what to give instead."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from refusals import refuse

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
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
IMPORTS = """
import importlib, sys
import gbackprop
print("torch" in sys.modules)
for module, package, _ in {}:
    before = dict(sys.modules)
    sys.modules[package] = None
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(error)
    sys.modules.clear()
    sys.modules.update(before)
"""


def test_torch_is_not_imported_and_a_module_whose_package_is_missing_names_the_extra():
    command = [sys.executable, "-c", IMPORTS.format(MODULES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    torch, *messages = done.stdout.splitlines()
    assert torch == "False"
    assert len(messages) == len(MODULES)
    for message, (_, package, extra) in zip(messages, MODULES, strict=True):
        assert message.endswith(f'the package {package!r} is not installed; pip install "gbackprop[{extra}]"')


@pytest.mark.parametrize("package", ["sympy", "mpmath"])
def test_a_certificate_without_its_packages_names_the_extra(package):
    hidden = f"import sys; sys.modules[{package!r}] = None; "
    lines = hidden + "from gbackprop import layers, testing; testing.certify(layers.ReLU())"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr.rstrip().endswith(f'the package {package!r} is not installed; pip install "gbackprop[symbolic]"')


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


class Tensor:
    """A tensor as the checks see it."""

    shape, dtype = (4, 3), "torch.float64"

    def detach(self):
        return self


Tensor.__module__ = "torch"
CE = losses.CrossEntropyLoss()
NET = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64")
X, Y = np.zeros((4, 3)), np.zeros(4, int)
CALLS = {
    "x": lambda: gb.backward(NET, CE, Tensor(), Y),
    "x of a call": lambda: NET(Tensor()),
    "y": lambda: gb.backward(NET, CE, X, Tensor()),
    "pseudo-targets": lambda: q.KFAC(targets=Tensor()),
    "a parameter": lambda: NET.parameters.update({"0.bias": Tensor()}),
    "a state dict": lambda: NET.load_state_dict({"0.weight": np.zeros((2, 3)), "0.bias": Tensor()}),
    "a vector": lambda: q.Kronecker(None, np.eye(2)).solve(Tensor()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_tensor_of_torch_is_told_what_to_give(call):
    refuse(TypeError, ["got Tensor of torch (give tensor.detach().cpu().numpy())"], call)
