"""The plain sweep through a network that is no chain: some layers have several inputs, some outputs several takers.

Each step is that of `gbackprop.plain.reference.Sweep` but for this: there is one stack of signals for each input of a
layer; what several layers carry to one output is added; and a parameter that is used several times is extracted once,
from all of its uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import INPUT, Leaf
from gbackprop.calculus.mixed import mixed_residual
from gbackprop.calculus.residual import Factored, balanced, paired, residual_columns
from gbackprop.calculus.signals import ALL, AVERAGE, RESIDUAL, Columns, MonteCarlo, Signals
from gbackprop.calculus.walk import add_below, downwards, values_upwards
from gbackprop.plain.coupling import of_one_sample, one_by_one
from gbackprop.plain.plan import Plan
from gbackprop.plain.uses import Uses, added
from gbackprop.quantities.base import Statistic

Found = dict[tuple[Statistic, str], Any]
"""Values of statistics, by statistic and parameter name."""

Arriving = dict[Any, tuple[Any, ...]]
"""The arguments that each signal gives to a reduction: see `Reduction.define`."""


class Branching:
    """The steps of a sweep through any network.

    Parameters
    ----------
    plan : Plan

    Attributes
    ----------
    found : dict
        Values of the statistics, by statistic and parameter name.
    uses : Uses
        The uses of shared parameters, until all are found.
    arrived : dict
        The signals at the outputs of layers that are still to be visited, by position.
    """

    found: Found
    start: Callable[[Array, Array], Signals]

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)  # type: ignore[call-arg]  # the class that has `start`
        self.plan = plan
        self.uses = Uses(plan)
        self.arrived: dict[int, Signals] = {}

    def forward(self, x: Array) -> tuple[Array, list[Any]]:
        """Compute y = f(x₁, …) of each layer from the outputs of its sources; return the last and what each saved."""
        outputs, saved = {INPUT: x}, []
        for leaf, inputs in values_upwards(self.plan.leaves, outputs):
            layer, noise = leaf.layer, self.plan.noise[leaf.position]
            training = self.plan.training and len(inputs) == 1
            y, kept = layer.forward_training(inputs[0], noise) if training else layer.forward(*inputs)
            outputs[leaf.position] = y
            saved.append(kept)
        return y, saved

    def backward(self, output: Array, target: Array, saved: list[Any]) -> None:
        """Sweep from the loss to the lowest layers with parameters; add what several layers carry to one output."""
        arrived = self.arrived = {len(saved) - 1: self.start(output, target)}
        reaches = None if self.plan.chain else self.plan.reaches
        for leaf, signals in downwards(self.plan.swept, arrived):
            if below := self.visit(leaf, saved[leaf.position], signals):
                add_below(leaf, below, arrived, self.meet, reaches)

    def loss_columns(self, signal: Any, output: Array, target: Array) -> Array | None:
        """Compute the columns that start at the loss; where samples meet, those of one sample each."""
        if self.plan.meeting and not isinstance(signal, MonteCarlo):
            return of_one_sample(self.plan, signal, output, target)
        return super().loss_columns(signal, output, target)  # type: ignore[misc]

    def meet(self, before: Signals, more: Signals, source: int) -> Signals:
        """Add what another layer carries to the output of a source."""
        return added(before, more)

    def visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Sequence[Signals]:
        """Extract the statistics at a layer's output, then carry the signals to each of its inputs."""
        self.extract(leaf, saved, signals)
        if leaf.lowest:
            return []
        return self.append(leaf, saved, signals, self.carry(leaf, saved, signals))

    # ------------------------------------------------------------------------------------------------------- extract

    def extract(self, leaf: Leaf, saved: Any, signals: Signals) -> None:
        """Compute each statistic of each parameter; of one that is used several times, at the last of its uses."""
        jacobians = self.jacobians(leaf, saved)
        for key, name in leaf.parameters.items():
            self.extract_use(leaf, name, jacobians[key], signals)

    def extract_use(self, leaf: Leaf, name: str, jacobian: ParameterJacobian, signals: Signals) -> None:
        """Compute each statistic of a parameter, if this is the last of its uses."""
        for joined, stack, todo in self.uses.add(name, jacobian, signals.stack):
            self.reduce_all(name, joined, todo, self.arriving(leaf, Signals(stack, signals.average)))

    def jacobians(self, leaf: Leaf, saved: Any) -> dict[str, ParameterJacobian]:
        """Return the Jacobian of each parameter of a layer."""
        return leaf.layer.parameter_jacobians(saved) if leaf.parameters else {}

    def arriving(self, leaf: Leaf, signals: Signals) -> Arriving:
        """Return the arguments of reductions for each signal."""
        arriving: Arriving = {None: (), AVERAGE: (signals.average, leaf.output_shape)}
        start, stack = 0, signals.stack
        if len(stack.spans) == 1:  # the stack itself, so that forms can see that two of them got the same columns
            signal, _, sign, origins = stack.spans[0]
            columns = balanced(Columns(stack.values, sign, origins))
            arriving[signal] = (columns.values, columns.sign)
            return arriving
        for signal, width, sign, origins in stack.spans:
            columns = balanced(Columns(stack.values[start : start + width], sign, origins))
            arriving[signal] = (columns.values, columns.sign)
            start += width
        return arriving

    def reduce_all(self, name: str, jacobian: ParameterJacobian, todo: Sequence[Statistic], arriving: Arriving) -> None:
        """Compute statistics of a parameter by their definitions."""
        for statistic in todo:
            if statistic.signal in arriving and statistic.only in (None, name):
                found = statistic.reduction.define(jacobian, *arriving[statistic.signal])
                self.add(statistic, name, self.rounded(statistic, found))

    def add(self, statistic: Statistic, name: str, value: Any) -> None:
        """Add a value to that of other columns."""
        before = self.found.get((statistic, name))
        self.found[statistic, name] = value if before is None else before + value

    def rounded(self, statistic: Statistic, found: Any) -> Any:
        """Return a statistic in the dtype of the call: of pairs of columns, float64 was added up."""
        dtype = self.plan.scale.dtype
        wide = statistic.signal == RESIDUAL and getattr(found, "dtype", dtype) != dtype
        return found.astype(dtype) if wide else found

    # ---------------------------------------------------------------------------------------------- carry and append

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> list[Signals]:
        """Multiply every column by the transposed Jacobian of each input; Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ, of the only input."""
        below, average = leaf.layer.mjp(saved, signals.stack.values), signals.average
        if average is not None:
            average = leaf.layer.average(saved, average, len(signals.gradient), leaf.output_shape)
        parts = below if isinstance(below, tuple) else (below,)
        return [Signals(signals.stack.with_values(values), average) for values in parts]

    def append(self, leaf: Leaf, saved: Any, signals: Signals, below: list[Signals]) -> list[Signals]:
        """Append the columns of the layer's residual, ∇²(gᵀ f) over all inputs, with g the gradient at the output.

        If a parameter's input depends on another use of it, there is a residual of both, ∂²(gᵀ f) / ∂p ∂x.
        """
        if RESIDUAL not in self.plan.signals:
            return below
        if leaf.curved:
            pieces = self.factors(leaf, leaf.layer.residual(saved, signals.gradient), leaf.position)
            if len(pieces[0].values):  # none, where the pairs of the span belong to another
                below = [each.append(RESIDUAL, piece) for each, piece in zip(below, pieces, strict=True)]
        for key in self.plan.flow.mixed(leaf):
            residual = mixed_residual(leaf, saved, key, signals.gradient)
            direct, on_input = self.factors(leaf, residual, (leaf.position, key))
            if len(direct.values):
                self.uses.add_direct(leaf.parameters[key], direct)
                below = [below[0].append(RESIDUAL, on_input)]
        return below

    def factors(self, leaf: Leaf, residual: Any, origin: Any) -> list[Columns]:
        """Factor a residual: the piece of each column at each input, or at the parameter and the input."""
        return self.some_factors(leaf, residual, origin, ALL)

    def some_factors(self, leaf: Leaf, residual: Any, origin: Any, span: slice) -> list[Columns]:
        """Factor a residual into columns of which `span` says which to form; where samples meet, one sample each."""
        number = self.plan.starts(leaf)
        form = partial(residual_factors, leaf, residual, origin)
        if number > 1:
            return one_by_one(form, span, number)
        is_paired = isinstance(residual, Factored) and residual.pairs is not None
        return paired(residual, origin, span) if is_paired else form(span)


def residual_factors(leaf: Leaf, residual: Array | Factored, origin: Any, span: slice) -> list[Columns]:
    """Factor a residual into columns that start at `origin`; `span` says which of them to form."""
    if isinstance(residual, Factored):
        pieces, sign = residual.columns(span)
        return [Columns(values, sign, ((origin, len(values)),)) for values in pieces]
    columns = residual_columns(residual, leaf.input_shape, span)
    return [replace(columns, origins=((origin, len(columns.values)),))]
