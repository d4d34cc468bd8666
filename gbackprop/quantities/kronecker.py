"""Kronecker-factored blocks of the GGN: KFAC, KFLR, KFRA.

For a weight the block is approximated by B ⊗ A, with A from the inputs u of the layer and B from the signals at its
output; for a bias by B alone. The three quantities differ in B only. A weight with groups of outputs, that of a
grouped convolution, has a pair of factors for each group. A transposed convolution is taken as a convolution.
"""

from __future__ import annotations

from gbackprop.array import Array
from gbackprop.calculus.signals import AVERAGE, EXACT
from gbackprop.kronecker import BLOCKS, GroupedKronecker, Kronecker
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.diagonal import Sampled
from gbackprop.quantities.merging_rules import Averaged, FactorPairs, Summed
from gbackprop.quantities.sharing import OPTIONS, Convention

INPUT_SQUARE = Statistic("input_square", mean=True)


class Factors(Quantity):
    """Base class of the three: A = 1/N Σₙₜ uₙₜ uₙₜᵀ; B contains R.

    Where A and B have a leading axis, that of a weight's groups, the block is a `GroupedKronecker`.
    """

    finishes = "A = input_square / N, B as extracted"
    convention: Convention | None = None

    def finish(self, scale: Scale, a: Array | None, b: Array) -> Kronecker | GroupedKronecker:
        return BLOCKS[b.ndim if a is None else a.ndim](a, b)

    def __repr__(self) -> str:
        return self.convention.shown(super().__repr__()) if self.convention else super().__repr__()


class KFLR(Factors):
    """Kronecker factors with exact B, a `Kronecker` for each parameter.

    Scale: as `KFAC`, with B = R Σₙ Σᵥ b bᵀ over the columns of the exact root of the loss's Hessian: B is the exact
    GGN block of the bias. As BackPACK's `kflr`.

    Source: Botev, Ritter, Barber 2017; paper, appendix A.2 (quantities of the GGN).
    """

    name = "kflr"
    scale = "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = R Σₙᵥ b bᵀ"
    merging, powers = FactorPairs(), (1, 1)
    needs = (INPUT_SQUARE, Statistic("kronecker", EXACT))


class KFAC(Factors, Sampled):
    """Kronecker factors with Monte-Carlo B, a `Kronecker` for each parameter.

    Scale: A = 1/N Σₙₜ u uᵀ over shared positions t; B = R/M Σₙₘ b bᵀ, b = Σₜ of ∇ℓ(fₙ, ŷₙₘ)/√c carried to the layer's
    output, so that B is the estimated curvature of the bias. (The sweep's columns contain the factor √(R/M), and B is
    Σₙₘ b bᵀ of them.) As BackPACK's `kfac`; how other libraries scale shared weights is on the page
    ``docs/derivations/weight_sharing.md``.

    Parameters
    ----------
    mc_samples, targets
        As for `DiagGGNMC`.
    fisher : {"mc", "exact", "empirical", "forward-only"}
        Which columns give B. "exact": B = R Σₙᵥ b bᵀ, as in `KFLR`. "empirical": B = R Σₙ b bᵀ, b from ∇ℓₙ at the true
        targets. "forward-only": B = I, free of R (Benzing 2022: FOOF). For one linear layer with `MSELoss` the GGN is
        2N B ⊗ A with it for "sum", and 2/C B ⊗ A for "mean".
    sharing : {"bias", "expand", "reduce"}
        What is done with the T positions of a shared weight; the same for T = 1. "bias": the scale above. "expand"
        takes them as samples, A = 1/(N T) Σₙₜ u uᵀ and, with g the columns before the sum b = Σₜ g, B = R/M Σₙₘₜ g gᵀ;
        "reduce" takes u's mean, A = 1/N Σₙ ū ūᵀ with ū = 1/T Σₜ u, and B as in "bias". Of a weight at several places T
        is the sum over these.
    joint_bias : bool
        Whether the weight and the bias of a layer are one matrix [W, b], of shape (O, I + 1): u is followed by a 1, and
        so A is (I + 1, I + 1), its last row that of the bias. The block has the weight's name, and the bias has none.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these, or as for `DiagGGNMC`. At the call, UnsupportedError with `joint_bias` for a
        weight without a bias in its layer, as in recurrent ones, with groups, or of a transposed convolution, and for
        names of a traced function that do not end in weight and bias alike.

    Source: Martens & Grosse 2015; paper, appendix A.2 (quantities of the GGN); Eschenhagen et al. 2023
    (expand, reduce).
    """

    fixed = Sampled.fixed | OPTIONS
    name = "kfac"
    scale = "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = R/M Σₙₘ b bᵀ"
    estimates = KFLR

    def __init__(
        self, mc_samples: int = 1, targets: Array | None = None, fisher: str = "mc", sharing: str = "bias",
        joint_bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(mc_samples, targets)
        self.fisher, self.sharing, self.joint_bias = fisher, sharing, joint_bias
        if repr((fisher, sharing, joint_bias)) != "('mc', 'bias', False)":  # of arrays, too
            self.convention = self.together = Convention("KFAC", fisher, sharing, joint_bias, self.signal)
            self.scale, self.finishes = self.convention.formulas

    @property
    def merging(self) -> FactorPairs:
        """B = I is no sum over samples."""
        return FactorPairs(Averaged() if self.fisher == "forward-only" else Summed())

    @property
    def powers(self) -> tuple[int, int]:  # type: ignore[override]
        """Those of the convention."""
        return self.convention.powers if self.convention else (1, 1)

    def statistics(self) -> tuple[Statistic, ...]:
        if self.convention:
            return self.convention.statistics(self.signal)
        return INPUT_SQUARE, Statistic("kronecker", self.signal)


class KFRA(Factors):
    """Kronecker factors with B from an averaged curvature, a `Kronecker` for each parameter.

    Scale: as `KFAC`, with B = Ḡ summed over shared positions in rows and columns, Ḡ starting from R Σₙ Hₙ and averaged
    after each layer, Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ.

    The recursion averages over the whole batch at each layer, so it cannot be cut into blocks of samples. It stores
    one [D, D] matrix, D the number of features.

    Source: Botev, Ritter, Barber 2017; paper, appendix A.2 (quantities of the GGN).
    """

    name = "kfra"
    scale = "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = Σₜₛ Ḡₜₛ"
    merging = "its recursion averages over the whole batch at each layer, so results of batches do not determine it"
    powers = (1, 1)
    needs = (INPUT_SQUARE, Statistic("kronecker", AVERAGE))
