"""The fast sweep over one block of samples: the plain sweep with faster steps.

It overrides the steps at a layer: *extract* uses registered forms, and writes rows directly into the results; *carry*
uses registered forms, in place where nothing else refers to the columns. Below max pooling it can extract from routed
columns and defer the multiplication by the layers between, see `routing`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gbackprop.array import Array, array_module, on_device_of
from gbackprop.branching import Arriving, Found
from gbackprop.engine.forward import forward
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, Forms, function_of, has_method
from gbackprop.engine.routes import Route
from gbackprop.engine.routing import SQUARE, next_route, pays, routed_form
from gbackprop.engine.rows import Rows
from gbackprop.engine.spans import SpanSweep, residual_column_count, spans
from gbackprop.errors import naming
from gbackprop.layers.base import Leaf
from gbackprop.layers.jacobian import ParameterJacobian
from gbackprop.plan import Plan
from gbackprop.quantities.base import Statistic
from gbackprop.signals import Signals, Stack

OUTPUT = "output"
"""Key of the network's outputs in `Rows`."""


@dataclass(frozen=True)
class Block:
    """A block of samples of a batch.

    Attributes
    ----------
    rows : slice
        The samples.
    results : Rows
        Storage of results with a row for each sample.
    """

    rows: slice
    results: Rows

    def __len__(self) -> int:
        return self.rows.stop - self.rows.start


@dataclass
class Part:
    """The results of a block of samples: Σ ℓₙ, and its part of each statistic."""

    loss: Array
    found: Found

    def add(self, other: Part) -> None:
        """Add the next block's part."""
        self.loss = self.loss + other.loss
        for key, value in other.found.items():
            if not key[0].per_sample:  # the others are in `Rows`
                self.found[key] = key[0].merge([self.found[key], value])


def sweep_block(
    plan: Plan,
    x: Array,
    y: Array,
    block: Block,
    column_block: int | None,
    forms: Forms,
    memory: Allocator,
    routing: bool = True,
    sweep: type[FastSweep] | None = None,
) -> Part:
    """Run the forward pass of a block once, and the backward sweep once for each span of columns.

    Parameters
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
    y : ndarray, shape (N, ...)
        The whole batch.
    block : Block
        The samples, and the storage of results with a row for each sample.
    column_block : int or None
        Number of columns in a pass in addition to the gradient's; None for all.
    forms : Forms
        The fast forms to use.
    memory : Allocator
        Makes the arrays of the forms.
    routing : bool
        Whether columns may be routed through max pooling.
    sweep : subclass of FastSweep, optional
        Class of the backward sweep; for instance one that also observes it.
    """
    with on_device_of(x):  # a new thread starts on device 0
        target, context = y[block.rows], Context(forms, memory)
        found: Found = {}
        with naming(lambda: f"forward pass of {len(block)} samples"):
            output, saved = forward(plan, x[block.rows], block.rows, context)
        for span in spans(plan, column_block):
            (sweep or FastSweep)(plan, block, span, found, context, routing).backward(output, target, saved)
        block.results.put(OUTPUT, block.rows, output)
        return Part(plan.loss.values(output, target).sum(), found)


