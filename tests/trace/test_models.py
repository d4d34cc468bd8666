"""Networks written as NumPy functions: every quantity by brute force from the function itself, and from layers."""

import numpy as np
import pytest
from numpy_models import MODELS, as_function, as_layers, narrow, problem

import gbackprop as gb
from benchmarks.specs import SPECS
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.interop.recording.network import named
from gbackprop.testing import check_network

ASKED = (q.BatchGrad(), q.DiagGGN(), q.DiagHessian())
STEP = 5e-4
PLACES = np.arange(-3, 4) * STEP
FIRST = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60 / STEP
SECOND = np.array([2, -27, 270, -490, 270, -27, 2]) / 180 / STEP**2


def leaves(parameters):
    """The arrays of nested parameters, in order."""
    if isinstance(parameters, dict | list):
        inside = parameters.values() if isinstance(parameters, dict) else parameters
        return [array for each in inside for array in leaves(each)]
    return [parameters]


def rebuilt(parameters, arrays):
    if isinstance(parameters, dict):
        return {key: rebuilt(value, arrays) for key, value in parameters.items()}
    if isinstance(parameters, list):
        return [rebuilt(value, arrays) for value in parameters]
    return next(arrays)


def brute_force(function, parameters, x, y):
    """BatchGrad, DiagGGN and DiagHessian of the mean squared error, by differences of the user's function alone."""
    arrays, n = leaves(parameters), len(y)
    y = y.reshape(n, -1)

    def output(k, i, step):
        moved = [array.copy() for array in arrays]
        moved[k].flat[i] += step
        return function(rebuilt(parameters, iter(moved)), x).reshape(n, -1)

    places = [(k, i) for k, array in enumerate(arrays) for i in range(array.size)]
    outputs = np.array([[output(k, i, step) for step in PLACES] for k, i in places])
    jacobian = np.einsum("s,psnc->pnc", FIRST, outputs)
    errors = outputs[0, 3] - y
    return {
        "batch_grad": np.einsum("pnc,nc->np", jacobian, 2 / y.size * errors),
        "diag_ggn": 2 / y.size * (jacobian**2).sum((1, 2)),
        "diag_hessian": ((outputs - y) ** 2).mean((2, 3)) @ SECOND,
    }


@pytest.mark.parametrize("name", MODELS)
def test_quantities_are_those_of_the_function_itself(name):
    function, parameters, x = problem(name)
    network = gb.trace(function, parameters, x)
    y = np.random.default_rng(1).standard_normal(network(x).shape)
    np.testing.assert_allclose(network(x), function(parameters, x), rtol=0, atol=1e-13)
    expected = brute_force(function, parameters, x, y)
    for call in (gb.reference, gb.backward):
        result = call(network, losses.MSELoss(), x, y, *ASKED)
        for key, want in expected.items():
            rows = [result[key][each] for each, _ in named(parameters)]
            lead = (len(x),) if key == "batch_grad" else ()
            got = np.concatenate([each.reshape(*lead, -1) for each in rows], -1)
            allowed = (1e-8 if key == "diag_hessian" else 1e-10) * max(1, abs(want).max())
            np.testing.assert_allclose(got, want, rtol=0, atol=allowed, err_msg=key)


@pytest.mark.parametrize("name", ["RNN", "LoRA", "weight norm", "DeepSet"])
def test_all_quantities_by_the_kit(name, apart):
    function, parameters, x = problem(name, 3)
    network = gb.trace(function, parameters, x)
    y = np.random.default_rng(1).standard_normal(network(x).shape)
    check_network(network, losses.MSELoss(), x, y).assert_ok()


def test_the_kit_bears_a_parameter_that_is_named_as_the_bias_of_another():
    p, x = {"w": np.ones((3, 2)), "w_bias": np.ones(2)}, np.random.default_rng(0).standard_normal((4, 3))
    network = gb.trace(lambda p, x: np.tanh(x @ p["w"] - p["w_bias"]), p, x)
    check_network(network, losses.MSELoss(), x, np.zeros((4, 2))).assert_ok()


@pytest.mark.parametrize("name", MODELS)
def test_other_batches_and_other_parameters(name):
    function, parameters, x = problem(name, 1)
    network = gb.trace(function, parameters, x)
    rng = np.random.default_rng(2)
    values = [rng.standard_normal(each.shape) for each in leaves(parameters)]
    network.parameters.load({name: value for (name, _), value in zip(named(parameters), values, strict=True)})
    other = rng.standard_normal((7, *x.shape[1:]))
    expected = function(rebuilt(parameters, iter(values)), other)
    np.testing.assert_allclose(network(other), expected, rtol=1e-12, atol=1e-12)


