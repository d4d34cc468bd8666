"""The sweep, written out: what arrives at each layer, what is extracted there, what goes on.

All shapes and counts are recorded while a real sweep runs; there is no second model of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, on_device_of
from gbackprop.explanation.figure import draw
from gbackprop.explanation.steps import Carried, Extracted, Step
from gbackprop.explanation.text import write
from gbackprop.layers.base import Layer, Leaf
from gbackprop.layers.jacobian import ParameterJacobian
from gbackprop.losses.base import Loss
from gbackprop.plan import Plan, make_plan
from gbackprop.quantities.base import Quantity, Statistic
from gbackprop.signals import Columns, MonteCarlo, Signal, Signals
from gbackprop.sweep import Block, Found, Plain, sweep


@dataclass(frozen=True)
class Explanation:
    """A recorded sweep: `str` writes it out, `figure` draws it."""

    network: str
    loss: str
    scale: str
    steps: list[Step]

    def __str__(self) -> str:
        return write(self.network, self.loss, self.scale, self.steps)

    def figure(self) -> Any:
        """A matplotlib figure of the sweep, in the manner of the paper's schematics.

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
    """Run the sweep that `backward` would run, and write down what happens in it.

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
    with on_device_of(x):
        plan = make_plan(network, loss, x, y, quantities, rng, training, column_block=column_block)
    steps: list[Step] = []
    wanted: dict[Statistic, list[str]] = {plan.statistics[0]: ["gradient"]}
    for quantity in quantities:
        for statistic in quantity.statistics():
            wanted.setdefault(statistic, []).append(quantity.name)

    class Recording(_Recorder):
        def __init__(self, plan: Plan, block: Block, window: slice, found: Found) -> None:
            super().__init__(plan, block, window, found)
            self.steps, self.wanted = steps, wanted

    sweep(plan, x, y, Block.whole(len(x)), column_block, Recording)
    scale = f"N = {plan.scale.batch}, R = {plan.scale.factor:.6g}, {x.dtype.name}"
    return Explanation(repr(network), repr(loss), scale, steps)


class _Recorder(Plain):
    """A pass that keeps a record of each stop."""

    steps: list[Step]
    wanted: dict[Statistic, list[str]]

    def start(self, output: Array, target: Array) -> Signals:
        signals = super().start(output, target)
        number = sum(step.name == "loss" for step in self.steps)
        self.number = number
        step = Step("loss", repr(self.plan.loss), number, appended=_carried(signals))
        self.steps.append(step)
        return signals

    def visit(self, name: str, layer: Layer, saved: Any, signals: Signals) -> Signals:
        if name not in self.above:
            return signals
        step = Step(name, repr(layer), self.number, _carried(signals), forward=layer.formulas["forward"])
        self.steps.append(step)
        after = super().visit(name, layer, saved, signals)
        if name == self.end:
            return after
        step.carries = layer.formulas["mjp"]
        step.leaving_shape = after.stack.values.shape
        return after

    def extract(self, statistic: Statistic, name: str, jacobian: ParameterJacobian, arriving: tuple[Any, ...]) -> Any:
        value = super().extract(statistic, name, jacobian, arriving)
        if value is not None:  # a bias has no input factor
            signal = None if statistic.signal is None else label(statistic.signal)
            wanted = tuple(self.wanted[statistic])
            self.steps[-1].extracted.append(Extracted(name, statistic.method, signal, wanted, tuple(value.shape)))
        return value

    def residual(self, leaf: Leaf, saved: Any, signals: Signals, window: slice) -> Columns:
        columns = super().residual(leaf, saved, signals, window)
        self.steps[-1].appended.append(Carried("residual", columns.values.shape, columns.values.nbytes))
        return columns


def label(signal: Signal) -> str:
    """A signal's name, told apart from others of its kind."""
    return f"mc (M = {signal.mc_samples})" if isinstance(signal, MonteCarlo) else signal.name


def _carried(signals: Signals) -> list[Carried]:
    found = [Carried(label(s), columns.values.shape, columns.values.nbytes) for s, columns in signals.stack]
    if signals.average is not None:
        found.append(Carried("average", signals.average.shape, signals.average.nbytes))
    return found
