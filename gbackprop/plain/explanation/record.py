"""A record of the plain sweep: what arrives at each layer, what is extracted, carried and appended, how it finishes.

All shapes and counts are recorded while `gbackprop.reference` computes; no second model predicts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbackprop.array import Array, on_device_of
from gbackprop.base.checks import batch_of
from gbackprop.calculus.layer import INPUT, Layer, Leaf
from gbackprop.calculus.residual import FactoredLayer
from gbackprop.calculus.signals import RESIDUAL, MonteCarlo, Signal, Signals
from gbackprop.losses.base import Loss
from gbackprop.plain.branching import Found
from gbackprop.plain.explanation.figure import draw
from gbackprop.plain.explanation.steps import DENSE, FACTORED, MIXED, PAIRED, STARTS, Carried, Extracted, Finished, Step
from gbackprop.plain.explanation.text import write
from gbackprop.plain.observer import Observer, observed
from gbackprop.plain.plan import GRADIENT_SUM, Plan, make_plan
from gbackprop.plain.reference import GraphSweep, finish
from gbackprop.quantities.base import Quantity, Statistic
from gbackprop.quantities.result import Result
from gbackprop.quantities.rows import in_rows


@dataclass(frozen=True)
class Explanation:
    """A recorded sweep: `str` returns it as text, `figure` draws it.

    Attributes
    ----------
    network, loss, scale : str
        The network and the loss as text; N, R and the dtype.
    steps : list of Step
        The loss and the layers, in the order of the sweep.
    finished : list of Finished
        The gradient and the quantities, in the order in which they were asked for.
    """

    network: str
    loss: str
    scale: str
    steps: list[Step]
    finished: list[Finished]

    def __str__(self) -> str:
        return write(self.network, self.loss, self.scale, self.steps, self.finished)

    def figure(self) -> Any:
        """Draw a matplotlib figure of the sweep, in the style of the paper's diagrams, on at most a page (A4)."""
        return draw(self.loss, self.scale, self.steps)


def explain(
    network: Layer,
    loss: Loss,
    x: Array,
    y: Array,
    *quantities: Quantity,
    rng: int | np.random.Generator | None = None,
    training: bool = False,
    wrt: str | Sequence[str] | None = None,
) -> Explanation:
    """Run the plain sweep, that of `gbackprop.reference`, and record each step.

    Parameters
    ----------
    network, loss, x, y, *quantities, rng, training, wrt
        As for `gbackprop.reference`: the whole batch and all columns at once, so a few samples are enough.

    Returns
    -------
    Explanation
        ``print`` it, or call its ``figure()``.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, TooLargeError
        As `gbackprop.reference` does.
    """
    x = batch_of(network, x)
    with on_device_of(x):
        plan = make_plan(network, loss, x, y, quantities, rng, training, wrt)
        sweep = GraphSweep(plan)
        recorder = Recorder(plan, sweep.found)
        output, saved = sweep.forward(x)
        observed(sweep, recorder).backward(output, y, saved)
        result = finish(plan, loss.values(output, y).sum(), output, sweep.found)
    scale = f"N = {plan.scale.batch}, R = {plan.scale.factor:.6g}, {plan.scale.dtype}"
    return Explanation(repr(network), repr(loss), scale, recorder.steps, _finished(plan, result, sweep.found))


