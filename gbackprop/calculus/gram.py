"""The Gram matrix of columns: inner products of the gradients that they give, over all pairs of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.jacobian import Reduction


@dataclass(frozen=True)
class Pairs(Reduction):
    """A reduction over pairs of samples and of columns: it takes the whole batch and all columns at once.

    The result is a matrix of (N V)² entries for each parameter, which `size` does not count.
    """

    def __reduce__(self) -> Any:
        return _gram, ()


def _products(each: Array, sign: Array | None) -> Array:
    if sign is not None:
        raise UnsupportedError("Gram matrices are of columns without signs")
    rows = each.swapaxes(0, 1).reshape(each.shape[0] * each.shape[1], -1)
    return rows @ rows.T


GRAM = Pairs("gram", "⟨Jᵀ g[v, n], Jᵀ g[w, m]⟩, row n V + v, column m V + w", lambda p: 0, False, _products)
"""The products of all Jᵀ g, shape (N V, N V); rows and columns are in the order of samples, then of columns."""


def _gram() -> Pairs:
    return GRAM
