"""Absolute error."""

from __future__ import annotations

from gbackprop.array import Array, array_module
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.losses.flat import FlatLoss


class L1Loss(FlatLoss, ElementwiseLoss):
    """ℓₙ = c Σ |fₙ − yₙ| with c = 1 for "sum" and 1/C for "mean" (C outputs a sample), as in torch.

    ∇ℓ = c sign(f − y), which is 0 where f = y, and ∇²ℓ = 0: the generalized Gauss-Newton matrix and all that is made of
    it (DiagGGN, KFLR, KFRA) are zero. There are no Monte-Carlo draws. `HuberLoss` and `SmoothL1Loss` have a curvature.
    """

    formulas = {"values": "ℓ = c Σⱼ |fⱼ − yⱼ|", "gradients": "c sign(fⱼ − yⱼ)", "hessian": "0"}

    def values(self, output: Array, target: Array) -> Array:
        return self.summed((output - target) * self._signs(output, target))

    def gradients(self, output: Array, target: Array) -> Array:
        return self._signs(output, target) * self.summed_weight(output.shape[1:])

    def _signs(self, output: Array, target: Array) -> Array:
        return array_module(output).sign((output - target).real).astype(output.dtype)