class Recorder(Observer):
    """An observer that writes down each step of the plain sweep.

    Parameters
    ----------
    plan : Plan
    found : dict
        The statistics that the sweep has found so far.
    """

    def __init__(self, plan: Plan, found: Found) -> None:
        self.plan, self.found = plan, found
        self.known: set[tuple[Statistic, str]] = set()
        self.steps: list[Step] = []
        self.wanted: dict[Statistic, list[str]] = {GRADIENT_SUM: ["gradient"]}
        for quantity, statistics in plan.needs:
            for statistic in statistics:
                self.wanted.setdefault(statistic, []).append(quantity.name)

    def at_loss(self, signals: Signals) -> None:
        self.steps.append(Step("loss", repr(self.plan.loss), appended=_carried(signals)))

    def at_layer(self, leaf: Leaf, arriving: Signals, leaving: Sequence[Signals]) -> None:
        forward, sources = leaf.layer.formulas["forward"], self._names(leaf)
        step = Step(leaf.name, repr(leaf.layer), _carried(arriving), forward=forward, sources=sources)
        self.steps.append(step)
        step.extracted += self._extracted()
        shared = [name for name in leaf.parameters.values() if self.plan.flow.uses[name] > 1]
        step.shared += [f"{name}: {self._uses(leaf, name)}" for name in shared]
        if not leaving:
            return
        count = len(arriving.stack.values)
        step.carries = leaf.layer.formulas["mjp"]
        step.leaving_shapes = [(count, *each.stack.values.shape[1:]) for each in leaving]
        step.average_shape = None if leaving[0].average is None else leaving[0].average.shape
        if len(new := leaving[0].stack.values[count:]):
            step.appended.append(Carried(RESIDUAL.name, new.shape, new.nbytes))
            step.residual = _starts(leaf.layer)

    def _names(self, leaf: Leaf) -> tuple[str, ...]:
        """Return where a layer's inputs come from; nothing in a chain."""
        if self.plan.flow.linear(leaf) or leaf.sources == (INPUT,):
            return ()
        return tuple("the input" if s == INPUT else f"layer {self.plan.leaves[s].name}" for s in leaf.sources)

    def _extracted(self) -> Iterator[Extracted]:
        """Yield the statistics that were found since the last step."""
        for (statistic, name), value in self.found.items():
            if (statistic, name) not in self.known and value is not None:  # a bias has no input factor
                signal = None if statistic.signal is None else label(statistic.signal)
                named = (name, statistic.reduction.name, statistic.reduction.text, signal)
                yield Extracted(*named, self._wanted(statistic, name), tuple(value.shape))
        self.known.update(self.found)

    def _wanted(self, statistic: Statistic, name: str) -> tuple[str, ...]:
        """Return what a statistic of a parameter is for; of the input, it stands in for those that have no rows."""
        asked = {each: in_rows(each) if name in self.plan.scale.rows else each for each in self.wanted}
        return tuple(word for each, found in asked.items() if found == statistic for word in self.wanted[each])

    def _uses(self, leaf: Leaf, name: str) -> str:
        """Return what is done with a use of a parameter that has several."""
        places = [each.name for each in self.plan.swept if name in each.parameters.values()]
        if leaf is not next(each for each in self.plan.swept if name in each.parameters.values()):
            return f"columns are collected, and extracted at layer {places[0]}, the last of its {len(places)} uses"
        return f"g is the sum over its uses at layers {', '.join(places)}, for each column before anything is squared"


def _finished(plan: Plan, result: Result, found: Found) -> list[Finished]:
    """Say how each quantity became a result: what returns the very statistic that it got needs no formula."""
    finished = [Finished("gradient", "as extracted", "R Σₙ ∇ℓₙ")]
    for (quantity, statistics), values in zip(plan.needs, result.values, strict=True):
        same = len(statistics) == 1 and all(value is found.get((statistics[0], name)) for name, value in values.items())
        unknown = "as extracted" if same else "by its method finish, whose formula it does not say"
        formula = quantity.finishes or unknown
        finished.append(Finished(quantity.name, formula, getattr(quantity, "scale", "")))
    return finished


def label(signal: Signal) -> str:
    """Return a signal's name, distinct from those of others of its kind."""
    return f"mc (M = {signal.mc_samples})" if isinstance(signal, MonteCarlo) else signal.name


def _carried(signals: Signals) -> list[Carried]:
    found = [Carried(label(s), columns.values.shape, columns.values.nbytes) for s, columns in signals.stack]
    if signals.average is not None:
        found.append(Carried("average", signals.average.shape, signals.average.nbytes))
    return found


def _starts(layer: Layer) -> str:
    """Return the formula of the residual's columns that start at a layer."""
    if layer.curvature == "zero":
        return f"{PAIRED}, r = {MIXED}"
    dense = DENSE
    if isinstance(layer, FactoredLayer):
        dense = PAIRED if layer.bilinear or layer.linear_in else FACTORED
    starts = dense if layer.curvature == "dense" else STARTS[RESIDUAL.name]
    return f"{starts}, r = {layer.formulas.get('residual', 'Σⱼ (∇² yⱼ) gⱼ')}"
