"""The plain sweep for a span of columns, so that the columns of a call can be processed in several passes.

All columns but the gradient's are numbered in the order of the sweep: first those that start at the loss, then those
of each layer's residual. A pass carries the gradient and the columns of one span.
"""

from __future__ import annotations

from math import prod
from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.residual import Factored
from gbackprop.calculus.signals import (
    ALL,
    AVERAGE,
    EXACT,
    GRADIENT,
    RESIDUAL,
    SAMPLES,
    Columns,
    MonteCarlo,
    Signal,
    Signals,
)
from gbackprop.plain.branching import Arriving, Found
from gbackprop.plain.coupling import of_one_sample
from gbackprop.plain.flow import residual_width
from gbackprop.plain.plan import Plan
from gbackprop.plain.reference import GraphSweep


def loss_column_count(plan: Plan, signal: Signal) -> int:
    """Return the number of columns of a signal that start at the loss."""
    if signal == EXACT:
        return plan.loss.columns(plan.output_shape) * plan.starts(None)
    if signal == SAMPLES:
        return plan.scale.batch
    return signal.mc_samples if isinstance(signal, MonteCarlo) else 0


def residual_column_count(plan: Plan, leaf: Leaf) -> int:
    """Return the number of residual columns that start at a layer."""
    if RESIDUAL not in plan.signals or leaf.lowest:
        return 0
    own = residual_width(leaf, plan.scale.batch) + sum(plan.flow.mixed(leaf).values())
    return own * plan.starts(leaf)


def column_count(plan: Plan) -> int:
    """Return the number of columns in addition to the gradient's."""
    at_loss = sum(loss_column_count(plan, signal) for signal in plan.signals)
    if RESIDUAL not in plan.signals:
        return at_loss
    return at_loss + sum(residual_column_count(plan, leaf) for leaf in plan.leaves)


def spans(plan: Plan, column_block: int | None) -> list[slice]:
    """Return the span of columns of each pass; by default a single pass."""
    total = column_count(plan)
    step = column_block or max(total, 1)
    return [slice(start, min(start + step, total)) for start in range(0, max(total, 1), step)]


class SpanSweep(GraphSweep):
    """The backward sweep with the gradient and a span of the other columns; it adds to statistics of earlier passes."""

    rows = ALL
    """The samples of the batch that the sweep processes."""

    def __init__(self, plan: Plan, span: slice, found: Found) -> None:
        super().__init__(plan)
        self.span, self.found = span, found
        self.curved = RESIDUAL in plan.signals
        self.first = span.start == 0  # extracts also what depends on no column but the gradient's
        self.seen = 0

    def take(self, width: int) -> slice:
        """Return which of the next `width` columns are in the span."""
        start, self.seen = self.seen, self.seen + width
        low = min(max(self.span.start - start, 0), width)
        return slice(low, max(low, min(self.span.stop - start, width)))

    def start(self, output: Array, target: Array) -> Signals:
        signals = super().start(output, target)
        return signals if self.first else Signals(signals.stack)

    def loss_columns(self, signal: Signal, output: Array, target: Array) -> Array | None:
        if signal is GRADIENT:
            return None
        some = self.take(loss_column_count(self.plan, signal))
        if some.start == some.stop:
            return None
        if self.plan.meeting and not isinstance(signal, MonteCarlo):
            return of_one_sample(self.plan, signal, output, target, some)
        if signal == EXACT:
            values = self.plan.loss.hessian_sqrt(output, target, some)
            if values.shape != (some.stop - some.start, *output.shape):
                expected = (some.stop - some.start, *output.shape)
                raise ValueError(f"{self.plan.loss!r}, hessian_sqrt: expected shape {expected}, got {values.shape}")
            return values
        assert isinstance(signal, MonteCarlo)
        targets = self.plan.targets_of(signal, output, self.rows)
        share = ((some.stop - some.start) / targets.shape[0]) ** 0.5  # M counts all targets, not only those in the span
        return self.plan.loss.hessian_sqrt_mc(output, targets[some], target) * share

    def append(self, leaf: Leaf, saved: Any, signals: Signals, below: list[Signals]) -> list[Signals]:
        """Append the columns of this pass, if any starts at this layer."""
        if not self.curved:
            return below
        width = residual_column_count(self.plan, leaf)
        return super().append(leaf, saved, signals, below) if width and self.starts(width) else below

    def starts(self, width: int) -> bool:
        """Return whether one of the next `width` columns is in the span; if none is, they are passed."""
        if self.seen < self.span.stop and self.span.start < self.seen + width:
            return True
        self.seen += width
        return False

    def factors(self, leaf: Leaf, residual: Any, origin: Any) -> list[Columns]:
        width = residual.width if isinstance(residual, Factored) else prod(leaf.input_shape)
        return self.some_factors(leaf, residual, origin, self.take(width * self.plan.starts(leaf)))

    def arriving(self, leaf: Leaf, signals: Signals) -> Arriving:
        """Return the arguments of reductions for each signal; later passes have only their own columns."""
        arriving = super().arriving(leaf, signals)
        if not self.first:
            for signal in (GRADIENT, AVERAGE, None):
                arriving.pop(signal, None)
        return arriving
