"""Laplace: samples of a posterior, a covariance, and a marginal likelihood."""

import numpy as np
from exhibit import Exhibit, difference
from scipy.linalg import solve_triangular

from gbackprop.testing import check_samples

MEAN = np.array([1.0, -2.0, 0.5])
PRECISION = np.array([[4.0, 1.5, 0.0], [1.5, 1.0, 0.3], [0.0, 0.3, 0.5]])


class Posterior:
    """N(θ, P⁻¹), drawn by P = L Lᵀ: θ + L⁻ᵀ ε."""

    def __init__(self, precision=PRECISION):
        self.precision, self.root = precision, np.linalg.cholesky(precision)

    def scaled(self, noise):
        return solve_triangular(self.root, noise, trans="T", lower=True)

    def __call__(self, count, rng):
        return MEAN + self.scaled(rng.standard_normal((len(MEAN), count))).T


class WithoutTranspose(Posterior):
    def scaled(self, noise):
        return solve_triangular(self.root, noise, lower=True)  # L⁻¹ ε, of covariance L⁻¹ L⁻ᵀ


def total_variance(posterior):
    """E ‖θ − mean‖² by many draws, beside tr P⁻¹."""
    draws = posterior(200_000, np.random.default_rng(0)) - MEAN
    return abs((draws**2).sum(1).mean() / np.trace(np.linalg.inv(posterior.precision)) - 1)


def deviation(draw):
    return draw(200_000, np.random.default_rng(1)).std(0)


class Predictive:
    """f of two outputs at one input, of a Gaussian with given variances."""

    def __init__(self, variances=(0.04, 9.0)):
        self.variances = np.array(variances)

    def covariance(self):
        return np.diag(self.variances)

    def __call__(self, count, rng):
        return rng.standard_normal((count, 2)) @ np.linalg.cholesky(self.covariance()).T


class OfDeviations(Predictive):
    def covariance(self):
        return np.diag(np.sqrt(self.variances))  # a standard deviation, to whom takes it for a covariance


def of_unit_variances(predictive):
    unit = type(predictive)((1.0, 1.0))
    return difference(unit.covariance(), np.eye(2))


FEATURES = np.random.default_rng(5).standard_normal((3, 2))
TARGETS = FEATURES @ [2.0, -1.5] + 0.3 * np.random.default_rng(6).standard_normal(3)
NOISE = 0.09


class GaussianProcess:
    """y = Φ w + noise, w ~ N(0, 1/δ): log p(y) = −½ yᵀ K⁻¹ y − ½ log det K − n/2 log 2π, K = Φ Φᵀ/δ + σ² I."""

    def __init__(self, delta=2.0):
        self.delta = delta

    @property
    def kernel(self):
        return FEATURES @ FEATURES.T / self.delta + NOISE * np.eye(3)

    def logdet(self, root):
        return 2 * np.log(np.diag(root)).sum()

    def evidence(self, targets):
        root = np.linalg.cholesky(self.kernel)
        fit = (solve_triangular(root, targets.T, lower=True) ** 2).sum(0)
        return -fit / 2 - self.logdet(root) / 2 - targets.shape[1] / 2 * np.log(2 * np.pi)

    def draw(self, count, rng):
        weights = rng.standard_normal((count, 2)) / self.delta**0.5
        return weights @ FEATURES.T + NOISE**0.5 * rng.standard_normal((count, 3))


class HalfTheDeterminant(GaussianProcess):
    def logdet(self, root):
        return np.log(np.diag(root)).sum()  # of L, where that of K = L Lᵀ is twice as much


def of_two_data_sets(process):
    """log p(y) − log p(y'), beside the difference of −½ yᵀ K⁻¹ y: the constants cancel."""
    two = np.stack([TARGETS, TARGETS[::-1]])
    found, fits = process.evidence(two), -(two * np.linalg.solve(process.kernel, two.T).T).sum(1) / 2
    return difference(found[0] - found[1], fits[0] - fits[1])


