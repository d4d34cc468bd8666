"""The columns of a parameter's block, as what they are made of: G = Σᵥₙ vec(Jᵀ g) vec(Jᵀ g)ᵀ.

Of a weight applied at T positions Jᵀ g[v, n] is the matrix Σₜ g[v, n, t] u[n, t]ᵀ: g and u are stored, which are
smaller than the matrices where N V T O + N T I < N V O I. What is quadratic in G, such as ‖G‖² = Σ ⟨Jᵀ g, Jᵀ g'⟩² over
all pairs of columns, follows without G.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.jacobian import ParameterJacobian, Reduction
from gbackprop.calculus.views import Seen, joint, matrix

ENTRIES = 2**22
"""The number of entries of columns [O, I] that are formed at once."""


@dataclass(frozen=True)
class Some:
    """A few columns: g (k, G, T, O) and u (k, G, T, I)."""

    g: Array
    u: Array

    @property
    def matrices(self) -> Array:
        """Σₜ g uᵀ, shape (k, G, O, I)."""
        if self.g.shape[2] == 1:
            return self.g[:, :, 0, :, None] * self.u[:, :, 0, None, :]
        return self.g.swapaxes(2, 3) @ self.u


@dataclass(frozen=True)
class StoredColumns:
    """The columns of a parameter's block, in parts; parts are added where blocks of samples or columns are."""

    parts: tuple[tuple[Array, Array], ...]
    """g (V, N, G, T, O) and u (N, G, T, I); a parameter that is no weight has u = 1 and its columns as g."""

    axes: tuple[int, int] | None = None
    """C and ∏ kernel of a weight whose outputs lie between its inputs, where I is both."""

    unit: Any = 1.0
    """A divisor of the columns as they are formed."""

    def scaled(self) -> StoredColumns:
        """Return the columns in a unit of their size, a power of two, in which squares of products do not underflow."""
        xp = array_module(self.parts[0][0])
        sides = (xp.stack([abs(each).max() for each in side]).max() for side in zip(*self.parts, strict=True))
        size = next(sides).astype("float64") * next(sides)
        return replace(self, unit=xp.exp2(xp.floor(xp.log2(xp.where(size > 0, xp.maximum(size, 1e-76), 1.0)))))

    def __add__(self, other: StoredColumns) -> StoredColumns:
        return replace(self, parts=self.parts + other.parts)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The number of columns, and G, O and I."""
        (g, u), counts = self.parts[0], [each.shape[0] * each.shape[1] for each, _ in self.parts]
        return sum(counts), g.shape[2], g.shape[4], u.shape[3]

    def blocks(self, entries: int = ENTRIES) -> Iterator[Some]:
        """Yield all columns in float64, a few at a time, in a fixed order."""
        _, groups, o, i = self.shape
        for g, u in self.parts:
            v, n, _, t, _ = g.shape
            step = max(1, entries // (groups * max(o * i, t * (o + i))))
            flat, xp = g.reshape(v * n, groups, t, o), array_module(g)
            for start in range(0, v * n, step):
                some = flat[start : start + step].astype("float64")
                yield Some(some / self.unit, u[(start + xp.arange(len(some))) % n].astype("float64"))

    def chosen(self, which: Array) -> StoredColumns:
        """Return some of the columns by their numbers, in one part."""
        xp, g, u, start = array_module(self.parts[0][0]), [], [], 0
        for each, inputs in self.parts:
            v, n = each.shape[:2]
            mine = which[(which >= start) & (which < start + v * n)] - start
            at = xp.asarray(mine)
            g.append(each.reshape(v * n, *each.shape[2:])[at])
            u.append(inputs[at % n])
            start += v * n
        return replace(self, parts=((xp.concatenate(g)[None], xp.concatenate(u)),))


def grams(one: Some, other: Some) -> Array:
    """⟨Jᵀ g, Jᵀ g'⟩ of pairs of columns, shape (k, k'); with one position (g · g') (u · u'), without the matrices."""
    if one.g.shape[2] == 1:
        gg, uu = (_products(a[:, :, 0], b[:, :, 0]) for a, b in ((one.g, other.g), (one.u, other.u)))
        return (gg * uu).sum(0)
    first, second = (some.matrices.reshape(len(some.g), -1) for some in (one, other))
    return first @ second.T


def _products(a: Array, b: Array) -> Array:
    """``[k, G, I], [k', G, I] -> [G, k, k']``."""
    return a.swapaxes(0, 1) @ b.transpose(1, 2, 0)


@dataclass(frozen=True)
class Storing(Reduction):
    """The reduction that stores the columns; if `both`, of weight and bias as one matrix, as in `joint`."""

    both: bool = False

    def __reduce__(self) -> Any:
        return _stored, (self.both,)

    def define(self, jacobian: ParameterJacobian, *arriving: Any) -> StoredColumns:
        """Return the columns of a parameter, as copies."""
        mat, sign = arriving
        if sign is not None:
            raise UnsupportedError("columns with signs are not stored")
        xp, outer = array_module(mat), matrix(joint(jacobian) if self.both else jacobian)
        if outer is None:
            g = jacobian.per_sample(mat).reshape(*mat.shape[:2], 1, 1, -1)
            return StoredColumns(((g.copy(), xp.ones((g.shape[1], 1, 1, 1), dtype=g.dtype)),))
        g, u = xp.moveaxis(outer.split(mat), 0, 2), xp.moveaxis(outer.u, 0, 1)  # [V, N, G, T, O], [N, G, T, I]
        return StoredColumns(((g.copy(), u.copy()),), outer.axes if isinstance(outer, Seen) else None)


def _no_formula(each: Array, sign: Array | None) -> Any:
    raise NotImplementedError("columns are stored as what they are made of")


STORED = {
    both: Storing("columns", "Jᵀ g, as g and u", lambda p: 0, formula=_no_formula, both=both) for both in (False, True)
}
"""The two reductions that store columns, by `both`."""


def _stored(both: bool) -> Storing:
    return STORED[both]
