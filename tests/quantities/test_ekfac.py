"""EKFAC, the nearest Kronecker product, and errors of approximations: against dense blocks from complex steps."""

from functools import partial

import numpy as np
import pytest
from common import batch, chain
from dense_blocks import blocks, dense, distance
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.calculus.columns import StoredColumns
from gbackprop.kronecker import EigenKronecker
from gbackprop.quantities import kronecker_error
from gbackprop.quantities.nearest import nearest
from gbackprop.testing import check_quantity
from gbackprop.testing.strategies import SEEDS, problems

RNG = np.random.default_rng(3)


sequential = partial(chain, rng=1)


def tied():
    linear = layers.Linear(3, 3)
    return [linear, layers.Tanh(), linear, layers.Tanh(), layers.Linear(3, 3)]


def branched():
    inner = gb.Residual(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 3))
    return [inner, layers.Tanh(), layers.Linear(3, 3)]


def above(layer, between, features):
    """A layer below a linear one."""
    return [layer, *between, *[layers.Flatten()] * (features > 4), layers.Linear(features, 3)]


NETWORKS = {
    "vectors": (lambda: above(layers.Linear(3, 4), [layers.Tanh()], 4), (3,)),
    "sequences": (lambda: above(layers.Linear(3, 4), [layers.Tanh()], 8), (2, 3)),
    "images": (lambda: above(layers.Conv2d(2, 3, 2), [layers.Tanh()], 12), (2, 3, 3)),
    "groups": (lambda: above(layers.Conv1d(4, 4, 2, groups=2), [layers.PReLU(4)], 8), (4, 3)),
    "transposed": (lambda: above(layers.ConvTranspose1d(2, 4, 2, groups=2), [], 12), (2, 2)),
    "tied": (tied, (3,)),
    "graph": (branched, (3,)),
}
FULL = ["vectors", "sequences", "tied", "graph"]
"""Networks of which A and B have no eigenvalue twice, for enough samples: their eigenvectors are unique."""


def case(name, n=12):
    make, shape = NETWORKS[name]
    return sequential(*make()), losses.CrossEntropyLoss(), RNG.standard_normal((n, *shape)), RNG.integers(0, 3, n)


EACH = pytest.mark.parametrize("name", NETWORKS)
ENGINES = pytest.mark.parametrize("engine", [gb.reference, gb.backward])


# --------------------------------------------------------------------------------------------------------------- EKFAC


@EACH
@ENGINES
@pytest.mark.parametrize("sharing", ["bias", "expand", "reduce"])
def test_trace_and_pythagoras(name, engine, sharing):
    net, loss, x, y = case(name, 5)
    found, want = engine(net, loss, x, y, q.EKFAC(fisher="exact", sharing=sharing))["ekfac"], blocks(net, loss, x, y)
    assert found.keys() == want.keys()
    for key, value in found.items():
        block, dense_value = want[key], value.to_dense()
        assert isinstance(value, EigenKronecker)
        assert value.shape == block.shape
        np.testing.assert_allclose(value.trace(), np.trace(block), rtol=1e-10)
        np.testing.assert_allclose(np.trace(dense_value), np.trace(block), rtol=1e-10)
        squares = [np.linalg.norm(each) ** 2 for each in (block, dense_value, block - dense_value)]
        np.testing.assert_allclose(squares[0], squares[1] + squares[2], rtol=1e-10)


