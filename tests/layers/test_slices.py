"""Parts of a network by slices: networks of the same layers."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses


@pytest.fixture
def net():
    chain = [layers.Linear(4, 3), layers.Tanh(), layers.Linear(3, 3), layers.Sigmoid(), layers.Linear(3, 2)]
    return gb.Sequential(*chain, rng=0, dtype="float64")


X = np.random.default_rng(0).standard_normal((5, 4))


@pytest.mark.parametrize("cut", [0, 2, 5])
def test_two_parts_compute_what_the_whole_does(net, cut):
    np.testing.assert_array_equal(net[cut:](net[:cut](X)), net(X))


@pytest.mark.parametrize("index", [slice(None, 2), slice(-2, None), slice(None, None, 2), slice(None, None, -1)])
def test_slices_are_those_of_a_list(net, index):
    part = net[index]
    assert isinstance(part, gb.Sequential)
    assert list(part) == list(net)[index]


def test_an_integer_gives_the_layer(net):
    assert net[2] is net.layers[2]
    assert net[-1] is net.layers[4]


def test_a_part_shares_its_parameters_with_the_whole(net):
    part = net[2:]
    part.parameters["0.weight"] -= 1.0
    assert part.parameters["0.weight"] is net.parameters["2.weight"]
    net.parameters["4.bias"] = np.array([3.0, 4.0])
    np.testing.assert_array_equal(part.parameters["2.bias"], [3.0, 4.0])


def test_parameters_that_are_not_drawn_yet_are_drawn_for_both():
    whole = gb.Sequential(layers.Linear(4, 3), layers.Tanh())
    assert whole[:1].parameters["0.weight"] is whole.parameters["0.weight"]


def test_a_part_has_gradients_of_its_own(net):
    hidden, target = net[:2](X), np.zeros((5, 2))
    part = gb.backward(net[2:], losses.MSELoss(), hidden, target).gradient
    whole = gb.backward(net, losses.MSELoss(), X, target).gradient
    for one, other in (("0.weight", "2.weight"), ("2.bias", "4.bias")):
        np.testing.assert_allclose(part[one], whole[other], rtol=1e-12)


def test_layers_in_an_order_that_does_not_fit_are_named(net):
    with pytest.raises(ValueError, match=r"layer 0, Linear\(3, 2\)"):
        net[::-1](X)
