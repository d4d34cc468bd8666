"""Hypothesis strategies for losses, with outputs that they take and targets for these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbackprop import losses
from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Shape
from gbackprop.losses.bit_weights import BitWeights
from gbackprop.losses.class_weights import ClassWeights
from gbackprop.testing.points import inside

with needed("hypothesis", "gbackprop.testing.strategies", "test"):
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy

SEEDS = st.integers(0, 2**16)

IGNORED = -1
"""A label outside of the classes: targets of a loss that ignores it have it in places."""


@dataclass(frozen=True)
class LossCase:
    """A loss, and outputs and targets for it."""

    loss: losses.Loss
    shape: Shape
    batch: int
    seed: int

    soft: bool = False

    @property
    def output(self) -> np.ndarray:
        """Outputs, shape (N, *out)."""
        return outputs(self.loss, (self.batch, *self.shape), self.seed)

    @property
    def target(self) -> np.ndarray:
        """Targets, shape (N, ...)."""
        return targets(self.loss, (self.batch, *self.shape), self.seed, self.soft)


def outputs(loss: losses.Loss, batch_shape: Shape, seed: int) -> np.ndarray:
    """Outputs (N, *out) that a loss takes: numbers in its domain, and where it must be finite."""
    return inside(loss, 2 * np.random.default_rng(seed).standard_normal(batch_shape))


def targets(loss: losses.Loss, batch_shape: Shape, seed: int, soft: bool = False) -> np.ndarray:
    """Targets for outputs (N, *out): labels, numbers (with variances), counts, or bits with probabilities among them.

    Parameters
    ----------
    loss : Loss
    batch_shape : tuple of int
    seed : int
    soft : bool
        Whether a loss that takes class labels gets class probabilities.
    """
    rng = np.random.default_rng([seed, 1])
    if isinstance(loss, losses.CrossEntropyLoss) and soft:
        return np.moveaxis(rng.dirichlet(np.ones(batch_shape[1]), (batch_shape[0], *batch_shape[2:])), -1, 1).copy()
    if isinstance(loss, ClassWeights):
        labels = rng.integers(0, batch_shape[1], (batch_shape[0], *batch_shape[2:]))
        if loss.ignore_index == IGNORED:
            labels.flat[1::3] = IGNORED
        elif loss.ignore_index is not None and (labels == loss.ignore_index).all():  # "mean" of nothing is an error
            labels.flat[0] = (loss.ignore_index + 1) % batch_shape[1]
        return labels
    if isinstance(loss, losses.PoissonNLLLoss):
        return rng.poisson(2.0, batch_shape).astype(float)
    if isinstance(loss, losses.GaussianNLLLoss):
        return np.stack([rng.standard_normal(batch_shape), 0.1 + rng.random(batch_shape)], axis=1)
    if isinstance(loss, BitWeights):
        probabilities = rng.random(batch_shape)
        return np.where(rng.random(batch_shape) < 0.5, probabilities, probabilities.round())
    return rng.standard_normal(batch_shape)


def _weights(shape: Shape) -> SearchStrategy[np.ndarray | None]:
    """No weights, or some, from a seed."""
    return st.none() | SEEDS.map(lambda seed: 0.2 + np.random.default_rng(seed).random(shape))


def losses_for(shape: Shape) -> SearchStrategy[losses.Loss]:
    """Shipped losses, with options, that take any outputs of a feature shape."""
    reductions, above = st.sampled_from(["mean", "sum"]), st.sampled_from([1.0, 0.3, 2.5])
    ignored = st.sampled_from([None, IGNORED] + [0] * (shape[0] > 1))
    chosen = st.builds(losses.NLLLoss, reductions, weight=_weights(shape[:1]), ignore_index=ignored)
    cross = st.builds(
        losses.CrossEntropyLoss,
        reductions,
        weight=_weights(shape[:1]),
        ignore_index=ignored,
        label_smoothing=st.sampled_from([0.0, 0.2, 1.0]),
    )
    bits = st.builds(losses.BCEWithLogitsLoss, reductions, weight=_weights(shape), pos_weight=_weights(shape[-1:]))
    huber, smooth = st.builds(losses.HuberLoss, reductions, above), st.builds(losses.SmoothL1Loss, reductions, above)
    counts = st.builds(losses.PoissonNLLLoss, reductions, full=st.booleans())
    normal = st.builds(losses.GaussianNLLLoss, reductions, full=st.booleans(), eps=st.sampled_from([1e-6, 0.5]))
    flat = chosen | st.builds(losses.L1Loss, reductions)
    return st.one_of(st.builds(losses.MSELoss, reductions), bits, cross, huber, smooth, counts, normal, flat)


def rate_losses() -> SearchStrategy[losses.Loss]:
    """Shipped losses that take rates, above 0, alone."""
    reductions, eps = st.sampled_from(["mean", "sum"]), st.sampled_from([1e-8, 0.1])
    return st.builds(losses.PoissonNLLLoss, reductions, log_input=st.just(False), full=st.booleans(), eps=eps)


def probability_losses(shape: Shape) -> SearchStrategy[losses.Loss]:
    """Shipped losses that take probabilities alone, of a feature shape."""
    return st.builds(losses.BCELoss, st.sampled_from(["mean", "sum"]), weight=_weights(shape))
