"""A network linearized at one batch: one forward pass, then products with its Jacobian for K columns at once.

J P goes from input to output, Σₙ Jᵀ g from output to input. Directions are dictionaries {parameter: (K, *p)}, one of
them may lack parameters, in which it is zero; columns are arrays (K, N, *features). R is in none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import INPUT, Leaf
from gbackprop.calculus.walk import add_below, downwards, over_samples, upwards
from gbackprop.engine.forms import FORMS
from gbackprop.engine.forward import forward
from gbackprop.engine.memory import Reused
from gbackprop.engine.registry import Context, Forms, NetworkForms, find
from gbackprop.losses.base import Loss
from gbackprop.operators.pushing import add_pushed, pull
from gbackprop.plain.plan import Plan

Directions = Mapping[str, Array]
"""One array (K, *p) for each parameter in which there is a direction."""

Tangents = dict[int, Array | None]
"""Columns (K, N, *out) at the output of each layer, by its position; None where they are zero."""

ROOT_BYTES = 2**26
"""Bytes of the root of the Hessian that `by_root` forms at a time."""


class Linearized:
    """The forward pass of a batch in evaluation mode, and what follows from it.

    Parameters
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
    y : ndarray, shape (N, ...), optional
        Targets; the Jacobian needs none.
    forms : dict
        The registry of fast forms.

    Attributes
    ----------
    output : ndarray, shape (N, *out)
    saved : list
        What each layer saved.
    stored : dict
        What products store for the next, see `Context`.
    """

    def __init__(self, plan: Plan, x: Array, y: Any, forms: Forms = FORMS) -> None:
        self.plan, self.y, self.known = plan, y, NetworkForms(forms, plan.leaves)
        self.stored: dict[Any, Any] = {}
        self.output, self.saved = forward(plan, x, slice(None), self.context())
        if y is not None:
            plan.loss.check_output(self.output)

    def context(self) -> Context:
        """Return a new context of fast forms, for one product."""
        return Context(self.known.forms, Reused(), self.known, self.stored)

    @cached_property
    def jacobians(self) -> list[dict[str, ParameterJacobian]]:
        """The Jacobian of each parameter of each layer, by the layer's position."""
        context = self.context()
        return [
            context.jacobians(leaf.layer, self.saved[leaf.position]) if leaf.parameters else {}
            for leaf in self.plan.leaves
        ]

    @cached_property
    def gradients(self) -> dict[int, Array]:
        """∇ℓₙ at the output of each layer that depends on parameters, shape (N, *out), by its position."""
        start = self.plan.loss.gradients(self.output, self.y)[None]
        return {leaf.position: mat[0] for leaf, mat in self.sweep(start)}

    # --------------------------------------------------------------------------------------------------------- forward

    def tangents(self, directions: Directions) -> Tangents:
        """ẏ = Σᵢ Jᵢ ẋᵢ + Σ J_p P at the output of each layer: the derivative along the directions."""
        at: Tangents = {INPUT: None}
        context = self.context()
        for leaf, mats in upwards(self.plan.leaves, at):
            total = None
            for key, name in leaf.parameters.items():
                if name in directions:
                    jacobian = self.jacobians[leaf.position][key]
                    shape = (1 if leaf.constant else len(self.output), *leaf.output_shape)
                    total = add_pushed(total, jacobian, directions[name], shape, context)
            if any(mat is not None for mat in mats):
                full = self.filled(leaf, mats, 1 if leaf.constant else len(self.output))
                carried = context.jmp(leaf.layer, self.saved[leaf.position], *full)
                if total is None:
                    total = carried
                else:
                    total += carried
            at[leaf.position] = total
        return at

    def filled(self, leaf: Leaf, mats: Sequence[Array | None], rows: int) -> list[Array]:
        """Return columns of N rows, or one, at each input of a layer; zeros where it has none, but not at all."""
        like = next(mat for mat in mats if mat is not None)
        xp = array_module(like)
        shapes = [(len(like), rows, *shape) for shape in leaf.input_shapes]
        each = [xp.zeros(1, dtype=like.dtype) if mat is None else mat for mat in mats]
        return [
            mat if mat.shape == shape else xp.broadcast_to(mat, shape) for mat, shape in zip(each, shapes, strict=True)
        ]

    def push(self, directions: Directions) -> Array:
        """J P at the network's output, shape (K, N, *out)."""
        return self.last(self.tangents(directions), directions)

    def last(self, tangents: Tangents, directions: Directions) -> Array:
        """Return the tangents at the network's output."""
        found = tangents[len(self.plan.leaves) - 1]
        if found is not None:
            return found
        count = len(next(iter(directions.values())))  # the output depends on none of these parameters
        return array_module(self.output).zeros((count, *self.output.shape), dtype=self.output.dtype)

    def curve(self, mat: Array) -> Array:
        """∇²ℓₙ z[k, n], shape (K, N, *out)."""
        row = find(self.known.forms, self.plan.loss)
        return (row.hessian_product if row else by_root)(self.plan.loss, self.output, self.y, mat)

    # -------------------------------------------------------------------------------------------------------- backward

    def sweep(
        self,
        mat: Array,
        more: Callable[[Leaf], Sequence[Array | None]] | None = None,
        least: int = 0,
        summed: bool = False,
    ) -> Iterator[tuple[Leaf, Array]]:
        """Yield each layer from output to input with the columns that arrive at its output, and multiply them by Jᵀ.

        If they are `summed`, those at what has one row for all samples are the sum over samples.
        """
        context, arrived, memory = self.context(), {len(self.plan.leaves) - 1: mat}, Reused()
        context.summed = summed
        for leaf, mat in downwards(self.plan.swept, arrived):
            if leaf.position < least:
                return
            yield leaf, mat
            if leaf.lowest:
                continue
            below = context.mjp(leaf.layer, self.saved[leaf.position], mat)
            parts: Sequence[Array] = below if isinstance(below, tuple) else (below,)
            if summed:
                parts = [over_samples(self.plan.leaves, *each) for each in zip(leaf.sources, parts, strict=True)]
            if more:
                added = zip(leaf.sources, parts, more(leaf), strict=True)
                parts = [
                    part if extra is None else memory.add(part, over_samples(self.plan.leaves, source, extra))
                    for source, part, extra in added
                ]
            add_below(leaf, parts, arrived, lambda total, part, _: memory.add(total, part), self.plan.reaches)

    def each_sample(self, columns: Array) -> Array:
        """Return columns of one output for each sample: ``[K, C] -> [K, N, *out]``."""
        xp, n = array_module(columns), len(self.output)
        return xp.repeat(columns[:, None], n, axis=1).reshape(len(columns), *self.output.shape)

    def pull(self, mat: Array, names: Set[str], second: Any = None) -> dict[str, Array]:
        """Σₙ Jᵀ g[k, n] in each parameter that is named, shape (K, *p), plus second-order terms if there are any."""
        found: dict[str, Array] = {}
        context = self.context()
        least = min(leaf.position for leaf in self.plan.leaves if not names.isdisjoint(leaf.parameters.values()))
        for leaf, columns in self.sweep(mat, second.on_inputs if second else None, least, True):
            for key, name in leaf.parameters.items():
                if name in names:
                    value = pull(self.jacobians[leaf.position][key], columns, context)
                    extra = second.on_parameter(leaf, key) if second else None
                    value = value if extra is None else value + extra
                    found[name] = found[name] + value if name in found else value
            context.sums.clear()
        return found


def by_root(loss: Loss, output: Array, target: Array, mat: Array) -> Array:
    """Sₙ Sₙᵀ z[k, n], by the definition of S."""
    count, step = loss.columns(output.shape[1:]), max(1, ROOT_BYTES // max(1, output.nbytes))
    roots = (loss.hessian_sqrt(output, target, slice(start, start + step)) for start in range(0, count, step))
    return sum((through(root, mat) for root in roots), array_module(mat).zeros_like(mat))


def through(columns: Array, mat: Array) -> Array:
    """Σᵥ s[v, n] s[v, n]ᵀ z[k, n], of columns s ``[V, N, *out]``."""
    xp, n = array_module(mat), mat.shape[1]
    s = xp.moveaxis(columns.reshape(len(columns), n, -1), 1, 0)  # [N, V, C]
    z = xp.moveaxis(mat.reshape(len(mat), n, -1), 1, 0)  # [N, K, C]
    return xp.moveaxis(z @ s.swapaxes(1, 2) @ s, 0, 1).reshape(mat.shape)
