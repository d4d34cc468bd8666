"""A learned factor, and the Jacobian of learned factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.checks import number, positive
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.own_block import OwnBlock


class Factor(OwnBlock):
    """The Jacobian of C factors, or 1, y[c, t] = w[c] x[c, t]: Jᵀ g[v, n] = Σₜ g[v, n, c, t] x[n, c, t]."""

    def __init__(self, x: Array, count: int) -> None:
        self.x, self.count = x, count

    def per_sample(self, mat: Array) -> Array:
        return (mat * self.x).reshape(*mat.shape[:2], self.count, -1).sum(3)


class Scale(Layer):
    """A layer that multiplies all numbers by a learned factor, or each channel by one of its own.

    Parameters
    ----------
    num_parameters : int
        1, or C for inputs of feature shape (C, …).
    init : float
        First value of the factors.

    Attributes
    ----------
    parameters : dict
        "weight" (num_parameters,).
    """

    constant_jacobian = True
    formulas = {"forward": "y = w x, w = weight", "mjp": "w g"}

    def __init__(self, num_parameters: int = 1, init: float = 1.0) -> None:
        self.num_parameters = positive("num_parameters", num_parameters)
        self.init = number("init", init)

    def describe(self) -> str:
        words = [str(self.num_parameters)] if self.num_parameters > 1 else []
        return ", ".join(words + ([] if self.init == 1 else [f"init={self.init}"]))

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.num_parameters,)}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"weight": np.full(self.num_parameters, self.init)}

    def output_shape(self, shape: Shape) -> Shape:
        if self.num_parameters > 1 and shape[:1] != (self.num_parameters,):
            raise ValueError(f"expected features of shape ({self.num_parameters}, …), got {shape}")
        return shape

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x * self._factors(x.ndim - 1), x

    def _factors(self, axes: int) -> Array:
        """Return w such that it multiplies arrays with `axes` feature axes."""
        weight = self.parameters["weight"]
        return weight if self.num_parameters == 1 else weight.reshape(-1, *(1,) * (axes - 1))

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat * self._factors(mat.ndim - 2)

    mjp = jmp  # a diagonal matrix is its own transpose

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return {"weight": Factor(saved, self.num_parameters)}
