"""All time steps of a recurrent layer as one layer, against the steps one by one."""

from itertools import product

import numpy as np
import pytest
from common import assert_same, batch, both
from hypothesis import given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.engine import blocks, kernels, rewrites
from gbackprop.engine.forms import FORMS
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context
from gbackprop.layers.elementwise.activation import ReLU, Tanh
from gbackprop.layers.norms.affine import Matrix, Shift
from gbackprop.layers.recurrent import GRUSteps, LSTMSteps, RNNSteps, Steps
from gbackprop.plain.plan import make_plan

LOSS = losses.CrossEntropyLoss()
KINDS = {"RNN": gb.RNN, "LSTM": gb.LSTM, "GRU": gb.GRU}
QUANTITIES = [q.BatchGrad(), q.Variance(), q.DiagGGN(), q.BatchDiagGGN(), q.DiagGGNMC(2), q.KFAC(), q.KFLR()]


def network(kind, size=3, hidden=4, length=5, seed=0, dtype="float64", **keywords):
    recurrent = KINDS[kind](size, hidden, **keywords)
    features = length * hidden * (2 if recurrent.bidirectional else 1)
    return gb.Sequential(recurrent, layers.Flatten(), layers.Linear(features, 3), rng=seed, dtype=dtype)


def steps_in(net, x, y, *quantities):
    plan = rewrites.with_whole_sequences(make_plan(net, LOSS, x, y, quantities, 0), x)
    return [leaf.layer for leaf in plan.leaves if isinstance(leaf.layer, Steps)]


