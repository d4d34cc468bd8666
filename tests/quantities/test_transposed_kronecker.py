"""Kronecker factors of transposed convolutions, and the order of their block's entries, that of the parameter's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kronecker import damped, factor

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q
from gbackprop.testing.errors import largest_error
from gbackprop.testing.oracles import Dense

RNG = np.random.default_rng(8)
CE = losses.CrossEntropyLoss()
TARGETS = RNG.integers(0, 3, (2, 5))
ENGINES = pytest.mark.parametrize("engine", [gb.reference, gb.backward])

CASES = {  # what ConvTranspose{1,2,3}d is given, and the shape of its inputs
    "one axis": ((2, 3, 2), {}, (2, 3)),
    "stride and sides": ((3, 2, 3, 2, 1, 1), {"bias": False}, (3, 3)),
    "one channel": ((1, 2, 3), {}, (1, 3)),
    "two axes": ((2, 2, (2, 3), (1, 2), (1, 0), (1, 0)), {"dilation": (2, 1)}, (2, 3, 2)),
    "three axes": ((2, 3, (1, 2, 2), (2, 1, 1)), {}, (2, 2, 2, 1)),
    "groups": ((4, 6, 2, 2, 1, 1), {"groups": 2}, (4, 2)),
    "depthwise": ((3, 3, (2, 1), 2), {"groups": 3}, (3, 2, 2)),
}


def transposed(name):
    given, named, shape = CASES[name]
    return getattr(layers, f"ConvTranspose{len(shape) - 1}d")(*given, **named), shape


def made(name, dtype="float64"):
    layer, shape = transposed(name)
    features = int(np.prod(layer.output_shape(shape)))
    net = gb.Sequential(layer, layers.Tanh(), layers.Flatten(), layers.Linear(features, 3), rng=1, dtype=dtype)
    rng = np.random.default_rng(2)
    return net, rng.standard_normal((5, *shape)).astype(dtype), rng.integers(0, 3, 5)


def asked():
    return [q.KFAC(2, TARGETS), q.KFLR(), q.KFRA()]


# ---------------------------------------------------------------------------------------------------------- the factors


@ENGINES
@pytest.mark.parametrize("loss", [CE, losses.CrossEntropyLoss("sum")], ids=repr)
@pytest.mark.parametrize("name", CASES)
def test_factors_are_their_definition(name, loss, engine):
    net, x, y = made(name)
    result, oracle = engine(net, loss, x, y, *asked()), Dense(net, loss, x, y, TARGETS)
    for key, found in result.items():
        assert largest_error(found, oracle[key]) < 1e-12, key
        assert found["0.weight"].shape == (net.parameters["0.weight"].size,) * 2


def one_position(sizes, groups, channels, outputs, loss):
    """A transposed convolution with a single output position, below a nonlinear network, and one sample."""
    kind = getattr(layers, f"ConvTranspose{len(sizes)}d")
    layer = kind(groups * channels, groups * outputs, sizes, padding=tuple(size - 1 for size in sizes), groups=groups)
    above = layers.Linear(groups * outputs, 3), layers.Tanh(), layers.Linear(3, 3)
    net = gb.Sequential(layer, layers.Flatten(), *above, rng=1, dtype="float64")
    assert net[0].output_shape((groups * channels, *sizes))[1:] == (1,) * len(sizes)
    y = np.array([1]) if loss is CE else np.ones((1, 3))
    return net, np.random.default_rng(2).standard_normal((1, groups * channels, *sizes)), y


SMALL = st.integers(1, 3)


@given(st.lists(SMALL, min_size=1, max_size=3), SMALL, SMALL, SMALL, st.sampled_from([CE, losses.MSELoss()]))
def test_one_sample_with_one_output_position_has_the_exact_block(sizes, groups, channels, outputs, loss):
    net, x, y = one_position(tuple(sizes), groups, channels, outputs, loss)
    block = gb.backward(net, loss, x, y, q.KFLR())["kflr"]["0.weight"].to_dense()
    parts = Dense(net, loss, x, y).parts["0.weight"]
    jacobian = parts.jacobians.reshape(3, -1)
    exact = parts.factor * jacobian.T @ parts.hessians[0] @ jacobian
    size = len(exact) // groups
    own = np.kron(np.eye(groups), np.ones((size, size)))  # blocks between groups are set to zero
    np.testing.assert_allclose(block, exact * own, rtol=1e-9, atol=1e-13)


@ENGINES
@pytest.mark.parametrize("stride", [1, 2])
def test_the_block_is_that_of_a_convolution_of_the_image_with_zeros_between(stride, engine):
    """Its kernel is the mirrored one, and its entries (o, c, k) are those of (c, o, K − 1 − k)."""
    kernel, inputs, outputs, size = 3, 2, 4, 3
    head = layers.Sigmoid(), layers.Flatten(), layers.Linear(outputs * ((size - 1) * stride + kernel - 2), 3)
    up, conv = layers.ConvTranspose1d(inputs, outputs, kernel, stride, 1), layers.Conv1d(inputs, outputs, kernel, 1, 1)
    up, conv = (gb.Sequential(first, *head, rng=1, dtype="float64") for first in (up, conv))
    state = up.state_dict()
    conv.load_state_dict(state | {"0.weight": np.flip(state["0.weight"].swapaxes(0, 1), 2)})
    x, y = RNG.standard_normal((5, inputs, size)), RNG.integers(0, 3, 5)
    stuffed = np.zeros((5, inputs, (size - 1) * stride + 1))
    stuffed[:, :, ::stride] = x
    found, want = engine(up, CE, x, y, *asked()), engine(conv, CE, stuffed, y, *asked())
    np.testing.assert_allclose(found.output, want.output, rtol=1e-12)
    order = np.flip(np.arange(24).reshape(outputs, inputs, kernel).swapaxes(0, 1), 2).ravel()
    for key in found:
        dense = want[key]["0.weight"].to_dense()[np.ix_(order, order)]
        np.testing.assert_allclose(found[key]["0.weight"].to_dense(), dense, rtol=1e-10, atol=1e-14, err_msg=key)


@pytest.mark.parametrize("options", [{"sample_block": 2}, {"column_block": 1}, {"sample_block": 1, "workers": 2}])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
@pytest.mark.parametrize("name", ["stride and sides", "groups"])
def test_blocks_and_threads_give_what_reference_gives(name, dtype, tolerance, options):
    net, x, y = made(name, dtype)
    wanted = asked()[:2]
    found, want = gb.backward(net, CE, x, y, *wanted, **options), gb.reference(net, CE, x, y, *wanted)
    for key in found:
        got, dense = found[key]["0.weight"].to_dense(), want[key]["0.weight"].to_dense()
        assert got.dtype == dtype
        np.testing.assert_allclose(got, dense, rtol=0, atol=tolerance * np.abs(dense).max())


def test_merged_batches_give_what_one_call_gives():
    net, x, y = made("groups")
    batches = [gb.backward(net, CE, x[rows], y[rows], q.KFLR()) for rows in (slice(2), slice(2, 5))]
    results = gb.data.merge(batches), gb.backward(net, CE, x, y, q.KFLR())
    merged, whole = (result["kflr"]["0.weight"].to_dense() for result in results)
    np.testing.assert_allclose(merged, whole, rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------------------------------------------------- the algebra

SIZES = pytest.mark.parametrize(("channels", "rows", "places"), [(1, 2, 3), (2, 3, 4), (3, 3, 1), (2, 1, 2)])


def entry_order(channels, rows, places):
    """The entries (o, c, k) of B ⊗ A at the places of the parameter's, (c, o, k)."""
    return np.arange(rows * channels * places).reshape(rows, channels, places).swapaxes(0, 1).ravel()


