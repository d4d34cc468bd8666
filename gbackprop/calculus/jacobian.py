"""Jacobians of a layer's output with respect to its parameters, bound to one forward pass, and their reductions.

J is the Jacobian of one sample's output with respect to the parameter, g[v, n] a column at the output with sign s[v, n]
(1 where `sign` is None), and p the parameter's shape. A `ParameterJacobian` defines Jᵀ g[v, n]; a `Reduction` is a sum
over that. `Bias` and `Outer` also compute what the Kronecker factors need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.checks import SHIPPED
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.moments import Moments

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Reduction:
    """A sum over the products of a parameter's Jacobian with columns.

    Attributes
    ----------
    name : str
        The method of `ParameterJacobian` that computes it.
    text : str
        The formula as text.
    size : callable
        Number of entries of the result for a parameter of a given shape (for one sample, if `per_sample`), counted in
        the dtype of the input; of "input_square", for one group.
    per_sample : bool
        Whether the result has a row for each sample, so that blocks of samples are concatenated, not added.
    formula : callable, optional
        The definition: the result from Jᵀ g[v, n] (V, N, *p) and s (V, N) or None. Without it, the Jacobian's own
        method is the definition, and not every Jacobian has it.
    """

    name: str
    text: str
    size: Callable[[Shape], int]
    per_sample: bool = False
    formula: Callable[[Array, Array | None], Any] | None = None

    def __reduce__(self) -> Any:
        own = REDUCTIONS.get(self.name) is not self
        values = (self.name, self.text, self.size, self.per_sample, self.formula)
        return (Reduction, values) if own else (_known, (self.name,))

    def define(self, jacobian: ParameterJacobian, *arriving: Any) -> Any:
        """Compute the result by its definition.

        Parameters
        ----------
        jacobian : ParameterJacobian
        *arriving
            Columns (V, N, *out) and their signs (V, N) or None; Ḡ (D, D) and the output's feature shape for
            "average_kronecker"; nothing for "input_square".
        """
        if self.formula is None:
            value = getattr(jacobian, self.name)(*arriving)
            ours = jacobian.__module__.startswith(SHIPPED) and self.name not in vars(jacobian)
            return value if value is None or ours else value.copy()  # another's may be stored: a mean is taken in place
        mat, sign = arriving
        return self.formula(jacobian.per_sample(mat), sign)


def weigh(mat: Array, sign: Array | None) -> Array:
    """``sign[v, n] * mat[v, n]``."""
    return mat if sign is None else mat * sign.reshape(sign.shape + (1,) * (mat.ndim - 2))


def _moments(each: Array, sign: Array | None) -> Moments:
    if sign is not None:
        raise UnsupportedError("moments are of columns without signs")
    return Moments.of(each.reshape(-1, *each.shape[2:]))


def _square_norm(each: Array, sign: Array | None) -> Array:
    return weigh(each**2, sign).sum(axis=(0, *range(2, each.ndim)))


REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("sum", "Σₙ Jᵀ g", prod, False, lambda each, sign: weigh(each, sign).sum((0, 1))),
        Reduction("batch", "Jᵀ g, sample by sample", prod, True, lambda each, sign: weigh(each, sign).sum(0)),
        Reduction("square", "Σᵥₙ ± (Jᵀ g)²", prod, False, lambda each, sign: weigh(each**2, sign).sum((0, 1))),
        Reduction(
            "batch_square", "Σᵥ ± (Jᵀ g)², sample by sample", prod, True, lambda each, sign: weigh(each**2, sign).sum(0)
        ),
        Reduction("moments", "m = 1/N Σₙ Jᵀ g, Q = Σₙ (Jᵀ g − m)²", lambda p: 4 * prod(p), False, _moments),
        Reduction("square_norm", "‖Jᵀ g‖², sample by sample", lambda p: 1, True, _square_norm),
        Reduction("kronecker", "B = Σᵥₙ b bᵀ, b = Σₜ g[t]", lambda p: p[0] ** 2),
        Reduction("average_kronecker", "B = Σₜₛ Ḡ[t, s]", lambda p: p[0] ** 2),
        Reduction("input_square", "Σₙₜ u uᵀ", lambda p: prod(p[1:]) ** 2 if len(p) > 1 else 0),
    )
}
"""All reductions, by name."""


def _known(name: str) -> Reduction:
    return REDUCTIONS[name]


class ParameterJacobian:
    """Base class of parameter Jacobians: a subclass defines `per_sample`, and inherits reductions with a formula.

    The methods take ``mat`` of shape (V, N, *out) and ``sign`` of shape (V, N) or None. A subclass may compute a
    reduction in a shorter way; the result must be that of the formula.
    """

    def per_sample(self, mat: Array) -> Array:
        """Jᵀ g[v, n], shape (V, N, *p)."""
        raise NotImplementedError

    def batch(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ s Jᵀ g[v, n], shape (N, *p)."""
        return REDUCTIONS["batch"].define(self, mat, sign)

    def sum(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥₙ s Jᵀ g[v, n], shape (*p)."""
        return REDUCTIONS["sum"].define(self, mat, sign)

    def batch_square(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ s (Jᵀ g[v, n])², elementwise, shape (N, *p)."""
        return REDUCTIONS["batch_square"].define(self, mat, sign)

    def square(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥₙ s (Jᵀ g[v, n])², elementwise, shape (*p)."""
        return REDUCTIONS["square"].define(self, mat, sign)

    def moments(self, mat: Array, sign: Array | None = None) -> Moments:
        """The mean of Jᵀ g[v, n] over v and n, and Σᵥₙ of the squared deviations, in float64; `sign` must be None."""
        return REDUCTIONS["moments"].define(self, mat, sign)

    def square_norm(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ s ‖Jᵀ g[v, n]‖², shape (N)."""
        return REDUCTIONS["square_norm"].define(self, mat, sign)

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        """B = Σᵥₙ s b bᵀ with b = Jᵀ g[v, n] of the bias, shape (O, O); (G, O, O) for G groups."""
        raise UnsupportedError(f"{type(self).__name__} has no Kronecker factors")

    def average_kronecker(self, average: Array, shape: Shape) -> Array:
        """B of KFRA from the averaged curvature Ḡ (D, D) at an output of feature shape `shape`, shape as above."""
        raise UnsupportedError(f"{type(self).__name__} has no Kronecker factors")

    def input_square(self) -> Array | None:
        """Σₙₜ u uᵀ over samples and shared positions, shape (I, I) or (G, I, I), or None if there is no such factor.

        If the parameter has its outputs between its inputs, (C, O, *kernel), both axes I are two, C and ∏ kernel.
        """
        raise UnsupportedError(f"{type(self).__name__} has no Kronecker factors")


class Bias(ParameterJacobian):
    """A bias added at every shared position: Jᵀ g[v, n] = Σₜ g[v, n, t].

    Parameters
    ----------
    rows : callable
        Returns the view ``[V, N, T, O]`` of columns ``[V, N, *out]``.
    """

    def __init__(self, rows: Callable[[Array], Array]) -> None:
        self.rows = rows

    def per_sample(self, mat: Array) -> Array:
        return self.rows(mat).sum(2)

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        b = self.per_sample(mat)
        o = b.shape[-1]
        return weigh(b, sign).reshape(-1, o).T @ b.reshape(-1, o)

    def average_kronecker(self, average: Array, shape: Shape) -> Array:
        # This Jacobian is the same for every sample, so one sample is enough.
        return congruence(self.per_sample, average, 1, shape)[:, 0]

    def input_square(self) -> Array | None:
        return None


class Outer(ParameterJacobian):
    """A weight applied at every shared position, y[t] = W u[t]: Jᵀ g[v, n] = Σₜ g[v, n, t] u[n, t]ᵀ.

    For linear layers and for convolutions, where u is the unfolded input. Separate groups of channels are a leading
    axis G of all arrays: u is (G, N, T, I), g is (G, V, N, T, O).

    Parameters
    ----------
    inputs : callable
        Returns u; called once, on first use.
    bias : Bias
        The Jacobian of a bias at the same output: B is its curvature.
    to_parameter, from_parameter : callable
        Return the view ``[*lead, *p]`` of ``[*lead, G*O, I]``, and the reverse.
    groups : int
        G.
    """

    def __init__(
        self,
        inputs: Callable[[], Array],
        bias: Bias,
        to_parameter: Callable[[Array], Array],
        from_parameter: Callable[[Array], Array],
        groups: int = 1,
    ) -> None:
        self.inputs, self.bias, self.groups = inputs, bias, groups
        self.to_parameter, self.from_parameter = to_parameter, from_parameter

    @cached_property
    def u(self) -> Array:
        """The inputs, shape (G, N, T, I)."""
        return self.inputs()

    def split(self, mat: Array) -> Array:
        """Return the view of the columns as g, by position and group: ``[V, N, *out] -> [G, V, N, T, O]``."""
        rows = self.bias.rows(mat)
        if self.groups == 1:
            return rows[None]
        return array_module(mat).moveaxis(rows.reshape(*rows.shape[:3], self.groups, -1), 3, 0)

    def joined(self, result: Array) -> Array:
        """Return the view of a result by group as the parameter's: ``[G, *lead, O, I] -> [*lead, *p]``."""
        groups, *lead, o, i = result.shape
        merged = result[0] if groups == 1 else array_module(result).moveaxis(result, 0, -3)
        return self.to_parameter(merged.reshape(*lead, groups * o, i))

    def per_sample(self, mat: Array) -> Array:
        return self.joined(self.split(mat).swapaxes(-1, -2) @ self.u[:, None])

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        return group_blocks(self.bias.kronecker(mat, sign), self.groups)

    def average_kronecker(self, average: Array, shape: Shape) -> Array:
        return group_blocks(self.bias.average_kronecker(average, shape), self.groups)

    def input_square(self) -> Array | None:
        u = self.u.reshape(self.groups, -1, self.u.shape[3])
        squares = self.by_entries(u.swapaxes(1, 2) @ u)
        return squares if self.groups > 1 else squares[0]

    def by_entries(self, squares: Array) -> Array:
        """Return matrices (G, I, I) with rows and columns in the order of the parameter's entries."""
        entries = self.to_parameter(array_module(squares).moveaxis(self.to_parameter(squares), 1, -1))
        half = entries.ndim // 2 + 1
        return entries.transpose(0, *range(half, entries.ndim), *range(1, half)).reshape(squares.shape)


def group_blocks(b: Array, groups: int) -> Array:
    """Return the diagonal blocks (G, O, O) of the bias's matrix (G*O, G*O), one for each group; of one, (O, O)."""
    each = array_module(b).arange(groups)
    return b.reshape(groups, -1, groups, len(b) // groups)[each, :, each] if groups > 1 else b


def congruence(pull: Callable[[Array], Array], matrix: Array, batch: int, shape: Shape) -> Array:
    """Jₙᵀ Ḡ Jₙ for each sample, from the map v ↦ Jₙᵀ v alone: once for the columns of Ḡ, once for its rows."""
    d = matrix.shape[0]
    columns = matrix.reshape(d, 1, *shape)
    if batch > 1:
        columns = array_module(matrix).broadcast_to(columns, (d, batch, *shape))
    half = pull(columns)
    inner = prod(half.shape[2:])
    rows = half.reshape(d, batch, inner).transpose(2, 1, 0).reshape(inner, batch, *shape)
    return pull(rows).reshape(inner, batch, inner)