@pytest.mark.filterwarnings("ignore::gbackprop.NotConvergedWarning")
@settings(max_examples=15, deadline=None)
@given(problems(depth=3), st.sampled_from(["bias", "expand", "reduce"]))
def test_identities_on_drawn_networks(problem, sharing):
    """tr EKFAC = tr G, Pythagoras, the errors, and that nothing is nearer than the nearest."""
    net, loss, x, y = problem.network, problem.loss, problem.x, problem.y
    asked = [q.EKFAC(fisher="exact", sharing=sharing), q.KFAC(fisher="exact", sharing=sharing), q.NearestKronecker()]
    try:
        result = gb.backward(net, loss, x, y, *asked, *map(q.KroneckerError, asked), q.DiagGGN())
    except gb.UnsupportedError:
        assume(False)
    want = blocks(net, loss, x, y)
    for key, value in result[asked[0]].items():
        block, matrix = want[key], value.to_dense()
        scale = max(np.linalg.norm(block), 1e-100)
        np.testing.assert_allclose(value.trace() / scale, result["diag_ggn"][key].sum() / scale, rtol=1e-9, atol=1e-12)
        squares = [np.linalg.norm(each / scale) ** 2 for each in (block, matrix, block - matrix)]
        np.testing.assert_allclose(squares[0], squares[1] + squares[2], rtol=1e-7, atol=1e-9)
        if np.linalg.norm(block) > 1e-6:
            for quantity in asked:
                error = result.error(quantity)[key].relative
                found = distance(block, result[quantity][key].to_dense())
                np.testing.assert_allclose(error, found, rtol=1e-7, atol=1e-7)
            nearest, other = (result.error(each)[key] for each in (asked[2], asked[1]))
            best = (1 - min(1.0, (other.inner / other.norm / max(other.approximation_norm, 1e-300)) ** 2)) ** 0.5
            assert nearest.relative <= best + 1e-6


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("joint", [False, True])
def test_eigenvectors_are_those_of_kfac_and_eigenvalues_the_diagonal(name, joint):
    net, loss, x, y = case(name)
    options = {"fisher": "exact", "joint_bias": joint}
    ekfac, kfac = gb.backward(net, loss, x, y, q.EKFAC(**options), q.KFAC(**options)).values
    want = blocks(net, loss, x, y, joint=joint)
    assert ekfac.keys() == kfac.keys() == want.keys()
    for key, value in ekfac.items():
        for vectors, factor in ((value.QA, kfac[key].A), (value.QB, kfac[key].B)):
            if vectors is not None:
                turned = vectors.T @ factor @ vectors
                np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-12 * np.abs(factor).max())
        basis = np.kron(value.QB, np.eye(1) if value.QA is None else value.QA)
        diagonal = np.diag(basis.T @ want[key] @ basis)
        np.testing.assert_allclose(value.eigenvalues.ravel(), diagonal, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kind", ["mc", "empirical"])
def test_eigenvalues_of_other_columns(kind):
    net, loss, x, y = case("sequences")
    targets = loss.draw(net(x), 3, rng=0)
    quantity = q.EKFAC(targets=targets) if kind == "mc" else q.EKFAC(fisher="empirical")
    diagonal = q.DiagGGNMC(targets=targets) if kind == "mc" else q.SecondMoment()
    result = gb.backward(net, loss, x, y, quantity, diagonal)
    for key, value in result[quantity].items():  # "mean": R Σₙ ∇ℓₙ ∇ℓₙᵀ has the second moment as its diagonal
        np.testing.assert_allclose(value.trace(), result[diagonal][key].sum(), rtol=1e-10)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "asked", [[q.EKFAC(2), q.DiagGGNMC(2)], [q.EKFAC(fisher="exact"), q.DiagGGN()]], ids=["drawn", "exact"]
)
def test_the_second_sweep_has_the_targets_and_the_masks_of_the_first(asked, training):
    net = sequential(layers.Linear(3, 6), layers.Tanh(), layers.Dropout(0.5), layers.Linear(6, 3))
    given = losses.CrossEntropyLoss(), *batch(8, 3)
    ekfac, diagonal = gb.backward(net, *given, *asked, rng=4, training=training).values
    for key, value in ekfac.items():
        np.testing.assert_allclose(value.trace(), diagonal[key].sum(), rtol=1e-10)


@pytest.mark.parametrize("options", [{"sample_block": 5}, {"column_block": 1}, {"sample_block": 3, "workers": 2}])
@pytest.mark.parametrize("name", FULL)
def test_blocks_threads_and_a_memory_budget_change_nothing(name, options):
    net, loss, x, y = case(name)
    asked = [q.EKFAC(fisher="exact"), q.EKFAC(fisher="exact", sharing="expand"), q.NearestKronecker()]
    asked += [q.KroneckerError(each) for each in asked]
    whole = gb.reference(net, loss, x, y, *asked)
    for given_options in (options, {"memory": "40 MB"}):
        cut = gb.backward(net, loss, x, y, *asked, **given_options)
        for quantity in asked[:3]:
            for key, value in whole[quantity].items():
                want, found = value.to_dense(), cut[quantity][key].to_dense()
                allowed = 1e-6 if quantity is asked[2] else 1e-12  # the root of the iteration's tolerance
                np.testing.assert_allclose(found, want, rtol=0, atol=allowed * np.abs(want).max())
                errors = [result.error(quantity)[key].relative for result in (cut, whole)]
                np.testing.assert_allclose(*errors, atol=1e-10)


