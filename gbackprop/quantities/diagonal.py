"""Diagonals of the generalized Gauss-Newton matrix (GGN) and of the Hessian.

With the columns s[v, n] of √R Sₙ, or a Monte-Carlo estimate of it, the diagonal of R Σₙ Jₙᵀ Hₙ Jₙ is Σᵥₙ (Jₙᵀ s)².
"""

from __future__ import annotations

from gbackprop.array import Array, is_array
from gbackprop.base.checks import kind_of, positive
from gbackprop.calculus.signals import EXACT, RESIDUAL, monte_carlo
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.merging_rules import Rows, Summed


class DiagGGN(Quantity):
    """Diagonal of the GGN, exact, shape (*p) for each parameter.

    Scale: diag(R Σₙ Jₙᵀ Hₙ Jₙ), the curvature of L itself. As BackPACK's `diag_ggn_exact`.

    Source: paper, appendix A.2 (quantities of the GGN).
    """

    name = "diag_ggn"
    scale = "diag(R Σₙ Jₙᵀ Hₙ Jₙ)"
    merging, powers = Summed(), (1, 1)
    needs = (Statistic("square", EXACT),)


class BatchDiagGGN(Quantity):
    """Contribution of each sample to `DiagGGN`, shape (N, *p) for each parameter.

    Scale: diag(R Jₙᵀ Hₙ Jₙ), so that the sum over n is `DiagGGN`. As BackPACK's `diag_ggn_exact_batch`.
    """

    name = "batch_diag_ggn"
    scale = "diag(R Jₙᵀ Hₙ Jₙ)"
    merging, powers = Rows(), (1, 1)
    needs = (Statistic("batch_square", EXACT),)


class Sampled(Quantity):
    """Base class of the Monte-Carlo quantities; `DiagGGNMC` says what their arguments are."""

    of_batch = ("targets", "signal")
    fixed = frozenset({"mc_samples", "targets", "signal"})

    def __init__(self, mc_samples: int = 1, targets: Array | None = None) -> None:
        positive(f"{type(self).__name__}, mc_samples", mc_samples)
        if targets is not None:
            if not is_array(targets):
                raise TypeError(f"targets of {type(self).__name__}: expected an array, got {kind_of(targets)}")
            given = targets.shape[0] if targets.ndim else 0
            if mc_samples not in (1, given):
                raise ValueError(f"{type(self).__name__}, targets: expected mc_samples={mc_samples}, got {given}")
            mc_samples = given or mc_samples
        self.mc_samples, self.targets, self.signal = int(mc_samples), targets, monte_carlo(int(mc_samples), targets)

    def __repr__(self) -> str:
        targets = "" if self.targets is None else ", targets=…"
        return f"{type(self).__name__}(mc_samples={self.mc_samples}{targets})"


class DiagGGNMC(Sampled):
    """Diagonal of the GGN, Monte-Carlo estimate, shape (*p) for each parameter.

    Scale: diag(R Σₙ Jₙᵀ (1/M Σₘ s sᵀ) Jₙ) with E[s sᵀ] = Hₙ; its expectation is `DiagGGN`. As BackPACK's `diag_ggn_mc`.

    Parameters
    ----------
    mc_samples : int
        M, the number of pseudo-targets drawn for each sample. Quantities of equal M share the draw, and other
        quantities do not change it.
    targets : ndarray, shape (M, N, ...), optional
        Pseudo-targets that replace the draw, as `loss.draw` returns them; M is then their number.

    Raises
    ------
    TypeError
        If `targets` is not an array.
    ValueError
        If `mc_samples` is not a positive integer, or contradicts `targets`.

    Source: paper, appendix A.2 (quantities of the GGN).
    """

    name = "diag_ggn_mc"
    scale = "diag(R Σₙ Jₙᵀ (1/M Σₘ s sᵀ) Jₙ)"
    merging, powers, estimates = Summed(), (1, 1), DiagGGN

    def statistics(self) -> tuple[Statistic, ...]:
        return (Statistic("square", self.signal),)


class DiagHessian(Quantity):
    """Diagonal of the Hessian, shape (*p) for each parameter.

    Scale: diag(∇²L) = diag(R Σₙ ∇²ℓₙ). As BackPACK's `diag_h`.

    The Hessian is the GGN plus, from each curved layer, its residual carried to the layers below: exact columns
    squared, plus residual columns squared with their signs.

    Source: paper, appendix A.3 (the Hessian's diagonal).
    """

    name = "diag_hessian"
    scale = "diag(∇²L)"
    finishes = "square of exact + square of residual"
    merging, powers = Summed(), (1, 1)
    needs = (Statistic("square", EXACT), Statistic("square", RESIDUAL))

    def finish(self, scale: Scale, ggn: Array, residual: Array) -> Array:
        return ggn + residual


class BatchDiagHessian(Quantity):
    """Contribution of each sample to `DiagHessian`, shape (N, *p) for each parameter.

    Scale: diag(R ∇²ℓₙ), so that the sum over n is `DiagHessian`.
    """

    name = "batch_diag_hessian"
    scale = "diag(R ∇²ℓₙ)"
    finishes = "batch_square of exact + batch_square of residual"
    merging, powers = Rows(), (1, 1)
    needs = (Statistic("batch_square", EXACT), Statistic("batch_square", RESIDUAL))

    def finish(self, scale: Scale, ggn: Array, residual: Array) -> Array:
        return ggn + residual