@given(
    kind=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 2**32),
    sizes=st.tuples(*[st.integers(1, 4)] * 4),
    keywords=st.fixed_dictionaries(
        {"num_layers": st.integers(1, 2), "bidirectional": st.booleans(), "bias": st.booleans()}
    ),
    some=st.sets(st.sampled_from(range(len(QUANTITIES)))),
    options=st.sampled_from([{}, {"sample_block": 2, "column_block": 2}, {"workers": 2, "sample_block": 1}]),
    training=st.booleans(),
)
@settings(max_examples=2 * settings().max_examples)
def test_results_are_those_of_the_plain_sweep(kind, seed, sizes, keywords, some, options, training):
    n, length, size, hidden = sizes
    layered = keywords["num_layers"] * (1 + keywords["bidirectional"])
    dropout = {"dropout": 0.5} if keywords["num_layers"] > 1 else {}
    net = network(kind, size, hidden, length, seed % 1000, **keywords, **dropout)
    x, y = batch(n, length, size, seed=seed)
    asked = [QUANTITIES[i] for i in sorted(some)]
    assert len(steps_in(net, x, y, *asked)) == layered
    both(net, LOSS, x, y, *asked, rng=seed, training=training, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
def test_a_further_sweep_has_the_draws_of_the_first(kind, training):
    net, (x, y) = network(kind, hidden=2, num_layers=2, dropout=0.5), batch(6, 5, 3)
    asked, call = q.EKFAC(40), gb.prepare(net, LOSS, q.EKFAC(40), training=training)
    plain = gb.reference(net, LOSS, x, y, asked, rng=3, training=training)
    assert_same(gb.backward(net, LOSS, x, y, asked, rng=3, training=training), plain, 1e-8)
    assert_same(gb.backward(net, LOSS, x, y, asked, rng=3, training=training, sample_block=2), plain, 1e-8)
    for _ in range(2):
        assert_same(call(x, y, 3), plain, 1e-8)


@pytest.mark.parametrize("name", ["weight_hh_l0", "bias_hh_l0", "weight_ih_l0"])
def test_frozen_parameters_have_no_results(name):
    net, (x, y) = network("LSTM"), batch(4, 5, 3)
    net.freeze(f"0.{name}")
    assert f"0.{name}" not in both(net, LOSS, x, y, q.DiagGGN()).gradient


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_at_two_places_shares_its_parameters(kind):
    recurrent = KINDS[kind](3, 3)
    net = gb.Sequential(recurrent, layers.Tanh(), recurrent, layers.Flatten(), layers.Linear(12, 3), rng=0)
    net, (x, y) = net.astype("float64"), batch(3, 4, 3)
    assert len(steps_in(net, x, y)) == 2
    both(net, LOSS, x, y, q.BatchGrad(), q.KFLR(), q.DiagGGN())


def test_the_diagonal_of_the_hessian_takes_the_steps_one_by_one():
    net, (x, y) = network("LSTM"), batch(3, 5, 3)
    assert steps_in(net, x, y, q.DiagHessian()) == []
    both(net, LOSS, x, y, q.DiagHessian())


class Doubled(gb.LSTM):
    """An LSTM with other steps."""

    def step(self, add, x, hidden, state):
        first, *rest = super().step(add, x, hidden, state)
        return (add("double", layers.Identity(), first), *rest)


class OwnMatrix(Matrix):
    """A matrix with a method of its own."""

    def mjp(self, saved, mat):
        return super().mjp(saved, mat)


def test_steps_that_are_overridden_are_taken_one_by_one():
    x, y = batch(3, 5, 3)
    changed = network("LSTM")
    changed.layers[0].children["weight_hh_l0"].__class__ = OwnMatrix
    attribute = network("LSTM")
    attribute.layers[0].step = attribute.layers[0].step
    subclass = gb.Sequential(Doubled(3, 4), layers.Flatten(), layers.Linear(20, 3), rng=0, dtype="float64")
    for net in (changed, attribute, subclass):
        assert steps_in(net, x, y) == []
        both(net, LOSS, x, y, q.BatchGrad())


def test_a_prepared_call_sees_new_parameters_and_what_is_frozen():
    net, (x, y) = network("LSTM"), batch(3, 5, 3)
    call = gb.prepare(net, LOSS, q.BatchGrad())
    call(x, y)
    net.load_state_dict({name: 2 * value for name, value in net.state_dict().items()})
    assert_same(call(x, y), gb.reference(net, LOSS, x, y, q.BatchGrad()))
    net.freeze("0.weight_hh_l0")
    assert_same(call(x, y), gb.reference(net, LOSS, x, y, q.BatchGrad()))


def test_saturated_gates_give_finite_numbers():
    net = network("LSTM", dtype="float32")
    net.load_state_dict({name: 300 * value for name, value in net.state_dict().items()})
    x, y = batch(4, 5, 3, dtype="float32")
    result = both(net, LOSS, x, y, tolerance=1e-4)
    assert all(np.isfinite(value).all() for value in result.gradient.values())


# ------------------------------------------------------------------------------------------------------- each layer


GATES = {"RNN": 1, "ReLU": 1, "LSTM": 4, "GRU": 3}


def steps_of(kind, bias=True, reverse=False, hidden=3):
    rng, out = np.random.default_rng(1), GATES[kind] * hidden
    parts = [Matrix("weight", hidden, out, 1.0), Shift("bias", out, 1.0)]
    for part in parts:
        part.dtype = "float64"
        part.initialize(rng)
    own = {"RNN": (RNNSteps, Tanh()), "ReLU": (RNNSteps, ReLU()), "LSTM": (LSTMSteps,), "GRU": (GRUSteps,)}[kind]
    return own[0](parts[0], parts[1] if bias else None, reverse, *own[1:])


def each(kinds):
    """Layers of some kinds in each of their forms, and inputs."""
    cases = list(product(kinds, (False, True), (False, True)))
    return pytest.mark.parametrize("steps", cases, indirect=True, ids=str)


@pytest.fixture
def steps(request):
    layer = steps_of(*request.param)
    return layer, np.random.default_rng(2).standard_normal((2, 4, layer.gates * layer.size))


@each(GATES)
def test_the_jacobian_is_that_of_differences_and_mjp_its_transpose(steps):
    (layer, x), rng, h = steps, np.random.default_rng(3), 1e-6
    u = rng.standard_normal((3, *x.shape))
    y, saved = layer.forward(x)
    jacobian = layer.jmp(saved, u)
    differences = [(layer.forward(x + h * d)[0] - layer.forward(x - h * d)[0]) / (2 * h) for d in u]
    np.testing.assert_allclose(jacobian, differences, rtol=0, atol=1e-8)
    v = rng.standard_normal((3, *y.shape))
    np.testing.assert_allclose((jacobian * v).sum(), (layer.mjp(saved, v) * u).sum(), rtol=1e-12)


@each(GATES)
def test_jacobians_in_parameters_are_those_of_differences(steps):
    layer, x = steps
    y, saved = layer.forward(x)
    columns = np.random.default_rng(3).standard_normal((2, *y.shape))
    below = layer.jacobians_below(saved)
    for part in layer.parts:
        value = part.parameters[part.key]
        found = layer.parameter_jacobians(saved)[part.key].per_sample(columns).sum(1)
        want = np.empty_like(found)
        for at in np.ndindex(value.shape):
            before = value[at]
            value[at] = before + 1e-6
            more = layer.forward(x)[0]
            value[at] = before - 1e-6
            want[(slice(None), *at)] = ((more - layer.forward(x)[0]) * columns).sum((1, 2, 3)) / 2e-6
            value[at] = before
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-7)
        at_input = below[part.key].per_sample(layer.mjp(saved, columns)).sum(1)
        np.testing.assert_allclose(at_input, found, rtol=1e-12, atol=1e-12)


