"""curvlinops: linear operators, and PyHessian: a quadrature by one."""

import numpy as np
from exhibit import Exhibit, difference, ratio
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import LinearOperator, lsmr

from gbackprop.testing import check_operator, check_quadrature


def definite(size, least=0.1, most=10.0, seed=0):
    """A symmetric matrix with eigenvalues between two numbers."""
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    return q * np.geomspace(least, most, size) @ q.T


class EmpiricalFisher(LinearOperator):
    """F = 1/M Σ g gᵀ over the gradients of all M losses that a mean loss is the mean of, ``[N, *positions, D]``."""

    symmetric = True

    def __init__(self, gradients):
        self.gradients = gradients
        super().__init__(np.dtype("float64"), (gradients.shape[-1],) * 2)

    @property
    def count(self):
        return self.gradients[..., 0].size

    def _matvec(self, v):
        rows = self.gradients.reshape(-1, self.shape[0])
        return rows.T @ (rows @ v.ravel()) / self.count

    _rmatvec = _matvec


class OverSamplesAlone(EmpiricalFisher):
    @property
    def count(self):
        return len(self.gradients)  # N, where outputs [N, T, C] have N T losses


def outer_products(operator):
    """The definition, sample by sample and position by position."""
    rows = operator.gradients.reshape(-1, operator.shape[0])
    return np.mean([np.outer(row, row) for row in rows], axis=0)


def of_two_axes(operator):
    return difference(operator @ np.eye(3), outer_products(operator))


class DampedInverse(LinearOperator):
    """(A + δ I)⁻¹ by the eigenvalues of A: δ is added exactly."""

    symmetric = True

    def __init__(self, matrix, damping):
        self.values, self.vectors = np.linalg.eigh(matrix)
        self.damping = damping
        super().__init__(np.dtype("float64"), matrix.shape)

    def _matvec(self, v):
        return self.vectors @ ((self.vectors.T @ v.ravel()) / (self.values + self.damping))

    _rmatvec = _matvec


class DampedAgain(DampedInverse):
    def _matvec(self, v):
        self.values += self.damping  # once more with each product
        return self.vectors @ ((self.vectors.T @ v.ravel()) / self.values)

    _rmatvec = _matvec


class LeastSquaresInverse(LinearOperator):
    """A⁻¹ v as the solution of least squares, by LSMR."""

    limit = 1e8
    """The condition number at which LSMR gives up."""

    def __init__(self, matrix):
        self.matrix = matrix
        super().__init__(np.dtype("float64"), matrix.shape)

    def _matvec(self, v):
        return lsmr(self.matrix, v.ravel(), atol=1e-12, btol=1e-12, conlim=self.limit, maxiter=1000)[0]


class GivesUp(LeastSquaresInverse):
    limit = 1e-8  # every matrix has a larger one


def lanczos(A, v):
    """Nodes and weights for vᵀ f(A) v by six steps of Lanczos's method."""
    theta, vectors = tridiagonal(A, v)
    return theta, vectors[0] ** 2


def whole_eigenvectors(A, v):
    theta, vectors = tridiagonal(A, v)
    weights = (vectors**2).sum(0)  # of an eigenvector's entries all, in place of the first: 1 for each
    return theta, weights / weights.sum()


def tridiagonal(A, v, steps=6):
    """Eigenvalues and eigenvectors of the tridiagonal matrix."""
    basis, diagonal, off = [v], [], []
    for _ in range(steps):
        w = A @ basis[-1]
        diagonal.append(basis[-1] @ w)
        for _ in range(2):
            w = w - np.stack(basis).T @ (np.stack(basis) @ w)
        off.append(np.linalg.norm(w))
        basis.append(w / off[-1])
    return eigh_tridiagonal(diagonal, off[:-1])


SPECTRUM = np.diag(np.concatenate([np.linspace(0, 0.3, 28), [4.0, 9.0]]))
"""Most eigenvalues near 0 and a few large ones, as a loss's Hessian has them."""


def of_a_curve(rule):
    """The extreme eigenvalues, and the density's integral, which is 1."""
    v = np.random.default_rng(1).standard_normal(30)
    theta, weights = rule(SPECTRUM, v / np.linalg.norm(v))
    return max(abs(theta.max() - 9) / 9, abs(weights.sum() - 1))


def share_of_small_ones(rule):
    shares = []
    for seed in range(200):
        v = np.random.default_rng(seed).standard_normal(30)
        theta, weights = rule(SPECTRUM, v / np.linalg.norm(v))
        shares.append(weights[theta < 1].sum())
    return np.mean(shares)


def second_product(operator, matrix):
    v = np.ones(len(matrix))
    products = [operator @ v for _ in range(10)]
    return difference(products[-1], np.linalg.solve(matrix + operator.damping * np.eye(len(matrix)), v))


THREE_AXES = np.random.default_rng(1).standard_normal((5, 7, 3))
TWO_AXES = THREE_AXES[:, 0]
MATRIX = definite(5)

