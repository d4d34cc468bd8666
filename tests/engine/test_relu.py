"""ReLU by compiled loops, in every order of the axes, also of infinities and NaN."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbackprop import layers
from gbackprop.engine import costs
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context

pytest.importorskip("numba")

from gbackprop.engine.kernels import host

ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0]


@pytest.fixture
def taken(monkeypatch):
    """The loops that were called."""
    names = []

    def spied(name, loop):
        return lambda *arrays: names.append(name) or loop(*arrays)

    for name in ("positive", "where_positive"):
        monkeypatch.setattr(host, name, spied(name, getattr(host, name)))
    return names


def in_order(values, order):
    """The same numbers, with axes that are in another order in memory."""
    return np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))


def drawn(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(dtype)
    return np.where(rng.random(shape) < 0.3, rng.choice(ODD, shape), x).astype(dtype)


def of_relu(x, mat):
    """ReLU of x by its forms, and mat multiplied by its derivative in place."""
    layer, context = layers.ReLU(), Context(FORMS, Allocator())
    y, saved = context.forward(layer, x)
    return y, context.known.of(layer).in_place(layer, saved, mat)


@given(
    seed=st.integers(0, 2**20),
    shape=st.tuples(*[st.integers(1, 4)] * 3),
    order=st.permutations(range(3)),
    columns=st.integers(1, 3),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_loops_are_numpy(seed, shape, order, columns, dtype):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "COMPILED_LOOP", 0)
        x = in_order(drawn(seed, shape, dtype), order)
        mat = np.stack([drawn(seed + 1 + v, shape, dtype) for v in range(columns)])
        mat = in_order(mat, (0, *[axis + 1 for axis in order]))
        with np.errstate(invalid="ignore"):
            want = np.maximum(x, 0), mat * (x > 0)
            y, got = of_relu(x, mat)
    assert got is mat
    np.testing.assert_array_equal(y, want[0])
    np.testing.assert_array_equal(got, want[1])


def test_large_arrays_in_one_order_take_the_loops(taken):
    rng, shape = np.random.default_rng(0), (4, 3, 40, 40)
    x, mat = (rng.standard_normal((*lead, *shape)) for lead in ((), (2,)))
    of_relu(x, mat.copy())
    assert taken == ["positive", "where_positive"]
    of_relu(in_order(x, (0, 2, 3, 1)), in_order(mat, (0, 1, 3, 4, 2)))
    assert taken == ["positive", "where_positive"] * 2


def test_reversed_arrays_do_not(taken):
    rng = np.random.default_rng(0)
    x, mat = rng.standard_normal((100, 100)), rng.standard_normal((2, 100, 100))
    for backwards in (mat[::-1], mat[:, ::-1]):
        of = x if backwards.strides[1] > 0 else x[::-1]
        want = backwards * (of > 0)
        np.testing.assert_array_equal(of_relu(of, backwards)[1], want)
    assert "where_positive" not in taken


def test_other_arrays_and_layers_do_not(taken, monkeypatch):
    rng, shape = np.random.default_rng(0), (4, 3, 40, 40)
    x, mat = (rng.standard_normal((*lead, *shape)) for lead in ((), (1,)))
    of_relu(x[:1], mat[:, :1].copy())  # too few numbers
    assert taken == []
    last = in_order(x, (0, 2, 3, 1))
    np.testing.assert_array_equal(of_relu(last, mat.copy())[1], mat * (x > 0))
    assert taken == ["positive"]

    class Two(layers.ReLU):
        def value(self, x):
            return 2 * np.maximum(x, 0)

        def first(self, x, y):
            return 2.0 * (x > 0)

    layer, context = Two(), Context(FORMS, Allocator())
    y, saved = context.forward(layer, x)
    np.testing.assert_array_equal(y, 2 * np.maximum(x, 0))
    got = context.known.of(layer).in_place(layer, saved, mat.copy())
    np.testing.assert_array_equal(got, 2 * mat * (x > 0))
    own = layers.ReLU()
    monkeypatch.setattr(own, "value", lambda x: 5 * np.maximum(x, 0))
    np.testing.assert_array_equal(Context(FORMS, Allocator()).forward(own, x)[0], 5 * np.maximum(x, 0))
    monkeypatch.setattr(own, "first", lambda x, y: 3.0 * (x > 0))
    np.testing.assert_array_equal(
        Context(FORMS, Allocator()).known.of(own).in_place(own, saved, mat.copy()), 3 * mat * (x > 0)
    )
    assert taken == ["positive"]
