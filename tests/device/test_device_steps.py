"""Optimizers, parameters and random numbers on a device: the same run as on the host."""

from itertools import product

import numpy as np
import pytest
from device_problems import CE, LISTED, X, Y, simple, there, transfers

import gbackprop as gb
from gbackprop import array, layers, optim
from gbackprop import quantities as q
from gbackprop.testing.errors import largest_error

QUANTITIES = q.DiagGGN(), q.DiagGGNMC(), q.DiagHessian(), q.KFAC(), q.KFLR(), q.KFRA()
OPTIMIZERS = [
    (optim.SGD, 0.1, {}),
    (optim.SGD, 0.1, {"momentum": 0.9, "nesterov": True, "l2": 0.01}),
    (optim.Adam, {"l2": 0.01}),
    *[(optim.Preconditioned, each, 0.1, 0.01, {"l2": 0.001, "average": average})
      for each, average in product(QUANTITIES, (None, "ema"))],
]  # fmt: skip


def test_no_optimizer_is_missing():
    assert {kind.__name__ for kind, *_ in OPTIMIZERS} == set(optim.__all__) - {"Optimizer"}


@pytest.mark.parametrize("kind", OPTIMIZERS, ids=str)
def test_every_optimizer(kind, gpu):
    """Three steps in training mode, the state taken home and back after the second."""
    make, *given, options = kind
    ends = []
    for device in ("cpu", "cuda"):
        network = simple().to(device)
        x, y, optimizer = gb.asarray(X, device), gb.asarray(Y, device), make(network, *given, **options)
        for step in range(3):
            if step == 2:
                optimizer = make(network, *given, **options).load_state_dict(optimizer.state_dict())
            result = gb.backward(network, CE, x, y, *optimizer.quantities, rng=step, training=True)
            assert set(transfers(lambda optimizer=optimizer, result=result: optimizer.step(result))) <= LISTED
        ends.append({name: gb.asnumpy(value) for name, value in network.parameters.items()})
    assert largest_error(ends[1], ends[0]) < 1e-8


def test_a_view_of_another_parameter_is_refused(gpu):
    network = gb.Sequential(layers.Linear(4, 4), layers.Linear(4, 4), rng=0, dtype="float64").to("cuda")
    first, second = network[0].parameters, network[1].parameters
    result, optimizer = gb.backward(network, CE, there(X[:, 0, 0]), there(Y)), optim.SGD(network, 0.1)
    whole = array.array_module(first["weight"]).stack([first["weight"], second["weight"]], 2)
    first["weight"], second["weight"] = whole[..., 0], whole[..., 1]
    optimizer.step(result)
    second["weight"] = first["weight"].T
    with pytest.raises(ValueError, match=r"parameter 1\.weight: expected an array of its own, got that of 0\.weight"):
        optimizer.step(result)


def test_one_seed_gives_the_same_weights_masks_and_draws(gpu):
    host, moved = simple(), simple().to("cuda")
    for name, value in host.parameters.items():
        np.testing.assert_array_equal(gb.asnumpy(moved.parameters[name]), value)
    lone, ones = layers.Dropout(0.4), np.ones((5, 7))
    noise = lone.noise((5, 7), np.random.default_rng(0))
    want, got = lone.forward_training(ones, noise)[0], lone.forward_training(there(ones), noise)[0]
    np.testing.assert_array_equal(gb.asnumpy(got), want)
    for dtype in ("float64", "float32"):
        logits = np.random.default_rng(1).standard_normal((200, 4)).astype(dtype)
        np.testing.assert_array_equal(gb.asnumpy(CE.draw(there(logits), 20, rng=3)), CE.draw(logits, 20, rng=3))


def test_parameters_and_states_go_there_and_back(gpu):
    network = simple()
    before = {name: value.copy() for name, value in network.parameters.items()}
    state = network.to("cuda").state_dict()
    assert {array.device_of(value) for value in state.values()} == {"cuda:0"}
    network.parameters["5.bias"] = np.zeros(3)  # comes from the host and is moved
    assert array.device_of(network.parameters["5.bias"]) == "cuda:0"
    network.load_state_dict(state).to("cpu")
    for name, value in network.parameters.items():
        np.testing.assert_array_equal(value, before[name])


def test_a_network_is_converted_where_it_is(gpu):
    network = simple().to("cuda")
    before = {name: gb.asnumpy(value) for name, value in network.parameters.items()}
    for name, value in network.astype("float32").parameters.items():
        assert (value.dtype, array.device_of(value)) == (np.float32, "cuda:0")
        np.testing.assert_array_equal(gb.asnumpy(value), before[name].astype("float32"))
    network.parameters["0.bias"] = np.zeros(3)
    with pytest.raises(ValueError, match=r"0.bias: expected numbers within the range of float32, got 1e\+300"):
        network.parameters["0.bias"] = there(np.full(3, 1e300))
    assert not gb.asnumpy(network.parameters["0.bias"]).any()
