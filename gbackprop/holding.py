"""Which layers a sweep holds back: those above a layer that needs only few of their numbers.

Max pooling sends each column to few places of its image. Where the next parameters below take squares, they do so
quicker from what is sent (`layers.selection`), and the columns need not go through the layers between, or not all.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gbackprop.layers.base import Leaf, Shape
from gbackprop.layers.overrides import go_together
from gbackprop.plan import Plan
from gbackprop.signals import Held, Signals


def hold(plan: Plan, leaf: Leaf, saved: Any, signals: Signals) -> Held | None:
    """What is held if a layer is not to multiply the columns yet; None if it is to."""
    above = signals.held
    if not _can_wait(plan, leaf) or (above is None and not _pays(plan, leaf, signals)):
        return None
    selection = leaf.layer.selection(saved, above.selection if above else None)
    if selection is None:
        return None
    return Held((*(above.layers if above else ()), (leaf, saved)), selection)


def selects(leaf: Leaf, columns: int, selected: Shape) -> bool:
    """Whether a layer's squares of so many columns are quicker from a selection of feature shape `selected`."""
    if not go_together(leaf.layer, "selected_jacobians", "selection_pays", "parameter_jacobians"):
        return False
    return leaf.layer.selection_pays(columns, prod(selected[1:]), leaf.input_shape)


def _can_wait(plan: Plan, leaf: Leaf) -> bool:
    """Whether nothing but the columns goes through a layer, and it may have a selection."""
    passive = not leaf.layer.parameter_shapes() and not plan.residual_columns(leaf)
    return passive and go_together(leaf.layer, "selection", "mjp", "forward")


def _pays(plan: Plan, leaf: Leaf, signals: Signals) -> bool:
    """Whether the next layer that cannot wait takes squares, and quicker from the columns as they are here."""
    if signals.average is not None or not isinstance(signals.stack.values, np.ndarray):
        return False
    squared = {statistic.signal for statistic in plan.statistics if statistic.method == "square"}
    columns = max((width for signal, width, _ in signals.stack.spans if signal in squared), default=0)
    lower = plan.leaves[: plan.leaves.index(leaf)]
    while lower and _can_wait(plan, lower[-1]):
        lower = lower[:-1]
    return bool(columns and lower) and selects(lower[-1], columns, leaf.output_shape)
