"""Softmax, also causal, and LogSoftmax: each set of entries along an axis is mapped by itself."""

from __future__ import annotations

from math import prod
from numbers import Integral
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.calculus.residual import Factored, FactoredLayer, Pieces, units


class _AlongAxis(FactoredLayer):
    """Base class: a set is all entries along axis `dim` at one place of the other axes."""

    broadcasts = True
    shown = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        if dim is None:
            raise ValueError("dim: expected an axis after the batch axis, such as 1 or -1, got None: give it")
        if isinstance(dim, bool) or not isinstance(dim, Integral) or dim == 0:
            raise ValueError(f"dim: expected an axis after the batch axis, got {dim!r}")
        self.dim: int = int(dim)

    def output_shape(self, shape: Shape) -> Shape:
        dims = len(shape) + 1
        if not 1 <= (self.dim + dims if self.dim < 0 else self.dim) < dims:
            raise ValueError(f"expected features with axis {self.dim}, counted with the batch as axis 0, got {shape}")
        return shape

    def _axis(self, x: Array) -> int:
        """Return the axis of ``[N, *in]`` counted from the end, as it is in ``[V, N, *in]`` and in ``[*in]``, too."""
        return self.dim if self.dim < 0 else self.dim - x.ndim

    def residual_width(self, *shapes: Shape) -> int:
        return prod(*shapes)

    def strength(self, saved: Any, grad: Array) -> Array:
        """c in r = Σₖ c[k] (e_k − p) (e_k − p)ᵀ of each set, for p = softmax(x): ``[N, *in]``."""
        raise NotImplementedError

    def residual(self, saved: Any, grad: Array) -> Factored:
        strength = self.strength(saved, grad)
        return Factored(prod(grad.shape[1:]), lambda span: self.columns(saved, strength, span))

    def columns(self, p: Array, strength: Array, span: slice) -> Pieces:
        """√|c[k]| (e_k − p) in the set of k, zero in the others, with the sign of c[k]."""
        xp, n, shape = array_module(p), len(strength), p.shape[1:]
        k = xp.arange(prod(shape))[span]
        unit, each = units(k, n, shape, p.dtype), strength.reshape(n, -1)[:, k].T
        root = xp.sqrt(xp.abs(each)).reshape(len(k), n, *(1,) * len(shape))
        return (root * (unit - p * unit.sum(self._axis(p), keepdims=True)),), xp.sign(each)


class Softmax(_AlongAxis):
    """y = eˣ / Σ eˣ, the sum along axis `dim`.

    Parameters
    ----------
    dim : int
        An axis as torch counts them, with the batch as axis 0, which it may not be.

    Raises
    ------
    ValueError
        If it is None, as in torch by default, or no axis after the batch axis.
    """

    formulas = {
        "forward": "y = eˣ / Σ eˣ",
        "mjp": "y ∘ (g − yᵀg)",
        "residual": "diag(v) − v yᵀ − y vᵀ, v = y ∘ (g − yᵀg)",
    }

    def forward(self, x: Array) -> tuple[Array, Any]:
        e = array_module(x).exp(x - x.real.max(self._axis(x), keepdims=True))
        y = e / e.sum(self._axis(x), keepdims=True)
        return y, y

    def jmp(self, saved: Any, mat: Array) -> Array:
        return saved * (mat - (saved * mat).sum(self._axis(saved), keepdims=True))

    mjp = jmp  # diag(y) − y yᵀ is symmetric

    def strength(self, saved: Any, grad: Array) -> Array:
        return self.vjp(saved, grad)


class CausalSoftmax(Softmax):
    """Softmax of each row of square matrices (…, T, T) over the entries up to the diagonal; the others are 0.

    Row t has the scores of position t for all positions: it takes those up to its own.
    """

    formulas = {**Softmax.formulas, "forward": "y[t, s] = eˣ / Σ eˣ over s ≤ t, 0 for s > t"}
    shown = []

    def __init__(self) -> None:
        super().__init__(-1)

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(f"expected square matrices (…, T, T), got {shape}")
        return shape

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp = array_module(x)
        allowed = xp.tri(x.shape[-1], dtype=bool)
        largest = xp.where(allowed, x.real, -xp.inf).max(-1, keepdims=True)
        e = xp.where(allowed, xp.exp(xp.where(allowed, x - largest, 0)), 0)
        y = e / e.sum(-1, keepdims=True)
        return y, y


class LogSoftmax(_AlongAxis):
    """y = x − log Σ eˣ, the sum along axis `dim`.

    Parameters
    ----------
    dim : int
        An axis as torch counts them, with the batch as axis 0, which it may not be.

    Raises
    ------
    ValueError
        If it is None, as in torch by default, or no axis after the batch axis.
    """

    formulas = {
        "forward": "y = x − log Σ eˣ",
        "mjp": "g − p Σ g, p = eʸ",
        "residual": "−(Σ g) (diag(p) − p pᵀ)",
    }

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp, axis = array_module(x), self._axis(x)
        shifted = x - x.real.max(axis, keepdims=True)
        y = shifted - xp.log(xp.exp(shifted).sum(axis, keepdims=True))
        return y, xp.exp(y)

    def jmp(self, saved: Any, mat: Array) -> Array:
        return mat - (saved * mat).sum(self._axis(saved), keepdims=True)

    def mjp(self, saved: Any, mat: Array) -> Array:
        return mat - saved * mat.sum(self._axis(saved), keepdims=True)

    def strength(self, saved: Any, grad: Array) -> Array:
        return -saved * grad.sum(self._axis(saved), keepdims=True)
