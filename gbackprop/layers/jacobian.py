"""Jacobians of a layer's output in its parameters, bound to one forward pass.

`per_sample` is the definition; every other method is a reduction of it. A layer whose Jacobian has a structure gives
faster reductions (`Outer`, in outer.py); one that has only `per_sample` still gets every quantity, the same number,
slower.

In formulas, J is the Jacobian of one sample's output in the parameter, g[v, n] a column at the output with sign s[v, n]
(1 where `sign` is None), and p the parameter's shape.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.errors import UnsupportedError

KRONECKER = ("kronecker", "average_kronecker", "input_square")
"""The reductions that not every parameter has."""


def congruence(pull: Callable[[Array], Array], matrix: Array, batch: int, shape: tuple[int, ...]) -> Array:
    """Jₙᵀ Ḡ Jₙ for each sample, from the map v ↦ Jₙᵀ v alone: once for the columns of Ḡ, once for its rows.

    Parameters
    ----------
    pull : callable
        ``[V, N, *out] -> [V, N, *in]``.
    matrix : ndarray, shape (D, D)
        Ḡ, with D = ∏ out.
    batch : int
        N.
    shape : tuple of int
        out.

    Returns
    -------
    ndarray, shape (D', N, D')
    """
    d = matrix.shape[0]
    columns = matrix.reshape(d, 1, *shape)
    if batch > 1:
        columns = array_module(matrix).broadcast_to(columns, (d, batch, *shape))
    half = pull(columns)
    inner = prod(half.shape[2:])
    rows = half.reshape(d, batch, inner).transpose(2, 1, 0).reshape(inner, batch, *shape)
    return pull(rows).reshape(inner, batch, inner)


def weigh(mat: Array, sign: Array | None) -> Array:
    """``sign[v, n] * mat[v, n]``."""
    return mat if sign is None else mat * sign.reshape(sign.shape + (1,) * (mat.ndim - 2))


class ParameterJacobian:
    """The definition, and each reduction by means of it.

    The methods take ``mat`` of shape (V, N, *out) and ``sign`` of shape (V, N) or None.
    """

    def per_sample(self, mat: Array) -> Array:
        """Jᵀ g[v, n], shape (V, N, *p)."""
        raise NotImplementedError

    def batch(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ s Jᵀ g[v, n], shape (N, *p)."""
        return weigh(self.per_sample(mat), sign).sum(0)

    def sum(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥₙ s Jᵀ g[v, n], shape (*p)."""
        return self.batch(mat, sign).sum(0)

    def batch_square(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ s (Jᵀ g[v, n])², elementwise, shape (N, *p)."""
        return weigh(self.per_sample(mat) ** 2, sign).sum(0)

    def square(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥₙ s (Jᵀ g[v, n])², elementwise, shape (*p)."""
        return self.batch_square(mat, sign).sum(0)

    def moments(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥₙ s Jᵀ g[v, n] and Σᵥₙ s (Jᵀ g[v, n])², shape (2, *p), added up in float64.

        A variance is a small difference of these two; sums in float32 would leave few digits of it, or none.
        """
        each = self.per_sample(mat).astype(np.float64)
        return array_module(mat).stack([weigh(each, sign).sum((0, 1)), weigh(each**2, sign).sum((0, 1))])

    def square_norm(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ s ‖Jᵀ g[v, n]‖², shape (N)."""
        square = self.batch_square(mat, sign)
        return square.reshape(square.shape[0], -1).sum(1)

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        """B = Σᵥₙ s b bᵀ with b = Jᵀ g[v, n] of the bias, shape (O, O)."""
        raise UnsupportedError(f"{type(self).__name__} has no Kronecker factors")

    def average_kronecker(self, average: Array, shape: tuple[int, ...]) -> Array:
        """B of KFRA from the averaged curvature Ḡ (D, D) at an output of feature shape `shape`, shape (O, O)."""
        raise UnsupportedError(f"{type(self).__name__} has no Kronecker factors")

    def input_square(self) -> Array | None:
        """Σₙₜ u uᵀ over samples and shared positions, shape (I, I), or None if there is no such factor."""
        raise UnsupportedError(f"{type(self).__name__} has no Kronecker factors")


class Bias(ParameterJacobian):
    """A bias added at every shared position: Jᵀ g[v, n] = Σₜ g[v, n, t].

    Parameters
    ----------
    rows : callable
        Sees a column ``[V, N, *out]`` as ``[V, N, T, O]``.
    """

    def __init__(self, rows: Callable[[Array], Array]) -> None:
        self.rows = rows
        self._known: list[tuple[Array, Array]] = []  # every reduction needs the same few sums: columns, and theirs

    def per_sample(self, mat: Array) -> Array:
        for known, total in self._known:
            if known is mat:
                return total
        rows = self.rows(mat)
        ones = array_module(mat).ones(rows.shape[2], dtype=mat.dtype)
        total = rows[:, :, 0] if rows.shape[2] == 1 else ones @ rows  # faster than a sum over a middle axis
        self._known.append((mat, total))
        return total

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        b = self.per_sample(mat)
        o = b.shape[-1]
        return weigh(b, sign).reshape(-1, o).T @ b.reshape(-1, o)

    def average_kronecker(self, average: Array, shape: tuple[int, ...]) -> Array:
        # This Jacobian is the same for every sample, so one stands for all.
        return congruence(self.per_sample, average, 1, shape)[:, 0]

    def input_square(self) -> Array | None:
        return None