EXHIBITS = [
    Exhibit(
        title="The empirical Fisher of outputs with three axes",
        library="curvlinops",
        wrong="empirical Fisher scaled wrongly for outputs with more than two axes",
        mended="PR#109",
        kind="a shape that no test had",
        text="""
A mean loss over outputs [N, T, C] is a mean of N T losses, and the empirical Fisher matrix the mean of as many
products g gᵀ: F = 1/(N T) Σₙₜ g gᵀ. N is the length of the first axis, and for outputs [N, C] it is the number of
losses. The list says that the scale was wrong, and not by what; planted here is the length of the first axis.
""",
        faulty=lambda: OverSamplesAlone(THREE_AXES),
        right=lambda: EmpiricalFisher(THREE_AXES),
        lines=OverSamplesAlone.count.fget,
        missed="two axes",
        unseen="the dense matrix, for outputs with two axes",
        usual=lambda operator: of_two_axes(type(operator)(TWO_AXES)),
        effect=lambda faulty, right: f"{ratio(faulty @ np.eye(3), right @ np.eye(3)):.4g} times too large at T = 7",
        audit=lambda operator: check_operator(operator, outer_products(operator)),
        call="check_operator(operator, dense)` with gradients of shape `(5, 7, 3)",
        method="matvec",
        claim="is A[i, j]",
    ),
    Exhibit(
        title="Damping that is added with every product",
        library="curvlinops",
        wrong="exact damping added again with every product",
        mended="PR#156",
        kind="a repeated update",
        text="""
With the eigenvalues λ of A at hand, (A + δ I)⁻¹ = Q diag(λ + δ)⁻¹ Qᵀ is exact. Added in place, δ has come twice at
the second product, and k times at the kth: the inverse of another matrix each time.
""",
        faulty=lambda: DampedAgain(MATRIX, 0.1),
        right=lambda: DampedInverse(MATRIX, 0.1),
        lines=DampedAgain._matvec,
        missed="the first product",
        unseen="a product with a vector, compared with the dense solution: the first product is right",
        usual=lambda operator: difference(operator @ np.ones(5), np.linalg.solve(MATRIX + 0.1 * np.eye(5), np.ones(5))),
        effect=lambda faulty, right: f"the tenth product is off by {second_product(faulty, MATRIX):.0%}",
        audit=check_operator,
        call="check_operator(operator)",
        method="matvec",
        claim="is pure",
    ),
    Exhibit(
        title="A limit of the condition number, upside down",
        library="curvlinops",
        wrong="condition limit 1e-8 for 1e8 in a least-squares inverse",
        mended="PR#180",
        kind="a reciprocal",
        text="""
LSMR ends when its estimate of the condition number exceeds `conlim`, as a regularization; SciPy's default is 1e8.
No matrix has a condition number below 1: with 1e-8 the method ends after its first step, which is a step along Aᵀb,
and says so in one of its results, which
is not looked at. The first step does not depend on b linearly, and that the audit sees
without any oracle.
""",
        faulty=lambda: GivesUp(MATRIX),
        right=lambda: LeastSquaresInverse(MATRIX),
        lines=GivesUp,
        missed="the identity",
        unseen="a multiple of the identity, which is solved in one step",
        usual=lambda operator: difference(type(operator)(3 * np.eye(5)) @ np.eye(5), np.eye(5) / 3),
        effect=lambda faulty, right: f"A⁻¹b is off by {difference(faulty @ MATRIX[0], np.eye(5)[0]):.0%} for b = A e₁, "
        f"at a condition number of {np.linalg.cond(MATRIX):.0f}",
        audit=lambda operator: check_operator(operator, np.linalg.inv(MATRIX), tolerance=1e-6),
        call="check_operator(operator, dense, tolerance=1e-6)",
        method="matvec",
        claim="is linear",
    ),
    Exhibit(
        title="Weights of a spectral density",
        library="PyHessian",
        wrong="weights of the spectral density: squares of whole eigenvectors instead of their first components",
        mended="PR#18, PR#23",
        kind="an axis",
        text="""
Lanczos's method gives vᵀ f(A) v ≈ Σⱼ wⱼ f(θⱼ) with the eigenvalues θ of a tridiagonal matrix, and for the weights
the squares of the first components of its eigenvectors. A whole eigenvector has length 1, so that all weights are
equal: the few large eigenvalues get as much as the many small ones.
""",
        faulty=lambda: whole_eigenvectors,
        right=lambda: lanczos,
        lines=whole_eigenvectors,
        missed="the largest eigenvalue, the integral",
        unseen="the largest node is the largest eigenvalue, and the density's integral is 1",
        usual=of_a_curve,
        effect=lambda faulty, right: f"{share_of_small_ones(faulty):.0%} of the density is below 1, where 28 of 30 "
        f"eigenvalues are (93%; mended, {share_of_small_ones(right):.0%})",
        audit=lambda rule: check_quadrature(rule, SPECTRUM),
        call="check_quadrature(rule, matrix)",
        method="weights",
        claim="Σⱼ wⱼ θⱼᵏ = vᵀ Aᵏ v",
    ),
]