def test_float32_and_what_else_is_asked_for():
    net, loss, x, y = case("vectors")
    single = net.astype("float32")
    for quantity in (q.EKFAC(fisher="exact"), q.NearestKronecker()):
        found = gb.backward(single, loss, x.astype("float32"), y, quantity, q.Variance())[quantity]
        for value in found.values():
            kinds = {part.dtype for part in vars(value).values() if isinstance(part, np.ndarray)}
            assert kinds == {np.dtype("float32")}


# ------------------------------------------------------------------------------------------------- nearest and errors


def approximations(name):
    several = [q.KFAC(2), q.KFLR(), q.KFAC(fisher="exact", sharing="expand"), q.KFAC(fisher="exact", sharing="reduce")]
    several += [q.KFAC(fisher="empirical"), q.EKFAC(), q.EKFAC(fisher="exact"), q.NearestKronecker()]
    several += [q.DiagGGN(), q.DiagGGNMC()]
    return several + [q.KFRA()] * (name in ("vectors", "sequences", "images", "transposed"))


@EACH
def test_errors_are_those_of_dense_matrices_and_nothing_is_nearer_than_the_nearest(name):
    net, loss, x, y = case(name, 5)
    asked = approximations(name)
    result = gb.backward(net, loss, x, y, *asked, *[q.KroneckerError(each) for each in asked], rng=0)
    want = blocks(net, loss, x, y)
    nearest = next(each for each in asked if isinstance(each, q.NearestKronecker))
    for quantity in asked:
        for key, value in result[quantity].items():
            block, matrix, error = want[key], dense(value), result.error(quantity)[key]
            best, norms = (block * matrix).sum() / (matrix**2).sum(), [np.linalg.norm(m) for m in (block, matrix)]
            allowed = 1e-10 * (1 + error.relative)
            np.testing.assert_allclose(error.relative, distance(block, matrix), rtol=0, atol=allowed)
            np.testing.assert_allclose(error.best_scale, best, rtol=1e-10)
            np.testing.assert_allclose([error.norm, error.approximation_norm], norms)
            if not isinstance(quantity, q.DiagGGN | q.DiagGGNMC | q.EKFAC):
                assert result.error(nearest)[key].relative <= distance(block, best * matrix) + 1e-10, (quantity, key)
            assert error.standard_error is None


@pytest.mark.filterwarnings("ignore::gbackprop.NotConvergedWarning")
@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), SEEDS)
def test_the_nearest_is_the_best_of_a_dense_rearrangement(i, o, t, seed):
    """Van Loan and Pitsianis with a dense SVD."""
    net = chain(layers.Linear(i, o), layers.Tanh(), layers.Flatten(), layers.Linear(o * t, 2), rng=seed)
    rng = np.random.default_rng(seed)
    x, y, loss = rng.standard_normal((4, t, i)), rng.integers(0, 2, 4), losses.CrossEntropyLoss()
    found, block = gb.backward(net, loss, x, y, q.NearestKronecker())["nearest_kronecker"], blocks(net, loss, x, y)
    singular = np.linalg.svd(block["0.weight"].reshape(o, i, o, i).swapaxes(1, 2).reshape(o * o, i * i))[1]
    rest = (singular[1:] ** 2).sum() ** 0.5
    value = found["0.weight"]
    got = np.linalg.norm(block["0.weight"] - value.to_dense())
    np.testing.assert_allclose(got, rest, rtol=1e-5, atol=1e-9 * singular[0])
    np.testing.assert_allclose(np.linalg.norm(value.A), np.linalg.norm(value.B), rtol=1e-9)
    np.testing.assert_allclose(found["0.bias"].to_dense(), block["0.bias"], rtol=1e-9, atol=1e-13)


