"""Audits of layers of several inputs, of networks with such, of optimizers and operators."""

import shutil
import sys
from pathlib import Path

import pytest
from command_line import refused
from test_audit_command import audit, shows_rows

HELPERS = Path(__file__).parents[1] / "helpers"
MODULE = '''
import numpy as np
from own_joins import Bilinear, Gate, GateJacobian
import gbackprop as gb
from gbackprop.layers import Add, Embedding, Layer, Linear, Select, Tanh
from gbackprop.optim import SGD, Optimizer


class WrongGate(Gate):
    def parameter_jacobians(self, saved):
        return {"gate": GateJacobian(-saved)}


class Wrapped(Layer):
    def __init__(self, network):
        pass


two = gb.Graph({"a": (Linear(5, 4), "input.0"), "b": (Linear(3, 4), "input.1"), "y": (Add(), "a", "b")}, inputs=[5, 3])
words = gb.Graph({"a": (Embedding(7, 4), "input.0"), "b": (Linear(1, 4), "input.1"), "y": (Add(), "a", "b")},
                 inputs=[("integers",), (1,)])
table = Embedding(20, 8)
uneven = gb.Sum(Linear(3, 3), Linear(3, 4))
behind = gb.Sequential(Select(1, -1), Embedding(20, 8), Linear(8, 3))
embedded = gb.Sequential(Embedding(20, 8), Select(1, -1), Linear(8, 3))
relu, frozen = gb.Sequential(Tanh()), gb.Sequential(Linear(4, 3))
frozen.freeze("0")
MATRIX = np.random.default_rng(0).standard_normal((4, 4))


class Product:
    """A matrix that says that it is symmetric."""

    shape, symmetric = (4, 4), True

    def __matmul__(self, v):
        return MATRIX @ v


product = Product()


class Signs(Optimizer):
    """The sign of the gradient."""

    def __init__(self, network, lr=0.1):
        super().__init__(network, lr)

    def _update(self, name, gradient, result):
        return gradient / abs(gradient)

    def rule(p, g, state, step, lr):
        return p - lr * (g > 0) + lr * (g < 0), state


class Slower(Signs):
    def _update(self, name, gradient, result):
        return super()._update(name, gradient, result) / self.steps


class Needs(Signs):
    def __init__(self, network, lr):
        super().__init__(network, lr)


def with_lr(network):
    return Needs(network, 0.3)


def no_optimizer(network):
    return network


gate, bilinear, wrong = Gate(3), Bilinear(3, 2, 2), WrongGate(3)
network = gb.Graph({"a": (Linear(4, 3), "input"), "b": (Tanh(), "a"), "gate": (Gate(3), "a", "b")})
sgd = SGD(gb.Sequential(Linear(3, 2), rng=0), lr=0.1, momentum=0.9)
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Name of a module in the current folder."""
    shutil.copy(HELPERS / "own_joins.py", tmp_path)
    (tmp_path / "of_mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "of_mine", raising=False)
    return "of_mine"


@pytest.mark.parametrize(("name", "shape"), [("gate", "3+3"), ("bilinear", "3+2"), ("network", "4")])
def test_right_joins(mine, name, shape, tmp_path):
    status, out = audit(f"{mine}:{name}", "--input", shape, "--html", str(tmp_path / "page.html"))
    assert status == 0, out
    assert ", 0 fail" in out


def test_a_wrong_jacobian_of_a_join_is_placed(mine):
    status, out = audit(f"{mine}:wrong", "--input", "3+3")
    assert status == 1
    assert "  gate.per_sample: is Jᵀ" in out
    assert "own_joins.py, line" in out


@pytest.mark.parametrize("name", ["Signs", "with_lr", "sgd"])
def test_right_optimizers(mine, name, tmp_path):
    status, out = audit(f"{mine}:{name}", "--html", str(tmp_path / "page.html"))
    assert (status, shows_rows(out)) == (0, True), out


def test_networks_of_several_inputs_and_of_indices(mine):
    for name, shape in (("two", "5+3"), ("two", "8"), ("embedded", "6"), ("table", "6"), ("behind", "6")):
        status, out = audit(f"{mine}:{name}", "--input", shape)
        assert status == 0, out
        assert " 0 fail" in out
    assert audit(f"{mine}:embedded", "--input", "6", "--symmetries")[0] == 0


@pytest.mark.parametrize("name", ["relu", "frozen"])
def test_networks_without_parameters(mine, capsys, name):
    """Monte-Carlo quantities have nothing to estimate there, and symmetries nothing to compare."""
    status, out = audit(f"{mine}:{name}", "--input", "4")
    assert (status, " 0 fail" in out) == (0, True), out
    words = f"of_mine:{name}: --symmetries takes a network with a parameter that is not frozen"
    assert refused(capsys, "audit", f"{mine}:{name}", "--input", "4", "--symmetries").startswith(words)


def test_operators(mine):
    status, out = audit(f"{mine}:MATRIX")
    assert (status, "5 claims: 5 hold" in out, shows_rows(out)) == (0, True, True)
    for name in ("product", "Product"):
        status, out = audit(f"{mine}:{name}")
        assert status == 1
        assert "matvec: is symmetric: error " in out
        assert "diagnosis" not in out  # that the matrix should be its transpose says nothing


def test_a_wrong_optimizer_is_placed(mine):
    status, out = audit(f"{mine}:Slower")
    assert status == 1
    assert "  _update: is the rule: error " in out
    assert "in Slower._update" in out
    assert "expected an optimizer for the network that is given" in audit(f"{mine}:no_optimizer")[1]


@pytest.mark.parametrize(("name", "shape", "words"), [
    ("gate", "3+x", "expected positive whole numbers"),
    ("gate", "3+4", "of_mine:gate does not take --input 3+4: expected"),
    ("network", "4+4", "of_mine:network takes one input, got --input 4+4"),
    ("uneven", "3", "of_mine:uneven does not take --input 3: "),
    ("words", "2", "of_mine:words: audit draws floats, and an input is of integers: give check_network yours"),
    ("Needs", "4", "Needs needs arguments (lr): write `def made(network): return Needs(network, …)` into of_mine"),
    ("Wrapped", "4", "Wrapped needs arguments (network): write an instance"),
])  # fmt: skip
def test_one_line_says_what_is_wrong(mine, capsys, name, shape, words):
    assert refused(capsys, "audit", f"{mine}:{name}", "--input", shape).startswith(words)
