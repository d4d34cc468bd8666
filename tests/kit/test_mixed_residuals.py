"""Claims on mixed residuals: second derivatives in a parameter and in the input that depends on it, too."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.mixed import MixedLayer
from gbackprop.calculus.residual import Factored, products, units
from gbackprop.testing import check_layer, check_network

X = np.random.default_rng(0).standard_normal((4, 3))
CLAIM = "is ∂² (gᵀ y) / ∂p ∂x, both ways"


class OfAmplitude(ParameterJacobian):
    def __init__(self, u):
        self.u = u

    def per_sample(self, mat):
        return mat * self.u


class Wave(MixedLayer):
    """y = a sin(w x), with an amplitude a of each feature."""

    curvature = "diagonal"
    kronecker_factors = "an amplitude of each feature is no matrix"
    w = 1.6

    def parameter_shapes(self):
        return {"a": (3,)}

    def draw(self, rng):
        return {"a": rng.uniform(0.3, 0.9, 3)}

    def output_shape(self, shape):
        if shape != (3,):
            raise ValueError(f"expected features of shape (3,), got {shape}")
        return shape

    def forward(self, x):
        return self.parameters["a"] * np.sin(self.w * x), x

    def jmp(self, x, mat):
        return mat * self.w * self.parameters["a"] * np.cos(self.w * x)

    mjp = jmp

    def residual(self, x, grad):
        return -(self.w**2) * self.parameters["a"] * np.sin(self.w * x) * grad

    def parameter_jacobians(self, x):
        return {"a": OfAmplitude(np.sin(self.w * x))}

    def mixed_width(self, key, shape):
        return 6

    def mixed_residual(self, x, key, grad, shape):
        slope = self.w * np.cos(self.w * x)

        def pairs(k):
            unit = units(k, len(grad), shape, grad.dtype)
            return unit, unit * slope * grad

        return products(3, pairs, grad)


class WithoutFactor(Wave):
    def mixed_residual(self, x, key, grad, shape):
        slope = np.cos(self.w * x)

        def pairs(k):
            unit = units(k, len(grad), shape, grad.dtype)
            return unit, unit * slope * grad

        return products(3, pairs, grad)


class TooNarrow(Wave):
    def mixed_width(self, key, shape):
        return 5


class AsWithout(Wave):
    def mixed_width(self, key, shape):
        return 0


class OneSign(Wave):
    """Squares of the parameter's and of the input's pieces are left where they should cancel."""

    def mixed_residual(self, x, key, grad, shape):
        right = super().mixed_residual(x, key, grad, shape)

        def columns(span):
            pieces, sign = right.columns(span)
            return (np.sqrt(2) * pieces[0], np.sqrt(2) * pieces[1]), np.maximum(sign, 0)

        return Factored(right.width, columns)


WRONG = {
    WithoutFactor: (CLAIM, "right if multiplied by w = 1.6"),
    TooNarrow: ("has as many columns as mixed_width says", None),
    AsWithout: (CLAIM, None),
    OneSign: (CLAIM, None),
}


def test_a_right_one_follows_all_claims():
    report = check_layer(Wave(), X)
    report.assert_ok()
    assert {row.claim for row in report.rows if row.method == "a.mixed_residual"} >= {CLAIM}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_one_is_named(kind):
    claim, words = WRONG[kind]
    failures = check_layer(kind(), X).failures
    assert [(row.method, row.claim) for row in failures] == [("a.mixed_residual", claim)]
    assert words is None or failures[0].diagnosis[0].words == words


def test_it_is_named_in_a_network_that_uses_the_layer_twice():
    wave = WithoutFactor()
    network = gb.Sequential(layers.Linear(2, 3), wave, layers.Linear(3, 3), wave, rng=0, dtype="float64")
    report = check_network(network, losses.MSELoss(), X[:, :2], X)
    assert [row.method for row in report.failures] == ["1.a.mixed_residual", "3.a.mixed_residual"]


@pytest.mark.parametrize("layer", [layers.PReLU(3), layers.LayerNorm(3), layers.RMSNorm(3)], ids=repr)
def test_those_of_the_library_follow_the_claim(layer):
    report = check_layer(layer, X)
    rows = [row for row in report.rows if row.claim.startswith(CLAIM)]
    assert rows
    assert {row.verdict for row in rows} == {"ok"}