@SIZES
def test_products_and_solutions_are_in_the_parameters_order(channels, rows, places):
    a, b, d = factor(channels * places), factor(rows), channels * rows * places
    block, order = q.Kronecker(a, b, channels), entry_order(channels, rows, places)
    dense = np.kron(b, a)[np.ix_(order, order)]
    np.testing.assert_allclose(block.to_dense(), dense, rtol=1e-14)
    np.testing.assert_allclose(block.trace(), np.trace(dense), rtol=1e-12)
    inverse = np.linalg.inv(damped(block, 0.3)[np.ix_(order, order)])
    for shape in ((d,), (d, 3), (channels, rows, places), (channels, rows, 1, places)):
        v = RNG.standard_normal(shape)
        for found, matrix in ((block @ v, dense), (block.solve(v, 0.3), inverse)):
            assert found.shape == shape
            np.testing.assert_allclose(found.reshape(d, -1), matrix @ v.reshape(d, -1), rtol=1e-9, atol=1e-11)


def test_asymmetric_factors_show_the_order_of_the_entries():
    block = q.Kronecker(RNG.standard_normal((6, 6)), RNG.standard_normal((4, 4)), 2)  # (C, O, K) = (2, 4, 3)
    entry, other = np.ravel_multi_index(((0, 1), (2, 3), (1, 2)), (2, 4, 3))
    assert block.to_dense()[entry, other] == block.B[2, 3] * block.A[0 * 3 + 1, 1 * 3 + 2]
    v = RNG.standard_normal((2, 4, 3))
    np.testing.assert_allclose((block @ v).ravel(), block.to_dense() @ v.ravel(), rtol=1e-11)


