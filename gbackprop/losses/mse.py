"""Squared error."""

from __future__ import annotations

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.losses.elementwise import ElementwiseLoss


class MSELoss(ElementwiseLoss):
    """ℓₙ = c ‖fₙ − yₙ‖² with c = 1 for "sum" and 1/C for "mean" (C outputs a sample), as in torch.

    ∇ℓ = 2c (f − y), ∇²ℓ = 2c I, S = √(2c) I. Likelihood: N(f, ½) for each output, whose −log is (f − y)² + const.
    """

    formulas = {"values": "ℓ = c Σⱼ (fⱼ − yⱼ)²", "gradients": "2c (fⱼ − yⱼ)", "hessian": "2c [i = j]"}

    def values(self, output: Array, target: Array) -> Array:
        return self.summed((output - target) ** 2)

    def gradients(self, output: Array, target: Array) -> Array:
        return (output - target) * (2 * self.summed_weight(output.shape[1:]))

    def second(self, output: Array, target: Array) -> Array:
        return array_module(output).full_like(output, 2.0)

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((mc_samples, *batch_shape))

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        return output + (noise * 0.5**0.5).astype(output.dtype)
