"""Kronecker factors of a sweep: of any layer, and what is solved with them; tests/kronecker has the algebra."""

import re

import numpy as np
import pytest
from common import batch, chain
from hypothesis import given
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses, optim
from gbackprop import quantities as q
from gbackprop.testing.oracles import Dense

RNG = np.random.default_rng(11)
CE = losses.CrossEntropyLoss()
ENGINES = pytest.mark.parametrize("engine", [gb.reference, gb.backward])


def factor(size, rank=None):
    """A random symmetric positive semi-definite matrix."""
    root = RNG.standard_normal((size, rank or size + 3))
    return root @ root.T


def damped(kronecker, damping):
    """The paper's damped block: each factor with its share of √λ."""
    a, b = kronecker.A, kronecker.B
    pi = ((np.trace(a) / len(a)) / (np.trace(b) / len(b))) ** 0.5
    return np.kron(b + damping**0.5 / pi * np.eye(len(b)), a + pi * damping**0.5 * np.eye(len(a)))


def asked():
    return [q.KFAC(2, RNG.integers(0, 3, (2, 5))), q.KFLR(), q.KFRA()]


# -------------------------------------------------------------------------------------------------------------- solving

PLAIN, BIAS = q.Kronecker(factor(2), factor(6)), q.Kronecker(None, factor(12))
GROUPED = q.GroupedKronecker(np.stack([factor(3), factor(3)]), np.stack([factor(2), factor(2)]))
FIRST = q.Kronecker(factor(6), factor(2), 3)


