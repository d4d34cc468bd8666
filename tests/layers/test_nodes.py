"""Parameters and fixed arrays as nodes of a graph: quantities by brute force, operators, names, and what is refused."""

import copy

import numpy as np
import pytest
from common import in_module_of, one_in
from programs import drawn_program

import gbackprop as gb
from gbackprop import layers, losses, operators
from gbackprop import quantities as q
from gbackprop.layers import Constant, Operation, Parameter
from gbackprop.testing import check_network
from gbackprop.testing.oracles import Dense

ASKED = (q.BatchGrad(), q.DiagGGN(), q.DiagHessian())


def weight_norm():
    """A linear map whose weight is normalized, v / ‖v‖ · g."""
    return {
        "v": (Parameter((4, 3)),), "g": (Parameter((4, 1), initial=0.7),),
        "norm": (Operation("norm", axis=-1, keepdims=True), "v"),
        "unit": (Operation("divide"), "v", "norm"),
        "weight": (Operation("multiply"), "unit", "g"),
        "turned": (Operation("transpose"), "weight"),
        "y": (Operation("matmul"), "input", "turned"),
    }  # fmt: skip


def class_token():
    """A token before the sequence, with positions added, normalized; layers that take one row of all samples, too."""
    return {
        "block.token": (Parameter((1, 2)),), "block.position": (Parameter((3, 2)),),
        "scale": (Constant(np.array([1.5, -0.5])),),
        "sequence": (layers.Unflatten(1, (-1, 2)), "input"),
        "whole": (layers.Concat(1), "block.token", "sequence"),
        "normal": (layers.LayerNorm(2, eps=0.1), "block.position"),
        "sum": (layers.Add(), "whole", "normal"),
        "scaled": (Operation("multiply"), "sum", "scale"),
        "product": (layers.MatMul(), "scaled", "turned"),
        "turned": (layers.Permute((0, 2, 1)), "block.position"),
        "tanh": (layers.Tanh(), "product"),
        "y": (layers.Flatten(), "tanh"),
    }  # fmt: skip


def shared():
    """One parameter at two nodes, and as a weight of its own square."""
    p = Parameter((3, 3))
    return {
        "p": (p,), "again": (p,), "square": (Operation("matmul"), "p", "again"), "sine": (Operation("sin"), "square"),
        "h": (Operation("matmul"), "input", "sine"), "y": (Operation("multiply"), "h", "bias"),
        "bias": (Parameter((3,)),),
    }  # fmt: skip


def low_rank():
    """A linear layer and a product of two thin matrices beside it."""
    return {
        "base": (layers.Linear(3, 4), "input"), "a": (Parameter((3, 1)),), "b": (Parameter((1, 4)),),
        "down": (Operation("matmul"), "input", "a"), "up": (Operation("matmul"), "down", "b"),
        "y": (layers.Add(), "base", "up"),
    }  # fmt: skip


NETWORKS = {
    "weight norm": (weight_norm, 3), "class token": (class_token, 4), "shared": (shared, 3), "low rank": (low_rank, 3),
}  # fmt: skip


def problem(name, dtype="float64"):
    make, width = NETWORKS[name]
    network = gb.Graph(make(), "y", rng=0, dtype=dtype)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, width)).astype(dtype)
    return network, losses.MSELoss(), x, rng.standard_normal(network(x).shape).astype(dtype)


@pytest.mark.parametrize("name", NETWORKS)
def test_all_quantities_by_brute_force(name):
    check_network(*problem(name)).assert_ok()


@pytest.mark.parametrize(("shape", "deviation"), [((500, 16), 1 / 4), ((10_000,), 1 / 100)])
def test_a_parameter_begins_with_as_much_deviation_as_it_says(shape, deviation):
    assert Parameter(shape).draw(np.random.default_rng(0))[""].std() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize("name", NETWORKS)
