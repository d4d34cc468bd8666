"""The fast forms of a weight's Jacobian: signs, digits, where they write, and the size of what they make on the way."""

from itertools import combinations

import numpy as np
import pytest
from common import batch, both, chain, peak

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.signals import EXACT
from gbackprop.engine import scratch
from gbackprop.engine.forms import FORMS, outer, products
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import PLAIN, Context, JacobianForms

CE = losses.CrossEntropyLoss()
CONTEXT = Context(FORMS, Allocator())


def jacobian(layer, x, columns):
    y, saved = CONTEXT.forward(layer, x)
    mat = np.random.default_rng(1).standard_normal((columns, *y.shape)).astype(x.dtype)
    return CONTEXT.jacobians(layer, saved)["weight"], mat


def reduced(name, jacobian, *arriving, context=CONTEXT):
    return context.reduce(jacobian, REDUCTIONS[name], *arriving)


SIGNED = ["sum", "batch", "square", "batch_square", "square_norm", "kronecker"]
"""Reductions of columns that may have signs."""


def test_the_reductions_have_fast_forms():
    weight, mat = jacobian(layers.Conv2d(2, 3, 3), batch(4, 2, 5, 6)[0], 2)
    taken = []
    forms = dict.fromkeys(FORMS[layers.Outer].reduce, lambda *given: taken.append(given))
    registry = {layers.Outer: JacobianForms(layers.Outer, reduce=forms)}
    for name in (*SIGNED, "moments", "input_square"):
        arriving = () if name == "input_square" else (mat, None)
        Context(registry, Allocator()).reduce(weight, REDUCTIONS[name], *arriving)
    assert len(taken) == len(SIGNED) + 2


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize(("groups", "size"), [(1, (5, 6)), (2, (5, 6)), (2, (3, 3))])
def test_signs_of_columns(name, columns, groups, size):
    rng, layer = np.random.default_rng(0), layers.Conv2d(2, 4, 3, groups=groups)
    layer.dtype = "float64"
    weight, mat = jacobian(layer, rng.standard_normal((4, 2, *size)), columns)
    sign = rng.integers(-1, 2, (columns, 4)).astype(float)
    want = REDUCTIONS[name].define(weight, mat, sign)
    np.testing.assert_allclose(reduced(name, weight, mat, sign), want, atol=1e-12)


def test_squares_by_pairs_of_positions_keep_digits_where_positions_cancel():
    rng = np.random.default_rng(0)
    layer, x = layers.Conv2d(6, 3, 3), rng.standard_normal((3, 6, 4, 5), dtype=np.float32)
    weight, mat = jacobian(layer, x + 1000, 60)
    mat = mat - mat.mean((3, 4), keepdims=True)  # what is the same at all positions cancels
    g, u = weight.split(mat).astype(float), weight.u.astype(float)
    want = ((g.swapaxes(-1, -2) @ u[:, None]) ** 2).sum((1, 2))
    got = outer.square_by_positions(weight, weight.split(mat), None)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_products_are_made_in_blocks_of_columns_and_samples(monkeypatch):
    weight, mat = jacobian(layers.Conv2d(4, 4, 3), batch(6, 4, 6, 6, dtype="float32")[0], 8)
    monkeypatch.setattr(scratch, "_CACHE_BYTES", 2**12)
    sizes = [product.nbytes for *_, product in outer.products(weight, weight.split(mat))]
    assert max(sizes) <= 2**12
    assert sum(sizes) == 6 * 8 * 4 * 4 * 9 * 4


def test_norms_take_few_samples_at_a_time():
    weight, mat = jacobian(layers.Conv2d(40, 40, 3), batch(64, 40, 12, 12, dtype="float32")[0], 4)
    weight.u  # noqa: B018
    whole = 64 * 4 * 100 * 100 * 8  # all samples' (gₜᵀ gₛ)
    assert peak(lambda: reduced("square_norm", weight, mat, None)) < whole / 2


@pytest.mark.parametrize("forms", [PLAIN, FORMS])
@pytest.mark.parametrize("few", [0, 10**6])  # rows up to which NumPy does not see the symmetry
def test_each_group_has_an_input_factor(forms, few, monkeypatch):
    monkeypatch.setattr("gbackprop.engine.costs.mirrored", lambda rows, i: rows >= few)
    x = batch(2, 4, 5, 5, dtype="float32")[0]
    weight, _ = jacobian(layers.Conv2d(4, 4, 3, groups=2), x, 1)
    found = reduced("input_square", weight, context=Context(forms, Allocator()))
    assert found.shape == (2, 18, 18)
    for group, channels in zip(found, (x[:, :2], x[:, 2:]), strict=True):
        alone, _ = jacobian(layers.Conv2d(2, 2, 3), channels, 1)
        np.testing.assert_allclose(group, reduced("input_square", alone), rtol=1e-5, atol=1e-5)


def test_moments_are_summed_in_float64():
    weight, mat = jacobian(layers.Linear(5, 3), batch(50, 5, dtype="float32")[0], 1)
    x = (mat[0].astype(float)[:, :, None] * weight.u.reshape(50, 1, 5).astype(float))
    found = reduced("moments", weight, mat, None)
    np.testing.assert_allclose(found.mean, x.mean(0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.centered, x.var(0) * 50, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 3, 2)])
