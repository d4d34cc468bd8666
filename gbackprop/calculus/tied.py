"""The Jacobian of a parameter that several layers use, or one layer at several places: J = Σₖ Jₖ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from operator import add

from gbackprop.array import Array, array_module
from gbackprop.base.checks import is_original
from gbackprop.calculus.jacobian import Bias, Outer, ParameterJacobian
from gbackprop.calculus.own_block import OwnBlock
from gbackprop.calculus.views import Swapped


class Direct(ParameterJacobian):
    """The Jacobian of a parameter in itself: its columns have the parameter's shape."""

    def per_sample(self, mat: Array) -> Array:
        return mat


class Tied(OwnBlock):
    """The sum of the Jacobians of all uses: Jᵀ g[v, n] = Σₖ Jₖᵀ gₖ[v, n]. The columns are those of all uses, flat.

    Its only Kronecker factor is the whole block, B, as each of its uses has it: a parameter with a factor A is `Outer`.
    """

    def __init__(self, jacobians: Sequence[ParameterJacobian], shapes: Sequence[tuple[int, ...]]) -> None:
        self.jacobians, self.shapes = jacobians, shapes

    def per_sample(self, mat: Array) -> Array:
        return reduce(add, self._each(mat))

    def _each(self, mat: Array) -> Iterator[Array]:
        """Yield Jₖᵀ g of each use, of which there need be one at a time."""
        start = 0
        for jacobian, shape in zip(self.jacobians, self.shapes, strict=True):
            part = mat[:, :, start : start + prod(shape)].reshape(*mat.shape[:2], *shape)
            start += prod(shape)
            yield jacobian.per_sample(part)


def tied(jacobians: Sequence[ParameterJacobian], mats: Sequence[Array]) -> tuple[ParameterJacobian, Array]:
    """Return the Jacobian of all uses of a parameter, and the columns at all of them.

    A weight or bias that is applied at T positions in each use is one that is applied at the positions of all uses:
    T becomes their sum. Its Kronecker factors follow from that.
    """
    xp = array_module(mats[0])
    first, kinds = jacobians[0], dict.fromkeys(map(type, jacobians))
    known = all(map(is_original, jacobians))
    if 1 < len(kinds) < len(jacobians):  # those of each kind first
        pairs = [[use for use in zip(jacobians, mats, strict=True) if type(use[0]) is kind] for kind in kinds]
        jacobians, mats = zip(*[tied(*zip(*each, strict=True)) for each in pairs], strict=True)
    if known and list(kinds) == [Direct]:
        return first, sum(mats[1:], mats[0])
    if known and list(kinds) == [Bias]:
        rows = [jacobian.rows(mat) for jacobian, mat in zip(jacobians, mats, strict=True)]  # type: ignore[attr-defined]
        return Bias(_rows_of_all), xp.concatenate(rows, axis=2)
    if known and list(kinds) == [Swapped]:
        matrix, mat = tied([jacobian.matrix for jacobian in jacobians], mats)  # type: ignore[attr-defined]
        return Swapped(matrix), mat  # type: ignore[arg-type]
    if known and isinstance(first, Outer) and list(kinds) == [Outer]:
        rows = [jacobian.bias.rows(mat) for jacobian, mat in zip(jacobians, mats, strict=True)]  # type: ignore[attr-defined]

        def inputs() -> Array:
            return xp.concatenate([jacobian.u for jacobian in jacobians], axis=2)  # type: ignore[attr-defined]

        joined = Outer(inputs, Bias(_rows_of_all), first.to_parameter, first.from_parameter, first.groups)
        return joined, xp.concatenate(rows, axis=2)
    flat = [mat.reshape(*mat.shape[:2], -1) for mat in mats]
    return Tied(jacobians, [mat.shape[2:] for mat in mats]), xp.concatenate(flat, axis=2)


def _rows_of_all(mat: Array) -> Array:
    """``[V, N, T, O]``, as it is."""
    return mat
