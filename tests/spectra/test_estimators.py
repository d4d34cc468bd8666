"""Stochastic estimates of traces, diagonals and densities, against the matrices in dense form."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import gbackprop as gb
from gbackprop.curvature.spectra import density, diagonal, trace
from gbackprop.curvature.spectra.diagonals import _xdiag
from gbackprop.curvature.spectra.products import Products

N = 40
TRACES = ["hutchinson", "hutch++", "xtrace"]
DIAGONALS = ["hutchinson", "xdiag"]


def orthogonal(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def decaying(n=N, rate=0.8):
    q = orthogonal(n)
    return q * rate ** np.arange(n) @ q.T


def skew():
    rng = np.random.default_rng(1)
    return decaying() + 0.1 * rng.standard_normal((N, N))


class Counted(LinearOperator):
    """An operator that notes the vectors that it is multiplied with, product by product."""

    def __init__(self, a):
        super().__init__(a.dtype, a.shape)
        self.a, self.widths = a, []

    def _matmat(self, v):
        self.widths.append(v.shape[1])
        return self.a @ v


# -------------------------------------------------------------------------------------------------------------- means


@pytest.mark.parametrize("matrix", [decaying(), skew()], ids=["symmetric", "not symmetric"])
@pytest.mark.parametrize("method", TRACES)
def test_traces_have_no_bias(method, matrix):
    values = np.array([trace(matrix, method, 24, seed).value for seed in range(400)])
    assert abs(values.mean() - np.trace(matrix)) < 3.5 * values.std() / 20


@pytest.mark.parametrize("method", DIAGONALS)
def test_diagonals_have_no_bias(method):
    matrix = decaying()
    values = np.array([diagonal(matrix, 24, seed, method).value for seed in range(400)])
    off = (values.mean(0) - np.diag(matrix)) / (values.std(0) / 20)
    assert np.sqrt((off**2).mean()) < 1.3
    assert abs(off).max() < 4.5


@pytest.mark.parametrize(
    ("method", "least", "ratio"), [("hutchinson", 0.93, 0.1), ("hutch++", 0.85, 0.15), ("xtrace", 0.7, 0.45)]
)
def test_the_truth_is_within_two_standard_errors_of_traces(method, least, ratio):
    found = [trace(decaying(), method, 24, seed) for seed in range(400)]
    check_errors(found, np.trace(decaying()), least, ratio)  # that of XTrace is somewhat too small where decay is fast


def check_errors(found, truth, least, ratio):
    values, errors = (np.array([getattr(each, name) for each in found]) for name in ("value", "error"))
    assert np.mean(abs(values - truth) <= 2 * errors) > least
    assert abs((errors.mean(0) / values.std(0)).mean() - 1) < ratio


@pytest.mark.parametrize(("method", "least", "ratio"), [("hutchinson", 0.9, 0.1), ("xdiag", 0.8, 0.35)])
def test_the_truth_is_within_two_standard_errors_of_diagonals(method, least, ratio):
    found = [diagonal(decaying(), 24, seed, method) for seed in range(200)]
    check_errors(found, np.diag(decaying()), least, ratio)


def test_more_products_pay_most_for_the_later_methods():
    spread = {m: np.std([trace(decaying(rate=0.6), m, 24, seed).value for seed in range(100)]) for m in TRACES}
    assert spread["xtrace"] < 0.3 * spread["hutch++"] < 0.3 * spread["hutchinson"]


# --------------------------------------------------------------------------------------------------------- exact cases


@given(n=st.integers(1, 20), samples=st.integers(4, 50), seed=st.integers(0, 99))
def test_signs_give_traces_and_diagonals_of_diagonal_matrices_exactly(n, samples, seed):
    entries = np.random.default_rng(seed).standard_normal(n)
    assert trace(np.diag(entries), "hutchinson", samples, seed).value == pytest.approx(entries.sum(), abs=1e-12)
    found = diagonal(np.diag(entries), samples, seed)
    np.testing.assert_allclose(found.value, entries, atol=1e-14)
    np.testing.assert_allclose(found.error, 0, atol=1e-14)


@given(n=st.integers(1, 20), rank=st.integers(0, 6), seed=st.integers(0, 99))
def test_low_ranks_are_exact(n, rank, seed):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((2, n, rank))
    matrix = left @ right.T
    scale = 1 + np.abs(matrix).sum()
    for found in (trace(matrix, "hutch++", 3 * rank + 4, seed), trace(matrix, "xtrace", 2 * rank + 4, seed)):
        assert abs(found.value - np.trace(matrix)) < 1e-8 * scale
        assert 0 <= found.error < 1e-8 * scale


@pytest.mark.parametrize(("dtype", "large"), [("float32", 1e6), ("float64", 1e15)])
def test_what_is_small_beside_one_direction_is_estimated(dtype, large):
    v = np.random.default_rng(1).standard_normal(500)
    entries = np.ones(500, dtype)
    entries[0] = large
    found = diagonal(np.diag(entries), 64, 0, "xdiag")
    assert (np.abs(found.value - entries)[1:] <= 5 * found.error[1:] + 1e-3).all()
    assert np.abs(found.value[1:] - 1).max() < 0.5
    v = (v / np.linalg.norm(v)).astype(dtype)
    operator = aslinearoperator(np.eye(500, dtype=dtype) + np.dtype(dtype).type(large) * np.outer(v, v))
    found = trace(operator, "xtrace", 64, 0)
    assert abs(found.value - large - 500) < 100 * np.finfo(dtype).eps * large


@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_density_leaves_the_arrays_of_an_operator_as_they_are(vectors, steps):
    rng = np.random.default_rng(0)
    same = LinearOperator((50, 50), matvec=lambda v: v, matmat=lambda v: v, dtype=float)
    found = density(same, steps, vectors, rng)
    np.testing.assert_allclose(found.nodes, 1)
    matrix, buffer = np.diag(np.arange(50.0)), np.zeros((50, vectors))
    product = lambda v: np.matmul(matrix, v.reshape(50, -1), out=buffer)  # noqa: E731
    kept = LinearOperator((50, 50), matvec=product, matmat=product, dtype=float)
    np.testing.assert_allclose(density(kept, steps, vectors, 0).nodes, density(matrix, steps, vectors, 0).nodes)


class Signs:
    """A source of one draw of signs."""

    def __init__(self, bits):
        self.bits = np.array(bits)

    def integers(self, low, high, shape):
        return self.bits.reshape(shape)


@pytest.mark.parametrize(("n", "samples"), [(2, 4), (3, 4), (3, 6)])
def test_the_mean_over_all_draws_is_the_diagonal_though_vectors_depend_on_each_other(n, samples):
    half = np.random.default_rng(1).standard_normal((n, n))
    products = Products(half + half.T)
    draws = itertools.product([0, 1], repeat=n * (samples // 2))
    mean = np.mean([_xdiag(products, samples, Signs(bits)).value for bits in draws], axis=0)
    np.testing.assert_allclose(mean, 2 * half.diagonal(), atol=1e-8)


@pytest.mark.parametrize(("n", "samples"), [(2, 6), (6, 6), (20, 6)])
def test_the_error_of_xdiag_is_not_0_where_the_estimate_is_wrong(n, samples):
    found = diagonal(np.eye(n), samples, 0, "xdiag")
    assert np.linalg.norm(found.value - 1) <= 1e-14 + 3 * np.linalg.norm(found.error)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e-21), ("float32", 1e-24), ("float64", 1e-200)])
def test_small_matrices_are_as_large_ones(dtype, size):
    half, tolerance = np.random.default_rng(2).standard_normal((6, 6)), 1e-4 if dtype == "float32" else 1e-10
    large = (half + half.T).astype(dtype)
    small = large * np.dtype(dtype).type(size)
    for function in (
        lambda matrix: trace(matrix, "xtrace", 8, rng=0).value,
        lambda matrix: diagonal(matrix, 6, rng=0, method="xdiag").value.astype("float64"),
        lambda matrix: density(matrix, 4, 2, rng=0).nodes,
    ):
        np.testing.assert_allclose(function(small) / size, function(large), rtol=tolerance, atol=tolerance)


def test_the_width_of_a_density_of_equal_eigenvalues_is_of_their_size():
    for size, at in ((2.0, 0.02), (-2e-9, 2e-11), (0.0, 0.01)):
        found = density(size * np.eye(5), 3, 2, rng=0)
        assert found([size]) == pytest.approx(1 / (at * (2 * np.pi) ** 0.5))


@pytest.mark.parametrize("gap", [1.0, 1e-5])
def test_the_width_of_a_density_is_a_hundredth_of_the_range_of_its_nodes(gap):
    found = density(np.diag([2.0, 2.0 + gap, 2.0]), 3, 2, rng=0)
    points = 2 + gap * np.linspace(-0.1, 1.1, 7)
    np.testing.assert_array_equal(found(points), found(points, width=np.ptp(found.nodes) / 100))
    assert np.ptp(found.nodes) == pytest.approx(gap)


@pytest.mark.parametrize("rank", [1, 5])
def test_diagonals_of_low_ranks_are_exact(rank):
    q = orthogonal(N)[:, :rank]
    matrix = q * np.arange(1, rank + 1) @ q.T
    found = diagonal(matrix, 2 * rank + 4, 0, "xdiag")
    np.testing.assert_allclose(found.value, np.diag(matrix), atol=1e-12)
    np.testing.assert_allclose(found.error, 0, atol=1e-12)


@given(n=st.integers(1, 12), more=st.integers(0, 9), seed=st.integers(0, 99))
def test_as_many_vectors_as_there_are_dimensions_are_exact(n, more, seed):
    matrix = np.random.default_rng(seed).standard_normal((n, n))
    for method, samples in (("hutch++", 3 * n + more + 1), ("xtrace", max(4, 2 * n + more))):
        assert trace(matrix, method, samples, seed).value == pytest.approx(np.trace(matrix), abs=1e-7)


# ----------------------------------------------------------------------------------------------------------- densities


@given(n=st.integers(1, 20), steps=st.integers(1, 8), vectors=st.integers(1, 3), seed=st.integers(0, 99))
def test_nodes_have_the_moments_of_the_matrix(n, steps, vectors, seed):
    """vᵀ Aᵖ v = Σ w θᵖ up to p = 2 · steps − 1."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((n, n))
    matrix = (half + half.T) / (4 * n**0.5)
    found = density(matrix, steps, vectors, seed)
    start = np.random.default_rng(seed).standard_normal((vectors, n)).T
    start /= np.linalg.norm(start, axis=0)
    power = start
    for p in range(2 * steps):
        np.testing.assert_allclose((found.weights * found.nodes**p).sum(1), (start * power).sum(0), atol=1e-10)
        power = matrix @ power