class FastSweep(SpanSweep):
    """The backward sweep for a block of samples and a span of columns, by registered forms.

    Parameters
    ----------
    plan : Plan
    block : Block
    span : slice
    found : dict
    context : Context
    routing : bool
        Whether columns may be routed through max pooling.
    """

    def __init__(
        self, plan: Plan, block: Block, span: slice, found: Found, context: Context, routing: bool = True
    ) -> None:
        super().__init__(plan, span, found)
        self.block, self.rows, self.context, self.routing = block, block.rows, context, routing
        self.shared: dict[int, bool] = {}  # whether anything else may refer to the columns at a layer's output
        self.extracted: Leaf | None = None  # the last layer extracted from routed columns
        self.waiting: list[tuple[Leaf, Any]] = []  # deferred layers: the stack is not yet multiplied by them
        self.route: Route | None = None  # from the output of the first of them to the input of the last

    def start(self, output: Array, target: Array) -> Signals:
        with naming(lambda: f"columns of {self.plan.loss!r} for {len(self.block)} samples"):
            return super().start(output, target)

    def visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Sequence[Signals]:
        with naming(functools.partial(self._at, leaf, signals.stack)):
            self.context.sums.clear()
            route = self._next_route(leaf, saved, signals)
            if route is not None:
                self.waiting.append((leaf, saved))
                self.route = route
                return [signals]
            if not self.waiting:
                return super().visit(leaf, saved, signals)
            signals = self._extract_routed(leaf, saved, signals)
            self.extracted = leaf
            return super().visit(leaf, saved, signals)

    def _at(self, leaf: Leaf, stack: Stack) -> str:
        """Describe the current step for an error message."""
        return f"{leaf}, with {len(stack.values)} columns of {len(self.block)} samples"

    # ------------------------------------------------------------------------------------------------------- extract

    def extract(self, leaf: Leaf, saved: Any, signals: Signals) -> None:
        if leaf is not self.extracted:
            super().extract(leaf, saved, signals)

    def jacobians(self, leaf: Leaf, saved: Any) -> dict[str, ParameterJacobian]:
        return self.context.jacobians(leaf.layer, saved) if leaf.parameters else {}

    def reduce(self, statistic: Statistic, name: str, jacobian: ParameterJacobian, arriving: tuple[Any, ...]) -> Any:
        """Compute a statistic in this pass; rows for each sample are written into the batch's rows."""
        reduction, context = statistic.reduction, self.context
        if not statistic.per_sample or (statistic, name) in self.found:
            return context.reduce(jacobian, reduction, *arriving)
        key, results = (statistic, name), self.block.results
        write = context.forms.find(context.forms.write_rows, jacobian, "per_sample", reduction.name)
        if write is not None and has_method(reduction):
            return write(jacobian, *arriving, lambda like: results.place(key, self.block.rows, like), context)
        return results.put(key, self.block.rows, context.reduce(jacobian, reduction, *arriving))

    def add(self, statistic: Statistic, name: str, value: Any) -> None:
        before = self.found.get((statistic, name))
        if before is not None and statistic.per_sample:
            before += value  # in place, in the batch's rows
        else:
            super().add(statistic, name, value)

    # --------------------------------------------------------------------------------------------------------- carry

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> list[Signals]:
        average = signals.average
        if average is not None:
            average = self.context.average(leaf.layer, saved, average, len(self.block), leaf.output_shape)
        mats = self._multiplied(leaf, saved, signals.stack.values)
        return [Signals(signals.stack.moved(mat), average) for mat in mats]

    def _multiplied(self, leaf: Leaf, saved: Any, mat: Array) -> tuple[Array, ...]:
        """Compute Jᵀ mat of each input, in place if the layer supports that and nothing else refers to `mat`."""
        layer, forms = leaf.layer, self.context.forms
        function = function_of(layer, "mjp")
        shared = self.shared.get(leaf.position, False) or bool(leaf.parameters)  # a statistic may be a view of them
        in_place, back = forms.find(forms.in_place, layer, "mjp"), None
        if in_place is not None and not shared and not residual_column_count(self.plan, leaf):  # r needs the gradient
            back = in_place(layer, saved, mat)
        if back is None:
            back = self.context.mjp(layer, saved, mat)
        parts = back if isinstance(back, tuple) else (back,)
        for source, part in zip(leaf.sources, parts, strict=True):
            # An unknown function may have stored a reference to its argument or its result.
            alias = len(parts) > 1 or (shared and array_module(mat).may_share_memory(part, mat))
            self.shared[source] = function not in forms.pure or alias
        return parts

    def meet(self, before: Signals, more: Signals, source: int) -> Signals:
        total = super().meet(before, more, source)
        self.shared[source] = False  # the sum is a new array
        return total

    # -------------------------------------------------------------------------------------------------------- routed

    def _next_route(self, leaf: Leaf, saved: Any, signals: Signals) -> Route | None:
        if not self.routing or not self.context.forms.routes:
            return None
        return next_route(self.plan, leaf, saved, signals, self.route if self.waiting else None, self.context)

    def _extract_routed(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
        """Extract squares from routed columns where that is faster, all else at the output; return its signals."""
        layer, context = leaf.layer, self.context
        jacobians = self.jacobians(leaf, saved)
        arriving, todo = self.arriving(leaf, signals), self._todo(leaf)

        def quicker(statistic: Statistic) -> bool:
            columns = arriving[statistic.signal][0]
            return pays(leaf, len(columns), columns.shape[2:], context)

        squares = [(key, s) for key, s in todo if s.reduction == SQUARE and s.signal in arriving and quicker(s)]
        if squares:
            routed = routed_form(layer, context).jacobians(layer, jacobians, self.route, context)
            squares = [(key, statistic) for key, statistic in squares if key in routed]
            self._reduce_some(leaf, routed, squares, arriving)
            todo = [each for each in todo if each not in squares]
        signals = self._caught_up(leaf, todo, signals)
        self._reduce_some(leaf, jacobians, todo, self.arriving(leaf, signals))
        return signals

    def _todo(self, leaf: Leaf) -> list[tuple[str, Statistic]]:
        """Return all statistics of all parameters, each with the parameter's name in its layer."""
        return [(key, statistic) for key in leaf.parameters for statistic in self.plan.statistics]

    def _reduce_some(
        self, leaf: Leaf, jacobians: dict[str, Any], todo: list[tuple[str, Statistic]], arriving: Arriving
    ) -> None:
        for key, statistic in todo:
            self.reduce_all(leaf.parameters[key], jacobians[key], [statistic], arriving)

    def _caught_up(self, leaf: Leaf, todo: list[tuple[str, Statistic]], signals: Signals) -> Signals:
        """Multiply the columns by the deferred layers: all, or at the lowest layer only those that are still needed."""
        stack, layers, self.waiting = signals.stack, self.waiting, []
        if leaf.lowest:
            wanted = {statistic.signal for _, statistic in todo} & self.arriving(leaf, signals).keys()
            stack, layers = (stack.only(wanted), layers) if wanted - {None} else (stack, [])
        for passed, saved in layers:
            with naming(functools.partial(self._at, passed, stack)):
                (mat,) = self._multiplied(passed, saved, stack.values)
                stack = stack.moved(mat)
        return replace(signals, stack=stack)