def test_operators(name):
    network, loss, x, y = problem(name)
    dense = Dense(network, loss, x, y)
    result = gb.backward(network, loss, x, y, *ASKED)
    for kind, quantity in ((operators.GGN, "diag_ggn"), (operators.Hessian, "diag_hessian")):
        matrix = kind(network, loss, [(x, y)]).to_dense()
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        diagonal = np.concatenate([result[quantity][each].ravel() for each in network.parameters])
        np.testing.assert_allclose(np.diag(matrix), diagonal, atol=1e-12)
    jacobian = operators.Jacobian(network, x).to_dense()
    each = [dense.jacobians[name].reshape(4, -1, p.size) for name, p in network.parameters.items()]
    columns = np.concatenate(each, -1)
    np.testing.assert_allclose(jacobian, columns.reshape(jacobian.shape), atol=1e-12)


@pytest.mark.parametrize("seed", one_in(2, range(12)))
def test_drawn_programs_by_brute_force(seed):
    compare(np.random.default_rng(seed), 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12, 1012))
def test_many_drawn_programs_by_brute_force(seed):
    compare(np.random.default_rng(seed))


@pytest.mark.parametrize("seed", [5, 2086, *[pytest.param(seed, marks=pytest.mark.long) for seed in range(2000, 2100)]])
def test_every_quantity_on_drawn_programs(seed):
    rng = np.random.default_rng(seed)
    network = drawn_program(rng, int(rng.integers(3, 8 if seed == 5 else 31)))
    check_network(network, losses.CrossEntropyLoss(), rng.standard_normal((3, 3)), rng.integers(2, size=3)).assert_ok()


def compare(rng, longest=30):
    """Compare quantities of both engines for a drawn network with brute force."""
    network = drawn_program(rng, int(rng.integers(3, longest + 1)))
    x, y = rng.standard_normal((3, 3)), rng.integers(2, size=3)
    loss = losses.CrossEntropyLoss()
    dense = Dense(network, loss, x, y)
    for call, options in ((gb.reference, {}), (gb.backward, {}), (gb.backward, {"sample_block": 2, "column_block": 3})):
        result = call(network, loss, x, y, *ASKED, **options)
        for name in ("batch_grad", "diag_ggn", "diag_hessian"):
            for key, expected in dense[name].items():
                scale = max(1.0, abs(expected).max(initial=0))
                np.testing.assert_allclose(result[name][key], expected, atol=1e-10 * scale, err_msg=f"{name} {key}")


def test_what_depends_on_parameters_alone_has_one_row(monkeypatch):
    network, loss, x, y = problem("weight norm")
    rows = []

    def watch(kind):
        def watched(self, a, b):
            rows.append((self.name, len(a), len(b)))
            return whole(self, a, b)

        whole = kind.forward
        monkeypatch.setattr(kind, "forward", in_module_of(whole, watched))

    watch(type(Operation("multiply")))
    watch(type(Operation("divide")))
    gb.backward(network, loss, x, y)
    assert rows == [("divide", 1, 1), ("multiply", 1, 1), ("matmul", 4, 1)]


def test_a_parameter_with_a_function_of_its_own(monkeypatch):
    network, loss, x, y = problem("weight norm")
    want = gb.backward(network, loss, x, y, q.DiagGGN())
    plain = layers.Parameter.forward
    monkeypatch.setattr(layers.Parameter, "forward", lambda self, *given: plain(self, *given))
    found = gb.backward(network, loss, x, y, q.DiagGGN())
    for name, value in want.gradient.items():
        np.testing.assert_array_equal(found.gradient[name], value)
        np.testing.assert_allclose(found["diag_ggn"][name], want["diag_ggn"][name], rtol=1e-12)


def test_names_are_those_of_the_nodes():
    network, loss, x, y = problem("class token")
    names = ["block.token", "block.position", "normal.weight", "normal.bias"]
    assert sorted(network.parameters) == sorted(names)
    assert set(network.state_dict()) == {*names, "scale"}
    twin = copy.deepcopy(network)
    twin.load_state_dict({name: value + 1 for name, value in network.state_dict().items()})
    assert twin.parameters["block.token"].tolist() == (network.parameters["block.token"] + 1).tolist()
    assert twin.buffers["scale"].tolist() == [2.5, 0.5]
    network.freeze("block.token")
    assert "block.token" not in gb.backward(network, loss, x, y).gradient
    inner = gb.Sequential(layers.Linear(4, 4), network, dtype="float64", rng=0)
    assert "1.block.token" in inner.parameters
    assert "1.scale" in inner.state_dict()


