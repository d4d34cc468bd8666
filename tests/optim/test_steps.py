"""A step is taken whole or not at all: whatever fails, parameters and state are as before."""

import copy

import numpy as np
import pytest
from test_optim import LOSS, RULES, X, Y, network, sweep, train

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q


def fails_and_changes_nothing(net, optimizer, result, error, message):
    before, state = net.state_dict(), optimizer.state_dict()
    with pytest.raises(error, match=message):
        optimizer.step(result)
    after = optimizer.state_dict()
    assert after.keys() == state.keys()
    assert all(np.array_equal(after[name], value) for name, value in state.items())
    assert all(np.array_equal(net.parameters[name], value) for name, value in before.items())


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("rule", RULES)
def test_an_error_at_the_last_parameter(rule, error, steps, monkeypatch):
    net = network()
    optimizer, update = RULES[rule](net), type(RULES[rule](net))._update
    train(net, optimizer, steps)

    def broken(self, name, gradient, result):
        direction = update(self, name, gradient, result)
        if name == "2.bias":
            raise error("broken")
        return direction

    result = sweep(net, optimizer)
    with monkeypatch.context() as patch:
        patch.setattr(type(optimizer), "_update", broken)
        fails_and_changes_nothing(net, optimizer, result, error, "broken")
    twin = network().load_state_dict(net.state_dict())
    fresh = RULES[rule](twin).load_state_dict(optimizer.state_dict())
    optimizer.step(result)  # goes on as if there had been no such step
    fresh.step(result)
    assert all(np.array_equal(net.parameters[name], value) for name, value in twin.parameters.items())


def test_a_result_that_does_not_fit():
    net = network()
    optimizer, plain = optim.Preconditioned(net, q.KFAC(), 0.1, 0.1, average="mean"), gb.backward(net, LOSS, X, Y)
    message = r"not \[KFAC.*\]: pass \*optimizer.quantities to gb.backward"
    fails_and_changes_nothing(net, optimizer, plain, KeyError, message)
    small = gb.Sequential(layers.Linear(4, 3), rng=0, dtype="float64")
    wider = gb.Sequential(layers.Linear(4, 6), layers.Sigmoid(), layers.Linear(6, 3), rng=0, dtype="float64")
    for other, x, error, message in (
        (small, X, ValueError, r"expected gradients of \[.*'2.bias'\], got \['0.weight', '0.bias'\]"),
        (wider, X, ValueError, r"gradient 0.weight: expected shape \(5, 4\), got \(6, 4\)"),
        (network("float32"), X.astype("float32"), TypeError, "gradient 0.weight: expected float64 .* got float32"),
    ):
        fails_and_changes_nothing(net, optim.SGD(net, 0.1), gb.backward(other, LOSS, x, Y), error, message)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("rule", ["SGD", "momentum", "Adam", "DiagGGN-mean", "KFAC-ema"])
def test_a_gradient_that_is_not_finite(rule, value):
    net = network()
    optimizer = RULES[rule](net)
    train(net, optimizer, 1)
    result = sweep(net, optimizer)
    result.gradient["2.bias"][1] = value
    message = "step 2: parameter 2.bias would contain NaN or infinity: all parameters are left as they were"
    with np.errstate(invalid="ignore"):
        fails_and_changes_nothing(net, optimizer, result, gb.NotFiniteError, message)


def test_a_parameter_that_would_overflow():
    net = network("float32")
    optimizer = optim.SGD(net, 1e30)
    result = sweep(net, optimizer)
    result.gradient["0.weight"][0, 0] = 1e20
    with np.errstate(over="ignore"):
        fails_and_changes_nothing(net, optimizer, result, gb.NotFiniteError, "parameter 0.weight would contain")


