"""Convolutions by tiles give what the plain ones give, wherever they are taken."""

import numpy as np
import pytest
from common import batch, both, chain
from hypothesis import assume, given
from hypothesis import strategies as st

from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.engine import costs, kernels, scratch
from gbackprop.engine.arena import Arena
from gbackprop.engine.forms import FORMS, conv, outer
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import PLAIN, Context

COMPILED = pytest.param("compiled", marks=pytest.mark.skipif(kernels.numba_kernels() is None, reason="needs Numba"))
TRANSFORMS = pytest.mark.parametrize("transforms", [COMPILED, "NumPy"])

TOLERANCE = {"float32": 3e-6, "float64": 1e-14}
"""Of the largest entry; the plain path errs by as much."""


@st.composite
def convolutions(draw):
    """A 3 x 3 convolution, and the shape of what comes to it: odd sizes too, and more padding than a window."""
    channels = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    padding = draw(st.sampled_from([0, 1, 2, 4, (0, 1), (3, 0), "same", "valid"]))
    layer = layers.Conv2d(*channels, 3, padding=padding, bias=draw(st.booleans()))
    height, width = draw(st.integers(3, 9)), draw(st.integers(3, 9))
    return layer, (draw(st.integers(1, 3)), channels[0], height, width)


def no_tiles(*arguments):
    return None


def without_numba(monkeypatch):
    monkeypatch.setattr(kernels, "numba_kernels", lambda: None)


def derivatives(layer, x, columns, sign, context):
    """All that a convolution multiplies, one way or the other."""
    y, saved = context.forward(layer, x)
    mat = np.random.default_rng(1).standard_normal((columns, *y.shape)).astype(x.dtype)
    weight = context.jacobians(layer, saved)["weight"]
    some = None if sign is None else sign[:columns, : len(x)].astype(x.dtype)
    return {
        "forward": y,
        "mjp": context.mjp(layer, saved, mat),
        "mjp of a view": context.mjp(layer, saved, mat.transpose(0, 1, 3, 4, 2).copy().transpose(0, 1, 4, 2, 3)),
        "sum": context.reduce(weight, REDUCTIONS["sum"], mat, some),
        "square": context.reduce(weight, REDUCTIONS["square"], mat, None),
    }


