"""Operators made of others against dense matrices: damped, some rows and columns, inverses; vectors of any numbers."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from common import in_turn
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lsmr

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop.operators.inverses import conjugate_gradients, least_squares

LOSS = losses.CrossEntropyLoss()
X = np.random.default_rng(2).standard_normal((5, 3))
Y = np.array([0, 1, 1, 0, 1])
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]
KINDS = {
    "GGN": lambda net, x: ops.GGN(net, LOSS, (x, Y)),
    "blocks": lambda net, x: ops.GGN(net, LOSS, [(x[:2], Y[:2]), (x[2:], Y[2:])], blocks=True),
    "Hessian": lambda net, x: ops.Hessian(net, LOSS, (x, Y)),
    "Fisher": lambda net, x: ops.Fisher(net, LOSS, (x, Y), mc_samples=2, rng=0),
    "EmpiricalFisher": lambda net, x: ops.EmpiricalFisher(net, LOSS, (x, Y)),
    "Jacobian": ops.Jacobian,
}


def network(dtype="float64"):
    return gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=0, dtype=dtype)


def make(name, dtype="float64"):
    return KINDS[name](network(dtype), X.astype(dtype))


def near(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tolerance * max(np.abs(want).max(), 1e-3)


def drawn(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["GGN", "Jacobian"])
def test_integers_booleans_and_complex_numbers(name, dtype):
    operator = make(name, dtype)
    dense, tolerance = operator.to_dense().astype("float64"), 1e-12 if dtype == "float64" else 2e-6
    signs = np.where(drawn(operator.shape[1]) > 0, 1, -1)
    for part, matrix in ((operator, dense), (operator.T, dense.T)):
        columns = np.resize(signs, (matrix.shape[1], 2)) * np.array([1, 3])
        for values in (columns, columns > 0, columns.astype("int8"), columns.astype("uint16")):
            for v in (values, values[:, 0], values[:, :1]):
                found = part @ v
                assert found.dtype == operator.dtype
                near(found, matrix @ v, tolerance)
        z = (columns + 1j * drawn(columns.shape)).astype("complex64" if dtype == "float32" else "complex128")
        for v in (z, z[:, 0], z[:, :1]):
            found = part @ v
            assert found.dtype == z.dtype
            near(found, matrix @ v, tolerance)
    near(operator.rmatvec(1j * np.ones(operator.shape[0])), 1j * dense.sum(0), tolerance)
    near(np.ones(operator.shape[0], int) @ operator, dense.sum(0), tolerance)


def test_complex_numbers_take_one_pass(monkeypatch):
    operator, seen = make("GGN"), []
    product = operator._part
    monkeypatch.setattr(operator, "_part", lambda V, *rest: seen.append(V.shape) or product(V, *rest))
    operator @ (drawn((26, 2)) + 1j)
    assert seen == [(26, 4)]


@pytest.mark.parametrize("name", [name for name in KINDS if name != "Jacobian"])
def test_damped(name):
    operator = make(name)
    damped, want = operator.damped(0.3), operator.to_dense() + 0.3 * np.eye(26)
    assert isinstance(damped, LinearOperator)
    v = drawn((26, 2))
    for found in (damped @ v, damped.T @ v, damped.rmatmat(v), damped.damped(0) @ v, (2 * damped - damped) @ v):
        near(found, want @ v)
    near(damped.to_dense(), want)
    parts = operator.unpack(v)
    near(operator.pack(damped @ parts), want @ v)
    near(operator.pack(damped @ operator.unpack(v[:, 0])), want @ v[:, 0])
    near(damped.submatrix("2.bias").to_dense(), want[24:])
    single = make(name, "float32").damped(0.3)
    assert (single @ v).dtype == np.float32


def chosen(size, names):
    numbers = st.lists(st.integers(0, size - 1), min_size=1, max_size=6, unique=True)
    some = st.lists(st.sampled_from(names), min_size=1, unique=True) if names else st.nothing()
    return st.none() | numbers | numbers.map(np.array) | some | (st.sampled_from(names) if names else st.nothing())


SPANS = dict(zip(NAMES, (np.arange(12), np.arange(12, 16), np.arange(16, 24), np.arange(24, 26)), strict=True))


def places(given, size):
    if given is None:
        return np.arange(size)
    if isinstance(given, str):
        return SPANS[given]
    return np.concatenate([SPANS[each] if isinstance(each, str) else [each] for each in given]).astype(int)


@given(st.sampled_from(sorted(KINDS)), st.booleans(), st.data())
def test_submatrices(name, damped, data):
    operator = make(name)
    if damped and name != "Jacobian":
        operator = operator.damped(0.5)
    dense, named = operator.to_dense(), NAMES if operator.rows else []
    rows, columns = data.draw(chosen(len(dense), named)), data.draw(chosen(26, NAMES))
    part = operator.submatrix(rows, columns)
    want = dense[places(rows, len(dense))][:, places(columns, 26)]
    near(part.to_dense(), want)
    near(part.T.to_dense(), want.T)
    assert part.symmetric == (operator.symmetric and np.array_equal(places(rows, 26), places(columns, 26)))
    if part.columns is not None:
        v = drawn(part.shape[1])
        found = part @ part.columns.split(v[None] if part.columns.size == 0 else np.stack([v, 2 * v]))
        if part.rows is not None:
            assert list(found) == list(part.rows.shapes)
            found = part.rows.join(found).T
        near(found, np.stack([want @ v, 2 * want @ v], axis=1))


def test_a_block_takes_no_sweep_through_the_other_layers(monkeypatch):
    operator, visited = make("GGN"), []
    (at,) = [operator.cutter.stored[0] for _ in [operator @ np.ones(26)]]
    sweep = type(at).sweep
    monkeypatch.setattr(
        type(at), "sweep", lambda *a: (visited.append(each[0].position) or each for each in sweep(*a))
    )
    for part in ("2.weight", np.arange(16, 24)):
        operator.submatrix(part, part) @ np.ones(8)
        assert visited == [2]
        visited.clear()


CURVATURES = [(name,) for name in ("GGN", "Fisher", "EmpiricalFisher", "blocks")]


@pytest.mark.parametrize(("name", "method"), in_turn(CURVATURES, ["cg", "lsmr", "neumann"]))
def test_inverses(name, method):
    operator = make(name)
    want = np.linalg.inv(operator.to_dense() + 0.5 * np.eye(26))
    options = {"scale": np.linalg.eigvalsh(want)[0], "maxiter": 400} if method == "neumann" else {}
    inverse = operator.inverse(method, damping=0.5, rtol=1e-12, **options)
    v = drawn((26, 3)) * np.array([1, 1e-5, 0])
    found = inverse @ v
    for k in range(3):  # each column to the same relative error
        assert np.linalg.norm(found[:, k] - want @ v[:, k]) <= 1e-9 * np.linalg.norm(v[:, k])
    near(inverse.to_dense(), want, 1e-9)
    parts = operator.unpack(v[:, 0])
    near(operator.pack(inverse @ parts), want @ v[:, 0], 1e-9)
    near(inverse.T @ v[:, 0], want @ v[:, 0], 1e-9)
    near(inverse @ (v[:, 0] + 2j * v[:, 0]), (1 + 2j) * want @ v[:, 0], 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["cg", "lsmr", "neumann"])
def test_an_inverse_of_vectors_whose_squares_are_beyond_the_range(method, dtype):
    operator = make("GGN", dtype)
    largest = np.linalg.eigvalsh(operator.to_dense())[-1]
    options = {"scale": 1 / (largest + 0.5), "maxiter": 500} if method == "neumann" else {}
    inverse = operator.inverse(method, damping=0.5, rtol=1e-6, **options)
    v = np.random.default_rng(0).standard_normal((26, 3)).astype(dtype)
    sizes = np.array([1e-30, 1, 1e25] if dtype == "float32" else [1e-200, 1, 1e200], dtype)
    np.testing.assert_allclose((inverse @ (v * sizes)) / sizes, inverse @ v, rtol=1e-4, atol=1e-5)



def test_an_inverse_is_itself_an_operator():
    operator = make("GGN").damped(0.5)
    near(operator.inverse(rtol=1e-13).inverse("lsmr", rtol=1e-12) @ np.ones(26), operator @ np.ones(26), 1e-8)
    part = operator.submatrix("0.bias", "0.bias")
    near(part.inverse(rtol=1e-13).to_dense(), np.linalg.inv(part.to_dense()), 1e-10)
    assert list(part.inverse() @ {"0.bias": np.ones(4)}) == ["0.bias"]
    single = make("GGN", "float32").inverse(damping=0.5)
    want = np.linalg.solve(make("GGN").to_dense() + 0.5 * np.eye(26), np.ones(26))
    assert (single @ np.ones(26)).dtype == np.float32
    near(single @ np.ones(26), want, 1e-3)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_the_inverse_of_a_jacobian_is_that_of_least_squares(damping):
    operator = make("Jacobian")
    J = operator.to_dense()
    want = np.linalg.pinv(J) if damping == 0 else np.linalg.solve(J.T @ J + damping * np.eye(26), J.T)
    inverse = operator.inverse("lsmr", damping=damping, rtol=1e-13)
    assert inverse.shape == (26, 10)
    v = drawn((10, 2))
    near(inverse @ v, want @ v, 1e-8)
    near(inverse.T @ operator.unpack(drawn(26)), want.T @ drawn(26), 1e-8)
    b = np.eye(10)[:, :1]  # of length 1; a few steps: the residual is not small
    found, (x, *_, rest, size, _, length) = least_squares(operator, b, 1e-13, 3, damping), lsmr(
        J, b[:, 0], damping**0.5, 1e-14, 1e-14, 0.0, 3)  # fmt: skip
    assert found.residual == pytest.approx(rest / (size * (1 + size * length)), rel=1e-6)
    assert (found.steps, np.linalg.norm(x)) == (3, pytest.approx(length))


@pytest.mark.parametrize("columns", [1, 4])
def test_least_squares_of_a_system_end_at_the_residual_that_is_asked_for(columns):
    operator, v = make("GGN").damped(1e-3), drawn((26, columns))
    for rtol in 0.5 ** np.arange(1, 20):
        left = v - operator @ (operator.inverse("lsmr", rtol=rtol) @ v)
        assert (np.linalg.norm(left, axis=0) <= 1.001 * rtol * np.linalg.norm(v, axis=0)).all()


def test_columns_beside_equal_ones_are_solved_as_exactly_as_their_length_in_all_asks():
    """Of 16 columns of length 1 the residual is to be rtol in all, 4 times that of each."""
    operator, b = make("Jacobian"), np.eye(10)[:, :1]
    for rtol in (1e-3, 1e-5, 1e-7):
        together = least_squares(operator, np.repeat(b, 16, 1), rtol, 100, 0.3)
        assert together.steps == least_squares(operator, b, rtol / 4, 100, 0.3).steps


def test_systems_that_are_not_solved():
    operator, v = make("GGN"), drawn(26)
    largest = np.linalg.eigvalsh(operator.to_dense())[-1]
    for vector in (v, operator.unpack(v)):
        with pytest.warns(gb.NotConvergedWarning, match=r"cg: the residual is .* after 2 steps, ") as found:
            operator.inverse(damping=1e-3, maxiter=2) @ vector
        assert Path(found[0].filename) == Path(__file__)
    with pytest.warns(gb.NotConvergedWarning, match=r"lsmr: the residual is .* after 2 steps"):
        operator.inverse("lsmr", damping=1e-3, maxiter=2) @ v
    with pytest.warns(gb.NotConvergedWarning, match=r"neumann: the residual is .* after 3 steps, .*a larger maxiter"):
        found = operator.inverse("neumann", damping=0.1, maxiter=3, scale=0.5) @ v
    step = np.eye(26) - 0.5 * (operator.to_dense() + 0.1 * np.eye(26))
    near(found, 0.5 * (v + step @ v + step @ step @ v))
    with pytest.warns(gb.NotConvergedWarning, match="it diverges: expected a positive definite matrix and a scale"):
        operator.inverse("neumann", damping=0.1, scale=2.2 / largest) @ v
    with pytest.raises(np.linalg.LinAlgError, match="cg: the matrix is not positive definite: more damping"):
        make("Hessian").inverse() @ np.linalg.eigh(make("Hessian").to_dense())[1][:, 0]
    with pytest.raises(np.linalg.LinAlgError, match="cg: the matrix is not positive definite"):  # here bᵀ A⁻¹ b is 0
        conjugate_gradients(aslinearoperator(np.array([[-4.0, -4], [-4, 0]])), np.eye(2, 1), 1e-9, None)
    zero = make("GGN").inverse(damping=0.1) @ np.zeros((26, 2))
    assert not zero.any()


@pytest.mark.parametrize(("method", "dtype", "damping"), [
    ("cg", "float32", 1e-8), ("cg", "float32", 1e-3), ("lsmr", "float32", 1e-6), ("lsmr", "float64", 0.0),
    ("lsmr", "float64", 1e-6), ("lsmr", "float32", 0.1),
])  # fmt: skip
def test_the_residual_is_that_of_the_solution(method, dtype, damping):
    x = (10 * np.vander(np.linspace(0, 1, 30), 8)).astype(dtype)
    net = gb.Sequential(layers.Linear(8, 2), rng=0, dtype=dtype)
    operator, b = ops.GGN(net, losses.MSELoss(), (x, np.zeros((30, 2), dtype))), drawn(18).astype(dtype)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = operator.inverse(method, damping=damping) @ b
    left = np.linalg.norm(operator.damped(damping) @ found - b) / np.linalg.norm(b)
    solved = left <= 2 * np.finfo(dtype).eps ** 0.5
    assert [each.category for each in seen] == ([] if solved else [gb.NotConvergedWarning])
    assert solved == ((dtype, damping) in (("float64", 1e-6), ("float32", 0.1)))


def test_cg_ends_at_the_first_step_that_is_not_finite():
    net = gb.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 2), rng=1, dtype="float32")
    operator = ops.GGN(net, LOSS, (X[:1].astype("float32"), Y[:1]))  # of rank 1
    with pytest.raises(np.linalg.LinAlgError, match="cg: a step is beyond the range of float32: the matrix is sing"):
        operator.inverse(maxiter=2000) @ np.random.default_rng(0).standard_normal(26).astype("float32")


def test_data_that_changes_are_an_error_in_what_is_made_of_it():
    x = X.copy()
    net = network()
    operator, jacobian = ops.GGN(net, LOSS, (x, Y)), ops.Jacobian(net, x)
    made = [operator.damped(1), operator.submatrix([1]), operator.inverse(damping=1)]
    x[0] += 1
    for call in (*[lambda each=each: each @ np.ones(26) for each in made], jacobian.to_arrays):
        with pytest.raises(ValueError, match="data: expected the same arrays"):
            call()


def test_arrays_of_a_jacobian_in_pieces_and_of_frozen_parameters(monkeypatch):
    net = network().freeze("0.weight")
    whole = ops.Jacobian(net, X).to_arrays()
    assert {name: each.shape for name, each in whole.items()} == {
        "0.bias": (5, 2, 4), "2.weight": (5, 2, 2, 4), "2.bias": (5, 2, 2)
    }  # fmt: skip
    monkeypatch.setattr(ops.pieces, "TANGENT_BYTES", 1)
    monkeypatch.setattr(ops.pieces, "SAVED_BYTES", 1)
    for data in (X, [X[:2], X[2:]]):
        for name, each in ops.Jacobian(net, data).to_arrays().items():
            near(each, whole[name])
    monkeypatch.setattr(ops.jacobian, "available_memory", lambda device: 1000)
    with pytest.raises(gb.TooLargeError, match=r"Jacobian of shape \(10, 14\): 1.1 KiB, with 1000 B free"):
        ops.Jacobian(net, X).to_arrays()


def test_each_operator_is_made_by_the_constructor_of_scipys(monkeypatch):
    """Newer ones note more there than dtype and shape."""
    made, init = [], LinearOperator.__init__
    monkeypatch.setattr(LinearOperator, "__init__", lambda self, *given: made.append(id(self)) or init(self, *given))
    net, x, y = gb.Sequential(layers.Linear(3, 2), rng=0, dtype="float64"), np.ones((4, 3)), np.ones((4, 2))
    curvatures = [kind(net, losses.MSELoss(), (x, y)) for kind in (ops.GGN, ops.Hessian, ops.EmpiricalFisher)]
    found = [*curvatures, ops.Fisher(net, losses.MSELoss(), (x, y), rng=0), ops.Jacobian(net, x)]
    found += [found[-1].T, found[0].damped(1.0), found[0].submatrix([1, 2]), found[0].damped(1.0).inverse()]
    assert made
    assert {id(each) for each in found} <= set(made)
    assert all(each.dtype == np.float64 and isinstance(each.shape, tuple) for each in found)
