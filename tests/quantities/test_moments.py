"""Variances of gradients that differ little from each other: no digit is lost to an offset, however a batch is cut."""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.moments import TIGHT, Moments, _tight
from gbackprop.engine.forms import FORMS, moments
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context

CUTS = [{}, {"sample_block": 1}, {"sample_block": 7}, {"sample_block": 9, "workers": 3}, {"column_block": 1}]
OFFSETS = [0.0, 1e6, 1e7, 1e8, 1e9, 1.7e9]


def exact_variance(x):
    """In rational numbers."""
    values = [Fraction(float(v)) for v in x]
    mean = sum(values) / len(values)
    return float(sum((v - mean) ** 2 for v in values) / len(values))


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("options", CUTS, ids=str)
def test_an_offset_of_the_input_costs_no_digits(offset, options):
    net = gb.Sequential(layers.Linear(1, 1), dtype="float64", rng=0)
    net.load_state_dict({"0.weight": np.zeros((1, 1)), "0.bias": np.zeros(1)})
    x = offset + np.random.default_rng(0).random((64, 1))
    asked = q.Variance(), q.SecondMoment(), q.DiagGGN()
    for call, keywords in ((gb.backward, options), (gb.reference, {})):
        result = call(net, losses.MSELoss(), x, -np.ones((64, 1)), *asked, **keywords)  # gradients are 2 x
        np.testing.assert_allclose(result["variance"]["0.weight"], 4 * exact_variance(x[:, 0]), rtol=1e-13)
        np.testing.assert_allclose(result["second_moment"]["0.weight"], 4 * np.mean(x**2), rtol=1e-14)


PAGE = (Path(__file__).parents[2] / "docs/derivations/variance.md").read_text()


@pytest.mark.parametrize(("offset", "exact", "ours"), re.findall(r"\| (1e\d) \| (\S+) \| (\S+) \| .*\|", PAGE))
def test_the_table_of_the_page(offset, exact, ours):
    net = gb.Sequential(layers.Linear(1, 1), dtype="float64", rng=0)
    net.load_state_dict({"0.weight": np.zeros((1, 1)), "0.bias": np.zeros(1)})
    x = float(offset) + np.random.default_rng(0).random((64, 1))
    found = gb.backward(net, losses.MSELoss(), x, -np.ones((64, 1)), q.Variance())["variance"]["0.weight"].item()
    assert (f"{found:.10g}", f"{4 * exact_variance(x[:, 0]):.10g}") == (ours, exact)