@pytest.mark.parametrize("transforms", [COMPILED, "NumPy", None])
@given(
    dtype=st.sampled_from(["float32", "float64"]), drawn=convolutions(), columns=st.integers(1, 3), signed=st.booleans()
)
def test_the_fast_convolution_against_the_plain_one(transforms, dtype, drawn, columns, signed):
    layer, shape = drawn
    layer.dtype, sizes = dtype, shape[2:]
    out = layer.window.out(sizes)
    assume(16 * -(-out[0] // 2) * -(-out[1] // 2) <= 6 * out[0] * out[1])  # else too many tiles would be half empty
    rng = np.random.default_rng(0)
    x, sign = rng.standard_normal(shape).astype(dtype), rng.integers(-1, 2, (3, 3)) if signed else None
    want = derivatives(layer, x, columns, sign, Context(PLAIN, Allocator()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "TILED_CHANNELS", 1)
        patch.setattr(costs, "TILED_POSITIONS", 1)
        patch.setattr(scratch, "_CACHE_BYTES", 2**10)  # several blocks of rows, of columns, and of pairs of positions
        if transforms is None:
            patch.setattr(conv, "tiles", no_tiles)
        else:
            if transforms == "NumPy":
                without_numba(patch)
            taken = conv.tiles(layer, sizes, x, Allocator(), 99).transforms
            assert taken.__name__.endswith({"compiled": ".compiled_tiles", "NumPy": ".plain_tiles"}[transforms])
        got = derivatives(layer, x, columns, sign, Context(FORMS, Arena()))
    for name, value in want.items():
        assert (got[name].dtype, got[name].shape) == (dtype, value.shape), name
        assert np.abs(got[name] - value).max() <= TOLERANCE[dtype] * max(1, np.abs(value).max()), name


@pytest.mark.parametrize(("keywords", "shape", "taken"), [
    ({}, (64, 14, 14), True),
    ({"padding": 1}, (64, 6, 6), True),
    ({"padding": 1}, (64, 7, 7), True),
    ({}, (64, 3, 20), False),  # one row of outputs: half of each tile would be empty
    ({}, (64, 5, 5), False),  # 3 x 3 outputs: 64 products instead of 81 do not pay for the transforms
    ({"stride": 2}, (64, 14, 14), False),
    ({"dilation": 2}, (64, 14, 14), False),
    ({"groups": 2}, (64, 14, 14), False),
    ({"kernel_size": (3, 1)}, (64, 14, 14), False),
    ({"kernel_size": 5}, (64, 14, 14), False),
    ({"in_channels": 16}, (16, 14, 14), False),
    ({"out_channels": 16}, (64, 14, 14), False),
])  # fmt: skip
@TRANSFORMS
def test_where_tiles_are_taken(transforms, keywords, shape, taken, monkeypatch):
    if transforms == "NumPy":
        without_numba(monkeypatch)
    layer = layers.Conv2d(**{"in_channels": 64, "out_channels": 96, "kernel_size": 3, **keywords})
    for dtype in (np.float32, np.float64):
        assert (conv.tiles(layer, shape[1:], np.zeros(1, dtype), Allocator(), 99) is not None) == taken
    assert conv.tiles(layer, shape[1:], np.zeros(1, complex), Allocator(), 99) is None  # complex steps go the plain way


def test_few_images_take_no_tiles():
    layer, x = layers.Conv2d(64, 96, 3), np.zeros(1)  # 12 x 12 outputs of an image
    taken = [conv.tiles(layer, (14, 14), x, Allocator(), images) is not None for images in (1, 3, 4, 100)]
    assert taken == [False, False, True, True]


@TRANSFORMS
def test_a_network_by_tiles(transforms, monkeypatch):
    """What is unfolded for some quantities does not come from the forward pass by tiles."""
    if transforms == "NumPy":
        without_numba(monkeypatch)
    net = chain(
        layers.Conv2d(2, 32, 3), layers.Tanh(), layers.Conv2d(32, 33, 3, padding=1), layers.ReLU(),
        layers.MaxPool2d(2), layers.Flatten(), layers.Linear(33 * 9, 3),
    )  # fmt: skip
    taken, tiles = [], conv.tiles
    monkeypatch.setattr(costs, "TILED_POSITIONS", 1)
    monkeypatch.setattr(conv, "tiles", lambda *arguments: taken.append(tiles(*arguments)) or taken[-1])
    asked = q.BatchGrad(), q.Variance(), q.DiagHessian(), q.KFLR()
    both(net, losses.CrossEntropyLoss(), *batch(5, 2, 8, 8), *asked, tolerance=1e-13, sample_block=2)
    assert any(taken)


@pytest.mark.parametrize("signed", [False, True])
def test_squares_by_pairs_of_positions_in_several_blocks(signed, monkeypatch):
    """Many columns on few positions; the cache so small that each sample, and a few pairs, are a block."""
    rng = np.random.default_rng(0)
    layer = layers.Conv2d(6, 3, 3)
    layer.dtype = "float64"
    y, saved = layer.forward(rng.standard_normal((3, 6, 4, 5)))
    mat = rng.standard_normal((60, *y.shape))
    sign = rng.integers(-1, 2, (60, 3)).astype(float) if signed else None
    weight = layer.parameter_jacobians(saved)["weight"]
    want = REDUCTIONS["square"].define(weight, mat, sign)
    monkeypatch.setattr(scratch, "_CACHE_BYTES", 2**12)
    got = weight.joined(outer.square_by_positions(weight, weight.split(mat), sign))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * np.abs(want).max())
