"""EKFAC: the eigenvectors of Kronecker factors, with the eigenvalues that fit the block best.

With A = QA diag QAᵀ and B = QB diag QBᵀ, the diagonal matrix Λ for which (QB ⊗ QA) Λ (QB ⊗ QA)ᵀ is closest to the block
G in the Frobenius norm is the diagonal of (QB ⊗ QA)ᵀ G (QB ⊗ QA). The columns of G are Jᵀ s, as matrices [O, I], so

    λ[o, i] = Σᵥₙ (QBᵀ (Jᵀ s[v, n]) QA)²[o, i]

the reduction "square" in the basis of the eigenvectors. These are known after the sweep, so λ takes a second one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.signals import Signal
from gbackprop.calculus.views import Viewed, joint, rotated
from gbackprop.kronecker import EigenKronecker, GroupedKronecker, Kronecker
from gbackprop.kronecker.eigenbasis import eigenbasis
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.diagonal import Sampled
from gbackprop.quantities.kronecker import Factors
from gbackprop.quantities.sharing import OPTIONS, Convention

Block = Kronecker | GroupedKronecker


class EKFAC(Factors, Sampled):
    """Eigenvectors of Kronecker factors with corrected eigenvalues, an `EigenKronecker` for each parameter.

    Scale: A = QA diag QAᵀ and B = QB diag QBᵀ are those of `KFAC` with the same arguments, and λ[o, i] = R Σₙᵥ (QBᵀ (Jᵀ
    s[v, n]) QA)²[o, i] is the diagonal of the block in this basis, whatever `sharing` is: over the Monte-Carlo columns
    (R/M Σₙₘ), the exact ones, or ∇ℓₙ at the true targets. Of all matrices with these eigenvectors it is the closest to
    the block G of these columns: tr EKFAC = tr G, and ‖G‖² = ‖EKFAC‖² + ‖G − EKFAC‖².

    It takes a second sweep, which carries the same columns. Where A or B has an eigenvalue several times (0, where N
    is below I), its eigenvectors are not unique, and rounding chooses among them. The arrays of a weight with groups
    begin with an axis of them.

    Parameters
    ----------
    mc_samples, targets
        As for `KFAC`.
    fisher : {"mc", "exact", "empirical"}
        The columns of B and of λ, as for `KFAC`.
    sharing, joint_bias
        As for `KFAC`.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As for `KFAC`.

    Source: George, Laurent, Bouthillier, Ballas, Vincent 2018.
    """

    fixed = Sampled.fixed | OPTIONS
    name = "ekfac"
    scale = "(QB ⊗ QA) diag(λ) (QB ⊗ QA)ᵀ, λ = diag((QB ⊗ QA)ᵀ G (QB ⊗ QA))"
    finishes = "eigenvectors of A and B; λ by a second sweep"
    merging = "its eigenvectors are those of the batch's factors: other batches have others"
    convention: Convention

    def __init__(
        self,
        mc_samples: int = 1,
        targets: Array | None = None,
        fisher: str = "mc",
        sharing: str = "bias",
        joint_bias: bool = False,
    ) -> None:
        super().__init__(mc_samples, targets)
        self.fisher, self.sharing, self.joint_bias = fisher, sharing, joint_bias
        known = ("mc", "exact", "empirical")
        self.convention = Convention("EKFAC", fisher, sharing, joint_bias, self.signal, known)

    @property
    def powers(self) -> tuple[int, int]:  # type: ignore[override]
        """Those of the convention."""
        return self.convention.powers

    def statistics(self) -> tuple[Statistic, ...]:
        return self.convention.statistics(self.signal)

    @staticmethod
    def together(quantity: EKFAC, scale: Scale, found: Mapping[str, Sequence[Any]]) -> Quantity:
        """Return the quantity of the second sweep."""
        blocks = quantity.convention(quantity, scale, found)
        return InBasis(blocks, quantity.convention, quantity.convention.columns(quantity.signal))


class InBasis(Quantity):
    """The second sweep of `EKFAC`: squares of the columns in the eigenvectors of each parameter's factors."""

    name = "ekfac"
    scale = EKFAC.scale

    def __init__(self, blocks: Mapping[str, Block], convention: Convention, signal: Signal) -> None:
        self.blocks, self.convention = blocks, convention
        self.bases = bases_of(blocks)
        self.needed = {}
        for name, bases in self.bases.items():
            reduction = Viewed.of("square", partial(view, bases=bases, both=convention.joint_bias), TEXT)
            self.needed[name] = Statistic(reduction, signal, only=name)

    def statistics(self) -> tuple[Statistic, ...]:
        return tuple(self.needed.values())

    @staticmethod
    def together(quantity: InBasis, scale: Scale, found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Compute the block of each parameter from λ, the value of its own statistic."""
        return {name: quantity._block(scale, name, found[name][i]) for i, name in enumerate(quantity.needed)}

    def _block(self, scale: Scale, name: str, square: Array) -> EigenKronecker:
        """Return the block of a parameter; `square` has λ, its outputs first."""
        (qa, qb), eigenvalues = self.bases[name], self.convention.of_squares(scale, square)
        if qa is None:
            return EigenKronecker(None, qb, eigenvalues.reshape(len(qb)))
        return EigenKronecker(qa, qb, eigenvalues.reshape((*qb.shape[:-1], -1)), self.blocks[name].channels_first)


TEXT = "Σᵥₙ (QBᵀ Jᵀ g QA)²"


def view(jacobian: ParameterJacobian, bases: tuple[Array | None, Array], both: bool) -> ParameterJacobian:
    """Return the Jacobian in a basis; `both` says whether a weight is a matrix with its bias."""
    return rotated(joint(jacobian) if both else jacobian, *bases)


def bases_of(blocks: Mapping[str, Block]) -> dict[str, tuple[Array | None, Array]]:
    """Return QA and QB of each parameter's block; on the host a bias has a copy of its weight's QB: B is the same."""
    found: dict[str, tuple[Array | None, Array]] = {}
    before: tuple[Array, Array] | None = None
    for name, block in blocks.items():
        if before is not None and array_module(block.B) is np and np.array_equal(before[0], block.B):
            qb = before[1].copy()
        else:
            qb = eigenbasis(block.B)
        before = block.B, qb
        found[name] = None if block.A is None else eigenbasis(block.A), qb
    return found
