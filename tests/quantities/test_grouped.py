"""Kronecker factors of grouped convolutions: a pair for each group, and the algebra of their block-diagonal matrix."""

import re

import numpy as np
import pytest
from scipy.linalg import block_diag
from test_kronecker import damped, factor

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.testing.errors import largest_error
from gbackprop.testing.oracles import Dense
from gbackprop.testing.setting import values

RNG = np.random.default_rng(7)
CE = losses.CrossEntropyLoss()
TARGETS = RNG.integers(0, 3, (2, 5))
SIZES = pytest.mark.parametrize(("groups", "rows", "columns"), [(1, 2, 3), (2, 1, 4), (3, 2, 2), (4, 1, 1)])


def block(groups, rows, columns, dtype="float64"):
    a, b = (np.stack([factor(size, dtype=dtype) for _ in range(groups)]) for size in (columns, rows))
    return q.GroupedKronecker(a, b)


def dense(grouped):
    """The matrix, from the factors alone."""
    return block_diag(*map(np.kron, grouped.B, grouped.A))


# --------------------------------------------------------------------------------------------------------- the algebra


@SIZES
def test_the_matrix_its_trace_and_its_product(groups, rows, columns):
    grouped = block(groups, rows, columns)
    d = groups * rows * columns
    assert grouped.shape == (d, d)
    np.testing.assert_allclose(grouped.to_dense(), dense(grouped), rtol=1e-14)
    np.testing.assert_allclose(grouped.trace(), np.trace(dense(grouped)), rtol=1e-12)
    for shape in ((d,), (d, 1), (d, 3), (groups * rows, columns), (groups * rows, 1, columns)):
        v = RNG.standard_normal(shape)
        product = grouped @ v
        assert product.shape == shape
        want = dense(grouped) @ v.reshape(d, -1)
        np.testing.assert_allclose(product.reshape(d, -1), want, rtol=1e-10, atol=1e-12)


def test_asymmetric_factors_show_the_order_of_the_entries():
    grouped = q.GroupedKronecker(RNG.standard_normal((2, 3, 3)), RNG.standard_normal((2, 2, 2)))
    v = RNG.standard_normal((4, 3))
    np.testing.assert_allclose(grouped.matvec(v).ravel(), dense(grouped) @ v.ravel(), rtol=1e-12)
    assert grouped.to_dense()[6, 10] == grouped.B[1, 0, 1] * grouped.A[1, 0, 1]  # entry (2, 0) against entry (3, 1)
    assert not grouped.to_dense()[:6, 6:].any()


@SIZES
@pytest.mark.parametrize("damping", [1e-3, 1.0])
def test_each_group_is_damped_for_itself(groups, rows, columns, damping):
    grouped = block(groups, rows, columns)
    grouped = q.GroupedKronecker(grouped.A * np.logspace(0, 2, groups)[:, None, None], grouped.B)
    d = len(dense(grouped))
    inverse = block_diag(*[np.linalg.inv(damped(each, damping)) for each in grouped.blocks])
    for shape in ((d,), (d, 2), (groups * rows, columns)):
        v = RNG.standard_normal(shape)
        solution = grouped.solve(v, damping)
        assert solution.shape == shape
        np.testing.assert_allclose(solution.reshape(d, -1), inverse @ v.reshape(d, -1), rtol=1e-8, atol=1e-12)


def test_solve_without_damping_inverts_the_matrix():
    grouped, v = block(3, 2, 2), RNG.standard_normal(12)
    np.testing.assert_allclose(grouped @ grouped.solve(v), v, rtol=1e-8)


def test_a_cap_bounds_the_inverse_of_each_factor():
    grouped = q.GroupedKronecker(np.array([[[1.0]], [[4.0]]]), np.array([[[1e-9]], [[1e-9]]]))
    np.testing.assert_allclose(grouped.solve(np.ones(2), cap=0.5), [0.5 * 0.5, 0.25 * 0.5], rtol=1e-12)
    with pytest.raises(ValueError, match="cap: expected a number above 0, got 0"):
        grouped.solve(np.ones(2), cap=0)


def test_a_singular_group_is_named_until_it_is_damped():
    grouped = block(3, 2, 2)
    grouped.A[1] = np.ones((2, 2))
    with pytest.raises(np.linalg.LinAlgError, match=r"group 1: factor A of shape \(2, 2\) is singular.*damping"):
        grouped.solve(np.ones(12))
    assert np.isfinite(grouped.solve(np.ones(12), 0.1)).all()


@pytest.mark.parametrize("shape", [(11,), (13,), (), (1, 11), (0,), (11, 12), (12, 2, 2), (2, 6), (2, 2, 3)])
def test_vectors_of_another_size_are_refused(shape):
    words = re.escape(f"v: expected shape (12,), (12, K) or (4, …) with 12 entries, got {shape}")
    grouped = block(2, 2, 3)
    for method in (grouped.matvec, grouped.solve, grouped.__matmul__):
        with pytest.raises(ValueError, match=words):
            method(np.ones(shape))


