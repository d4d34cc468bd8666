"""The fast sweep over one block of samples: the plain sweep with faster steps.

It overrides the steps at a layer: *extract* uses registered forms, and writes rows directly into the results; *carry*
uses registered forms, in place where nothing else refers to the columns. Below max pooling it can extract from routed
columns and defer the multiplication by the layers between, see `routing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.errors import naming
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import Signals, Stack
from gbackprop.engine.forward import forward
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, Function, NetworkForms
from gbackprop.engine.routes import Route
from gbackprop.engine.routing import SQUARE, is_faster, next_route, routed_form
from gbackprop.engine.rows import SampleRows
from gbackprop.engine.spans import SpanSweep, residual_column_count
from gbackprop.plain.branching import Arriving, Found
from gbackprop.plain.observer import Observer, observed
from gbackprop.plain.plan import GRADIENT_SUM, Plan
from gbackprop.quantities.base import Statistic

BATCH = REDUCTIONS["batch"]

OUTPUT = "output"
"""Key of the network's outputs in `SampleRows`."""


@dataclass(frozen=True)
class SampleBlock:
    """A block of samples of a batch.

    Attributes
    ----------
    rows : slice
        The samples.
    results : SampleRows
        Storage of results with a row for each sample.
    """

    rows: slice
    results: SampleRows

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
            if not key[0].per_sample:  # the others are in `SampleRows`
                self.found[key] = key[0].merge([self.found[key], value])


@dataclass(frozen=True)
class Execution:
    """The sweeps of a call, by one plan.

    Attributes
    ----------
    plan : Plan
    x : ndarray, shape (N, *in)
    y : ndarray, shape (N, ...)
    spans : sequence of slice
        The columns of each pass in addition to the gradient's.
    known : NetworkForms
        The fast forms of the network's layers.
    reuse : bool
        Whether memory of earlier calls is used again, and columns may be routed through max pooling.
    observer : Observer, optional
        Of all backward sweeps.
    """

    plan: Plan
    x: Array
    y: Array
    spans: Sequence[slice]
    known: NetworkForms
    reuse: bool = True
    observer: Observer | None = None


def sweep_block(run: Execution, block: SampleBlock, memory: Allocator) -> Part:
    """Run the forward pass of a block once, and the backward sweep once for each span of columns."""
    plan, target, context = run.plan, run.y[block.rows], Context(run.known.forms, memory, run.known)
    found: Found = {}
    with naming(lambda: f"forward pass of {len(block)} samples"):
        output, saved = forward(plan, run.x[block.rows], block.rows, context)
    for span in run.spans:
        sweep = FastSweep(run, block, span, found, context)
        (observed(sweep, run.observer) if run.observer else sweep).run(output, target, saved)
    block.results.put(OUTPUT, block.rows, output)
    return Part(plan.loss.values(output, target).sum(), found)


