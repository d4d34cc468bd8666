"""A weight's Jacobian: signs, digits, and the size of what it makes on the way."""

import numpy as np
import pytest
from test_budget import batch, peak

import gbackprop as gb
from gbackprop import array, layers


def jacobian(layer, x, columns):
    y, saved = layer.forward(x)
    mat = np.random.default_rng(1).standard_normal((columns, *y.shape)).astype(x.dtype)
    return layer.parameter_jacobians(saved)["weight"], mat


@pytest.mark.parametrize("columns", [1, 2])
def test_signs_of_columns(columns):
    rng, layer = np.random.default_rng(0), layers.Conv2d(2, 3, 3)
    layer.dtype = "float64"
    y, saved = layer.forward(rng.standard_normal((4, 2, 5, 6)))
    mat, sign = rng.standard_normal((columns, *y.shape)), rng.integers(-1, 2, (columns, 4)).astype(float)
    weight = layer.parameter_jacobians(saved)["weight"]
    want = (weight.per_sample(mat) * sign[..., None, None, None, None]).sum(0)
    np.testing.assert_allclose(weight.batch(mat, sign), want, atol=1e-13)
    np.testing.assert_allclose(weight.sum(mat, sign), want.sum(0), atol=1e-13)


def test_squares_by_pairs_of_positions_keep_digits_where_positions_cancel():
    rng = np.random.default_rng(0)
    layer, x = layers.Conv2d(6, 3, 3), rng.standard_normal((3, 6, 4, 5), dtype=np.float32)
    weight, mat = jacobian(layer, x + 1000, 60)
    mat = mat - mat.mean((3, 4), keepdims=True)  # what is the same at all positions cancels
    weight.u  # noqa: B018
    g, u = weight.split(mat).astype(float), weight.u.astype(float)
    want = ((g.swapaxes(-1, -2) @ u[:, None]) ** 2).sum((1, 2))
    got = weight._square_by_positions(weight.split(mat), None)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_products_are_made_in_blocks_of_columns_and_samples(monkeypatch):
    weight, mat = jacobian(layers.Conv2d(4, 4, 3), batch(6, 4, 6, 6)[0], 8)
    monkeypatch.setattr(array, "_CACHE_BYTES", 2**12)
    sizes = [product.nbytes for *_, product in weight._products(weight.split(mat))]
    assert max(sizes) <= 2**12
    assert sum(sizes) == 6 * 8 * 4 * 4 * 9 * 4


def test_norms_take_few_samples_at_a_time():
    weight, mat = jacobian(layers.Conv2d(40, 40, 3), batch(64, 40, 12, 12)[0], 4)
    weight.u  # noqa: B018
    whole = 64 * 4 * 100 * 100 * 8  # all samples' (gₜᵀ gₛ)
    assert peak(lambda: weight.square_norm(mat)) < whole / 2


def test_groups_have_no_common_input_factor():
    weight, _ = jacobian(layers.Conv2d(4, 4, 3, groups=2), batch(2, 4, 5, 5)[0], 1)
    with pytest.raises(gb.UnsupportedError, match="groups"):
        weight.input_square()


def test_moments_are_summed_in_float64():
    weight, mat = jacobian(layers.Linear(5, 3), batch(50, 5)[0], 1)
    g, u = mat[0].astype(float), weight.u.reshape(50, 5).astype(float)
    want = g.T @ u, (g * g).T @ (u * u)
    for got, exact in zip(weight.moments(mat), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-12, atol=1e-12)
