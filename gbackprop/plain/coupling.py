"""Networks in which samples meet: a layer's output for a sample depends on the others of the batch, too.

The batch is then one sample. A column that starts at the loss of one sample arrives at all others below the layer where
they meet, so a column of the root of the loss's Hessian, or of a residual, becomes N: each starts at one sample alone.
For a parameter J g = Σₙ Jₙᵀ gₙ is added over samples before anything is squared. The gradient's column is as it was,
and so are Monte-Carlo columns: the samples' draws are independent and of mean zero, and products of two have mean zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import ALL, EXACT, GRADIENT, RESIDUAL, SAMPLES, Columns, MonteCarlo
from gbackprop.calculus.views import View, Viewed, rows_of_columns, whole, whole_block
from gbackprop.calculus.wrt import Names, X
from gbackprop.quantities.base import Quantity, Scale, Statistic

Needs = tuple[Quantity, tuple[Statistic, ...]]

COUPLED = {
    "square": Viewed.of("square", whole, "Σᵥ ± (Σₙ Jᵀ g)²"),
    "kronecker": Viewed.of("kronecker", whole_block, "B = Σᵥₙ b bᵀ, b = Σₜ g[t]; without A, B = Σᵥ b bᵀ, b = Σₙ Jᵀ g"),
    "batch": Viewed.of("batch", rows_of_columns, "Σₙ Jᵀ g, column by column"),
}
"""The reductions of a batch that is one sample; those that are not here are not changed, or not defined."""


class Meeting:
    """The part of a plan that knows of samples that meet."""

    leaves: list[Leaf]
    scale: Scale

    @cached_property
    def meeting(self) -> Leaf | None:
        """The first layer in which samples meet, None if there is none."""
        return next((leaf for leaf in self.leaves if leaf.layer.mixes), None)

    def starts(self, leaf: Leaf | None) -> int:
        """Return the columns for each of the loss, or of a layer: N if they start at one sample each, 1 otherwise."""
        return self.scale.batch if self.meeting and (leaf is None or not leaf.layer.mixes) else 1


def statistics_of(needs: list[Needs], meeting: Leaf | None, own: Names) -> list[Needs]:
    """Return the statistics of quantities: where samples meet, those of the batch as one sample."""
    if meeting and needs and own:
        raise UnsupportedError(f"{meeting}: samples meet there, so the entries of {X!r} have a gradient alone")
    found = []
    for quantity, used in needs:
        try:
            found.append((quantity, tuple(map(coupled if meeting else uncoupled, used))))
        except UnsupportedError as error:
            raise UnsupportedError(f"{meeting} cannot give {type(quantity).__name__}: {error}") from None
    return found


def coupled(statistic: Statistic) -> Statistic:
    """Return the statistic of a batch that is one sample; raise an UnsupportedError if there is none."""
    reduction, signal = statistic.reduction, statistic.signal
    if signal is None or statistic == Statistic("sum", GRADIENT):
        return statistic
    curved = signal in (EXACT, RESIDUAL) or isinstance(signal, MonteCarlo)
    if reduction.name in (("square", "kronecker") if curved else ("batch",) if signal == SAMPLES else ()):
        found = COUPLED[reduction.name]
        if type(reduction) is Viewed:  # a convention of Kronecker factors, or squares in a basis
            view = partial(_then, found.view, reduction.view)
            found = Viewed.of(reduction.name, view, f"{reduction.text}, {found.text}", reduction.lacks)
        if type(reduction) is Viewed or REDUCTIONS[reduction.name] is reduction:
            return Statistic(found, signal, only=statistic.only, mean=statistic.mean)
    if reduction.per_sample or signal == GRADIENT:
        raise UnsupportedError(
            "samples meet there, so a sample has no gradient or curvature that the others do not enter: ask for sums "
            "over samples, for BatchGrad(coupled=True), or use a layer such as GroupNorm"
        )
    raise UnsupportedError("samples meet there, and it has no definition for that")


def uncoupled(statistic: Statistic) -> Statistic:
    """Return the statistic of a network in which samples do not meet."""
    return Statistic(statistic.reduction, GRADIENT) if statistic.signal == SAMPLES else statistic


def _then(first: View, second: View, jacobian: ParameterJacobian) -> ParameterJacobian:
    return second(first(jacobian))


def of_one_sample(plan: Any, signal: Any, output: Array, target: Array, some: slice = ALL) -> Array | None:
    """Return some of the columns that start at the loss of one sample each; None for those of the whole batch."""
    loss, batch = plan.loss, len(output)
    if signal == EXACT:
        return one_by_one(lambda span: [Columns(loss.hessian_sqrt(output, target, span))], some, batch)[0].values
    if signal == SAMPLES:  # R ∇ℓₙ, as all columns but the gradient's are multiplied by √R
        gradient = Columns(loss.gradients(output, target)[None] * plan.scale.factor**0.5)
        return one_by_one(lambda span: [gradient], ALL, batch)[0].values
    return None


def one_by_one(form: Callable[[slice], list[Columns]], some: slice, batch: int) -> list[Columns]:
    """Return some of the columns that start at one sample each: number v N + n is column v at sample n, zero elsewhere.

    `form` returns some of the columns v, in pieces that have equal numbers.
    """
    lower = 0 if some == ALL else some.start // batch
    pieces = form(ALL if some == ALL else slice(lower, -(-some.stop // batch)))
    return [_each(piece, some, lower, batch) for piece in pieces]


def _each(columns: Columns, some: slice, lower: int, batch: int) -> Columns:
    xp, values = array_module(columns.values), columns.values
    start, stop = (0, len(values) * batch) if some == ALL else (some.start, some.stop)
    number = xp.arange(start, stop)
    v, n = number // batch - lower, number % batch
    spread = xp.zeros((stop - start, *values.shape[1:]), dtype=values.dtype)
    spread[xp.arange(stop - start), n] = values[v, n]
    sign = None if columns.sign is None else columns.sign[v, n][:, None]
    origins = tuple((origin, stop - start) for origin, _ in columns.origins)
    return replace(columns, values=spread, sign=sign, origins=origins)
