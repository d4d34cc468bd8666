"""Batch normalization: in evaluation mode an affine map of each channel, with running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, channels_last, like
from gbackprop.base.checks import check_flag, number, own_methods, positive
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.jacobian import Bias, ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Spatial, channels_and_axes
from gbackprop.layers.norms.batch_statistics import BatchStatistics
from gbackprop.layers.norms.scale import Factor


class _BatchNorm(Spatial):
    """Base class of batch normalization.

    Parameters
    ----------
    num_features : int
        C.
    eps : float
        Is added to the variance.
    momentum : float, optional
        The weight of a new batch in the running statistics; None weighs all batches equally.
    affine : bool
        Whether to multiply by a weight and add a bias.
    track_running_stats : bool
        Must be true: without running statistics, evaluation mode would take those of the batch.

    Attributes
    ----------
    parameters : dict
        "weight" (C,), at first 1, and "bias" (C,), at first 0; none if `affine` is false.
    buffers : dict
        "running_mean" (C,), "running_var" (C,) and "num_batches_tracked" (), as torch names them. `gbackprop.backward`
        with ``training=True`` replaces them once, at the end of the call; nothing else does.

    Raises
    ------
    UnsupportedError
        If `track_running_stats` is false.

    Source: Ioffe, Szegedy 2015. In training mode see `BatchStatistics`.
    """

    constant_jacobian = True
    formulas = {"forward": "y = w x̂ + b, x̂ = (x − m) / √(v + ε)", "mjp": "w / √(v + ε) g"}

    fixed = frozenset({"num_features", "affine"})

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        self.num_features = positive("num_features", num_features)
        if momentum is not None and number("momentum", momentum, least=0) > 1:
            raise ValueError(f"momentum: expected a number from 0 to 1, or None, got {momentum!r}")
        if not check_flag("track_running_stats", track_running_stats):
            raise UnsupportedError(
                "track_running_stats: expected True; without running statistics each output depends on the whole batch "
                "in evaluation mode, too"
            )
        self.eps = number("eps", eps, least=0)
        self.momentum: float | None = momentum
        self.affine: bool = check_flag("affine", affine)
        self.buffers: dict[str, Array] = {
            "running_mean": np.zeros(num_features, "float32"),
            "running_var": np.ones(num_features, "float32"),
            "num_batches_tracked": np.array(0),
        }

    def describe(self) -> str:
        words = [str(self.num_features)]
        words += [] if self.eps == 1e-5 else [f"eps={self.eps}"]
        words += [] if self.momentum == 0.1 else [f"momentum={self.momentum}"]
        return ", ".join(words + ([] if self.affine else ["affine=False"]))

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.num_features,), "bias": (self.num_features,)} if self.affine else {}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"weight": np.ones(self.num_features), "bias": np.zeros(self.num_features)} if self.affine else {}

    def output_shape(self, shape: Shape) -> Shape:
        if self.dims > 1 or len(shape) != 1:
            channels_and_axes(shape, self.dims, self.num_features)
        elif shape[0] != self.num_features:
            n = self.num_features
            raise ValueError(f"expected features of shape ({n},) or ({n}, W), got {shape}")
        return shape

    def in_training(self) -> BatchStatistics:
        if "forward" in own_methods(self):
            raise UnsupportedError(f"{self!r}: a forward of its own has no training mode")
        return BatchStatistics(self)

    def forward_training(self, x: Array, noise: Any) -> tuple[Array, Any]:
        raise UnsupportedError(f"{self!r}: in training mode another layer takes its place, that of `in_training`")

    def forward(self, x: Array) -> tuple[Array, Any]:
        mean, deviation = self._statistics(x, x.ndim - 2)
        y = normal = (x - mean) / deviation
        if self.affine:
            y = normal * self._channels("weight", x.ndim - 2) + self._channels("bias", x.ndim - 2)
        return y, (normal, deviation)

    def _statistics(self, x: Array, axes: int) -> tuple[Array, Array]:
        """Return m and √(v + ε) such that they go with channels before `axes` spatial axes."""
        mean = like(self.buffers["running_mean"], x, x.real.dtype)
        variance = like(self.buffers["running_var"], x, x.real.dtype)
        wide = (-1, *(1,) * axes)
        return mean.reshape(wide), ((variance + self.eps) ** 0.5).reshape(wide)

    def _channels(self, name: str, axes: int) -> Array:
        return self.parameters[name].reshape(-1, *(1,) * axes)

    def jmp(self, saved: Any, mat: Array) -> Array:
        _, deviation = saved
        return mat / deviation * self._channels("weight", mat.ndim - 3) if self.affine else mat / deviation

    mjp = jmp  # a diagonal matrix is its own transpose

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        if not self.affine:
            return {}
        rows = Bias(lambda mat: channels_last(mat, 2).reshape(*mat.shape[:2], -1, self.num_features))
        return {"weight": Factor(saved[0], self.num_features), "bias": rows}


class BatchNorm1d(_BatchNorm, dims=1):
    """Batch normalization of ``[N, C]`` or ``[N, C, L]``; in evaluation mode an affine map of each channel."""


class BatchNorm2d(_BatchNorm, dims=2):
    """Batch normalization of ``[N, C, H, W]``; in evaluation mode an affine map of each channel."""


class BatchNorm3d(_BatchNorm, dims=3):
    """Batch normalization of ``[N, C, D, H, W]``; in evaluation mode an affine map of each channel."""
