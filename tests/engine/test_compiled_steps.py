"""The compiled time steps of an LSTM in float32, against the plain ones in float64 and against functions of NumPy."""

import numpy as np
import pytest
from common import assert_same, batch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine import kernels
from gbackprop.engine.backward import FORMS
from gbackprop.engine.calls.statements import Statements
from gbackprop.engine.calls.statements import plain as plain_of
from gbackprop.engine.calls.written import Written
from gbackprop.engine.forms import recurrent
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.layers.norms.affine import Matrix, Shift
from gbackprop.layers.recurrent import LSTMSteps

numba = pytest.importorskip("numba")

LOSS = losses.CrossEntropyLoss()
EPS = np.finfo(np.float32).eps
NUMBERS = np.concatenate([
    np.linspace(-120, 120, 200_001), np.linspace(-0.5, 0.5, 100_001),
    *(sign * np.geomspace(1e-37, 1e38, 10_001) for sign in (1, -1)), [0.0, np.inf, -np.inf, np.nan],
]).astype(np.float32)  # fmt: skip


def mapped(name):
    function = getattr(kernels.steps_of(NUMBERS), name)

    @numba.njit(error_model="numpy")
    def each(x, y):
        for i in range(x.size):
            y[i] = function(x[i])

    y = np.empty_like(NUMBERS)
    each(NUMBERS, y)
    return y


@pytest.mark.parametrize(("name", "plain"), [("_sigmoid", expit), ("_tanh", np.tanh), ("_exp", np.exp)])
def test_functions_are_exact_to_a_few_units_in_the_last_place(name, plain):
    with np.errstate(over="ignore"):
        want = np.minimum(plain(NUMBERS.astype(float)), 1e300)
    found, normal = mapped(name).astype(float), (abs(want) > 2e-38) & (want < 2e38)
    assert (abs(found - want) <= 2 * EPS * abs(want))[normal].all()
    least = {"_sigmoid": 2e-38, "_exp": 2e-38}.get(name, 1e-44)
    assert (abs(found - want) <= least)[~normal & (want < 1)].all()
    assert (found >= 2e38)[want >= 2e38].all()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))


def test_errors_of_tanh_have_no_sign_where_its_series_ends():
    """Rounding goes both ways; a term that is missing or wrong does not."""
    near = (abs(NUMBERS) > 0.29) & (abs(NUMBERS) < 0.3)
    want = np.tanh(NUMBERS[near].astype(float))
    assert abs((mapped("_tanh")[near] / want - 1).mean()) < EPS / 4


def steps(hidden, bias, reverse, dtype, seed):
    rng, parts = np.random.default_rng(seed), (Matrix("w", hidden, 4 * hidden, 1), Shift("b", 4 * hidden, 1))
    for part in parts:
        (shape,) = part.parameter_shapes().values()
        part.parameters[part.key] = rng.standard_normal(shape).astype(dtype)
    return LSTMSteps(parts[0], parts[1] if bias else None, reverse)


@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 9), st.integers(1, 4)),
    bias=st.booleans(), reverse=st.booleans(), scale=st.sampled_from([1e-3, 1, 30]), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_states_gates_and_columns_are_those_of_the_plain_steps(sizes, bias, reverse, scale, seed):
    (n, length, hidden, columns), rng = sizes, np.random.default_rng(seed)
    layer, plain = (steps(hidden, bias, reverse, dtype, seed) for dtype in ("float32", "float64"))
    a = (scale * rng.standard_normal((n, length, 4 * hidden))).astype("float32")
    mat = rng.standard_normal((columns, n, length, hidden)).astype("float32")
    context = Context(FORMS, Allocator())
    h, saved = recurrent.forward(layer, a, context)
    want, stored = plain.forward(a.astype(float))
    assert h.dtype == np.float32
    np.testing.assert_allclose(h, want, rtol=0, atol=2e-5)
    for found, each in zip(saved, stored, strict=True):
        assert found.shape == each.shape
        np.testing.assert_allclose(found, each, rtol=0, atol=2e-5 * max(1, abs(each).max()))
    delta, exact = recurrent.carry(layer, saved, mat, context), plain.mjp(stored, mat.astype(float))
    np.testing.assert_allclose(delta, exact, rtol=0, atol=2e-4 * max(1, abs(exact).max()))


