"""Layers of users: those that lack what a product needs, and those that have the definitions alone."""

import re

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop.calculus.jacobian import Bias, ParameterJacobian
from gbackprop.layers import Layer

X, Y = np.random.default_rng(0).standard_normal((4, 3)), np.array([0, 1, 1, 0])
LOSS = losses.CrossEntropyLoss()


class Gain(Layer):
    """y = a x, elementwise or not affine in a or x, with or without what the Hessian needs."""

    curved = False

    def parameter_shapes(self):
        return {"gain": (3,)}

    def draw(self, rng):
        return {"gain": rng.uniform(0.5, 1.5, 3)}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return self.parameters["gain"] * x, x

    def jmp(self, saved, mat):
        return self.parameters["gain"] * mat

    mjp = jmp

    def parameter_jacobians(self, saved):
        return {"gain": Times(saved)}


class Times(ParameterJacobian):
    def __init__(self, x):
        self.x = x

    def per_sample(self, mat):
        return mat * self.x


class NoProduct(Gain):
    jmp = Layer.jmp


class Curved(Gain):
    """y = a x²: neither affine in x nor with a mixed residual."""

    curvature = "diagonal"

    def forward(self, x):
        return self.parameters["gain"] * x**2, x

    def jmp(self, saved, mat):
        return 2 * self.parameters["gain"] * saved * mat

    mjp = jmp

    def residual(self, saved, grad):
        return 2 * self.parameters["gain"] * grad

    def parameter_jacobians(self, saved):
        return {"gain": Times(saved**2)}


class NoResidual(Curved):
    residual = Layer.residual


class Squared(Gain):
    """y = a² x."""

    def forward(self, x):
        return self.parameters["gain"] ** 2 * x, x

    def jmp(self, saved, mat):
        return self.parameters["gain"] ** 2 * mat

    mjp = jmp

    def parameter_jacobians(self, saved):
        return {"gain": Times(2 * self.parameters["gain"] * saved)}


class Two(Gain):
    """y = a b x, in which two parameters meet."""

    def parameter_shapes(self):
        return {"a": (3,), "b": (3,)}

    def draw(self, rng):
        return {"a": rng.uniform(0.5, 1.5, 3), "b": rng.uniform(0.5, 1.5, 3)}

    def forward(self, x):
        return self.parameters["a"] * self.parameters["b"] * x, x

    def jmp(self, saved, mat):
        return self.parameters["a"] * self.parameters["b"] * mat

    mjp = jmp

    def parameter_jacobians(self, saved):
        return {"a": Times(self.parameters["b"] * saved), "b": Times(self.parameters["a"] * saved)}


def around(layer):
    return gb.Sequential(
        layers.Linear(3, 3), layers.Tanh(), layer, layers.Tanh(), layers.Linear(3, 2), rng=0, dtype="float64"
    )


@pytest.mark.parametrize(
    ("kind", "layer", "message"),
    [
        (ops.GGN, NoProduct, "layer 2, NoProduct() cannot give GGN: it has no jmp"),
        (ops.Jacobian, NoProduct, "layer 2, NoProduct() cannot give Jacobian: it has no jmp"),
        (
            ops.Hessian,
            NoResidual,
            "layer 2, NoResidual() cannot give Hessian: its curvature is 'diagonal', and it has no",
        ),
        (ops.Hessian, Curved, "layer 2, Curved() cannot give Hessian: it has parameters, is not affine in its input"),
        (ops.Hessian, Squared, "layer 2, Squared() cannot give Hessian: it is not affine in its parameter gain,"),
        (ops.Hessian, Two, "layer 2, Two() cannot give Hessian: it is not affine in its parameters a, b together,"),
    ],
)
def test_layers_that_lack_something(kind, layer, message):
    given = (X,) if kind is ops.Jacobian else (LOSS, (X, Y))
    with pytest.raises(gb.UnsupportedError, match=re.escape(message)):
        kind(around(layer()), *given)


@pytest.mark.parametrize("layer", [Gain, Curved, Squared, Two])
def test_layers_with_per_sample_alone_have_a_ggn(layer):
    net = around(layer())
    found, rows = ops.GGN(net, losses.MSELoss("sum"), (X, X[:, :2].copy())).to_dense(), ops.Jacobian(net, X).to_dense()
    assert np.abs(found - 2 * rows.T @ rows).max() <= 1e-12 * np.abs(found).max()
    result = gb.reference(net, losses.MSELoss("sum"), X, X[:, :2].copy(), gb.quantities.DiagGGN())
    want = np.concatenate([value.ravel() for value in result["diag_ggn"].values()])
    assert np.abs(np.diag(found) - want).max() <= 1e-12 * want.max()


class Copying(Layer):
    """y = x + b, whose Jacobian's rows are a copy."""

    def parameter_shapes(self):
        return {"bias": (3,)}

    def draw(self, rng):
        return {"bias": rng.uniform(-1, 1, 3)}

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x + self.parameters["bias"], None

    def jmp(self, saved, mat):
        return mat

    mjp = jmp

    def parameter_jacobians(self, saved):
        return {"bias": Bias(lambda mat: mat[:, :, None].copy())}


ASKED = []
"""Jacobians that were made: not an attribute of a layer, by which it would be another one."""


class Pushing(Times):
    def push(self, directions, batch, shape):
        self.asked = True
        return directions[:, None] * self.x


def test_rows_that_are_a_copy_and_a_push_of_ones_own():
    net = around(Copying())
    jacobian = ops.Jacobian(net, X)
    assert np.abs(jacobian @ np.eye(jacobian.shape[1]) - (jacobian.T @ np.eye(8)).T).max() <= 1e-13
    ASKED.clear()

    class Own(Gain):
        def parameter_jacobians(self, saved):
            ASKED.append(Pushing(saved))
            return {"gain": ASKED[-1]}

    jacobian = ops.Jacobian(around(Own()), X)
    assert np.abs(jacobian @ np.eye(jacobian.shape[1]) - (jacobian.T @ np.eye(8)).T).max() <= 1e-13
    assert any(hasattr(each, "asked") for each in ASKED)


def test_what_a_push_of_ones_own_returns_is_not_written_over():
    class Storing(Pushing):
        def push(self, directions, batch, shape):
            found = super().push(directions, batch, shape)
            returned.append((found, found.copy()))
            return found

    class Own(Gain):
        def parameter_jacobians(self, saved):
            return {"gain": Storing(saved)}

    returned = []
    ops.GGN(around(Own()), LOSS, (X, Y)).to_dense()
    assert returned
    for found, before in returned:
        np.testing.assert_array_equal(found, before)
