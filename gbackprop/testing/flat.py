"""A layer of several inputs as one of a single input, and a factored residual as a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.residual import Factored


class Flat(Layer):
    """A layer of several inputs, without parameters, as one whose input is all of theirs, flat and side by side."""

    def __init__(self, layer: Layer, shapes: Sequence[Shape]) -> None:
        self.layer, self.shapes = layer, tuple(shapes)
        self.curvature = layer.curvature  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"{self.layer!r} of {' and '.join(map(str, self.shapes))}"

    def output_shape(self, shape: Shape) -> Shape:
        size = sum(map(prod, self.shapes))
        if shape != (size,):
            raise ValueError(f"expected features of shape ({size},), got {shape}")
        return self.layer.output_shape(*self.shapes)

    def split(self, mat: np.ndarray, lead: int) -> list[np.ndarray]:
        """Return what is for each input, after `lead` leading axes."""
        ends = np.cumsum([prod(shape) for shape in self.shapes])[:-1]
        parts = np.split(mat, ends, axis=-1)
        return [part.reshape(*mat.shape[:lead], *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return self.layer.forward(*self.split(x, 1))

    def jmp(self, saved: Any, mat: np.ndarray) -> np.ndarray:
        return self.layer.jmp(saved, *self.split(mat, 2))

    def mjp(self, saved: Any, mat: np.ndarray) -> np.ndarray:
        return side_by_side(list(self.layer.mjp(saved, mat)), 2)

    def residual(self, saved: Any, grad: np.ndarray) -> np.ndarray:
        return dense(self.layer.residual(saved, grad))


def side_by_side(parts: Sequence[np.ndarray], lead: int = 1) -> np.ndarray:
    """Return what is for each input as one array with a single axis after `lead` leading ones."""
    return np.concatenate([part.reshape(*part.shape[:lead], -1) for part in parts], axis=-1)


def dense(residual: Any) -> np.ndarray:
    """Σᵥ signᵥ v vᵀ over all inputs, shape (N, D, D), of a residual that is factored; any other as it is."""
    if not isinstance(residual, Factored):
        return residual
    pieces, sign = residual.columns(slice(None))
    columns = side_by_side(pieces, 2)
    return np.einsum("vn,vni,vnj->nij", sign, columns, columns, optimize=True)


def size_of_squares(residual: Any) -> float:
    """Return the largest entry of Σᵥ v², beside which the sum of signed columns is rounded; 0 for a matrix."""
    if not isinstance(residual, Factored):
        return 0.0
    pieces, _ = residual.columns(slice(None))
    return max(float((piece**2).sum(0).max(initial=0)) for piece in pieces)