@SIZES
def test_each_group_has_its_rows_of_the_weight(channels, rows, places):
    blocks = [q.Kronecker(factor(channels * places), factor(rows), channels) for _ in range(2)]
    grouped = q.GroupedKronecker(*(np.stack([getattr(block, part) for block in blocks]) for part in "AB"), channels)
    v = RNG.standard_normal((2 * channels, rows, places))
    for group, block in enumerate(blocks):
        own = slice(group * channels, (group + 1) * channels)
        np.testing.assert_allclose((grouped @ v)[own], block @ v[own], rtol=1e-12)
        np.testing.assert_allclose(grouped.solve(v, 0.1)[own], block.solve(v[own], 0.1), rtol=1e-12)
    np.testing.assert_allclose(grouped.to_dense() @ v.ravel(), (grouped @ v).ravel(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 6), (4, 2, 3), (23,), (2, 4, 4)])
def test_vectors_of_another_shape_are_refused(shape):
    block = q.Kronecker(factor(6), factor(4), 2)
    with pytest.raises(ValueError, match=r"v: expected shape \(24,\), \(24, K\) or \(2, …\) with 24 entries, got"):
        block @ np.ones(shape)


@pytest.mark.parametrize("average", [None, "mean", "ema"])
@pytest.mark.parametrize("kind", [q.KFAC, q.KFLR, q.KFRA])
@pytest.mark.parametrize("name", ["one axis", "one channel", "groups"])
def test_a_step_solves_the_damped_system(name, kind, average):
    net, x, y = made(name)
    optimizer = optim.Preconditioned(net, kind(), 0.1, 0.3, average=average)
    before, result = net.state_dict()["0.weight"], gb.backward(net, CE, x, y, *optimizer.quantities, rng=0)
    optimizer.step(result)
    block, gradient, groups = result[kind.name]["0.weight"], result.gradient["0.weight"], net[0].groups
    channels = len(before) // groups
    order = entry_order(channels, before.shape[1], before[0, 0].size)
    pairs = zip(block.A, block.B) if groups > 1 else [(block.A, block.B)]
    for group, pair in enumerate(pairs):
        own = slice(group * channels, (group + 1) * channels)
        inverse = np.linalg.inv(damped(q.Kronecker(*pair), 0.3)[np.ix_(order, order)])
        want = before[own].ravel() - 0.1 * inverse @ gradient[own].ravel()
        np.testing.assert_allclose(net.parameters["0.weight"][own].ravel(), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["one axis", "groups"])
def test_the_averaged_curvature_goes_on_bit_for_bit(name):
    nets = [made(name)[0] for _ in range(2)]
    _, x, y = made(name)
    first, second = (optim.Preconditioned(net, q.KFLR(), 0.1, 0.3, average="mean") for net in nets)

    def step(net, optimizer):
        optimizer.step(gb.backward(net, CE, x, y, *optimizer.quantities))

    step(nets[0], first)
    nets[1].load_state_dict(nets[0].state_dict())
    second.load_state_dict(first.state_dict())
    for net, optimizer in zip(nets, (first, second)):
        step(net, optimizer)
    np.testing.assert_array_equal(*(net.parameters["0.weight"] for net in nets))


def test_a_weight_at_two_places_is_refused():
    up = layers.ConvTranspose1d(2, 2, 3, padding=1)
    net = gb.Sequential(up, layers.Tanh(), up, layers.Flatten(), layers.Linear(6, 3), rng=1, dtype="float64")
    with pytest.raises(gb.UnsupportedError, match=r"ConvTranspose1d.*KFLR: its weight is used at several places"):
        gb.backward(net, CE, np.ones((2, 2, 3)), np.array([0, 1]), q.KFLR())
