"""Changes of a plan before it runs, none of which changes a result.

- All time steps of a recurrent layer become one layer, for all statistics but those of the Hessian's diagonal and KFRA.
- Squares of a convolution below max pooling are extracted at the pool's output, from the columns there, if that is
  faster. Columns that no statistic below needs end there.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from math import prod
from sys import maxsize
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import AVERAGE, GRADIENT, RESIDUAL, Signal
from gbackprop.calculus.walk import is_chain
from gbackprop.calculus.wrt import placed
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.spans import loss_column_count, residual_column_count
from gbackprop.layers.recurrent import Steps, WholeSequences
from gbackprop.plain.plan import Plan
from gbackprop.quantities.base import Statistic

SQUARE = REDUCTIONS["square"]
"""The reduction for which routed columns can be faster."""

Todo = tuple[tuple[str, str, Statistic], ...]
"""Statistics to extract: the parameter's name in its layer, its name in the network, and the statistic."""


def with_whole_sequences(plan: Plan, x: Array) -> Plan:
    """Return the plan of the same results with fewer layers, if the network has recurrent ones."""
    if plan.chain or RESIDUAL in plan.signals or AVERAGE in plan.signals:
        return plan
    leaves = placed(plan.network, WholeSequences(x.shape[1:], plan.wrt, plan.training))
    used = [name for leaf in leaves for name in leaf.parameters.values()]
    if not any(isinstance(leaf.layer, Steps) for leaf in leaves) or set(used) != set(plan.parameters):
        return plan
    drawn = {leaf.name: noise for leaf, noise in zip(plan.leaves, plan.noise, strict=True)}
    swept = [leaf for leaf in leaves if leaf.swept]
    noise = [drawn.get(leaf.name) for leaf in leaves]
    return replace(plan, leaves=leaves, swept=swept, chain=is_chain(leaves) and not plan.meeting, noise=noise)


@dataclass(frozen=True)
class Visit(Leaf):
    """A layer in the fast sweep, with what is done there."""

    todo: Todo = ()  # what is extracted at its output, of parameters that are used once
    tied: tuple[tuple[str, str], ...] = ()  # its parameters that are used several times: names in layer and network
    passed: tuple[Leaf, ...] = ()  # layers that a route passes from here, and the one below, whose squares are `todo`
    wanted: Set[Signal | None] | None = None  # the signals that go on, if not all do


def with_visits(plan: Plan, x: Array, columns: int | None, known: NetworkForms, routed: bool) -> Plan:
    """Return the plan of a sweep in visits; `routed` allows squares at a pool's output, in passes of `columns`."""
    visits = {leaf.position: _visit(plan, leaf) for leaf in plan.swept}
    if routed and isinstance(x, np.ndarray) and AVERAGE not in plan.signals:
        _move_squares(plan, columns, known, visits)
    return replace(plan, swept=list(visits.values()))


def _visit(plan: Plan, leaf: Leaf) -> Visit:
    """Return a layer with all statistics of its parameters."""
    tied = tuple((key, name) for key, name in leaf.parameters.items() if plan.flow.uses[name] > 1)
    todo = tuple(
        (key, name, statistic)
        for key, name in leaf.parameters.items()
        for statistic in plan.extracted[name]
        if (key, name) not in tied and statistic.only in (None, name)
    )
    return Visit(**vars(leaf), todo=todo, tied=tied)


def _move_squares(plan: Plan, columns: int | None, known: NetworkForms, visits: dict[int, Visit]) -> None:
    """Move squares from convolutions to the pools at which a route to them begins, if they are faster there."""
    widths = {signal: 1 if signal == GRADIENT else loss_column_count(plan, signal) for signal in plan.signals}
    end = len(plan.leaves)  # of the route above
    for top in reversed(plan.swept):
        if top.position < end and known.at[top.position].begins:
            *passed, lower = _route(plan, top, known)
            visit, most = visits[lower.position], {signal: min(widths[signal], columns or maxsize) for signal in widths}
            moved = _squares(visit, top, most, known) if passed else ()
            if moved:
                rest = tuple([each for each in visit.todo if each not in moved])
                wanted = {statistic.signal for _, _, statistic in rest} if lower.lowest else None
                visits[top.position] = replace(visits[top.position], todo=moved, passed=(*passed, lower), wanted=wanted)
                visits[lower.position], end = replace(visit, todo=rest), lower.position
        if RESIDUAL in widths:
            widths[RESIDUAL] += residual_column_count(plan, top)


def _squares(lower: Visit, top: Leaf, widths: dict[Any, int], known: NetworkForms) -> Todo:
    """Return the squares of a layer that are faster from `widths` columns at the output of another one."""
    form = known.at[lower.position].routed
    if form is None:
        return ()
    squares = [each for each in lower.todo if each[2].reduction == SQUARE]
    sizes = prod(top.output_shape[1:]), lower.input_shape
    return tuple([each for each in squares if form.is_faster(lower.layer, widths[each[2].signal], *sizes)])


def _route(plan: Plan, top: Leaf, known: NetworkForms) -> list[Leaf]:
    """Return the layers that only multiply columns or move them, from one downwards, and the first that does not."""
    found = [top]
    while _is_passed(plan, found[-1], known):
        found.append(plan.leaves[found[-1].position - 1])
    return found


def _is_passed(plan: Plan, leaf: Leaf, known: NetworkForms) -> bool:
    """Return whether a route passes a layer: it has neither parameters nor a residual to append."""
    own = leaf.parameters or residual_column_count(plan, leaf)
    return not own and known.at[leaf.position].routes is not None and plan.flow.linear(leaf)