@pytest.mark.parametrize(("rule", "state"), [("Adam", "second_moment/0.weight"), ("KFLR-mean", "A/0.weight")])
def test_a_state_that_would_overflow(rule, state):
    """With an infinite g², or A, the parameters are finite: they would not move, in this step and all that follow."""
    net = network("float32")
    optimizer = RULES[rule](net)
    train(net, optimizer, 1)
    result = sweep(net, optimizer)
    if rule == "Adam":
        result.gradient["0.weight"][...] = 1e20
    else:
        result["kflr"]["0.weight"].A[0, 0] = np.inf
    with np.errstate(all="ignore"):
        left = "all parameters are left as they were \\(numbers of the result are too large for it in float32"
        message = f"step 2: state {state} would contain NaN or infinity: {left}"
        fails_and_changes_nothing(net, optimizer, result, gb.NotFiniteError, message)


def test_a_curvature_that_cannot_be_solved():
    net = network()
    optimizer = optim.Preconditioned(net, q.KFLR(), 0.1, 0.0, average="mean")
    train(net, optimizer, 1)
    result = sweep(net, optimizer)
    result["kflr"]["2.bias"].B[...] = np.nan
    fails_and_changes_nothing(net, optimizer, result, (np.linalg.LinAlgError, gb.NotFiniteError), "converge|NaN")


def test_a_curvature_of_another_shape():
    net = network()
    optimizer = optim.Preconditioned(net, q.DiagGGN(), 0.1, 0.1)
    wider = {**sweep(net, optimizer)["diag_ggn"], "2.bias": np.ones((3, 3))}
    result = gb.Result(np.array(0.0), None, sweep(net, optimizer).gradient, optimizer.quantities, (wider,))
    message = r"direction of 2.bias: expected shape \(3,\) in float64, got \(3, 3\) in float64"
    fails_and_changes_nothing(net, optimizer, result, ValueError, message)


def test_a_parameter_that_cannot_be_written_to():
    net = network()
    optimizer = optim.SGD(net, 0.1)
    net.parameters["2.weight"].flags.writeable = False
    message = "step: parameter 2.weight: expected an array to write to, got a read-only one"
    fails_and_changes_nothing(net, optimizer, sweep(net, optimizer), ValueError, message)


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w.T, lambda w: w[::-1, ::-1]])
def test_one_array_as_two_parameters(view):
    net = gb.Sequential(layers.Linear(4, 4), layers.Tanh(), layers.Linear(4, 4), rng=0, dtype="float64")
    optimizer = optim.SGD(net, 0.1)
    net[2].parameters["weight"] = view(net[0].parameters["weight"])
    message = "step: parameter 2.weight: expected an array of its own, got that of 0.weight"
    for frozen in ("2.bias", "0.weight", "2.weight"):
        net.freeze(frozen)
        fails_and_changes_nothing(net, optimizer, sweep(net, optimizer), ValueError, message)
        net.unfreeze()
    net.freeze("0.weight", "2.weight")
    optimizer.step(sweep(net, optimizer))
    for thawed in (["2.weight"], ["0.weight", "2.weight"]):
        net.unfreeze(*thawed)
        fails_and_changes_nothing(net, optimizer, sweep(net, optimizer), ValueError, message)
        net.freeze("0.weight", "2.weight")


def test_an_array_of_a_frozen_layer_that_is_new():
    net = network()
    optimizer = optim.SGD(net, 0.1)
    net.children["3"] = gb.Sequential(layers.Linear(3, 3), rng=1, dtype="float64")[0]
    net[3].parameters["bias"] = net[2].parameters["bias"]
    net.freeze("3")
    message = "step: parameter 3.bias: expected an array of its own, got that of 2.bias"
    fails_and_changes_nothing(net, optimizer, sweep(net, optimizer), ValueError, message)


def test_parts_of_one_array_are_parameters():
    net = gb.Sequential(layers.Linear(4, 4), layers.Tanh(), layers.Linear(4, 4), rng=0, dtype="float64")
    optimizer, own = optim.SGD(net, 0.1), copy.deepcopy(net)
    whole = np.stack([net.parameters["0.weight"], net.parameters["2.weight"]], 2)  # one number of each in turns
    net[0].parameters["weight"], net[2].parameters["weight"] = whole[..., 0], whole[..., 1]
    optimizer.step(sweep(net, optimizer))
    optim.SGD(own, 0.1).step(sweep(own, optimizer))
    for name, value in own.parameters.items():
        np.testing.assert_allclose(net.parameters[name], value, rtol=1e-14, err_msg=name)


