"""Batch normalization in training mode: each channel of the batch is normalized by its own mean and variance.

With the batch as one sample, and the N T numbers of a channel as its K entries, this is instance normalization:

    y = w x̂ + b,   x̂ = z / σ,   z = x − mean x,   σ² = mean z² + ε

The second derivatives are those of `Norm`, of that one sample.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module, like
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.mixed import MixedLayer
from gbackprop.calculus.residual import Factored, FactoredLayer, Pieces
from gbackprop.layers.norms.samples import InstanceNorm1d


class BatchStatistics(FactoredLayer, MixedLayer):
    """The layer that takes the place of a batch normalization in training mode, with its parameters.

    Parameters
    ----------
    layer : BatchNorm1d, BatchNorm2d or BatchNorm3d
    """

    mixes = True
    formulas = {
        "forward": "y = w x̂ + b, x̂ = z/σ, z = x − mean, σ² = mean z² + ε, means over the batch",
        "mjp": "(P h − m x̂)/σ, h = w g, m = mean(h x̂), P h = h − mean h",
        "residual": "−(m P + (a x̂ᵀ + x̂ aᵀ)/K)/σ², a = P h − 3/2 m x̂",
    }

    def __init__(self, layer: Any) -> None:
        self.layer, self.drawn, self.frozen, self.dtype = layer, layer.parameters, layer.frozen, layer.dtype
        self.channels = layer.num_features

    def __repr__(self) -> str:
        return repr(self.layer)

    def parameter_shapes(self) -> dict[str, Shape]:
        return self.layer.parameter_shapes()

    def output_shape(self, shape: Shape) -> Shape:
        return self.layer.output_shape(shape)

    def noise(self, batch_shape: Shape, rng: np.random.Generator) -> Any:
        if prod(batch_shape) == self.channels:
            raise ValueError(f"expected more than one number in each channel of the batch, got shape {batch_shape}")
        return None

    # ------------------------------------------------------------------------------------------------------ function

    def forward(self, x: Array) -> tuple[Array, Any]:
        axes = (0, *range(2, x.ndim))
        mean = x.mean(axes, keepdims=True)
        z = x - mean
        variance = (z * z).mean(axes, keepdims=True)
        sigma = array_module(x).sqrt(variance + self.layer.eps)
        y = normal = z / sigma
        if self.layer.affine:
            y = normal * self._factors(x.ndim) + self.parameters["bias"].reshape(-1, *(1,) * (x.ndim - 2))
        return y, (normal, sigma, mean, variance)

    def observe(self, saved: Any) -> Callable[[], None]:
        """Return the update of the running statistics, with the variance that is divided by K − 1."""
        normal, _, mean, variance = saved
        k = normal.size // self.channels
        unbiased = variance * (k / (k - 1))

        def update() -> None:
            buffers, momentum = self.layer.buffers, self.layer.momentum
            count = buffers["num_batches_tracked"] + 1
            share = 1 / int(count) if momentum is None else momentum
            new = {"num_batches_tracked": array_module(mean).asarray(count)}
            for name, value in (("running_mean", mean), ("running_var", unbiased)):
                new[name] = self.learned(like(buffers[name], mean), value.reshape(-1), share)
            buffers.update(new)

        return update

    def learned(self, before: Array, value: Array, share: float) -> Array:
        """Return a running statistic in which a batch's has its share."""
        return before * (1 - share) + value * share

    # --------------------------------------------------------------------------------------------------- derivatives

    def jmp(self, saved: Any, mat: Array) -> Array:
        back = self.carried(saved, mat)  # the Jacobian of x̂ is symmetric
        return back * self._factors(mat.ndim - 1) if self.layer.affine else back

    def mjp(self, saved: Any, mat: Array) -> Array:
        return self.carried(saved, mat * self._factors(mat.ndim - 1) if self.layer.affine else mat)

    def carried(self, saved: Any, h: Array) -> Array:
        """(P h − m x̂) / σ."""
        (normal, sigma, *_), axes = saved, (1, *range(3, h.ndim))
        m = (h * normal).mean(axes, keepdims=True)
        return (h - h.mean(axes, keepdims=True) - m * normal) / sigma

    def _factors(self, dims: int) -> Array:
        """Return w in a shape that goes with channels before `dims` − 2 axes."""
        return self.parameters["weight"].reshape(-1, *(1,) * (dims - 2))

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        return self.layer.parameter_jacobians(saved)

    def residual_width(self, *shapes: Shape) -> int:
        (shape,) = shapes  # (N, *in)
        return prod(shape) + 2 * self.channels

    def residual(self, saved: Any, grad: Array) -> Factored:
        found = self.norm.residual(self.as_one(saved), self.merged(grad[None])[0])

        def columns(span: slice) -> Pieces:
            (values,), sign = found.columns(span)
            return (self.split(values, grad.shape),), sign

        return Factored(found.width, columns)

    def mixed_width(self, key: str, shape: Shape) -> int:
        return 0 if key == "bias" else 2 * self.channels

    def mixed_residual(self, saved: Any, key: str, grad: Array, shape: Shape) -> Factored:
        found = self.norm.mixed_residual(self.as_one(saved), key, self.merged(grad[None])[0], shape)

        def columns(span: slice) -> Pieces:
            (on_weight, on_input), sign = found.columns(span)
            rest = array_module(grad).zeros((len(sign), len(grad) - 1, self.channels), dtype=grad.dtype)
            direct = array_module(grad).concatenate([on_weight, rest], axis=1)  # of no sample: it is the first's
            return (direct, self.split(on_input, grad.shape)), sign

        return Factored(found.width, columns)

    # ------------------------------------------------------------------------------------- the batch as one sample

    @property
    def norm(self) -> InstanceNorm1d:
        """The normalization of the batch as one sample (C, K)."""
        norm = InstanceNorm1d(self.channels, self.layer.eps, affine=self.layer.affine)
        norm.drawn = self.drawn
        return norm

    def as_one(self, saved: Any) -> Any:
        """Return what that normalization would have saved."""
        normal, sigma, *_ = saved
        return self.merged(normal[None])[0], sigma.reshape(1, -1, 1)

    def merged(self, mat: Array) -> Array:
        """``[V, N, C, *L] -> [V, 1, C, K]``."""
        return mat.swapaxes(1, 2).reshape(len(mat), 1, self.channels, -1)

    def split(self, mat: Array, shape: Shape) -> Array:
        """``[V, 1, C, K] -> [V, N, C, *L]``; `shape` is the latter without V."""
        n, c, *rest = shape
        return mat.reshape(len(mat), c, n, *rest).swapaxes(1, 2)
