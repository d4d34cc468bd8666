"""Losses that are quadratic near the target and linear beyond: Huber's, and the smooth absolute error."""

from __future__ import annotations

from typing import Literal

from gbackprop.array import Array, array_module
from gbackprop.base.checks import number
from gbackprop.losses.elementwise import ElementwiseLoss

UNDRAWN = (
    "its Hessian depends on the target, so that no pseudo-targets drawn from the outputs have it as the covariance of "
    "their gradients; DiagGGN, KFLR and KFRA take the Hessian itself"
)


class HuberLoss(ElementwiseLoss):
    """ℓₙ = c Σ ½ d² where |d| ≤ δ and δ (|d| − ½ δ) elsewhere, d = f − y, c = 1 for "sum" and 1/C for "mean".

    ∇ℓ = c d, at most c δ in size, ∇²ℓ = c where |d| < δ and 0 elsewhere, S its elementwise root. There are no
    Monte-Carlo draws, for the Hessian depends on the target.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    delta : float
        δ > 0.
    """

    formulas = {
        "values": "ℓ = c Σⱼ hⱼ, hⱼ = dⱼ² / 2 if |dⱼ| ≤ δ else δ (|dⱼ| − δ / 2), dⱼ = fⱼ − yⱼ",
        "gradients": "c max(−δ, min(dⱼ, δ))",
        "hessian": "c [i = j] [|dⱼ| < δ]",
    }
    undrawn = UNDRAWN

    def __init__(self, reduction: Literal["mean", "sum"] = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = number("HuberLoss, delta", delta, above=0)

    def describe(self) -> list[str]:
        return [f"delta={self.delta}"] if self.delta != 1 else []

    def values(self, output: Array, target: Array) -> Array:
        return self.summed(huber(output - target, self.delta))

    def gradients(self, output: Array, target: Array) -> Array:
        return clipped(output - target, self.delta) * self.summed_weight(output.shape[1:])

    def second(self, output: Array, target: Array) -> Array:
        return within(output - target, self.delta)


class SmoothL1Loss(ElementwiseLoss):
    """ℓₙ = c Σ ½ d²/β where |d| < β and |d| − ½ β elsewhere, d = f − y, c = 1 for "sum" and 1/C for "mean".

    It is Huber's loss with δ = β, over β: ∇ℓ = c d/β, at most c in size, ∇²ℓ = c/β where |d| < β and 0 elsewhere. There
    are no Monte-Carlo draws, for the Hessian depends on the target.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    beta : float
        β > 0. (torch's β = 0 is the absolute error: `L1Loss`.)
    """

    formulas = {
        "values": "ℓ = c Σⱼ hⱼ, hⱼ = dⱼ² / (2β) if |dⱼ| < β else |dⱼ| − β / 2, dⱼ = fⱼ − yⱼ",
        "gradients": "c max(−1, min(dⱼ / β, 1))",
        "hessian": "c / β [i = j] [|dⱼ| < β]",
    }
    undrawn = UNDRAWN

    def __init__(self, reduction: Literal["mean", "sum"] = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = number("SmoothL1Loss, beta", beta, above=0)

    def describe(self) -> list[str]:
        return [f"beta={self.beta}"] if self.beta != 1 else []

    def values(self, output: Array, target: Array) -> Array:
        return self.summed(huber(output - target, self.beta) / self.beta)

    def gradients(self, output: Array, target: Array) -> Array:
        return clipped(output - target, self.beta) * (self.summed_weight(output.shape[1:]) / self.beta)

    def second(self, output: Array, target: Array) -> Array:
        return within(output - target, self.beta) / self.beta


def huber(d: Array, delta: float) -> Array:
    """½ d² where |d| ≤ δ, and δ (|d| − ½ δ) elsewhere."""
    size = array_module(d).where(d.real < 0, -d, d)
    near = array_module(d).where(size.real <= delta, size, delta)  # so that the square of what is far cannot overflow
    return 0.5 * near**2 + delta * (size - near)


def clipped(d: Array, delta: float) -> Array:
    """Return the derivative of `huber`: d where |d| ≤ δ, and ±δ elsewhere."""
    xp = array_module(d)
    return xp.where(d.real > delta, delta, xp.where(d.real < -delta, -delta, d))


def within(d: Array, delta: float) -> Array:
    """Return the second derivative of `huber`: 1 where |d| < δ, and 0 elsewhere."""
    return (abs(d.real) < delta).astype(d.dtype)