def test_outer_products_of_rows_are_written_in_any_layout(dtype, groups, numba, order, monkeypatch):
    if not numba:
        monkeypatch.setattr(products, "numba_kernels", lambda: None)
    rng = np.random.default_rng(0)
    g, u = (rng.standard_normal((groups, 4, size)).astype(dtype)[:, ::2] for size in (3, 5))
    for largest in (99, 0):  # by NumPy's product, and by what is taken for large arrays
        monkeypatch.setattr(products.costs, "COMPILED_OUTER", largest)
        out = np.full([(groups, 2, 3, 5)[axis] for axis in order], np.nan, dtype).transpose(order)  # undoes itself
        products.outer_product_of_rows(g, u, out)
        np.testing.assert_array_equal(out, g[..., None] * u[..., None, :])


def test_a_large_convolution_is_unfolded_for_a_few_samples_at_a_time(monkeypatch):
    monkeypatch.setattr("gbackprop.engine.costs.UNFOLDED_BYTES", 0)
    monkeypatch.setattr("gbackprop.engine.scratch._CACHE_BYTES", 2**11)  # two samples
    layer = layers.Conv2d(2, 3, 3, stride=2, padding=1)
    layer.dtype = "float64"
    x = np.random.default_rng(0).standard_normal((5, 2, 6, 5))
    y, (same, u) = CONTEXT.forward(layer, x)
    assert same is x
    assert u is None
    want, saved = layer.forward(x)
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-14)
    of_weight, whole = (layer.parameter_jacobians(each)["weight"] for each in ((same, u), saved))  # by the layer itself
    np.testing.assert_allclose(of_weight.per_sample(y[None]), whole.per_sample(y[None]), rtol=0, atol=1e-12)


def test_pairs_of_positions_give_the_square_of_a_sum(double):
    f = np.random.default_rng(0).standard_normal(5)
    for xp in (np, double):
        first, second, times = (gb.asnumpy(part) for part in outer._pairs(xp, 5))
        np.testing.assert_allclose((times * f[first] * f[second]).sum(), f.sum() ** 2, rtol=1e-12)


@pytest.mark.parametrize("positions", [1, 2, 3])
def test_rows_of_few_positions_are_those_of_the_plain_engine(positions):
    y = np.random.default_rng(1).standard_normal((4, 2 * positions))
    net = chain(layers.Linear(3, 2), layers.Flatten())
    both(net, losses.MSELoss(), batch(4, positions, 3)[0], y, q.BatchGrad(), tolerance=1e-14, least=1)


# ----------------------------------------------------------------------------------------------- squares of a bias


class OfLastBias(q.Quantity):
    """The diagonal of the GGN of each sample, in one parameter."""

    name = "of_last_bias"
    scale = "R"

    def statistics(self):
        return (q.Statistic("batch_square", EXACT, only="2.bias"),)

    def finish(self, scale, square):
        return square


@pytest.mark.parametrize("run", [gb.backward, gb.reference, gb.explain])
def test_the_name_of_a_parameter_that_is_not_there(run, monkeypatch):
    monkeypatch.setattr(OfLastBias, "statistics", lambda self: (q.Statistic("batch_square", EXACT, only="2.bais"),))
    net = chain(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), dtype="float32")
    message = r"OfLastBias: expected only= one of \['0.weight', '0.bias', '2.weight', '2.bias'\], got '2.bais'"
    with pytest.raises(ValueError, match=message):
        run(net, CE, np.zeros((2, 3), "float32"), np.zeros(2, int), OfLastBias())


class TwoBiases(layers.Linear):
    """y = W x + b + c; b and c have one Jacobian, the same object."""

    def parameter_shapes(self):
        return super().parameter_shapes() | {"extra": (self.out_features,)}

    def draw(self, rng):
        return super().draw(rng) | {"extra": rng.standard_normal(self.out_features).astype(self.dtype)}

    def forward(self, x):
        y, saved = super().forward(x)
        return y + self.parameters["extra"], saved

    def parameter_jacobians(self, saved):
        found = super().parameter_jacobians(saved)
        return found | {"extra": found["bias"]}


@pytest.mark.parametrize("cut", [{}, {"column_block": 1}, {"column_block": 2}, {"sample_block": 4}], ids=str)
@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (layers.Linear, [q.BatchDiagGGN(), OfLastBias(), q.DiagGGN()]),
        (TwoBiases, [q.BatchDiagGGN(), q.BatchDiagHessian(), q.DiagHessian()]),
    ],
)
def test_squares_of_a_bias_are_computed_once_and_each_result_is_its_own_array(kind, asked, cut):
    net = chain(kind(5, 4), layers.Tanh(), kind(4, 3))
    result = both(net, CE, *batch(6, 5), *asked, tolerance=1e-13, least=1, **cut)
    arrays = [value for quantity in asked for value in result[quantity].values()]
    assert not any(np.may_share_memory(one, other) for one, other in combinations(arrays, 2))


def test_signs_are_part_of_what_is_known():
    rng, context = np.random.default_rng(0), Context(FORMS, Allocator())
    layer = layers.Linear(3, 2)
    layer.dtype = "float64"
    mat, sign = rng.standard_normal((4, 5, 2)), rng.choice([-1.0, 1.0], (4, 5))
    _, saved = layer.forward(rng.standard_normal((5, 3)))
    for jacobian in layer.parameter_jacobians(saved).values():
        for signs in (None, sign):
            for name in ("square", "batch_square", "square_norm"):
                arriving = (mat[:1], None) if name == "square_norm" else (mat, signs)
                want = REDUCTIONS[name].define(jacobian, *arriving)
                np.testing.assert_allclose(context.reduce(jacobian, REDUCTIONS[name], *arriving), want, rtol=1e-12)
