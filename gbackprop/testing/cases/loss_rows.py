"""Losses with options, and the outputs and targets that they take: rows of the table of cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from gbackprop import losses
from gbackprop.calculus.layer import Shape
from gbackprop.losses.bit_weights import BitWeights
from gbackprop.losses.class_weights import ClassWeights
from gbackprop.testing.cases import loss_definitions as plain
from gbackprop.testing.points import inside

IGNORED = -1
"""A label outside of the classes: targets of a loss that ignores it have it in places."""


Terms = Callable[[Any, np.ndarray, np.ndarray], Any]


def outputs(loss: losses.Loss, batch_shape: Shape, seed: int) -> np.ndarray:
    """Outputs (N, *out) that a loss takes: numbers in its domain, and where it must be finite."""
    return inside(loss, 2 * np.random.default_rng(seed).standard_normal(batch_shape))


def targets(loss: losses.Loss, batch_shape: Shape, seed: int, soft: bool = False) -> np.ndarray:
    """Targets for outputs (N, *out): labels, numbers (with variances), counts, or bits with probabilities among them.

    If `soft`, a loss that takes class labels gets class probabilities.
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


@dataclass(frozen=True)
class LossRow:
    """A loss to check: its class and options, and outputs that it takes."""

    kind: type[losses.Loss]
    terms: Terms  # of one sample in plain terms: the loss is their mean, or their sum
    shape: Shape
    options: Mapping[str, Any] = field(default_factory=dict)
    soft: bool = False  # whether the targets are class probabilities

    def loss(self, reduction: Literal["mean", "sum"] = "mean") -> losses.Loss:
        """Return the loss."""
        return self.kind(reduction, **self.options)

    def batch(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs and targets of three samples."""
        loss, shape = self.loss(), (3, *self.shape)
        return outputs(loss, shape, seed), targets(loss, shape, seed + 1, self.soft)

    def definition(self, loss: losses.Loss) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return ``(output, target) -> ℓ``, shape (N), of a loss of this row with either reduction."""
        total: Callable[..., Any] = np.mean if loss.reduction == "mean" else np.sum
        return lambda output, target: np.array(
            [total(self.terms(loss, f, y)) for f, y in zip(output, target, strict=True)]
        )


W4, W23 = np.array([0.5, 2.0, 0.0, 1.5]), np.array([[0.5, 2.0, 1.5], [0.0, 1.0, 3.0]])
cross = partial(LossRow, losses.CrossEntropyLoss, plain.cross_entropy)
squared = partial(LossRow, losses.MSELoss, lambda loss, f, y: (f - y) ** 2)
logits = partial(LossRow, losses.BCEWithLogitsLoss, plain.bits_of_logits)
huber = partial(LossRow, losses.HuberLoss, plain.huber)
smooth = partial(LossRow, losses.SmoothL1Loss, plain.smooth_absolute)
counts = partial(LossRow, losses.PoissonNLLLoss, plain.poisson)
bits = partial(LossRow, losses.BCELoss, plain.bits_of_probabilities)
chosen = partial(LossRow, losses.NLLLoss, plain.chosen_classes)
absolute = partial(LossRow, losses.L1Loss, lambda loss, f, y: abs(f - y))
normal = partial(LossRow, losses.GaussianNLLLoss, plain.normal)

LOSSES: tuple[LossRow, ...] = (
    cross((4,)), cross((1,)), cross((200,)), cross((3, 2)), cross((2, 2, 2)), cross((4,), {"weight": W4}),
    cross((4, 3), {"weight": W4, "ignore_index": IGNORED}), cross((4,), {"ignore_index": IGNORED}),
    cross((4, 2), {"ignore_index": 2}), cross((4,), {"label_smoothing": 0.2}),
    cross((4, 2), {"label_smoothing": 0.2, "weight": W4, "ignore_index": IGNORED}),
    cross((4,), {"label_smoothing": 1.0}), cross((4,), soft=True), cross((3, 2), soft=True),
    cross((4, 2), {"weight": W4, "label_smoothing": 0.3}, soft=True),
    squared((1,)), squared((3,)), squared((2, 2)),
    logits((1,)), logits((4,)), logits((3, 3)), logits((4,), {"weight": W4}),
    logits((4,), {"pos_weight": W4}), logits((2, 3), {"weight": W23[:, :1], "pos_weight": W23[None]}),
    huber((4,)), huber((2, 3), {"delta": 2.5}),
    smooth((4,)), smooth((2, 3), {"beta": 2.5}),
    counts((4,)), counts((2, 3), {"full": True}), counts((4,), {"log_input": False}),
    counts((2, 3), {"log_input": False, "full": True, "eps": 0.1}),
    bits((1,)), bits((2, 3)), bits((4,), {"weight": W4}),
    chosen((4,)), chosen((1,)), chosen((3, 2), {"ignore_index": IGNORED}),
    chosen((4, 2), {"weight": W4, "ignore_index": 2}),
    absolute((1,)), absolute((2, 3)),
    normal((4,)), normal((2, 3), {"full": True, "eps": 0.5}),
)  # fmt: skip


def definition_of_loss(loss: losses.Loss) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return ``(output, target) -> ℓ``, shape (N), of a loss whose class has a row."""
    return next(row for row in LOSSES if row.kind is type(loss)).definition(loss)
