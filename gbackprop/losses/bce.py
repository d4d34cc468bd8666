"""Binary cross-entropy of logits."""

from __future__ import annotations

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.layers.elementwise.activation import sigmoid
from gbackprop.losses.bit_weights import BitWeights


class BCEWithLogitsLoss(BitWeights):
    """ℓₙ = c Σ −y log σ(f) − (1 − y) log σ(−f), targets y in [0, 1], c = 1 for "sum" and 1/C for "mean" (C outputs).

    ∇ℓ = c (σ(f) − y) = c ((1 − y) σ(f) − y σ(−f)), ∇²ℓ = c diag(σ(f) σ(−f)), S its elementwise root.
    Likelihood: Bernoulli(σ(f)) for each output. With weights, u w y stands for y and w (1 − y) for 1 − y, and their sum
    multiplies the Hessian. As in torch, "mean" divides by the number of outputs, not by a sum of weights.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    weight : ndarray, optional
        w ≥ 0 of a shape that broadcasts to a sample's outputs, on the device of the outputs; 1 by default.
    pos_weight : ndarray, optional
        u ≥ 0, the weight of y = 1 beside y = 0, likewise.
    """

    formulas = {
        "values": "ℓ = −c Σⱼ (aⱼ log(σ(fⱼ)) + bⱼ log(σ(−fⱼ))), aⱼ = pos_weightⱼ weightⱼ yⱼ, bⱼ = weightⱼ (1 − yⱼ)",
        "gradients": "c (bⱼ σ(fⱼ) − aⱼ σ(−fⱼ))",
        "hessian": "c [i = j] (aⱼ + bⱼ) σ(fⱼ) σ(−fⱼ)",
    }

    def values(self, output: Array, target: Array) -> Array:
        # −log σ(f) = max(−f, 0) + log(1 + e^−|f|), and −log σ(−f) is f more
        xp, (one, zero) = array_module(output), self.shares(output, target)
        negative = output.real < 0
        tail = xp.log1p(xp.exp(xp.where(negative, output, -output)))
        each = zero * xp.where(negative, 0, output) - one * xp.where(negative, output, 0) + (one + zero) * tail
        return self.summed(each)

    def gradients(self, output: Array, target: Array) -> Array:
        # not σ(f) − y: the difference would lose all digits where the prediction is confident and correct
        one, zero = self.shares(output, target)
        each = zero * sigmoid(output) - one * sigmoid(-output)
        return each * self.summed_weight(output.shape[1:])

    def second(self, output: Array, target: Array) -> Array:
        # not σ(f) (1 − σ(f)): the difference would lose all digits of a confident prediction
        each = sigmoid(output) * sigmoid(-output)
        return each * self.curvature_weights(output, target) if self.weighted else each

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((mc_samples, *batch_shape))

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        return (noise < sigmoid(output)).astype(output.dtype)