@pytest.mark.parametrize("block", [PLAIN, BIAS, GROUPED, FIRST])
@pytest.mark.parametrize("shape", [(12,), (12, 1), (12, 4), (12, 12)])
def test_the_product_and_the_solution_of_a_vector_or_a_matrix(block, shape):
    v = RNG.standard_normal(shape)
    product, solution = block @ v, block.solve(v, 0.3)
    assert product.shape == solution.shape == shape
    np.testing.assert_allclose(product, block.to_dense() @ v, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(block.damped(0.3).to_dense() @ solution, v, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shape", [(11,), (13,), (), (1, 11), (0,), (11, 12), (12, 2, 2), (2, 2, 2)])
@pytest.mark.parametrize(("block", "lead"), [(PLAIN, "6, "), (BIAS, ""), (GROUPED, "4, "), (FIRST, "3, ")])
def test_vectors_of_another_size_are_refused(block, lead, shape):
    words = re.escape(f"v: expected shape (12,), (12, K) or ({lead}…) with 12 entries, got {shape}")
    for method in (block.matvec, block.solve, block.__matmul__):
        with pytest.raises(ValueError, match=words):
            method(np.ones(shape))


@pytest.mark.parametrize("which", ["A", "B", "both"])
def test_factors_of_zero_are_damped_alone(which):
    a, b = factor(2) * (which == "B"), factor(3) * (which == "A")
    v = RNG.standard_normal((3, 2))
    want = np.linalg.solve(b + 0.5 * np.eye(3), v) @ np.linalg.inv(a + 0.5 * np.eye(2))  # π = 1
    np.testing.assert_allclose(q.Kronecker(a, b).solve(v, 0.25), want, rtol=1e-8)


SINGULAR = [
    (q.Kronecker(factor(4, rank=2), factor(3)), "factor A of shape (4, 4)"),
    (q.Kronecker(factor(4), factor(3, rank=1)), "factor B of shape (3, 3)"),
    (q.Kronecker(np.zeros((2, 2)), factor(3)), "factor A of shape (2, 2)"),
    (q.Kronecker(None, np.zeros((2, 2))), "factor B of shape (2, 2)"),
    (q.Kronecker(None, factor(4, rank=3)), "factor B of shape (4, 4)"),
    (q.GroupedKronecker(np.stack([factor(2), np.ones((2, 2))]), GROUPED.B), "group 1: factor A of shape (2, 2)"),
]


@pytest.mark.parametrize(("kronecker", "words"), SINGULAR)
def test_singular_blocks_are_refused_until_damped(kronecker, words):
    v = RNG.standard_normal(kronecker.shape[0])
    with pytest.raises(np.linalg.LinAlgError, match=re.escape(words) + ".*singular.*damping"):
        kronecker.solve(v)
    assert np.isfinite(kronecker.solve(v, 0.1)).all()


def test_a_cap_bounds_the_inverse_of_each_factor_also_below_the_damping():
    grouped = q.GroupedKronecker(np.array([[[1.0]], [[4.0]]]), np.array([[[1e-9]], [[1e-9]]]))
    np.testing.assert_allclose(grouped.solve(np.ones(2), cap=0.5), [0.5 * 0.5, 0.25 * 0.5], rtol=1e-12)
    bias = q.Kronecker(None, np.diag([1e-9, 10.0]))
    # without the cap 1/(b + 0.5): 2 and 0.095; none may exceed a quarter
    np.testing.assert_allclose(bias.solve(np.ones(2), damping=0.5, cap=0.25), [0.25, 1 / 10.5], rtol=1e-12)


# ---------------------------------------------------------------------------------------------------- from a real sweep


@pytest.mark.parametrize("quantity", [q.KFAC(2), q.KFLR(), q.KFRA()], ids=repr)
def test_results_of_a_sweep_take_gradients_in_the_parameters_shape(quantity):
    network = chain(layers.Conv2d(2, 3, 2), layers.Tanh(), layers.Flatten(), layers.Linear(12, 2))
    result = gb.backward(network, CE, *batch(4, 2, 3, 3, classes=2), quantity, rng=0)
    for name, kronecker in result[quantity].items():
        gradient = result.gradient[name]
        assert kronecker.shape == (gradient.size, gradient.size)
        assert (kronecker.A is None) == name.endswith("bias")
        for matrix in (kronecker.A, kronecker.B):
            if matrix is not None:
                np.testing.assert_allclose(matrix, matrix.T, atol=1e-14)
                assert np.linalg.eigvalsh(matrix).min() > -1e-12 * np.trace(matrix)
        step = kronecker.solve(gradient, 0.1)
        assert step.shape == gradient.shape
        assert (step * gradient).sum() > 0  # so −step is a direction of descent


def test_rows_of_the_input_factor_are_numbered_as_the_weight_is():
    # One window, so the block of a convolution is that of a linear layer on the flattened image.
    conv = chain(layers.Conv2d(2, 3, (2, 3)), layers.Flatten())
    linear = chain(layers.Flatten(), layers.Linear(12, 3))
    weight, bias = conv.parameters.values()
    linear.load_state_dict({"1.weight": weight.reshape(3, 12), "1.bias": bias})
    one, other = (gb.backward(network, CE, *batch(4, 2, 2, 3), q.KFLR()) for network in (conv, linear))
    for part in "AB":
        weights = getattr(one["kflr"]["0.weight"], part), getattr(other["kflr"]["1.weight"], part)
        np.testing.assert_allclose(*weights, rtol=1e-12)


@pytest.mark.parametrize("quantity", [q.KFAC(), q.KFLR(), q.KFAC(fisher="empirical")], ids=repr)
def test_a_weight_and_its_bias_have_factors_of_their_own(quantity):
    """B of a weight is no view of the bias's, nor one weight's group of the whole."""
    below = layers.Conv1d(4, 4, 2), layers.Conv1d(4, 6, 2, groups=2)
    network = chain(*below, layers.Flatten(), layers.Linear(12, 2))
    result = gb.backward(network, CE, *batch(5, 4, 4, classes=2), quantity, rng=0)
    kinds = {name: type(value) for name, value in result[quantity].items()}
    assert {name for name, kind in kinds.items() if kind is q.GroupedKronecker} == {"1.weight"}
    for layer in "013":
        weight, bias = (result[quantity][f"{layer}.{key}"].B for key in ("weight", "bias"))
        assert not np.shares_memory(weight, bias)
        if layer != "1":
            np.testing.assert_array_equal(weight, bias)
    assert "0.weight B (4, 4) ⊗ A (8, 8)" in repr(result)


def test_the_result_shows_the_shapes_of_factors_of_groups():
    network = chain(layers.Conv1d(4, 6, 2, groups=2), layers.Flatten(), layers.Linear(18, 3))
    assert "0.weight B (2, 3, 3) ⊗ A (2, 4, 4)" in repr(gb.backward(network, CE, *batch(5, 4, 4), q.KFLR()))


@ENGINES
@pytest.mark.parametrize("groups", [2, 4])
def test_factors_of_groups_are_blocks_of_those_without_groups(groups, engine):
    """Of the convolution that computes the same, with a weight of zero between groups."""
    above = layers.Sigmoid(), layers.Flatten(), layers.Linear(16, 3)
    one, other = (chain(layers.Conv2d(4, 4, 2, groups=count), *above) for count in (groups, 1))
    state = one.state_dict()
    wide = np.zeros((groups, 4 // groups, groups, 4 // groups, 2, 2))
    for group, part in enumerate(state["0.weight"].reshape(groups, -1, 4 // groups, 2, 2)):
        wide[group, :, group] = part
    other.load_state_dict(state | {"0.weight": wide.reshape(4, 4, 2, 2)})
    quantities, (x, y) = asked(), batch(5, 4, 3, 3)
    found, want = (engine(net, CE, x, y, *quantities) for net in (one, other))
    for key in found:
        for part in "AB":
            each, whole = getattr(found[key]["0.weight"], part), getattr(want[key]["0.weight"], part)
            size = len(whole) // groups
            blocks = np.stack([whole[i : i + size, i : i + size] for i in range(0, len(whole), size)])
            np.testing.assert_allclose(each, blocks, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(found[key]["0.bias"].B, want[key]["0.bias"].B, rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------------------------------------- transposed convolutions


SMALL = st.integers(1, 3)


@given(st.lists(SMALL, min_size=1, max_size=3), SMALL, SMALL, SMALL, st.sampled_from([CE, losses.MSELoss()]))
def test_one_sample_with_one_output_position_has_the_exact_block(sizes, groups, channels, outputs, loss):
    kind = getattr(layers, f"ConvTranspose{len(sizes)}d")
    layer = kind(groups * channels, groups * outputs, tuple(sizes), padding=tuple(s - 1 for s in sizes), groups=groups)
    above = layers.Linear(groups * outputs, 3), layers.Tanh(), layers.Linear(3, 3)
    net = chain(layer, layers.Flatten(), *above)
    assert net[0].output_shape((groups * channels, *sizes))[1:] == (1,) * len(sizes)
    x, y = batch(1, groups * channels, *sizes)
    y = y if loss is CE else np.ones((1, 3))
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
    up = chain(layers.ConvTranspose1d(inputs, outputs, kernel, stride, 1), *head)
    conv = chain(layers.Conv1d(inputs, outputs, kernel, 1, 1), *head)
    state = up.state_dict()
    conv.load_state_dict(state | {"0.weight": np.flip(state["0.weight"].swapaxes(0, 1), 2)})
    quantities, (x, y) = asked(), batch(5, inputs, size)
    stuffed = np.zeros((5, inputs, (size - 1) * stride + 1))
    stuffed[:, :, ::stride] = x
    found, want = engine(up, CE, x, y, *quantities), engine(conv, CE, stuffed, y, *quantities)
    np.testing.assert_allclose(found.output, want.output, rtol=1e-12)
    order = np.flip(np.arange(24).reshape(outputs, inputs, kernel).swapaxes(0, 1), 2).ravel()
    for key in found:
        dense = want[key]["0.weight"].to_dense()[np.ix_(order, order)]
        np.testing.assert_allclose(found[key]["0.weight"].to_dense(), dense, rtol=1e-10, atol=1e-14, err_msg=key)


UPWARD = {
    "one axis": ((2, 3, 2), {}, (2, 3)),
    "one channel": ((1, 2, 3), {}, (1, 3)),
    "groups": ((4, 6, 2, 2, 1, 1), {"groups": 2}, (4, 2)),
}


def made(name):
    given, named, shape = UPWARD[name]
    layer = layers.ConvTranspose1d(*given, **named)
    features = int(np.prod(layer.output_shape(shape)))
    return chain(layer, layers.Tanh(), layers.Flatten(), layers.Linear(features, 3)), *batch(5, *shape)


def test_merged_batches_give_what_one_call_gives():
    net, x, y = made("groups")
    batches = [gb.backward(net, CE, x[rows], y[rows], q.KFLR()) for rows in (slice(2), slice(2, 5))]
    results = gb.data.merge(batches), gb.backward(net, CE, x, y, q.KFLR())
    merged, whole = (result["kflr"]["0.weight"].to_dense() for result in results)
    np.testing.assert_allclose(merged, whole, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("average", [None, "mean", "ema"])
@pytest.mark.parametrize("kind", [q.KFAC, q.KFLR, q.KFRA])
@pytest.mark.parametrize("name", UPWARD)
def test_a_step_solves_the_damped_system(name, kind, average):
    net, x, y = made(name)
    optimizer = optim.Preconditioned(net, kind(), 0.1, 0.3, average=average)
    before, result = net.state_dict()["0.weight"], gb.backward(net, CE, x, y, *optimizer.quantities, rng=0)
    optimizer.step(result)
    block, gradient, groups = result[kind.name]["0.weight"], result.gradient["0.weight"], net[0].groups
    channels, rows = len(before) // groups, before.shape[1]
    # the entries (o, c, k) of B ⊗ A at the places of the parameter's, (c, o, k)
    order = np.arange(before.size // groups).reshape(rows, channels, -1).swapaxes(0, 1).ravel()
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
    net = chain(up, layers.Tanh(), up, layers.Flatten(), layers.Linear(6, 3))
    with pytest.raises(gb.UnsupportedError, match=r"ConvTranspose1d.*KFLR: its weight is used at several places"):
        gb.backward(net, CE, np.ones((2, 2, 3)), np.array([0, 1]), q.KFLR())
