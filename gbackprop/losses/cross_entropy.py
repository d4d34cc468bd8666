"""Cross-entropy of a softmax with class labels."""

from __future__ import annotations

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.losses.base import ALL
from gbackprop.losses.class_weights import ClassWeights


class CrossEntropyLoss(ClassWeights):
    """ℓₙ = −log softmax(fₙ)[yₙ] for outputs (N, C) and labels (N,) of an integer type.

    With p = softmax(f): ∇ℓ = p − e_y, ∇²ℓ = diag(p) − p pᵀ, S = diag(√p) − p √pᵀ. Likelihood: categorical(p).

    With options, T positions or class probabilities q as targets, a = w ∘ q and m = Σ a at each position:
    ℓ = −c Σₜ Σᵥ a[v] log p[v], ∇ℓ = c (m p − a), ∇²ℓ = c m (diag(p) − p pᵀ), c = 1/T for "mean" and 1 for "sum". Of
    labels "mean" divides by the sum of their weights: R = T / Σₙₜ w[yₙₜ] over those that are not ignored.

    Parameters
    ----------
    reduction : {"mean", "sum"}
    weight : ndarray, shape (C), optional
        w ≥ 0 for each class, on the device of the outputs; 1 by default.
    ignore_index : int, optional
        Positions with this label count neither in the sum nor in what "mean" divides by. None, the default, ignores no
        label: where torch would leave out −100 unasked, there is an error.
    label_smoothing : float
        ε in [0, 1]: q is (1 − ε) q + ε/C in place of q.

    Notes
    -----
    Outputs are (N, C) or (N, C, *pos). Targets are labels (N, *pos) of an integer type, or probabilities (N, C, *pos)
    in the dtype of the outputs that sum to 1 over the classes.
    """

    formulas = {
        "values": "ℓ = −Σⱼ aⱼ log(pⱼ), pⱼ = e^fⱼ / Σₖ e^fₖ, aⱼ = weightⱼ ((1 − ε) [j = y] + ε / C)",
        "gradients": "m pⱼ − aⱼ, m = Σₖ aₖ",
        "hessian": "m (pᵢ [i = j] − pᵢ pⱼ)",
    }

    def values(self, output: Array, target: Array) -> Array:
        xp = array_module(output)
        logits, _, total = exponentials(output)
        if self.weighted or target.ndim > 1:
            return self.weighted_values(logits - xp.log(total), target)
        return xp.log(total[:, 0]) - logits[xp.arange(logits.shape[0]), target]

    def gradients(self, output: Array, target: Array) -> Array:
        _, e, total = exponentials(output)
        p = e / total
        if self.weighted or target.ndim > 1:
            return self.weighted_gradients(p, target)
        p[array_module(p).arange(p.shape[0]), target] -= 1
        return p

    def hessian_sqrt(self, output: Array, target: Array, columns: slice = ALL) -> Array:
        xp = array_module(output)
        _, e, total = exponentials(output)
        p = e / total
        if self.weighted or target.ndim > 1:
            return self.weighted_root(p, target, columns)
        roots = xp.sqrt(p).T[columns]  # [V, N]
        values = -roots[:, :, None] * p
        which = xp.arange(p.shape[1])[columns]
        values[xp.arange(which.shape[0]), :, which] += roots
        return values

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((mc_samples, batch_shape[0], *batch_shape[2:]))

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        # Inversion of the distribution function, in float64 so that a run in float32 draws the same as one in float64.
        # "<=" skips classes of probability zero; only by rounding can the last bound exceed the total.
        _, e, total = exponentials(output.astype(np.float64))
        steps = (e / total).cumsum(axis=1)
        reached = (steps <= (noise * steps[:, -1])[:, :, None]).sum(2)
        return array_module(output).minimum(reached, output.shape[1] - 1)


def exponentials(f: Array) -> tuple[Array, Array, Array]:
    """Compute z = f − max f, e^z and Σ e^z over axis 1: softmax(f) = e^z / Σ e^z, in which nothing overflows."""
    z = f - f.real.max(1, keepdims=True)
    e = array_module(f).exp(z)
    total = e.sum(1, keepdims=True)
    return z, e, total
