"""Elementwise layers: y = φ(x), J = diag(φ'(x)), r = φ''(x) g."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Layer, Shape


class Elementwise(Layer):
    """Base class of the activations: a subclass defines φ, φ' and φ''.

    Source: paper, appendix A.3 (the Hessian's residual, diagonal for an elementwise function).
    """

    broadcasts = True
    curvature = "diagonal"
    formulas = {"forward": "y = φ(x)", "mjp": "φ'(x) g", "residual": "φ''(x) g"}

    def value(self, x: Array) -> Array:
        """φ(x), with the shape of x."""
        raise NotImplementedError

    def first(self, x: Array, y: Array) -> Array:
        """φ'(x), given y = φ(x) as well."""
        raise NotImplementedError

    def second(self, x: Array, y: Array) -> Array:
        """φ''(x), given y = φ(x) as well."""
        raise NotImplementedError

    def forward(self, x: Array) -> tuple[Array, Any]:
        y = self.value(x)
        return y, (x, y)

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat * self.first(*saved)

    mjp = jmp  # a diagonal matrix is its own transpose

    def residual(self, saved: Any, grad: Array) -> Array:
        return self.second(*saved) * grad

    def average(self, saved: Any, curvature: Array, batch: int, shape: Shape) -> Array:
        # 1/N Σₙ diag(dₙ) Ḡ diag(dₙ) = Ḡ ∘ (1/N Σₙ dₙ dₙᵀ)
        d = self.first(*saved).reshape(batch, -1).astype(curvature.dtype)  # a mask counts as 0 and 1
        return curvature * (d.T @ d / batch)


class ReLU(Elementwise):
    """max(x, 0), with derivative 0 at 0 as in torch."""

    curvature = "zero"
    formulas = {"forward": "y = max(x, 0)", "mjp": "[x > 0] g"}

    def value(self, x: Array) -> Array:
        return array_module(x).maximum(x, 0)

    def first(self, x: Array, y: Array) -> Array:
        return x > 0


class Sigmoid(Elementwise):
    """σ(x) = 1/(1 + e⁻ˣ)."""

    formulas = {"forward": "y = σ(x)", "mjp": "y (1 − y) g", "residual": "y (1 − y) (1 − 2y) g"}

    def value(self, x: Array) -> Array:
        return sigmoid(x)

    def first(self, x: Array, y: Array) -> Array:
        return y * (1 - y)

    def second(self, x: Array, y: Array) -> Array:
        return y * (1 - y) * (1 - 2 * y)


class Tanh(Elementwise):
    """tanh(x)."""

    formulas = {"forward": "y = tanh(x)", "mjp": "(1 − y²) g", "residual": "−2y (1 − y²) g"}

    def value(self, x: Array) -> Array:
        return array_module(x).tanh(x)

    def first(self, x: Array, y: Array) -> Array:
        return 1 - y * y

    def second(self, x: Array, y: Array) -> Array:
        return -2 * y * (1 - y * y)


def sigmoid(x: Array) -> Array:
    """σ(x) = e^min(x, 0) / (1 + e^−|x|), in which nothing overflows; analytic where x is not 0, for complex steps."""
    xp = array_module(x)
    below = xp.minimum(x, 0) if x.dtype.kind != "c" else xp.where(x.real < 0, x, 0)
    return xp.exp(below) / (1 + xp.exp(2 * below - x))