@each(["LSTM"])
def test_the_short_forms_of_an_lstm_give_the_same(steps):
    (layer, x), context = steps, Context(FORMS, Allocator())
    y, saved = layer.forward(x)
    got, kept = context.forward(layer, x)
    assert context.known.of(layer).forward is not None
    assert context.known.of(layer).carry is not None
    np.testing.assert_allclose(got, y, rtol=1e-13, atol=1e-15)
    for mine, plain in zip(kept, saved, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-12, atol=1e-15)
    mat = np.random.default_rng(3).standard_normal((2, *y.shape))
    before = mat.copy()
    np.testing.assert_allclose(context.mjp(layer, saved, mat), layer.mjp(saved, mat), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(mat, before)


def test_other_features_are_refused():
    with pytest.raises(ValueError, match=r"expected features of shape \(T, 12\), got \(4, 11\)"):
        steps_of("LSTM").output_shape((4, 11))


@pytest.mark.parametrize(
    ("kind", "samples", "dtype", "compiled", "threads"),
    [
        ("LSTM", 64, "float64", True, 1),
        ("GRU", 64, "float32", True, 1),
        ("LSTM", 64, "float32", False, 1),
        ("LSTM", 64, "float32", True, 2),
        ("LSTM", 32, "float32", True, 1),
    ],
)
def test_steps_are_cut_into_blocks_where_they_wait_for_nobody(kind, samples, dtype, compiled, threads, monkeypatch):
    """A step of 64 samples is as long as its calls, and threads would wait for each other, but in a compiled loop."""
    monkeypatch.setattr(blocks, "cpu_count", lambda: 2)
    if not compiled:
        monkeypatch.setattr(kernels, "numba_kernels", lambda: None)
    elif kernels.numba_kernels() is None:
        pytest.skip("needs Numba")
    x, y = batch(samples, 50, 32, dtype=dtype)
    net = network(kind, 32, 64, 50, dtype=dtype)
    plan = rewrites.with_whole_sequences(make_plan(net, LOSS, x, y, [], 0), x)
    cut = blocks.choose_blocks(plan, x, forms=FORMS)
    assert (len(cut.samples), cut.threads, cut.small) == (threads, threads, True)
    again = blocks.choose_blocks(plan, x, blocks.Limits(workers=1, sample_block=samples), FORMS)
    assert (len(again.samples), again.small) == (1, True), "BLAS has one thread in a loop"
