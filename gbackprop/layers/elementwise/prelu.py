"""The rectifier with a parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import number, positive
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.mixed import MixedLayer
from gbackprop.calculus.own_block import OwnBlock
from gbackprop.calculus.residual import Factored, products, units


class PReLU(MixedLayer):
    """x where x > 0, else a x, with a parameter a for all channels or one for each.

    Parameters
    ----------
    num_parameters : int
        1, or the number of channels: the axis after the batch.
    init : float
        The value of a at first.

    Attributes
    ----------
    parameters : dict
        "weight" (num_parameters,).

    Raises
    ------
    ValueError
        If `num_parameters` is no positive integer, or `init` no finite number.
    """

    formulas = {"forward": "y = x if x > 0 else a x, a = weight", "mjp": "([x > 0] + a [x ≤ 0]) g"}
    # `kronecker_factors` stays None: KFAC and KFLR have a factor, KFRA has none, and the plan asks the Jacobian which.
    shown = ["num_parameters"]

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.num_parameters, self.init = positive("num_parameters", num_parameters), number("init", init)

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.num_parameters,)}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"weight": np.full(self.num_parameters, self.init)}

    def output_shape(self, shape: Shape) -> Shape:
        if self.num_parameters > 1 and shape[:1] != (self.num_parameters,):
            raise ValueError(f"expected features of shape ({self.num_parameters}, …), got {shape}")
        return shape

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x * self._slope(x), x

    def _slope(self, x: Array) -> Array:
        a = self.parameters["weight"]
        if self.num_parameters > 1:
            a = a.reshape(-1, *(1,) * (x.ndim - 2))
        return array_module(x).where(x.real > 0, 1, a)

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat * self._slope(saved)

    mjp = jmp  # a diagonal matrix is its own transpose

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return {"weight": _Slope(saved, self.num_parameters)}

    def mixed_width(self, key: str, shape: Shape) -> int:
        return 2 * self.num_parameters

    def mixed_residual(self, saved: Any, key: str, grad: Array, shape: Shape) -> Factored:
        """Factor the products, for each channel, of its slope and on x of its gradient where x ≤ 0."""
        count, n = self.num_parameters, len(grad)
        negative = array_module(grad).where(saved > 0, 0, grad).reshape(n, count, -1)

        def pairs(k: Array) -> tuple[Array, Array]:
            on_slope = units(k, n, (count,), grad.dtype)
            return on_slope, (on_slope[..., None] * negative).reshape(len(k), n, *shape)

        return products(count, pairs, grad, (self.parameters[key], saved))


class _Slope(OwnBlock):
    """The Jacobian of a: Jᵀ g = Σ g x over the places where x ≤ 0, channel by channel."""

    def __init__(self, x: Array, count: int) -> None:
        self.x, self.count = x, count

    def per_sample(self, mat: Array) -> Array:
        each = mat * array_module(mat).where(self.x.real > 0, 0, self.x)
        return each.reshape(*mat.shape[:2], self.count, -1).sum(3)
