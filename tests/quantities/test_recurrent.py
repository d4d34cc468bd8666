"""Attention and recurrent layers: every quantity against brute force, the fast engine against the plain one."""

from math import prod

import numpy as np
import pytest
from test_graphs import ASKED, equal

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.layer import leaves_of
from gbackprop.testing.oracles import Dense

CE = losses.CrossEntropyLoss()


def stacked_twice():
    shared = gb.GRU(2, 2, bias=False)
    return gb.Sequential(shared, shared)


CASES = {
    "attention": (lambda: gb.MultiheadAttention(4, 2), (3, 4)),
    "causal attention": (lambda: gb.MultiheadAttention(4, 2, bias=False, is_causal=True), (3, 4)),
    "encoder": (lambda: gb.TransformerEncoderLayer(4, 2, 3, activation="gelu"), (2, 4)),
    "encoder, norms first": (
        lambda: gb.TransformerEncoderLayer(4, 2, 3, activation=layers.Tanh(), norm_first=True, is_causal=True),
        (2, 4),
    ),
    "RNN": (lambda: gb.RNN(2, 3), (3, 2)),
    "LSTM": (lambda: gb.LSTM(1, 2), (3, 1)),
    "LSTM of two layers": (lambda: gb.LSTM(1, 1, 2, bidirectional=True), (3, 1)),
    "GRU": (lambda: gb.GRU(1, 2), (3, 1)),
    "GRU, one step": (lambda: gb.GRU(2, 2), (1, 2)),
    "GRU twice": (stacked_twice, (2, 2)),
}


def made(name, first=()):
    """A network with random parameters, norms' and biases' too, and a batch."""
    make, shape = CASES[name]
    layer, rng = make(), np.random.default_rng(0)
    size = prod(leaves_of(layer, shape)[-1].output_shape)
    network = gb.Sequential(*first, layer, layers.Flatten(), layers.Linear(size, 2), rng=rng, dtype="float64")
    for value in network.parameters.values():
        value += 0.5 * rng.standard_normal(value.shape)
    return network, rng.standard_normal((3, *shape)), np.array([0, 1, 1])


@pytest.mark.parametrize("name", CASES)
def test_every_quantity_is_its_definition(name):
    network, x, y = made(name)
    result = gb.reference(network, CE, x, y, *ASKED)
    oracle = Dense(network, CE, x, y)
    assert set(result.gradient) == set(network.parameters)
    equal(result.gradient, oracle["gradient"], 1e-11, "gradient")
    for quantity in ASKED:
        equal(result[quantity], oracle[quantity.name], 1e-11, quantity.name)


@pytest.mark.parametrize("options", [{}, {"sample_block": 2, "workers": 2, "column_block": 7}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_backward_gives_what_reference_gives(name, options):
    network, x, y = made(name)
    asked = [*ASKED, q.KFAC(mc_samples=2)]
    plain = gb.reference(network, CE, x, y, *asked, rng=0)
    fast = gb.backward(network, CE, x, y, *asked, rng=0, **options)
    equal(fast.gradient, plain.gradient, 1e-12, "gradient")
    for quantity in asked:
        equal(fast[quantity], plain[quantity], 1e-12, quantity.name)


@pytest.mark.parametrize(
    "layer",
    [
        gb.MultiheadAttention(4, 2, dropout=0.4),
        gb.TransformerEncoderLayer(4, 2, 3, dropout=0.4),
        gb.LSTM(4, 3, 2, dropout=0.4),
    ],
    ids=repr,
)
def test_dropout_acts_in_training_mode_and_is_the_same_in_both_engines(layer):
    x, y = np.random.default_rng(0).standard_normal((3, 2, 4)), np.array([0, 1, 1])
    size = prod(leaves_of(layer, (2, 4))[-1].output_shape)
    network = gb.Sequential(layer, layers.Flatten(), layers.Linear(size, 2), rng=0).astype("float64")
    asked, options = q.DiagHessian(), {"rng": 1, "training": True}
    plain, fast = (engine(network, CE, x, y, asked, **options) for engine in (gb.reference, gb.backward))
    assert plain.loss != gb.reference(network, CE, x, y).loss
    equal(fast.gradient, plain.gradient, 1e-12, "gradient")
    equal(fast[asked], plain[asked], 1e-12, "diag_hessian")
    name = next(iter(network.parameters))
    value, losses_there = network.parameters[name], []
    for step in (1e-5, -1e-5):
        value[0, 0] += step
        losses_there.append(gb.backward(network, CE, x, y, **options).loss)
        value[0, 0] -= step
    assert abs((losses_there[0] - losses_there[1]) / 2e-5 - plain.gradient[name][0, 0]) < 1e-8


def test_attention_with_a_mask_does_not_look_ahead():
    network, x, _ = made("causal attention")
    layer, changed = network[0], x.copy()
    changed[:, 2] += 1
    before, after = layer(x), layer(changed)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (before[:, 2] != after[:, 2]).all()


def test_scores_that_overflow_exponentials_are_finite_under_the_mask():
    network, x, y = made("causal attention")
    result = gb.backward(network, CE, 1e4 * x, y, q.DiagHessian(), q.DiagGGN())
    assert all(np.isfinite(value).all() for quantity in result for value in result[quantity].values())


def test_a_preconditioned_step_lowers_the_loss():
    network, x, y = made("LSTM")
    optimizer = gb.optim.Preconditioned(network, q.KFLR(), 0.1, 1.0)
    before = gb.backward(network, CE, x, y, *optimizer.quantities)
    optimizer.step(before)
    assert gb.backward(network, CE, x, y).loss < before.loss
