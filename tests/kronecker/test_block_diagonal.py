"""One matrix for all parameters, against the dense one."""

import numpy as np
import pytest
from drawn_blocks import Case, cases
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import block_diag

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.kronecker import BlockDiagonal, Kronecker


@given(st.lists(cases(dtypes=["float64"]), min_size=1, max_size=3), st.sampled_from([0.0, 0.3]))
def test_what_it_computes_is_that_of_the_dense_matrix(drawn, damping):
    matrix = BlockDiagonal({f"{i}.weight": case.block() for i, case in enumerate(drawn)})
    dense = block_diag(*[case.dense() for case in drawn])
    moved = dense + damping * np.eye(len(dense))
    rng = np.random.default_rng(0)
    v = {name: rng.standard_normal(case.shape) for name, case in zip(matrix.blocks, drawn)}
    flat = flattened(v)
    assert matrix.shape == dense.shape
    np.testing.assert_allclose(matrix.to_dense(), dense, atol=1e-12)
    np.testing.assert_allclose(matrix.T.to_dense(), dense.T, atol=1e-12)
    np.testing.assert_allclose(flattened(matrix @ v), dense @ flat, atol=1e-10)
    np.testing.assert_allclose(flattened(matrix.diagonal()), dense.diagonal(), atol=1e-12)
    np.testing.assert_allclose(matrix.trace(), dense.trace(), rtol=1e-10)
    np.testing.assert_allclose(matrix.frobenius_norm(), np.linalg.norm(dense), rtol=1e-10)
    np.testing.assert_allclose(matrix.logdet(damping), np.linalg.slogdet(moved)[1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose((matrix**-1).to_dense(), np.linalg.inv(dense), atol=1e-9)
    np.testing.assert_allclose(matrix.damped(damping, "exact").to_dense(), moved, atol=1e-12)
    np.testing.assert_allclose(matrix.inverse(damping, "exact").to_dense(), np.linalg.inv(moved), atol=1e-9)
    np.testing.assert_allclose(
        flattened(matrix.solve(v, damping, method="exact")), np.linalg.solve(moved, flat), atol=1e-8
    )
    for name, part in matrix.solve(v, damping).items():
        assert part.shape == v[name].shape
        np.testing.assert_array_equal(part, matrix.blocks[name].solve(v[name], damping))


def flattened(v):
    return np.concatenate([part.ravel() for part in v.values()])


def test_a_result_of_a_sweep_and_its_gradient():
    net = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((6, 3)), np.array([0, 1, 1, 0, 1, 0])
    result = gb.backward(net, losses.CrossEntropyLoss(), x, y, q.KFLR())
    matrix = BlockDiagonal(result["kflr"])
    step = matrix.inverse(0.1) @ result.gradient
    for name, gradient in result.gradient.items():
        np.testing.assert_allclose(step[name], result["kflr"][name].solve(gradient, 0.1), rtol=1e-9)


def test_a_gradient_of_any_number_of_axes_is_taken_in_its_shape():
    parts = layers.LayerNorm((2, 3)), layers.RMSNorm((2, 3)), layers.Flatten(), layers.Linear(6, 2)
    net, x = gb.Sequential(*parts, rng=0, dtype="float64"), np.random.default_rng(0).standard_normal((4, 2, 3))
    result = gb.backward(net, losses.MSELoss(), x, np.zeros((4, 2)), q.KFLR())
    matrix, flat = BlockDiagonal(result["kflr"]), flattened(result.gradient)
    moved = matrix.to_dense() + 0.3 * np.eye(len(flat))
    np.testing.assert_allclose(flattened(matrix @ result.gradient), matrix.to_dense() @ flat, atol=1e-12)
    found = matrix.solve(result.gradient, 0.3, method="exact")
    np.testing.assert_allclose(flattened(found), np.linalg.solve(moved, flat), atol=1e-12)
    assert {name: part.shape for name, part in found.items()} == net.parameter_shapes()


def test_errors_name_the_parameter():
    matrix = BlockDiagonal({"0.weight": Kronecker(np.eye(2), np.eye(3)), "0.bias": Kronecker(None, np.zeros((2, 2)))})
    with pytest.raises(np.linalg.LinAlgError, match=r"^0.bias: factor B of shape \(2, 2\) is singular"):
        matrix.inverse()
    with pytest.raises(ValueError, match=r"^0.weight: damping: expected"):
        matrix.logdet(-1)
    with pytest.raises(ValueError, match=r"^0.bias: v: expected shape \(2,\)"):
        matrix @ {"0.weight": np.ones(6), "0.bias": np.ones(3)}
    with pytest.raises(ValueError, match=r"v: expected arrays for \['0.weight', '0.bias'\], got \['0.weight'\]"):
        matrix @ {"0.weight": np.ones(6)}
    with pytest.raises(TypeError, match="v: expected a dictionary of arrays by parameter name, got ndarray"):
        matrix.solve(np.ones(8))
    block = matrix.blocks["0.weight"]
    with pytest.raises(AttributeError, match=r"^0.weight: 'SumOfBlocks' object has no attribute 'inverse'"):
        BlockDiagonal({"0.weight": block + block}).inverse(0.1)


def test_what_are_no_blocks_is_named():
    block = Kronecker(None, np.eye(2))
    for blocks, kind, words in (
        ({"a": block, "b": np.eye(2)}, TypeError, "block b: expected a block of gb.kronecker, got ndarray"),
        (
            {"a": block, "b": Kronecker(None, np.eye(2, dtype="float32"))},
            TypeError,
            "block b: expected float64 as block a",
        ),
        ([block], TypeError, "blocks: expected blocks by parameter name, got list"),
        ({}, ValueError, "blocks: expected at least one, got none"),
    ):
        with pytest.raises(kind, match=words):
            BlockDiagonal(blocks)


def test_it_computes_where_the_blocks_lie(double):
    case = Case("plain", 1, 3, 2, 2, False, True, "float64", 0)
    host = BlockDiagonal({"a": case.block(), "b": case.block()})
    at = {"A": gb.asarray(case.block().A, "cuda:1"), "B": gb.asarray(case.block().B, "cuda:1")}
    there = BlockDiagonal({"a": Kronecker(**at, channels_first=2), "b": Kronecker(**at, channels_first=2)})
    v = gb.asarray(np.ones(case.shape), "cuda:1")
    np.testing.assert_allclose(gb.asnumpy((there @ {"a": v, "b": v})["b"]), (host @ {"a": v.get(), "b": v.get()})["b"])
    for call in (BlockDiagonal.to_dense, BlockDiagonal.trace, BlockDiagonal.frobenius_norm, BlockDiagonal.logdet):
        np.testing.assert_allclose(gb.asnumpy(call(there)), call(host), rtol=1e-10)
    np.testing.assert_allclose(gb.asnumpy((there**-0.5).to_dense()), (host**-0.5).to_dense(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite(value):
    matrix = BlockDiagonal({"0.weight": Kronecker(np.eye(2), np.eye(3)), "0.bias": Kronecker(None, np.eye(2))})
    wrong = np.array([1, value])
    v = {"0.weight": np.ones((3, 2)), "0.bias": wrong}
    for call in (lambda: matrix @ v, lambda: matrix.solve(v, 1.0), lambda: matrix.solve(v, 1.0, method="exact")):
        with pytest.raises(ValueError, match=r"^0.bias: v: expected finite numbers, got NaN or infinity"):
            call()
    with pytest.raises(ValueError, match=r"^v: expected finite numbers"):
        (matrix.blocks["0.bias"] + matrix.blocks["0.bias"]) @ wrong
