"""Every row of the layer table through the kit, and the kit itself on layers of a user's."""

import numpy as np
import pytest
from around import lacking
from common import one_in
from hypothesis import given, settings

import gbackprop as gb
from gbackprop import layers
from gbackprop.array import array_module
from gbackprop.layers import Elementwise, Layer
from gbackprop.layers.elementwise.activation import sigmoid
from gbackprop.testing import check_layer
from gbackprop.testing.cases import ALL_LAYERS, LAYERS
from gbackprop.testing.strategies import layer_cases

COMPLEX_ERROR = 1e-12
"""Largest error of a shipped layer beside complex steps."""


@pytest.mark.parametrize("row", LAYERS, ids=str)
def test_every_row(row):
    layer = row.layer()
    report = check_layer(layer, row.x(), reference=row.reference(layer))
    report.assert_ok()
    assert max(r.error for r in report.rows if r.oracle == "complex step") <= COMPLEX_ERROR
    missing = {r.method.rpartition(".")[2] for r in report.rows if r.verdict == "not given"}
    dense = {"curvature"} if layer.curvature == "dense" else set()
    in_training = {"curvature", "mjp"} if layer.in_training else set()  # equal numbers have no deviation
    assert missing - in_training == (lacking(layer)[0] | dense) - in_training


@pytest.mark.parametrize("row", [row for row in ALL_LAYERS if row.definition and row.layer().parameters], ids=str)
def test_each_row_is_its_definition_where_no_parameter_is_as_it_begins(row):
    """Biases begin as 0 and scales as 1 in some: what is done with them could be missing."""
    layer, rng = row.layer(), np.random.default_rng(7)
    for value in layer.parameters.values():
        value[...] = rng.uniform(0.3, 1.2, value.shape)
    got, want = layer.forward(row.x())[0], row.reference(layer)(row.x())
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11 * abs(want).max())


@pytest.mark.parametrize("row", one_in(5, LAYERS), ids=str)
def test_work_in_small_blocks_is_the_same(row, monkeypatch):
    monkeypatch.setattr("gbackprop.engine.scratch._CACHE_BYTES", 100)  # so that nearly every block has one row
    layer = row.layer()
    check_layer(layer, row.x(), reference=row.reference(layer)).assert_ok()


@settings(max_examples=2 * settings().max_examples)
@given(layer_cases())
def test_drawn_layers(case):
    check_layer(case.layer, case.x, case.seed).assert_ok()


def test_a_container_is_a_layer():
    inner = gb.Sequential(layers.Linear(2, 2), layers.Sigmoid(), dtype="float64", rng=0)
    network = gb.Sequential(layers.Linear(3, 2), inner, layers.Dropout(0.5), dtype="float64", rng=1)
    report = check_layer(network, np.random.default_rng(0).standard_normal((3, 3)))
    report.assert_ok()
    assert any(row.claim.endswith("in training") for row in report.rows)


@pytest.mark.parametrize("layer", [layers.MaxPool2d(2), layers.ReLU(), layers.MaxPool2d(3, 1, 1)], ids=repr)
def test_kinks_are_left(layer):
    check_layer(layer, np.zeros((3, 2, 4, 4))).assert_ok()


def test_large_layers_are_looked_at_in_places():
    report = check_layer(layers.Linear(170, 165), np.random.default_rng(0).standard_normal((1, 170)))
    report.assert_ok()
    assert "not given" in [row.verdict for row in report.rows if row.method == "average"]


def test_the_layer_and_its_input_are_left_as_they_are():
    layer, x = layers.Linear(3, 2), np.ones((2, 3), dtype=np.float32)
    check_layer(layer, x).assert_ok()
    assert layer.drawn is None
    np.testing.assert_array_equal(x, 1)


# ------------------------------------------------------------------------------------------------- layers of a user's


class Softplus(Elementwise):
    """log(1 + eˣ), for real numbers only: |x| is not analytic, so complex steps would give another derivative."""

    def value(self, x):
        xp = array_module(x)
        return xp.maximum(x, 0) + xp.log1p(xp.exp(-abs(x)))

    def first(self, x, y):
        return sigmoid(x)

    def second(self, x, y):
        return sigmoid(x) * sigmoid(-x)


class WrongSoftplus(Softplus):
    """With an error in φ'' of one part in a million."""

    def second(self, x, y):
        return super().second(x, y) * (1 + 1e-6)


