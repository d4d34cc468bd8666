"""Base of losses that are linear in the outputs, or piecewise: their Hessian is zero wherever there is one."""

from __future__ import annotations

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.losses.base import ALL, Loss


class FlatLoss(Loss):
    """∇²ℓₙ = 0, whose root is one column of zeros."""

    undrawn = (
        "its Hessian is zero, and no pseudo-targets drawn from the outputs have that as the covariance of their "
        "gradients; DiagGGN, KFLR and KFRA take the Hessian itself, and are zero"
    )

    def columns(self, shape: Shape) -> int:
        return 1

    def hessian_sqrt(self, output: Array, target: Array, columns: slice = ALL) -> Array:
        return array_module(output).zeros((1, *output.shape), dtype=output.dtype)[columns]
