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
        z, _, rest = exponentials(output)
        if self.weighted or target.ndim > 1:
            return self.weighted_values(z - array_module(z).log1p(rest), target)
        return array_module(z).log1p(rest[:, 0]) - z[array_module(z).arange(z.shape[0]), target]

    def gradients(self, output: Array, target: Array) -> Array:
        z, e, rest = exponentials(output)
        total = 1 + rest
        if self.weighted or target.ndim > 1:
            return self.weighted_gradients(e, array_module(e).where(z == 0, rest, total - e), target) / total
        own = target[:, None] == array_module(e).arange(e.shape[1])
        return (e - own - own * rest) / total  # p − e_y: e[y] − 1 − rest has no rounding where e[y] is 1

    def hessian_sqrt(self, output: Array, target: Array, columns: slice = ALL) -> Array:
        xp = array_module(output)
        _, e, rest = exponentials(output)
        p = e / (1 + rest)
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
        _, e, rest = exponentials(output.astype(np.float64))
        steps = (e / (1 + rest)).cumsum(axis=1)
        reached = (steps <= (noise * steps[:, -1])[:, :, None]).sum(2)
        return array_module(output).minimum(reached, output.shape[1] - 1)


def exponentials(f: Array) -> tuple[Array, Array, Array]:
    """Compute z = f − max f, e^z and Σ e^z − 1 over axis 1: the sum without the largest, 1, is not rounded to 0.

    softmax(f) = e^z / (1 + rest), in which nothing overflows.
    """
    z = f - f.real.max(1, keepdims=True)
    e = array_module(f).exp(z)
    largest = f.real.argmax(1, keepdims=True) == array_module(f).arange(f.shape[1])[(..., *[None] * (f.ndim - 2))]
    rest = (e - largest).sum(1, keepdims=True)
    return z, e, rest
