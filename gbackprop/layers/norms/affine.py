"""The parts of an affine map, each a layer by itself: y = W x, y = x + b, y = c x, y = x + c, y = 0.

Attention, recurrent layers and arithmetic with numbers are made of these. A parameter has the name that is given:
torch's.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape


class _Named(Layer):
    """Base class of layers with one parameter, of a given name, that is drawn from U(−bound, bound)."""

    constant_jacobian = True
    kronecker_factors = True

    def __init__(self, key: str, in_features: int, out_features: int, bound: float) -> None:
        self.key, self.in_features, self.out_features, self.bound = key, in_features, out_features, bound

    def describe(self) -> str:
        return f"{self.key!r}, {', '.join(map(str, self.parameter_shapes()[self.key]))}"

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {key: rng.uniform(-self.bound, self.bound, shape) for key, shape in self.parameter_shapes().items()}

    def output_shape(self, shape: Shape) -> Shape:
        if not shape or shape[-1] != self.in_features:
            raise ValueError(f"expected features of shape (…, {self.in_features}), got {shape}")
        return (*shape[:-1], self.out_features)

    def rows(self, mat: Array) -> Array:
        """Return the view ``[V, N, T, O]`` of columns ``[V, N, *out]``."""
        return mat.reshape(*mat.shape[:2], prod(mat.shape[2:-1]), self.out_features)


class Matrix(_Named):
    """A linear map of the last axis, y = W x, at every position of the axes between batch and features."""

    formulas = {"forward": "y = W x", "mjp": "Wᵀ g"}

    def parameter_shapes(self) -> dict[str, Shape]:
        return {self.key: (self.out_features, self.in_features)}

    @property
    def matrix(self) -> Array:
        """Wᵀ, shape (I, O)."""
        return self.parameters[self.key].T

    def forward(self, x: Array) -> tuple[Array, Any]:
        return _times(x, self.matrix), x

    def jmp(self, saved: Any, mat: Array) -> Array:
        return _times(mat, self.matrix)

    def mjp(self, saved: Any, mat: Array) -> Array:
        return _times(mat, self.matrix.T)

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        u = saved.reshape(1, len(saved), prod(saved.shape[1:-1]), self.in_features)
        return {self.key: Outer(lambda: u, Bias(self.rows), lambda weight: weight, lambda weight: weight)}


class Shift(_Named):
    """A vector added at every position of the axes between batch and features, y = x + b."""

    formulas = {"forward": "y = x + b", "mjp": "g"}

    def __init__(self, key: str, features: int, bound: float) -> None:
        super().__init__(key, features, features, bound)

    def parameter_shapes(self) -> dict[str, Shape]:
        return {self.key: (self.out_features,)}

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x + self.parameters[self.key], None

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat

    mjp = jmp

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return {self.key: Bias(self.rows)}


class Times(Layer):
    """Multiplication by a number, y = c x."""

    constant_jacobian = True
    formulas = {"forward": "y = c x, c = factor", "mjp": "c g"}

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def describe(self) -> str:
        return f"{self.factor:.4g}"

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x * self.factor, None

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat * self.factor

    mjp = jmp


class Plus(Layer):
    """Addition of a number, y = x + c."""

    constant_jacobian = True
    formulas = {"forward": "y = x + c, c = number", "mjp": "g"}

    def __init__(self, number: float) -> None:
        self.number = number

    def describe(self) -> str:
        return f"{self.number:.4g}"

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x + self.number, None

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat

    mjp = jmp


class Zeros(Layer):
    """A vector of zeros whatever the input is, y = 0: the state of a recurrent layer before the first step."""

    constant_jacobian = True
    formulas = {"forward": "y = 0", "mjp": "0"}

    def __init__(self, features: int) -> None:
        self.features = features

    def describe(self) -> str:
        return str(self.features)

    def output_shape(self, shape: Shape) -> Shape:
        return (self.features,)

    def forward(self, x: Array) -> tuple[Array, Any]:
        return _zeros(x, (len(x), self.features)), x.shape[1:]

    def jmp(self, saved: Any, mat: Array) -> Array:
        return _zeros(mat, (*mat.shape[:2], self.features))

    def mjp(self, saved: Any, mat: Array) -> Array:
        return _zeros(mat, (*mat.shape[:2], *saved))


def _times(x: Array, matrix: Array) -> Array:
    """Compute ``[…, I] @ [I, O]`` as one product."""
    return (x.reshape(-1, matrix.shape[0]) @ matrix).reshape(*x.shape[:-1], matrix.shape[1])


def _zeros(like: Array, shape: Shape) -> Array:
    return array_module(like).zeros(shape, dtype=like.dtype)
