"""The forward pass by registered forms, for a block of samples or a whole batch."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import INPUT, Layer, Leaf
from gbackprop.calculus.walk import values_upwards
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, Forms, NetworkForms, function_of
from gbackprop.plain.contract import checked
from gbackprop.plain.plan import Plan


def forward(plan: Plan, x: Array, rows: slice, context: Context) -> tuple[Array, list[Any]]:
    """Compute `Sweep.forward` for some samples by registered forms."""
    saved, at = [], {INPUT: x}
    for leaf, inputs in values_upwards(plan.leaves, at, context.known.last_taken):
        layer, form = leaf.layer, context.known.at[leaf.position].forward
        if plan.training and function_of(layer, "forward_training") is not Layer.forward_training:
            x, kept = layer.forward_training(inputs[0], rows_of(plan.noise[leaf.position], rows))
        else:
            x, kept = form(layer, *inputs, context) if form else layer.forward(*inputs)
        at[leaf.position] = x
        saved.append(kept)
    return x, saved


def output_of(leaves: list[Leaf], x: Array, forms: Forms) -> Array:
    """Compute the output for a batch in evaluation mode by registered forms."""
    context, at, y = Context(forms, Allocator(), NetworkForms(forms, leaves)), {INPUT: x}, x
    for leaf, inputs in values_upwards(leaves, at, context.known.last_taken):
        y = at[leaf.position] = checked(leaf, "forward", context.forward(leaf.layer, *inputs), inputs)[0]
        del inputs
    return y.copy() if array_module(y).may_share_memory(y, x) else y  # an output is nobody else's


def rows_of(noise: Any, rows: slice) -> Any:
    """Return some samples' rows of what a layer drew: an array with N rows, None, or tuples of these."""
    if isinstance(noise, tuple):
        return tuple(rows_of(part, rows) for part in noise)
    return None if noise is None else noise[rows]
