"""kfac-jax: scales of the empirical Fisher."""

from exhibit import Exhibit, difference, example, ratio, value

import gbackprop as gb
from gbackprop.calculus.signals import GRADIENT
from gbackprop.kronecker import Kronecker
from gbackprop.quantities import BatchGrad, Quantity, Statistic
from gbackprop.quantities.kronecker import INPUT_SQUARE
from gbackprop.testing import check_quantity


class EmpiricalDiagonal(Quantity):
    """Σₙ (R ∇ℓₙ)², which is 1/B² Σₙ (∇ℓₙ)² for "mean"."""

    name = "empirical_diagonal"
    scale = "Σₙ (R ∇ℓₙ)²"
    powers = (2, 2)

    def statistics(self):
        return (Statistic("square", GRADIENT),)

    def finish(self, scale, square):
        return square

    def definition(self, parts):
        return ((parts.factor * parts.gradients) ** 2).sum(0)


class ThriceDivided(EmpiricalDiagonal):
    def finish(self, scale, square):
        return square / scale.batch  # the mean over the batch, of columns that have 1/B already


class EmpiricalFactors(Quantity):
    """B ⊗ A with B from the gradients at the true targets, by the scale of a curvature: R once."""

    name = "empirical_factors"
    scale = "B ⊗ A, A = 1/N Σₙ u uᵀ, B = R Σₙ b bᵀ, b of ∇ℓₙ"
    powers = (1, 2)

    def statistics(self):
        return INPUT_SQUARE, Statistic("kronecker", GRADIENT)

    def finish(self, scale, a, b):
        return Kronecker(a, b / scale.factor)

    def definition(self, parts):
        a, _ = parts.dense.kronecker["kflr"][parts.name]
        b = parts.dense.parts[parts.name.replace("weight", "bias")].gradients
        return a, parts.factor * b.T @ b


class TwiceScaled(EmpiricalFactors):
    def finish(self, scale, a, b):
        return Kronecker(a, b)  # the columns are R ∇ℓₙ, and b bᵀ has R twice


def of_one_sample(quantity):
    """Compare with the squared gradient of the only sample of a batch."""
    setting = example(1)
    found = value(quantity, *setting)
    each = gb.backward(*setting, BatchGrad())["batch_grad"]
    return max(difference(found[name], (each[name] ** 2).sum(0)) for name in found)


def up_to_a_factor(quantity):
    """One minus the cosine of the angle between the block and that of the gradients of each sample."""
    setting = example()
    found, right = value(quantity, *setting), value(EmpiricalFactors(), *setting)
    cosines = [(got * want).sum() / (got**2).sum() ** 0.5 / (want**2).sum() ** 0.5 for got, want in pairs(found, right)]
    return max(abs(1 - cosine) for cosine in cosines)


def pairs(found, right):
    """The arrays of each parameter."""
    return [(found[name], right[name]) for name in found]


def effect(faulty, right):
    sizes = []
    for samples in (7, 32):
        got, want = (value(each, *example(samples))["0.weight"] for each in (faulty, right))
        sizes.append(f"{1 / ratio(got, want):.4g} times too small at B = {samples}")
    return ", ".join(sizes)


def audit(quantity):
    return check_quantity(quantity, *example())


EXHIBITS = [
    Exhibit(
        title="The empirical Fisher by 1/B³",
        library="kfac-jax",
        wrong="empirical-Fisher mode normalised by 1/B³ instead of 1/B²",
        mended="commit 62d9203 (2026-03)",
        kind="a factor B",
        text="""
The gradient of a mean loss brings 1/B with it, so that its square has 1/B²: F = Σₙ (∇ℓₙ/B)². Whoever then takes the
mean over the batch, as for a curvature that comes without the factor, divides a third time. Planted here in the
diagonal; the list gives the powers of B, and not the place.
""",
        faulty=ThriceDivided,
        right=EmpiricalDiagonal,
        lines=ThriceDivided.finish,
        missed="one sample",
        unseen="a batch of one sample, compared with the square of its gradient: all powers of B = 1 are the same",
        usual=of_one_sample,
        effect=effect,
        audit=audit,
        call="check_quantity(quantity, network, loss, x, y)",
        method="ThriceDivided",
        claim="is Σₙ (R ∇ℓₙ)²",
    ),
    Exhibit(
        title="The empirical Fisher by 1/B",
        library="kfac-jax",
        wrong="an older mode of the empirical Fisher by 1/B",
        mended="commit 40cf083 (2026-02)",
        kind="a factor B",
        text="""
A curvature has the loss's R = 1/B once: B = R Σₙ b bᵀ. The columns of a sweep are R ∇ℓₙ, and a product of two of
them has R twice, so that one of the two must be taken out again. Planted here in the factor B of a Kronecker block;
the list gives the factor, and not the place.
""",
        faulty=TwiceScaled,
        right=EmpiricalFactors,
        lines=TwiceScaled.finish,
        missed="up to a factor",
        unseen="the angle between this block and the right one: a factor leaves directions and eigenvectors alone, "
        "and a tuned learning rate or damping takes it up",
        usual=up_to_a_factor,
        effect=effect,
        audit=audit,
        call="check_quantity(quantity, network, loss, x, y)",
        method="TwiceScaled",
        claim="is B ⊗ A",
    ),
]
