"""Layers in place of products with a parameter: all results under the same names and in the same layouts."""

import numpy as np
import pytest
from programs import drawn_program

import gbackprop as gb
from gbackprop import layers, losses, operators
from gbackprop import quantities as q
from gbackprop.layers import Operation, Parameter
from gbackprop.layers.operations.weights import Weight
from gbackprop.network.patterns import replaced
from gbackprop.testing import check_network

ASKED = (
    q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN(), q.DiagGGNMC(),
    q.DiagHessian(), q.BatchDiagHessian(), q.GramGradients(), q.GramGGN(),
)  # fmt: skip
FACTORS = (
    q.KFAC(), q.KFLR(), q.KFRA(), q.EKFAC(), q.NearestKronecker(), q.KroneckerError(q.KFLR()), q.KFAC(sharing="expand"),
    q.KFAC(sharing="reduce"),
)  # fmt: skip


def mlp():
    return {
        "first.w": (Parameter((3, 4)),), "b": (Parameter((4,)),), "w2": (Parameter((2, 4)),),
        "turned": (Operation("transpose"), "w2"), "h": (Operation("matmul"), "input", "first.w"),
        "sum": (Operation("add"), "b", "h"), "tanh": (layers.Tanh(), "sum"),
        "scale": (Parameter((2,)),), "y": (Operation("matmul"), "tanh", "turned"),
        "again": (Operation("multiply"), "y", "scale"), "shifted": (layers.Add(), "y", "again"),
    }  # fmt: skip


def positions():
    """A weight at several positions, with a bias."""
    return {
        "x": (layers.Unflatten(1, (3, 1)), "input"), "w": (Parameter((1, 2), initial=0.3),), "b": (Parameter((2,)),),
        "y": (Operation("matmul"), "x", "w"), "z": (Operation("add"), "y", "b"), "s": (layers.Sigmoid(), "z"),
        "all": (layers.Flatten(), "s"),
    }  # fmt: skip


def repeated():
    """A weight and a bias at two steps, as a recurrent network has them, beside a weight of the states."""
    return {
        "w": (Parameter((3, 2)),), "u": (Parameter((2, 2)),), "b": (Parameter((2,)),),
        "x": (Operation("flip", axis=1), "input"), "one": (Operation("matmul"), "input", "w"),
        "two": (Operation("matmul"), "x", "w"), "a": (Operation("add"), "one", "b"), "h": (layers.Tanh(), "a"),
        "back": (Operation("matmul"), "h", "u"), "both": (Operation("add"), "two", "back"),
        "c": (Operation("add"), "both", "b"), "y": (layers.Tanh(), "c"),
    }  # fmt: skip


def nested():
    """A graph at two places, so that its layers are used twice."""
    inner = {"w": (Parameter((3, 3)),), "b": (Parameter((3,)),), "h": (Operation("matmul"), "input", "w"),
             "y": (Operation("add"), "h", "b")}  # fmt: skip
    return inner


CASES = {mlp: {"sum": "Weight(3, 4)", "y": "Linear(4, 2, bias=False)"}, positions: {"z": "Weight(1, 2)"},
         repeated: {"a": "Weight(3, 2)", "two": "Weight(3, 2)", "back": "Weight(2, 2, bias=False)"}}  # fmt: skip


def pair(make, wrap=lambda graph: graph):
    """Return the network of a graph as it is, and with layers in place of operations, with the same values."""
    shapes = {"both": (2,), "two": (2,)}
    one, two = (wrap(gb.Graph(nodes, dtype="float64")) for nodes in (make(), replaced(make(), shapes=shapes)))
    one.initialize(np.random.default_rng(0))
    return one, two.load_state_dict(one.state_dict())


def problem(network, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 3))
    return losses.CrossEntropyLoss(), x, rng.integers(network(x).shape[1], size=4)


