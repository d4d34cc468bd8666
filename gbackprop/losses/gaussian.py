"""Negative log-likelihood of numbers whose variances are given."""

from __future__ import annotations

from math import log, pi
from typing import Literal

from gbackprop.array import Array, array_module, bounds
from gbackprop.base.checks import check_flag, number
from gbackprop.calculus.layer import Shape
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.losses.huber import UNDRAWN


class GaussianNLLLoss(ElementwiseLoss):
    """ℓₙ = c Σ ½ (log v + (f − y)²/v), with the variances v of the targets y given, c = 1 or 1/C for "mean".

    ∇ℓ = c (f − y)/v, ∇²ℓ = c diag(1/v), S its elementwise root. The Hessian depends on what comes with the target:
    there are no Monte-Carlo draws.

    torch takes v as a third argument, which the network may compute, too. Here the network computes means alone, and
    targets are (N, 2, *out): y in ``[:, 0]`` and v in ``[:, 1]``, made by ``np.stack([y, v], axis=1)``. As a function
    of mean and variance the loss has a Hessian of determinant −1/(2v³), with no real root and no generalized
    Gauss-Newton matrix.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    full : bool
        Whether ℓ has the constant ½ log 2π.
    eps : float
        ε > 0, in the outputs' dtype too: smaller variances count as ε.
    """

    formulas = {
        "values": "ℓ = c Σⱼ (log(sⱼ) + (fⱼ − yⱼ)² / sⱼ + full log(2π)) / 2, sⱼ = max(vⱼ, ε)",
        "gradients": "c (fⱼ − yⱼ) / sⱼ",
        "hessian": "c [i = j] / sⱼ",
    }
    undrawn = UNDRAWN
    hint = " (variances come with the targets: np.stack([target, var], axis=1))"

    def __init__(
        self, reduction: Literal["mean", "sum"] = "mean", *, full: bool = False, eps: float = 1e-6
    ) -> None:
        super().__init__(reduction)
        self.full = check_flag("GaussianNLLLoss, full", full)
        self.eps = number("GaussianNLLLoss, eps", eps, above=0)

    def describe(self) -> list[str]:
        return ["full=True"] * self.full + [f"eps={self.eps}"] * (self.eps != 1e-6)

    def target_shape(self, batch_shape: Shape) -> Shape:
        batch, *out = super().target_shape(batch_shape)
        return (batch, 2, *out)

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        super().check_values(name, target, batch_shape, output)
        if output.dtype.type(self.eps) == 0:
            raise ValueError(f"GaussianNLLLoss, eps: expected a number above 0 in {output.dtype}, got {self.eps}")
        low = bounds(target[:, 1])[0]
        if low < 0:
            raise ValueError(f"{name}: expected variances of at least 0 in [:, 1], got {low}")

    def variance(self, target: Array) -> Array:
        """v, and ε where that is more."""
        return array_module(target).maximum(target[:, 1], self.eps)

    def values(self, output: Array, target: Array) -> Array:
        v = self.variance(target)
        each = (array_module(v).log(v) + (output - target[:, 0]) ** 2 / v) / 2
        return self.summed(each + log(2 * pi) / 2 if self.full else each)

    def gradients(self, output: Array, target: Array) -> Array:
        return (output - target[:, 0]) / self.variance(target) * self.summed_weight(output.shape[1:])

    def second(self, output: Array, target: Array) -> Array:
        return 1 / self.variance(target)
