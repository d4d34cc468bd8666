"""Kronecker-factored blocks of the GGN: KFAC, KFLR, KFRA.

For a weight the block is approximated by B ⊗ A, with A from the inputs u of the layer and B from the signals at its
output; for a bias by B alone. The three quantities differ in B only. A weight with groups of outputs, that of a
grouped convolution, has a pair of factors for each group. A transposed convolution is taken as a convolution.
"""

from __future__ import annotations

from gbackprop.array import Array
from gbackprop.kronecker import BLOCKS, GroupedKronecker, Kronecker
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.diagonal import Sampled
from gbackprop.signals import AVERAGE, EXACT

INPUT_SQUARE = Statistic("input_square")


class Factors(Quantity):
    """Base class of the three: A = 1/N Σₙₜ uₙₜ uₙₜᵀ; B contains R.

    Where A and B have a leading axis, that of a weight's groups, the block is a `GroupedKronecker`.
    """

    finishes = "A = input_square / N, B as extracted"

    def finish(self, scale: Scale, a: Array | None, b: Array) -> Kronecker | GroupedKronecker:
        kind = BLOCKS[b.ndim if a is None else a.ndim]
        # a second array of A's size takes longer than a small sweep
        return kind(a if a is None or scale.batch == 1 else a / scale.batch, b)


class KFAC(Factors, Sampled):
    """Kronecker factors with Monte-Carlo B, a `Kronecker` for each parameter.

    Scale: A = 1/N Σₙₜ u uᵀ over shared positions t; B = R/M Σₙₘ b bᵀ, b = Σₜ of ∇ℓ(fₙ, ŷₙₘ)/√c carried to the layer's
    output, so that B is the estimated curvature of the bias. (The sweep's columns contain the factor √(R/M), and B is
    Σₙₘ b bᵀ of them.) As BackPACK's `kfac`; how other libraries scale shared weights is on the page
    ``docs/derivations/weight_sharing.md``.

    Source: Martens & Grosse 2015; paper, appendix A.2 (quantities of the GGN).
    """

    name = "kfac"
    scale = "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = R/M Σₙₘ b bᵀ"

    def statistics(self) -> tuple[Statistic, ...]:
        return INPUT_SQUARE, Statistic("kronecker", self.signal)


class KFLR(Factors):
    """Kronecker factors with exact B, a `Kronecker` for each parameter.

    Scale: as `KFAC`, with B = R Σₙ Σᵥ b bᵀ over the columns of the exact root of the loss's Hessian: B is the exact
    GGN block of the bias. As BackPACK's `kflr`.

    Source: Botev, Ritter, Barber 2017; paper, appendix A.2 (quantities of the GGN).
    """

    name = "kflr"
    scale = "B ⊗ A, A = 1/N Σₙₜ u uᵀ, B = R Σₙᵥ b bᵀ"

    def statistics(self) -> tuple[Statistic, ...]:
        return INPUT_SQUARE, Statistic("kronecker", EXACT)


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

    def statistics(self) -> tuple[Statistic, ...]:
        return INPUT_SQUARE, Statistic("kronecker", AVERAGE)