@pytest.mark.parametrize("layer", [row.layer() for row in LAYERS if issubclass(row.kind, Elementwise)], ids=repr)
def test_a_complex_step_is_the_derivative_at_kinks_too(layer):
    x = np.array([[-3.0, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 6]])[:, int(isinstance(layer, layers.ReLU)) * 5 :]
    np.testing.assert_allclose(layer.value(x + 1e-30j).imag, 1e-30 * layer.first(x, layer.value(x)), rtol=1e-9)


def test_where_complex_steps_fail_differences_serve():
    report = check_layer(Softplus(), np.random.default_rng(0).standard_normal((3, 4)))
    report.assert_ok()
    assert {row.oracle for row in report.rows if row.method in ("jmp", "mjp") and "J[" in row.claim} == {
        "central differences"
    }


def test_differences_see_one_part_in_a_million():
    report = check_layer(WrongSoftplus(), np.random.default_rng(0).standard_normal((3, 4)))
    assert [row.method for row in report.failures] == ["residual"]


class Softmax(Layer):
    """Softmax over the last of two axes: a dense second derivative."""

    curvature = "dense"

    def forward(self, x):
        e = np.exp(x - x.real.max(-1, keepdims=True))
        return (y := e / e.sum(-1, keepdims=True)), y

    def jmp(self, y, mat):
        return y * (mat - (y * mat).sum(-1, keepdims=True))

    mjp = jmp

    def residual(self, y, grad):
        # Σⱼ gⱼ ∇²yⱼ = diag(h) − h yᵀ − y hᵀ with h = y (g − gᵀy)
        h = y * (grad - (grad * y).sum(-1, keepdims=True))
        outer = h[:, :, None] * y[:, None]
        return h[:, :, None] * np.eye(y.shape[1], dtype=y.dtype) - outer - outer.swapaxes(1, 2)


def test_dense_curvature():
    check_layer(Softmax(), np.random.default_rng(0).standard_normal((3, 4))).assert_ok()


class Scale(Layer):
    """y = a x with one number a for each feature; its Jacobian has `per_sample` alone."""

    def __init__(self, features):
        self.features = features

    def parameter_shapes(self):
        return {"factor": (self.features,)}

    def draw(self, rng):
        return {"factor": rng.standard_normal(self.features)}

    def forward(self, x):
        if x.shape[1:] != (self.features,):
            raise ValueError(f"expected features of shape ({self.features},), got {x.shape[1:]}")
        return x * self.parameters["factor"], x

    def mjp(self, x, mat):
        return mat * self.parameters["factor"]

    def parameter_jacobians(self, x):
        jacobian = layers.ParameterJacobian()
        jacobian.per_sample = lambda mat: mat * x
        return {"factor": jacobian}


def test_what_a_layer_need_not_give_is_no_failure():
    report = check_layer(Scale(3), np.random.default_rng(0).standard_normal((3, 3)))
    report.assert_ok()
    assert {row.method for row in report.rows if row.verdict == "not given"} == {
        "jmp",
        "factor.kronecker",
        "factor.average_kronecker",
        "factor.input_square",
    }


class OneEntryWrong(layers.Linear):
    def mjp(self, saved, mat):
        return super().mjp(saved, mat) * np.array([1, 1, 1.001], mat.dtype)


def test_entries_that_are_not_looked_at_are_caught_by_the_adjoint(monkeypatch):
    monkeypatch.setattr("gbackprop.testing.points.COORDINATES", 1)
    report = check_layer(OneEntryWrong(3, 3), np.ones((3, 3)))
    assert report.failures[0].method == "mjp"
    assert report.failures[0].claim == "⟨J u, v⟩ = ⟨u, Jᵀ v⟩"


# ----------------------------------------------------------------------------------------------------------- the report


def test_the_message_names_method_and_entry():
    class Wrong(layers.Linear):
        def mjp(self, saved, mat):
            pulled = super().mjp(saved, mat).copy()
            pulled[..., 2] *= 2
            return pulled

    wrong = Wrong(3, 2)
    wrong.drawn = {"weight": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), "bias": np.zeros(2)}
    report = check_layer(wrong, np.ones((2, 3)))
    assert not report.ok
    assert report.failures[0].worst == (0, 1, 2)
    with pytest.raises(AssertionError, match=r"mjp: is Jᵀ.*worst entry \[0, 1, 2\]: got 12, expected 6"):
        report.assert_ok()
    assert "FAILED" in str(report)
    assert "rests on mjp, which failed" in str(report)
