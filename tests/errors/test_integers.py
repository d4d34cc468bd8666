"""Batches of integers: which layers take them, where, and from which range; each message names the layer."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers as L
from gbackprop import losses
from gbackprop import quantities as q

X, Y, CE = np.array([[3, 0], [1, 4]]), np.array([0, 1]), losses.CrossEntropyLoss()
FLOATS = X.astype("float32")


def embedded(*before):
    return gb.Sequential(*before, L.Embedding(5, 3), L.Flatten(), L.Linear(6, 2), rng=0)


def worst(value):
    x = X.copy()
    x[1, 0] = value
    return x


OF_FLOATS = "expected float32 or float64, got int64"
CASES = {
    "floats": (
        embedded(), FLOATS, "x: expected an array of integers, got float32 (layer 0, Embedding(5, 3) takes integers)",
    ),
    "floats, moved": (
        embedded(L.Flatten()), FLOATS,
        "x: expected an array of integers, got float32 (layer 1, Embedding(5, 3) takes integers)",
    ),
    "bool": (embedded(), X > 1, "x: expected float32 or float64, got bool"),
    "too large": (embedded(), worst(5), "layer 0, Embedding(5, 3): expected indices from 0 to 4, got 5"),
    "negative": (embedded(), worst(-1), "layer 0, Embedding(5, 3): expected indices from 0 to 4, got -1"),
    "too large, moved": (
        embedded(gb.Sequential(L.Permute((0, 1)))), worst(9),
        "layer 1, Embedding(5, 3): expected indices from 0 to 4, got 9",
    ),
    "within": (
        gb.Sequential(L.Linear(2, 2), L.ReLU(), L.Embedding(5, 2), rng=0), FLOATS,
        "layer 2, Embedding(5, 2): expected an array of integers, the network's input, got the output of layer 1, "
        "ReLU() (an index has no derivative, so this layer must be the first)",
    ),
    "twice": (
        gb.Sequential(L.Embedding(5, 2), L.Flatten(), L.Embedding(5, 2), rng=0), X,
        "layer 2, Embedding(5, 2): expected an array of integers, the network's input, got the output of layer 0, "
        "Embedding(5, 2) (an index has no derivative, so this layer must be the first)",
    ),
    "linear": (gb.Sequential(L.Linear(2, 2), rng=0), X, f"x: {OF_FLOATS} (layer 0, Linear(2, 2) takes floats)"),
    "linear, moved": (
        gb.Sequential(L.Identity(), L.Linear(2, 2), rng=0), X, f"x: {OF_FLOATS} (layer 1, Linear(2, 2) takes floats)",
    ),
    "nothing": (gb.Sequential(L.Identity()), X, f"x: {OF_FLOATS} (no layer takes integers)"),
}  # fmt: skip


@pytest.mark.parametrize(("network", "x", "message"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("call", [gb.backward, gb.reference, gb.explain, lambda network, loss, x, y: network(x)])
def test_the_message_names_the_layer(call, network, x, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(network, CE, x, Y)
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError) == ("indices" in message)


@pytest.mark.parametrize("quantity", [q.KFAC(), q.KFLR(), q.KFRA()])
def test_an_embedding_has_no_kronecker_factors(quantity):
    with pytest.raises(gb.UnsupportedError, match=r"layer 0, Embedding\(5, 3\) cannot give KF.*: each index has a row"):
        gb.backward(embedded(), CE, X, Y, quantity)


def test_targets_follow_the_parameters_dtype():
    network = embedded().astype("float64")
    with pytest.raises(TypeError, match=r"y of MSELoss.*: expected float64"):
        gb.backward(network, losses.MSELoss(), X, np.zeros((2, 2), "float32"))