def test_all_steps_give_the_eigenvalues_each_once():
    eigenvalues = np.array([-1.0, 0.0, 2.0, 2.0, 2.0, 5.0])
    q = orthogonal(6)
    found = density(q * eigenvalues @ q.T, 50, 3, 0)
    assert found.nodes.shape == found.weights.shape == (3, 6)
    for nodes, weights in zip(found.nodes, found.weights, strict=True):
        np.testing.assert_allclose(nodes[weights > 0], [-1, 0, 2, 5], atol=1e-12)


def test_a_density_integrates_to_one_and_counts_eigenvalues():
    matrix = np.diag(np.r_[np.zeros(300), np.full(100, 3.0)])
    found, points = density(matrix, 10, 20, 0), np.linspace(-2, 5, 7001)
    assert np.trapezoid(found(points, 0.1), points) == pytest.approx(1, abs=1e-6)
    assert np.trapezoid(found(points), points) == pytest.approx(1, abs=1e-6)
    above = points > 1.5
    assert np.trapezoid(found(points, 0.1)[above], points[above]) == pytest.approx(0.25, abs=0.02)


def test_functions_of_a_matrix_have_traces():
    matrix = decaying() + np.eye(N)
    found = [density(matrix, 12, 4, seed).trace(np.log) for seed in range(200)]
    values, want = np.array([each.value for each in found]), np.linalg.slogdet(matrix)[1]
    assert abs(values.mean() - want) < 3.5 * values.std() / 200**0.5
    assert np.mean([abs(each.value - want) <= 2 * each.error for each in found]) > 0.8
    assert np.isnan(density(matrix, 12, 1, 0).trace(np.log).error)


