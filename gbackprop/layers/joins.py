"""Layers of several inputs, at which branches of a network meet: Add, Multiply, Concat, MatMul.

y = f(x₁, …, xₖ); `mjp` and `jmp` have one array an input, and a residual is over all inputs together.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import feature_axis
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.residual import Factored, FactoredLayer, products, units


class Add(Layer):
    """y = x₁ + … + xₖ, of inputs of equal shape."""

    formulas = {"forward": "y = Σₖ xₖ", "mjp": "g to each input"}

    def output_shape(self, *shapes: Shape) -> Shape:
        return _equal(shapes)

    def forward(self, *inputs: Array) -> tuple[Array, Any]:
        total = inputs[0]
        for x in inputs[1:]:
            total = total + x
        return total, len(inputs)

    def jmp(self, saved: Any, *mats: Array) -> Array:
        return self.forward(*mats)[0]

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return (mat,) * saved


class Multiply(FactoredLayer):
    """y = a ∘ b, elementwise, of two inputs of equal shape.

    The residual with a gradient g at the output is Σᵢ gᵢ (eᵢ eᵢᵀ + eᵢ eᵢᵀ) on (a, b): two columns for each element.
    """

    bilinear = True
    formulas = {"forward": "y = a ∘ b", "mjp": "b ∘ g, a ∘ g", "residual": "gᵢ (aᵢ bᵢ + bᵢ aᵢ)"}

    def output_shape(self, *shapes: Shape) -> Shape:
        if len(shapes) != 2:
            raise ValueError(f"expected two inputs, got {len(shapes)}")
        return _equal(shapes)

    def forward(self, a: Array, b: Array) -> tuple[Array, Any]:  # type: ignore[override]
        return a * b, (a, b)

    def jmp(self, saved: Any, of_a: Array, of_b: Array) -> Array:  # type: ignore[override]
        a, b = saved
        return b * of_a + a * of_b

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, Array]:  # type: ignore[override]
        a, b = saved
        return b * mat, a * mat

    def residual_width(self, *shapes: Shape) -> int:
        return 2 * prod(shapes[0])

    def residual(self, saved: Any, grad: Array) -> Factored:
        return products(prod(grad.shape[1:]), partial(self.pairs, grad), grad, saved)

    def pairs(self, grad: Array, k: Array) -> tuple[Array, Array]:
        """e_k on a and g_k e_k on b, for an array of V numbers k: each (V, N, *features)."""
        unit = units(k, len(grad), grad.shape[1:], grad.dtype)
        return unit, unit * grad


class Concat(Layer):
    """y = (x₁, …, xₖ), side by side along an axis, counted with the batch as axis 0."""

    formulas = {"forward": "y = (x₁, …, xₖ)", "mjp": "the part of g at each input"}
    shown = ["axis"]

    def __init__(self, axis: int = 1) -> None:
        self.axis = feature_axis("axis", axis)

    def output_shape(self, *shapes: Shape) -> Shape:
        _check_several(shapes)
        dims = len(shapes[0]) + 1
        axis = self.axis + dims if self.axis < 0 else self.axis
        if not 1 <= axis < dims:
            raise ValueError(f"expected an axis after the batch axis of inputs of {dims} axes, got axis={self.axis}")
        others = {(*shape[: axis - 1], *shape[axis:]) for shape in shapes}
        if len({len(shape) for shape in shapes}) > 1 or len(others) > 1:
            raise ValueError(f"expected inputs of equal shape but for axis {self.axis}, got {list(shapes)}")
        first = shapes[0]
        return (*first[: axis - 1], sum(shape[axis - 1] for shape in shapes), *first[axis:])

    def forward(self, *inputs: Array) -> tuple[Array, Any]:
        axis = self.axis + inputs[0].ndim if self.axis < 0 else self.axis
        return array_module(inputs[0]).concatenate(inputs, axis=axis), (axis, [x.shape[axis] for x in inputs])

    def jmp(self, saved: Any, *mats: Array) -> Array:
        return array_module(mats[0]).concatenate(mats, axis=saved[0] + 1)

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, ...]:  # type: ignore[override]
        axis, sizes = saved
        parts, start = [], 0
        for size in sizes:
            parts.append(mat[(slice(None),) * (axis + 1) + (slice(start, start + size),)])
            start += size
        return tuple(parts)


class MatMul(FactoredLayer):
    """Y = A B of the last two axes of two inputs, (…, T, K) and (…, K, S).

    The residual with a gradient G = Σᵣ σᵣ uᵣ vᵣᵀ (singular vectors) is the sum over r and k of the products of
    uᵣ eₖᵀ on A and σᵣ eₖ vᵣᵀ on B: two columns for each.
    """

    bilinear = True
    formulas = {"forward": "Y = A B", "mjp": "G Bᵀ, Aᵀ G", "residual": "Σᵣₖ σᵣ (Aᵀ uᵣ)ₖ (B vᵣ)ₖ"}

    def output_shape(self, *shapes: Shape) -> Shape:
        if len(shapes) != 2:
            raise ValueError(f"expected two inputs, got {len(shapes)}")
        a, b = shapes
        if min(len(a), len(b)) < 2 or a[:-2] != b[:-2] or a[-1] != b[-2]:
            raise ValueError(f"expected inputs of shapes (…, T, K) and (…, K, S), got {a} and {b}")
        return (*a[:-1], b[-1])

    def forward(self, a: Array, b: Array) -> tuple[Array, Any]:  # type: ignore[override]
        return a @ b, (a, b)

    def jmp(self, saved: Any, of_a: Array, of_b: Array) -> Array:  # type: ignore[override]
        a, b = saved
        return of_a @ b + a @ of_b

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, Array]:  # type: ignore[override]
        a, b = saved
        return mat @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ mat

    def residual_width(self, *shapes: Shape) -> int:
        (*lead, t, k), s = shapes[0], shapes[1][-1]
        return 2 * prod(lead) * min(t, s) * k

    def residual(self, saved: Any, grad: Array) -> Factored:
        a, b = saved
        matrices = grad.reshape(len(grad), -1, *grad.shape[-2:])
        svd = array_module(grad).linalg.svd(matrices, full_matrices=False)  # [N, L, T, R], [N, L, R], [N, L, R, S]
        return products(prod(svd[1].shape[1:]) * a.shape[-1], partial(self.pairs, svd, a, b), grad, saved)

    def pairs(self, svd: Any, a: Array, b: Array, index: Array) -> tuple[Array, Array]:
        """uᵣ e_kᵀ on A and σᵣ e_k vᵣᵀ on B, for numbers of (matrix, r, k): (V, N, *shapes of A and B)."""
        u, sigma, vt = svd
        xp, (n, lead, rank), k = array_module(sigma), sigma.shape, a.shape[-1]
        at, r, j, each = index // (rank * k), index // k % rank, index % k, xp.arange(len(index))
        on_a = xp.zeros((len(index), n, lead, u.shape[2], k), dtype=sigma.dtype)
        on_b = xp.zeros((len(index), n, lead, k, vt.shape[3]), dtype=sigma.dtype)
        on_a[each, :, at, :, j] = u[:, at, :, r]
        on_b[each, :, at, j, :] = xp.moveaxis(sigma[:, at, r, None] * vt[:, at, r], 1, 0)
        return on_a.reshape(len(index), *a.shape), on_b.reshape(len(index), *b.shape)


def _check_several(shapes: tuple[Shape, ...]) -> None:
    if len(shapes) < 2:
        raise ValueError(f"expected at least two inputs, got {len(shapes)}")


def _equal(shapes: tuple[Shape, ...]) -> Shape:
    _check_several(shapes)
    if len(set(shapes)) != 1:
        raise ValueError(f"expected inputs of equal shape, got {' and '.join(map(str, shapes))}")
    return shapes[0]