def compare(one, two):
    """Compare all that both networks give."""
    loss, x, y = problem(one)
    assert set(one.parameters) == set(two.parameters)
    np.testing.assert_allclose(two(x), one(x), atol=1e-12)
    for call, options in ((gb.reference, {}), (gb.backward, {}), (gb.backward, {"sample_block": 3, "column_block": 2})):
        asked = ASKED if not options else ASKED[:-2]
        want, got = (call(network, loss, x, y, *asked, rng=0, **options) for network in (one, two))
        for name, value in want.gradient.items():
            np.testing.assert_allclose(got.gradient[name], value, atol=1e-12)
        for quantity in asked:
            for name, value in want[quantity].items():
                np.testing.assert_allclose(got[quantity][name], value, atol=1e-12, err_msg=f"{quantity} {name}")
    for kind in (operators.GGN, operators.Hessian):
        want, got = (kind(network, loss, [(x, y)]) for network in (one, two))
        values = np.random.default_rng(2)
        vector = {name: values.standard_normal(value.shape) for name, value in one.parameters.items()}
        for name, value in (want @ vector).items():
            np.testing.assert_allclose((got @ vector)[name], value, atol=1e-12)


@pytest.mark.parametrize("make", CASES)
def test_all_results_are_the_same(make):
    found = {name: layer for name, (layer, *_) in replaced(make(), shapes={"both": (2,), "two": (2,)}).items()}
    assert {name: repr(layer) for name, layer in found.items() if isinstance(layer, layers.Linear)} == CASES[make]
    compare(*pair(make))


def test_a_graph_at_two_places():
    def twice(graph):
        return gb.Sequential(graph, layers.Tanh(), gb.Residual(graph, layers.Sigmoid()))

    one, two = pair(nested, twice)
    assert sorted(two.parameters) == ["0.b", "0.w"]
    compare(one, two)


@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs(seed):
    one = drawn_program(np.random.default_rng(seed), 6)
    nodes = {name: (one.children[name], *taken) for name, taken in one.inputs.items()}
    loss, x, y = problem(one)
    two = gb.Graph(replaced(nodes), dtype="float64")
    want, got = (gb.backward(each, loss, x, y, q.BatchGrad(), q.DiagHessian()) for each in (one, two))
    assert set(one.parameters) == set(two.parameters)
    for quantity in ("batch_grad", "diag_hessian"):
        for name, value in want[quantity].items():
            np.testing.assert_allclose(got[quantity][name], value, atol=1e-12 * max(1, abs(value).max()))


@pytest.mark.parametrize("make", CASES)
def test_the_kit_with_kronecker_factors(make):
    network = pair(make)[1]
    check_network(network, *problem(network)).assert_ok()


@pytest.mark.parametrize("positions", [0, 2])
def test_factors_are_those_of_linear_layers(positions):
    shape = (positions, 3) if positions else (3,)
    rng = np.random.default_rng(0)
    values = {"w": rng.standard_normal((3, 4)), "b": rng.standard_normal(4), "v": rng.standard_normal((2, 4))}
    nodes = {name: (Parameter(value.shape, value),) for name, value in values.items()} | {
        "x": (Operation("matmul"), "input", "w"), "y": (Operation("add"), "x", "b"), "tanh": (layers.Tanh(), "y"),
        "turned": (Operation("transpose"), "v"), "z": (Operation("matmul"), "tanh", "turned"),
        "all": (layers.Flatten(), "z"),
    }  # fmt: skip
    got = gb.Graph(replaced(nodes), rng=0, dtype="float64")
    want = gb.Sequential(
        layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2, bias=False), layers.Flatten(), dtype="float64"
    ).load_state_dict({"0.weight": values["w"].T, "0.bias": values["b"], "2.weight": values["v"]})
    x, loss = rng.standard_normal((4, *shape)), losses.CrossEntropyLoss()
    order = np.arange(12).reshape(3, 4).T.ravel()  # where the entries of (O, I) are in (I, O)
    for call in (gb.reference, gb.backward):
        linear, node = (call(each, loss, x, np.array([0, 1, 1, 0]), *FACTORS, rng=0) for each in (want, got))
        for quantity in FACTORS:
            for theirs, ours in (("0.weight", "w"), ("0.bias", "b"), ("2.weight", "v")):
                a, b = linear[quantity][theirs], node[quantity][ours]
                if isinstance(quantity, q.KroneckerError):
                    np.testing.assert_allclose(b.relative, a.relative, atol=1e-10)
                    continue
                dense = b.to_dense()
                dense = dense[np.ix_(order, order)] if ours == "w" else dense
                np.testing.assert_allclose(dense, a.to_dense(), atol=1e-10, err_msg=f"{quantity} {ours}")
                assert a.B.shape == b.B.shape if hasattr(a, "B") else a.QB.shape == b.QB.shape


