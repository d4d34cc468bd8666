"""A layer that mixes samples, as one of which a sample is a whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.own_block import OwnBlock
from gbackprop.calculus.residual import Factored
from gbackprop.testing.flat import Around


class WholeBatch(Around):
    """A layer that mixes samples, as one whose features are a batch's, (N, *in); parameters are the layer's."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.curvature, self.formulas = layer.curvature, layer.formulas  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"{self.layer!r} of whole batches"

    def output_shape(self, shape: Shape) -> Shape:
        return shape[0], *self.layer.output_shape(shape[1:])

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        made = [self.layer.forward(each) for each in x]
        return np.stack([y for y, _ in made]), [saved for _, saved in made]

    def jmp(self, saved: Any, mat: np.ndarray) -> np.ndarray:
        return np.stack([self.layer.jmp(kept, mat[:, b]) for b, kept in enumerate(saved)], 1)

    def mjp(self, saved: Any, mat: np.ndarray) -> np.ndarray:
        return np.stack([self.layer.mjp(kept, mat[:, b]) for b, kept in enumerate(saved)], 1)

    def residual(self, saved: Any, grad: np.ndarray) -> Factored:
        """Factor the residual with the columns that each batch's has, as the layer's own is: their squares cancel."""
        found = [self.layer.residual(kept, each).columns(slice(None)) for kept, each in zip(saved, grad, strict=True)]
        pieces = [np.stack(each, 1) for each in zip(*(pieces for pieces, _ in found), strict=True)]
        sign = np.concatenate([sign for _, sign in found], 1)
        return Factored(len(sign), lambda span: (tuple(piece[span] for piece in pieces), sign[span]))

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        each = [self.layer.parameter_jacobians(kept) for kept in saved]
        return {name: OfWhole([jacobians[name] for jacobians in each]) for name in each[0]}


class OfWhole(OwnBlock):
    """The Jacobian of a parameter for several batches, each of which is one sample: Jᵀ g = Σₙ Jₙᵀ gₙ."""

    def __init__(self, each: list[ParameterJacobian]) -> None:
        self.each = each

    def per_sample(self, mat: np.ndarray) -> np.ndarray:
        return np.stack([jacobian.per_sample(mat[:, b]).sum(1) for b, jacobian in enumerate(self.each)], 1)
