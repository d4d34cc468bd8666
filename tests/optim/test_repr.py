"""What an optimizer says of itself."""

import pytest

import gbackprop as gb
from gbackprop import layers, optim
from gbackprop import quantities as q


def network():
    return gb.Sequential(layers.Linear(3, 4), layers.ReLU(), layers.Linear(4, 2), rng=0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda net: optim.SGD(net, 0.1), "SGD(lr=0.1, momentum=0.0, nesterov=False, l2=0.0)"),
        (
            lambda net: optim.SGD(net, 0.1, 0.9, nesterov=True, l2={"0.weight": 0.5}),
            "SGD(lr=0.1, momentum=0.9, nesterov=True, l2={'0.weight': 0.5})",
        ),
        (lambda net: optim.Adam(net, l2=1e-3), "Adam(lr=0.001, betas=(0.9, 0.999), eps=1e-08, l2=0.001)"),
        (
            lambda net: optim.Preconditioned(net, q.KFAC(2), 0.1, 0.01, average="mean"),
            "Preconditioned(quantity=KFAC(mc_samples=2), lr=0.1, damping=0.01, average='mean', decay=0.95, l2=0.0)",
        ),
    ],
    ids=["SGD", "l2 by name", "Adam", "Preconditioned"],
)
def test_class_settings_and_numbers_that_it_trains(make, text):
    assert repr(make(network())) == f"{text} for 4 parameters of 26 numbers"


def test_settings_are_those_of_now():
    optimizer = optim.SGD(network(), 0.1)
    optimizer.lr = 0.05
    assert repr(optimizer).startswith("SGD(lr=0.05,")


def test_a_users_rule_says_what_it_has():
    class Scaled(optim.SGD):
        def __init__(self, network, factor, unnamed):
            super().__init__(network, 0.1)
            self.factor = factor

    assert repr(Scaled(network(), 3.0, None)) == "Scaled(factor=3.0, l2=0.0) for 4 parameters of 26 numbers"


def test_nothing_is_drawn_for_it():
    net = gb.Sequential(layers.Linear(3, 4))
    repr(optim.SGD(net, 0.1))
    assert net[0].drawn is None


def test_a_network_without_parameters():
    assert repr(optim.SGD(gb.Sequential(layers.ReLU()), 0.1)).endswith("l2=0.0) for 0 parameters of 0 numbers")