def test_the_nearest_of_small_columns_is_found_as_well():
    g, u = RNG.standard_normal((2, 5, 1, 1, 3)), RNG.standard_normal((5, 1, 1, 4))
    (a, b, _), (small_a, small_b, _) = (nearest(StoredColumns(((size * g, u),)), 1e-12, 2000) for size in (1, 1e-4))
    np.testing.assert_allclose(np.kron(small_b[0], small_a[0]) * 1e8, np.kron(b[0], a[0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-100])
def test_a_group_beside_a_large_one_has_the_nearest_product_too(size):
    rng = np.random.default_rng(3)
    g, u = rng.standard_normal((2, 5, 2, 1, 3)), rng.standard_normal((5, 2, 1, 4))
    u[:, 0], g[:, :, 1] = u[0, 0], size * g[:, :, 1]  # the first group is exactly a product
    a, b, rest = nearest(StoredColumns(((g, u),)), 1e-12, 2000)
    columns = np.einsum("vno,ni->vnoi", g[:, :, 1, 0] / size, u[:, 1, 0]).reshape(10, 12)
    of_pairs = (columns.T @ columns).reshape(3, 4, 3, 4).swapaxes(1, 2).reshape(9, 16)
    left, values, right = np.linalg.svd(of_pairs)
    want = values[0] * np.outer(left[:, 0], right[0])
    assert rest is None
    np.testing.assert_allclose(np.outer(b[1] / size, a[1] / size), want, rtol=0, atol=1e-5 * values[0])


@pytest.mark.parametrize("gap", [380, 400, 600])
def test_errors_of_blocks_whose_squares_underflow(gap):
    """The probabilities of two classes are e^−gap, and so is G."""
    net = sequential(layers.Linear(4, 3))
    net.parameters["0.bias"] = np.array([0.0, -gap, -gap - 3])
    x, y, loss = np.random.default_rng(0).standard_normal((6, 4)), np.zeros(6, int), losses.CrossEntropyLoss()
    asked = [q.KFLR(), q.NearestKronecker(), q.EKFAC(fisher="exact"), q.DiagGGN()]
    result = gb.backward(net, loss, x, y, *asked, *map(q.KroneckerError, asked))
    want = blocks(net, loss, x, y)["0.weight"]
    size = abs(want).max()
    errors = [result.error(each)["0.weight"] for each in asked]
    for quantity, error in zip(asked, errors, strict=True):
        matrix = dense(result[quantity]["0.weight"]) / size
        np.testing.assert_allclose(error.relative, distance(want / size, matrix), rtol=1e-9)
        np.testing.assert_allclose(error.approximation_norm / size, np.linalg.norm(matrix), rtol=1e-9)
    assert errors[1].relative == min(error.relative for error in errors[:2]) > 0


@pytest.mark.parametrize("size", [1e-85, 1e-77, 1e77])
def test_errors_of_blocks_whose_size_is_in_the_inputs(size):
    """The outputs of size · x and W / size are those of x and W, and G is size² times theirs."""
    x, y, weight = RNG.standard_normal((6, 4)), np.zeros((6, 3)), RNG.standard_normal((3, 4))
    asked = [q.KFLR(), q.KFAC(), q.EKFAC(fisher="exact")]
    errors = []
    for scale in (1.0, size):
        net = sequential(layers.Linear(4, 3, bias=False), layers.Tanh())
        net.parameters["0.weight"] = weight / scale
        found = gb.backward(net, losses.MSELoss(), scale * x, y, *asked, *map(q.KroneckerError, asked), rng=2)
        errors.append([found.error(each)["0.weight"] for each in asked])
    for one, other in zip(*errors, strict=True):
        np.testing.assert_allclose(other.relative, one.relative, rtol=1e-7)
        np.testing.assert_allclose(other.norm / size / size, one.norm, rtol=1e-9)


def test_the_error_of_exact_eigenvectors_in_float32_is_its_rounding():
    net = gb.Sequential(layers.Linear(20, 8), rng=0)
    x, y = RNG.standard_normal((64, 20)).astype("float32"), RNG.standard_normal((64, 8)).astype("float32")
    error = q.KroneckerError(q.EKFAC(fisher="exact"))
    assert gb.backward(net, losses.MSELoss(), x, y, error)[error]["0.weight"].relative < 1e-6


def test_errors_of_exact_factors_are_rounding():
    net = sequential(layers.Linear(3, 4), layers.Linear(4, 2))
    x, y, loss = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 2)), losses.MSELoss()
    asked = [q.KFLR(), q.KFRA(), q.EKFAC(fisher="exact"), q.NearestKronecker()]
    asked += [q.KFAC(fisher="exact", joint_bias=True), q.NearestKronecker(joint_bias=True)]
    result = gb.backward(net, loss, x, y, *[q.KroneckerError(each) for each in asked])
    for quantity in asked:
        for error in result.error(quantity).values():
            assert error.relative < 1e-13
            assert abs(error.best_scale - 1) < 1e-12


