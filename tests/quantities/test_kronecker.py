"""Kronecker results against dense matrices."""

import re

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

RNG = np.random.default_rng(11)
SIZES = pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 2), (2, 5)])


def factor(size, rank=None, dtype="float64"):
    """A random symmetric positive semi-definite matrix."""
    root = RNG.standard_normal((size, rank or size + 3))
    return (root @ root.T).astype(dtype)


def block(rows, columns, dtype="float64"):
    return q.Kronecker(factor(columns, dtype=dtype), factor(rows, dtype=dtype))


def damped(kronecker, damping):
    """The paper's damped block: each factor with its share of √λ."""
    a, b = kronecker.A, kronecker.B
    pi = ((np.trace(a) / len(a)) / (np.trace(b) / len(b))) ** 0.5
    root = damping**0.5
    return np.kron(b + root / pi * np.eye(len(b)), a + root * pi * np.eye(len(a)))


# ----------------------------------------------------------------------------------------------------- the block itself


@SIZES
def test_to_dense_matvec_and_trace(rows, columns):
    kronecker = block(rows, columns)
    dense = np.kron(kronecker.B, kronecker.A)
    assert kronecker.shape == dense.shape
    np.testing.assert_allclose(kronecker.to_dense(), dense, rtol=1e-14)
    np.testing.assert_allclose(kronecker.trace(), np.trace(dense), rtol=1e-12)
    v = RNG.standard_normal((rows, columns))
    np.testing.assert_allclose(kronecker.matvec(v.ravel()), dense @ v.ravel(), rtol=1e-10)
    np.testing.assert_array_equal(kronecker.matvec(v).ravel(), kronecker.matvec(v.ravel()))


def test_asymmetric_factors_show_the_order_of_the_entries():
    kronecker = q.Kronecker(RNG.standard_normal((3, 3)), RNG.standard_normal((2, 2)))
    v = RNG.standard_normal((2, 3))
    np.testing.assert_allclose(kronecker.matvec(v).ravel(), np.kron(kronecker.B, kronecker.A) @ v.ravel(), rtol=1e-12)
    assert kronecker.to_dense()[0, 4] == kronecker.B[0, 1] * kronecker.A[0, 1]  # entry (0, 0) against entry (1, 1)


def test_a_bias_has_one_factor():
    bias, v = q.Kronecker(None, factor(4)), RNG.standard_normal(4)
    np.testing.assert_array_equal(bias.to_dense(), bias.B)
    assert bias.to_dense() is not bias.B
    np.testing.assert_allclose(bias.matvec(v), bias.B @ v, rtol=1e-14)
    assert bias.trace() == np.trace(bias.B)
    assert bias.shape == (4, 4)


KINDS_OF_V = pytest.mark.parametrize("shape", [(6,), (3, 2), (3, 2, 1), (6, 1), (6, 4), (6, 6)])


@KINDS_OF_V
def test_the_block_times_a_vector_a_parameter_or_a_matrix(shape):
    kronecker, v = block(3, 2), RNG.standard_normal(shape)
    product = kronecker @ v
    assert product.shape == shape
    np.testing.assert_allclose(product.reshape(6, -1), kronecker.to_dense() @ v.reshape(6, -1), rtol=1e-10, atol=1e-12)


@KINDS_OF_V
def test_solve_takes_what_the_product_takes(shape):
    kronecker, v = block(3, 2), RNG.standard_normal(shape)
    solution = kronecker.solve(v, 0.3)
    assert solution.shape == shape
    want = np.linalg.solve(damped(kronecker, 0.3), v.reshape(6, -1))
    np.testing.assert_allclose(solution.reshape(6, -1), want, rtol=1e-8)


def test_a_biass_block_times_a_matrix():
    bias, v = q.Kronecker(None, factor(4)), RNG.standard_normal((4, 7))
    np.testing.assert_allclose(bias @ v, bias.B @ v, rtol=1e-14)
    np.testing.assert_allclose(bias.B @ bias.solve(v), v, rtol=1e-8, atol=1e-10)


# -------------------------------------------------------------------------------------------------------------- solving


@SIZES
def test_solve_without_damping_inverts_the_block(rows, columns):
    kronecker, v = block(rows, columns), RNG.standard_normal(rows * columns)
    np.testing.assert_allclose(kronecker.solve(v), np.linalg.solve(kronecker.to_dense(), v), rtol=1e-8)
    np.testing.assert_allclose(kronecker.matvec(kronecker.solve(v)), v, rtol=1e-8)


@SIZES
@pytest.mark.parametrize("damping", [1e-3, 1.0, 1e3])
def test_solve_inverts_the_damped_factors(rows, columns, damping):
    kronecker, v = block(rows, columns), RNG.standard_normal((rows, columns))
    want = np.linalg.solve(damped(kronecker, damping), v.ravel()).reshape(v.shape)
    np.testing.assert_allclose(kronecker.solve(v, damping), want, rtol=1e-8)


