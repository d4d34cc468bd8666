"""Routes: which numbers of its input a layer takes, and what parameters give from the numbers that are taken."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gbackprop import layers
from gbackprop.engine import costs
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context

CONTEXT = Context(FORMS, Allocator())
KINDS = ["pool", "pool", "pad", "relu", "tanh", "dropout", "identity"]


def drawn_layer(draw, kind, size):
    """A layer of a kind that can take images of a size."""
    if kind == "pool":
        kernel, stride = draw(st.integers(1, min(3, *size))), draw(st.integers(1, 3))
        return layers.MaxPool2d(kernel, stride, draw(st.integers(0, kernel // 2)), ceil_mode=draw(st.booleans()))
    if kind == "pad":  # negative numbers crop
        return layers.ZeroPad2d([draw(st.integers(-((s - 1) // 2), 2)) for s in (size[1], size[1], size[0], size[0])])
    made = {"relu": layers.ReLU(), "tanh": layers.Tanh(), "identity": layers.Identity()}
    return made.get(kind) or layers.Dropout(0.4)


@st.composite
def chains(draw, channels=None):
    """Images, and layers above a convolution that end with a pool; each with what it saved."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    height, width = draw(st.integers(2, 7)), draw(st.integers(2, 7))
    x = y = rng.standard_normal((draw(st.integers(1, 3)), channels or draw(st.integers(1, 3)), height, width))
    passed = []
    for kind in [*draw(st.lists(st.sampled_from(KINDS), max_size=3)), "pool"]:
        layer = drawn_layer(draw, kind, y.shape[2:])
        try:
            layer.output_shape(y.shape[1:])
        except ValueError:  # a window that sees nothing
            assume(False)
        y, saved = layer.forward_training(y, layer.noise(y.shape, rng))
        passed.append((layer, saved))
    return x, passed, y


def routed(passed):
    """The route from the output of the last layer to the input of the first."""
    route = None
    for layer, saved in reversed(passed):
        route = CONTEXT.known.of(layer).routes(layer, saved, route, CONTEXT)
    return route


def routed_jacobians(conv, plain, route):
    return CONTEXT.known.of(conv).routed.jacobians(conv, plain, route, CONTEXT)


def carried(passed, mat):
    """Up by each layer's J."""
    for layer, saved in passed:
        mat = layer.jmp(saved, mat)
    return mat


def pulled(passed, mat):
    """Down by each layer's Jᵀ."""
    for layer, saved in reversed(passed):
        mat = layer.mjp(saved, mat)
    return mat


@given(chains(), st.integers(0, 9))
def test_a_route_takes_what_the_layers_jmp_takes(drawn, seed):
    x, passed, y = drawn
    route, mat = routed(passed), np.random.default_rng(seed).standard_normal(x.shape)
    assert route.places.shape == route.slope.shape == (len(x), y[0, 0].size, y.shape[1])
    rows = np.moveaxis(mat, 1, -1).reshape(len(x), -1, x.shape[1])
    taken = np.take_along_axis(rows, route.places, axis=1) * route.slope
    want = np.moveaxis(carried(passed, mat[None])[0], 1, -1)
    np.testing.assert_allclose(taken.reshape(want.shape), want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(
    drawn=chains(channels=4), columns=st.integers(1, 5), groups=st.sampled_from([1, 2]), signed=st.booleans(),
    small_cache=st.booleans(),
)  # fmt: skip
def test_parameters_give_the_same_from_routed_columns(dtype, drawn, columns, groups, signed, small_cache):
    x, passed, y = drawn
    rng, tolerance = np.random.default_rng(0), {"float32": 1e-4, "float64": 1e-11}[dtype]
    conv = layers.Conv2d(2, 4, 3, padding=1, groups=groups, bias=signed)
    conv.dtype = dtype
    saved = conv.forward(rng.standard_normal((len(x), 2, *x.shape[2:])).astype(dtype))[1]
    mat = rng.standard_normal((columns, *y.shape)).astype(dtype)
    sign = rng.integers(-1, 2, (columns, len(x))).astype(dtype) if signed else None
    back, route = pulled(passed, mat).astype(dtype), routed(passed)
    with pytest.MonkeyPatch.context() as patch:
        if small_cache:
            patch.setattr("gbackprop.engine.scratch._CACHE_BYTES", 2**8)  # one output at a time
        jacobians = conv.parameter_jacobians(saved)
        quick = routed_jacobians(conv, jacobians, route)
        assert set(quick) == set(jacobians)
        for name, jacobian in quick.items():
            for few_windows in (True, False):
                patch.setattr(costs, "routed_by_windows", lambda *sizes, few=few_windows: -few)
                patch.setattr(costs, "routed_by_products", lambda *sizes: -0.5)
                got, want = (j.square(m, sign) for j, m in ((jacobian, mat), (jacobians[name], back)))
                assert (got.shape, got.dtype) == (want.shape, want.dtype)
                scale = np.abs(jacobians[name].square(back)).max()
                np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(scale, 1e-3))
            each, direct = jacobian.per_sample(mat), jacobians[name].per_sample(back)
            np.testing.assert_allclose(each, direct, rtol=0, atol=tolerance * max(np.abs(direct).max(), 1e-3))


