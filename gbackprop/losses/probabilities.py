"""Binary cross-entropy of probabilities."""

from __future__ import annotations

from typing import Literal

from gbackprop.array import Array, array_module
from gbackprop.losses.bit_weights import BitWeights
from gbackprop.losses.huber import UNDRAWN
from gbackprop.losses.weights import cast

LEAST_LOGARITHM = -100.0
"""Logarithms of probabilities are cut off there, as in torch."""

LEAST_PROBABILITY = 1e-12
"""The least probability by which derivatives divide, as in torch."""


class BCELoss(BitWeights):
    """ℓₙ = c Σ −y log p − (1 − y) log(1 − p), probabilities p in [0, 1], targets y in [0, 1], c = 1 or 1/C for "mean".

    ∇ℓ = c (p − y)/(p (1 − p)) and ∇²ℓ = c diag(y/p² + (1 − y)/(1 − p)²), which depends on the target: there are no
    Monte-Carlo draws. Weights w multiply all three. Other outputs are an error. At the ends all is finite, as in torch:
    logarithms are at least −100, and p (1 − p) in ∇ℓ, p and 1 − p in ∇²ℓ at least 1e-12. A network that ends with a
    sigmoid loses its digits there: `BCEWithLogitsLoss` of what the sigmoid takes does not.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    weight : ndarray, optional
        w ≥ 0 of a shape that broadcasts to a sample's outputs, on the device of the outputs; 1 by default.
    """

    formulas = {
        "values": "ℓ = −c Σⱼ weightⱼ (yⱼ log(fⱼ) + (1 − yⱼ) log(1 − fⱼ))",
        "gradients": "c weightⱼ (fⱼ − yⱼ) / (fⱼ (1 − fⱼ))",
        "hessian": "c [i = j] weightⱼ (yⱼ / fⱼ² + (1 − yⱼ) / (1 − fⱼ)²)",
        "where": "fⱼ (1 − fⱼ) > 10⁻¹²",
    }
    undrawn = UNDRAWN
    domain = (0.0, 1.0)

    def __init__(self, reduction: Literal["mean", "sum"] = "mean", *, weight: Array | None = None) -> None:
        super().__init__(reduction, weight=weight)

    def values(self, output: Array, target: Array) -> Array:
        (one, zero), (positive, negative) = self.shares(output, target), logarithms(output)
        return self.summed(-one * positive - zero * negative)

    def gradients(self, output: Array, target: Array) -> Array:
        # not (1 − y)/(1 − p) − y/p: the difference would lose digits where p is near y
        each = (output - target) / bounded(output * (1 - output))
        each = each if self.weight is None else each * cast(self.weight, output)
        return each * self.summed_weight(output.shape[1:])

    def second(self, output: Array, target: Array) -> Array:
        one, zero = self.shares(output, target)
        return one / bounded(output) ** 2 + zero / bounded(1 - output) ** 2


def logarithms(p: Array) -> tuple[Array, Array]:
    """Return log p and log(1 − p), and −100 where these are less."""
    xp, least, most = array_module(p), p.real <= 0, p.real >= 1  # NaN is neither, and stays NaN
    one, zero = xp.log(xp.where(least, 1, p)), xp.log1p(-xp.where(most, 0, p))
    one = xp.where(least | (one.real <= LEAST_LOGARITHM), LEAST_LOGARITHM, one)
    return one, xp.where(most | (zero.real <= LEAST_LOGARITHM), LEAST_LOGARITHM, zero)


def bounded(p: Array) -> Array:
    """Return p, and 1e-12 where that is more."""
    return array_module(p).where(p.real <= LEAST_PROBABILITY, LEAST_PROBABILITY, p)
