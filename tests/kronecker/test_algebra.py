"""The algebra of blocks in Kronecker form against dense matrices."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_blocks import cases, spd
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import fractional_matrix_power
from scipy.sparse.linalg import cg

import gbackprop as gb
from gbackprop.kronecker import BlockDiagonal, EigenKronecker, GroupedKronecker, Kronecker, SumOfBlocks

FACTORED = ("plain", "grouped")
DAMPING = st.sampled_from([0.0, 1e-2, 0.7])


def close(case, found, want):
    assert found.dtype == case.dtype
    np.testing.assert_allclose(found, want, rtol=case.tolerance, atol=case.tolerance * max(1, np.abs(want).max()))


def damped_factors(case, damping):
    """The matrices of groups with factored damping: each factor with its share of √λ."""
    a, b = case.factors()
    if a is None:
        return [b[0] + damping * np.eye(case.outputs)]
    found = []
    for one, other in zip(a, b):
        pi = np.sqrt((np.trace(one) / len(one)) / (np.trace(other) / len(other)))
        shifts = np.sqrt(damping) / pi * np.eye(len(other)), pi * np.sqrt(damping) * np.eye(len(one))
        found.append(np.kron(other + shifts[0], one + shifts[1]))
    return found


# ------------------------------------------------------------------------------------------------- linear in the block


def check_linear(case, block, dense, columns=2):
    """Whatever asks for no eigenvalues: products, transposes, diagonals, traces and norms."""
    d, rng = len(dense), np.random.default_rng(case.seed)
    assert block.shape == (d, d)
    close(case, block.to_dense(), dense)
    close(case, block.T.to_dense(), dense.T)
    close(case, block.diagonal(), dense.diagonal())
    close(case, block.trace(), dense.trace())
    close(case, block.frobenius_norm(), np.linalg.norm(dense))
    for shape in ((d,), (d, columns), case.shape):
        v = rng.standard_normal(shape).astype(case.dtype)
        assert (block @ v).shape == shape
        close(case, (block @ v).reshape(d, -1), dense @ v.reshape(d, -1))
        close(case, (block.T @ v).reshape(d, -1), dense.T @ v.reshape(d, -1))


@given(cases(), st.integers(1, 3))
def test_products_diagonal_trace_and_norm(case, columns):
    check_linear(case, case.block(), case.dense(), columns)


@given(cases(FACTORED, dtypes=["float64"]))
def test_factors_that_are_not_symmetric(case):
    """Whatever does not ask for eigenvalues is true of any factors, and shows the order of the entries."""
    rng, block = np.random.default_rng(case.seed), case.block()
    a, b = (None if part is None else rng.standard_normal(part.shape) for part in (block.A, block.B))
    block = replace(block, A=a, B=b)
    groups = list(
        zip(
            [None] * case.groups if a is None else a.reshape(case.groups, *a.shape[-2:]),
            b.reshape(case.groups, *b.shape[-2:]),
        )
    )
    dense = case.in_order([other if one is None else np.kron(other, one) for one, other in groups])
    v = rng.standard_normal(case.shape)
    check_linear(case, block, dense)
    close(case, (block + block.T).frobenius_norm(), np.linalg.norm(dense + dense.T))
    operator = block.as_linear_operator()
    close(case, operator.T @ v.ravel(), dense.T @ v.ravel())
    close(case, operator.T @ v.reshape(-1, 1), dense.T @ v.reshape(-1, 1))


@given(cases(), st.sampled_from([2, -0.5, np.float64(3.0), np.float32(0.25)]))
def test_multiples_stay_in_their_class(case, factor):
    block, dense = case.block(), case.dense()
    for found, want in (
        (factor * block, factor * dense),
        (block * factor, factor * dense),
        (block / factor, dense / factor),
        (-block, -dense),
    ):
        assert type(found) is type(block)
        close(case, found.to_dense(), want)


@st.composite
def pairs(draw):
    """Blocks of one parameter, in any two forms."""
    one = draw(cases())
    grouped = one.kind.startswith("grouped")
    kinds = ("grouped", "grouped eigen") if grouped else ("plain", "eigen")
    kinds += ("plain", "eigen") if one.groups == 1 and not one.bias else ()
    return one, replace(one, kind=draw(st.sampled_from(kinds)), seed=one.seed + 7)


@given(pairs())
def test_sums_are_exact(pair):
    one, other = pair
    total, dense = one.block() + 2 * other.block() - one.block() / 4, 0.75 * one.dense() + 2 * other.dense()
    assert isinstance(total, SumOfBlocks)
    assert len(total.terms) == 3
    check_linear(one, total, dense)
    close(one, (-2 * total).T.to_dense(), -2 * dense.T)


@pytest.mark.parametrize(("dtype", "step"), [("float32", 1e-5), ("float64", 1e-11)])
@pytest.mark.parametrize("groups", [(), (3,)])
def test_the_norm_of_a_difference_of_near_blocks(groups, dtype, step):
    """Squares over pairs of terms cancel: the norm was NaN or 0, or 30 times too large."""
    rng = np.random.default_rng(0)
    kind = GroupedKronecker if groups else Kronecker
    a, b = (rng.standard_normal((*groups, n, n)).astype(dtype) for n in (6, 4))
    near = (a * (1 + step * rng.standard_normal(a.shape))).astype(dtype)
    difference = kind(near, b) - kind(a, b)
    exact = kind((near.astype("float64") - a), b.astype("float64")).frobenius_norm()
    assert difference.frobenius_norm().dtype == dtype
    np.testing.assert_allclose(difference.frobenius_norm(), exact, rtol=1e-3)
    qa, qb = (np.broadcast_to(np.eye(n, dtype=dtype), (*groups, n, n)) for n in (6, 4))
    mixed = difference + EigenKronecker(qa, qb, np.zeros((*groups, 4, 6), dtype))
    np.testing.assert_allclose(mixed.frobenius_norm(), exact, rtol=1e-3, atol=1e-6 if dtype == "float64" else 0)


def test_norms_of_integers_and_of_grouped_blocks_with_and_without_inputs():
    whole = Kronecker(np.eye(3, dtype=int), np.eye(2, dtype=int))
    for each, factor in ((whole, 1), (whole + whole, 2), (BlockDiagonal({"0.weight": whole}), 1)):
        np.testing.assert_allclose(each.frobenius_norm(), factor * 6**0.5, rtol=1e-12)
    grouped = GroupedKronecker(None, np.ones((3, 2, 2))) + GroupedKronecker(np.ones((3, 1, 1)), np.ones((3, 2, 2)))
    np.testing.assert_allclose(grouped.frobenius_norm(), 2 * 12**0.5, rtol=1e-12)


def test_factors_of_integers_are_those_of_float64_and_other_dtypes_are_refused():
    a, b, v = np.array([[2, 1], [1, 2]]), np.array([[3, 1], [1, 3]]), np.array([0.5, 0.25, -0.75, 0.9])
    for left, right in ((a, b), (None, b)):
        whole = Kronecker(left, right)
        floats = Kronecker(None if left is None else left.astype("float64"), right.astype("float64"))
        for value in (
            lambda each: each.as_linear_operator() @ v[: each.shape[0]],
            lambda each: each.damped(0.3).to_dense(),
            lambda each: each.inverse(0.9).to_dense(),
            lambda each: each.det(),
            lambda each: (0.5 * each).to_dense(),
        ):
            np.testing.assert_array_equal(value(whole), value(floats))
    stacked = GroupedKronecker(a[None], b[None])
    np.testing.assert_array_equal(stacked.damped(0.3).to_dense(), Kronecker(a, b).damped(0.3).to_dense())
    for dtype in ("float16", "complex128"):
        with pytest.raises(TypeError, match=f"B: expected float32 or float64, got {dtype}"):
            Kronecker(None, b.astype(dtype)).to_dense()


@pytest.mark.parametrize("of_b", [0, 0.5, 1])
@pytest.mark.parametrize("scale", [1e-260, 1e-173, 1e200])
def test_norms_in_float64_whose_squares_are_beyond_its_range(scale, of_b):
    block = Kronecker(scale ** (1 - of_b) * np.eye(3), scale**of_b * np.eye(2))
    eigen = block.eigh()
    for each, factor in ((block, 1), (eigen, 1), (block + block, 2), (block + 2 * eigen, 3)):
        np.testing.assert_allclose(each.frobenius_norm() / scale, factor * 6**0.5, rtol=1e-14)
    pair = BlockDiagonal({"0.weight": block, "1.weight": 2 * block})
    np.testing.assert_allclose(pair.frobenius_norm() / scale, 30**0.5, rtol=1e-14)


def test_the_norm_of_a_block_with_a_factor_of_zeros():
    """Units that are dead for all samples have A = 0."""
    dead, other = Kronecker(np.zeros((3, 3)), np.eye(2)), Kronecker(np.eye(3), np.eye(2))
    assert dead.frobenius_norm() == (dead + dead).frobenius_norm() == (dead - 2 * dead.eigh()).frobenius_norm() == 0
    np.testing.assert_allclose((dead + other).frobenius_norm(), 6**0.5, rtol=1e-14)
    np.testing.assert_allclose(BlockDiagonal({"a": dead, "b": other}).frobenius_norm(), 6**0.5, rtol=1e-14)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_norm_of_a_difference_from_eigenvectors_in_float32(sign):
    """They are orthogonal to 1e-7 alone; the norm is that of the matrix that they give."""
    rng = np.random.default_rng(0)
    qa, qb = (np.linalg.qr(rng.standard_normal((n, n)))[0].astype("float32") for n in (6, 4))
    eigen = EigenKronecker(qa * np.float32(1 + sign * 1e-6), qb, rng.uniform(size=(4, 6)).astype("float32"))
    assert (eigen - 1.0 * eigen).frobenius_norm() == 0
    product = Kronecker(rng.standard_normal((6, 6)).astype("float32"), rng.standard_normal((4, 4)).astype("float32"))
    for other in (EigenKronecker(qa, qb, eigen.eigenvalues), product):
        exact = np.linalg.norm(eigen._in_double().to_dense() - other._in_double().to_dense())
        np.testing.assert_allclose((eigen - other).frobenius_norm(), exact, rtol=1e-6, atol=2e-8)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e30])
def test_norms_in_float32_whose_squares_are_beyond_its_range(scale):
    block = Kronecker(np.eye(3, dtype="float32") / np.float32(scale), np.eye(2, dtype="float32") * np.float32(scale))
    np.testing.assert_allclose(block.frobenius_norm(), 6**0.5, rtol=1e-6)
    bias = Kronecker(None, np.eye(2, dtype="float32") * np.float32(scale))
    for each in (bias, bias + bias - bias, BlockDiagonal({"0.bias": bias})):
        np.testing.assert_allclose(each.frobenius_norm(), scale * 2**0.5, rtol=1e-6)


@given(cases(dtypes=["float64"]))
def test_a_linear_operator_is_the_block(case):
    operator, dense = case.block().as_linear_operator(), case.dense()
    v = np.random.default_rng(case.seed).standard_normal((len(dense), 2))
    close(case, operator @ v, dense @ v)
    close(case, operator @ v[:, :1], dense @ v[:, :1])
    close(case, operator.T @ v[:, 0], dense @ v[:, 0])
    close(case, operator @ np.ones(len(dense), int), dense.sum(1))
    close(case, operator @ np.ones(len(dense), bool), dense.sum(1))
    np.testing.assert_allclose(operator @ (v + 1j), dense @ (v + 1j), rtol=1e-9, atol=1e-10)
    solution, failed = cg(operator, v[:, 0], rtol=1e-12)
    assert failed == 0
    np.testing.assert_allclose(dense @ solution, v[:, 0], rtol=1e-7, atol=1e-8)


# ------------------------------------------------------------------------------------------------------- eigenvalues


@given(cases(), DAMPING)
def test_determinants_and_eigenvalues(case, damping):
    block, dense = case.block(), case.dense()
    sign, logdet = np.linalg.slogdet(dense + damping * np.eye(len(dense)))
    assert sign == 1
    close(case, block.logdet(damping), logdet)
    close(case, block.det() / np.linalg.det(dense).astype(case.dtype), 1.0)
    close(case, block.eigvalsh(), np.linalg.eigvalsh(dense))
    eigen = block.eigh()
    assert isinstance(eigen, EigenKronecker)
    close(case, eigen.to_dense(), dense)
    close(case, np.sort(eigen.eigenvalues.ravel()), np.linalg.eigvalsh(dense))


@given(cases(), DAMPING)
def test_the_exact_inverse_and_solution(case, damping):
    block, dense = case.block(), case.dense()
    inverse, want = block.inverse(damping, "exact"), np.linalg.inv(dense + damping * np.eye(len(dense)))
    assert isinstance(inverse, EigenKronecker)
    close(case, inverse.to_dense(), want)
    close(case, block.damped(damping, "exact").to_dense(), dense + damping * np.eye(len(dense)))
    v = np.random.default_rng(case.seed).standard_normal(case.shape).astype(case.dtype)
    solution = block.solve(v, damping, method="exact")
    assert solution.shape == v.shape
    close(case, solution.ravel(), want @ v.ravel())
    close(case, block.solve(v, damping, cap=1e3, method="exact").ravel(), want @ v.ravel())


@given(cases(FACTORED), DAMPING)
def test_the_factored_inverse_is_a_block_of_the_same_class(case, damping):
    block, damped = case.block(), case.in_order(damped_factors(case, damping))
    inverse = block.inverse(damping)
    assert type(inverse) is type(block)
    close(case, inverse.to_dense(), np.linalg.inv(damped))
    close(case, block.damped(damping).to_dense(), damped)
    np.testing.assert_allclose(inverse.to_dense() @ damped, np.eye(len(damped)), atol=10 * case.tolerance)
    for factor in (inverse.A, inverse.B):
        if factor is not None:
            np.testing.assert_array_equal(factor, factor.swapaxes(-1, -2))
    v = np.random.default_rng(case.seed).standard_normal(case.shape).astype(case.dtype)
    close(case, inverse @ v, block.solve(v, damping))
    close(case, block.solve(v, damping, cap=1e9), block.solve(v, damping))


@given(cases(), st.sampled_from([0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7]))
def test_powers(case, p):
    block, dense = case.block(), case.dense()
    power = block**p
    assert type(power) is type(block)
    close(case, power.to_dense(), fractional_matrix_power(dense, p).real)
    close(case, block.power(p).to_dense(), power.to_dense())


@given(cases(singular=True), st.sampled_from([1, 2, 0.5]))
def test_roots_of_singular_blocks(case, p):
    root = case.block() ** (1 / p)
    tolerance = 1e-7 if case.dtype == "float64" else 2e-3  # the root of a rounding error
    np.testing.assert_allclose((root**p).to_dense(), case.dense(), atol=tolerance)


# ------------------------------------------------------------------------------------------------------ singular blocks

INVERTING = {
    "inverse": lambda block: block.inverse(),
    "exact inverse": lambda block: block.inverse(0, "exact"),
    "power": lambda block: block**-0.5,
    "integer power": lambda block: block**-1,
    "logdet": lambda block: block.logdet(),
    "solve": lambda block: block.solve(np.ones(block.shape[0], block.dtype), method=block.methods[0]),
    "exact solve": lambda block: block.solve(np.ones(block.shape[0], block.dtype), method="exact"),
}


@pytest.mark.parametrize("name", INVERTING)
@given(case=cases(singular=True))
def test_singular_blocks_are_refused_by_the_name_of_the_factor(name, case):
    block = case.block()
    words = "factor B of shape" if case.kind in FACTORED else "the block of shape"
    words = rf"{words} \(\d+, \d+\) is singular within the rounding of {case.dtype} .*damping"
    with pytest.raises(np.linalg.LinAlgError, match=words):
        INVERTING[name](block)


@given(cases(singular=True), st.sampled_from(["exact", None]))
def test_damping_makes_them_regular(case, method):
    block = case.block()
    inverse = block.inverse(0.1, method)
    product = inverse.to_dense().astype("float64") @ block.damped(0.1, method).to_dense()
    np.testing.assert_allclose(product, np.eye(len(product)), atol=10 * case.tolerance)
    assert np.isfinite(block.logdet(0.1))
    scale = float(np.prod(np.linalg.eigvalsh(case.dense()) + 1))
    assert abs(block.det()) <= 10 * case.tolerance * scale


def test_the_group_of_a_singular_factor_is_named():
    a, b = np.stack([np.eye(2)] * 3), np.stack([np.eye(2), np.eye(2), np.diag([1.0, 0.0])])
    for call in (INVERTING["inverse"], INVERTING["exact inverse"], INVERTING["power"], INVERTING["logdet"]):
        with pytest.raises(np.linalg.LinAlgError, match=r"group 2: factor B of shape \(2, 2\) is singular"):
            call(GroupedKronecker(a, b))


@pytest.mark.parametrize("call", [INVERTING["inverse"], INVERTING["power"], lambda block: block**0.5])
def test_what_is_not_positive_is_refused(call):
    for block in (Kronecker(np.eye(2), np.diag([1.0, -1.0])), EigenKronecker(None, np.eye(2), np.array([1.0, -1.0]))):
        with pytest.raises(np.linalg.LinAlgError, match=r"is not positive semi-definite \(eigenvalues -1 to 1\)"):
            call(block)


def test_integer_powers_take_any_symmetric_block():
    block = Kronecker(np.diag([2.0, -1.0]), np.diag([1.0, -3.0]))
    np.testing.assert_allclose((block**3).to_dense(), np.linalg.matrix_power(block.to_dense(), 3), rtol=1e-12)
    assert block.det() == pytest.approx(np.linalg.det(block.to_dense()))


@pytest.mark.parametrize("damping", [1e-14, 1e-12])
def test_a_damping_above_rounding_is_enough(damping):
    """A singular factor, of which rounding may leave eigenvalues of either sign."""
    root = np.random.default_rng(0).standard_normal((12, 3))
    bias = Kronecker(None, root @ root.T / np.linalg.norm(root, 2) ** 2)
    for inverse in (bias.inverse(damping), bias.inverse(damping, "exact")):
        found = np.linalg.eigvalsh(inverse.to_dense())
        assert found.min() > 0
        assert found.max() == pytest.approx(1 / damping, rel=0.2)


@pytest.mark.parametrize("size", [30, 300])
def test_large_singular_factors_in_float32(size, monkeypatch):
    """Factors of a few samples, as a sweep gives them: the damped inverse takes no eigenvalues, and is as exact."""
    rng = np.random.default_rng(1)
    a, b = (root @ root.T / 20 for root in (rng.random((size, 20)), 1e-3 * rng.standard_normal((size // 3, 20))))
    block = Kronecker(a.astype("float32"), b.astype("float32"))
    exact = Kronecker(block.A.astype("float64"), block.B.astype("float64"))
    want = exact.damped(1e-3)
    monkeypatch.setattr(np.linalg, "eigh", None)
    inverse = block.inverse(1e-3)
    for found, factor in ((inverse.A, want.A), (inverse.B, want.B)):
        assert found.dtype == "float32"
        np.testing.assert_allclose(found @ factor, np.eye(len(factor)), atol=2e-3)


def test_where_rounding_ends():
    """Of 100 eigenvalues, the largest 1: 100 ε without damping, and 10 ε of the damping."""
    eps = np.finfo(float).eps
    for damping, value, fine in ((0, 90, False), (0, 110, True), (9 * eps, 0, False), (11 * eps, 0, True)):
        for block in (
            EigenKronecker(None, np.eye(100), np.append(np.ones(99), value * eps)),
            Kronecker(None, np.diag(np.append(np.ones(99), value * eps))),
        ):
            if fine:
                assert block.inverse(damping).trace() == pytest.approx(99 + 1 / (value * eps + damping), rel=1e-6)
                continue
            for method in block.methods:
                with pytest.raises(np.linalg.LinAlgError, match="singular within the rounding of float64"):
                    block.inverse(damping, method)


def test_a_regular_factor_whose_norms_do_not_show_that_is_inverted():
    q, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 60)))
    factor = q * np.geomspace(1, 10**-13.5, 60) @ q.T
    block = Kronecker(None, (factor + factor.T) / 2)
    np.testing.assert_allclose(block.inverse().B @ factor, np.eye(60), atol=0.01)


def test_a_damping_that_leaves_an_eigenvalue_negative_is_not_enough():
    plain = Kronecker(None, np.diag([1.0, -1.0]))
    grouped = GroupedKronecker(np.ones((2, 1, 1)), np.stack([np.eye(2), np.diag([1.0, -1.0])]))
    for block in (plain, plain.eigh(), grouped):
        for method in block.methods:
            with pytest.raises(np.linalg.LinAlgError, match="is not positive semi-definite"):
                block.inverse(0.5, method)
            with pytest.raises(np.linalg.LinAlgError, match="is not positive semi-definite"):
                block.logdet(0.5)


def test_a_group_that_rounding_made_indefinite_is_still_solved():
    """As of one group: the cap is of the eigenvalues then, and not of what a factorization makes of them."""
    b = np.stack([np.eye(2), np.diag([1.0, -2e-4])])
    block = GroupedKronecker(np.ones((2, 1, 1)), b)
    solved = block.solve(np.ones(4), 1e-8, cap=1e3)
    pi = (2 / np.trace(b, axis1=1, axis2=2)) ** 0.5
    shifts = 1e-4 / pi
    inverse = [1 / np.maximum(np.diag(part) + shift, 1e-3) for part, shift in zip(b, shifts)]
    np.testing.assert_allclose(solved, np.ravel(inverse) / (1 + 1e-4 * np.repeat(pi, 2)), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_scales_of_the_factors_do_not_matter_in_float32(scale):
    rng = np.random.default_rng(0)
    a, b, v = spd(rng, 3), spd(rng, 2), rng.standard_normal(6).astype("float32")
    one = Kronecker(a.astype("float32"), b.astype("float32"))
    other = Kronecker((a * scale).astype("float32"), (b / scale).astype("float32"))
    np.testing.assert_allclose(other.solve(v, 0.3), one.solve(v, 0.3), rtol=1e-4)
    np.testing.assert_allclose(other.inverse(0.3) @ v, one.inverse(0.3) @ v, rtol=1e-4)


def test_determinants_are_added_up_in_double_precision():
    values = np.array([7e20, 1.0, 3.0] * 500 + [1 / 7e20, 1.0, 1 / 3.0] * 500 + [2.5], dtype="float32")
    want = np.exp(np.log(values.astype("float64")).sum())
    assert EigenKronecker(None, np.eye(len(values), dtype="float32"), values).det() == pytest.approx(want, rel=1e-6)


def test_determinants_beyond_the_range_of_products():
    """β α underflows, and log β + log α does not; a product in order would leave the range in between."""
    block = Kronecker(np.diag([1e-200, 2e-200]), np.diag([1e-200, 3e-200]))
    assert block.logdet() == pytest.approx(8 * np.log(1e-200) + 2 * np.log(2) + 2 * np.log(3), rel=1e-12)
    assert block.det() == 0
    assert Kronecker(None, np.diag([1e200, 1e200, 1e-200, 1e-200])).det() == pytest.approx(1, rel=1e-10)


# ------------------------------------------------------------------------------------------------------------- refusals


def test_eigenvectors_have_no_factors_to_damp():
    block = EigenKronecker(None, np.eye(2), np.ones(2))
    words = "method of EigenKronecker: expected 'exact', got 'factored'"
    for call in (block.inverse, block.damped, lambda damping, method: block.solve(np.ones(2), damping, None, method)):
        with pytest.raises(ValueError, match=words):
            call(0.1, "factored")
    np.testing.assert_array_equal(block.inverse(1.0).eigenvalues, [0.5, 0.5])


@given(cases())
def test_bad_arguments_are_named(case):
    block = case.block()
    for call in (block.inverse, block.damped, block.logdet, lambda x: block.solve(np.ones(1), x)):
        for bad in (-1e-9, float("nan"), float("inf"), "1"):
            with pytest.raises(ValueError, match="damping: expected a finite number of at least 0, got"):
                call(bad)
    with pytest.raises(ValueError, match=rf"method of {type(block).__name__}: expected .*'exact', got 'best'"):
        block.inverse(0.1, "best")
    with pytest.raises(ValueError, match="p: expected a finite number, got"):
        block ** "half"
    with pytest.raises(ValueError, match="cap: expected a number above 0, got 0"):
        block.solve(np.ones(1), 0.1, 0)
    with pytest.raises(TypeError, match="cap: expected a number above 0, got True"):
        block.solve(np.ones(1), 0.1, True)
    with pytest.raises(ValueError, match="factor: expected a finite number, got nan"):
        block * float("nan")
    for call in (lambda: block * np.ones(2), lambda: block + 1.0, lambda: np.ones(2) @ block):
        with pytest.raises(TypeError, match="operand"):
            call()


EYE = np.eye(2)
MISFITS = {
    "B is not square": (lambda: Kronecker(EYE, np.ones((2, 3))), r"B: expected shape \(O, O\), got \(2, 3\)"),
    "B has groups": (lambda: Kronecker(EYE, np.ones((1, 2, 2))), r"B: expected shape \(O, O\), got \(1, 2, 2\)"),
    "B has none": (lambda: GroupedKronecker(EYE, EYE), r"B: expected shape \(G, O, O\), got \(2, 2\)"),
    "A has groups": (lambda: Kronecker(EYE[None], EYE), r"A: expected shape \(I, I\), got \(1, 2, 2\)"),
    "other groups": (lambda: GroupedKronecker(np.ones((2, 1, 1)), np.ones((3, 1, 1))), "A: expected 3 groups as B has"),
    "no outputs": (lambda: Kronecker(EYE, np.ones((0, 0))), r"B: expected shape \(O, O\), got \(0, 0\)"),
    "channels": (lambda: Kronecker(EYE, EYE, 3), "channels_first: expected a divisor of I = 2, got 3"),
    "channels of a bias": (lambda: Kronecker(None, EYE, 2), "channels_first: expected a divisor of I = 1, got 2"),
    "QA is not square": (
        lambda: EigenKronecker(np.ones((2, 3)), EYE, EYE),
        r"QA: expected shape \(I, I\), got \(2, 3\)",
    ),
    "eigenvalues": (
        lambda: EigenKronecker(EYE, EYE, np.ones(2)),
        r"eigenvalues: expected shape \(2, 2\) for QB and QA, got \(2,\)",
    ),
    "eigenvalues of a bias": (
        lambda: EigenKronecker(None, EYE, EYE),
        r"eigenvalues: expected shape \(2,\) for QB and QA, got \(2, 2\)",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arrays_that_do_not_fit_are_named(name):
    make, words = MISFITS[name]
    for method in ("to_dense", "logdet", "det", "eigh", "eigvalsh"):
        with pytest.raises(ValueError, match=words):
            getattr(make(), method)()


def test_other_kinds_of_arrays_are_named():
    for make, words in (
        (lambda: Kronecker([[1.0]], EYE), "A: expected a NumPy or CuPy array, got list"),
        (lambda: Kronecker(EYE.astype("float32"), EYE), "A: expected float64 as B is, got float32"),
        (lambda: EigenKronecker(EYE, EYE, [[1.0]]), "eigenvalues: expected a NumPy or CuPy array, got list"),
        (lambda: EigenKronecker(EYE, EYE, EYE.astype("float32")), "eigenvalues: expected float64 as QB is"),
    ):
        with pytest.raises(TypeError, match=words):
            make().trace()


def test_terms_of_other_parameters_are_named():
    block = Kronecker(np.eye(4), EYE)
    for other in (Kronecker(EYE, np.eye(4)), Kronecker(np.eye(4), EYE, 2), Kronecker(None, np.eye(8))):
        with pytest.raises(ValueError, match=r"term 1: expected Entries\(groups=1, outputs=2, inputs=4.* got Entries"):
            block + other
    with pytest.raises(TypeError, match="term 1: expected float64 as term 0 is, got float32"):
        block + Kronecker(np.eye(4, dtype="float32"), EYE.astype("float32"))
    with pytest.raises(TypeError, match="term 1: expected a block, got ndarray"):
        SumOfBlocks((block, EYE))
    with pytest.raises(ValueError, match="terms: expected at least one block, got none"):
        SumOfBlocks(())


def test_an_operator_of_scipy_is_on_the_host(gpu):
    block = Kronecker(None, gb.asarray(EYE, "cuda"))
    with pytest.raises(TypeError, match="as_linear_operator: expected a block on the cpu"):
        block.as_linear_operator()


def test_vectors_of_another_kind_are_named_with_what_they_should_be_like():
    eigen = EigenKronecker(None, EYE, np.ones(2))
    for block, name in ((Kronecker(None, EYE), "B"), (eigen, "QB"), (eigen + eigen, "each term")):
        with pytest.raises(TypeError, match=f"v: expected float64 as {name} is, got float32"):
            block @ np.ones(2, "float32")
        with pytest.raises(TypeError, match="v: expected a NumPy or CuPy array, got list"):
            block @ [1.0, 2.0]
    with pytest.raises(TypeError, match="v: expected float64 as QB is"):
        eigen.solve(np.ones(2, "float32"))


@given(cases())
def test_a_matrix_may_have_no_columns(case):
    block = case.block()
    none = np.zeros((block.shape[0], 0), case.dtype)
    for found in (block @ none, block.solve(none, 0.1), block.solve(none, 0.1, 1e8), block.solve(none, method="exact")):
        assert found.shape == none.shape