def network(**options):
    recurrent = gb.LSTM(3, 4, **options)
    width = 5 * 4 * (2 if recurrent.bidirectional else 1)
    return gb.Sequential(recurrent, layers.Flatten(), layers.Linear(width, 3), rng=0)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"bidirectional": True}, {"num_layers": 2}], ids=str)
@pytest.mark.parametrize("cut", [{}, {"sample_block": 2, "workers": 2, "column_block": 1}], ids=str)
def test_results_are_those_of_the_plain_sweep(options, cut):
    net, (x, y) = network(**options), batch(7, 5, 3)
    asked = q.BatchGrad(), q.DiagGGN(), q.KFAC(2), q.KFLR()
    exact = gb.reference(network(**options).astype("float64"), LOSS, x, y, *asked, rng=3)
    for _ in range(10):  # the last ones of the whole batch are written down
        assert_same(gb.backward(net, LOSS, x.astype("float32"), y, *asked, rng=3, **cut), exact, 2e-5, 1e-6)


@pytest.mark.parametrize("value", [np.nan, 1e30, -1e30])
def test_numbers_that_are_none_reach_the_states(value):
    layer, plain = (steps(3, True, False, dtype, 0) for dtype in ("float32", "float64"))
    a = np.random.default_rng(0).standard_normal((2, 4, 12)).astype("float32")
    a[1, 1, [0, 4, 8]] = value
    h, (_, c, gates) = recurrent.forward(layer, a, Context(FORMS, Allocator()))
    with np.errstate(all="ignore"):
        want, (_, cells, exact) = plain.forward(a.astype(float))
    for found, each in ((h, want), (c, cells), (gates, exact)):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(each))
        np.testing.assert_allclose(found, each, rtol=0, atol=2e-5)
    assert np.isnan(h).any() == np.isnan(value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_of_float32_are_compiled_if_numba_is_there(dtype, monkeypatch):
    x = np.zeros(2, dtype)
    assert (kernels.steps_of(x) is not None) == (dtype == "float32")
    monkeypatch.setattr(kernels, "numba_kernels", lambda: None)
    assert kernels.steps_of(x) is None


def test_without_numba_the_steps_write_into_arrays_that_are_there(monkeypatch):
    net, (x, y) = network(), batch(7, 5, 3, dtype="float32")
    compiled = gb.backward(net, LOSS, x, y, q.DiagGGN())
    monkeypatch.setattr(recurrent, "steps_of", lambda x: None)
    plain = gb.backward(network(), LOSS, x, y, q.DiagGGN())
    assert_same(compiled, plain, 2e-5, 1e-6)
    assert (compiled.output != plain.output).any(), "another way forward"
    assert any((compiled.gradient[name] != plain.gradient[name]).any() for name in plain.gradient), "another way"


def test_it_is_written_down_that_a_loop_writes_into_the_states_and_gates():
    statements, rng = Statements(Written), np.random.default_rng(0)
    shapes = (2, 3, 16), (4, 4, 4), (4, 4), (4, 2, 4), (4, 2, 4), (3, 4, 2, 4)
    arrays = [statements.array(rng.standard_normal(shape).astype("float32"), f"a{i}") for i, shape in enumerate(shapes)]
    before = [np.array(each) for each in map(np.asarray, plain_of(arrays))]
    kernels.steps_of(arrays[0]).lstm_forward(*arrays[:3], False, tuple(arrays[3:]))
    changed = {f"a{i}" for i, each in enumerate(plain_of(arrays)) if not np.array_equal(each, before[i])}
    assert statements.lines[-1].writes == changed == {"a3", "a4", "a5"}