@pytest.mark.parametrize("entries", [1, 3 * 32, kronecker_error.ENTRIES])
def test_small_errors_have_their_digits_however_many_rows_are_compared_at_a_time(entries, monkeypatch):
    monkeypatch.setattr(kronecker_error, "ENTRIES", entries)
    rng = np.random.default_rng(0)
    net, x, loss = sequential(layers.Linear(8, 4)), rng.standard_normal((2, 8)), losses.CrossEntropyLoss()
    x[1] = x[0] + 1e-3 * x[1]
    result = gb.backward(net, loss, x, np.zeros(2, int), q.KFLR(), q.KroneckerError(q.KFLR()))
    want = distance(blocks(net, loss, x, np.zeros(2, int))["0.weight"], dense(result["kflr"]["0.weight"]))
    assert 1e-8 < want < 1e-6
    np.testing.assert_allclose(result.error(q.KFLR())["0.weight"].relative, want, rtol=1e-4)


@pytest.mark.parametrize("name", ["vectors", "sequences"])
def test_joint_blocks(name):
    net, loss, x, y = case(name)
    asked = [q.KFAC(fisher="exact", joint_bias=True), q.EKFAC(fisher="exact", joint_bias=True)]
    asked.append(q.NearestKronecker(joint_bias=True))
    result = gb.backward(net, loss, x, y, *asked, *map(q.KroneckerError, asked))
    want = blocks(net, loss, x, y, joint=True)
    for quantity in asked:
        for key, value in result[quantity].items():
            error = result.error(quantity)[key].relative
            np.testing.assert_allclose(error, distance(want[key], dense(value)), atol=1e-10)


def test_the_estimate_is_unbiased_and_states_its_error():
    net, loss, x, y = case("vectors")
    exact = gb.backward(net, loss, x, y, q.KroneckerError(q.KFLR())).values[0]
    asked = [q.KroneckerError(q.KFLR(), columns=8, rng=seed) for seed in range(60)]
    runs = [gb.backward(net, loss, x, y, one).values[0] for one in asked]
    for key, value in exact.items():
        squares = np.array([run[key].norm ** 2 for run in runs])
        error = squares.std(ddof=1) / len(runs) ** 0.5
        assert abs(squares.mean() - value.norm**2) < 5 * error
        told = np.array([run[key].standard_error for run in runs if run[key].relative > 0.05])
        if len(told) > 50:  # the stated errors are those that come about
            relatives = np.array([run[key].relative for run in runs if run[key].relative > 0.05])
            assert 0.4 < relatives.std(ddof=1) / np.median(told) < 2.5
    every = gb.backward(net, loss, x, y, q.KroneckerError(q.KFLR(), columns=10**6, rng=0)).values[0]
    for key, value in exact.items():
        np.testing.assert_allclose(every[key].norm, value.norm, rtol=1e-12)
        assert every[key].standard_error == 0 or value.relative < 1e-6


def test_the_stated_error_is_no_matter_of_the_size_of_the_loss():
    """It is that of a share, ‖G − K‖ / ‖G‖."""
    net = gb.Sequential(layers.Linear(4, 5), layers.Sigmoid(), layers.Linear(5, 3), rng=0, dtype="float64")
    x, y, loss = np.random.default_rng(0).standard_normal((9, 4)), np.arange(9) % 3, losses.CrossEntropyLoss()
    asked = q.KroneckerError(q.KFLR(), columns=20, rng=3)
    one, other = (gb.backward(net, loss, x, y, asked, sample_weight=np.full(len(x), w)).values[0] for w in (1.0, 40.0))
    assert sum(0 < value.standard_error < 1 for value in one.values()) > 1
    for key, value in one.items():
        np.testing.assert_allclose(other[key].norm, 40 * value.norm, rtol=1e-9)
        np.testing.assert_allclose(other[key].standard_error, value.standard_error, rtol=1e-6)