def test_a_layer_that_is_new_to_the_optimizer():
    net = gb.Sequential(layers.Linear(4, 3), layers.Tanh(), rng=0)
    optimizer = optim.Adam(net, 0.1)
    net.layers = (*net.layers, layers.Linear(3, 3))
    net.initialize(0)
    message = r"parameters \['2.weight', '2.bias'\] are new since the optimizer was made: make another optimizer, or"
    fails_and_changes_nothing(net, optimizer, sweep(net, optimizer), ValueError, message)
    optimizer.l2 = 0
    optimizer.step(sweep(net, optimizer))
    assert optimizer.steps_of("2.weight") == 1


def test_parameters_without_axes_are_stepped():
    class ScaleAll(layers.Layer):
        """y = w x with one number w."""

        def parameter_shapes(self):
            return {"w": ()}

        def draw(self, rng):
            return {"w": np.array(2.0)}

    net = gb.Sequential(ScaleAll(), rng=0, dtype="float64")
    result = gb.Result(np.array(0.0), None, {"0.w": np.array(3.0)}, (), ())
    optim.SGD(net, 0.5, 0.9).step(result)
    assert net.parameters["0.w"] == 0.5
    optim.Adam(net, 0.5, eps=1e-12).step(result)
    assert net.parameters["0.w"] == pytest.approx(0)


def test_a_state_of_another_dtype_is_named():
    net, loss = network(), losses.CrossEntropyLoss()
    optimizer = optim.Adam(net, 0.1)
    train(net, optimizer, 1)
    for _, layer in net.named_layers():
        layer.drawn = {name: value.astype("float32") for name, value in layer.parameters.items()}
    result = gb.backward(net, loss, X.astype("float32"), Y)
    message = "step: state first_moment/0.weight: expected float32 on cpu as its parameter is, got float64 on cpu"
    fails_and_changes_nothing(net, optimizer, result, TypeError, message)


def test_a_state_that_is_not_finite_is_not_loaded():
    net = network()
    optimizer = optim.Adam(net, 0.1)
    train(net, optimizer, 1)
    state = optimizer.state_dict()
    state["second_moment/0.bias"][0] = np.nan
    with pytest.raises(ValueError, match=r"state dict: second_moment/0.bias: expected finite numbers, got NaN"):
        optimizer.load_state_dict(state)
    optimizer.step(gb.backward(net, LOSS, X, Y))


@pytest.mark.parametrize("groups", [1, 2])
def test_ekfac_divides_by_its_eigenvalues_and_the_damping(groups):
    rng = np.random.default_rng(0)
    chain = [layers.Conv1d(4, 4, 2, groups=groups), layers.Tanh(), layers.Flatten(), layers.Linear(8, 3)]
    net = gb.Sequential(*chain, rng=1, dtype="float64")
    x, y, loss = rng.standard_normal((12, 4, 3)), rng.integers(0, 3, 12), losses.CrossEntropyLoss()
    quantity, before = q.EKFAC(fisher="exact"), {name: value.copy() for name, value in net.parameters.items()}
    result = gb.backward(net, loss, x, y, quantity)
    gb.optim.Preconditioned(net, quantity, lr=0.5, damping=0.1, l2=0.2).step(result)
    for name, value in before.items():
        block = result[quantity][name].to_dense()
        change = np.linalg.solve(block + 0.3 * np.eye(len(block)), (result.gradient[name] + 0.2 * value).ravel())
        np.testing.assert_allclose(net.parameters[name], value - 0.5 * change.reshape(value.shape), rtol=1e-9)


def test_ekfac_has_no_average():
    net = gb.Sequential(layers.Linear(3, 2), rng=0)
    with pytest.raises(ValueError, match=r"average: expected None for EKFAC\(mc_samples=1\), .* got 'ema'"):
        gb.optim.Preconditioned(net, q.EKFAC(), lr=0.1, damping=0.1, average="ema")