class FastSweep(SpanSweep):
    """The backward sweep for a block of samples and a span of columns, by registered forms.

    Parameters
    ----------
    run : Execution
    block : SampleBlock
    span : slice
    found : dict
    context : Context
    """

    def __init__(self, run: Execution, block: SampleBlock, span: slice, found: Found, context: Context) -> None:
        super().__init__(run.plan, span, found)
        self.block, self.rows, self.context = block, block.rows, context
        self.once = len(run.spans) == 1 and run.plan.chain  # each statistic is found once
        self.gradient_alone = len(run.plan.statistics) == 1
        self.routing = run.reuse and not self.gradient_alone and bool(context.forms)
        self.shared: dict[int, bool] = {}  # whether anything else may refer to the columns at a layer's output
        self.at: tuple[Leaf, Stack] | None = None  # the current step, None at the loss
        self.extracted: Leaf | None = None  # the last layer extracted from routed columns
        self.carried: Leaf | None = None  # the last layer extracted from columns at its input
        self.waiting: list[tuple[Leaf, Any]] = []  # deferred layers: the stack is not yet multiplied by them
        self.route: Route | None = None  # from the output of the first of them to the input of the last

    def run(self, output: Array, target: Array, saved: list[Any]) -> None:
        """Sweep from the loss to the lowest layers with parameters; an error says at which step memory ran out."""
        with naming(self._doing):
            self.backward(output, target, saved)

    def visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Sequence[Signals]:
        self.at = leaf, signals.stack
        context = self.context
        if context.sums:
            context.sums.clear()
        context.curvature = context.swapped = (None, None, None)
        context.squares = (None, None, None, None)
        if self.routing:
            route = next_route(self.plan, leaf, saved, signals, self.route if self.waiting else None, self.context)
            if route is not None:
                self.waiting.append((leaf, saved))
                self.route = route
                return [signals]
            if self.waiting:
                signals = self._extract_routed(leaf, saved, signals)
                self.extracted = leaf
        forms = self.context.known.at[leaf.position]
        if leaf.parameters and leaf is not self.extracted:
            if forms.jacobians_at_input is not None:
                return self._carried_first(leaf, saved, signals)
            self.extract(leaf, saved, signals)
        if leaf.lowest or (forms.add_to is not None and self._added(leaf, saved, signals, forms.add_to)):
            return []
        below = self.carry(leaf, saved, signals)
        return self.append(leaf, saved, signals, below) if self.curved else below

    def _carried_first(self, leaf: Leaf, saved: Any, signals: Signals) -> list[Signals]:
        """Carry the signals to the layer's input, then extract there the statistics of its parameters."""
        below = self.carry(leaf, saved, signals)
        self.shared[leaf.sources[0]] = True  # a statistic may be a view of them
        self.carried = leaf
        self.extract(leaf, saved, below[0])
        return below

    def _doing(self) -> str:
        """Describe the current step for an error message."""
        if self.at is None:
            return f"columns of {self.plan.loss!r} for {len(self.block)} samples"
        leaf, stack = self.at
        return f"{leaf}, with {len(stack.values)} columns of {len(self.block)} samples"

    # ------------------------------------------------------------------------------------------------------- extract

    def extract(self, leaf: Leaf, saved: Any, signals: Signals) -> None:
        if not self.plan.chain:
            super().extract(leaf, saved, signals)
            return
        form = self.context.known.at[leaf.position].gradients
        if form is not None and self.gradient_alone:
            sums = form(leaf.layer, saved, signals.stack.values, self.context)
            for key, name in leaf.parameters.items():
                self.found[GRADIENT_SUM, name] = sums[key]
            return
        jacobians, arriving = self.jacobians(leaf, saved), self.arriving(leaf, signals)
        todo = [(each, arriving[each.signal]) for each in self.plan.statistics if each.signal in arriving]
        for key, name in leaf.parameters.items():
            for statistic, given in [pair for pair in todo if pair[0].only in (None, name)]:
                self.add(statistic, name, self.reduce(statistic, name, jacobians[key], given))

    def jacobians(self, leaf: Leaf, saved: Any) -> dict[str, ParameterJacobian]:
        carried = self.context.known.at[leaf.position].jacobians_at_input
        if carried is not None and leaf is self.carried:
            return carried(leaf.layer, saved)
        return self.context.jacobians(leaf.layer, saved) if leaf.parameters else {}

    def reduce(self, statistic: Statistic, name: str, jacobian: ParameterJacobian, arriving: tuple[Any, ...]) -> Any:
        """Compute a statistic in this pass; rows for each sample are written into the batch's rows."""
        reduction, context = statistic.reduction, self.context
        if not statistic.per_sample or (statistic, name) in self.found:
            return context.reduce(jacobian, reduction, *arriving)
        key, results = (statistic, name), self.block.results
        write = context.known.of_jacobian(jacobian).write_batch if reduction is BATCH else None
        if write is not None:
            return write(jacobian, *arriving, lambda like: results.place(key, self.block.rows, like), context)
        return results.put(key, self.block.rows, context.reduce(jacobian, reduction, *arriving))

    def add(self, statistic: Statistic, name: str, value: Any) -> None:
        before = None if self.once else self.found.get((statistic, name))
        if before is None:
            self.found[statistic, name] = value
        elif statistic.per_sample:
            before += value  # in place, in the batch's rows
        else:
            super().add(statistic, name, value)

    # --------------------------------------------------------------------------------------------------------- carry

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> list[Signals]:
        average = signals.average
        if average is not None:
            average = self.context.average(leaf.layer, saved, average, len(self.block), leaf.output_shape)
        first, *more = self._multiplied(leaf, saved, signals.stack.values)
        below = [Signals(Stack(first, signals.stack.spans), average)]
        return below + [Signals(signals.stack.with_values(mat), average) for mat in more] if more else below

    def _multiplied(self, leaf: Leaf, saved: Any, mat: Array) -> tuple[Array, ...]:
        """Compute Jᵀ mat of each input, in place if the layer supports that and nothing else refers to `mat`."""
        layer, forms = leaf.layer, self.context.known.at[leaf.position]
        shared = self.shared.get(leaf.position, False) or bool(leaf.parameters)  # a statistic may be a view of them
        needed = shared or (self.curved and residual_column_count(self.plan, leaf))  # r needs the gradient
        back = None
        if forms.in_place and not needed:
            back = forms.in_place(layer, saved, mat)
        if back is None:
            back = forms.carry(layer, saved, mat, self.context) if forms.carry else layer.mjp(saved, mat)
        parts = back if isinstance(back, tuple) else (back,)
        for source, part in zip(leaf.sources, parts, strict=True):
            # An unknown function may have stored a reference to its argument or its result.
            alias = parts is back or (shared and array_module(mat).may_share_memory(part, mat))
            self.shared[source] = not forms.pure or alias
        return parts

    def _added(self, leaf: Leaf, saved: Any, signals: Signals, into: Function) -> bool:
        """Add Jᵀ mat to the columns at the source in place, if they are there and nothing else refers to them."""
        source = leaf.sources[0]
        if self.curved or source not in self.arrived or self.shared.get(source, True):
            return False
        into(leaf.layer, saved, signals.stack.values, self.arrived[source].stack.values)
        return True

    def meet(self, before: Signals, more: Signals, source: int) -> Signals:
        total = super().meet(before, more, source)
        self.shared[source] = False  # the sum is a new array
        return total

    # -------------------------------------------------------------------------------------------------------- routed

    def _extract_routed(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
        """Extract squares from routed columns where that is faster, all else at the output; return its signals."""
        layer, context = leaf.layer, self.context
        jacobians = self.jacobians(leaf, saved)
        arriving, todo = self.arriving(leaf, signals), self._todo(leaf)

        def quicker(statistic: Statistic) -> bool:
            columns = arriving[statistic.signal][0]
            return is_faster(leaf, len(columns), columns.shape[2:], context)

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
        named = [(key, name, statistic) for key, name in leaf.parameters.items() for statistic in self.plan.statistics]
        return [(key, statistic) for key, name, statistic in named if statistic.only in (None, name)]

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
            self.at = passed, stack
            (mat,) = self._multiplied(passed, saved, stack.values)
            stack = stack.with_values(mat)
        return replace(signals, stack=stack)
