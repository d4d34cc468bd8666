"""Softmax and LogSoftmax along an axis: each set of entries along it is mapped by itself, with a dense Jacobian."""

from __future__ import annotations

from math import prod
from numbers import Integral
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.layers.base import Layer, Shape


class _AlongAxis(Layer):
    """Base class: a set is all entries along axis `dim` at one place of the other axes."""

    curvature = "dense"

    def __init__(self, dim: int | None = None) -> None:
        if dim is None:
            raise ValueError("dim: expected an axis after the batch axis, such as 1 or -1, got None: give it")
        if isinstance(dim, bool) or not isinstance(dim, Integral) or dim == 0:
            raise ValueError(f"dim: expected an axis after the batch axis, got {dim!r}")
        self.dim: int = int(dim)

    def describe(self) -> str:
        return f"dim={self.dim}"

    def output_shape(self, shape: Shape) -> Shape:
        dims = len(shape) + 1
        if not 1 <= (self.dim + dims if self.dim < 0 else self.dim) < dims:
            raise ValueError(f"expected features with axis {self.dim}, counted with the batch as axis 0, got {shape}")
        return shape

    def _axis(self, x: Array) -> int:
        """The axis of ``[N, *in]`` counted from the end, as it is in ``[V, N, *in]``, too."""
        return self.dim if self.dim < 0 else self.dim - x.ndim

    def _sets(self, x: Array) -> Array:
        """View ``[N, *in]`` as sets S of K entries: ``[N, S, K]``."""
        moved = array_module(x).moveaxis(x, self._axis(x), -1)
        return moved.reshape(len(x), -1, moved.shape[-1])

    def _dense(self, blocks: Array, like: Array) -> Array:
        """Matrices ``[N, D, D]`` with a block ``[N, S, K, K]`` for each set of ``[N, *in]``, zero between sets."""
        xp, (n, s, k, _) = array_module(blocks), blocks.shape
        apart = blocks[:, :, :, None] * xp.eye(s, dtype=blocks.real.dtype)[:, None, :, None]  # [N, S, K, S, K]
        axis, features = self._axis(like), like.shape[1:]
        moved = (*features[:axis], *features[axis:][1:], k)  # as `_sets` has them
        both = xp.moveaxis(apart.reshape(n, *moved, *moved), -1, axis)
        return xp.moveaxis(both, len(moved), axis - len(moved)).reshape(n, prod(features), prod(features))


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

    def residual(self, saved: Any, grad: Array) -> Array:
        y, v = self._sets(saved), self._sets(self.vjp(saved, grad))
        outer = v[..., :, None] * y[..., None, :]
        return self._dense(_diagonal(v) - outer - outer.swapaxes(-1, -2), saved)


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

    def residual(self, saved: Any, grad: Array) -> Array:
        p, total = self._sets(saved), self._sets(grad).sum(-1)
        blocks = _diagonal(p) - p[..., :, None] * p[..., None, :]
        return self._dense(-total[..., None, None] * blocks, saved)


def _diagonal(rows: Array) -> Array:
    """diag(v) of each row v: ``[*lead, K] -> [*lead, K, K]``."""
    return rows[..., None] * array_module(rows).eye(rows.shape[-1], dtype=rows.real.dtype)
