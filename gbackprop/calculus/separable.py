"""Linear maps that act along each spatial axis by itself: y = (M₁ ⊗ M₂ ⊗ …) x, the same for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Layer, Shape


class Separable(Layer):
    """Base class of such maps: a subclass defines `output_shape` and the matrices."""

    constant_jacobian = True
    formulas = {"forward": "y = (M₁ ⊗ M₂ ⊗ …) x", "mjp": "(M₁ ⊗ M₂ ⊗ …)ᵀ g"}

    def matrices(self, spatial: Shape, like: Array) -> list[Array]:
        """Return M ``[out, in]`` for each spatial axis, in the dtype of `like` and on its device."""
        raise NotImplementedError

    def forward(self, x: Array) -> tuple[Array, Any]:
        return _along_axes(self.matrices(x.shape[2:], x), x), x.shape[2:]

    def jmp(self, saved: Any, mat: Array) -> Array:
        return _along_axes(self.matrices(saved, mat), mat)

    def mjp(self, saved: Any, mat: Array) -> Array:
        return _along_axes([matrix.T for matrix in self.matrices(saved, mat)], mat)


def _along_axes(matrices: Sequence[Array], x: Array) -> Array:
    """Multiply the last axes of ``[*lead, *in]``, each by its matrix: ``[*lead, *out]``."""
    xp = array_module(x)
    for axis, matrix in enumerate(matrices, x.ndim - len(matrices)):
        x = xp.moveaxis(xp.moveaxis(x, axis, -1) @ matrix.T, -1, axis)
    return x