def test_stated_errors_of_two_approximations_are_of_one_error_of_the_norm():
    """With the same columns: relative² = 1 − (2 ⟨G, K⟩ − ‖K‖²) / ‖G‖², so its error goes by what stands there."""
    net = gb.Sequential(layers.Linear(4, 5), layers.Sigmoid(), layers.Linear(5, 3), rng=0, dtype="float64")
    x, y = np.random.default_rng(0).standard_normal((9, 4)), np.arange(9) % 3
    asked = [q.KroneckerError(each, columns=20, rng=3) for each in (q.KFLR(), q.KFRA(), q.NearestKronecker())]
    blocks = [found["0.weight"] for found in gb.backward(net, losses.CrossEntropyLoss(), x, y, *asked).values]
    assert len({block.norm for block in blocks}) == 1
    assert blocks[0].relative > 1.04 * blocks[2].relative > 0
    told = [block.standard_error * block.relative for block in blocks]
    share = [abs(2 * block.inner - block.approximation_norm**2) for block in blocks]
    np.testing.assert_allclose(np.divide(told, told[0]), np.divide(share, share[0]), rtol=1e-9)


def test_too_rough_an_estimate_is_no_number():
    net, loss, x, y = case("vectors")
    asked = [q.KroneckerError(q.KFLR(), columns=2, rng=seed) for seed in range(40)]
    runs = [gb.backward(net, loss, x, y, one).values[0] for one in asked]
    values = [value for run in runs for value in run.values()]
    rough = [value for value in values if value.norm**2 - 2 * value.inner + value.approximation_norm**2 < 0]
    assert rough
    assert all(np.isnan(value.relative) and value.standard_error == np.inf for value in rough)
    assert sum(np.isnan(value.relative) for value in values) == len(rough)


def test_what_an_error_needs_is_told():
    net, loss, x, y = case("vectors")
    kflr = q.KFLR()
    result = gb.backward(net, loss, x, y, kflr, q.KroneckerError(kflr))
    assert result.error("kflr") is result.error(kflr) is result.error(q.KFLR())
    with pytest.raises(KeyError, match=r"ask for KroneckerError\(EKFAC\(mc_samples=1\)\) in the same call"):
        result.error(q.EKFAC())
    both = [q.KroneckerError(kflr), q.KroneckerError(kflr, columns=3, rng=0)]
    result = gb.backward(net, loss, x, y, *both)
    with pytest.raises(KeyError, match=r"2 fit: index by one, result\[KroneckerError\(…\)\]"):
        result.error(kflr)
    assert result[both[1]] is result.values[1]
    with pytest.raises(TypeError, match=r"KroneckerError, of: expected a KFAC, KFLR, .*, got Variance"):
        q.KroneckerError(q.Variance())
    with pytest.raises(ValueError, match="KroneckerError, columns: expected an integer of at least 1, got 0"):
        q.KroneckerError(kflr, columns=0)


@pytest.mark.parametrize("kind", [gb.RNN, gb.LSTM, gb.GRU])
@pytest.mark.parametrize("training", [False, True])
def test_recurrent_layers_whose_steps_are_one_layer(kind, training):
    """Their second sweep has the layers, and the masks, of the first: in the first call, and in a prepared one."""
    net = sequential(kind(3, 2), layers.Dropout(0.4), layers.Flatten(), layers.Dropout(0.4), layers.Linear(6, 3))
    x, y, loss = RNG.standard_normal((12, 3, 3)), RNG.integers(0, 3, 12), losses.CrossEntropyLoss()
    ekfac, options = q.EKFAC(fisher="exact"), {"rng": 0, "training": training}
    asked = [ekfac, q.KroneckerError(ekfac)]
    want = gb.reference(net, loss, x, y, *asked, q.DiagGGN(), **options)
    for _ in range(2):
        found = gb.backward(net, loss, x, y, *asked, q.DiagGGN(), **options)
        for key, value in found[ekfac].items():
            np.testing.assert_allclose(value.trace(), want["diag_ggn"][key].sum(), rtol=1e-10)
            np.testing.assert_allclose(value.trace(), want[ekfac][key].trace(), rtol=1e-10)
            errors = [result.error(ekfac)[key].inner for result in (found, want)]
            np.testing.assert_allclose(errors[0], errors[1], rtol=1e-6)