def test_other_bad_arguments_are_those_of_one_group():
    grouped = block(2, 2, 3)
    with pytest.raises(TypeError, match="v: expected float64 as B is, got float32"):
        grouped.matvec(np.ones(12, np.float32))
    with pytest.raises(TypeError, match="v: expected a NumPy or CuPy array, got list"):
        grouped.solve([1.0] * 12)
    for damping in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="damping: expected a finite number of at least 0, got"):
            grouped.solve(np.ones(12), damping)
    with pytest.raises(TypeError):
        np.ones(12) @ grouped


def test_float32_is_kept():
    grouped, v = block(2, 2, 3, "float32"), np.ones(12, np.float32)
    results = [grouped.to_dense(), grouped.trace(), grouped.matvec(v), grouped.solve(v, 0.5), grouped]
    assert [result.dtype.name for result in results] == ["float32"] * 5


# -------------------------------------------------------------------------------------------- factors of convolutions


def depthwise():
    return [layers.Conv2d(4, 4, 2, groups=4, bias=False), layers.Tanh(), layers.Conv2d(4, 2, 1), layers.Flatten()]


CHAINS = {  # each begins with a grouped convolution
    "one axis": (lambda: [layers.Conv1d(4, 6, 2, groups=2), layers.Sigmoid(), layers.Flatten()], (4, 4)),
    "two axes": (lambda: [layers.Conv2d(4, 2, (2, 1), 2, 1, groups=2), layers.Tanh(), layers.Flatten()], (4, 3, 2)),
    "three axes": (lambda: [layers.Conv3d(2, 4, (1, 2, 1), groups=2), layers.Flatten()], (2, 1, 3, 2)),
    "depthwise": (depthwise, (4, 3, 3)),
    "frame": (lambda: [layers.Conv1d(2, 4, 3, padding=1, groups=2, padding_mode="circular"), layers.Flatten()], (2, 3)),
}


def made(name, dtype="float64"):
    make, shape = CHAINS[name]
    parts = make()
    features = np.prod(gb.Sequential(*parts).output_shape(shape))
    net = gb.Sequential(*parts, layers.Linear(int(features), 3), rng=1, dtype=dtype)
    rng = np.random.default_rng(2)
    return net, rng.standard_normal((5, *shape)).astype(dtype), rng.integers(0, 3, 5)


def asked():
    return [q.KFAC(2, TARGETS), q.KFLR(), q.KFRA()]


@pytest.mark.parametrize("engine", [gb.reference, gb.backward])
@pytest.mark.parametrize("loss", [CE, losses.CrossEntropyLoss("sum")], ids=repr)
@pytest.mark.parametrize("name", CHAINS)
def test_factors_are_their_definition(name, loss, engine):
    net, x, y = made(name)
    result, oracle = engine(net, loss, x, y, *asked()), Dense(net, loss, x, y, TARGETS)
    for key, found in result.items():
        assert largest_error(found, oracle[key]) < 1e-12, key
        assert isinstance(found["0.weight"], q.GroupedKronecker)
        assert found["0.weight"].shape == (net.parameters["0.weight"].size,) * 2


