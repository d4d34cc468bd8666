"""Embedding takes integers, which the kit cannot move: its output and its Jacobian by hand, networks by the oracles."""

import copy

import numpy as np
import pytest
from common import in_turn

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.engine.estimate import Largest, estimate
from gbackprop.layers.embedding import Exact, Floats
from gbackprop.plain.plan import make_plan
from gbackprop.testing import check_network
from gbackprop.testing.runs import every_quantity

X = np.array([[3, 0, 3], [1, 1, 4]])
RNG = np.random.default_rng(0)
ONE_PER_SAMPLE = ["sum", "batch", "square", "batch_square", "square_norm"]


def embedding(**keywords):
    layer = layers.Embedding(5, 2, **keywords)
    layer.dtype = "float64"
    layer.initialize(np.random.default_rng(1))
    return layer


def by_hand(g, padding_idx=None):
    """Jᵀ g for the indices X, number by number."""
    each = np.zeros((*g.shape[:2], 5, 2))
    for n, t in np.ndindex(X.shape):
        if X[n, t] != padding_idx:
            each[:, n, X[n, t]] += g[:, n, t]
    return each


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_rows_are_looked_up(dtype):
    layer = embedding()
    y = layer.forward(X.astype(dtype))[0]
    assert y.shape == (2, *layer.output_shape((3,)))
    for n, t in np.ndindex(X.shape):
        np.testing.assert_array_equal(y[n, t], layer.parameters["weight"][X[n, t]])


@pytest.mark.parametrize(("given", "row"), [(None, None), (3, 3), (-1, 4)])
def test_the_jacobian_adds_up_what_each_row_receives_but_the_padding(given, row):
    layer, g = embedding(padding_idx=given), RNG.standard_normal((2, 2, 3, 2))
    jacobian, want = layer.parameter_jacobians(layer.forward(X)[1])["weight"], by_hand(g, row)
    np.testing.assert_allclose(jacobian.per_sample(g), want, rtol=1e-14)
    for name in ONE_PER_SAMPLE:
        got, expected = getattr(jacobian, name)(g), REDUCTIONS[name].formula(want, None)
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_jacobian_against_differences_in_the_weight():
    layer, g = embedding(), RNG.standard_normal((1, 2, 3, 2))
    each = layer.parameter_jacobians(X)["weight"].per_sample(g)[0]
    for entry in np.ndindex(5, 2):
        layer.parameters["weight"][entry] += 1.0
        up = layer.forward(X)[0]
        layer.parameters["weight"][entry] -= 1.0
        moved = ((up - layer.forward(X)[0]) * g[0]).sum((1, 2))  # the output is linear in the weight
        np.testing.assert_allclose(each[:, *entry], moved, atol=1e-12)


def test_the_padding_starts_as_zeros():
    weight = embedding(padding_idx=2).parameters["weight"]
    np.testing.assert_array_equal(np.flatnonzero((weight == 0).all(1)), [2])


L = layers
NETWORKS = {
    "mlp": [L.Embedding(5, 2), L.Flatten(), L.Linear(6, 3), L.ReLU(), L.Linear(3, 2)],
    "curved": [L.Embedding(5, 2), L.Tanh(), L.Flatten(), L.Sigmoid(), L.Linear(6, 2)],
    "convolution": [L.Embedding(5, 2), L.Permute((0, 2, 1)), L.Conv1d(2, 2, 2), L.Tanh(), L.Flatten(), L.Linear(4, 2)],
    "moved before": [L.Identity(), L.Select(1, 1), L.Embedding(5, 2), L.Sigmoid(), L.Linear(2, 2)],
    "nested": [gb.Sequential(L.Slice(1, 0, 2)), gb.Sequential(L.Embedding(5, 1), L.Flatten()), L.Linear(2, 2)],
}
Y = np.array([1, 0, 0])
LONG = np.array([[3, 0, 3], [1, 1, 4], [4, 2, 0]])


def net(name, dtype="float64"):
    parts = [copy.deepcopy(part) for part in NETWORKS[name]]
    return gb.Sequential(*parts, rng=2, dtype=dtype)


@pytest.mark.parametrize(
    ("name", "loss"), in_turn([(name,) for name in NETWORKS], [losses.CrossEntropyLoss(), losses.MSELoss("sum")])
)
def test_every_quantity_but_kronecker_factors_against_the_oracles(name, loss, device):
    target = Y if isinstance(loss, losses.CrossEntropyLoss) else RNG.standard_normal((3, 2))
    report = check_network(net(name), loss, LONG, target, device=device)
    report.assert_ok()
    judged = {r.method for r in report.rows if r.claim.startswith("is ") and r.oracle == "dense Jacobians"}
    asked = {type(quantity).__name__ for quantity in every_quantity()}
    assert asked - judged == {"KFAC", "KFLR", "KFRA"}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("indices", ["int64", "uint8"])
def test_both_engines_compute_in_the_dtype_of_the_parameters(name, dtype, indices):
    x, asked = LONG.astype(indices), [q.BatchGrad(), q.DiagHessian(), q.Variance()]
    case = (net(name, dtype), losses.CrossEntropyLoss(), x, Y, *asked)
    want, got = gb.reference(*case), gb.backward(*case, sample_block=2, column_block=1, workers=1, memory="1GiB")
    np.testing.assert_allclose(net(name, dtype)(x), want.output, rtol=1e-6)
    for quantity in asked:
        for key, value in want[quantity].items():
            assert value.dtype == got[quantity][key].dtype == want.gradient[key].dtype == dtype
            np.testing.assert_allclose(got[quantity][key], value, rtol=1e-5, atol=1e-6)


