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


def make(name, *given, **options):
    return KINDS[name](*given, **DRAWN.get(name, {}), **options)


def flat(values):
    return np.concatenate([value.ravel() for value in values.values()])


@SYMMETRIC
def test_vectors_matrices_and_dictionaries(name):
    net = network()
    operator, rng = make(name, net, losses.CrossEntropyLoss(), batch()), np.random.default_rng(0)
    assert isinstance(operator, LinearOperator)
    d = sum(value.size for value in net.parameters.values())
    assert (operator.shape, operator.dtype) == ((d, d), np.float64)
    v = rng.standard_normal((d, 3))
    product, dense = operator @ v, operator.to_dense()
    scale = np.abs(product).max()
    assert np.abs(dense @ v - product).max() <= 1e-12 * scale
    assert np.abs(dense - dense.T).max() <= 1e-12 * np.abs(dense).max()
    for k in range(3):
        assert np.abs(operator @ v[:, k] - product[:, k]).max() <= 1e-12 * scale
        assert np.abs(operator.matvec(v[:, k : k + 1])[:, 0] - product[:, k]).max() <= 1e-12 * scale
    start, single, several = 0, {}, {}
    for key, value in net.parameters.items():
        rows = v[start : start + value.size]
        single[key], several[key] = rows[:, 0].reshape(value.shape), rows.T.reshape(3, *value.shape)
        start += value.size
    found = operator @ single
    assert {key: value.shape for key, value in found.items()} == {key: v.shape for key, v in net.parameters.items()}
    assert np.abs(flat(found) - product[:, 0]).max() <= 1e-12 * scale
    assert np.array_equal(operator.pack(single), v[:, 0])
    assert np.array_equal(operator.pack(several), v)
    for given, packed in ((single, v[:, 0]), (several, v)):
        assert all(np.array_equal(part, given[key]) for key, part in operator.unpack(packed).items())
    found = operator @ several
    columns = np.concatenate([value.reshape(3, -1) for value in found.values()], axis=1).T
    assert np.abs(columns - product).max() <= 1e-12 * scale
    mixed = (2 * operator + operator @ operator - operator.T + operator.H) @ v
    assert np.abs(mixed - (2 * dense @ v + dense @ dense @ v)).max() <= 1e-11 * np.abs(mixed).max()


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
    v = np.random.default_rng(0).standard_normal((make(name, net, loss, (x, y)).shape[0], 2))
    if name == "Fisher":  # other draws: their sum with each batch's weight
        rng = np.random.default_rng(7)
        parts = [ops.Fisher(net, loss, each, mc_samples=2, rng=rng) for each in data]
        factors = [loss.factor(len(part[0]), part[1]) for part in data]
        whole = loss.factor(7, y)
        want = sum(part @ v * (whole / factor) for part, factor in zip(parts, factors))
    else:
        want = make(name, net, loss, (x, y)) @ v
    found = make(name, net, loss, data) @ v
    assert np.abs(found - want).max() <= 1e-12 * np.abs(want).max()


@SYMMETRIC
def test_an_executor_changes_nothing(name):
    net, loss, (x, y) = network(), losses.CrossEntropyLoss(), batch(7)
    data = list(gb.data.batches(x, y, 2))
    v = np.random.default_rng(0).standard_normal((make(name, net, loss, data).shape[0], 2))
    want = make(name, net, loss, data) @ v
    with ThreadPoolExecutor(3) as pool:
        assert np.array_equal(make(name, net, loss, data, executor=pool) @ v, want)


def test_an_executor_of_processes():
    net, loss, (x, y) = network(), losses.CrossEntropyLoss(), batch(4)
    data = list(gb.data.batches(x, y, 2))
    operator = ops.Hessian(net, loss, data)
    v = np.random.default_rng(0).standard_normal((operator.shape[0], 2))
    with ProcessPoolExecutor(1) as pool:
        assert np.array_equal(ops.Hessian(net, loss, data, executor=pool) @ v, operator @ v)
        jacobian = ops.Jacobian(net, [part for part, _ in data])
        assert np.array_equal(ops.Jacobian(net, [part for part, _ in data], executor=pool) @ v, jacobian @ v)
    assert pickle.loads(pickle.dumps(pieces.linearized_product)) is pieces.linearized_product


