"""A record of the sweep: the signals that arrive at each layer, the statistics extracted there, the signals after it.

All shapes and counts are recorded while a real sweep runs; no second model predicts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, on_device_of
from gbackprop.checks import positive
from gbackprop.engine.spans import SpanSweep, spans
from gbackprop.explanation.figure import draw
from gbackprop.explanation.steps import Carried, Extracted, Step
from gbackprop.explanation.text import write
from gbackprop.layers.base import Layer, Leaf
from gbackprop.layers.jacobian import ParameterJacobian
from gbackprop.losses.base import Loss
from gbackprop.plan import Plan, make_plan
from gbackprop.quantities.base import Quantity, Statistic
from gbackprop.reference import Found, Sweep
from gbackprop.signals import RESIDUAL, MonteCarlo, Signal, Signals


@dataclass(frozen=True)
class Explanation:
    """A recorded sweep: `str` returns it as text, `figure` draws it."""

    network: str
    loss: str
    scale: str
    steps: list[Step]

    def __str__(self) -> str:
        return write(self.network, self.loss, self.scale, self.steps)

    def figure(self) -> Any:
        """Draw a matplotlib figure of the sweep, in the style of the paper's diagrams.

        Raises
        ------
        ImportError
            If matplotlib is not installed (it is in the extra ``experiments``).
        """
        return draw(self.loss, self.scale, self.steps)


def explain(
    network: Layer,
    loss: Loss,
    x: Array,
    y: Array,
    *quantities: Quantity,
    rng: int | np.random.Generator | None = None,
    training: bool = False,
    column_block: int | None = None,
) -> Explanation:
    """Run the sweep that `backward` would run, and record each step.

    Parameters
    ----------
    network, loss, x, y, *quantities, rng, training, column_block
        As for `gbackprop.backward`.

    Returns
    -------
    Explanation
        ``print`` it, or call its ``figure()``.

    Raises
    ------
    TypeError, ValueError
        As `gbackprop.backward` does.
    """
    if column_block is not None:
        positive("column_block", column_block)
    steps: list[Step] = []
    with on_device_of(x):
        plan = make_plan(network, loss, x, y, quantities, rng, training)
        wanted: dict[Statistic, list[str]] = {plan.statistics[0]: ["gradient"]}
        for quantity, statistics in plan.needs:
            for statistic in statistics:
                wanted.setdefault(statistic, []).append(quantity.name)
        output, saved = Sweep(plan).forward(x)
        found: Found = {}
        for span in spans(plan, column_block):
            _Recorder(plan, span, found, steps, wanted).backward(output, y, saved)
    scale = f"N = {plan.scale.batch}, R = {plan.scale.factor:.6g}, {x.dtype.name}"
    return Explanation(repr(network), repr(loss), scale, steps)


class _Recorder(SpanSweep):
    """A sweep that records each step."""

    def __init__(
        self, plan: Plan, span: slice, found: Found, steps: list[Step], wanted: dict[Statistic, list[str]]
    ) -> None:
        super().__init__(plan, span, found)
        self.steps, self.wanted = steps, wanted
        self.number = sum(step.name == "loss" for step in steps)

    def start(self, output: Array, target: Array) -> Signals:
        signals = super().start(output, target)
        self.steps.append(Step("loss", repr(self.plan.loss), self.number, appended=_carried(signals)))
        return signals

    def visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
        formula = leaf.layer.formulas["forward"]
        self.steps.append(Step(leaf.name, repr(leaf.layer), self.number, _carried(signals), forward=formula))
        return super().visit(leaf, saved, signals)

    def reduce(self, statistic: Statistic, name: str, jacobian: ParameterJacobian, arriving: tuple[Any, ...]) -> Any:
        value = super().reduce(statistic, name, jacobian, arriving)
        if value is not None:  # a bias has no input factor
            signal = None if statistic.signal is None else label(statistic.signal)
            named = (name, statistic.reduction.name, statistic.reduction.text, signal)
            self.steps[-1].extracted.append(Extracted(*named, tuple(self.wanted[statistic]), tuple(value.shape)))
        return value

    def append(self, leaf: Leaf, saved: Any, signals: Signals, below: Signals) -> Signals:
        after, step = super().append(leaf, saved, signals, below), self.steps[-1]
        step.carries, step.leaving_shape = leaf.layer.formulas["mjp"], below.stack.values.shape
        if after is not below:
            new = after.stack.values[len(below.stack.values) :]
            step.appended.append(Carried(RESIDUAL.name, new.shape, new.nbytes))
        return after


def label(signal: Signal) -> str:
    """Return a signal's name, distinct from those of others of its kind."""
    return f"mc (M = {signal.mc_samples})" if isinstance(signal, MonteCarlo) else signal.name


def _carried(signals: Signals) -> list[Carried]:
    found = [Carried(label(s), columns.values.shape, columns.values.nbytes) for s, columns in signals.stack]
    if signals.average is not None:
        found.append(Carried("average", signals.average.shape, signals.average.nbytes))
    return found
