"""DiagHessian does not depend on the units of what meets in a product, or of a parameter and its layer's input."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.layers.norms.affine import Times


def of_two(join, shape, s):
    """Two branches in units of 1/s and s, whose product is in units of 1."""
    nodes = {}
    for name, factor in (("a", s), ("b", 1 / s)):
        nodes |= {name: (layers.Linear(4, 4), "input"), f"{name}1": (layers.Tanh(), name),
                  f"{name}2": (Times(factor), f"{name}1"),
                  f"{name}3": (layers.Unflatten(1, shape), f"{name}2")}  # fmt: skip
    return gb.Graph({**nodes, "y": (join, "a3", "b3"), "z": (layers.Flatten(), "y")}, rng=0, dtype="float64")


def of_shared(layer, back, s):
    """A layer at two places, the second in units of 1/s, after which units are 1 again."""
    nodes = {"a": (layer, "input"), "t": (layers.Tanh(), "a"), "s": (Times(s), "t"), "b": (layer, "s"),
             "u": (Times(1 / s if back else 1.0), "b"), "v": (layers.Tanh(), "u")}  # fmt: skip
    return gb.Graph(nodes, rng=0, dtype="float64")


NETWORKS = {
    "Multiply": lambda s: of_two(layers.Multiply(), (4,), s),
    "MatMul": lambda s: of_two(layers.MatMul(), (2, 2), s),
    "multiply": lambda s: of_two(layers.Operation("multiply"), (4,), s),
    "matmul": lambda s: of_two(layers.Operation("matmul"), (2, 2), s),
    "Linear": lambda s: of_shared(layers.Linear(4, 4, bias=False), True, s),
    "PReLU": lambda s: of_shared(layers.PReLU(4), True, s),
    "LayerNorm": lambda s: of_shared(layers.LayerNorm(4, eps=1e-30), False, s),
}


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_curvature_is_that_of_any_units(name, call):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))

    def diagonal(s):
        return call(NETWORKS[name](s), losses.MSELoss(), x, y, q.DiagHessian())["diag_hessian"]

    other = diagonal(2.0**40)
    for key, want in diagonal(1.0).items():
        np.testing.assert_allclose(other[key], want, rtol=0, atol=1e-11 * abs(want).max(), err_msg=key)


def tiny(name, size):
    """A network with a batch, in which one factor of products is `size` times the other, and not 0."""
    rng, x = np.random.default_rng(1), np.random.default_rng(2).standard_normal((4, 3, 4)).astype("float32")
    layer = {"attention": gb.MultiheadAttention(4, 2), "GRU": gb.GRU(4, 4), "LSTM": gb.LSTM(4, 4)}[name]
    network = gb.Sequential(layer, layers.Flatten(), layers.Linear(12, 3), rng=0)
    for key, value in network.parameters.items():
        if (name == "GRU" and "bias" in key) or (name == "LSTM" and key == "0.weight_hh_l0"):
            value *= np.float32(size)
    return network, x * np.float32(size if name == "attention" else 1), rng.integers(0, 3, 4)


@pytest.mark.parametrize(
    ("call", "options"),
    [(gb.reference, {}), (gb.backward, {}), (gb.backward, {"column_block": 1}), (gb.backward, {"column_block": 7})],
)
@pytest.mark.parametrize("name", ["attention", "GRU", "LSTM"])
def test_a_factor_near_zero_is_not_lost_in_rounding(call, name, options):
    """In float32, beside the matrix of the operator in float64: columns of both signs would be 10³ times too long."""
    network, x, y = tiny(name, 1e-6)
    found = call(network, losses.CrossEntropyLoss(), x, y, q.DiagHessian(), **options)["diag_hessian"]
    twin = tiny(name, 1e-6)[0].astype("float64")
    operator = gb.operators.Hessian(twin, losses.CrossEntropyLoss(), [(x.astype("float64"), y)])
    want, start = np.diagonal(operator @ np.eye(operator.shape[0])), 0
    for key, value in found.items():
        exact = want[start : start + value.size].reshape(value.shape)
        start += value.size
        np.testing.assert_allclose(value, exact, rtol=0, atol=1e-5 * abs(exact).max(), err_msg=key)
    assert start == len(want)


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
@pytest.mark.parametrize("gap", [40, 60, 80])
def test_the_curvature_of_a_sample_that_is_classified_surely(call, gap):
    """g is 10⁻¹⁸ to 10⁻³⁵, the square of which is 0 in float32."""
    found = {}
    for dtype in ("float32", "float64"):
        gate = gb.Product(layers.Linear(4, 4), gb.Sequential(layers.Linear(4, 4), layers.Tanh()))
        network = gb.Sequential(layers.Linear(4, 4), gate, layers.Linear(4, 2), rng=0, dtype=dtype)
        network.parameters["2.bias"][...] = [gap, 0]
        x = np.random.default_rng(1).standard_normal((1, 4)).astype("float32").astype(dtype)
        found[dtype] = call(network, losses.CrossEntropyLoss(), x, np.array([0]), q.DiagHessian())["diag_hessian"]
    for key, want in found["float64"].items():
        np.testing.assert_allclose(found["float32"][key], want, rtol=0, atol=1e-5 * abs(want).max(), err_msg=key)


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
@pytest.mark.parametrize(
    ("dtype", "one", "two"), [("float32", 1e-30, 1e30), ("float32", 1e-23, 1e18), ("float64", 1e-170, 1e170)]
)
def test_the_curvature_of_a_product_of_what_is_small_and_what_is_large(dtype, one, two, call):
    """f = (one p x) (two p x), of ℓ = (f + 1)²: ℓ'' = 2 f'² + 2 (f + 1) f'' with f' = 2 one two, f'' = 2 one two."""
    nodes = {"p": (layers.Linear(1, 1, bias=False), "input")}
    nodes |= {name: (Times(value), "p") for name, value in (("a", one), ("b", two))}
    network = gb.Graph({**nodes, "y": (layers.Multiply(), "a", "b")}, rng=0, dtype=dtype)
    network.parameters["p.weight"][...] = 1
    f = one * two
    result = call(network, losses.MSELoss(), np.ones((2, 1), dtype), np.full((2, 1), -1.0, dtype), q.DiagHessian())
    np.testing.assert_allclose(result["diag_hessian"]["p.weight"], 8 * f**2 + 4 * (f + 1) * f, rtol=1e-6)


def used_twice(r):
    """A weight at two inputs, of which one is in units of 1/r, below a product; and another batch of both."""
    weight, rng = layers.Linear(4, 4, bias=False), np.random.default_rng(0)
    nodes = {"a": (weight, "input.u"), "b": (weight, "input.v"), "m": (layers.Multiply(), "a", "b"),
             "o": (layers.Linear(4, 2, bias=False), "m")}  # fmt: skip
    network = gb.Graph(nodes, inputs={"u": (4,), "v": (4,)}, rng=0)
    network.parameters["o.weight"][...] *= np.float32(1e-3 / r)
    return network, {"u": r * rng.standard_normal((6, 4)), "v": rng.standard_normal((6, 4))}


def at_two_positions(r):
    """A product of one layer's outputs at two positions of a sequence, of which one is in units of 1/r."""
    product = gb.Product(layers.Select(1, 0), layers.Select(1, 1))
    network = gb.Sequential(layers.Linear(4, 4, bias=False), product, layers.Linear(4, 2), rng=0)
    network.parameters["2.weight"][...] *= np.float32(1e-3 / r)
    return network, np.random.default_rng(0).standard_normal((6, 2, 4)) * np.array([[r], [1]])


