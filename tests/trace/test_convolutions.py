"""Convolutions as NumPy functions by windows: the layer, with all that it gives, and what is none, left as it is."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

ASKED = q.BatchGrad(), q.DiagGGN(), q.DiagHessian()
FACTORS = q.KFAC(), q.KFLR(), q.EKFAC()


def seen(x, size=3, stride=1, axes=(2, 3)):
    view = sliding_window_view(x, (size,) * len(axes), axis=axes)
    return view[(slice(None), slice(None), *(slice(None, None, stride) for _ in axes))]


def framed(x, p=1, **options):
    return np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), **options)


def einsum(x, w):
    return np.einsum("ncijkl,ockl->noij", x, w)


def rows(x, w, b):
    """Windows as rows, of all samples in one matrix."""
    x = seen(x)
    n, c, height, width, k, _ = x.shape
    y = x.transpose(0, 2, 3, 1, 4, 5).reshape(n * height * width, c * k * k) @ w.reshape(len(w), -1).T + b
    return y.reshape(n, height, width, -1).transpose(0, 3, 1, 2)


def columns(x, w, b):
    x = seen(x)
    n, _, height, width, *_ = x.shape
    y = w.reshape(len(w), -1) @ x.transpose(0, 1, 4, 5, 2, 3).reshape(n, -1, height * width)
    return y.reshape(n, -1, height, width) + b[:, None, None]


def indexed(x, w, b):
    i = np.arange(4)[:, None] + np.arange(3)
    return np.einsum("ncykxl,ockl->noyx", x[:, :, i][..., i], w) + b.reshape(1, -1, 1, 1)


PLAIN = {"kernel_size": 3}
CONVOLUTIONS = {
    "einsum": (lambda x, w, b: einsum(seen(x), w) + b[:, None, None], PLAIN),
    "weight first": (lambda x, w, b: b.reshape(-1, 1, 1) + np.einsum("abcd,nbxycd->naxy", w, seen(x)), PLAIN),
    "strides and padding": (lambda x, w, b: einsum(seen(framed(x), 3, 2), w) + b[None, :, None, None],
                            {"kernel_size": 3, "stride": 2, "padding": 1}),
    "channels last": (lambda x, w, b: (np.einsum("ncijkl,ockl->nijo", seen(x), w) + b).transpose(0, 3, 1, 2), PLAIN),
    "tensordot": (lambda x, w, b: np.moveaxis(np.tensordot(seen(x), w, ((1, 4, 5), (1, 2, 3))) + b, -1, 1), PLAIN),
    "tensordot of w": (lambda x, w, b: np.tensordot(w, seen(x), ((1, 2, 3), (1, 4, 5))).swapaxes(0, 1)
                       + np.broadcast_to(b[:, None, None], (3, 4, 4)), PLAIN),
    "rows": (rows, PLAIN), "columns": (columns, PLAIN), "indices": (indexed, PLAIN),
    "dilation": (lambda x, w, b: einsum(seen(x, 5)[..., ::2, ::2], w) + b[:, None, None],
                 {"kernel_size": 3, "dilation": 2}),
    "one axis": (lambda x, w, b: np.einsum("nclk,ock->nol", seen(x, 3, 2, axes=(2,)), w) + b[:, None],
                 {"kernel_size": 3, "stride": 2}),
    "three axes": (lambda x, w, b: np.einsum("ncxyzijk,ocijk->noxyz", seen(x, 3, axes=(2, 3, 4)), w)
                   + b[:, None, None, None], PLAIN),
    "without a bias": (lambda x, w: einsum(seen(x), w), {"kernel_size": 3, "bias": False}),
}  # fmt: skip
"""By name: the function, and the layer's options."""


def traced(function, x, parameters, **options):
    """Return a network with a nonlinearity and a second layer after a convolution."""

    def model(p, x):
        own = [p[name] for name in ("w", "b") if name in p]
        return np.tanh(function(x, *own)).reshape(len(x), -1) @ p["v"]

    return gb.trace(model, parameters, x, **options)


def problem(x_shape, w_shape):
    rng = np.random.default_rng(0)
    return rng.standard_normal((3, *x_shape)), rng.standard_normal(w_shape) / 3, rng.standard_normal(3)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_the_layer(name):
    function, options = CONVOLUTIONS[name]
    dims = {"one axis": 1, "three axes": 3}.get(name, 2)
    x, w, b = problem((2, *(6,) * dims), (3, 2, *(3,) * dims))
    kind = (layers.Conv1d, layers.Conv2d, layers.Conv3d)[dims - 1]
    chain = gb.Sequential(kind(2, 3, **options), layers.Tanh(), layers.Flatten(), dtype="float64")
    v = np.random.default_rng(1).standard_normal((chain(x.astype("float64")).shape[1], 2))
    last = layers.Linear(*v.shape, bias=False)
    layered = gb.Sequential(*chain, last, rng=0, dtype="float64")
    values = {"0.weight": w, "3.weight": v.T} | ({"0.bias": b} if options.get("bias", True) else {})
    layered.load_state_dict(values)
    network = traced(function, x, {"w": w, "v": v} | ({"b": b} if "0.bias" in values else {}))
    found = network.children.values()
    assert [repr(layer) for layer in found if isinstance(layer, kind | layers.Parameter)] == [repr(layered[0])]
    np.testing.assert_allclose(network(x), layered(x), atol=1e-13)
    loss, y = losses.CrossEntropyLoss(), np.array([0, 1, 1])
    for call in (gb.reference, gb.backward):
        got, want = (call(each, loss, x, y, *ASKED, *FACTORS, rng=0) for each in (network, layered))
        for ours, theirs in zip("wb", ("0.weight", "0.bias"), strict=False):
            if theirs in values:
                np.testing.assert_allclose(got.gradient[ours], want.gradient[theirs], atol=1e-13)
                for asked in ASKED:
                    np.testing.assert_allclose(got[asked][ours], want[asked][theirs], atol=1e-13)
                for asked in FACTORS:
                    np.testing.assert_allclose(got[asked][ours].to_dense(), want[asked][theirs].to_dense(), atol=1e-13)