def test_dtypes():
    network, loss, x, y = problem("class token", "float32")
    result = gb.backward(network, loss, x, y, *ASKED)
    for name in ("batch_grad", "diag_ggn", "diag_hessian"):
        assert {value.dtype.name for value in result[name].values()} == {"float32"}
    network.astype("float64")
    assert network(x.astype("float64")).dtype == "float64"
    fresh = gb.Graph({"c": (Constant([1 / 3]),), "y": (Operation("add"), "input", "c")}, dtype="float64")
    assert fresh(np.zeros((1, 1))).item() == 1 / 3


def test_a_condition_may_be_boolean():
    mask = np.array([True, False, True])
    network = gb.Graph({
        "mask": (Constant(mask),), "fill": (Parameter(()),), "y": (Operation("where"), "mask", "input", "fill"),
    }, rng=0, dtype="float64")  # fmt: skip
    x = np.random.default_rng(0).standard_normal((3, 3))
    check_network(network, losses.MSELoss(), x, x + 1).assert_ok()
    assert network.load_state_dict(network.state_dict()).buffers["mask"].tolist() == mask.tolist()


def test_a_mask_may_be_infinite():
    mask = np.triu(np.full((3, 3), -np.inf), 1)
    network = gb.Graph({"mask": (Constant(mask),), "y": (Operation("add"), "input", "mask")}, dtype="float64")
    assert network.astype("float32").load_state_dict(network.state_dict()).buffers["mask"][0, 1] == -np.inf
    for value, words in ((mask + np.eye(3) * np.nan, "finite numbers, got NaN"), (np.full((3, 3), 1e300), "float32")):
        with pytest.raises(ValueError, match=f"buffer mask: expected .*{words}"):
            network.load_state_dict({"mask": value})


def test_training_mode_and_explanation():
    network, loss, x, y = problem("class token")
    chain = gb.Sequential(layers.Dropout(0.5), network)
    one, two = (gb.backward(chain, loss, x, y, rng=0, training=True).gradient for _ in range(2))
    assert all((one[name] == two[name]).all() for name in one)
    assert "block.token" in str(gb.explain(network, loss, x, y, *ASKED))


@pytest.mark.parametrize(("nodes", "words"), [
    ({"p": (Parameter((2,)), "input"), "y": (Operation("add"), "input", "p")}, "expected no input, got 1"),
    ({"c": (Constant([1.0]),), "y": (Operation("exp"), "c")}, "expected an output that depends on the network's input"),
    ({"p": (Parameter((5,)),), "y": (Operation("add"), "input", "p")}, "expected features that broadcast"),
    ({"p": (Operation("add"),), "y": (Operation("add"), "p", "input")}, "expected at least two inputs, got 0"),
])  # fmt: skip
def test_graphs_that_are_none_are_refused(nodes, words):
    with pytest.raises(ValueError, match=words):
        gb.Graph(nodes, rng=0)(np.zeros((2, 2), "float32"))


def test_kronecker_factors_are_refused():
    network, loss, x, y = problem("shared")
    with pytest.raises(NotImplementedError, match=r"layer p, .* cannot give KFAC: a parameter that is a node"):
        gb.backward(network, loss, x, y, q.KFAC(), rng=0)


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda: Parameter((2, 0)), ValueError, "shape: expected"),
    (lambda: Parameter((2,), initial=np.zeros(3)), ValueError, "initial: expected a number or shape"),
    (lambda: Constant(["a"]), TypeError, "value: expected an array of floats, integers or booleans"),
])  # fmt: skip
def test_leaves_that_are_none_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
