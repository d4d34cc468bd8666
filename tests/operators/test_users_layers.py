"""Layers of users: those that lack what a product needs, and those that have the definitions alone."""

import re

import numpy as np
import pytest
from own_layers import Both, Product, Times

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop.calculus.jacobian import Bias
from gbackprop.layers import Layer

X, Y = np.random.default_rng(0).standard_normal((4, 3)), np.array([0, 1, 1, 0])
LOSS = losses.CrossEntropyLoss()


class NoProduct(Times):
    jmp = Layer.jmp


class Curved(Times):
    """y = p x²: neither affine in x nor with a mixed residual."""

    curvature = "diagonal"

    def forward(self, x):
        return self.factor * x**2, x

    def jmp(self, saved, mat):
        return 2 * self.factor * saved * mat

    mjp = jmp

    def residual(self, saved, grad):
        return 2 * self.factor * grad

    def parameter_jacobians(self, saved):
        return {"p": Product(saved**2)}


class NoResidual(Curved):
    residual = Layer.residual


class OfTwo(Times):
    """y = p (a + b), affine in its inputs."""

    def output_shape(self, *shapes):
        return shapes[0]

    def forward(self, a, b):
        return super().forward(a + b)

    def jmp(self, saved, of_a, of_b):
        return super().jmp(saved, of_a + of_b)

    def mjp(self, saved, mat):
        return (super().jmp(saved, mat),) * 2


def test_a_layer_of_several_inputs_with_parameters_has_no_mixed_residual():
    nodes = {"a": (layers.Linear(3, 3), "input"), "b": (layers.Tanh(), "a"), "y": (OfTwo(), "a", "b")}
    net = gb.Graph(nodes, rng=0, dtype="float64")
    with pytest.raises(gb.UnsupportedError, match="it has parameters and several inputs"):
        ops.Hessian(net, losses.MSELoss(), (X, X))


def around(layer):
    chain = layers.Linear(3, 3), layers.Tanh(), layer, layers.Tanh(), layers.Linear(3, 2)
    return gb.Sequential(*chain, rng=0, dtype="float64")


@pytest.mark.parametrize(
    ("kind", "layer", "message"),
    [
        (ops.GGN, NoProduct, "it has no jmp"),
        (ops.Jacobian, NoProduct, "it has no jmp"),
        (ops.Hessian, NoProduct, "it has no jmp"),
        (ops.Hessian, NoResidual, "its curvature is 'diagonal', and it has no"),
        (ops.Hessian, Curved, "it has parameters, is not affine in its input"),
    ],
)
def test_layers_that_lack_something(kind, layer, message):
    given = (X,) if kind is ops.Jacobian else (LOSS, (X, Y))
    message = f"layer 2, {layer.__name__}() cannot give {kind.__name__}: {message}"
    with pytest.raises(gb.UnsupportedError, match=re.escape(message)):
        kind(around(layer()), *given)


@pytest.mark.parametrize("layer", [Times(), Curved(), Times("p²"), Both()])
def test_layers_with_per_sample_alone_have_a_ggn(layer):
    net = around(layer)
    found, rows = ops.GGN(net, losses.MSELoss("sum"), (X, X[:, :2].copy())).to_dense(), ops.Jacobian(net, X).to_dense()
    assert np.abs(found - 2 * rows.T @ rows).max() <= 1e-12 * np.abs(found).max()
    result = gb.reference(net, losses.MSELoss("sum"), X, X[:, :2].copy(), gb.quantities.DiagGGN())
    want = np.concatenate([value.ravel() for value in result["diag_ggn"].values()])
    assert np.abs(np.diag(found) - want).max() <= 1e-12 * want.max()


class Copying(Times):
    """y = x + p, whose Jacobian's rows are a copy."""

    def forward(self, x):
        return x + self.parameters["p"], None

    def jmp(self, saved, mat):
        return mat

    mjp = jmp

    def parameter_jacobians(self, saved):
        return {"p": Bias(lambda mat: mat[:, :, None].copy())}


RETURNED = []
"""What was returned, with a copy: not an attribute of a layer, by which it would be another one."""


class Pushing(Product):
    def push(self, directions, batch, shape):
        found = directions[:, None] * self.x
        RETURNED.append((found, found.copy()))
        return found


class WithPush(Times):
    def parameter_jacobians(self, saved):
        return {"p": Pushing(saved)}


@pytest.mark.parametrize("layer", [Copying, WithPush])
def test_rows_that_are_a_copy_and_a_push_of_ones_own(layer):
    RETURNED.clear()
    jacobian = ops.Jacobian(around(layer()), X)
    assert np.abs(jacobian @ np.eye(jacobian.shape[1]) - (jacobian.T @ np.eye(8)).T).max() <= 1e-13
    assert bool(RETURNED) == (layer is WithPush)


def test_what_a_push_of_ones_own_returns_is_not_written_over():
    RETURNED.clear()
    ops.GGN(around(WithPush()), LOSS, (X, Y)).to_dense()
    assert RETURNED
    for found, before in RETURNED:
        np.testing.assert_array_equal(found, before)
