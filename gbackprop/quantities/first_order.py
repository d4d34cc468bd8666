"""Quantities of the individual gradients.

The sweep's gradient column is R ∇ℓₙ; the formulas below undo R where a quantity is a statistic of ∇ℓₙ itself.
"""

from __future__ import annotations

from gbackprop.array import Array, array_module
from gbackprop.base.checks import check_flag
from gbackprop.calculus.moments import Moments
from gbackprop.calculus.signals import GRADIENT, SAMPLES
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.merging_rules import Averaged, Rows, Variances

MOMENTS = Statistic("moments", GRADIENT)


class BatchGrad(Quantity):
    """Individual gradients, shape (N, *p) for each parameter.

    Scale: R ∇ℓₙ, so that the sum over n is the gradient. As BackPACK's `grad_batch`.

    Parameters
    ----------
    coupled : bool
        Whether to give ∂ℓₙ/∂θ where samples meet, as in `BatchNorm1d` with ``training=True``: the change of ℓₙ alone,
        to which all samples of the batch contribute. The sweep then has N more columns. Elsewhere it is the same.

    Source: paper, appendix A.1 (first-order quantities).
    """

    name = "batch_grad"
    scale = "R ∇ℓₙ"
    merging, powers = Rows(), (1, 1)

    def __init__(self, coupled: bool = False) -> None:
        check_flag("BatchGrad, coupled", coupled)
        self.coupled = coupled

    def statistics(self) -> tuple[Statistic, ...]:
        return (Statistic("batch", SAMPLES if self.coupled else GRADIENT),)

    def __repr__(self) -> str:
        return f"BatchGrad({'coupled=True' if self.coupled else ''})"


class BatchL2Grad(Quantity):
    """Squared l2 norms of the individual gradients, shape (N) for each parameter.

    Scale: ‖R ∇ℓₙ‖². As BackPACK's `batch_l2`.

    Source: paper, appendix A.1 (first-order quantities).
    """

    name = "batch_l2_grad"
    scale = "‖R ∇ℓₙ‖²"
    merging, powers = Rows(power=2), (2, 2)
    needs = (Statistic("square_norm", GRADIENT),)


class SecondMoment(Quantity):
    """Elementwise second moment of the individual gradients, shape (*p) for each parameter.

    Scale: 1/N Σₙ (∇ℓₙ)², free of R. BackPACK's `sum_grad_squared` is Σₙ (R ∇ℓₙ)², that is N R² times this.

    Source: paper, appendix A.1 (first-order quantities).
    """

    name = "second_moment"
    scale = "1/N Σₙ (∇ℓₙ)²"
    finishes = "(Q/N + m²) / R²"
    merging, powers = Averaged(), (0, 2)
    needs = (MOMENTS,)

    def finish(self, scale: Scale, moments: Moments) -> Array:
        second = moments.centered / scale.batch + moments.mean**2
        return (second / scale.factor**2).astype(scale.dtype, copy=False)


class Variance(Quantity):
    """Elementwise variance of the individual gradients, shape (*p) for each parameter.

    Scale: 1/N Σₙ (∇ℓₙ)² − (1/N Σₙ ∇ℓₙ)², free of R: the second moment about the mean, divided by N and not N − 1.
    BackPACK's `variance` takes the same difference with R ∇ℓₙ, so with "mean" it is 1/N² of this.
    Computed from deviations from the mean, so that an offset of the data costs no digits.

    Source: paper, appendix A.1 (first-order quantities).
    """

    name = "variance"
    scale = "1/N Σₙ (∇ℓₙ)² − (1/N Σₙ ∇ℓₙ)²"
    finishes = "Q / (N R²)"
    merging, powers = Variances(), (0, 2)
    needs = (MOMENTS,)

    def finish(self, scale: Scale, moments: Moments) -> Array:
        variance = array_module(moments.centered).maximum(moments.centered, 0) / scale.batch
        return (variance / scale.factor**2).astype(scale.dtype, copy=False)
