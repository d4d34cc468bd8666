"""Derivatives in the entries of the input, and in some of the parameters: by brute force, in both engines."""

import numpy as np
import pytest
from common import in_turn, one_in

import gbackprop as gb
from gbackprop import layers, losses, operators
from gbackprop import quantities as q
from gbackprop.calculus.signals import EXACT
from gbackprop.layers import Operation, Parameter
from gbackprop.testing.oracles import Dense

N = 3
TARGETS = np.array([[0, 1, 1], [1, 1, 0]])
ASKED = (
    q.BatchGrad(), q.BatchL2Grad(), q.SecondMoment(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN(), q.DiagHessian(),
    q.BatchDiagHessian(), q.DiagGGNMC(targets=TARGETS),
)  # fmt: skip
CALLS = [
    (gb.reference, {}), (gb.backward, {}),
    (gb.backward, {"sample_block": 2, "column_block": 3}), (gb.backward, {"sample_block": 1, "workers": 2}),
]  # fmt: skip


def chain():
    return gb.Sequential(
        layers.Conv2d(1, 2, 2), layers.Tanh(), layers.AvgPool2d(2), layers.Flatten(), layers.Linear(2, 2)
    )


def recurrent():
    return gb.Sequential(gb.LSTM(2, 2), gb.GRU(2, 2), layers.Flatten(), layers.Linear(4, 2))


def graph():
    inner = gb.Graph({
        "left": (layers.Linear(2, 2), "input"), "product": (Operation("multiply"), "left", "input"),
        "token": (Parameter((1, 2)),), "y": (Operation("add"), "product", "token"),
    })  # fmt: skip
    return gb.Sequential(gb.Residual(inner, layers.Sigmoid()), inner, layers.Flatten(), layers.Linear(4, 2))


def attention():
    return gb.Sequential(gb.MultiheadAttention(2, 1), layers.Flatten(), layers.Linear(4, 2))


def parameter_free():
    return gb.Sequential(layers.Softmax(1))


NETWORKS = {chain: (1, 3, 3), recurrent: (2, 2), graph: (2, 2), attention: (2, 2), parameter_free: (2,)}


def problem(make, loss="mean", dtype="float64"):
    network, rng = make(), np.random.default_rng(1)
    network.initialize(np.random.default_rng(0))
    x = rng.standard_normal((N, *NETWORKS[make]))
    return network.astype(dtype), losses.CrossEntropyLoss(reduction=loss), x.astype(dtype), np.array([0, 1, 1])


def of_sample(network, x, y, loss, n):
    """Return a network of which the input of sample n is a parameter, and the arguments of a call for it alone."""
    nodes = {
        "x": (Parameter(x.shape[1:], initial=x[n]),), "zero": (Operation("affine", factor=0.0), "input"),
        "sum": (Operation("add"), "zero", "x"), "net": (network, "sum"),
    }  # fmt: skip
    return gb.Graph(nodes, "net", dtype="float64"), type(loss)(reduction="sum"), x[n : n + 1], y[n : n + 1]


def expected(network, loss, x, y):
    """Return each quantity in the entries of x, by brute force for one sample after another."""
    r = 1 / N if loss.reduction == "mean" else 1.0
    rows = {}
    for n in range(N):
        posed = of_sample(network, x, y, loss, n)
        dense = Dense(*posed)
        mc = gb.reference(*posed, q.DiagGGNMC(targets=TARGETS[:, n : n + 1]))["diag_ggn_mc"]["x"]
        found = {name: dense[name]["x"] for name in ("diag_ggn", "diag_hessian")} | {"diag_ggn_mc": mc}
        for name, value in ({"grad": dense["batch_grad"]["x"][0]} | found).items():
            rows.setdefault(name, []).append(value)
    each = {name: np.stack(values) for name, values in rows.items()}
    all_samples = np.zeros((N, *x.shape))  # of the definition: sample n has zeros in all rows but its own
    all_samples[range(N), range(N)] = each["grad"]
    return {
        "batch_grad": r * each["grad"], "batch_l2_grad": (r * each["grad"].reshape(N, -1)).__pow__(2).sum(1),
        "second_moment": (all_samples**2).mean(0), "variance": all_samples.var(0),
        "diag_ggn": r * each["diag_ggn"], "batch_diag_ggn": r * each["diag_ggn"],
        "diag_hessian": r * each["diag_hessian"], "batch_diag_hessian": r * each["diag_hessian"],
        "diag_ggn_mc": r * each["diag_ggn_mc"],
    }  # fmt: skip


@pytest.mark.parametrize(("make", "reduction"), one_in(5, [(make, r) for make in NETWORKS for r in ("mean", "sum")]))
def test_every_quantity_in_the_entries_of_the_input(make, reduction):
    network, loss, x, y = problem(make, reduction)
    want, whole = expected(network, loss, x, y), gb.reference(network, loss, x, y, *ASKED)
    for call, options in CALLS:
        for wrt in ("x", ["x", *network.parameters]):
            result = call(network, loss, x, y, *ASKED, wrt=wrt, **options)
            np.testing.assert_allclose(result.gradient["x"], want["batch_grad"], atol=1e-12)
            for quantity in ASKED:
                assert list(result[quantity]) == (["x"] if wrt == "x" else wrt)
                np.testing.assert_allclose(
                    result[quantity]["x"], want[quantity.name], atol=1e-12, err_msg=f"{quantity} {call} {options}"
                )
                for name, value in whole[quantity].items() if wrt != "x" else ():
                    np.testing.assert_allclose(result[quantity][name], value, atol=1e-12)


@pytest.mark.parametrize(("make", "cut"), in_turn([(make,) for make in NETWORKS], [(N,), (1, N)]))
def test_operators_over_the_input(make, cut):
    network, loss, x, y = problem(make)
    data = [(x[start:stop], y[start:stop]) for start, stop in zip((0, *cut), cut, strict=False)]
    names = ["x", *network.parameters]
    result = gb.backward(network, loss, x, y, q.DiagGGN(), q.DiagHessian(), wrt=names)
    for kind, quantity in ((operators.GGN, "diag_ggn"), (operators.Hessian, "diag_hessian")):
        for blocks in (False, True):
            matrix = kind(network, loss, data, wrt=names, blocks=blocks).to_dense()
            diagonal = np.concatenate([result[quantity][name].ravel() for name in names])
            np.testing.assert_allclose(np.diag(matrix), diagonal, atol=1e-12)
            np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    jacobian = operators.Jacobian(network, [x for x, _ in data], wrt="x")
    dense = jacobian.to_dense().reshape(N, -1, *x.shape)
    for n in range(N):
        each = Dense(*of_sample(network, x, y, loss, n)).jacobians["x"].reshape(dense[n, :, n].shape)
        np.testing.assert_allclose(jacobian.to_arrays()["x"][n], each, atol=1e-12)
        np.testing.assert_allclose(dense[n, :, n], each, atol=1e-12)
        assert not np.delete(dense[n], n, axis=1).any()
    vectors = np.random.default_rng(2).standard_normal((x.size, 2))
    np.testing.assert_allclose(jacobian @ vectors, jacobian.to_dense() @ vectors, atol=1e-12)
    outputs = jacobian @ vectors
    np.testing.assert_allclose(jacobian.T @ outputs, jacobian.to_dense().T @ outputs, atol=1e-12)


@pytest.mark.parametrize("make", [chain, recurrent])
def test_the_hessian_of_input_and_parameters_by_differences_of_the_gradient(make):
    network, loss, x, y = problem(make)
    wrt = ["x", "0.weight" if make is chain else "0.weight_hh_l0"]

    def gradient():
        return np.concatenate([value.ravel() for value in gb.reference(network, loss, x, y, wrt=wrt).gradient.values()])

    columns, step = [], 1e-5
    for values in (x, network.parameters[wrt[1]]):
        for i in np.ndindex(values.shape):
            before, sides = values[i], []
            for moved in (before + step, before - step):
                values[i] = moved
                sides.append(gradient())
            values[i] = before
            columns.append((sides[0] - sides[1]) / (2 * step))
    matrix = operators.Hessian(network, loss, [(x, y)], wrt=wrt).to_dense()
    np.testing.assert_allclose(matrix, columns, atol=1e-9)


def test_some_parameters_alone():
    network, loss, x, y = problem(chain)
    asked, wrt = (q.KFAC(), q.EKFAC(), q.DiagHessian()), ["4.weight"]
    whole, some = (gb.backward(network, loss, x, y, *asked, rng=0, wrt=each) for each in (None, wrt))
    assert list(some.gradient) == wrt
    np.testing.assert_array_equal(some.gradient["4.weight"], whole.gradient["4.weight"])
    np.testing.assert_allclose(some["kfac"]["4.weight"].B, whole["kfac"]["4.weight"].B, atol=1e-14)
    one, other = (each["ekfac"]["4.weight"].eigenvalues for each in (some, whole))
    np.testing.assert_allclose(one, other, atol=1e-14)
    got = gb.prepare(network, loss, wrt="x")(x, y).gradient["x"]
    np.testing.assert_allclose(got, gb.reference(network, loss, x, y, wrt="x").gradient["x"], atol=1e-14)
    assert list(gb.backward(network, loss, x, y).gradient) == list(network.parameters)


def test_draws_and_weights_are_the_same_for_the_input():
    network = gb.Sequential(layers.Linear(2, 4), layers.Dropout(0.5), layers.Linear(4, 2), rng=0, dtype="float64")
    rng, loss = np.random.default_rng(0), losses.MSELoss()
    x, y, weights = rng.standard_normal((N, 2)), rng.standard_normal((N, 2)), np.array([0.5, 0.0, 2.0])
    options = {"rng": 1, "training": True, "sample_weight": weights}
    results = [gb.backward(network, loss, x, y, wrt=wrt, **options) for wrt in (None, ["x", "0.weight"])]
    np.testing.assert_array_equal(results[0].gradient["0.weight"], results[1].gradient["0.weight"])
    gradient = results[1].gradient["x"]
    assert not gradient[1].any()
    assert gradient[0].any()


def test_dtype_and_files(tmp_path):
    pytest.importorskip("safetensors")
    network, loss, x, y = problem(chain, dtype="float32")
    result = gb.backward(network, loss, x, y, q.Variance(), q.DiagHessian(), wrt="x")
    assert {result.gradient["x"].dtype, *(result[name]["x"].dtype for name in result)} == {np.dtype("float32")}
    gb.save(result, tmp_path / "result")
    found = gb.load_result(tmp_path / "result")
    assert found.scale == result.scale
    for each in (result, found):
        with pytest.raises(NotImplementedError, match="cannot be merged: x has rows of its own samples"):
            gb.data.merge([each, each])


@pytest.mark.parametrize(("wrt", "error", "words"), [
    ("y", ValueError, r"wrt: expected names among \['x', '0.weight'"),
    (["0.weigth"], ValueError, "did you mean '0.weight'"),
    ("4.bias", ValueError, r"wrt: expected names among .*, got '4.bias', which is frozen \(net.unfreeze\)"),
    ([], TypeError, "wrt: expected names of parameters, or 'x'"),
    (3, TypeError, "wrt: expected names of parameters, or 'x'"),
])  # fmt: skip
def test_names_that_are_none_are_refused(wrt, error, words):
    network, loss, x, y = problem(chain)
    network.freeze("4.bias")
    for call in (gb.backward, gb.reference):
        with pytest.raises(error, match=words):
            call(network, loss, x, y, wrt=wrt)
    with pytest.raises(error, match=words):
        operators.GGN(network, loss, [(x, y)], wrt=wrt)


@pytest.mark.parametrize("quantity", [q.KFAC(), q.KFLR(), q.KFRA(), q.EKFAC(), q.GramGradients()], ids=str)
def test_what_the_input_cannot_have_is_refused(quantity):
    network, loss, x, y = problem(chain)
    message = r"layer x, .* cannot give .*the entries of x are no weight .*\(leave 'x' out of wrt, or ask"
    for wrt in ("x", ["x", "0.weight"]):
        with pytest.raises(NotImplementedError, match=message):
            gb.backward(network, loss, x, y, quantity, wrt=wrt, rng=0)


class OneFactor(q.Quantity):
    """B of KFLR in one parameter, whatever else is differentiated in."""

    name = "one_factor"
    scale = "R"

    def statistics(self):
        return (q.Statistic("kronecker", EXACT, only="4.weight"),)

    def finish(self, scale, b):
        return b


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
def test_what_is_asked_of_one_parameter_need_not_be_in_the_others(call):
    network, loss, x, y = problem(chain)
    whole = gb.backward(network, loss, x, y, q.KFLR())["kflr"]["4.weight"].B
    found = call(network, loss, x, y, OneFactor(), wrt=["x", "4.weight"])["one_factor"]["4.weight"]
    np.testing.assert_allclose(found, whole, rtol=1e-12)
    above = layers.Tanh(), layers.Flatten(), layers.Identity(), layers.Linear(6, 2)
    words = gb.Sequential(layers.Embedding(5, 3), *above)
    x, y = np.arange(8).reshape(4, 2) % 5, np.ones((4, 2), words.parameters["4.weight"].dtype)
    found = call(words, losses.MSELoss(), x, y, OneFactor())["one_factor"]["4.weight"]
    np.testing.assert_allclose(found, np.eye(2), rtol=1e-6)  # the Hessian of ‖f − y‖² / 2


def test_inputs_that_have_no_derivative_are_refused():
    network = gb.Sequential(layers.Embedding(4, 2), layers.Flatten(), layers.Linear(4, 2), rng=0)
    x, y = np.zeros((N, 2), "int64"), np.array([0, 1, 1])
    with pytest.raises(TypeError, match="wrt: expected an input of floats for 'x', got int64"):
        gb.backward(network, losses.CrossEntropyLoss(), x, y, wrt="x")
    named = gb.Graph({"x": (Parameter((2,)),), "y": (Operation("add"), "x", "input")}, "y", rng=0)
    with pytest.raises(ValueError, match="a network without a parameter of the input's name"):
        gb.backward(named, losses.CrossEntropyLoss(), np.zeros((N, 2), "float32"), y, wrt="x")
    network, loss, x, y = problem(chain)
    with pytest.raises(TypeError, match="x: expected float64"):
        gb.backward(network, loss, x.astype("float32"), y, wrt="x")