def repeated(x, w, b):
    return einsum(seen(np.tanh(einsum(seen(framed(x)), w[:2]))), w) + b[:, None, None]


OTHERS = {
    "letters of the kernel turned": lambda x, w, b: einsum(seen(x), w.swapaxes(2, 3)) + b[:, None, None],
    "axes of windows turned": lambda x, w, b: np.einsum("ncijlk,ockl->noij", seen(x), w) + b[:, None, None],
    "channels and outputs": lambda x, w, b: np.einsum("ncijkl,ockl->noij", seen(x), w[:2].swapaxes(0, 1)) + b[0],
    "flipped kernel": lambda x, w, b: einsum(seen(x), w[:, :, ::-1, ::-1]) + b[:, None, None],
    "computed weight": lambda x, w, b: einsum(seen(x), 2 * w) + b[:, None, None],
    "part of a weight": lambda x, w, b: einsum(seen(x), w[:2]) + b[:2, None, None],
    "parts at two places": repeated,
    "windows left out": lambda x, w, b: einsum(seen(x)[:, :, 1:3], w) + b[:, None, None],
    "windows in another order": lambda x, w, b: einsum(seen(x)[:, :, ::-1], w) + b[:, None, None],
}
PARTLY = {
    "padding by ones": lambda x, w, b: einsum(seen(framed(x, constant_values=1.0)), w) + b[:, None, None],
    "padding by the edge": lambda x, w, b: einsum(seen(framed(x, mode="edge")), w) + b[:, None, None],
    "padding on one side": lambda x, w, b: einsum(seen(np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 0)))), w) + b[0],
    "other readers": lambda x, w, b: (lambda view: einsum(view, w) + view.max((1, 4, 5))[:, None])(seen(x)) * b[0],
    "a bias of positions": lambda x, w, b: np.einsum("ncijkl,ockl->nijo", seen(x), w).swapaxes(1, 3)[..., :3] + b,
    "a bias that is used again": lambda x, w, b: einsum(seen(x), w) + b[:, None, None] * (1 + b[0]),
    "flipped image": lambda x, w, b: einsum(seen(x[:, :, ::-1]), w) + b[:, None, None],
}
"""Where the convolution is one, of what was padded or moved before; what else is done stays."""


@pytest.mark.parametrize("name", [*OTHERS, *PARTLY])
def test_what_is_no_convolution_stays_as_it_is(name):
    x, w, b = problem((2, 6, 6), (3, 2, 3, 3))
    function = {**OTHERS, **PARTLY}[name]
    v = np.random.default_rng(1).standard_normal((function(x, w, b)[0].size, 2))
    one, two = (traced(function, x, {"w": w, "b": b, "v": v}, replace=replace) for replace in (True, False))
    assert any(isinstance(layer, layers.Conv2d) for layer in one.children.values()) == (name in PARTLY)
    np.testing.assert_allclose(one(x), two(x), atol=1e-12)
    got, want = (gb.backward(each, losses.CrossEntropyLoss(), x, np.array([0, 1, 1]), *ASKED) for each in (one, two))
    for key in "wbv":
        np.testing.assert_allclose(got.gradient[key], want.gradient[key], atol=1e-12)
        for asked in ASKED:
            np.testing.assert_allclose(got[asked][key], want[asked][key], atol=1e-12)


@pytest.mark.parametrize("size", [(3, 3), (5, 5)])
def test_a_weight_at_images_of_two_sizes_is_one_layer(size):
    def function(p, x):
        whole, part = (np.tanh(einsum(seen(each), p["w"])).sum((2, 3)) for each in (x, x[:, :, : size[0], : size[1]]))
        return whole + part

    x = np.random.default_rng(0).standard_normal((3, 2, 6, 6))
    network = gb.trace(function, {"w": np.random.default_rng(1).standard_normal((2, 2, 3, 3))}, x)
    assert repr(network).count("Conv2d(2, 2, kernel_size=3, bias=False)") == 2
    np.testing.assert_allclose(network(x), function(network.parameters, x), rtol=1e-12)
