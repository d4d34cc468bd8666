"""Weights of outputs that are bits: one for each output, and one for y = 1 beside y = 0."""

from __future__ import annotations

from copy import copy
from typing import Literal, Self

from gbackprop.array import Array, bounds
from gbackprop.calculus.layer import Shape
from gbackprop.losses.elementwise import ElementwiseLoss
from gbackprop.losses.weights import cast, check_device, checked_weight, fits


class BitWeights(ElementwiseLoss):
    """ℓₙ = c Σ u w y l(1) + w (1 − y) l(0) with weights u, w of each output, the same for every sample."""

    _weighted: bool | None = None  # what a subclass says

    def __init__(
        self,
        reduction: Literal["mean", "sum"] = "mean",
        *,
        weight: Array | None = None,
        pos_weight: Array | None = None,
    ) -> None:
        super().__init__(reduction)
        name, (w, u) = type(self).__name__, (weight, pos_weight)
        self.weight: Array | None = None if w is None else checked_weight(f"{name}, weight", w)
        self.pos_weight: Array | None = None if u is None else checked_weight(f"{name}, pos_weight", u)

    @property
    def weighted(self) -> bool:
        """True if weights are given, by the options as they are; a subclass may assign it."""
        return bool(self._given()) if self._weighted is None else self._weighted

    @weighted.setter
    def weighted(self, value: bool) -> None:
        self._weighted = value

    def _given(self) -> list[tuple[str, Array]]:
        both = (("weight", self.weight), ("pos_weight", self.pos_weight))
        return [(name, value) for name, value in both if value is not None]

    def describe(self) -> list[str]:
        return [f"{name} of shape {value.shape}" for name, value in self._given()]

    def target_shape(self, batch_shape: Shape) -> Shape:
        for name, value in self._given():
            fits(name, value, batch_shape[1:])
        return super().target_shape(batch_shape)

    def check_values(self, name: str, target: Array, batch_shape: Shape, output: Array) -> None:
        for which, value in self._given():
            check_device(f"{which} of {type(self).__name__}", value, output)
        super().check_values(name, target, batch_shape, output)
        low, high = bounds(target)
        if low < 0 or high > 1:
            raise ValueError(f"{name}: expected probabilities in [0, 1], got {low if low < 0 else high}")

    def shares(self, output: Array, target: Array) -> tuple[Array, Array]:
        """u w y and w (1 − y)."""
        one, zero = target, 1 - target
        if self.pos_weight is not None:
            one = one * cast(self.pos_weight, output)
        if self.weight is not None:
            one, zero = one * cast(self.weight, output), zero * cast(self.weight, output)
        return one, zero

    def unweighted(self) -> Self:
        plain = copy(self)
        plain.weight, plain.pos_weight = None, None
        return plain

    def curvature_weights(self, output: Array, target: Array) -> Array:
        """v = u w y + w (1 − y)."""
        one, zero = self.shares(output, target)
        return one + zero