def test_the_paddings_row_has_zeros_and_the_others_what_they_have_without_padding():
    plain, padded = net("curved"), net("curved")
    padded[0].padding_idx = 3
    asked = [q.BatchGrad(), q.DiagGGN(), q.DiagHessian(), q.BatchDiagHessian(), q.Variance(), q.BatchL2Grad()]
    for call in (gb.reference, gb.backward):
        want, got = (call(n, losses.CrossEntropyLoss(), LONG, Y, *asked) for n in (plain, padded))
        pairs = [(want.gradient, got.gradient)] + [(want[quantity], got[quantity]) for quantity in asked[:-1]]
        for without, found in pairs:
            rows = np.moveaxis(found["0.weight"], -2, 0)
            assert not rows[3].any()
            others = np.delete(np.moveaxis(without["0.weight"], -2, 0), 3, 0)
            np.testing.assert_allclose(np.delete(rows, 3, 0), others, rtol=1e-12)
        square = (got[asked[0]]["0.weight"] ** 2).sum((1, 2))
        np.testing.assert_allclose(got[asked[-1]]["0.weight"], square, rtol=1e-12)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_oracles_have_zeros_in_the_paddings_row_too(frozen):
    network = net("curved")
    network[0].padding_idx = 3
    network = network.freeze("0") if frozen else network
    check_network(network, losses.CrossEntropyLoss(), LONG, Y).assert_ok()


def test_an_estimate_of_memory_does_not_depend_on_the_dtype_of_the_indices():
    estimates = set()
    for indices in ("uint8", "int64"):
        x = LONG.astype(indices)
        plan = make_plan(net("mlp"), losses.CrossEntropyLoss(), x, Y, [q.DiagHessian()], None)
        estimates.add(estimate(plan, x, Largest(2, None, 1), 100))
    assert len(estimates) == 1


def test_an_optimizer_trains_an_embedding():
    network, loss = net("convolution"), losses.CrossEntropyLoss()
    optimizer = gb.optim.SGD(network, lr=0.5)
    values = []
    for _ in range(200):
        result = gb.backward(network, loss, LONG, Y, *optimizer.quantities)
        optimizer.step(result)
        values.append(float(result.loss))
    assert values[-1] < 0.01


def test_on_a_device(gpu):
    layer, g = embedding(padding_idx=1), RNG.standard_normal((2, 2, 3, 2))
    y, want = layer.forward(X)[0], layer.parameter_jacobians(X)["weight"].per_sample(g)
    layer.drawn = {name: gb.asarray(value, gpu) for name, value in layer.parameters.items()}
    got, saved = layer.forward(gb.asarray(X, gpu))
    np.testing.assert_array_equal(gb.asnumpy(got), y)
    each = layer.parameter_jacobians(saved)["weight"].per_sample(gb.asarray(g, gpu))
    np.testing.assert_allclose(gb.asnumpy(each), want, rtol=1e-12)


def test_one_index_for_each_sample():
    net = gb.Sequential(layers.Embedding(5, 3), layers.Linear(3, 2), rng=0)
    x = np.array([4, 0, 4])
    weight, bias = net.parameters["1.weight"], net.parameters["1.bias"]
    np.testing.assert_allclose(net(x), net.parameters["0.weight"][x] @ weight.T + bias, rtol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("dtype", "most"), [(None, 2**24), ("float64", 2**53)])
def test_integers_that_the_dtype_has_become_floats_and_others_are_refused(dtype, most, sign):
    layer = Floats()
    layer.dtype = dtype
    layer.check_indices("x", np.array([[3, sign * most]]))
    layer.check_indices("x", np.zeros((0, 2), int))
    words = f"^x: expected integers of at most {most}, which {dtype or 'float32'} has, got {most + 1}$"
    with pytest.raises(ValueError, match=words):
        layer.check_indices("x", np.array([[3, sign * (most + 1)]]))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("dtype", "of_torch", "most"), [
    ("float32", 2**63 - 1, 2**24 - 1), ("float64", 2**63 - 1, 2**53 - 1), ("float64", 2**31 - 1, 2**31 - 1),
])  # fmt: skip
def test_computed_integers_are_exact_or_refused(dtype, of_torch, most, sign, gpu):
    layer, x = Exact("mul", of_torch), np.array([[3, sign * most]], dtype)
    np.testing.assert_array_equal(layer.forward(x)[0], x)
    words = f"^mul: expected integers of at most {most}, which {dtype} and torch have, got {most + 1}$"
    with pytest.raises(ValueError, match=words):
        layer.forward(x + np.array([[0, sign]], dtype))
    on_gpu = layer.forward(gb.asarray(x + np.array([[0, sign]], dtype), gpu))[0]
    np.testing.assert_array_equal(gb.asnumpy(on_gpu), [[3, np.nan]])


def test_partial_sums_of_integers_are_exact():
    x = np.array([[2**23, 1, -(2**23)]], "float32")
    assert Exact("x", 2**63 - 1, (1,)).forward(x[:, :2])[0].sum() == 2**23 + 1
    with pytest.raises(ValueError, match="x: expected integers of at most 16777215"):
        Exact("x", 2**63 - 1, (1,)).forward(x)
