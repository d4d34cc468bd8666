"""Decide where columns are routed: from max pooling to parameters whose squares are faster from routed columns."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.layer import Layer, Leaf, Shape
from gbackprop.calculus.signals import Signals
from gbackprop.engine.registry import Context
from gbackprop.engine.routes import Route
from gbackprop.engine.spans import residual_column_count
from gbackprop.plain.plan import Plan

SQUARE = REDUCTIONS["square"]
"""The reduction for which routed columns can be faster."""


def next_route(
    plan: Plan, leaf: Leaf, saved: Any, signals: Signals, above: Route | None, context: Context
) -> Route | None:
    """Return the route to a layer's input, if routing is possible and faster; `above` is the route to its output."""
    form = context.known.of(leaf.layer).routes
    if form is None or not _passive(plan, leaf) or (above is None and not _pays(plan, leaf, signals, context)):
        return None
    return form(leaf.layer, saved, above, context)


def routed_form(layer: Layer, context: Context) -> Any:
    """Return the form of a layer with parameters for routed columns, or None."""
    return context.known.of(layer).routed


def is_faster(leaf: Leaf, columns: int, end: Shape, context: Context) -> bool:
    """Return whether a layer's squares are faster from `columns` routed columns of feature shape `end`."""
    form = routed_form(leaf.layer, context)
    return form is not None and form.is_faster(leaf.layer, columns, prod(end[1:]), leaf.input_shape)


def _passive(plan: Plan, leaf: Leaf) -> bool:
    """Return whether a layer only multiplies columns: it has neither parameters nor a residual to append."""
    return not leaf.parameters and not residual_column_count(plan, leaf) and plan.flow.linear(leaf)


def _may_wait(plan: Plan, leaf: Leaf, context: Context) -> bool:
    form = context.known.of(leaf.layer).routes
    return form is not None and _passive(plan, leaf)


def _pays(plan: Plan, leaf: Leaf, signals: Signals, context: Context) -> bool:
    """Return whether the next layer that is not passed by a route takes squares, faster from the columns here."""
    if signals.average is not None or not isinstance(signals.stack.values, np.ndarray):
        return False
    squared = {statistic.signal for statistic in plan.statistics if statistic.reduction == SQUARE}
    columns = max((width for signal, width, _, _ in signals.stack.spans if signal in squared), default=0)
    lower = _lower(plan, leaf, context) if columns else None
    if lower is None or any(plan.flow.uses[name] > 1 for name in lower.parameters.values()):
        return False
    return is_faster(lower, columns, leaf.output_shape, context)


def _lower(plan: Plan, leaf: Leaf, context: Context) -> Leaf | None:
    """Return the next layer below that no route passes; searched once for all layers that a route passes above it."""
    if leaf.position not in context.lower:
        i, passed = leaf.position, [leaf.position]
        while i and _may_wait(plan, plan.leaves[i - 1], context):
            i -= 1
            passed.append(i)
        context.lower |= dict.fromkeys(passed, plan.leaves[i - 1] if i else None)
    return context.lower[leaf.position]
