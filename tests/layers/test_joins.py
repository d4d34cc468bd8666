"""Layers of several inputs through the kit, as functions of all inputs side by side; what they refuse."""

import numpy as np
import pytest

from gbackprop import layers
from gbackprop.testing import check_layer
from gbackprop.testing.cases.branches import JOINS


@pytest.mark.parametrize("row", JOINS, ids=str)
def test_every_join(row):
    flat, x = row.layer(), row.x()
    report = check_layer(flat.layer, tuple(flat.split(x, 1)), reference=row.reference(flat))
    report.assert_ok()
    assert any(row.method == "residual" for row in report.rows) == (flat.curvature != "zero")


@pytest.mark.parametrize(("layer", "shapes", "words"), [
    (layers.Add(), [(2,), (3,)], r"expected inputs of equal shape, got \(2,\) and \(3,\)"),
    (layers.Add(), [(2,)], "expected at least two inputs, got 1"),
    (layers.Multiply(), [(2,), (2,), (2,)], "expected two inputs, got 3"),
    (layers.Concat(), [(2, 3), (2, 4)], "expected inputs of equal shape but for axis 1"),
    (layers.Concat(), [(2, 3), (2,)], "expected inputs of equal shape but for axis 1"),
    (layers.Concat(-1), [(2, 3), (2,)], "expected inputs of equal shape but for axis -1"),
    (layers.Concat(3), [(2,), (2,)], "expected an axis after the batch axis .* got axis=3"),
    (layers.MatMul(), [(2, 3), (2, 3)], r"expected inputs of shapes \(…, T, K\) and \(…, K, S\), got \(2, 3\) and"),
    (layers.MatMul(), [(3,), (3, 2)], r"expected inputs of shapes \(…, T, K\) and \(…, K, S\)"),
])  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(layer, shapes, words):
    with pytest.raises(ValueError, match=words):
        layer.output_shape(*shapes)


@pytest.mark.parametrize("axis", [0, 1.5, True, None, "a"])
def test_an_axis_is_the_number_of_one_after_the_batch(axis):
    with pytest.raises(ValueError, match="axis: expected an axis after the batch axis, got"):
        layers.Concat(axis)


@pytest.mark.parametrize("gradient", [np.zeros((2, 3)), np.array([[1.0, 0.0, -2.0], [0.0, 0.0, 3.0]])])
def test_columns_of_a_zero_gradient_are_zero(gradient):
    a, b = np.ones((2, 3)), np.ones((2, 3))
    layer = layers.Multiply()
    (on_a, on_b), sign = layer.residual(layer.forward(a, b)[1], gradient).columns(slice(None))
    assert np.isfinite(on_a).all()
    assert np.isfinite(on_b).all()
    np.testing.assert_array_equal(np.abs(sign[:3].T), gradient != 0)
    np.testing.assert_array_equal(on_a[sign == 0], 0)
