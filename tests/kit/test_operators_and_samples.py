"""`check_operator`, `check_quadrature` and `check_samples`: right ones pass, and each claim can fail."""

from itertools import count

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.curvature.laplace import Laplace
from gbackprop.operators import GGN, EmpiricalFisher, Fisher, Hessian, Jacobian
from gbackprop.testing import check_operator, check_quadrature, check_samples

RNG = np.random.default_rng(0)
WIDE, SQUARE = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 4))
SYMMETRIC = SQUARE + SQUARE.T


def named(report):
    """The method and the claim that fail first."""
    return (report.failures[0].method, report.failures[0].claim) if report.failures else None


def setting(dtype="float64"):
    net = gb.Sequential(layers.Linear(3, 2), layers.Tanh(), layers.Linear(2, 3), rng=0, dtype=dtype)
    return net, losses.CrossEntropyLoss(), (RNG.standard_normal((4, 3)).astype(dtype), np.array([0, 2, 1, 1]))


# ------------------------------------------------------------------------------------------------------------ operators


@pytest.mark.parametrize("matrix", [WIDE, WIDE.T, SYMMETRIC, SQUARE[:1], SQUARE[:, :1], 0 * WIDE], ids=np.shape)
def test_a_matrix_passes_as_it_is_and_as_an_operator(matrix):
    check_operator(matrix, matrix).assert_ok()
    check_operator(aslinearoperator(matrix), matrix).assert_ok()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", [GGN, Hessian, EmpiricalFisher, Fisher])
def test_what_ships_passes(kind, dtype):
    shipped = kind(*setting(dtype), **({"rng": 0} if kind is Fisher else {}))
    report = check_operator(shipped, shipped.to_dense())
    report.assert_ok()
    assert "is symmetric" in [row.claim for row in report.rows]


def test_a_jacobian_and_an_inverse_pass():
    net, loss, (x, y) = setting()
    jacobian = Jacobian(net, x)
    check_operator(jacobian, jacobian.to_dense()).assert_ok()
    damped = GGN(net, loss, (x, y)).damped(0.1)
    check_operator(damped.inverse(rtol=1e-10), np.linalg.inv(damped.to_dense()), tolerance=1e-7).assert_ok()


def symmetric(v):
    return SYMMETRIC @ v


def operator(matvec=symmetric, matmat=symmetric, rmatvec=symmetric, is_symmetric=True):
    """A right operator, or one of which some products are others."""
    found = LinearOperator((4, 4), matvec, rmatvec, matmat, np.float64)
    found.symmetric = is_symmetric
    return found


class Plain:
    """An operator that is none of SciPy's, and wrong in its shape."""

    shape = (4, 4)

    def __matmul__(self, v):
        return WIDE @ v


class PlainNorm:
    """An operator that is none of SciPy's, and not linear."""

    shape = (4, 4)

    def __matmul__(self, v):
        return SYMMETRIC @ v / np.abs(v).sum(0)


def test_an_operator_of_a_class_of_its_own_that_is_not_linear_is_said_to_be_so():
    with pytest.raises(AssertionError) as caught:
        check_operator(PlainNorm()).assert_ok()
    assert "matvec: is linear: FAILED" in str(caught.value)


def counts(v):
    return SYMMETRIC @ v + 1e-3 * next(CALLS) * v


def writes(v):
    v[0] = 0
    return SYMMETRIC @ v


def square(v):
    return SQUARE @ v


class Transposed(LinearOperator):
    """Products with the transpose of its own, for one vector and for several."""

    def __init__(self, vector=SQUARE.T, vectors=SQUARE.T):
        super().__init__(np.float64, (4, 4))
        self.vector, self.vectors = vector, vectors

    def _matvec(self, v):
        return SQUARE @ v

    def _rmatvec(self, v):
        return self.vector @ v

    def _rmatmat(self, V):
        return self.vectors @ V


