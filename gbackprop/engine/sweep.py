"""The fast sweep over one block of samples: the plain sweep with faster steps.

It overrides the steps at a layer: *extract* uses registered forms, and writes rows directly into the results; *carry*
uses registered forms, in place where nothing else refers to the columns. The plan's visits say what is extracted
where, see `rewrites`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gbackprop.array import Array, array_module
from gbackprop.base.errors import naming
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import RESIDUAL, Signals, Stack
from gbackprop.calculus.walk import over_samples
from gbackprop.engine.blocks import Cut
from gbackprop.engine.forward import forward
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import Context, Function, NetworkForms
from gbackprop.engine.rewrites import Visit
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
    """A block of samples of a batch."""

    rows: slice
    results: SampleRows  # storage of results with a row for each sample

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
    """The sweeps of a call, by one plan."""

    plan: Plan  # with a `Visit` for each layer that the sweep visits
    x: Array
    y: Array
    cut: Cut
    known: NetworkForms  # the fast forms of the network's layers
    reuse: bool = True  # whether memory of earlier calls is used again
    observer: Observer | None = None  # of all backward sweeps
    updates: Any = None  # a list, which is filled: of layers' buffers, at the end of a call


def sweep_block(run: Execution, block: SampleBlock, memory: Allocator) -> Part:
    """Run the forward pass of a block once, and the backward sweep once for each span of columns."""
    plan, target, context = run.plan, run.y[block.rows], Context(run.known.forms, memory, run.known)
    context.summed = plan.statistics == (GRADIENT_SUM,) and not plan.chain
    found: Found = {}
    with naming(lambda: f"forward pass of {len(block)} samples"):
        output, saved = forward(plan, run.x[block.rows], block.rows, context)
    if plan.training and plan.meeting:  # there is one block
        observing = [leaf for leaf in plan.leaves if leaf.layer.mixes and leaf.layer.observe]
        run.updates.extend(filter(None, [leaf.layer.observe(saved[leaf.position]) for leaf in observing]))
    for span in run.cut.spans:
        sweep = FastSweep(run, block, span, found, context)
        (observed(sweep, run.observer) if run.observer else sweep).run(output, target, saved)
    shared = array_module(output).may_share_memory(output, run.x)  # a result is nobody else's
    block.results.put(OUTPUT, block.rows, output.copy() if shared else output)
    return Part(plan.loss.values(output, target).sum(), found)


class FastSweep(SpanSweep):
    """The backward sweep for a block of samples and a span of columns, by registered forms."""

    def __init__(self, run: Execution, block: SampleBlock, span: slice, found: Found, context: Context) -> None:
        super().__init__(run.plan, span, found)
        self.block, self.rows, self.context = block, block.rows, context
        self.once = run.plan.chain and not run.cut.spans[1:]  # each statistic is found once
        self.gradient_alone = run.plan.statistics == (GRADIENT_SUM,)
        self.shared: dict[int, bool] = {}  # whether anything else may refer to the columns at a layer's output
        self.at: tuple[Leaf, Stack] | None = None  # the current step, None at the loss
        self.made: dict[int, dict[str, ParameterJacobian]] = {}  # of layers that are still to be visited

    def run(self, output: Array, target: Array, saved: list[Any]) -> None:
        """Sweep from the loss to the lowest layers with parameters; an error says at which step memory ran out."""
        self.saved = saved
        with naming(self._doing):
            self.backward(output, target, saved)

    def visit(self, leaf: Any, saved: Any, signals: Signals) -> Sequence[Signals]:
        self.at = leaf, signals.stack
        context = self.context
        if context.sums:
            context.sums.clear()
        context.curvature = context.swapped = (None, None, None)
        context.squares = (None, None, None, None)
        forms = context.known.at[leaf.position]
        if leaf.todo or leaf.tied:
            if forms.jacobians_at_input is not None:
                return self._carried_first(leaf, saved, signals)
            self.extract(leaf, saved, signals)
        if leaf.wanted is not None:
            signals = replace(signals, stack=signals.stack.only(leaf.wanted))
        if leaf.lowest or (forms.add_to is not None and self._added(leaf, saved, signals, forms.add_to)):
            return []
        below = self.carry(leaf, saved, signals)
        return self.append(leaf, saved, signals, below) if self.curved else below

    def _carried_first(self, leaf: Visit, saved: Any, signals: Signals) -> list[Signals]:
        """Carry the signals to the layer's input, then extract there the statistics of its parameters."""
        below = self.carry(leaf, saved, signals)
        self.shared[leaf.sources[0]] = True  # a statistic may be a view of them
        self.extract(leaf, saved, below[0])
        return below

    def _doing(self) -> str:
        """Describe the current step for an error message."""
        if self.at is None:
            return f"columns of {self.plan.loss!r} for {len(self.block)} samples"
        leaf, stack = self.at
        return f"{leaf}, with {len(stack.values)} columns of {len(self.block)} samples"

    # ------------------------------------------------------------------------------------------------------- extract

    def extract(self, leaf: Any, saved: Any, signals: Signals) -> None:
        form = self.context.known.at[leaf.position].gradients
        if form is not None and self.gradient_alone and not leaf.tied:
            sums = form(leaf.layer, saved, signals.stack.values, self.context)
            for key, name, statistic in leaf.todo:
                self.found[statistic, name] = sums[key]
            return
        jacobians, arriving = self.jacobians(leaf, saved), self.arriving(leaf, signals)
        for key, name, statistic in leaf.todo:
            given = arriving.get(statistic.signal)
            if given is not None:
                self.add(statistic, name, self.reduce(statistic, name, jacobians[key], given))
        for key, name in leaf.tied:
            self.extract_use(leaf, name, jacobians[key], signals)

    def jacobians(self, leaf: Any, saved: Any) -> dict[str, ParameterJacobian]:
        """Return the Jacobian of each parameter that is extracted at a layer."""
        if not leaf.passed:
            made = self.made.pop(leaf.position, None)
            at_input = self.context.known.at[leaf.position].jacobians_at_input
            return made or (at_input(leaf.layer, saved) if at_input else self._jacobians(leaf))
        known, route, (*passed, lower) = self.context.known.at, None, leaf.passed
        for each in passed:
            form: Any = known[each.position].routes
            route = form(each.layer, self.saved[each.position], route, self.context)
        plain = self.made[lower.position] = self._jacobians(lower)
        return known[lower.position].routed.jacobians(lower.layer, plain, route, self.context)

    def _jacobians(self, leaf: Leaf) -> dict[str, ParameterJacobian]:
        """Return the Jacobians at a layer's own output, by their form if there is one."""
        form, saved = self.context.known.at[leaf.position].jacobians, self.saved[leaf.position]
        return form(leaf.layer, saved, self.context) if form else leaf.layer.parameter_jacobians(saved)

    def reduce(self, statistic: Statistic, name: str, jacobian: ParameterJacobian, arriving: tuple[Any, ...]) -> Any:
        """Compute a statistic in this pass; rows for each sample are written into the batch's rows."""
        reduction, context = statistic.reduction, self.context
        if not statistic.per_sample or (statistic, name) in self.found:
            return self.rounded(statistic, context.reduce(jacobian, reduction, *arriving))
        key, results = (statistic, name), self.block.results
        batch = reduction is BATCH and statistic.signal != RESIDUAL  # whose columns may be of another dtype
        write = context.known.of_jacobian(jacobian).write_batch if batch else None
        if write is not None:
            return write(jacobian, *arriving, lambda like: results.place(key, self.block.rows, like), context)
        found = self.rounded(statistic, context.reduce(jacobian, reduction, *arriving))
        return results.put(key, self.block.rows, found)

    def reduce_all(self, name: str, jacobian: ParameterJacobian, todo: Sequence[Statistic], arriving: Arriving) -> None:
        """Compute statistics of a parameter that is used several times."""
        for statistic in todo:
            if statistic.signal in arriving and statistic.only in (None, name):
                self.add(statistic, name, self.reduce(statistic, name, jacobian, arriving[statistic.signal]))

    def add(self, statistic: Statistic, name: str, value: Any) -> None:
        """Add a value to that of earlier passes."""
        before = None if self.once else self.found.get((statistic, name))
        if before is None:
            self.found[statistic, name] = value
        elif statistic.per_sample:
            before += value  # in place, in the batch's rows
        else:
            self.found[statistic, name] = before + value

    # --------------------------------------------------------------------------------------------------------- carry

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> list[Signals]:
        """Multiply all columns by Jᵀ of each input, in place if the layer supports that and nothing else has them."""
        average = signals.average
        if average is not None:
            average = self.context.average(leaf.layer, saved, average, len(self.block), leaf.output_shape)
        mat, spans = signals.stack.values, signals.stack.spans
        layer, forms = leaf.layer, self.context.known.at[leaf.position]
        shared = self.shared.get(leaf.position, False) or bool(leaf.parameters)  # a statistic may be a view of them
        needed = shared or (self.curved and residual_column_count(self.plan, leaf))  # r needs the gradient
        back, below = None, []
        if forms.in_place and not needed:
            back = forms.in_place(layer, saved, mat)
        if back is None:
            back = forms.carry(layer, saved, mat, self.context) if forms.carry else layer.mjp(saved, mat)
        parts = back if isinstance(back, tuple) else (back,)
        for source, part in zip(leaf.sources, parts, strict=True):
            # An unknown function may have stored a reference to its argument or its result.
            if self.context.summed:
                part = over_samples(self.plan.leaves, source, part)
            alias = parts is back or (shared and array_module(mat).may_share_memory(part, mat))
            self.shared[source] = not forms.pure or alias
            below += [Signals(Stack(part, spans), average)]
        return below

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
