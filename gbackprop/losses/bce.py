"""Binary cross-entropy of logits."""

from __future__ import annotations

import numpy as np

from gbackprop.array import Array, array_module, bounds
from gbackprop.layers.activation import sigmoid
from gbackprop.layers.base import Shape
from gbackprop.losses.elementwise import ElementwiseLoss


class BCEWithLogitsLoss(ElementwiseLoss):
    """ℓₙ = c Σ −y log σ(f) − (1 − y) log σ(−f), targets y in [0, 1], c = 1 for "sum" and 1/C for "mean" (C outputs).

    ∇ℓ = c (σ(f) − y) = c ((1 − y) σ(f) − y σ(−f)), ∇²ℓ = c diag(σ(f) σ(−f)), S its elementwise root.
    Likelihood: Bernoulli(σ(f)) for each output.
    """

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        super().check_values(name, target, batch_shape, output)
        low, high = bounds(target)
        if low < 0 or high > 1:
            raise ValueError(f"{name}: expected probabilities in [0, 1], got {low if low < 0 else high}")

    def values(self, output: Array, target: Array) -> Array:
        # −y log σ(f) − (1 − y) log σ(−f) = max(f, 0) − y f + log(1 + e^−|f|)
        xp = array_module(output)
        negative = output.real < 0
        tail = xp.log1p(xp.exp(xp.where(negative, output, -output)))
        return self.summed(xp.where(negative, 0, output) - target * output + tail)

    def gradients(self, output: Array, target: Array) -> Array:
        # not σ(f) − y: the difference would lose all digits where the prediction is confident and correct
        each = (1 - target) * sigmoid(output) - target * sigmoid(-output)
        return each * self.summed_weight(output.shape[1:])

    def second(self, output: Array, target: Array) -> Array:
        # not σ(f) (1 − σ(f)): the difference would lose all digits of a confident prediction
        return sigmoid(output) * sigmoid(-output)

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((mc_samples, *batch_shape))

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        return (noise < sigmoid(output)).astype(output.dtype)
