"""Cross-entropy of a softmax with class labels."""

from __future__ import annotations

import numpy as np

from gbackprop.array import Array, array_module, bounds
from gbackprop.layers.base import Shape
from gbackprop.losses.base import ALL, Loss


class CrossEntropyLoss(Loss):
    """ℓₙ = −log softmax(fₙ)[yₙ] for outputs (N, C) and labels (N,) of an integer type.

    With p = softmax(f): ∇ℓ = p − e_y, ∇²ℓ = diag(p) − p pᵀ, S = diag(√p) − p √pᵀ. Likelihood: categorical(p).
    """

    hint = " (class probabilities are no targets here: give labels, of one-hot rows target.argmax(1))"

    def target_shape(self, batch_shape: Shape) -> Shape:
        if len(batch_shape) != 2:
            raise ValueError(f"expected outputs of shape (N, C), got {batch_shape}")
        return batch_shape[:1]

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        if target.dtype.kind not in "iu":
            raise TypeError(f"{name}: expected class labels of an integer type, got {target.dtype}")
        low, high = bounds(target)
        if low < 0 or high >= batch_shape[1]:
            hint = " (torch's ignore_index: leave these samples out of the batch)" if low == -100 else ""
            raise ValueError(f"{name}: expected labels 0 to {batch_shape[1] - 1}, got {low if low < 0 else high}{hint}")

    def values(self, output: Array, target: Array) -> Array:
        xp = array_module(output)
        logits = _shifted(output)
        chosen = logits[xp.arange(logits.shape[0]), target]
        return xp.log(xp.exp(logits).sum(1)) - chosen

    def gradients(self, output: Array, target: Array) -> Array:
        p = softmax(output)
        p[array_module(p).arange(p.shape[0]), target] -= 1
        return p

    def hessian_sqrt(self, output: Array, target: Array, columns: slice = ALL) -> Array:
        xp = array_module(output)
        p = softmax(output)
        roots = xp.sqrt(p).T[columns]  # [V, N]
        values = -roots[:, :, None] * p
        which = xp.arange(p.shape[1])[columns]
        values[xp.arange(which.shape[0]), :, which] += roots
        return values

    def noise(self, batch_shape: Shape, mc_samples: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((mc_samples, batch_shape[0]))

    def pseudo_targets(self, output: Array, noise: Array) -> Array:
        # Inversion of the distribution function, in float64 so that a run in float32 draws the same as one in float64.
        # "<=" skips classes of probability zero; only by rounding can the last bound exceed the total.
        xp = array_module(output)
        steps = xp.cumsum(softmax(output.astype(np.float64)), axis=1)
        reached = (steps <= (noise * steps[:, -1])[:, :, None]).sum(2)
        return xp.minimum(reached, output.shape[1] - 1)


def _shifted(logits: Array) -> Array:
    """Subtract the maximum from the logits, so that e^x does not overflow."""
    return logits - logits.real.max(1, keepdims=True)


def softmax(logits: Array) -> Array:
    """Compute softmax over the last axis of ``[N, C]``."""
    e = array_module(logits).exp(_shifted(logits))
    return e / e.sum(1, keepdims=True)
