"""Networks that are no chains: names, what is refused and with which words, shared and frozen parameters."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.layer import leaves_of

CE = losses.CrossEntropyLoss()
X, Y = np.random.default_rng(0).standard_normal((4, 3)), np.array([0, 1, 1, 0])


def residual(**options):
    return gb.Sequential(
        layers.Linear(3, 3), gb.Residual(layers.Linear(3, 3), layers.Tanh(), shortcut=layers.Linear(3, 3, bias=False)),
        gb.Sum(layers.Linear(3, 2), layers.Linear(3, 2)), **options,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- names


def test_parameters_are_named_by_their_places():
    assert list(residual().parameters) == [
        "0.weight", "0.bias", "1.0.weight", "1.0.bias", "1.shortcut.weight",
        "2.0.weight", "2.0.bias", "2.1.weight", "2.1.bias",
    ]  # fmt: skip


def test_layers_are_named_by_their_places():
    names = [leaf.name for leaf in leaves_of(residual(), (3,))]
    assert names == ["0", "1.0", "1.1", "1.shortcut", "1.sum", "2.0", "2.1", "2.sum"]
    product = gb.Product(layers.Tanh(), layers.Sigmoid(), layers.Identity())
    assert [leaf.name for leaf in leaves_of(product, (3,))] == ["0", "1", "2", "product", "product2"]


def test_a_graph_is_computed_in_the_order_of_its_arrows():
    nodes = {"sum": (layers.Add(), "b", "a"), "b": (layers.Tanh(), "a"), "a": (layers.Identity(), "input")}
    graph = gb.Graph(nodes, "sum")
    np.testing.assert_allclose(graph.forward(X)[0], np.tanh(X) + X)
    assert [leaf.name for leaf in leaves_of(graph, (3,))] == ["a", "b", "sum"]


@pytest.mark.parametrize("names", [("near", "middle", "far"), ("far", "middle", "near"), ("middle", "far", "near")])
def test_a_shared_layer_is_named_after_the_node_that_is_computed_first(names):
    shared = layers.Linear(3, 3)
    nodes = {"near": (shared, "input"), "middle": (layers.Tanh(), "input"), "far": (shared, "middle")}
    network = gb.Graph({name: nodes[name] for name in names} | {"sum": (layers.Add(), "far", "near")}, rng=0)
    assert list(network.state_dict()) == ["near.weight", "near.bias"]
    named = [leaf.parameters["weight"] for leaf in leaves_of(network, (3,)) if leaf.layer is shared]
    assert named == ["near.weight", "near.weight"]


def test_a_branch_alone_is_its_output():
    np.testing.assert_array_equal(gb.Sum(layers.Tanh()).forward(X)[0], np.tanh(X))


def test_a_branch_in_training_mode_draws():
    network = gb.Sequential(gb.Residual(layers.Dropout(0.5)), layers.Linear(3, 2), rng=0, dtype="float64")
    one, again, other = (gb.backward(network, CE, X, Y, rng=rng, training=True).loss for rng in (0, 0, 1))
    assert one == again
    assert one != other
    assert one == gb.reference(network, CE, X, Y, rng=0, training=True).loss


def test_graphs_are_explained_with_what_each_layer_takes():
    text = str(gb.explain(residual(rng=0, dtype="float64"), CE, X, Y))
    assert "now [1, 4, 3] at layer 1.1, [1, 4, 3] at layer 1.shortcut" in text


def test_residuals_are_explained_as_they_start():
    shared = layers.Linear(3, 3)
    network = gb.Sequential(shared, layers.Tanh(), shared, gb.Product(layers.Identity(), layers.Identity()), rng=0)
    network.astype("float64")
    steps = {step.name: step.residual for step in gb.explain(network, losses.MSELoss(), X, X, q.DiagHessian()).steps}
    assert steps["3.product"] == "u and w in pairs, Σ (u wᵀ + w uᵀ) = r, carried apart, r = gᵢ (aᵢ bᵢ + bᵢ aᵢ)"
    assert steps["2"].endswith("r = ∂² (gᵀ y) / ∂p ∂x of a parameter p, on which the input x depends too")
    assert steps["1"] == "√|r|, signs of r, r = −2y (1 − y²) g"


def test_the_uses_of_a_shared_parameter_are_explained():
    shared = layers.Linear(3, 3)
    text = str(gb.explain(gb.Sequential(shared, shared, rng=0, dtype="float64"), losses.MSELoss(), X, X))
    assert "shared    0.weight: columns are collected, and extracted at layer 0, the last of its 2 uses" in text
    assert "shared    0.bias: g is the sum over its uses at layers 0, 1, for each column" in text


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("1", lambda child: gb.Residual(layers.Linear(3, 3), child)),
        ("shortcut", lambda child: gb.Residual(layers.Linear(3, 3), shortcut=child)),
        ("1", lambda child: gb.Sum(layers.Linear(3, 3), child)),
        ("activation", lambda child: gb.TransformerEncoderLayer(3, 1, 4, dropout=0.0, activation=child)),
    ],
)
def test_a_child_that_is_replaced_is_the_one_that_computes(key, make):
    network, other = (gb.Sequential(make(child()), rng=0, dtype="float64") for child in (layers.Tanh, layers.Sigmoid))
    x = np.random.default_rng(1).standard_normal((2, 4, 3))
    assert not np.array_equal(network(x), other(x))
    network[0].children[key] = layers.Sigmoid()
    assert np.array_equal(network(x), other(x))
    assert repr(network) == repr(other)


def test_a_shortcut_that_is_assigned_computes():
    network, x = gb.Sequential(gb.Residual(layers.Tanh()), dtype="float64"), np.array([[0.5, -2.0]])
    for shortcut, value in ((layers.Sigmoid(), 1 / (1 + np.exp(-x))), (None, x)):
        network[0].shortcut = shortcut
        np.testing.assert_allclose(network(x), np.tanh(x) + value, rtol=1e-15)


# ------------------------------------------------------------------------------------------------------------- refusals

A, ADD = (layers.Tanh(), "input"), layers.Add()
GRAPHS = {
    "cycle": ({"a": (ADD, "input", "b"), "b": (layers.Tanh(), "a")}, None, ValueError, "no cycle, got a → b → a"),
    "unknown input": ({"a": (ADD, "input", "c")}, None, ValueError, r"node 'a': expected inputs among .* got 'c'"),
    "unused": ({"a": A, "b": (layers.Tanh(), "input")}, None, ValueError, r"got \['a'\] which it does not"),
    "unknown output": ({"a": A}, "b", ValueError, r"output: expected one of the nodes \['a'\], got 'b'"),
    "dots": ({"a..b": A}, None, ValueError, "node 'a..b': expected a name or a path with dots"),
    "inside": ({"a.b": A, "a": (ADD, "a.b", "a.b")}, None, ValueError, "'a.b': .* no other .* starts, got 'a', too"),
    "input": ({"input": A}, None, ValueError, "node 'input': expected a name or a path with dots, other than 'input'"),
    "unhashable input": ({"a": (layers.Tanh(), ["input"])}, None, ValueError, r"node 'a': .* got \['input'\]"),
    "unhashable output": ({"a": A}, ["a"], ValueError, r"output: expected one of the nodes \['a'\], got \['a'\]"),
    "no layer": ({"a": ("tanh", "input")}, None, TypeError, r"node 'a': expected \(layer, inputs …\)"),
    "no inputs": ({"a": (layers.Tanh(),)}, None, TypeError, r"node 'a': expected \(layer, inputs …\)"),
    "empty": ({}, None, TypeError, "nodes: expected a mapping"),
}


def test_a_path_as_a_name_names_parameters_as_nesting_does():
    flat = gb.Graph({"a.0": (layers.Linear(3, 3), "input"), "a.1": (layers.Linear(3, 2), "a.0")}, rng=0)
    nested = gb.Graph({"a": (gb.Sequential(layers.Linear(3, 3), layers.Linear(3, 2)), "input")}, rng=0)
    assert list(flat.parameters) == list(nested.parameters)
    assert list(flat.freeze("a.0").trainable) == ["a.1.weight", "a.1.bias"]
    assert not flat.freeze("a").trainable


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_that_is_none_is_refused(name):
    nodes, output, error, words = GRAPHS[name]
    with pytest.raises(error, match=words):
        gb.Graph(nodes, output)


SHAPES = {
    "residual": (gb.Residual(layers.Linear(3, 2)), r"layer sum, Add\(\): .* got \(2,\) and \(3,\)"),
    "sum": (gb.Sum(layers.Linear(3, 2), layers.Linear(3, 4)), r"layer sum, Add\(\): .* got \(2,\) and \(4,\)"),
    "product": (gb.Product(layers.Linear(3, 2), layers.Tanh()), r"layer product, Multiply\(\): .* \(2,\) and \(3,\)"),
    "nested": (gb.Sequential(gb.Sum(layers.Tanh(), layers.Linear(3, 1))), r"layer 0.sum, Add\(\)"),
    "axis": (gb.Concatenate(layers.Tanh(), layers.Tanh(), axis=2), r"layer concatenation, Concat\(axis=2\)"),
    "two inputs": (gb.Graph({"a": (layers.Tanh(), "input", "input")}), r"layer a, Tanh\(\): expected one input, got 2"),
    "container": (
        gb.Graph({"a": (gb.Sequential(layers.Tanh()), "input", "input")}),
        r"layer a, Sequential\(Tanh\(\)\): expected one input, got 2",
    ),
    "one input": (gb.Sequential(layers.Add()), r"layer 0, Add\(\): expected at least two inputs, got 1"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_branches_that_do_not_fit_are_refused_by_the_name_of_the_place(name):
    network, words = SHAPES[name]
    with pytest.raises(ValueError, match=words):
        gb.backward(network, losses.MSELoss(), X, X)


def test_no_branches_are_refused():
    with pytest.raises(ValueError, match="Sum: expected at least one branch, got none"):
        gb.Sum()


SHARED = layers.Linear(3, 3)
KFRA = {
    "residual": (gb.Sequential(gb.Residual(layers.Linear(3, 3))), "layer 0.sum.* cannot give KFRA: its recursion"),
    "shared": (gb.Sequential(SHARED, SHARED), "parameter 0.weight cannot give KFRA: it is used at 2 places"),
}


@pytest.mark.parametrize("name", KFRA)
def test_kfra_is_for_chains(name):
    network, words = KFRA[name]
    with pytest.raises(gb.UnsupportedError, match=words):
        gb.backward(network, losses.MSELoss(), X.astype("float32"), X.astype("float32"), q.KFRA())


def test_kfra_takes_branches_below_the_lowest_parameter():
    network = gb.Sequential(gb.Residual(layers.Tanh()), layers.Linear(3, 2), rng=0, dtype="float64")
    plain = gb.Sequential(network[1])
    below = np.tanh(X) + X
    found = gb.backward(network, CE, X, Y, q.KFRA())["kfra"]["1.weight"]
    want = gb.backward(plain, CE, below, Y, q.KFRA())["kfra"]["0.weight"]
    np.testing.assert_allclose(found.B, want.B, rtol=1e-13)
    np.testing.assert_allclose(found.A, want.A, rtol=1e-13)


class Squared(layers.Layer):
    """y = w x², with a parameter that multiplies what is not linear."""

    curvature = "diagonal"

    def parameter_shapes(self):
        return {"weight": (3,)}

    def draw(self, rng):
        return {"weight": rng.standard_normal(3)}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.parameters["weight"] * x * x, x

    def mjp(self, saved, mat):
        return 2 * self.parameters["weight"] * saved * mat

    def residual(self, saved, grad):
        return 2 * self.parameters["weight"] * grad

    def parameter_jacobians(self, saved):
        return {"weight": Entries(saved)}


class Entries(layers.ParameterJacobian):
    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return mat * self.x * self.x


def test_a_curved_layer_that_depends_on_itself_is_refused_where_the_residual_needs_its_mixed_part():
    shared = Squared()
    network = gb.Sequential(shared, shared, layers.Linear(3, 2), rng=0, dtype="float64")
    gb.backward(network, CE, X, Y, q.DiagGGN())
    words = r"layer 1, Squared\(\) cannot give DiagHessian: its input depends on its weight too, it is not affine"
    with pytest.raises(gb.UnsupportedError, match=words):
        gb.backward(network, CE, X, Y, q.DiagHessian())


class Slope(layers.Layer):
    """y = x where x > 0, else a x: no curvature, and yet not affine in x."""

    def parameter_shapes(self):
        return {"a": (1,)}

    def draw(self, rng):
        return {"a": np.array([0.3])}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x * self.slope(x), x

    def slope(self, x):
        return np.where(x > 0, 1, self.parameters["a"])

    def mjp(self, saved, mat):
        return mat * self.slope(saved)

    def parameter_jacobians(self, saved):
        return {"a": OfNegatives(saved)}


class OfNegatives(layers.ParameterJacobian):
    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return (mat * np.minimum(self.x, 0)).sum(-1, keepdims=True)


@pytest.mark.parametrize("features", [1, 3])
def test_a_layer_that_is_not_affine_is_refused_though_it_has_no_curvature(features):
    shared = Slope()
    first, last = layers.Linear(3, features), layers.Linear(features, 2)
    network = gb.Sequential(first, shared, shared, last, rng=0, dtype="float64")
    gb.backward(network, CE, X, Y, q.DiagGGN())
    with pytest.raises(gb.UnsupportedError, match=r"layer 2, Slope\(\) cannot give DiagHessian: .* its a too"):
        gb.backward(network, CE, X, Y, q.DiagHessian())
    gb.backward(gb.Sequential(first, shared, last), CE, X, Y, q.DiagHessian())  # used once it needs none


# --------------------------------------------------------------------------------------------------- frozen parameters


def test_frozen_parameters_have_no_results_and_the_others_stay_the_same():
    network = residual(rng=0, dtype="float64")
    asked = [q.BatchGrad(), q.DiagGGN(), q.DiagHessian(), q.KFLR()]
    whole = gb.backward(network, CE, X, Y, *asked)
    assert network.frozen == frozenset()
    network.freeze("1.0.weight", "2.1")
    assert network.frozen == {"1.0.weight", "2.1.weight", "2.1.bias"}
    assert network[1].frozen == {"0.weight"}
    part = gb.backward(network, CE, X, Y, *asked)
    rest = [name for name in whole.gradient if name not in ("1.0.weight", "2.1.weight", "2.1.bias")]
    assert list(part.gradient) == rest == list(network.trainable)
    for quantity in asked[:3]:
        assert list(part[quantity]) == rest
        for name in rest:
            np.testing.assert_array_equal(part[quantity][name], whole[quantity][name])
    network.unfreeze("2.1", "1.0")
    assert list(gb.backward(network, CE, X, Y).gradient) == list(whole.gradient)


def test_the_sweep_ends_above_frozen_layers():
    network = residual(rng=0, dtype="float64").freeze("0", "1.0")
    steps = gb.explain(network, CE, X, Y, q.DiagHessian()).steps
    assert [step.name for step in steps] == ["loss", "2.sum", "2.1", "2.0", "1.sum", "1.shortcut"]


def test_frozen_parameters_stay_in_the_state_dict_and_do_not_move():
    network = residual(rng=0, dtype="float64").freeze("0")
    before = network.state_dict()
    for make in (gb.optim.SGD, gb.optim.Adam, lambda net, lr: gb.optim.Preconditioned(net, q.KFAC(), lr, 1.0)):
        optimizer = make(network, 0.1)
        optimizer.step(gb.backward(network, CE, X, Y, *optimizer.quantities, rng=0))
        make(network, 0.1).load_state_dict(optimizer.state_dict())
    after = network.state_dict()
    moved = [name for name in after if (after[name] != before[name]).any()]
    assert moved == [name for name in before if not name.startswith("0.")]


def test_freezing_everything_leaves_the_loss():
    network = residual(rng=0, dtype="float64").freeze()
    result = gb.backward(network, CE, X, Y, q.DiagGGN())
    assert result.gradient == {}
    assert result["diag_ggn"] == {}
    assert result.loss > 0


def test_what_is_frozen_must_exist():
    network = residual()
    with pytest.raises(ValueError, match=r"expected a parameter or layer among .*'0.weight'.* got '3.weight'"):
        network.freeze("0", "3.weight")
    assert len(network.trainable) == len(network.parameters)


def test_what_is_no_mapping_is_no_state_dict():
    with pytest.raises(TypeError, match=r"^state dict: expected a mapping of names to arrays, got list$"):
        residual().load_state_dict([np.ones(2)])
