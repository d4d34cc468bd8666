"""What operators are multiplied by, the data that they sum over, and SciPy's solvers on them."""

import pickle
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from threading import get_ident

import dense_matrices
import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, cg, eigsh, lobpcg, lsmr

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import operators as ops
from gbackprop import quantities as q
from gbackprop.operators import pieces

KINDS = {"GGN": ops.GGN, "Hessian": ops.Hessian, "Fisher": ops.Fisher, "EmpiricalFisher": ops.EmpiricalFisher}
DRAWN = {"Fisher": {"mc_samples": 2, "rng": 7}}
SYMMETRIC = pytest.mark.parametrize("name", KINDS)


def network(dtype="float64"):
    return gb.Sequential(
        layers.Conv2d(1, 2, 3), layers.Tanh(), layers.Flatten(), layers.Linear(8, 4), layers.Sigmoid(),
        layers.Linear(4, 3), rng=1, dtype=dtype,
    )  # fmt: skip


def batch(n=6, dtype="float64"):
    rng = np.random.default_rng(2)
    return rng.standard_normal((n, 1, 4, 4)).astype(dtype), rng.integers(0, 3, n)


LOSS = losses.CrossEntropyLoss()


def make(name, net=None, loss=LOSS, data=None, **options):
    return KINDS[name](net or network(), loss, data or batch(), **DRAWN.get(name, {}), **options)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def near(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


def flat(values):
    return np.concatenate([value.ravel() for value in values.values()])


@SYMMETRIC
def test_dictionaries_of_two_dtypes_are_read_in_the_networks(name):
    net = network()
    operator = make(name, net)
    given = {key: value + 1 / 3 for key, value in net.parameters.items()}
    first = next(iter(given))
    given[first] = given[first].astype("float32")
    want = operator @ {key: value.astype("float64") for key, value in given.items()}
    for key, value in (operator @ given).items():
        np.testing.assert_array_equal(value, want[key])


@SYMMETRIC
def test_vectors_matrices_and_dictionaries(name):
    net = network()
    operator, shapes = make(name, net), {key: value.shape for key, value in net.parameters.items()}
    assert isinstance(operator, LinearOperator)
    d = sum(value.size for value in net.parameters.values())
    assert (operator.shape, operator.dtype) == ((d, d), np.float64)
    v = drawn(d, 3)
    product, dense = operator @ v, operator.to_dense()
    scale = np.abs(product).max()
    near(dense @ v, product)
    near(dense, dense.T)
    for k in range(3):
        assert np.abs(operator @ v[:, k] - product[:, k]).max() <= 1e-12 * scale
        assert np.abs(operator.matvec(v[:, k : k + 1])[:, 0] - product[:, k]).max() <= 1e-12 * scale
    rows = np.split(v, np.cumsum([value.size for value in net.parameters.values()])[:-1])
    single = {key: part[:, 0].reshape(shape) for (key, shape), part in zip(shapes.items(), rows, strict=True)}
    several = {key: part.T.reshape(3, *shape) for (key, shape), part in zip(shapes.items(), rows, strict=True)}
    found = operator @ single
    assert {key: value.shape for key, value in found.items()} == shapes
    assert np.abs(flat(found) - product[:, 0]).max() <= 1e-12 * scale
    for given, packed in ((single, v[:, 0]), (several, v)):
        assert np.array_equal(operator.pack(given), packed)
        assert all(np.array_equal(part, given[key]) for key, part in operator.unpack(packed).items())
    found = operator @ several
    near(np.concatenate([value.reshape(3, -1) for value in found.values()], axis=1).T, product)
    mixed = (2 * operator + operator @ operator - operator.T + operator.H) @ v
    near(2 * dense @ v + dense @ dense @ v, mixed, 1e-11)


@SYMMETRIC
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_batches_are_one_batch(name, reduction):
    net, (x, y) = network(), batch(7)
    weight = np.array([0.5, 2.0, 1.0])
    loss = losses.CrossEntropyLoss(reduction, weight=weight, ignore_index=2)
    y[:3] = [0, 1, 0]
    data = [(x[:3], y[:3]), (x[3:4], np.array([1])), (x[4:], y[4:])]
    y[3] = 1
    y[4] = 0
    v = drawn(71, 2)
    if name == "Fisher":  # other draws: their sum with each batch's weight
        rng = np.random.default_rng(7)
        parts = [ops.Fisher(net, loss, each, mc_samples=2, rng=rng) for each in data]
        factors = [loss.factor(len(part[0]), part[1]) for part in data]
        whole = loss.factor(7, y)
        want = sum(part @ v * (whole / factor) for part, factor in zip(parts, factors))
    else:
        want = make(name, net, loss, (x, y)) @ v
    near(make(name, net, loss, data) @ v, want)


@pytest.mark.parametrize("name", ["GGN", "Hessian"])
def test_samples_count_by_the_weights_of_their_classes(name):
    """Of a linear network the matrix is Σₙ w[yₙ] (diag p − p pᵀ) ⊗ x xᵀ over Σₙ w[yₙ]."""
    net, rng = gb.Sequential(layers.Linear(4, 3, bias=False), rng=0, dtype="float64"), np.random.default_rng(3)
    x, y, weight = rng.standard_normal((6, 4)), np.arange(6) % 3, np.array([0.5, 2.0, 3.0])
    e = np.exp(x @ net.parameters["0.weight"].T)
    p = e / e.sum(1, keepdims=True)
    hessians = weight[y][:, None, None] * (p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None])
    want = np.einsum("nij,na,nb->iajb", hessians, x, x).reshape(12, 12) / weight[y].sum()
    near(make(name, net, losses.CrossEntropyLoss(weight=weight), (x, y)) @ np.eye(12), want)


