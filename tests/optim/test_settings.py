"""Settings are checked when they are assigned, as in the constructor, and the next step uses them."""

import copy
import pickle

import numpy as np
import pytest
from test_optim import network, sweep, train

from gbackprop import optim
from gbackprop import quantities as q


def sgd(net, **given):
    return optim.SGD(net, **{"lr": 0.1, "momentum": 0.9, "nesterov": True} | given)


def adam(net, **given):
    return optim.Adam(net, **{"lr": 0.1} | given)


def preconditioned(net, **given):
    return optim.Preconditioned(net, q.KFLR(), **{"lr": 0.1, "damping": 0.1, "average": "ema"} | given)


NAN = float("nan")
BAD = [
    *[
        (make, "lr", value, f"lr: expected a finite number above 0, got {value!r}")
        for make in (sgd, adam, preconditioned)
        for value in (-1, 0, NAN, "1", True)
    ],
    *[
        (make, "l2", value, message)
        for make in (sgd, adam, preconditioned)
        for value, message in (
            (-1, "l2: expected a finite number of at least 0, got -1"),
            ({"0.weight": -1}, r"l2\['0.weight'\]: expected"),
            ({"9": 1}, r"l2: unknown parameters \['9'\]"),
        )
    ],
    (sgd, "momentum", 1.0, "momentum: expected .* below 1, got 1.0"),
    (sgd, "momentum", -0.1, "momentum: expected .* at least 0"),
    (sgd, "momentum", 0, "nesterov: expected a momentum above 0"),
    (adam, "betas", (0.9, 1), r"betas\[1\]: expected"),
    (adam, "betas", 0.9, "betas: expected two numbers, got 0.9"),
    (adam, "eps", 0, "eps: expected"),
    (preconditioned, "damping", -1, "damping: expected"),
    (preconditioned, "decay", 1, "decay: expected"),
]


@pytest.mark.parametrize(("make", "name", "value", "message"), BAD)
def test_a_bad_setting_is_refused_by_the_constructor_and_later_and_the_old_one_stays(make, name, value, message):
    with pytest.raises(ValueError, match=message):
        make(network(), **{name: value})
    optimizer = make(network())
    before = getattr(optimizer, name)
    with pytest.raises(ValueError, match=message):
        setattr(optimizer, name, value)
    assert getattr(optimizer, name) == before


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [(preconditioned, "quantity", q.KFLR()), (preconditioned, "average", None), (adam, "network", network())],
)
def test_what_the_state_belongs_to_cannot_change(make, name, value):
    optimizer = make(network())
    with pytest.raises(AttributeError, match=f"{name}: expected the one that this .* was made with.*: make another"):
        setattr(optimizer, name, value)


def test_nesterov_needs_a_momentum_after_the_constructor_too():
    optimizer = optim.SGD(network(), 0.1)
    with pytest.raises(ValueError, match="nesterov: expected a momentum above 0"):
        optimizer.nesterov = True
    optimizer.momentum, optimizer.nesterov = 0.5, True
    assert (optimizer.momentum, optimizer.nesterov) == (0.5, True)


NEW = [
    (sgd, {"lr": 0.3, "momentum": 0.5, "l2": 0.1}, lambda net: optim.SGD(net, 0.3, 0.5, True, 0.1)),
    (adam, {"betas": [0.5, 0.6], "eps": 1e-3}, lambda net: optim.Adam(net, 0.1, (0.5, 0.6), 1e-3)),
    (
        preconditioned,
        {"damping": 0.7, "decay": 0.1, "l2": {"0.weight": 0.2}},
        lambda net: optim.Preconditioned(net, q.KFLR(), 0.1, 0.7, {"0.weight": 0.2}, "ema", 0.1),
    ),
]


@pytest.mark.parametrize(("make", "settings", "other"), NEW)
def test_a_new_setting_is_that_of_the_next_step(make, settings, other):
    net = network()
    optimizer = make(net)
    train(net, optimizer, 2)
    twin = network().load_state_dict(net.state_dict())
    expected = other(twin).load_state_dict(optimizer.state_dict())
    for name, value in settings.items():
        setattr(optimizer, name, value)
    expected.step(sweep(twin, expected))
    optimizer.step(sweep(net, optimizer))
    for name, value in twin.parameters.items():
        np.testing.assert_array_equal(net.parameters[name], value)


def test_strengths_are_read_by_name_and_assigned_whole():
    optimizer = optim.SGD(network(), 0.1, l2=0.2)
    with pytest.raises(TypeError):
        optimizer.l2["0.weight"] = 1.0
    assert optimizer.l2 == dict.fromkeys(("0.weight", "0.bias", "2.weight", "2.bias"), 0.2)


def test_a_step_without_momentum_forgets_the_velocity():
    net = network()
    optimizer = optim.SGD(net, 0.1, momentum=0.9)
    train(net, optimizer, 1)
    optimizer.momentum = 0
    train(net, optimizer, 1)
    assert list(optimizer.state_dict()) == ["steps"]


@pytest.mark.parametrize(("first", "then", "frozen"), [(0.9, 0, ()), (0, 0.9, ()), (0.9, 0, ("0",)), (0, 0.9, ("0",))])
def test_the_state_after_a_new_momentum_goes_on_bit_for_bit(first, then, frozen):
    net = network()
    optimizer = optim.SGD(net, 0.1, momentum=first)
    train(net, optimizer, 2)
    optimizer.momentum = then
    for name in frozen:
        net.freeze(name)
    train(net, optimizer, len(frozen))
    twin = network().load_state_dict(net.state_dict())
    restored = optim.SGD(twin, 0.1, momentum=then).load_state_dict(optimizer.state_dict())
    net.unfreeze()
    for momentum in (then, 0.5, 0.5):
        optimizer.momentum = restored.momentum = momentum
        optimizer.step(sweep(net, optimizer))
        restored.step(sweep(twin, restored))
        assert all(np.array_equal(net.parameters[name], value) for name, value in twin.parameters.items())


def test_a_velocity_is_not_dropped_in_silence():
    net = network()
    optimizer = optim.SGD(net, 0.1, momentum=0.9)
    train(net, optimizer, 2)
    with pytest.raises(ValueError, match=r"unknown keys \['momentum/0.weight'"):
        optim.SGD(net, 0.1).load_state_dict(optimizer.state_dict())


def test_optimizers_are_copied_with_their_settings():
    for twin in (copy.deepcopy(adam(network())), pickle.loads(pickle.dumps(adam(network())))):
        assert (twin.lr, twin.betas, twin.steps) == (0.1, (0.9, 0.999), 0)


def test_what_is_state_is_not_assigned():
    optimizer = optim.Adam(network())
    with pytest.raises(AttributeError):
        optimizer.steps = 5