CALLS, BUFFER = count(1), np.empty(4)
LAWS = {
    "counts": (operator(counts), "matvec", "is pure"),
    "writes": (operator(writes), "matvec", "is pure"),
    "buffered": (operator(lambda v: np.matmul(SYMMETRIC, v, out=BUFFER)), "matvec", "is linear"),
    "raises": (operator(lambda v: {}["weight"]), "matvec", "is pure"),
    "absolute": (operator(lambda v: SYMMETRIC @ np.abs(v)), "matvec", "is linear"),
    "NaN": (operator(lambda v: SYMMETRIC @ v * np.nan), "matvec", "is linear"),
    "shape": (Plain(), "matvec", "is pure"),
    "mixed": (operator(matmat=lambda V: SYMMETRIC @ V[:, ::-1]), "matmat", "columns do not interact"),
    "untransposed": (operator(square, square, square, False), "rmatvec", "⟨Aᵀ u, v⟩ = ⟨u, A v⟩"),
    "one vector": (Transposed(vector=SQUARE), "rmatvec", "⟨Aᵀ u, v⟩ = ⟨u, A v⟩"),
    "vectors": (Transposed(vectors=SQUARE), "rmatmat", "columns do not interact"),
    "claimed": (operator(square, square, lambda v: SQUARE.T @ v), "matvec", "is symmetric"),
}


@pytest.mark.parametrize("name", LAWS)
def test_each_law_is_seen_to_fail(name):
    wrong, method, claim = LAWS[name]
    assert named(check_operator(wrong)) == (method, claim)


def test_products_with_the_transpose_of_its_own_pass():
    check_operator(Transposed(), SQUARE).assert_ok()


class Product:
    def __init__(self, matrix):
        self.matrix = matrix

    def __matmul__(self, v):
        return self.matrix @ v


class Bare:
    """An operator whose transpose multiplies, and has nothing else."""

    shape = 3, 4

    def __matmul__(self, v):
        return WIDE @ v

    @property
    def T(self):
        return Product(WIDE.T)


def test_a_transpose_need_not_say_its_shape():
    check_operator(Bare(), WIDE).assert_ok()


def test_that_a_matrix_should_be_its_transpose_is_no_diagnosis():
    assert check_operator(LAWS["claimed"][0]).diagnose().failures[0].known == ()


def test_another_matrix_is_seen():
    check_operator(operator(), SYMMETRIC).assert_ok()
    assert named(check_operator(operator(), SYMMETRIC + 1e-8)) == ("matvec", "is A[i, j]")
    assert named(check_operator(SQUARE, SQUARE.T)) == ("matvec", "is A[i, j]")
    row = check_operator(operator(), SYMMETRIC * [1, 1, 2, 1]).failures[0]
    assert row.worst[1] == 2


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="operator: expected a matrix or linear operator, with shape and @, got list"):
        check_operator([[1.0]])
    with pytest.raises(ValueError, match=r"dense: expected shape \(3, 4\) as the operator has, got \(4, 3\)"):
        check_operator(WIDE, WIDE.T)
    with pytest.raises(TypeError, match="operator: expected"):
        check_quadrature(spectral, 3.0)
    with pytest.raises(ValueError, match="covariance: expected a symmetric matrix"):
        check_samples(draw, SQUARE)


# ---------------------------------------------------------------------------------------------------------- quadratures


def spectral(A, v):
    """Nodes and weights by all eigenvectors."""
    values, vectors = np.linalg.eigh(A)
    return values, (vectors.T @ v) ** 2


def test_the_right_weights_pass():
    check_quadrature(spectral, SYMMETRIC).assert_ok()
    check_quadrature(spectral, np.eye(3)).assert_ok()
    check_quadrature(spectral, np.zeros((2, 2))).assert_ok()


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_rules_of_gauss_with_fewer_nodes_than_eigenvalues_pass(nodes):
    def gauss(A, v):
        basis = np.linalg.qr(np.stack([np.linalg.matrix_power(A, k) @ v for k in range(nodes)], 1))[0]
        values, vectors = np.linalg.eigh(basis.T @ A @ basis)
        return values, (vectors.T @ basis.T @ v) ** 2

    check_quadrature(gauss, SYMMETRIC).assert_ok()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda A, v: (spectral(A, v)[0], 4 * spectral(A, v)[1]),
        lambda A, v: (spectral(A, v)[0], np.full(4, 0.25)),
        lambda A, v: (spectral(A, v)[0], np.abs(np.linalg.eigh(A)[1].T @ v)),
        lambda A, v: (spectral(A, v)[0][::-1], spectral(A, v)[1]),
        lambda A, v: (spectral(A, v)[0], spectral(A, v)[1][:2]),
        lambda A, v: (spectral(A, v)[0], spectral(A, v)[1] * np.nan),
        lambda A, v: 1 / 0,
    ],
    ids=["sum", "equal", "not squared", "another order", "too few", "NaN", "raises"],
)
def test_wrong_weights_are_seen(wrong):
    assert named(check_quadrature(wrong, SYMMETRIC))[0] == "weights"