def embedded(weight, groups):
    """The weight of a convolution without groups of the same function: zero between groups."""
    outputs, inputs, *kernel = weight.shape
    wide = np.zeros((groups, outputs // groups, groups, inputs, *kernel))
    for group, part in enumerate(weight.reshape(groups, -1, inputs, *kernel)):
        wide[group, :, group] = part
    return wide.reshape(outputs, groups * inputs, *kernel)


def diagonal_blocks(matrix, groups):
    size = len(matrix) // groups
    return np.stack([matrix[i : i + size, i : i + size] for i in range(0, len(matrix), size)])


def same_function(grouped, groups, *above):
    """A grouped convolution and one without groups, each below the same layers, with the same function."""
    whole = type(grouped)(grouped.in_channels, grouped.out_channels, grouped.window.kernel)
    one, other = (gb.Sequential(first, *above, rng=1, dtype="float64") for first in (grouped, whole))
    state = one.state_dict()
    other.load_state_dict(state | {"0.weight": embedded(state["0.weight"], groups)})
    return one, other


@pytest.mark.parametrize("engine", [gb.reference, gb.backward])
@pytest.mark.parametrize("groups", [2, 4])
def test_factors_are_blocks_of_those_without_groups(groups, engine):
    above = layers.Sigmoid(), layers.Flatten(), layers.Linear(16, 3)
    one, other = same_function(layers.Conv2d(4, 4, 2, groups=groups), groups, *above)
    x, y = RNG.standard_normal((5, 4, 3, 3)), RNG.integers(0, 3, 5)
    found, want = (engine(net, CE, x, y, *asked()) for net in (one, other))
    for key in found:
        for which in "AB":
            blocks = diagonal_blocks(getattr(want[key]["0.weight"], which), groups)
            np.testing.assert_allclose(getattr(found[key]["0.weight"], which), blocks, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(found[key]["0.bias"].B, want[key]["0.bias"].B, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("engine", [gb.reference, gb.backward])
def test_factors_are_those_of_separate_convolutions(engine):
    halves = [gb.Sequential(layers.Slice(1, i, i + 2), layers.Conv1d(2, 3, 2)) for i in (0, 2)]
    grouped, apart = (
        gb.Sequential(first, layers.Tanh(), layers.Flatten(), layers.Linear(12, 3), rng=1, dtype="float64")
        for first in (layers.Conv1d(4, 6, 2, groups=2), gb.Concatenate(*halves))
    )
    names = [name for name in apart.parameters if name.startswith("0.")]
    weights, biases = ([name for name in names if name.endswith(key)] for key in ("weight", "bias"))
    state = grouped.state_dict()
    parts = dict(zip(weights, np.split(state["0.weight"], 2))) | dict(zip(biases, np.split(state["0.bias"], 2)))
    apart.load_state_dict(parts | {name: value for name, value in state.items() if name.startswith("3.")})
    x, y = RNG.standard_normal((5, 4, 3)), RNG.integers(0, 3, 5)
    found, want = (engine(net, CE, x, y, q.KFAC(2, TARGETS), q.KFLR()) for net in (grouped, apart))
    np.testing.assert_allclose(found.loss, want.loss, rtol=1e-12)
    for key in found:
        for each, name in zip(found[key]["0.weight"].blocks, weights, strict=True):
            np.testing.assert_allclose(each.A, want[key][name].A, rtol=1e-10)
            np.testing.assert_allclose(each.B, want[key][name].B, rtol=1e-10, atol=1e-14)


def flat(result):
    """All arrays, by quantity, parameter and factor."""
    return {
        (key, name, part): array
        for key, found in zip(result, values(result), strict=True)
        for name, value in found.items()
        for part, array in value.items()
        if array is not None
    }


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 1e-4)])
@pytest.mark.parametrize(
    "options",
    [{}, {"sample_block": 2}, {"column_block": 1}, {"sample_block": 1, "column_block": 2, "workers": 2}],
    ids=str,
)
@pytest.mark.parametrize("name", CHAINS)
def test_blocks_threads_and_dtypes_give_what_reference_gives(name, options, dtype, tolerance):
    wanted = asked() if not {"sample_block", "workers"} & set(options) else asked()[:2]
    net, x, y = made(name, dtype)
    want = flat(gb.reference(*[made(name)[0], CE, *made(name)[1:]], *wanted))
    found = flat(gb.backward(net, CE, x, y, *wanted, **options))
    assert found.keys() == want.keys()
    for key, array in found.items():
        assert array.dtype == dtype
        np.testing.assert_allclose(array, want[key], rtol=0, atol=tolerance * np.abs(want[key]).max(), err_msg=str(key))


@pytest.mark.parametrize("engine", [gb.reference, gb.backward])
def test_a_grouped_convolution_at_two_places(engine):
    conv = layers.Conv1d(4, 4, 3, padding=1, groups=2)
    parts = (conv, layers.Tanh(), conv, layers.Flatten(), layers.Linear(12, 3))
    net = gb.Sequential(*parts, rng=1, dtype="float64")
    x, y = RNG.standard_normal((5, 4, 3)), RNG.integers(0, 3, 5)
    result, oracle = engine(net, CE, x, y, *asked()[:2]), Dense(net, CE, x, y, TARGETS)
    for key, found in result.items():
        assert isinstance(found["0.weight"], q.GroupedKronecker)
        assert largest_error(found, oracle[key]) < 1e-12, key


def test_results_of_one_group_are_plain_blocks():
    net = gb.Sequential(layers.Conv1d(2, 2, 2, groups=1), layers.Flatten(), layers.Linear(4, 3), rng=0)
    found = gb.backward(net, CE, np.ones((2, 2, 3), np.float32), np.array([0, 1]), q.KFLR())["kflr"]
    assert {type(value) for value in found.values()} == {q.Kronecker}


def test_factors_own_their_memory():
    """B of a weight is no view of the bias's, nor one weight's group of the whole."""
    net, x, y = made("one axis")
    found = gb.backward(net, CE, x, y, q.KFLR())["kflr"]
    assert not np.shares_memory(found["0.weight"].B, found["0.bias"].B)
    found["0.weight"].B[...] = 0
    assert found["0.bias"].B.any()


def test_the_result_shows_the_factors_shapes():
    net, x, y = made("one axis")
    assert "0.weight B (2, 3, 3) ⊗ A (2, 4, 4)" in repr(gb.backward(net, CE, x, y, q.KFLR()))