def test_damping_of_the_factors_is_not_damping_of_the_block():
    kronecker, v = block(3, 2), RNG.standard_normal(6)
    whole = np.linalg.solve(kronecker.to_dense() + np.eye(6), v)
    assert not np.allclose(kronecker.solve(v, 1.0), whole, rtol=1e-2)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_pi_makes_the_scales_of_the_factors_irrelevant(scale):
    kronecker, v = block(3, 2), RNG.standard_normal(6)
    other = q.Kronecker(kronecker.A * scale, kronecker.B / scale)  # the same block
    np.testing.assert_allclose(other.solve(v, 0.5), kronecker.solve(v, 0.5), rtol=1e-8)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_solve_of_a_bias_damps_plainly(damping):
    bias, v = q.Kronecker(None, factor(4)), RNG.standard_normal(4)
    np.testing.assert_allclose(bias.solve(v, damping), np.linalg.solve(bias.B + damping * np.eye(4), v), rtol=1e-8)


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
]


@pytest.mark.parametrize(("kronecker", "words"), SINGULAR)
def test_singular_blocks_are_refused_until_damped(kronecker, words):
    v = RNG.standard_normal(kronecker.shape[0])
    with pytest.raises(np.linalg.LinAlgError, match=re.escape(words) + ".*singular.*damping"):
        kronecker.solve(v)
    assert np.isfinite(kronecker.solve(v, 0.1)).all()


@pytest.mark.parametrize("damping", [-1e-9, -1.0, float("nan"), float("inf")])
def test_damping_is_finite_and_not_negative(damping):
    for kronecker in (block(3, 2), q.Kronecker(None, factor(6))):
        with pytest.raises(ValueError, match="damping: expected a finite number of at least 0, got"):
            kronecker.solve(np.ones(6), damping)


@pytest.mark.parametrize("shape", [(5,), (7,), (), (1, 5), (0,), (5, 6), (6, 2, 2)])
def test_vectors_of_another_size_are_refused(shape):
    for kronecker in (block(3, 2), q.Kronecker(None, factor(6)), q.Kronecker(None, factor(1)), block(1, 1)):
        d = kronecker.shape[0]
        if shape and (int(np.prod(shape)) == d or shape == (d, 5)):
            continue
        words = re.escape(f"v: expected shape ({d},), ({d}, K) or (") + ".*" + re.escape(f"got {shape}")
        for method in (kronecker.matvec, kronecker.solve, kronecker.__matmul__):
            with pytest.raises(ValueError, match=words):
                method(np.ones(shape))


def test_float32_is_kept():
    for kronecker in (block(3, 2, "float32"), q.Kronecker(None, factor(6, dtype="float32"))):
        v = np.ones(6, np.float32)
        results = [kronecker.to_dense(), kronecker.trace(), kronecker.matvec(v), kronecker.solve(v, 0.5), kronecker]
        assert [result.dtype.name for result in results] == ["float32"] * 5


# ---------------------------------------------------------------------------------------------------- from a real sweep


@pytest.mark.parametrize("quantity", [q.KFAC(2), q.KFLR(), q.KFRA()], ids=repr)
def test_results_of_a_sweep_take_gradients_in_the_parameters_shape(quantity):
    network = gb.Sequential(
        layers.Conv2d(2, 3, 2), layers.Tanh(), layers.Flatten(), layers.Linear(12, 2), rng=0, dtype="float64"
    )
    x, y = RNG.standard_normal((4, 2, 3, 3)), np.array([0, 1, 1, 0])
    result = gb.backward(network, losses.CrossEntropyLoss(), x, y, quantity, rng=0)
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
    conv = gb.Sequential(layers.Conv2d(2, 3, (2, 3)), layers.Flatten(), rng=0, dtype="float64")
    linear = gb.Sequential(layers.Flatten(), layers.Linear(12, 3), rng=0, dtype="float64")
    weight, bias = conv.parameters.values()
    linear.load_state_dict({"1.weight": weight.reshape(3, 12), "1.bias": bias})
    x, y = RNG.standard_normal((4, 2, 2, 3)), np.array([0, 1, 2, 0])
    one, other = (gb.backward(network, losses.CrossEntropyLoss(), x, y, q.KFLR()) for network in (conv, linear))
    np.testing.assert_allclose(one["kflr"]["0.weight"].A, other["kflr"]["1.weight"].A, rtol=1e-12)
    np.testing.assert_allclose(one["kflr"]["0.weight"].B, other["kflr"]["1.weight"].B, rtol=1e-12)


def test_a_weight_and_its_bias_have_factors_of_their_own():
    network = gb.Sequential(layers.Linear(4, 3), layers.Tanh(), layers.Linear(3, 2), rng=0)
    x, y = RNG.standard_normal((5, 4)).astype("float32"), np.array([0, 1, 1, 0, 1])
    for quantity in (q.KFAC(), q.KFLR(), q.KFAC(fisher="empirical")):
        found = gb.backward(network, losses.CrossEntropyLoss(), x, y, quantity, rng=0)[quantity]
        for layer in "02":
            weight, bias = found[f"{layer}.weight"].B, found[f"{layer}.bias"].B
            np.testing.assert_array_equal(weight, bias)
            assert not np.shares_memory(weight, bias)


def test_a_cap_below_the_damping_is_in_force():
    block, v = q.Kronecker(None, np.diag([1e-9, 10.0])), np.ones(2)
    # without the cap 1/(b + 0.5): 2 and 0.095; none may exceed a quarter
    np.testing.assert_allclose(block.solve(v, damping=0.5, cap=0.25), [0.25, 1 / 10.5], rtol=1e-12)
