"""The meanings of the letters that occur in an explanation."""

from __future__ import annotations

import re

LETTERS = {
    "N": "samples in the batch, n one of them",
    "R": 'the factor of the loss, L = R Σₙ ℓₙ: 1 for "sum"; 1/N for "mean", but by the weights of labels that have any',
    "ℓₙ": "the loss of sample n, of the network's output fₙ",
    "Sₙ": "a root of ∇²ℓₙ, whose columns are the exact columns",
    "ŷₙₘ": "pseudo-target m of the M drawn for sample n: where true targets have weights, ∇ℓ there has their roots",
    "c": 'the weight of a sum in ℓₙ: for "mean" 1/C over C outputs (MSELoss), 1/T over T positions of labels; else 1',
    "Hₙ": "∇²ℓₙ, and Jₙ the Jacobian of the network's output for sample n in the parameter",
    "s sᵀ": "of a Monte-Carlo column s = ∇ℓ(fₙ, ŷₙₘ)/√c, without √(R/M): Hₙ is its mean",
    "V": "columns of a signal, v one of them: each is a vector of features for each sample, [V, N, *features]",
    "g": "a column at the layer's output; in φ''(x) g and the like, the gradient there",
    "Jᵀ": "a transposed Jacobian of the layer's output: in its input to carry, in the parameter to extract",
    "Ḡ": "the averaged curvature of KFRA at the layer's output, [D, D] for D features",
    "r": "a layer's residual, Σⱼ (∇² yⱼ) gⱼ over its outputs j with g the gradient: its columns have the signs of r",
    "±": "the sign of a column: −1 only among residual columns",
    "t": "a position that shares the weight, a pixel of a convolution's output; s another",
    "u": "what a weight multiplies at a position: the input, or a convolution's patch of it",
    "b bᵀ": "of b = Σₜ g[t], a column at the layer's output summed over positions",
    "W": "a layer's weight, and b in y = W x + b its bias",
    "Q": "squared deviations of the individual gradients R ∇ℓₙ from their mean m, summed",
    "k": "a place in a window, of K",
    "A": "the Kronecker factor of a weight's inputs, B that of its outputs: the block is B ⊗ A, of a bias B",
}
"""The meaning of each letter, and of those that come with it."""


def meanings(text: str) -> list[tuple[str, str]]:
    """Return the letters that occur in a text, as words of their own, with their meanings."""
    return [(letter, meaning) for letter, meaning in LETTERS.items() if _occurs(letter, text)]


def _occurs(letter: str, text: str) -> bool:
    return re.search(rf"(?<![^\W\d_]){re.escape(letter)}(?![a-zA-Zφ'])", text) is not None