KINDS = {
    "vectors": (lambda: [layers.Linear(3, 2)], (3,)),
    "a sequence": (lambda: [layers.Linear(3, 2), layers.Flatten()], (4, 3)),
    "images": (lambda: [layers.Conv2d(2, 3, 2), layers.Flatten()], (2, 4, 4)),
    "groups": (lambda: [layers.Conv2d(2, 4, 2, groups=2), layers.Flatten()], (2, 4, 4)),
    "groups at one position": (lambda: [layers.Conv2d(4, 6, 2, groups=2), layers.Flatten()], (4, 2, 2)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", CUTS, ids=str)
def test_an_offset_in_any_layer_and_any_cut(kind, options):
    """Gradients g uᵀ with u = 1e8 + noise and g nearly constant: 1e-8 of the variance of exact products."""
    make, shape = KINDS[kind]
    net = gb.Sequential(*make(), dtype="float64", rng=0)
    rng = np.random.default_rng(1)
    x = 1e8 + rng.random((20, *shape))
    for value in net.parameters.values():
        value[...] = 0
    y = -np.ones((20, *net.output_shape(shape))) + 1e-9 * rng.random((20, *net.output_shape(shape)))
    result = gb.backward(net, losses.MSELoss("sum"), x, y, q.Variance(), q.BatchGrad(), q.DiagGGN(), **options)
    for name, each in result["batch_grad"].items():
        flat = each.reshape(20, -1)
        want = np.array([exact_variance(column) for column in flat.T]).reshape(each.shape[1:])
        largest = np.abs(want).max()
        tolerance = 1e-8 * largest + 1e-14 * np.abs(each).max() ** 2 * 1e-8  # what rounding each product leaves
        np.testing.assert_allclose(result["variance"][name], want, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_of_products_of_nearly_constant_factors_has_twice_the_digits(seed):
    """Blocks are merged by differences of their means, which are as small as the factors' spread."""
    rng, layer = np.random.default_rng(seed), layers.Linear(1, 1, bias=False)
    layer.drawn = {"weight": np.ones((1, 1))}
    x, g = 1e8 * (1 + 1e-9 * rng.random((20, 1))), 3 + 1e-9 * rng.random((1, 20, 1))
    weight = layer.parameter_jacobians(layer.forward(x)[1])["weight"]
    found = moments.moments(weight, g, None, Context(FORMS, Allocator()))
    exact = sum(Fraction(a) * Fraction(b) for a, b in zip(g.ravel().tolist(), x.ravel().tolist(), strict=True)) / 20
    got = Fraction(found.mean.item()) + Fraction(found.low.item())
    assert abs(got / exact - 1) < 1e-30


def test_the_shape_of_moments_is_that_of_both_arrays():
    assert Moments.of(np.ones((5, 2, 3))).shape == (2, 2, 3)


def test_a_batch_of_one_and_gradients_that_are_all_the_same_have_no_variance():
    net = gb.Sequential(layers.Linear(3, 2), dtype="float64", rng=0)
    x, y = np.full((6, 3), 1e9 + 1 / 3), np.ones((6, 2))
    for n in (1, 6):
        for options in ({}, {"sample_block": 2}):
            result = gb.backward(net, losses.MSELoss(), x[:n], y[:n], q.Variance(), q.SecondMoment(), **options)
            for name, value in result["variance"].items():
                assert (value <= 1e-30 * result["second_moment"][name]).all()


@pytest.mark.parametrize("n", [3, 5, 7])
def test_equal_samples_at_several_positions_have_no_variance_however_their_mean_is_rounded(n):
    """Deviations are summed about a mean in float32, which n equal gradients g do not give back: fl(n g) / n ≠ g."""
    net = gb.Sequential(layers.Linear(3, 4), layers.Flatten(), rng=0)
    x = np.repeat(np.random.default_rng(0).standard_normal((1, 2, 3)), n, axis=0).astype("float32")
    result = gb.backward(net, losses.MSELoss(), x, np.ones((n, 8), "float32"), q.Variance(), q.SecondMoment())
    assert (result["variance"]["0.weight"] <= 1e-20 * result["second_moment"]["0.weight"]).all()


@pytest.mark.parametrize("offset", OFFSETS)
def test_parts_add_up_in_any_order(offset):
    rng = np.random.default_rng(2)
    x = offset * rng.standard_normal((1, 3, 2)) + rng.standard_normal((30, 3, 2))
    whole = Moments.of(x)
    for cuts in ([1], [29], [10, 20], [1, 2, 3, 15]):
        parts = [Moments.of(part) for part in np.split(x, cuts)]
        for order in (parts, parts[::-1]):
            found = sum(order[1:], start=order[0])
            assert found.count == 30
            np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-15, atol=1e-15)
            np.testing.assert_allclose(found.centered, whole.centered, rtol=1e-12)


def test_a_parameter_without_axes():
    found = Moments.of(np.array([1e9 + 1, 1e9 + 2, 1e9 + 6])) + Moments.of(np.array([1e9 + 3]))
    assert (found.mean.shape, float(found.mean), float(found.centered)) == ((), 1e9 + 3, 14.0)


@pytest.mark.parametrize(("share", "counts"), [(0.99, True), (1.01, False)])
@pytest.mark.parametrize(("count", "k"), [(1, 1.0), (7, -3.0)])
def test_a_mean_has_a_rest_where_its_rounding_counts_beside_the_spread(share, counts, count, k):
    q = np.array([[10.0, share]]) * TIGHT * count * k**2
    assert _tight(q, np.full((1, 2), k), count) is counts


def test_a_mean_that_is_0_has_no_rest():
    """As of the weights of a unit that is off for all samples."""
    assert _tight(np.array([0.0, 1.0]), np.zeros(2), 3) is False