@SYMMETRIC
def test_an_executor_changes_nothing(name):
    data, v = list(gb.data.batches(*batch(7), 2)), drawn(71, 2)
    with ThreadPoolExecutor(3) as pool:
        assert np.array_equal(make(name, data=data, executor=pool) @ v, make(name, data=data) @ v)


def test_an_executor_of_processes():
    net, v, data = network(), drawn(71, 2), list(gb.data.batches(*batch(4), 2))
    with ProcessPoolExecutor(1) as pool:
        assert np.array_equal(ops.Hessian(net, LOSS, data, executor=pool) @ v, ops.Hessian(net, LOSS, data) @ v)
        jacobian = ops.Jacobian(net, [part for part, _ in data])
        assert np.array_equal(ops.Jacobian(net, [part for part, _ in data], executor=pool) @ v, jacobian @ v)
    assert pickle.loads(pickle.dumps(pieces.linearized_product)) is pieces.linearized_product


@SYMMETRIC
@pytest.mark.parametrize("threads", [1, 2])
def test_pieces_chunks_and_threads_change_rounding_only(name, threads, monkeypatch):
    operator, v = make(name, data=batch(7)), drawn(71, 5)
    want = operator @ v
    monkeypatch.setattr(pieces, "SAVED_BYTES", 3 * operator.cutter.sample_bytes)
    monkeypatch.setattr(pieces, "TANGENT_BYTES", 3000)
    found = make(name, data=batch(7))
    found.cutter.threads = threads
    assert [len(piece.x) for piece in found._pieces()] == [3, 3, 1]
    near(found @ v, want)
    assert np.array_equal(found @ v, found @ v)
    assert not found.cutter.stored
    assert len(operator.cutter.stored) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_products_are_computed_in_threads_of_their_own_only_if_there_are_several(threads, monkeypatch):
    monkeypatch.setattr(pieces, "SAVED_BYTES", 1)
    original, seen = layers.Tanh.first, set()
    monkeypatch.setattr(layers.Tanh, "first", lambda *given: seen.add(get_ident()) or original(*given))
    operator = ops.GGN(network(), LOSS, batch(3))
    operator.cutter.threads = threads
    seen.clear()
    operator @ np.ones(71)
    assert seen
    assert (seen == {get_ident()}) == (threads == 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_piece_comes_out(threads, monkeypatch):
    monkeypatch.setattr(pieces, "SAVED_BYTES", 1)
    operator = make("GGN", data=batch(7))
    operator.cutter.threads = threads
    monkeypatch.setattr(pieces, "Linearized", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        operator @ np.ones(71)


@SYMMETRIC
def test_blocks(name):
    dense = make(name).to_dense()
    owner = np.concatenate([np.full(value.size, i) for i, value in enumerate(network().parameters.values())])
    near(make(name, blocks=True).to_dense(), np.where(owner == owner[:, None], dense, 0), 1e-13)


def test_the_diagonals_are_the_quantities():
    quantities = q.DiagGGN(), q.DiagHessian(), q.DiagGGNMC(2), q.SecondMoment()
    result = gb.reference(network(), LOSS, *batch(), *quantities, rng=7)
    for name, quantity in zip(KINDS, quantities, strict=True):
        near(np.diag(make(name).to_dense()), flat(result[quantity]), 1e-13)


def test_a_jacobian_of_several_batches_has_the_rows_of_all():
    net, (x, _) = network(), batch()
    jacobian, parts = ops.Jacobian(net, x), ops.Jacobian(net, [x[:2], x[2:]])
    assert parts.shape == jacobian.shape
    w = drawn(18, 2, seed=2)
    assert np.abs(parts.T @ w - jacobian.T @ w).max() <= 1e-12


def test_frozen_parameters_have_no_part():
    net = network()
    sizes = [value.size for value in net.parameters.values()]
    dense = {name: make(name, net).to_dense() for name in KINDS}
    net.freeze("3.weight", "5.bias")
    kept = np.concatenate([np.full(size, i not in (2, 5)) for i, size in enumerate(sizes)])
    for name in KINDS:
        assert np.abs(make(name, net).to_dense() - dense[name][kept][:, kept]).max() <= 1e-13


@SYMMETRIC
def test_float32(name):
    v = drawn(71, 3)
    single, double = (make(name, network(dtype), data=batch(dtype=dtype)) for dtype in ("float32", "float64"))
    assert single.dtype == np.float32
    found, want = single @ v.astype("float32"), double @ v
    assert found.dtype == np.float32
    assert (single @ v).dtype == np.float32
    near(found, want, 1e-5)


@pytest.mark.parametrize("name", ["GGN", "Hessian"])
def test_float32_vectors_lose_no_digits_in_float64(name):
    """R = 1/3, which float32 cannot hold: it multiplies the vectors in the operator's dtype."""
    operator, v = make(name, data=tuple(part[:3] for part in batch())), drawn(71, 2, seed=5).astype("float32")
    found = operator @ v
    assert found.dtype == np.float64
    near(found, operator @ v.astype("float64"), 1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scipys_solvers(dtype):
    net, data = network(dtype), batch(dtype=dtype)
    ggn, hessian = (kind(net, LOSS, data) for kind in (ops.GGN, ops.Hessian))
    tolerance = 1e-8 if dtype == "float64" else 1e-3
    dense = ops.Hessian(network(), LOSS, batch()).to_dense()
    want = np.linalg.eigvalsh(dense)
    most = eigsh(hessian, 2, which="LA", v0=np.ones(71, dtype))[0]
    assert np.abs(most - want[-2:]).max() <= tolerance * want[-1]
    start = drawn(71, 2).astype(dtype)
    found = lobpcg(hessian, start, maxiter=60, tol=tolerance * 1e-2)[0]
    assert np.abs(np.sort(found) - want[-2:]).max() <= 10 * tolerance * want[-1]
    rhs = drawn(71, seed=1).astype(dtype)
    damped = ggn + 0.1 * LinearOperator((71, 71), matvec=lambda v: v, matmat=lambda v: v, dtype=dtype)
    solution, ended = cg(damped, rhs, rtol=tolerance)
    assert ended == 0
    whole = ops.GGN(network(), LOSS, batch()).to_dense() + 0.1 * np.eye(71)
    assert np.abs(whole @ solution - rhs).max() <= 20 * tolerance
    jacobian = ops.Jacobian(net, data[0])
    outputs = drawn(18, seed=2).astype(dtype)
    with np.errstate(over="ignore"):  # SciPy starts from 1e100, whatever the dtype is
        solution = lsmr(jacobian, outputs, damp=0.3, atol=tolerance / 100, btol=tolerance / 100)[0]
    rows = ops.Jacobian(network(), batch()[0]).to_dense()
    want = np.linalg.solve(rows.T @ rows + 0.09 * np.eye(71), rows.T @ outputs)
    assert np.abs(solution - want).max() <= 10 * tolerance * np.abs(want).max()


@pytest.mark.parametrize("padding", [None, 1])
def test_indices(padding):
    rng, embedding = np.random.default_rng(0), layers.Embedding(5, 3, padding_idx=padding)
    net = gb.Sequential(embedding, layers.Tanh(), layers.Flatten(), layers.Linear(6, 2), rng=0, dtype="float64")
    x, y = rng.integers(0, 3, (4, 2)), np.array([0, 1, 1, 0])
    v = rng.standard_normal((29, 2))
    fixed = v.copy()  # the padding's row has no derivative
    fixed[3 * (padding or 0) : 3 * (padding or 0) + 3] *= padding is None
    want = dense_matrices.hessian_times(net, LOSS, x, y, fixed)
    assert (x == 1).any()
    assert np.abs(ops.Hessian(net, LOSS, (x, y)) @ v - want).max() <= 1e-12
    jacobian = ops.Jacobian(net, x)
    assert np.abs(jacobian.to_dense() - (jacobian.T @ np.eye(8)).T).max() <= 1e-14


def test_a_bare_layer():
    alone = layers.Linear(3, 2)
    alone.dtype = "float64"
    x = np.random.default_rng(0).standard_normal((4, 3))
    found = ops.GGN(alone, losses.MSELoss("sum"), (x, np.zeros((4, 2)))).to_dense()
    with_one = np.concatenate([np.kron(np.eye(2), x[:, None]), np.tile(np.eye(2), (4, 1, 1))], axis=2)
    assert np.abs(found - 2 * np.einsum("nci,ncj->ij", with_one, with_one)).max() <= 1e-13


class Waiting(Executor):
    """Computes when it is asked for the result, and counts what was submitted and not asked for."""

    def __init__(self):
        self.now = self.most = 0

    def submit(self, function, *given):
        self.now += 1
        self.most, future = max(self.most, self.now), Future()

        def result():
            self.now -= 1
            return function(*given)

        future.result = result
        return future


def test_an_executor_is_given_few_pieces_at_a_time(monkeypatch):
    net, pool = network(), Waiting()
    monkeypatch.setattr(pieces, "IN_FLIGHT", 3)
    found = ops.GGN(net, LOSS, list(gb.data.batches(*batch(7), 1)), executor=pool) @ np.ones(71)
    assert np.abs(found - ops.GGN(net, LOSS, batch(7)) @ np.ones(71)).max() <= 1e-14
    assert (pool.most, pool.now) == (3, 0)
