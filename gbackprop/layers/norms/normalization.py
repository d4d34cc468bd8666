"""The base class of normalizations over the entries of one sample.

The entries of a sample are cut into sets of K entries. In each set

    y = γ ∘ x̂ + β,   x̂ = z / σ,   z = P x,   σ² = ‖z‖² / K + ε

with P = 1 − 11ᵀ/K, which subtracts the mean; RMSNorm has P = 1. For h = γ ∘ g and m = hᵀ x̂ / K,

    Jᵀ g = (P h − m x̂) / σ   and   r = −(m P + (a x̂ᵀ + x̂ aᵀ) / K) / σ²,   a = P h − 3/2 m x̂

so the residual is Σₖ of (P eₖ) (P eₖ)ᵀ and one product: K + 2 columns for each set, without an eigendecomposition.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.base.checks import check_flag, number
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.mixed import MixedLayer
from gbackprop.calculus.own_block import OwnBlock
from gbackprop.calculus.residual import Factored, FactoredLayer, products, together, units
from gbackprop.calculus.sums import sum_over


class Norm(FactoredLayer, MixedLayer):
    """A normalization over sets of a sample's entries, then γ and β for each entry or channel."""

    centered = True
    fixed = frozenset({"affine"})
    formulas = {
        "forward": "y = γ x̂ + β, x̂ = z/σ, z = x − mean, σ² = mean z² + ε",
        "mjp": "(P h − m x̂)/σ, h = γ g, m = mean(h x̂), P h = h − mean h",
        "residual": "−(m P + (a x̂ᵀ + x̂ aᵀ)/K)/σ², a = P h − 3/2 m x̂",
    }

    eps: float | None

    def __init__(self, eps: float, affine: bool, bias: bool, of: str = "affine") -> None:
        self.eps = number("eps", eps, least=0)
        self.affine, has_bias = check_flag(of, affine), check_flag("bias", bias)
        self.bias = self.affine and has_bias

    def _eps(self) -> list[str]:
        """Return eps as it appears in `describe`, if it is not the default."""
        return [] if self.eps == 1e-5 else [f"eps={self.eps}"]

    def parameter_shape(self) -> Shape:
        """Return the shape of γ and β."""
        raise NotImplementedError

    def sets(self, shape: Shape) -> tuple[int, int]:
        """Return the number of sets of a sample of feature shape `shape`, and K."""
        raise NotImplementedError

    def rows(self, mat: Array) -> Array:
        """Return the view with the entries of γ as its last axis: ``[V, N, *features] -> [V, N, T, P]``."""
        raise NotImplementedError

    def spread(self, parameter: Array, dims: int) -> Array:
        """Return a parameter in a shape that broadcasts against `dims` feature axes."""
        raise NotImplementedError

    def parameter_shapes(self) -> dict[str, Shape]:
        names = [name for name, given in (("weight", self.affine), ("bias", self.bias)) if given]
        return dict.fromkeys(names, self.parameter_shape())

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        values = {"weight": np.ones, "bias": np.zeros}
        return {name: values[name](shape) for name, shape in self.parameter_shapes().items()}

    # ------------------------------------------------------------------------------------------------------ function

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp, n, (sets, size) = array_module(x), len(x), self.sets(x.shape[1:])
        z = self._projected(x.reshape(n, sets, size))
        eps = float(np.finfo(x.real.dtype).eps) if self.eps is None else self.eps
        sigma = xp.sqrt((z * z).mean(2, keepdims=True) + eps)
        normal = (z / sigma).reshape(x.shape)
        y = normal
        if self.affine:
            y = y * self.spread(self.parameters["weight"], x.ndim - 1)
        if self.bias:
            y = y + self.spread(self.parameters["bias"], x.ndim - 1)
        return y, (normal, sigma)

    def _projected(self, x: Array) -> Array:
        """P x, of each set along the last axis."""
        return x - x.mean(-1, keepdims=True) if self.centered else x

    def _weighted(self, mat: Array) -> Array:
        """h = γ ∘ g."""
        return mat * self.spread(self.parameters["weight"], mat.ndim - 2) if self.affine else mat

    # --------------------------------------------------------------------------------------------------- derivatives

    def jmp(self, saved: Any, mat: Array) -> Array:
        back = self._normal_mjp(saved, mat)  # the Jacobian of x̂ is symmetric
        return self._weighted(back)

    def mjp(self, saved: Any, mat: Array) -> Array:
        return self._normal_mjp(saved, self._weighted(mat))

    def _normal_mjp(self, saved: Any, h: Array) -> Array:
        """(P h − m x̂) / σ."""
        (normal, sigma), shape = saved, h.shape
        sets, size = self.sets(shape[2:])
        h, normal = h.reshape(*shape[:2], sets, size), normal.reshape(shape[1], sets, size)
        m = (h * normal).mean(3, keepdims=True)
        return ((self._projected(h) - m * normal) / sigma).reshape(shape)

    def residual_width(self, *shapes: Shape) -> int:
        (shape,) = shapes
        sets, _ = self.sets(shape)
        return prod(shape) + 2 * sets

    def residual(self, saved: Any, grad: Array) -> Factored:
        strength, a, normal = self.pieces(saved, grad)
        xp, shape, (n, sets, size) = array_module(grad), grad.shape[1:], a.shape

        def of_projection(k: Array) -> tuple[Array, Array]:
            of_set = strength[:, k // size].T  # [V, N]
            unit = self._projected(units(k, n, (sets, size), grad.dtype))
            root = xp.sqrt(xp.abs(of_set))[:, :, None, None]
            return (root * unit).reshape(len(k), n, *shape), xp.sign(of_set)

        def of_sets(k: Array) -> tuple[Array, Array]:
            one = units(k, n, (sets, 1), grad.dtype)
            return (one * a).reshape(len(k), n, *shape), (one * normal).reshape(len(k), n, *shape)

        return together(prod(shape), of_projection, products(sets, of_sets, grad, None), grad)

    def pieces(self, saved: Any, grad: Array) -> tuple[Array, Array, Array]:
        """−m/σ² (N, L), −a/(K σ²) and x̂ (N, L, K): r = −m/σ² P + a bᵀ + b aᵀ of the latter two, in each of L sets."""
        (normal, sigma), (n, sets, _) = saved, saved[1].shape
        h, normal = self._weighted(grad[None])[0].reshape(n, sets, -1), normal.reshape(n, sets, -1)
        m = (h * normal).mean(2, keepdims=True)
        a = self._projected(h) - 1.5 * m * normal
        return -(m / sigma**2)[..., 0], -a / (h.shape[2] * sigma**2), normal

    def parameter_jacobians(self, saved: Any) -> dict[str, ParameterJacobian]:
        normal, shape = saved[0], self.parameter_shape()
        found: dict[str, ParameterJacobian] = {}
        if self.affine:
            found["weight"] = Entrywise(self.rows, shape, self.rows(normal[None])[0])
        if self.bias:
            found["bias"] = Entrywise(self.rows, shape)
        return found

    def mixed_width(self, key: str, shape: Shape) -> int:
        return 0 if key == "bias" else 2 * prod(self.parameter_shape())

    def mixed_residual(self, saved: Any, key: str, grad: Array, shape: Shape) -> Factored:
        """Factor Σ_c of the products of e_c on γ and J_x̂ᵀ (g at the entries of γ_c) on x."""
        parameter, n = self.parameter_shape(), len(grad)

        def pairs(k: Array) -> tuple[Array, Array]:
            on_weight = units(k, n, parameter, grad.dtype)
            marked = grad * self.spread(on_weight, grad.ndim - 1)
            return on_weight, self._normal_mjp(saved, marked)

        normal, sigma = saved
        centred = (normal.reshape(*sigma.shape[:2], -1) * sigma).reshape(normal.shape)
        return products(prod(parameter), pairs, grad, (self.parameters[key], centred))


class Entrywise(OwnBlock):
    """The Jacobian of γ in y[t] = γ ∘ u[t], or of β in y[t] = x[t] + β, where u is 1: Jᵀ g = Σₜ g[t] ∘ u[t].

    `rows` returns the view ``[V, N, T, P]`` of columns; u is (N, T, P). B is the whole block, and there is no A.
    """

    def __init__(self, rows: Callable[[Array], Array], shape: Shape, u: Array | None = None) -> None:
        self.rows, self.shape, self.u = rows, shape, u

    def per_sample(self, mat: Array) -> Array:
        rows = self.rows(mat)
        each = sum_over(rows if self.u is None else rows * self.u, 2)
        return each.reshape(*mat.shape[:2], *self.shape)