def in_dtype(x, dtype):
    """Round an input, or each of several, to float32, then cast it."""
    return {name: in_dtype(x[name], dtype) for name in x} if isinstance(x, dict) else x.astype("float32").astype(dtype)


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
@pytest.mark.parametrize("made", [used_twice, at_two_positions])
@pytest.mark.parametrize("r", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("quantity", [q.DiagHessian, q.BatchDiagHessian])
def test_the_curvature_of_a_weight_that_meets_inputs_of_different_sizes(call, made, r, quantity):
    """The two factors of a product reach the same weight: their squares are r times what is left of them."""
    (network, x), y, loss = made(r), np.arange(6) % 2, losses.CrossEntropyLoss("sum")
    found = call(network, loss, in_dtype(x, "float32"), y, quantity()).values[0]
    exact = call(network.astype("float64"), loss, in_dtype(x, "float64"), y, quantity()).values[0]
    for key, want in exact.items():
        assert found[key].dtype == "float32"
        np.testing.assert_allclose(found[key], want, rtol=0, atol=1e-6 * abs(want).max(), err_msg=key)


@pytest.mark.parametrize(
    ("quantity", "of_inputs", "of_columns"),
    [(each, *sizes) for each in (q.BatchL2Grad(), q.GramGradients(), q.GramGGN())
     for sizes in ((1e12, 1e-23), (1e8, 1e-24), (1e-18, 1e20))] + [(q.BatchL2Grad(), 1e-23, 1e15)],
)  # fmt: skip
def test_norms_of_gradients_of_which_one_factor_squared_is_beyond_the_range(quantity, of_inputs, of_columns):
    """y = V W x of ℓ = ‖y − t‖²: in W the gradient is g xᵀ, g = 2 Vᵀ (y − t), and a column c xᵀ, c = √2 Vᵀ e."""
    rng = np.random.default_rng(0)
    x, t, first, second = (rng.standard_normal(shape).astype("float32") for shape in ((4, 5), (4, 2), (3, 5), (2, 3)))
    x, second = x * np.float32(of_inputs), second * np.float32(of_columns)
    net = gb.Sequential(layers.Linear(5, 3, bias=False), layers.Linear(3, 2, bias=False), dtype="float32")
    net.load_state_dict({"0.weight": first, "1.weight": second})
    found = gb.backward(net, losses.MSELoss("sum"), x, t, quantity)[quantity.name]["0.weight"]
    x, t, first, second = (each.astype("float64") for each in (x, t, first, second))
    g = 2 * (x @ first.T @ second.T - t) @ second
    columns = np.tile(2**0.5 * second, (4, 1)) if quantity.name == "gram_ggn" else g
    rows = np.einsum("no,ni->noi", columns, np.repeat(x, len(columns) // 4, axis=0)).reshape(len(columns), -1)
    want = rows @ rows.T if quantity.name != "batch_l2_grad" else (rows**2).sum(1)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * abs(want).max())
