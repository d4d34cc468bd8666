"""What depends on parameters alone: computed once, with one row, and its columns summed over samples at once."""

import numpy as np
import pytest
from common import in_module_of

import gbackprop as gb
from gbackprop import layers, losses, operators
from gbackprop.calculus.layer import INPUT, leaves_of
from gbackprop.layers import Constant, Operation, Parameter
from gbackprop.layers.operations.operation import ROWS
from gbackprop.testing import check_network

N = 5


def activations():
    """Layers that are no operations, on a parameter."""
    return {
        "w": (Parameter((2, 2, 3)),), "flat": (layers.Flatten(1, 2), "w"), "tanh": (layers.Tanh(), "flat"),
        "turned": (layers.Permute((0, 2, 1)), "tanh"), "soft": (layers.Softmax(-1), "turned"),
        "again": (layers.Permute((0, 2, 1)), "soft"), "relu": (layers.ReLU(), "bias"), "bias": (Parameter((3,)),),
        "same": (layers.Identity(), "relu"), "y": (Operation("matmul"), "input", "again"),
        "sum": (Operation("add"), "y", "same"),
    }  # fmt: skip


def low_rank():
    """A weight with a product of two thin matrices added."""
    return {
        "w": (Constant(np.arange(12.0).reshape(4, 3) / 9),), "a": (Parameter((4, 1)),), "b": (Parameter((1, 3)),),
        "product": (Operation("matmul"), "a", "b"), "weight": (Operation("add"), "w", "product"),
        "y": (Operation("matmul"), "input", "weight"),
    }  # fmt: skip


def sequence():
    """A weight at several positions, scaled."""
    return {
        "v": (Parameter((2, 3)),), "g": (Parameter((1, 3)),), "weight": (Operation("multiply"), "v", "g"),
        "x": (layers.Unflatten(1, (2, 2)), "input"), "y": (Operation("matmul"), "x", "weight"),
        "all": (layers.Flatten(), "y"),
    }  # fmt: skip


NETWORKS = [activations, low_rank, sequence]


def problem(make):
    rng = np.random.default_rng(1)
    network = gb.Graph(make(), rng=0, dtype="float64")
    x = rng.standard_normal((N, 4))
    return network, losses.MSELoss(), x, rng.standard_normal(network(x).shape)


def reaches_input(leaf, leaves):
    return any(i == INPUT or reaches_input(leaves[i], leaves) for i in leaf.sources)


@pytest.mark.parametrize("make", NETWORKS)
def test_all_quantities_by_brute_force(make):
    check_network(*problem(make)).assert_ok()


@pytest.fixture
def rows(monkeypatch):
    """The numbers of rows of columns that arrive at each operation and layer, and of what it has computed."""
    found = {"forward": [], "mjp": []}
    kinds = {type(layer) for make in NETWORKS for layer, *_ in make().values()}

    def watched(method, whole):
        def counted(self, *given):
            made = whole(self, *given)
            found[method].append((id(self), given[1].shape[1] if method == "mjp" else len(made[0])))
            return made

        return counted

    for kind in kinds:
        for method in found:
            plain = getattr(kind, method)
            monkeypatch.setattr(kind, method, in_module_of(plain, watched(method, plain)))
    return found


@pytest.mark.parametrize("make", NETWORKS)
def test_one_row_forward_and_back(make, rows):
    network, loss, x, y = problem(make)
    leaves = leaves_of(network, x.shape[1:])
    constant = {id(leaf.layer) for leaf in leaves if leaf.constant}
    assert constant == {id(leaf.layer) for leaf in leaves if not reaches_input(leaf, leaves)}
    hessian = operators.Hessian(network, loss, [(x, y)])
    for call in (
        lambda: gb.reference(network, loss, x, y), lambda: gb.backward(network, loss, x, y),
        lambda: hessian @ np.ones(hessian.shape[1]),
    ):  # fmt: skip
        rows["forward"].clear()
        call()
        assert {count for layer, count in rows["forward"] if layer in constant} <= {1}
        assert {count for layer, count in rows["forward"] if layer not in constant} <= {N}
        assert len(set(rows["forward"])) == len(rows["forward"])  # each once
    rows["mjp"].clear()
    gb.backward(network, loss, x, y)  # the gradient alone
    assert {count for layer, count in rows["mjp"] if layer in constant} <= {1}


@pytest.mark.parametrize("make", NETWORKS)
def test_no_product_of_each_sample_where_their_sum_is_wanted(make, monkeypatch):
    network, loss, x, y = problem(make)
    want, matrix = gb.reference(network, loss, x, y).gradient, operators.GGN(network, loss, [(x, y)])
    vector = np.random.default_rng(0).standard_normal(matrix.shape[1])
    product = matrix.to_dense() @ vector
    whole, calls = ROWS["matmul"].on_second, []

    def watched(o, a, g):
        calls.append(g.shape[1])
        return whole(o, a, g)

    object.__setattr__(ROWS["matmul"], "on_second", watched)
    try:
        for name, value in gb.backward(network, loss, x, y).gradient.items():
            np.testing.assert_allclose(value, want[name], atol=1e-12)
        np.testing.assert_allclose(matrix @ vector, product, atol=1e-12)
    finally:
        object.__setattr__(ROWS["matmul"], "on_second", whole)
    assert set(calls) <= {1}