def test_full_orthogonalization_lets_no_eigenvalue_appear_twice():
    """Without it a large eigenvalue has copies after some dozens of steps."""
    matrix = np.diag(np.r_[100.0, np.linspace(0, 1, 99)])
    nodes = density(matrix, 60, 1, 0).nodes[0]
    assert (nodes > 50).sum() == 1


# ---------------------------------------------------------------------------------------------- operators and arguments


@pytest.mark.parametrize(
    "kind", [aslinearoperator, csr_array, lambda a: gb.asarray(a, "cuda:1")], ids=["operator", "sparse", "on a device"]
)
def test_any_operator_gives_the_same(kind, double):
    a = decaying()
    for method in TRACES:
        assert trace(kind(a), method, 12, 0).value == pytest.approx(trace(a, method, 12, 0).value, rel=1e-10)
    for method in DIAGONALS:
        found = gb.asnumpy(diagonal(kind(a), 12, 0, method).value)
        np.testing.assert_allclose(found, diagonal(a, 12, 0, method).value, rtol=1e-9)
    np.testing.assert_allclose(density(kind(a), 5, 2, 0).nodes, density(a, 5, 2, 0).nodes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("function", "method"), [*((trace, m) for m in TRACES), *((diagonal, m) for m in DIAGONALS)])
def test_products_are_with_blocks_and_as_many_as_was_said(function, method):
    counted = Counted(decaying())
    function(counted, method=method, samples=24, rng=0, block=5)
    assert sum(counted.widths) == 24
    assert max(counted.widths) == 5


