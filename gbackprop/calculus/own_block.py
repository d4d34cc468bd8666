"""Jacobians of parameters that multiply or shift numbers one by one: their Kronecker factor B is the whole block."""

from __future__ import annotations

from gbackprop.array import Array
from gbackprop.calculus.jacobian import ParameterJacobian, weigh


class OwnBlock(ParameterJacobian):
    """A Jacobian whose B is Σ b bᵀ of the parameter's own columns, as for a bias, and which has no A.

    There is no `average_kronecker`: it differs from sample to sample, and KFRA has nothing but Ḡ, a mean over samples.
    """

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        each = self.per_sample(mat)
        b = each.reshape(*each.shape[:2], -1)
        p = b.shape[-1]
        return weigh(b, sign).reshape(-1, p).T @ b.reshape(-1, p)

    def input_square(self) -> Array | None:
        return None
