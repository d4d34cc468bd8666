"""The windows of columns at a transposed convolution are unfolded once, and never taken for other columns or layers."""

import numpy as np
import pytest
from common import batch, both, chain

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.engine.forms import FORMS, conv, transposed
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context


def steps(layer, x, mat, context):
    """The gradient of the weight, and the columns below, by forms."""
    weight = context.jacobians(layer, context.forward(layer, x)[1])["weight"]
    return context.reduce(weight, REDUCTIONS["sum"], mat, None), context.mjp(layer, x, mat)


def plain(layer, x, mat):
    saved = layer.forward(x)[1]
    return layer.parameter_jacobians(saved)["weight"].sum(mat), layer.mjp(saved, mat)


@pytest.fixture
def drawn():
    """Two layers that take the same columns, with windows of different sizes; an input of each; columns of a loss."""
    rng = np.random.default_rng(0)
    pair = [layers.ConvTranspose1d(2, 3, 4, 2, 1), layers.ConvTranspose1d(2, 3, 3, 1, 1)]
    for layer in pair:
        gb.Sequential(layer, rng=rng, dtype="float64")
    inputs = [rng.standard_normal((5, 2, 4)), rng.standard_normal((5, 2, 8))]
    return pair, inputs, [rng.standard_normal((1, 5, 3, 8)) for _ in range(2)]


def test_other_layers_and_columns_have_windows_of_their_own(drawn):
    pair, inputs, mats = drawn
    context = Context(FORMS, Allocator())
    for which, mat in ((0, 0), (1, 0), (1, 1), (0, 1)):  # one of the two differs from the step before
        given = pair[which], inputs[which], mats[mat]
        for got, want in zip(steps(*given, context), plain(*given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    for which, mat in ((0, 0), (1, 0), (1, 1), (0, 1)):  # statistics, and nothing is carried in between
        weight = context.jacobians(pair[which], inputs[which])["weight"]
        got = context.reduce(weight, REDUCTIONS["sum"], mats[mat], None)
        np.testing.assert_allclose(got, plain(pair[which], inputs[which], mats[mat])[0], rtol=1e-12, atol=1e-12)
    got = context.mjp(pair[1], inputs[1], mats[1])  # after the statistics of the other layer
    np.testing.assert_allclose(got, plain(pair[1], inputs[1], mats[1])[1], rtol=1e-12, atol=1e-12)


def test_a_gradient_unfolds_the_columns_at_a_layer_once(monkeypatch):
    seen = []
    unfolded = conv.unfolded
    monkeypatch.setattr(conv, "unfolded", lambda layer, x, memory: seen.append(x.shape) or unfolded(layer, x, memory))
    parts = [layers.Linear(3, 8), layers.Unflatten(1, (2, 4)), layers.ConvTranspose1d(2, 3, 4, 2, 1), layers.Flatten()]
    network = chain(*parts, layers.Linear(24, 2))
    x, y = np.random.default_rng(0).standard_normal((5, 3)), np.zeros((5, 2))
    for quantities in ([], [q.BatchGrad()]):
        seen.clear()
        gb.backward(network, losses.MSELoss(), x, y, *quantities)
        assert seen == [(5, 3, 8)]


@pytest.mark.parametrize("quantity", [q.BatchGrad, q.DiagGGN, q.DiagHessian, q.KFLR, q.Variance])
def test_every_signal_in_a_chain_and_beside_a_branch(quantity):
    branches = [layers.ConvTranspose2d(2, 3, 2, 2), layers.ConvTranspose2d(2, 3, 4, 2, 1)]
    parts = [layers.ConvTranspose2d(1, 2, 2), layers.Tanh(), gb.Sum(*branches), layers.Sigmoid(), layers.Flatten()]
    for some in (parts, [*parts[:2], branches[1], *parts[3:]]):
        network = chain(*some, layers.Linear(108, 3))
        both(network, losses.CrossEntropyLoss(), *batch(4, 1, 2, 2), quantity(), tolerance=1e-10)


def test_a_convolution_is_checked_once_and_has_the_layers_own_weight():
    layer = layers.ConvTranspose1d(2, 3, 4, 2, 1)
    gb.Sequential(layer, rng=0)
    found = [transposed.convolution(layer) for _ in range(2)]
    assert found[0] is not found[1]
    assert all(each.parameters["weight"] is layer.parameters["weight"] for each in found)
