"""Views of a parameter's Jacobian: the same weight in other coordinates, or at other positions.

A weight applied at T positions, Jᵀ g[v, n] = Σₜ g[v, n, t] u[n, t]ᵀ, stays one of that kind where u and g are changed
by a linear map. A `Viewed` reduction is one of `REDUCTIONS`, taken of such a view: the Kronecker factors of other
conventions, or squares in the basis of eigenvectors. Jacobians without positions (`OwnBlock`) are their own view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import own_methods
from gbackprop.calculus.jacobian import REDUCTIONS, Bias, Outer, ParameterJacobian, Reduction
from gbackprop.calculus.own_block import OwnBlock

View = Callable[[ParameterJacobian], ParameterJacobian]
"""A function from a parameter's Jacobian to another."""

Change = Callable[[Array], Array]

PRODUCT = {"per_sample", "split", "joined"}
"""The methods that give Jᵀ g."""


@dataclass(frozen=True)
class Viewed(Reduction):
    """A reduction of a view of the Jacobian: that of its name in `REDUCTIONS`."""

    view: Any = None
    lacks: Any = None
    """``lacks(leaf, uses)``: the reason why a layer cannot give it; `uses` counts the places of each parameter."""

    @staticmethod
    def of(name: str, view: View, text: str, lacks: Any = None) -> Viewed:
        """Return the reduction of a name, taken of a view, with its formula as text."""
        known = REDUCTIONS[name]
        return Viewed(name, text, known.size, known.per_sample, known.formula, view, lacks)

    def __reduce__(self) -> Any:
        return Viewed.of, (self.name, self.view, self.text, self.lacks)

    def define(self, jacobian: ParameterJacobian, *arriving: Any) -> Any:
        return REDUCTIONS[self.name].define(self.view(jacobian), *arriving)


class Seen(Outer):
    """The Jacobian of a weight (C, O, *kernel), as that of a matrix [O, I]; `axes` are C and ∏ kernel."""

    def __init__(self, inputs: Callable[[], Array], bias: Bias, axes: tuple[int, int], groups: int) -> None:
        super().__init__(inputs, bias, _same, _same, groups)
        self.axes = axes

    def input_square(self) -> Array | None:
        squares = super().input_square()
        assert squares is not None
        return squares.reshape(*squares.shape[:-2], *self.axes, *self.axes)


class Swapped(ParameterJacobian):
    """The Jacobian of a weight [I, O], from that of the matrix [O, I] at the same positions."""

    def __init__(self, matrix: Outer) -> None:
        self.matrix = matrix

    def per_sample(self, mat: Array) -> Array:
        return self.matrix.per_sample(mat).swapaxes(-1, -2)

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        return self.matrix.kronecker(mat, sign)

    def average_kronecker(self, average: Array, shape: tuple[int, ...]) -> Array:
        return self.matrix.average_kronecker(average, shape)

    def input_square(self) -> Array | None:
        return self.outer.input_square()

    @property
    def outer(self) -> Seen:
        """The Jacobian of the matrix, whose inputs are the weight's first axis."""
        return Seen(lambda: self.matrix.u, self.matrix.bias, (self.matrix.u.shape[3], 1), 1)


def outer_of(jacobian: ParameterJacobian) -> Outer | None:
    """Return the Jacobian of a weight with positions as an `Outer`, or None if it is no such weight."""
    found = getattr(jacobian, "outer", jacobian)
    return found if isinstance(found, Outer) and not is_changed(jacobian) else None


def is_changed(jacobian: ParameterJacobian) -> bool:
    """Return whether Jᵀ g is a user's function, so that u and g at positions do not give it."""
    parts = [part for name in ("bias", "matrix") if (part := getattr(jacobian, name, None)) is not None]
    return not PRODUCT.isdisjoint(own_methods(jacobian)) or any(map(is_changed, parts))


def matrix(jacobian: ParameterJacobian) -> Outer | None:
    """Return the Jacobian of a weight as that of the matrix [G O, I] whose columns are numbered as A's rows are."""
    outer = outer_of(jacobian)
    if outer is None or outer.to_parameter is _same:
        return outer

    return Outer(lambda: by_entries(outer, outer.u), outer.bias, _same, _same, outer.groups)


def by_entries(outer: Outer, u: Array) -> Array:
    """Return u ``[…, I]`` with I in the order of the parameter's entries."""
    return outer.to_parameter(u.reshape(1, -1, u.shape[-1])).reshape(u.shape)


def expand(jacobian: ParameterJacobian) -> ParameterJacobian:
    """Take positions as samples, N T of them with one position each."""
    return _changed(jacobian, _separate_inputs, _separate)


def reduce(jacobian: ParameterJacobian) -> ParameterJacobian:
    """Take a sample as one position: u is its mean over positions, g its sum."""
    return _changed(jacobian, _mean_inputs, _summed)


def joint(jacobian: ParameterJacobian) -> ParameterJacobian:
    """Take weight and bias as one matrix [O, I + 1]: u is followed by a 1. A bias is its own view."""
    outer = matrix(jacobian)
    return jacobian if outer is None else _changed(outer, _with_one, _same)


def whole(jacobian: ParameterJacobian) -> ParameterJacobian:
    """Take the batch as one sample, with the positions of all: Jᵀ g[v] = Σₙ Jₙᵀ g[v, n], shape (V, 1, *p)."""
    known = isinstance(jacobian, Outer | Bias) and not isinstance(jacobian, Seen) and not is_changed(jacobian)
    return _changed(jacobian, _positions_of_all, _positions_of_all) if known else Whole(jacobian)