DEMO = [
    ("Conv2d", {"in_channels": 1, "out_channels": 8, "kernel_size": 3, "padding": 1}), ("Sigmoid", {}),
    ("MaxPool2d", {"kernel_size": 2}), ("Flatten", {}), ("Linear", {"in_features": 72, "out_features": 3}),
]  # fmt: skip
SMALL = {name: (narrow(spec), tuple(max(size // 32, 1) if shape in ((784,),) else size for size in shape))
         for name, (spec, shape, _) in SPECS.items()}  # fmt: skip
SMALL["logistic regression"] = (SMALL["logistic regression"][0], (1, 4, 6))
SMALL["demonstration"] = (DEMO, (1, 6, 6))


@pytest.mark.parametrize("name", SMALL)
def test_networks_of_layers_as_functions(name):
    spec, features = SMALL[name]
    chain, rng = as_layers(spec), np.random.default_rng(0)
    x = rng.standard_normal((2, *features))
    y = rng.integers(chain(x).shape[1], size=2)
    parameters = {}
    for key, value in chain.parameters.items():
        parameters.setdefault(key.split(".")[0], {})[key.split(".")[1]] = value
    network = gb.trace(as_function(spec), parameters, x)
    assert set(network.parameters) == set(chain.parameters)
    asked = ASKED if len(spec) < 9 else ASKED[:2]
    got, want = (gb.backward(each, losses.CrossEntropyLoss(), x, y, *asked) for each in (network, chain))
    for quantity in ("gradient", "batch_grad", "diag_ggn", "diag_hessian")[: len(asked) + 1]:
        for key in chain.parameters:
            values = [each.gradient[key] if quantity == "gradient" else each[quantity][key] for each in (got, want)]
            np.testing.assert_allclose(*values, rtol=1e-12, atol=1e-12 * abs(values[1]).max(), err_msg=quantity)


def test_a_recurrent_layer_as_a_function():
    function, parameters, x = problem("RNN")
    layer = gb.Sequential(gb.RNN(2, 3), gb.layers.Flatten(), rng=0, dtype="float64")
    values = {"0.weight_ih_l0": parameters["i"], "0.weight_hh_l0": parameters["h"], "0.bias_ih_l0": parameters["b"],
              "0.bias_hh_l0": np.zeros(3)}  # fmt: skip
    layer.load_state_dict(values)
    network, y = gb.trace(function, parameters, x), np.ones((len(x), 12))
    one, two = (gb.backward(each, losses.MSELoss(), x, y, *ASKED, q.KFLR()) for each in (network, layer))
    for key, other in (("i", "0.weight_ih_l0"), ("h", "0.weight_hh_l0"), ("b", "0.bias_ih_l0")):
        for name in ("batch_grad", "diag_ggn", "diag_hessian"):
            np.testing.assert_allclose(one[name][key], two[name][other], rtol=1e-12, atol=1e-13)
        factors = (each["kflr"][name].to_dense() for each, name in ((one, key), (two, other)))
        np.testing.assert_allclose(*factors, rtol=1e-12, atol=1e-13)


def test_a_function_of_several_inputs_at_the_start_of_a_chain():
    rng = np.random.default_rng(0)
    weight, x = {"w": rng.standard_normal((3, 2))}, (rng.standard_normal((4, 3)), rng.standard_normal((4, 2)))
    first = gb.trace(lambda p, x: np.tanh(x[0] @ p["w"]) * x[1], weight, x)
    network = gb.Sequential(first, layers.Linear(2, 3), rng=0, dtype="float64")
    want = first(x) @ network.parameters["1.weight"].T + network.parameters["1.bias"]
    np.testing.assert_allclose(network(x), want, rtol=1e-12)
    y = rng.standard_normal((4, 3))
    result = gb.backward(network, losses.MSELoss(), x, y, wrt=["x", "0.w"])
    assert [part.shape for part in result.gradient["x"]] == [(4, 3), (4, 2)]
    step, gradient = 1e-6, result.gradient["0.w"][1, 1]
    network.parameters["0.w"][1, 1] += step
    assert (losses.MSELoss()(network(x), y) - result.loss) / step == pytest.approx(gradient, rel=1e-4)


@pytest.mark.parametrize("named", [True, False])
def test_a_function_of_several_inputs(named):
    def two(p, a, i):
        return np.tanh(a @ p["w"]) * p["table"][i].mean(axis=1) + a.sum(axis=1, keepdims=True)

    function = (lambda p, x: two(p, x["a"], x["i"])) if named else (lambda p, x: two(p, *x))
    rng = np.random.default_rng(0)
    parameters = {"w": rng.standard_normal((3, 2)), "table": rng.standard_normal((4, 2))}
    values = {"a": rng.standard_normal((3, 3)), "i": rng.integers(0, 4, (3, 5))}
    x, y = values if named else tuple(values.values()), rng.standard_normal((3, 2))
    network = gb.trace(function, parameters, x)
    got = gb.backward(network, losses.MSELoss(), x, y, *ASKED, wrt=["x", *network.parameters])
    for name, want in brute_force(function, parameters, x, y).items():
        parts = [got[name][key].reshape(*got[name][key].shape[: name == "batch_grad"], -1) for key in parameters]
        np.testing.assert_allclose(np.concatenate(parts, axis=-1), want, atol=1e-7)
    gradients = got.gradient["x"] if named else dict(zip("ai", got.gradient["x"], strict=True))
    assert gradients["i"] is None
    assert gradients["a"].shape == (3, 3)
    with pytest.raises(ValueError, match="expected 3 samples as in"):
        gb.trace(function, parameters, {**values, "i": values["i"][:2]} if named else (values["a"], values["i"][:2]))
