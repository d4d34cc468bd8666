"""y = W x + b, at every position of the axes between batch and features."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.checks import check_flag, positive
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape


class Linear(Layer):
    """A linear map of the last axis: ``[N, I] -> [N, O]``, ``[N, T, I] -> [N, T, O]``, and so on.

    Parameters
    ----------
    in_features, out_features : int
        I and O.
    bias : bool
        Whether to add b.

    Attributes
    ----------
    parameters : dict
        "weight" (O, I), and "bias" (O,); drawn from U(−1/√I, 1/√I).
    """

    constant_jacobian = True
    kronecker_factors = True
    formulas = {"forward": "y = W x + b", "mjp": "Wᵀ g"}

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = positive("in_features", in_features)
        self.out_features = positive("out_features", out_features)
        self.bias = check_flag("bias", bias)

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias else ", bias=False")

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.out_features, self.in_features)}
        return shapes | {"bias": (self.out_features,)} if self.bias else shapes

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return uniform(rng, self.parameter_shapes(), self.in_features)

    def output_shape(self, shape: Shape) -> Shape:
        if not shape or shape[-1] != self.in_features:
            raise ValueError(f"expected features of shape (…, {self.in_features}), got {shape}")
        return (*shape[:-1], self.out_features)

    def forward(self, x: Array) -> tuple[Array, Any]:
        y = x @ self.parameters["weight"].T
        return y + self.parameters["bias"] if self.bias else y, x

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat @ self.parameters["weight"].T

    def mjp(self, saved: Any, mat: Array) -> Array:
        return mat @ self.parameters["weight"]

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        u = saved.reshape(1, saved.shape[0], prod(saved.shape[1:-1]), self.in_features)
        bias = Bias(lambda mat: mat.reshape(*mat.shape[:2], prod(mat.shape[2:-1]), self.out_features))
        weight = Outer(lambda: u, bias, lambda weight: weight, lambda weight: weight)  # (O, I) already
        jacobians: dict[str, ParameterJacobian] = {"weight": weight}
        return jacobians | {"bias": bias} if self.bias else jacobians


def uniform(rng: np.random.Generator, shapes: dict[str, Shape], fan_in: int) -> dict[str, np.ndarray]:
    """Draw every parameter from U(−1/√fan_in, 1/√fan_in), torch's default."""
    bound = fan_in**-0.5
    return {name: rng.uniform(-bound, bound, shape) for name, shape in shapes.items()}