# -------------------------------------------------------------------------------------------------------------- samples

ROOT = np.array([[1.0, 0.0, 0.0], [2.0, 0.5, 0.0], [-1.0, 0.3, 0.1]])
COVARIANCE, MEAN = ROOT @ ROOT.T, np.array([10.0, 0.0, -3.0])


def draw(count, rng):
    return MEAN + rng.standard_normal((count, 3)) @ ROOT.T


def log_density(x):
    fit = (np.linalg.solve(ROOT, (x - MEAN).T) ** 2).sum(0)
    return -fit / 2 - np.log(np.diag(ROOT)).sum() - 1.5 * np.log(2 * np.pi)


@pytest.mark.parametrize("seed", range(30))
def test_right_draws_and_densities_pass(seed):
    check_samples(draw, COVARIANCE, MEAN, rng=seed, log_density=log_density).assert_ok()


def test_draws_that_are_certain_in_a_direction_pass():
    check_samples(lambda count, rng: 0.1 + rng.standard_normal((count, 1)) * [1.0, 0.0, -2.0],
                  np.outer([1, 0, -2], [1, 0, -2]), np.full(3, 0.1)).assert_ok()  # fmt: skip
    check_samples(lambda count, rng: np.zeros((count, 2)), np.zeros((2, 2))).assert_ok()


def test_the_draws_of_a_posterior_that_ships_pass():
    net, loss, data = setting()
    posterior = Laplace(net, loss, data, "full")
    names, precision = list(posterior.mean), GGN(net, loss, data).to_dense() * 4  # of the sum over four samples
    mean = np.concatenate([posterior.mean[name].ravel() for name in names])

    def drawn(count, rng):
        found = posterior.sample(count, rng)
        return np.concatenate([found[name].reshape(count, -1) for name in names], axis=1)

    check_samples(drawn, np.linalg.inv(precision + np.eye(len(mean))), mean).assert_ok()
    assert named(check_samples(drawn, np.linalg.inv(precision / 4 + np.eye(len(mean))), mean))[0] == "draw"


@pytest.mark.parametrize(
    ("wrong", "claim"),
    [
        (lambda count, rng: draw(count, rng) + np.array([0, 0, 0.1]), "has the mean"),
        (lambda count, rng: MEAN + (draw(count, rng) - MEAN) * 1.06, "has the mean"),
        (lambda count, rng: MEAN + rng.standard_normal((count, 3)) @ ROOT, "has the mean"),
        (lambda count, rng: draw(count, np.random.default_rng()), "is the same from the same rng"),
        (lambda count, rng: draw(count, rng)[:, :2], "is the same from the same rng"),
        (lambda count, rng: draw(count, rng) * np.nan, "is the same from the same rng"),
        (lambda count, rng: rng.none, "is the same from the same rng"),
    ],
    ids=["mean", "scale", "transpose", "no seed", "shape", "NaN", "raises"],
)
def test_wrong_draws_are_seen(wrong, claim):
    method, found = named(check_samples(wrong, COVARIANCE, MEAN))
    assert (method, found[: len(claim)]) == ("draw", claim)


def test_of_draws_whose_squares_are_certain_any_other_variance_is_seen():
    def signs(count, rng):
        return rng.choice([-1.0, 1.0], (count, 1))

    check_samples(signs, [[1.0]]).assert_ok()
    assert named(check_samples(signs, [[1.001]]))[0] == "draw"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: log_density(x) + 0.1,
        lambda x: log_density(x) - 1.5 * np.log(2 * np.pi),
        lambda x: 2 * log_density(x),
        lambda x: log_density(x)[:, None],
        lambda x: log_density(x) * np.nan,
        lambda x: 1 / 0,
    ],
    ids=["constant", "two pi", "twice", "shape", "NaN", "raises"],
)
def test_wrong_densities_are_seen(wrong):
    method, claim = named(check_samples(draw, COVARIANCE, MEAN, log_density=wrong))
    assert (method, claim[:15]) == ("log_density", "integrates to 1")
