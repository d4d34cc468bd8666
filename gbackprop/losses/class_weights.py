"""Weights of classes: what targets of a classification may be, and the losses' formulas with any weights a[v]."""

from __future__ import annotations

from copy import copy
from math import prod
from numbers import Integral, Real
from typing import Literal, Self

import numpy as np

from gbackprop.array import Array, RecordedArray, array_module, bounds
from gbackprop.base.checks import check_same
from gbackprop.calculus.layer import Shape
from gbackprop.losses.base import Loss
from gbackprop.losses.weights import cast, check_device, checked_weight

SUM_TOLERANCE = 1e-3
"""The tolerance of the sum 1 of a target's probabilities: float32 rounds, and more is another mistake."""


class ClassWeights(Loss):
    """ℓₙ = −c Σₜ Σᵥ a[v, t] log pₙ[v, t] for class probabilities p ``[N, C, *pos]``, T positions, c = 1/T or 1.

    With q the target's distribution (e_y for a label y), smoothing ε and class weights w, at each position
    a[v] = w[v] ((1 − ε) q[v] + ε/C), and a = 0 where the label is ignored; m = Σᵥ a[v]. The derivatives are those for
    p = softmax(f).
    """

    hint = " (of one-hot rows give the labels, target.argmax(1); class probabilities are floats)"
    probabilities = True

    _weighted: bool | None = None  # what a subclass says

    def __init__(
        self,
        reduction: Literal["mean", "sum"] = "mean",
        *,
        weight: Array | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        name, ignore, smoothing = type(self).__name__, ignore_index, label_smoothing
        if ignore is not None and (isinstance(ignore, bool) or not isinstance(ignore, Integral)):
            raise TypeError(f"{name}, ignore_index: expected an integer, or None to ignore no label, got {ignore!r}")
        if isinstance(smoothing, bool) or not isinstance(smoothing, Real) or not 0 <= smoothing <= 1:
            raise ValueError(f"{name}, label_smoothing: expected a number in [0, 1], got {smoothing!r}")
        self.weight: Array | None = None if weight is None else checked_weight(f"{name}, weight", weight)
        if self.weight is not None and self.weight.ndim != 1:
            raise ValueError(f"{name}, weight: expected shape (C,), got {self.weight.shape}")
        self.ignore_index: int | None = None if ignore is None else int(ignore)
        self.label_smoothing: float = float(smoothing)

    @property
    def weighted(self) -> bool:
        """True if weights are given, by the options as they are; a subclass may assign it."""
        given = self.weight is not None or self.ignore_index is not None or self.label_smoothing > 0
        return given if self._weighted is None else self._weighted

    @weighted.setter
    def weighted(self, value: bool) -> None:
        self._weighted = value

    def describe(self) -> list[str]:
        some = [] if self.weight is None else [f"weight of shape {self.weight.shape}"]
        some += [] if self.ignore_index is None else [f"ignore_index={self.ignore_index}"]
        return some + ([f"label_smoothing={self.label_smoothing}"] if self.label_smoothing else [])

    # ------------------------------------------------------------------------------------------------------- targets

    def target_shape(self, batch_shape: Shape) -> Shape:
        if len(batch_shape) < 2:
            raise ValueError(f"expected outputs of shape (N, C, …), got {batch_shape}")
        if self.weight is not None and self.weight.shape != batch_shape[1:2]:
            raise ValueError(f"expected outputs of {len(self.weight)} classes as weight has, got shape {batch_shape}")
        return (batch_shape[0], *batch_shape[2:])

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        if self.weight is not None:
            check_device(f"weight of {type(self).__name__}", self.weight, output)
        if target.dtype.kind == "f" and target.shape == batch_shape:
            self._check_probabilities(name, target, output)
            return
        if target.dtype.kind not in "iu":
            raise TypeError(f"{name}: expected class labels of an integer type, got {target.dtype}")
        ignore = self.ignore_index
        low, high = bounds(target if ignore is None else array_module(target).where(target == ignore, 0, target))
        if low < 0 or high >= batch_shape[1]:
            but = "" if ignore is None else f", or {ignore} to ignore"
            hint = " (ignore_index=-100 leaves such labels out)" if low == -100 and ignore is None else ""
            found = low if low < 0 else high
            raise ValueError(f"{name}: expected labels 0 to {batch_shape[1] - 1}{but}, got {found}{hint}")

    def _check_probabilities(self, name: str, target: Array, output: Array) -> None:
        check_same(name, target, "x", output)
        if self.ignore_index is not None and self.ignore_index >= 0:
            raise ValueError(f"{name}: expected labels with ignore_index={self.ignore_index}, got class probabilities")
        low, high = bounds(target)
        if not 0 <= low <= high <= 1:
            raise ValueError(f"{name}: expected probabilities in [0, 1], got {high if low >= 0 else low}")
        low, high = bounds(target.sum(1))
        if not 1 - SUM_TOLERANCE <= low <= high <= 1 + SUM_TOLERANCE:
            worst = max(low, high, key=lambda total: abs(1 - total))
            raise ValueError(f"{name}: expected probabilities of the classes that sum to 1, got the sum {worst}")

    # ---------------------------------------------------------------------------------------------------------- scale

    def factor(self, batch: int, target: Array) -> float:
        if self.reduction == "sum":
            return 1.0
        if target.dtype.kind == "f" or (self.weight is None and self.ignore_index is None):
            return 1 / batch
        xp = array_module(target)
        counted = xp.ones(target.shape) if self.ignore_index is None else target != self.ignore_index
        if self.weight is not None:
            counted = xp.asarray(self.weight.astype(np.float64))[xp.where(counted, target, 0)] * counted
        total = counted.sum() if isinstance(target, RecordedArray) else float(counted.sum())
        if isinstance(total, float) and total == 0:
            raise ValueError(f"targets of {self!r}: expected one of weight above 0, got {target.size} without")
        return prod(target.shape[1:]) / total

    def summed_weight(self, shape: Shape) -> float:
        return 1 / prod(shape[1:]) if self.reduction == "mean" else 1.0

    # ---------------------------------------------------------------------------------------- formulas in p and a

    def shares(self, target: Array, p: Array) -> Array:
        """a[v], shape (N, C, *pos): zero where the label is ignored."""
        xp, (classes, *positions) = array_module(p), p.shape[1:]
        across, share, labels = (classes, *[1] * len(positions)), target, target.dtype.kind != "f"
        if labels:
            share = (target[:, None] == xp.arange(classes).reshape(across)).astype(p.real.dtype)
        if self.label_smoothing:
            share = share * (1 - self.label_smoothing) + self.label_smoothing / classes
        if labels and self.ignore_index is not None:
            share = share * (target != self.ignore_index)[:, None]
        return share if self.weight is None else share * cast(self.weight, p).reshape(across)

    def weighted_values(self, logarithms: Array, target: Array) -> Array:
        """−c Σ a[v, t] log p[v, t] from log p ``[N, C, *pos]``."""
        each = -(self.shares(target, logarithms) * logarithms)
        return each.reshape(len(each), -1).sum(1) * self.summed_weight(logarithms.shape[1:])

    def weighted_gradients(self, p: Array, others: Array, target: Array) -> Array:
        """c (m p − a) = c (p (m − a) − a (1 − p)) times any Σ p, from 1 − p as the sum of the others."""
        a = self.shares(target, p)
        rest = a.sum(1, keepdims=True) - a
        if self.label_smoothing or target.dtype.kind == "f":  # else only one is not 0
            xp = array_module(a)
            first = a.argmax(1, keepdims=True) == xp.arange(a.shape[1]).reshape(-1, *[1] * (a.ndim - 2))
            rest = xp.where(first, (a * ~first).sum(1, keepdims=True), rest)
        return (p * rest - a * others) * self.summed_weight(p.shape[1:])

    def weighted_root(self, p: Array, target: Array, columns: slice) -> Array:
        """Columns √(c m p[v]) (e_v − p) at each position, zero at the others: shape (V, N, C, *pos)."""
        xp, shape = array_module(p), p.shape
        m = self.curvature_weights(p, target).reshape(len(p), -1)
        p = p.reshape(*shape[:2], -1)
        which = xp.arange(prod(shape[1:]))[columns]
        v, t, each = which // p.shape[2], which % p.shape[2], xp.arange(which.shape[0])
        roots = xp.sqrt(p[:, v, t]) * xp.sqrt(m[:, t] * self.summed_weight(shape[1:]))  # [N, V]
        block = -roots[:, None] * p[:, :, t]  # [N, C, V]
        block[:, v, each] += roots
        values = xp.zeros((which.shape[0], *p.shape), dtype=block.dtype)
        values[each, :, :, t] = block.transpose(2, 0, 1)
        return values.reshape(-1, *shape)

    # ---------------------------------------------------------------------------------------------------------- draws

    def unweighted(self) -> Self:
        plain = copy(self)
        plain.weight, plain.ignore_index, plain.label_smoothing = None, None, 0.0
        return plain

    def curvature_weights(self, output: Array, target: Array) -> Array:
        """m, shape (N, 1, *pos)."""
        return self.shares(target, output).sum(1, keepdims=True)