def whole_block(jacobian: ParameterJacobian) -> ParameterJacobian:
    """Take the batch as one sample where B is the whole block of a parameter, and there is no A."""
    return jacobian if outer_of(jacobian) is not None else whole(jacobian)


def rows_of_columns(jacobian: ParameterJacobian) -> ParameterJacobian:
    """Take the batch as one sample, and columns as samples: Jᵀ g[v], shape (1, V, *p)."""
    return ColumnRows(whole(jacobian))


def _positions_of_all(g: Array) -> Array:
    """``[V, N, T, O] -> [V, 1, N T, O]``."""
    v, n, t, o = g.shape
    return g.reshape(v, 1, n * t, o)


class Whole(OwnBlock):
    """The Jacobian of a parameter of another kind, with the batch as one sample; `outer` is as `outer_of` finds it."""

    def __init__(self, jacobian: ParameterJacobian) -> None:
        outer = outer_of(jacobian)
        self.jacobian = jacobian
        self.outer = None if outer is None else _changed(outer, _positions_of_all, _positions_of_all)

    def per_sample(self, mat: Array) -> Array:
        return self.jacobian.per_sample(mat).sum(1, keepdims=True)


class ColumnRows(ParameterJacobian):
    """A Jacobian of one sample, with columns as samples."""

    def __init__(self, jacobian: ParameterJacobian) -> None:
        self.jacobian = jacobian

    def per_sample(self, mat: Array) -> Array:
        return self.jacobian.per_sample(mat).swapaxes(0, 1)


def _separate_inputs(u: Array) -> Array:
    """``[G, N, T, I] -> [G, N T, 1, I]``, divided by √T so that 1/N Σ u uᵀ is a mean over samples and positions."""
    g, n, t, i = u.shape
    return (u if t == 1 else u * t**-0.5).reshape(g, n * t, 1, i)


def _separate(g: Array) -> Array:
    """``[V, N, T, O] -> [V, N T, 1, O]``."""
    v, n, t, o = g.shape
    return g.reshape(v, n * t, 1, o)


def _mean_inputs(u: Array) -> Array:
    """ū = 1/T Σₜ u: ``[G, N, T, I] -> [G, N, 1, I]``."""
    return u.mean(2, keepdims=True)


def _summed(g: Array) -> Array:
    """b = Σₜ g: ``[V, N, T, O] -> [V, N, 1, O]``."""
    return g.sum(2, keepdims=True)


def _with_one(u: Array) -> Array:
    """[u, 1]: ``[G, N, T, I] -> [G, N, T, I + 1]``."""
    xp = array_module(u)
    return xp.concatenate([u, xp.ones((*u.shape[:3], 1), dtype=u.dtype)], axis=3)


class Rotated(ParameterJacobian):
    """The Jacobian of a parameter without positions, in the basis of the columns of `basis` (P, P)."""

    def __init__(self, jacobian: ParameterJacobian, basis: Array) -> None:
        self.jacobian, self.basis = jacobian, basis

    def per_sample(self, mat: Array) -> Array:
        each = self.jacobian.per_sample(mat)
        return each.reshape(*each.shape[:2], -1) @ self.basis


def rotated(jacobian: ParameterJacobian, qa: Array | None, qb: Array) -> ParameterJacobian:
    """Return the Jacobian of the entries in another basis: u becomes QAᵀ u, g becomes QBᵀ g."""
    outer = outer_of(jacobian)
    if qa is None or outer is None:
        return Rotated(jacobian, qb)
    groups = outer.groups
    qa, qb = (q.reshape(groups, *q.shape[-2:]) for q in (qa, qb))
    if outer.to_parameter is not _same:  # the rows of QA are put in the order of u, which has many more
        order = by_entries(outer, array_module(qa).arange(qa.shape[1]))
        qa, numbered = array_module(qa).empty_like(qa), qa
        qa[:, order] = numbered

    def inputs(u: Array) -> Array:
        return (u.reshape(groups, -1, u.shape[3]) @ qa).reshape(u.shape)

    def rows(g: Array) -> Array:
        xp = array_module(g)
        split = xp.moveaxis(g.reshape(*g.shape[:3], groups, -1), 3, 0)
        turned = split.reshape(groups, -1, split.shape[-1]) @ qb
        return xp.moveaxis(turned.reshape(split.shape), 0, 3).reshape(g.shape)

    return _changed(outer, inputs, rows, entries=True)


def _changed(
    jacobian: ParameterJacobian, inputs: Change, rows: Change, entries: bool = False
) -> ParameterJacobian:
    """Return the Jacobian of a weight with other u (G, N, T, I) and other g (V, N, T, O), of a bias with other g.

    One without positions, or with a Jᵀ g of a user's, is returned as it is. `entries` says whether the other u are in
    the order of the parameter's entries.
    """
    outer = outer_of(jacobian)
    if outer is None:
        known = isinstance(jacobian, Bias) and not is_changed(jacobian)
        return Bias(lambda mat: rows(jacobian.rows(mat))) if known else jacobian  # type: ignore[attr-defined]
    bias = Bias(lambda mat: rows(outer.bias.rows(mat)))
    if isinstance(outer, Seen):
        return Seen(lambda: inputs(outer.u), bias, outer.axes, outer.groups)
    order = (_same, _same) if entries else (outer.to_parameter, outer.from_parameter)
    return Outer(lambda: inputs(outer.u), bias, *order, outer.groups)


def _same(weight: Array) -> Array:
    return weight
