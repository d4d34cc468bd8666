"""Kronecker blocks with a factor too much or too little: curvlinops, Laplace, and the tutorial on K-FAC."""

import numpy as np
from exhibit import Exhibit, difference, example, ratio, value

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.calculus.signals import EXACT
from gbackprop.kronecker import Kronecker
from gbackprop.operators import GGN
from gbackprop.quantities import KFLR, Quantity, Statistic
from gbackprop.testing import check_quantity


class Block(Quantity):
    """B ⊗ A by the definition of `KFLR`, times a number."""

    name = "block"
    scale = "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = b R Σₙᵥ s sᵀ"
    powers = (1, 1)

    def __init__(self, multiple=1.0, positions=1):
        self.multiple, self.positions = multiple, positions

    def statistics(self):
        return Statistic("input_square"), Statistic("kronecker", EXACT)

    def finish(self, scale, a, b):
        return Kronecker(a if a is None else a / scale.batch, self.multiple * b)

    def definition(self, parts):
        a, b = parts.dense.kronecker["kflr"][parts.name]
        return a, self.multiple * b


class OverPositions(Block):
    def finish(self, scale, a, b):
        rows = scale.batch * self.positions  # A as a mean over all rows, B still a sum over positions
        return Kronecker(a if a is None else a / rows, self.multiple * b)


class BothScaled(Block):
    def finish(self, scale, a, b):
        a = a if a is None else a / scale.batch
        return Kronecker(a if a is None else self.multiple * a, self.multiple * b)  # b² B ⊗ A


class Summed(Block):
    def finish(self, scale, a, b):
        return Kronecker(a, self.multiple * b)  # Σ A in place of E[A]


def without_positions(block):
    setting = example()
    return compared(type(block)(block.multiple), KFLR(), setting, block.multiple)


def with_multiple_one(block):
    return compared(type(block)(1.0), KFLR(), example(), 1.0)


def compared(block, known, setting, factor):
    found, want = value(block, *setting), value(known, *setting)
    return max(difference(found[name], factor * want[name]) for name in want)


def against_the_ggn_of_one_sample(block):
    """For one sample, and no position beside, the Kronecker product is the GGN's block: no expectation is left."""
    rng = np.random.default_rng(3)
    net = gb.Sequential(layers.Linear(3, 2, bias=False), rng=0, dtype="float64")
    setting = (net, losses.MSELoss(), rng.standard_normal((1, 3)), rng.standard_normal((1, 2)))
    dense = GGN(*setting[:2], setting[2:]).to_dense()
    return difference(value(block, *setting)["0.weight"], dense)


def times(setting):
    def effect(faulty, right):
        got, want = (value(each, *setting)["0.weight"] for each in (faulty, right))
        factor = ratio(got, want)
        return f"{factor:.4g} times too large" if factor > 1 else f"{1 / factor:.4g} times too small"

    return effect


def audit_of(setting):
    return lambda block: check_quantity(block, *setting)


PLAIN, SEQUENCE = example(), example(5, 6)

EXHIBITS = [
    Exhibit(
        title="Kronecker factors of a sequence",
        library="curvlinops",
        wrong="Kronecker scale for batch and sequence",
        mended="PR#110",
        kind="a factor T",
        text="""
A weight that is used at T positions has the block B ⊗ A with A = 1/N Σₙₜ u uᵀ if B is that of the bias, b = Σₜ g,
or with A = 1/(N T) Σₙₜ u uᵀ if B is a sum over positions, Σₙₜ g gᵀ. One half of each convention gives a block that
is wrong by T. The list says that the scale was wrong for batch and sequence, and not by what; planted here is the
mean over all N T rows beside the bias's B.
""",
        faulty=lambda: OverPositions(positions=6),
        right=lambda: Block(positions=6),
        lines=OverPositions.finish,
        missed="T = 1",
        unseen="features without positions, T = 1, compared with `KFLR`",
        usual=without_positions,
        effect=lambda faulty, right: times(SEQUENCE)(faulty, right) + " at T = 6",
        audit=audit_of(SEQUENCE),
        call="check_quantity(block, network, loss, x, y)` with x of shape `(5, 6, 4)",
        method="OverPositions",
        claim="is B ⊗ A",
    ),
    Exhibit(
        title="A likelihood's factor in both Kronecker factors",
        library="Laplace",
        wrong="scale of Kronecker factors",
        mended="commit 3380802",
        kind="a square",
        text="""
A posterior needs b H, b = 1/(2σ²) for a regression or the number of samples for a mean loss, and b (B ⊗ A) is (b B)
⊗ A, or (√b B) ⊗ (√b A). With b in both it is b² (B ⊗ A). Blocks of biases have one factor, and are right. The list
says that the scale of the factors was wrong, and not by what; planted here is b = ¼ in both.
""",
        faulty=lambda: BothScaled(0.25),
        right=lambda: Block(0.25),
        lines=BothScaled.finish,
        missed="b = 1",
        unseen="the same test for b = 1, as all classifications have it",
        usual=with_multiple_one,
        effect=lambda faulty, right: times(PLAIN)(faulty, right) + " at b = ¼: the weights' posterior is too wide",
        audit=audit_of(PLAIN),
        call="check_quantity(block, network, loss, x, y)",
        method="BothScaled",
        claim="is B ⊗ A",
    ),
    Exhibit(
        title="The expectation approximation with sums",
        library="the K-FAC tutorial (2025)",
        wrong="a factor N too much in the expectation approximation",
        mended="commit a757461",
        kind="a factor N",
        text="""
K-FAC takes the expectation of a product for the product of expectations, E[b bᵀ ⊗ u uᵀ] ≈ E[b bᵀ] ⊗ E[u uᵀ]. Of
sums it is Σₙ bₙbₙᵀ ⊗ uₙuₙᵀ ≈ 1/N (Σₙ bₙbₙᵀ) ⊗ (Σₙ uₙuₙᵀ): whoever writes sums for expectations on both sides has a
factor N too much.
""",
        faulty=Summed,
        right=Block,
        lines=Summed.finish,
        missed="one sample",
        unseen="a single sample, for which the product is exact: compared with the dense GGN",
        usual=against_the_ggn_of_one_sample,
        effect=lambda faulty, right: times(PLAIN)(faulty, right) + " at N = 7",
        audit=audit_of(PLAIN),
        call="check_quantity(block, network, loss, x, y)",
        method="Summed",
        claim="is B ⊗ A",
    ),
]