def best_precision(kind):
    grid = np.geomspace(1e-3, 1e3, 6001)
    return grid[np.argmax([kind(delta).evidence(TARGETS[None])[0] for delta in grid])]


EXHIBITS = [
    Exhibit(
        title="Samples of a posterior without a transpose",
        library="Laplace",
        wrong="samples of the full posterior without a transpose (2023-11 to 2025-01)",
        mended="commit d2be571 (#268)",
        kind="a transpose",
        text="""
With the precision P = L Lᵀ a sample is θ + L⁻ᵀ ε, of covariance L⁻ᵀ L⁻¹ = P⁻¹. Without the transpose the covariance
is L⁻¹ L⁻ᵀ: a matrix with the same trace, the same determinant and the same eigenvalues, so
that lengths and volumes are right, and only the directions wrong.
""",
        faulty=WithoutTranspose,
        right=Posterior,
        lines=WithoutTranspose.scaled,
        missed="the total variance",
        unseen="the total variance of 200,000 samples, beside tr P⁻¹; a diagonal P would be right altogether",
        usual=total_variance,
        passes=0.02,
        effect=lambda faulty, right: "standard deviations " + " instead of ".join(
            str([float(f"{value:.2g}") for value in deviation(each)]) for each in (faulty, right)
        ),
        audit=lambda draw: check_samples(draw, np.linalg.inv(PRECISION), MEAN),
        call="check_samples(draw, covariance, mean)",
        method="draw",
        claim="has the mean and the covariance[i, j]",
    ),
    Exhibit(
        title="A standard deviation for a covariance",
        library="Laplace",
        wrong="a standard deviation where a covariance was due",
        mended="commit 4e6a3fd",
        kind="a square",
        text="""
A Gaussian is given by its standard deviation here and by its covariance there, and both are arrays of the same
shape. What is below 1 becomes too uncertain, what is above 1 too certain. Planted here in the Gaussian of two
outputs; the list does not say in which function it stood.
""",
        faulty=OfDeviations,
        right=Predictive,
        lines=OfDeviations.covariance,
        missed="variance 1",
        unseen="outputs of variance 1, as standardized ones have: 1 is its own root",
        usual=of_unit_variances,
        effect=lambda faulty, right: "standard deviations " + " instead of ".join(
            str([float(f"{value:.2g}") for value in deviation(each)]) for each in (faulty, right)
        ),
        audit=lambda draw: check_samples(draw, np.diag([0.04, 9.0])),
        call="check_samples(draw, covariance)",
        method="draw",
        claim="has the mean and the covariance[i, j]",
    ),
    Exhibit(
        title="The marginal likelihood of a Gaussian process",
        library="Laplace",
        wrong="marginal likelihood of the Gaussian-process form",
        mended="commit dec9514",
        kind="a square",
        text="""
log p(y) = −½ yᵀ K⁻¹ y − ½ log det K − n/2 log 2π, and log det K = 2 Σ log Lᵢᵢ with K = L Lᵀ. The list says that
this likelihood was wrong, and not how; planted here is the determinant of the root for that of the matrix. Data
sets are compared rightly, prior precisions are not: of two kernels the larger one pays half.
""",
        faulty=HalfTheDeterminant,
        right=GaussianProcess,
        lines=HalfTheDeterminant.logdet,
        missed="differences of two data sets",
        unseen="log p(y) − log p(y') of two data sets, in which constants of y cancel",
        usual=of_two_data_sets,
        effect=lambda faulty, right: f"log p(y) = {faulty.evidence(TARGETS[None])[0]:.3f} instead of "
        f"{right.evidence(TARGETS[None])[0]:.3f}; the prior precision of the largest evidence is "
        f"{best_precision(type(faulty)):.2g} instead of {best_precision(type(right)):.2g}",
        audit=lambda process: check_samples(process.draw, process.kernel, log_density=process.evidence),
        call="check_samples(draw, covariance, log_density=evidence)",
        method="log_density",
        claim="integrates to 1",
    ),
]
