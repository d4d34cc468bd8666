"""Dropout: in training mode, a mask drawn once per pass; otherwise the identity."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from gbackprop.array import Array, like
from gbackprop.calculus.layer import Layer, Shape


class Dropout(Layer):
    """A layer that sets each number to zero with probability p and divides the others by 1 − p, if ``training=True``.

    Parameters
    ----------
    p : float
        In [0, 1].
    """

    formulas = {"forward": "y = m x, m = drawn / (1 − p) if training else 1", "mjp": "m g"}
    shown = ["p"]

    def __init__(self, p: float = 0.5) -> None:
        if isinstance(p, bool) or not isinstance(p, Real) or not 0 <= p <= 1:
            raise ValueError(f"p: expected a probability in [0, 1], got {p!r}")
        self.p: float = float(p)

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def noise(self, batch_shape: Shape, rng: np.random.Generator) -> np.ndarray:
        return rng.random(batch_shape) >= self.p

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x, None

    def forward_training(self, x: Array, noise: Any) -> tuple[Array, Any]:
        scale = 0.0 if self.p == 1 else 1 / (1 - self.p)
        mask = like(noise, x).astype(x.real.dtype)
        mask *= scale
        return x * mask, mask

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat if saved is None else mat * saved

    mjp = jmp

    def average(self, saved: Any, curvature: Array, batch: int, shape: Shape) -> Array:
        if saved is None:
            return curvature
        d = saved.reshape(batch, -1)
        return curvature * (d.T @ d / batch)