@pytest.mark.parametrize("nodes", [
    {"w": (Parameter((3, 3)),), "x": (Operation("matmul"), "input", "w"), "t": (Operation("transpose"), "w"),
     "y": (Operation("matmul"), "x", "t")},
    {"w": (Parameter((3, 3)),), "x": (Operation("matmul"), "w", "input")},
    {"w": (Parameter((3, 3)),), "c": (Parameter((2, 3)),), "x": (Operation("matmul"), "c", "w"),
     "y": (Operation("add"), "x", "input")},
    {"w": (Parameter((2, 3, 3)),), "x": (Operation("matmul"), "input", "w")},
    {"b": (Parameter((3,)),), "x": (Operation("add"), "input", "b")},
    {"w": (Parameter((3, 3)),), "t": (Operation("transpose"), "w"), "x": (Operation("matmul"), "input", "t"),
     "y": (Operation("add"), "x", "t")},
    *({"b": (Parameter((3,)),), "h": (layers.Linear(3, 3, bias=False), "input"), "y": (layers.Add(), *several)}
      for several in (("b",), ("b", "h", "input"), ("h", "b", "input"), ("h", "input", "b"))),
])  # fmt: skip
def test_what_is_used_otherwise_is_left_alone(nodes):
    assert replaced(nodes) == nodes


def test_a_bias_that_is_broadcast_and_an_output_between():
    nodes = {
        "w": (Parameter((3, 4)),), "x": (Operation("matmul"), "input", "w"), "b": (Parameter((1,)),),
        "y": (Operation("add"), "x", "b"), "p": (Parameter((3, 3)),), "q": (Parameter((3, 3)),),
    }  # fmt: skip
    found = replaced(nodes, "y")
    assert type(found["x"][0]) is Weight
    assert type(found["y"][0]) is type(nodes["y"][0])
    assert "b" in found
    shared = Parameter((3, 3))
    twice = {"w": (shared,), "v": (shared,), "x": (Operation("matmul"), "input", "w"),
             "y": (Operation("matmul"), "x", "v")}  # fmt: skip
    assert replaced(twice) == twice


def test_values_names_and_what_is_frozen_stay():
    nodes = mlp()
    nodes["b"][0].frozen = frozenset({""})
    network = gb.Graph(replaced(nodes), dtype="float64", rng=0)
    assert network.frozen == {"b"}
    assert network.parameters["first.w"].shape == (3, 4)
    assert set(network.freeze("w2").trainable) == {"first.w", "scale"}
    assert (gb.Graph(replaced(positions()), rng=0).parameters["w"] == np.float32(0.3)).all()
    outer = gb.Sequential(network, dtype="float64")
    assert set(outer.state_dict()) == {f"0.{name}" for name in network.parameters}
    drawn = gb.Graph(mlp(), rng=0, dtype="float64")
    again = gb.Graph(replaced({name: (drawn.children[name], *taken) for name, taken in drawn.inputs.items()}))
    assert all(again.parameters[name] is value for name, value in drawn.parameters.items())