def test_routing_pays_for_many_columns_and_outputs():
    assert not costs.routing_pays(1, 36, 144, 576, 96)
    assert costs.routing_pays(10, 36, 144, 576, 96)
    assert not costs.routing_pays(10, 36, 144, 576, 4)
    assert not costs.routing_pays(10, 144, 144, 576, 96)


def test_outputs_in_blocks_of_unequal_size(monkeypatch):
    rng, pool = np.random.default_rng(0), layers.MaxPool2d(2)
    conv = layers.Conv2d(2, 4, 3, padding=1)
    conv.dtype = "float64"
    saved = conv.forward(rng.standard_normal((3, 2, 4, 4)))[1]
    y, kept = pool.forward(rng.standard_normal((3, 4, 4, 4)))
    mat, passed = rng.standard_normal((5, *y.shape)), [(pool, kept)]
    monkeypatch.setattr("gbackprop.engine.routes.row_blocks", lambda *sizes: [slice(0, 3), slice(3, 4)])
    jacobians = conv.parameter_jacobians(saved)
    quick = routed_jacobians(conv, jacobians, routed(passed))["weight"]
    np.testing.assert_allclose(quick.square(mat), jacobians["weight"].square(pulled(passed, mat)), rtol=1e-12)


def test_squares_from_routed_columns_keep_digits_where_windows_cancel():
    rng, share = np.random.default_rng(0), np.array([1, 2, 3, 4], np.float32)
    conv = layers.Conv2d(20, 3, 1, bias=False)
    x = rng.standard_normal((2, 20, 1, 1), dtype=np.float32) * np.array([[1, 1], [1, -1.5]], np.float32)
    mat = rng.standard_normal((50, 2, 3, 1, 1), dtype=np.float32) * share.reshape(2, 2)  # 1 + 2 + 3 − 6 = 0
    pool = layers.MaxPool2d(1)
    route = routed([(pool, pool.forward(mat[0])[1])])
    (quick,) = routed_jacobians(conv, conv.parameter_jacobians(conv.forward(x)[1]), route).values()
    each = np.einsum("vnoab,niab->vnoi", mat.astype(float), x.astype(float))
    got, want = quick.square(mat)[..., 0, 0], (each**2).sum((0, 1))
    assert got.min() >= 0
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)


def test_a_window_of_which_the_first_nan_wins_may_lie_in_the_padding():
    pool = layers.MaxPool2d(2, 2, 1)
    saved = pool.forward(np.full((1, 1, 2, 2), np.nan))[1]
    route = routed([(pool, saved)])
    want = pool.jmp(saved, np.ones((1, 1, 1, 2, 2)))
    np.testing.assert_array_equal(route.slope[0, :, 0], want.ravel())
    assert route.places.min() >= 0
