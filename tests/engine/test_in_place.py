"""Steps that write over what they get, and what they must leave alone."""

import numpy as np
import pytest
from common import batch, both, chain, hundredfold, with_weight

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context

CE = losses.CrossEntropyLoss()


@pytest.mark.parametrize("kind", [layers.ReLU, layers.Sigmoid, layers.Tanh])
@pytest.mark.parametrize("order", ["as it is", "channels last", "cropped", "repeated", "spread", "gaps"])
def test_a_step_in_place_is_the_step_and_leaves_what_repeats_alone(kind, order):
    rng, layer = np.random.default_rng(0), kind()
    x, mat = rng.standard_normal((3, 2, 4, 4)), rng.standard_normal((5, 3, 2, 4, 4))
    if order == "channels last":
        mat = np.moveaxis(np.ascontiguousarray(np.moveaxis(mat, 2, -1)), -1, 2)
    elif order == "cropped":
        mat = rng.standard_normal((5, 3, 2, 5, 5))[..., :4, :4]
    elif order == "repeated":
        mat = np.lib.stride_tricks.as_strided(mat, mat.shape, (0, *mat.strides[1:]))  # writable: one column five times
    elif order == "spread":
        mat = np.broadcast_to(mat[:1, :, :, :1, :1], mat.shape)  # read-only
    elif order == "gaps":  # as many bytes from the first to the last as there are in all, and yet not side by side
        x, mat = np.ones((1, 3)), np.lib.stride_tricks.as_strided(np.arange(6.0) - 2, (2, 1, 3), (40, 8, 0))
    saved, before = layer.forward(x)[1], mat.copy()
    want = layer.mjp(saved, mat)
    np.testing.assert_array_equal(mat, before)
    context = Context(FORMS, Allocator())
    got = FORMS.in_place[layers.Elementwise.mjp](layer, saved, mat)
    if order in ("as it is", "channels last"):
        assert got is mat
    else:
        assert got is None  # and so the form that makes a new array is taken
        np.testing.assert_array_equal(mat, before)
        got = context.mjp(layer, saved, mat)
    np.testing.assert_array_equal(got, want)


class Shift(layers.Layer):
    """y = x + b: what goes on is the very array that arrived, and so is the gradient, for a single sample."""

    def output_shape(self, shape):
        return shape

    def parameter_shapes(self):
        return {"bias": (3,)}

    def draw(self, rng):
        return {"bias": rng.standard_normal(3)}

    def forward(self, x):
        return x + self.parameters["bias"], None

    def jmp(self, saved, mat):
        return mat

    mjp = jmp

    def parameter_jacobians(self, saved):
        class Itself(layers.ParameterJacobian):
            def per_sample(self, mat):
                return mat

            def sum(self, mat, sign=None):
                return mat[0, 0]

        return {"bias": Itself()}


class Doubled(layers.Elementwise):
    """y = 2x + b, elementwise and with a parameter, whose gradient for a single sample is what arrives."""

    parameter_shapes, draw, parameter_jacobians = Shift.parameter_shapes, Shift.draw, Shift.parameter_jacobians

    def value(self, x):
        return 2 * x + self.parameters["bias"]

    def first(self, x, y):
        return 2 + 0 * x

    def second(self, x, y):
        return 0 * x


@pytest.mark.parametrize("kind", [Shift, Doubled])
def test_results_that_are_views_of_the_columns_are_not_written_over(kind):
    net = chain(layers.Linear(4, 3), layers.ReLU(), layers.Identity(), kind(), layers.Linear(3, 2))
    x = batch(1, 4, seed=1)[0]
    result = gb.backward(net, CE, x, np.array([0]))
    back = result.gradient["4.bias"] @ net.parameters["4.weight"]
    np.testing.assert_allclose(result.gradient["3.bias"], back, rtol=1e-12)
    assert (net(x) != 0).all()
    assert (net[0].forward(x)[0] < 0).any()  # so that the ReLU changes the column


class Probe(layers.Identity):
    """Keeps what passes by."""

    def mjp(self, saved, mat):
        self.seen, self.copy = mat, mat.copy()
        return mat


def test_what_a_users_layer_keeps_is_not_written_over():
    probe = Probe()
    gb.backward(chain(layers.Linear(4, 3), layers.ReLU(), probe, layers.Linear(3, 2)), CE, *batch(5, 4, classes=2))
    np.testing.assert_array_equal(probe.seen, probe.copy)


@pytest.mark.parametrize("options", [{}, {"sample_block": 2}], ids=str)
def test_a_jacobian_with_a_batch_of_its_own_is_asked_for_it(options):
    kinds = with_weight(layers.Linear, **hundredfold("batch")), layers.Linear
    own, plain = (gb.backward(chain(k(4, 3)), CE, *batch(5, 4), q.BatchGrad(), **options) for k in kinds)
    np.testing.assert_allclose(own["batch_grad"]["0.weight"], 100 * plain["batch_grad"]["0.weight"], rtol=1e-12)


class Total(layers.Permute):
    """A sum over an axis, whose columns are written once and read from several places."""

    def output_shape(self, shape):
        return shape[1:]

    def moved(self, x):
        return x.sum(1)

    def back(self, g, shape):
        return np.broadcast_to(g[:, None], (len(g), *shape))


def test_nothing_is_added_to_columns_of_another_back():
    nodes = {"a": (layers.Linear(4, 4), "input"), "s": (layers.Select(1, 0), "a"), "m": (Total((0, 2, 1)), "a")}
    nodes |= {"l": (layers.Linear(4, 4), "m"), "add": (layers.Add(), "l", "s"), "o": (layers.Linear(4, 3), "add")}
    network = gb.Graph(nodes, rng=0, dtype="float64")
    for asked in ([], [q.DiagGGN()]):
        both(network, CE, *batch(6, 5, 4), *asked)
