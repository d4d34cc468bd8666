"""The likelihoods of losses, with all their constants: −log p(y | f) in terms of the loss's ℓ'.

A loss is L = R Σₙ c ℓ'ₙ. What a posterior needs is the sum over the data set, Σₙ −log p(yₙ | fₙ), without R and c.
"""

from __future__ import annotations

from math import log, pi
from typing import Any, NamedTuple

import numpy as np

from gbackprop.array import Array, array_module, like, on_device_of
from gbackprop.base.checks import own_methods, shown
from gbackprop.layers.elementwise.activation import sigmoid
from gbackprop.losses import BCEWithLogitsLoss, CrossEntropyLoss, Loss, MSELoss
from gbackprop.losses.cross_entropy import exponentials

LIKELIHOODS = (CrossEntropyLoss, BCEWithLogitsLoss, MSELoss)


class Normal(NamedTuple):
    """A Gaussian for the outputs or targets of each sample, or of all samples together.

    Attributes
    ----------
    mean : ndarray, shape (N, *out)
    covariance : ndarray, shape (N, C, C) or (N, C, N, C)
        Of the C numbers of an output in row-major order.
    """

    mean: Array
    covariance: Array


def check_loss(loss: Any) -> None:
    """Check that a loss is c times a negative log-likelihood that is known here, up to a constant."""
    if not isinstance(loss, Loss):
        raise TypeError(f"loss: expected a Loss, got {shown(loss)}")
    own = ", ".join(own_methods(loss))
    if type(loss) not in LIKELIHOODS or own:
        names, got = ", ".join(kind.__name__ for kind in LIKELIHOODS), f"{loss!r}{own and f' with {own} of its own'}"
        raise ValueError(f"loss: expected one with a known likelihood, one of {names}, got {got}")
    if loss.weighted:
        raise ValueError(
            f"loss: expected one without weights, ignored labels and smoothing, which no likelihood has, got {loss!r}"
        )


def fit(loss: Loss, total: float, outputs: int, noise_variance: float) -> float:
    """Compute log p(D | θ) = Σₙ log p(yₙ | fₙ).

    Cross-entropies: −Σₙ ℓ'ₙ. Squared error, ℓ'ₙ = ‖fₙ − yₙ‖², with yₙ ~ N(fₙ, σ² I): −Σₙ ℓ'ₙ / (2σ²) − K/2 log(2πσ²).
    """
    if isinstance(loss, MSELoss):
        return -total / (2 * noise_variance) - outputs / 2 * log(2 * pi * noise_variance)
    return -total


def multiple(loss: Loss, noise_variance: float) -> float:
    """Return b of −log p(y | f) = b ℓ' + const: 1/(2σ²) for the squared error, which is 1 at σ² = ½; else 1."""
    return 1 / (2 * noise_variance) if isinstance(loss, MSELoss) else 1.0


def probit(loss: Loss, mean: Array, covariance: Array) -> Array:
    """Compute E[p(y | f)] for f ~ N(mean, covariance), with the normal distribution function in place of the logistic.

    σ(f / √(1 + πv/8)) with the output's variance v; for classes softmax of the outputs scaled so, each by its own v.
    """
    variances = covariance.diagonal(0, 1, 2).reshape(mean.shape)
    return probabilities(loss, mean / (1 + pi / 8 * variances) ** 0.5)


def sampled(loss: Loss, mean: Array, covariance: Array, samples: int, rng: np.random.Generator) -> Array:
    """Estimate E[p(y | f)] for f ~ N(mean, covariance) by the mean over draws of f."""
    xp = array_module(mean)
    with on_device_of(mean):
        values, vectors = xp.linalg.eigh(covariance)
        roots = vectors * xp.sqrt(xp.maximum(values, 0))[:, None, :] @ vectors.swapaxes(1, 2)  # of any signs
        total = xp.zeros_like(mean)
        for _ in range(samples):
            noise = like(rng.standard_normal(mean.shape), mean)
            total += probabilities(loss, mean + (roots @ noise[:, :, None])[:, :, 0])
        return total / samples


def probabilities(loss: Loss, output: Array) -> Array:
    """Compute softmax(f), or σ(f) for each output."""
    if isinstance(loss, CrossEntropyLoss):
        _, e, rest = exponentials(output)
        return e / (1 + rest)
    return sigmoid(output)
