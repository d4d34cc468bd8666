"""The forward pass by registered forms, for a block of samples or a whole batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gbackprop.array import Array
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, Forms, function_of
from gbackprop.layers.base import INPUT, Layer, Leaf
from gbackprop.plan import Plan


def forward(plan: Plan, x: Array, rows: slice, context: Context) -> tuple[Array, list[Any]]:
    """Compute `Sweep.forward` for some samples by registered forms."""
    saved: list[Any] = []
    if plan.chain and not plan.training:
        for leaf, forms in zip(plan.leaves, context.known.at, strict=True):
            x, kept = forms.forward(leaf.layer, x, context) if forms.forward else leaf.layer.forward(x)
            saved.append(kept)
        return x, saved
    outputs = Outputs(plan.leaves, x)
    for leaf, noise in zip(plan.leaves, plan.noise, strict=True):
        layer, inputs = leaf.layer, outputs.inputs(leaf)
        if plan.training and function_of(layer, "forward_training") is not Layer.forward_training:
            y, kept = layer.forward_training(inputs[0], rows_of(noise, rows))
        else:
            y, kept = context.forward(layer, *inputs)
        saved.append(kept)
        outputs.put(leaf, y)
    return outputs.last, saved


def output_of(leaves: list[Leaf], x: Array, forms: Forms) -> Array:
    """Compute the output for a batch in evaluation mode by registered forms."""
    context, outputs = Context(forms, Allocator()), Outputs(leaves, x)
    for leaf in leaves:
        outputs.put(leaf, context.forward(leaf.layer, *outputs.inputs(leaf))[0])
    return outputs.last


class Outputs:
    """The outputs that layers still take: each is deleted after its last use.

    Parameters
    ----------
    leaves : list of Leaf
    x : ndarray, shape (N, *in)
    """

    def __init__(self, leaves: list[Leaf], x: Array) -> None:
        self.left = Counter(source for leaf in leaves for source in leaf.sources)
        self.known, self.last = {INPUT: x}, x

    def inputs(self, leaf: Leaf) -> list[Array]:
        """Return the inputs of a layer."""
        inputs = [self.known[source] for source in leaf.sources]
        self.left.subtract(leaf.sources)
        for source in set(leaf.sources):
            if not self.left[source]:
                del self.known[source]
        return inputs

    def put(self, leaf: Leaf, y: Array) -> None:
        """Store the output of a layer."""
        self.known[leaf.position] = self.last = y


def rows_of(noise: Any, rows: slice) -> Any:
    """Return some samples' rows of what a layer drew: an array with N rows, None, or tuples of these."""
    if isinstance(noise, tuple):
        return tuple(rows_of(part, rows) for part in noise)
    return None if noise is None else noise[rows]