def test_all_vectors_go_through_the_steps_together():
    counted = Counted(decaying())
    density(counted, 6, 7, 0)
    assert counted.widths == [7] * 6


def test_float32_stays_float32():
    counted = Counted(decaying().astype(np.float32))
    found = diagonal(counted, 8, 0)
    assert found.value.dtype == found.error.dtype == np.float32
    assert trace(counted, samples=40, rng=0).value == pytest.approx(np.trace(decaying()), rel=1e-2)
    assert density(counted, 5, 2, 0).nodes.max() == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("function", [trace, diagonal, density])
@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        ([[1.0]], TypeError, "A: expected an array or a linear operator, .*, got list"),
        (np.ones((2, 3)), ValueError, r"A: expected a square matrix, got shape \(2, 3\)"),
        (np.ones(3), ValueError, "A: expected a square matrix"),
        (np.ones((0, 0)), ValueError, "A: expected a square matrix"),
        (np.eye(2) * 1j, TypeError, "A: expected real numbers, got complex128"),
        (np.full((3, 3), np.nan), ValueError, "A: expected finite products with vectors"),
    ],
    ids=str,
)
def test_what_is_no_square_matrix_is_told(function, matrix, error, message):
    with pytest.raises(error, match=message):
        function(matrix, rng=0)


class Wrong:
    shape, dtype = (3, 3), np.dtype("float64")

    def __matmul__(self, v):
        return v[:2]


@pytest.mark.parametrize("n", [4, 400])
def test_an_asymmetry_of_half_the_digits_of_a_matrix_is_rounding_and_ten_times_more_is_none(n):
    d, seen = np.linspace(1, 2, n), []
    noting = LinearOperator((n, n), matvec=lambda v: seen.append(v.ravel().copy()) or d * v.ravel(), dtype=float)
    density(noting, 2, 1, 0)
    plane = np.outer(seen[1], seen[0]) - np.outer(seen[0], seen[1])  # A − Aᵀ is twice this, whose norm is 1
    density(np.diag(d) + 5e-9 * plane, 2, 1, 0)
    with pytest.raises(ValueError, match="A: expected a symmetric matrix, got one that is not"):
        density(np.diag(d) + 5e-8 * plane, 2, 1, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trace(np.eye(3), "hutch"), "method: expected one of hutchinson, hutch"),
        (lambda: trace(np.eye(3), "hutchinson", 1), "samples for 'hutchinson': expected an integer of at least 2"),
        (lambda: trace(np.eye(3), "xtrace", 3), "samples for 'xtrace': expected an integer of at least 4"),
        (lambda: diagonal(np.eye(9), 4, method="xdiag"), "samples for 'xdiag': expected an integer of at least 6"),
        (lambda: diagonal(np.eye(9), 1), "samples for 'hutchinson': expected an integer of at least 2"),
        (lambda: trace(np.eye(3), block=0), "block: expected an integer of at least 1"),
        (lambda: trace(np.eye(3), rng=-1), "rng: expected None"),
        (lambda: diagonal(np.eye(3), method="hutch++"), "method: expected one of hutchinson, xdiag"),
        (lambda: diagonal(skew(), method="xdiag"), "A: expected a symmetric matrix for 'xdiag'"),
        (lambda: density(skew(), 5, 2, 0), "A: expected a symmetric matrix, got one that is not"),
        (lambda: density(np.eye(3), 0), "steps: expected an integer of at least 1"),
        (lambda: density(np.eye(3), vectors=0), "vectors: expected an integer of at least 1"),
        (lambda: density(np.eye(3), rng=0)([0.0], width=0), "width: expected a finite number above 0"),
        (lambda: trace(Wrong(), rng=0), r"A: expected a product of shape \(3, 3\), got \(2, 3\)"),
    ],
)
def test_bad_arguments(call, message):
    diagonal(np.eye(9), 2)  # the least of samples
    with pytest.raises(ValueError, match=message):
        call()


def test_products_that_are_no_arrays_are_told():
    with pytest.raises(TypeError, match="A: expected products that are arrays, got MaskedArray"):
        trace(np.ma.masked_array(np.eye(3)), rng=0)


@pytest.mark.parametrize("samples", [6, 8])
def test_as_many_samples_as_rows_give_the_diagonal_itself(samples):
    matrix = np.random.default_rng(0).standard_normal((6, 6))
    found = diagonal(matrix @ matrix.T, samples, 0, "xdiag")
    np.testing.assert_array_equal(found.error, np.zeros(6))
    np.testing.assert_allclose(found.value, (matrix @ matrix.T).diagonal(), rtol=1e-14)
