"""Convolutions by tiles give what the plain ones give, wherever they are taken."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import array, kernels, layers, losses, quantities
from gbackprop.layers import conv, winograd

pytest.importorskip("numba")

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


def derivatives(layer, x, columns, sign, by_tiles):
    """All that a convolution multiplies, one way or the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "LEAST_CHANNELS", 1)
        patch.setattr(array, "_CACHE_BYTES", 2**10)  # several blocks of rows, of columns, and of pairs of positions
        if not by_tiles:
            patch.setattr(conv, "tiled", lambda *arguments: None)
        y, saved = layer.forward(x)
        assert (layer._tiles(x.shape[2:], x) is not None) == by_tiles
        mat = np.random.default_rng(1).standard_normal((columns, *y.shape)).astype(x.dtype)
        weight = layer.parameter_jacobians(saved)["weight"]
        return {
            "forward": y,
            "jmp": layer.jmp(saved, np.stack([x, 2 * x])),
            "mjp": layer.mjp(saved, mat),
            "mjp of a view": layer.mjp(saved, mat.transpose(0, 1, 3, 4, 2).copy().transpose(0, 1, 4, 2, 3)),
            "sum": weight.sum(mat, None if sign is None else sign[:columns, : len(x)].astype(x.dtype)),
            "square": weight.square(mat),
        }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(drawn=convolutions(), columns=st.integers(1, 3), signed=st.booleans())
def test_tiles_against_the_plain_convolution(dtype, drawn, columns, signed):
    layer, shape = drawn
    layer.dtype, sizes = dtype, shape[2:]
    out = layer.window.out(sizes)
    assume(16 * -(-out[0] // 2) * -(-out[1] // 2) <= 6 * out[0] * out[1])  # else too many tiles would be half empty
    rng = np.random.default_rng(0)
    x, sign = rng.standard_normal(shape).astype(dtype), rng.integers(-1, 2, (3, 3)) if signed else None
    got, want = (derivatives(layer, x, columns, sign, by_tiles) for by_tiles in (True, False))
    for name, value in want.items():
        assert (got[name].dtype, got[name].shape) == (dtype, value.shape), name
        assert np.abs(got[name] - value).max() <= TOLERANCE[dtype] * max(1, np.abs(value).max()), name


@pytest.mark.parametrize(
    ("keywords", "shape", "taken"),
    [
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
    ],
)
def test_where_tiles_are_taken(keywords, shape, taken):
    layer = layers.Conv2d(**{"in_channels": 64, "out_channels": 96, "kernel_size": 3, **keywords})
    x = np.zeros((1, *shape), np.float32)
    assert (layer._tiles(shape[1:], x) is not None) == taken
    for dtype in (np.complex128, np.float64):  # complex steps go the plain way, and dtypes that differ
        assert layer._tiles(shape[1:], x.astype(dtype)) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_compiled", lambda *given: None)
        assert layer._tiles(shape[1:], x) is None


def test_a_network_either_way(monkeypatch):
    """Every quantity, float64: what is unfolded for some of them does not come from the forward pass by tiles."""
    rng = np.random.default_rng(0)
    net = gb.Sequential(
        layers.Conv2d(2, 32, 3), layers.Tanh(), layers.Conv2d(32, 33, 3, padding=1), layers.ReLU(),
        layers.MaxPool2d(2), layers.Flatten(), layers.Linear(33 * 9, 3), rng=0, dtype="float64",
    )  # fmt: skip
    x, y = rng.standard_normal((5, 2, 8, 8)), rng.integers(0, 3, 5)
    asked = [getattr(quantities, name)() for name in ("BatchGrad", "Variance", "DiagHessian", "KFLR")]
    taken = []

    def call():
        result = gb.backward(net, losses.CrossEntropyLoss(), x, y, *asked, sample_block=2)
        each, spread, hessian, kflr = (result[quantity] for quantity in asked)
        return [result.gradient, each, spread, hessian, {name: block.to_dense() for name, block in kflr.items()}]

    tiled = conv.tiled
    monkeypatch.setattr(conv, "tiled", lambda *arguments: taken.append(tiled(*arguments)) or taken[-1])
    by_tiles = call()
    assert any(taken)
    monkeypatch.setattr(conv, "tiled", lambda *arguments: None)
    for got, want in zip(by_tiles, call(), strict=True):
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-13 * np.abs(value).max(), err_msg=name)


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
    want = ((weight.per_sample(mat) ** 2) * (1 if sign is None else sign[..., None, None, None, None])).sum((0, 1))
    monkeypatch.setattr(array, "_CACHE_BYTES", 2**12)
    got = weight.joined(weight._square_by_positions(weight.split(mat), sign))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * np.abs(want).max())