@SYMMETRIC
@pytest.mark.parametrize("threads", [1, 2])
def test_pieces_chunks_and_threads_change_rounding_only(name, threads, monkeypatch):
    net, loss, data = network(), losses.CrossEntropyLoss(), batch(7)
    operator = make(name, net, loss, data)
    v = np.random.default_rng(0).standard_normal((operator.shape[0], 5))
    want = operator @ v
    monkeypatch.setattr(pieces, "SAVED_BYTES", 3 * operator.cutter.sample_bytes)
    monkeypatch.setattr(pieces, "TANGENT_BYTES", 3000)
    found = make(name, net, loss, data)
    found.cutter.threads = threads
    assert [len(piece.x) for piece in found._pieces()] == [3, 3, 1]
    assert np.abs(found @ v - want).max() <= 1e-12 * np.abs(want).max()
    assert np.array_equal(found @ v, found @ v)
    assert not found.cutter.stored
    assert len(operator.cutter.stored) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_products_are_computed_in_threads_of_their_own_only_if_there_are_several(threads, monkeypatch):
    monkeypatch.setattr(pieces, "SAVED_BYTES", 1)
    original, seen = layers.Tanh.first, set()
    monkeypatch.setattr(layers.Tanh, "first", lambda *given: seen.add(get_ident()) or original(*given))
    operator = ops.GGN(network(), losses.CrossEntropyLoss(), batch(3))
    operator.cutter.threads = threads
    seen.clear()
    operator @ np.ones(71)
    assert seen
    assert (seen == {get_ident()}) == (threads == 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_piece_comes_out(threads, monkeypatch):
    net, loss, data = network(), losses.CrossEntropyLoss(), batch(7)
    monkeypatch.setattr(pieces, "SAVED_BYTES", 1)
    operator = ops.GGN(net, loss, data)
    operator.cutter.threads = threads
    monkeypatch.setattr(pieces, "Linearized", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        operator @ np.ones(71)


@SYMMETRIC
def test_blocks(name):
    net, loss, data = network(), losses.CrossEntropyLoss(), batch()
    dense = make(name, net, loss, data).to_dense()
    owner = np.concatenate([np.full(value.size, i) for i, value in enumerate(net.parameters.values())])
    found = make(name, net, loss, data, blocks=True).to_dense()
    assert np.abs(found - np.where(owner == owner[:, None], dense, 0)).max() <= 1e-13 * np.abs(dense).max()


def test_the_diagonals_are_the_quantities():
    net, loss, (x, y) = network(), losses.CrossEntropyLoss(), batch()
    result = gb.reference(net, loss, x, y, q.DiagGGN(), q.DiagGGNMC(2), q.DiagHessian(), q.SecondMoment(), rng=7)
    for name, quantity in zip(KINDS, ("diag_ggn", "diag_hessian", "diag_ggn_mc", "second_moment")):
        found, want = np.diag(make(name, net, loss, (x, y)).to_dense()), flat(result[quantity])
        assert np.abs(found - want).max() <= 1e-13 * np.abs(want).max(), name


def test_the_ggn_is_the_jacobians():
    net, loss, (x, y) = network(), losses.MSELoss(), batch()
    y = np.random.default_rng(0).standard_normal((6, 3))
    jacobian = ops.Jacobian(net, x)
    v = np.random.default_rng(1).standard_normal((jacobian.shape[1], 2))
    want = jacobian.T @ (2 / 3 / 6 * (jacobian @ v))  # ∇²ℓ = 2/C
    assert np.abs(ops.GGN(net, loss, (x, y)) @ v - want).max() <= 1e-13 * np.abs(want).max()
    assert np.array_equal(ops.Jacobian(net, [x[:2], x[2:]]).shape, jacobian.shape)
    w = np.random.default_rng(2).standard_normal((18, 2))
    assert np.abs(ops.Jacobian(net, [x[:2], x[2:]]).T @ w - jacobian.T @ w).max() <= 1e-12


def test_piecewise_linear_networks_with_one_linear_layer_per_path_have_hessian_ggn():
    """Where the outputs are piecewise linear in all parameters together, the residual part vanishes."""
    net = gb.Sequential(layers.Flatten(), layers.Linear(16, 3), layers.LeakyReLU(), rng=0, dtype="float64")
    hessian, ggn = (kind(net, losses.CrossEntropyLoss(), batch()) for kind in (ops.Hessian, ops.GGN))
    v = np.random.default_rng(0).standard_normal((hessian.shape[0], 2))
    assert np.abs(hessian @ v - ggn @ v).max() <= 1e-15


def test_hessian_blocks_of_piecewise_linear_networks_are_those_of_the_ggn():
    """In each parameter alone a network of linear layers and kinks is piecewise linear."""
    net = gb.Sequential(
        layers.Conv2d(1, 2, 3), layers.ReLU(), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(2, 3), rng=0,
        dtype="float64",
    )  # fmt: skip
    hessian, ggn = (kind(net, losses.CrossEntropyLoss(), batch(), blocks=True) for kind in (ops.Hessian, ops.GGN))
    v = np.random.default_rng(0).standard_normal((hessian.shape[0], 2))
    assert np.abs(hessian @ v - ggn @ v).max() <= 1e-15
    whole = ops.Hessian(net, losses.CrossEntropyLoss(), batch()) @ v
    assert np.abs(whole - ops.GGN(net, losses.CrossEntropyLoss(), batch()) @ v).max() > 1e-3


def test_frozen_parameters_have_no_part():
    net, loss, data = network(), losses.CrossEntropyLoss(), batch()
    sizes = [value.size for value in net.parameters.values()]
    dense = {name: make(name, net, loss, data).to_dense() for name in KINDS}
    net.freeze("3.weight", "5.bias")
    kept = np.concatenate([np.full(size, i not in (2, 5)) for i, size in enumerate(sizes)])
    for name in KINDS:
        found = make(name, net, loss, data).to_dense()
        assert np.abs(found - dense[name][kept][:, kept]).max() <= 1e-13


@SYMMETRIC
def test_float32(name):
    v = np.random.default_rng(0).standard_normal((71, 3))
    single, double = (
        make(name, network(dtype), losses.CrossEntropyLoss(), batch(dtype=dtype)) for dtype in ("float32", "float64")
    )
    assert single.dtype == np.float32
    found, want = single @ v.astype("float32"), double @ v
    assert found.dtype == np.float32
    assert (single @ v).dtype == np.float32
    assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("name", ["GGN", "Hessian"])
def test_float32_vectors_lose_no_digits_in_float64(name):
    """R = 1/3, which float32 cannot hold: it multiplies the vectors in the operator's dtype."""
    operator = make(name, network("float64"), losses.CrossEntropyLoss(), tuple(part[:3] for part in batch()))
    v = np.random.default_rng(5).standard_normal((operator.shape[1], 2)).astype("float32")
    found, want = operator @ v, operator @ v.astype("float64")
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-14 * np.abs(want).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scipys_solvers(dtype):
    net, loss, data = network(dtype), losses.CrossEntropyLoss(), batch(dtype=dtype)
    ggn, hessian = (kind(net, loss, data) for kind in (ops.GGN, ops.Hessian))
    tolerance = 1e-8 if dtype == "float64" else 1e-3
    dense = ops.Hessian(network(), losses.CrossEntropyLoss(), batch()).to_dense()
    want = np.linalg.eigvalsh(dense)
    most = eigsh(hessian, 2, which="LA", v0=np.ones(71, dtype))[0]
    assert np.abs(most - want[-2:]).max() <= tolerance * want[-1]
    start = np.random.default_rng(0).standard_normal((71, 2)).astype(dtype)
    found = lobpcg(hessian, start, maxiter=60, tol=tolerance * 1e-2)[0]
    assert np.abs(np.sort(found) - want[-2:]).max() <= 10 * tolerance * want[-1]
    rhs = np.random.default_rng(1).standard_normal(71).astype(dtype)
    damped = ggn + 0.1 * LinearOperator((71, 71), matvec=lambda v: v, matmat=lambda v: v, dtype=dtype)
    solution, ended = cg(damped, rhs, rtol=tolerance)
    assert ended == 0
    whole = ops.GGN(network(), losses.CrossEntropyLoss(), batch()).to_dense() + 0.1 * np.eye(71)
    assert np.abs(whole @ solution - rhs).max() <= 20 * tolerance
    jacobian = ops.Jacobian(net, data[0])
    outputs = np.random.default_rng(2).standard_normal(18).astype(dtype)
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
    loss, v = losses.CrossEntropyLoss(), rng.standard_normal((29, 2))
    fixed = v.copy()  # the padding's row has no derivative
    fixed[3 * (padding or 0) : 3 * (padding or 0) + 3] *= padding is None
    want = dense_matrices.hessian_times(net, loss, x, y, fixed)
    assert (x == 1).any()
    assert np.abs(ops.Hessian(net, loss, (x, y)) @ v - want).max() <= 1e-12
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
    net, loss, (x, y) = network(), losses.CrossEntropyLoss(), batch(7)
    data, pool = list(gb.data.batches(x, y, 1)), Waiting()
    monkeypatch.setattr(pieces, "IN_FLIGHT", 3)
    found = ops.GGN(net, loss, data, executor=pool) @ np.ones(71)
    assert np.abs(found - ops.GGN(net, loss, (x, y)) @ np.ones(71)).max() <= 1e-14
    assert (pool.most, pool.now) == (3, 0)
