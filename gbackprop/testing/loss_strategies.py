"""Hypothesis strategies for losses, with outputs that they take and targets for these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gbackprop import losses
from gbackprop.base.extras import needed
from gbackprop.calculus.layer import Shape
from gbackprop.testing.cases.loss_rows import IGNORED, outputs, targets

with needed("hypothesis", "gbackprop.testing.strategies", "test"):
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy

SEEDS = st.integers(0, 2**16)


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


def _weights(shape: Shape) -> SearchStrategy[np.ndarray | None]:
    """No weights, or some, from a seed."""
    return st.none() | SEEDS.map(lambda seed: 0.2 + np.random.default_rng(seed).random(shape))


def losses_for(shape: Shape) -> SearchStrategy[losses.Loss]:
    """Shipped losses, with options, that take any outputs of a feature shape."""
    reductions, above = st.sampled_from(["mean", "sum"]), st.sampled_from([1.0, 0.3, 2.5])
    ignored = st.sampled_from([None, IGNORED] + [0] * (shape[0] > 1))

    smoothing = st.sampled_from([0.0, 0.2, 1.0])
    of_labels = partial(st.builds, weight=_weights(shape[:1]), ignore_index=ignored)
    cross = of_labels(losses.CrossEntropyLoss, reductions, label_smoothing=smoothing)
    bits = st.builds(losses.BCEWithLogitsLoss, reductions, weight=_weights(shape), pos_weight=_weights(shape[-1:]))
    huber, smooth = st.builds(losses.HuberLoss, reductions, above), st.builds(losses.SmoothL1Loss, reductions, above)
    counts = st.builds(losses.PoissonNLLLoss, reductions, full=st.booleans())
    normal = st.builds(losses.GaussianNLLLoss, reductions, full=st.booleans(), eps=st.sampled_from([1e-6, 0.5]))
    flat = of_labels(losses.NLLLoss, reductions) | st.builds(losses.L1Loss, reductions)
    return st.one_of(st.builds(losses.MSELoss, reductions), bits, cross, huber, smooth, counts, normal, flat)


def rate_losses() -> SearchStrategy[losses.Loss]:
    """Shipped losses that take rates, above 0, alone."""
    reductions, eps = st.sampled_from(["mean", "sum"]), st.sampled_from([1e-8, 0.1])
    return st.builds(losses.PoissonNLLLoss, reductions, log_input=st.just(False), full=st.booleans(), eps=eps)


def probability_losses(shape: Shape) -> SearchStrategy[losses.Loss]:
    """Shipped losses that take probabilities alone, of a feature shape."""
    return st.builds(losses.BCELoss, st.sampled_from(["mean", "sum"]), weight=_weights(shape))
