"""Randomness of a call: what is checked, what is drawn, and from which stream."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.plain.plan import make_plan

CE = losses.CrossEntropyLoss()
X = np.random.default_rng(1).standard_normal((4, 3))
Y = np.array([0, 1, 1, 0])


def mlp():
    return gb.Sequential(layers.Linear(3, 4), layers.ReLU(), layers.Linear(4, 2), rng=0, dtype="float64")


@pytest.mark.parametrize("rng", ["seed", 1.5, -1])
def test_rng_is_checked_where_nothing_is_drawn(rng):
    with pytest.raises((TypeError, ValueError), match="rng"):
        gb.backward(mlp(), CE, X, Y, rng=rng)


def test_a_generator_moves_on_by_as_much_whatever_is_asked_for():
    states = []
    for asked, training in ([], False), ([q.KFAC()], False), ([q.DiagGGN()], True):
        rng = np.random.default_rng(0)
        gb.backward(mlp(), CE, X, Y, *asked, rng=rng, training=training)
        states.append(rng.random())
    assert len(set(states)) == 1


def test_noise_of_layers_and_of_draws_are_apart():
    class Noisy(layers.Dropout):
        def noise(self, shape, rng):
            return rng.standard_normal(shape)

    net = gb.Sequential(layers.Linear(3, 3), Noisy(), rng=0, dtype="float64")
    asked = [q.DiagGGNMC(mc_samples=m) for m in (1, 2)]
    plan = make_plan(net, losses.MSELoss(), X, X, asked, 0, training=True)
    drawn = [plan.noise[1], *(noise[0] for noise in plan.mc_noise.values())]
    for i, one in enumerate(drawn):
        assert not any(np.isclose(one, other).any() for other in drawn[:i])


def test_targets_that_are_given_need_no_draw():
    class Silent(losses.CrossEntropyLoss):
        def noise(self, batch_shape, mc_samples, rng):
            raise AssertionError

    gb.backward(mlp(), Silent(), X, Y, q.KFAC(targets=Y[None]))
