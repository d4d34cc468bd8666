"""The forward pass by registered forms, for a block of samples or a whole batch."""

from __future__ import annotations

from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.layer import INPUT, Layer, Leaf
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, Forms, NetworkForms, function_of
from gbackprop.plain.contract import checked
from gbackprop.plain.plan import Plan


def forward(plan: Plan, x: Array, rows: slice, context: Context) -> tuple[Array, list[Any]]:
    """Compute `Sweep.forward` for some samples by registered forms."""
    saved: list[Any] = []
    if plan.chain and not plan.training:
        for leaf, forms in zip(plan.leaves, context.known.at, strict=True):
            x, kept = forms.forward(leaf.layer, x, context) if forms.forward else leaf.layer.forward(x)
            saved.append(kept)
        return x, saved
    outputs = {INPUT: x}
    steps = zip(plan.leaves, context.known.at, context.known.last_taken, plan.noise, strict=True)
    for leaf, forms, done, noise in steps:
        layer, inputs = leaf.layer, [outputs[source] for source in leaf.sources]
        for source in done:
            del outputs[source]
        if plan.training and function_of(layer, "forward_training") is not Layer.forward_training:
            x, kept = layer.forward_training(inputs[0], rows_of(noise, rows))
        else:
            x, kept = forms.forward(layer, *inputs, context) if forms.forward else layer.forward(*inputs)
        outputs[leaf.position] = x
        saved.append(kept)
    return x, saved


def output_of(leaves: list[Leaf], x: Array, forms: Forms) -> Array:
    """Compute the output for a batch in evaluation mode by registered forms."""
    context, outputs = Context(forms, Allocator(), NetworkForms(forms, leaves)), {INPUT: x}
    for leaf, done in zip(leaves, context.known.last_taken, strict=True):
        inputs = [outputs[source] for source in leaf.sources]
        for source in done:
            del outputs[source]
        x = outputs[leaf.position] = checked(leaf, "forward", context.forward(leaf.layer, *inputs), inputs)[0]
        del inputs
    return x


def rows_of(noise: Any, rows: slice) -> Any:
    """Return some samples' rows of what a layer drew: an array with N rows, None, or tuples of these."""
    if isinstance(noise, tuple):
        return tuple(rows_of(part, rows) for part in noise)
    return None if noise is None else noise[rows]
