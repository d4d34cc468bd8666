"""Arrays that a user's code writes into, or stores: other results have their own."""

import pickle

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.signals import EXACT, GRADIENT, RESIDUAL
from gbackprop.layers import Layer
from gbackprop.quantities import Quantity, Statistic

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 3)), np.array([0, 1, 1, 0])


class Twice(Quantity):
    """2 diag(GGN), in the memory of the diagonal."""

    name, scale, needs = "twice", "2 R Σ diag(Jᵀ H J)", (Statistic("square", EXACT),)

    def finish(self, scale, square):
        square *= 2
        return square


class Clipped(Quantity):
    """The gradient, clipped in its memory."""

    name, scale, needs = "clipped", "the gradient within ±0.01", (Statistic("sum", GRADIENT),)

    def finish(self, scale, gradient):
        return np.clip(gradient, -0.01, 0.01, out=gradient)


class Centered(Quantity):
    """The moments, of which the mean is written over."""

    name, scale, needs = "centered", "Σ (∇ℓₙ − mean)²", (Statistic("moments", GRADIENT),)

    def finish(self, scale, moments):
        moments.mean[...] = 0
        moments.centered[...] += 1
        return moments.centered


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
def test_a_formula_that_writes_changes_no_other_result(call):
    network = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64")
    shipped = q.DiagGGN(), q.Variance(), q.SecondMoment()
    alone = call(network, losses.CrossEntropyLoss(), X, Y, *shipped)
    for own in ((Twice(), Clipped(), Centered()), (Centered(), Clipped(), Twice())):
        found = call(network, losses.CrossEntropyLoss(), X, Y, *own[:2], *shipped, own[2])
        for name in alone.gradient:
            np.testing.assert_array_equal(found.gradient[name], alone.gradient[name])
            for quantity in shipped:
                np.testing.assert_array_equal(found[quantity.name][name], alone[quantity.name][name])
            np.testing.assert_array_equal(found["twice"][name], 2 * alone["diag_ggn"][name])
            assert not np.shares_memory(found["twice"][name], found["diag_ggn"][name])


class Stored(ParameterJacobian):
    """A Jacobian that computes its sum once."""

    def __init__(self, x):
        self.x, self.sums = x, []

    def per_sample(self, mat):
        return mat * self.x

    def sum(self, mat, sign=None):
        self.sums = self.sums or [super().sum(mat, sign)]
        return self.sums[0]


class Gain(Layer):
    kronecker_factors = "a gain of each feature is no matrix"

    def parameter_shapes(self):
        return {"gain": (3,)}

    def draw(self, rng):
        return {"gain": np.ones(3)}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.parameters["gain"] * x, x

    def jmp(self, x, mat):
        return self.parameters["gain"] * mat

    mjp = jmp

    def parameter_jacobians(self, x):
        return {"gain": Stored(x)}


class Mean(Quantity):
    """The mean of the individual gradients, R Σ ∇ℓₙ / N."""

    name, scale, needs = "mean", "1/N Σ R ∇ℓₙ", (Statistic("sum", GRADIENT, mean=True),)


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
def test_a_mean_is_no_division_of_what_a_jacobian_stores(call):
    network = gb.Sequential(Gain(), rng=0, dtype="float64")
    found = call(network, losses.MSELoss("sum"), X, 0 * X, Mean())
    want = 2 * (X * X).sum(0)
    np.testing.assert_allclose(found.gradient["0.gain"], want, rtol=1e-14)
    np.testing.assert_allclose(found["mean"]["0.gain"], want / 4, rtol=1e-14)


@pytest.mark.parametrize("call", [gb.backward, gb.reference, gb.prepare], ids=["backward", "reference", "prepare"])
def test_an_output_of_layers_that_only_move_numbers_is_no_view_of_the_input(call):
    network, x = gb.Sequential(layers.Identity(), layers.Flatten()), np.arange(12.0).reshape(3, 2, 2)
    if call is gb.prepare:
        output = gb.prepare(network, losses.MSELoss())(x, np.ones((3, 4))).output
    else:
        output = call(network, losses.MSELoss(), x, np.ones((3, 4))).output
    assert not np.shares_memory(output, x)


@pytest.mark.parametrize("parts", [[], [layers.Flatten()], [layers.Slice(1, 0, 1), layers.Identity()]], ids=str)
def test_predictions_of_layers_that_only_move_numbers_are_no_view_of_the_input(parts):
    x = np.arange(12.0).reshape(3, 2, 2)
    output = gb.Sequential(*parts)(x)
    output += 1
    np.testing.assert_array_equal(x, np.arange(12.0).reshape(3, 2, 2))


class OfResidual(Quantity):
    """A reduction of the signed columns, with statistics of the object itself."""

    name, scale = "of residual", "Σ over signed columns"

    def __init__(self, reduction):
        self.needs = (Statistic(reduction, RESIDUAL),)


def with_a_shared_weight(dtype):
    """A product of a layer with itself at its own output: pairs, and columns with a piece on the weight."""
    linear = layers.Linear(4, 4, bias=False)
    nodes = {"a": (linear, "input"), "t": (layers.Tanh(), "a"), "b": (linear, "t"), "y": (layers.Multiply(), "a", "b")}
    return gb.Graph(nodes, rng=0, dtype=dtype)


@pytest.mark.parametrize("call", [gb.backward, gb.reference])
@pytest.mark.parametrize("reduction", ["square", "batch_square", "kronecker"])
def test_reductions_of_signed_columns_are_of_all_of_them_in_the_networks_dtype(reduction, call):
    """Also of a quantity that was pickled; the diagonal of the whole block of a weight is its sum of squares."""
    x = np.random.default_rng(0).standard_normal((3, 4))
    found = {}
    for dtype in ("float32", "float64"):
        asked = pickle.loads(pickle.dumps(OfResidual(reduction)))
        given = x.astype(dtype), np.zeros((3, 4), dtype)
        found[dtype] = call(with_a_shared_weight(dtype), losses.MSELoss(), *given, asked).values[0]["a.weight"]
        assert found[dtype].dtype == dtype
    np.testing.assert_allclose(found["float32"], found["float64"], rtol=0, atol=1e-5 * abs(found["float64"]).max())
    both = q.DiagHessian(), q.DiagGGN()
    diagonal, ggn = call(with_a_shared_weight("float64"), losses.MSELoss(), x, np.zeros((3, 4)), *both).values
    want = diagonal["a.weight"] - ggn["a.weight"]
    rows = found["float64"].sum(0) if reduction == "batch_square" else found["float64"]
    of = np.diag(rows).reshape(4, 4) if reduction == "kronecker" else rows
    np.testing.assert_allclose(of, want, rtol=0, atol=1e-12 * abs(want).max())
