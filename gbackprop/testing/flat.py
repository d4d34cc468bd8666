"""A layer of several inputs as one of a single input, one that mixes samples as one of batches; and dense residuals."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.own_block import OwnBlock
from gbackprop.calculus.residual import DiagonalFactors, Factored
from gbackprop.testing.claims import FoundError


class Around(Layer):
    """A layer that is made of another one, whose parameters it has."""

    layer: Layer

    drawn = property(lambda self: self.layer.drawn, lambda self, value: setattr(self.layer, "drawn", value))
    dtype = property(lambda self: self.layer.dtype, lambda self, value: setattr(self.layer, "dtype", value))

    def parameter_shapes(self) -> dict[str, Shape]:
        return self.layer.parameter_shapes()

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return self.layer.draw(rng)


class Flat(Around):
    """A layer of several inputs as one whose input is all of theirs, flat and side by side; parameters are the layer's.

    Attributes that are neither its own nor of every layer, such as `bias` and `groups`, are the layer's, too.
    """

    OF_THE_LAYER = ("curvature", "constant_jacobian", "formulas", "takes", "kronecker_factors")

    def __init__(self, layer: Layer, shapes: Sequence[Shape]) -> None:
        self.layer, self.shapes = layer, tuple(shapes)
        for name in self.OF_THE_LAYER:
            setattr(self, name, getattr(layer, name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "layer" not in vars(self):  # as in a copy that is not made yet
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return getattr(self.layer, name)

    def __repr__(self) -> str:
        return f"{self.layer!r} of {' and '.join(map(str, self.shapes))}"

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return self.layer.parameter_jacobians(saved)

    def output_shape(self, shape: Shape) -> Shape:
        size = sum(map(prod, self.shapes))
        if shape != (size,):
            raise ValueError(f"expected features of shape ({size},), got {shape}")
        return self.layer.output_shape(*self.shapes)

    def split(self, mat: np.ndarray, lead: int) -> list[np.ndarray]:
        """Return what is for each input, after `lead` leading axes."""
        return apart(mat, self.shapes, lead)

    def joined(self, parts: Any, lead: int) -> np.ndarray:
        """Return what a method gave for each input side by side, if each part has the shape of its input."""
        shapes = [np.shape(part)[lead:] for part in parts] if isinstance(parts, (tuple, list)) else np.shape(parts)
        if shapes != list(self.shapes):
            raise FoundError(f"expected an array for each input, of features {list(self.shapes)}, got {shapes}")
        return side_by_side(parts, lead)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return self.layer.forward(*self.split(x, 1))

    def jmp(self, saved: Any, mat: np.ndarray) -> np.ndarray:
        return self.layer.jmp(saved, *self.split(mat, 2))

    def mjp(self, saved: Any, mat: np.ndarray) -> np.ndarray:
        return self.joined(self.layer.mjp(saved, mat), 2)

    def vjp(self, saved: Any, vec: np.ndarray) -> np.ndarray:
        if type(self.layer).vjp is Layer.vjp:
            return super().vjp(saved, vec)
        return self.joined(self.layer.vjp(saved, vec), 1)

    def residual(self, saved: Any, grad: np.ndarray) -> np.ndarray:
        return dense(self.layer.residual(saved, grad))


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


def apart(mat: np.ndarray, shapes: Sequence[Shape], lead: int = 1) -> list[np.ndarray]:
    """Return what is for each input, of such shapes, after `lead` leading axes."""
    parts = np.split(mat, np.cumsum([prod(shape) for shape in shapes])[:-1], axis=-1)
    return [part.reshape(*mat.shape[:lead], *shape) for part, shape in zip(parts, shapes, strict=True)]


def side_by_side(parts: Sequence[np.ndarray], lead: int = 1) -> np.ndarray:
    """Return what is for each input as one array with a single axis after `lead` leading ones."""
    return np.concatenate([part.reshape(*part.shape[:lead], -1) for part in parts], axis=-1)


def dense(residual: Any) -> np.ndarray:
    """Σᵥ signᵥ v vᵀ over all inputs, shape (N, D, D), of a residual that is factored; any other as an array."""
    if isinstance(residual, DiagonalFactors):
        return residual.product()
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
