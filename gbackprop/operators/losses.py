"""The Hessian of a loss in the network's outputs, times columns: ∇²ℓₙ z[k, n] for each sample, without R."""

from __future__ import annotations

from gbackprop.array import Array, array_module
from gbackprop.engine.registry import Forms, find
from gbackprop.losses.base import Loss

ROOT_BYTES = 2**26
"""Bytes of the root of the Hessian that `by_root` forms at a time."""


def hessian_product(loss: Loss, output: Array, target: Array, mat: Array, forms: Forms) -> Array:
    """∇²ℓₙ z[k, n]: ``[K, N, *out] -> [K, N, *out]``."""
    row = find(forms, loss)
    return (row.hessian_product if row else by_root)(loss, output, target, mat)


def by_root(loss: Loss, output: Array, target: Array, mat: Array) -> Array:
    """Sₙ Sₙᵀ z[k, n], by the definition of S."""
    count, step = loss.columns(output.shape[1:]), max(1, ROOT_BYTES // max(1, output.nbytes))
    roots = (loss.hessian_sqrt(output, target, slice(start, start + step)) for start in range(0, count, step))
    return sum((through(root, mat) for root in roots), array_module(mat).zeros_like(mat))


def through(columns: Array, mat: Array) -> Array:
    """Σᵥ s[v, n] s[v, n]ᵀ z[k, n], of columns s ``[V, N, *out]``."""
    xp, n = array_module(mat), mat.shape[1]
    s = xp.moveaxis(columns.reshape(len(columns), n, -1), 1, 0)  # [N, V, C]
    z = xp.moveaxis(mat.reshape(len(mat), n, -1), 1, 0)  # [N, K, C]
    return xp.moveaxis(z @ s.swapaxes(1, 2) @ s, 0, 1).reshape(mat.shape)