def test_the_nearest_of_drawn_columns_says_how_many():
    assert repr(q.NearestKronecker("mc", mc_samples=3)) == "NearestKronecker(fisher='mc', mc_samples=3)"
    assert repr(q.NearestKronecker(joint_bias=True)) == "NearestKronecker(joint_bias=True)"


def test_no_convergence_is_told():
    net, loss, x, y = case("sequences")
    with pytest.warns(gb.NotConvergedWarning, match="not converged after 1 iterations: 0.weight"):
        gb.backward(net, loss, x, y, q.NearestKronecker(iterations=1))
    with pytest.raises(ValueError, match="NearestKronecker, tolerance: expected a finite number above 0, got 0"):
        q.NearestKronecker(tolerance=0)


@pytest.mark.parametrize("quantity", [q.EKFAC(), q.NearestKronecker(), q.KroneckerError(q.KFLR())], ids=repr)
def test_batches_cannot_be_merged(quantity):
    net, loss, x, y = case("vectors")
    with pytest.raises(gb.UnsupportedError, match="cannot be merged"):
        gb.data.merge([gb.backward(net, loss, x, y, quantity)])


def test_an_explanation_names_the_second_sweep():
    net, loss, x, y = case("vectors", 3)
    assert "eigenvectors of A and B; λ by a second sweep" in str(gb.explain(net, loss, x, y, q.EKFAC()))


KIT = [q.KFAC(fisher="exact", sharing="expand"), q.EKFAC(), q.NearestKronecker(), q.KroneckerError(q.KFLR())]


@pytest.mark.parametrize("quantity", KIT, ids=repr)
def test_the_laws_of_quantities_hold(quantity):
    """Blocks, the plain sweep, other quantities, the order of the samples: what the kit holds of any quantity."""
    report = check_quantity(quantity, *case("vectors", 5))
    report.assert_ok()
    assert sum(row.verdict == "ok" and row.method == type(quantity).__name__ for row in report.rows) >= 8


def test_prepared_calls_take_the_second_sweep_of_their_own_batch():
    net, loss, *_ = case("vectors")
    ekfac = q.EKFAC(fisher="exact")
    call = gb.prepare(net, loss, ekfac, q.KroneckerError(ekfac))
    for _ in range(3):
        x, y = RNG.standard_normal((12, 3)), RNG.integers(0, 3, 12)
        found, want = call(x, y), gb.reference(net, loss, x, y, ekfac, q.KroneckerError(ekfac))
        for key, value in want[ekfac].items():
            np.testing.assert_allclose(found[ekfac][key].to_dense(), value.to_dense(), rtol=0, atol=1e-12)
            np.testing.assert_allclose(found.error(ekfac)[key].relative, want.error(ekfac)[key].relative, atol=1e-10)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_nearest_of_the_empirical_fisher_has_its_scale(reduction):
    """R Σₙ ∇ℓₙ ∇ℓₙᵀ, where the columns have R² in their products."""
    net, x, y = chain(layers.Linear(3, 2)), RNG.standard_normal((1, 3)), np.array([1])
    x, y = np.repeat(x, 4, 0), np.repeat(y, 4)  # equal samples: one product of factors is all of it
    asked = q.NearestKronecker(fisher="empirical"), q.BatchGrad()
    result = gb.backward(net, losses.CrossEntropyLoss(reduction), x, y, *asked)
    r = 0.25 if reduction == "mean" else 1.0
    for name, block in result["nearest_kronecker"].items():
        g = result["batch_grad"][name].reshape(4, -1) / r
        np.testing.assert_allclose(block.to_dense(), r * g.T @ g, rtol=1e-9, atol=1e-13)
