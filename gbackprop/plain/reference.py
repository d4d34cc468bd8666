"""The plain sweep: how one batch becomes the gradient and every quantity, without optimizations.

The forward pass comes first. The signals start at the loss; the factor R enters there and nowhere else. Then, for each
layer from output to input: *extract* the statistics of its parameters, *carry* the signals to its input, *append* the
columns of its residual. At the end each quantity is a formula over the statistics. `gbackprop.backward` does the same
in blocks, with threads and fast forms of many steps, and is checked against this sweep.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gbackprop.array import Array, on_device_of
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.residual import residual_columns
from gbackprop.calculus.signals import AVERAGE, EXACT, GRADIENT, RESIDUAL, Columns, MonteCarlo, Signals, Stack
from gbackprop.losses.base import Loss
from gbackprop.plain import GRADIENT_SUM, SHIPPED, Plan, batch_of, complete, copied, plan_of, weighted
from gbackprop.plain.branching import Arriving, Branching, Found
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result
from gbackprop.quantities.rows import with_rows


def reference(
    network: Layer, loss: Loss, x: Array, y: Array, *quantities: Quantity,
    rng: int | np.random.Generator | None = None, training: bool = False, sample_weight: Any = None, wrt: Any = None,
) -> Result:  # fmt: skip
    """Compute what `gbackprop.backward` computes by the plain sweep, to read and to check against.

    Parameters
    ----------
    network, loss, x, y, *quantities, rng, training, sample_weight, wrt
        As for `gbackprop.backward`.

    Returns
    -------
    Result
        That of `gbackprop.backward`, up to rounding.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, TooLargeError
        As `gbackprop.backward` does.
    """
    x, (loss, y) = batch_of(network, x), (loss, y) if sample_weight is None else weighted(loss, y, sample_weight)
    with on_device_of(x):
        plan = plan_of(network, loss, x, quantities, training, wrt).with_batch(x, y, rng, first=True)
        # of a copy: where layers only move numbers, the output has the memory of x
        return complete(plan, x, run(plan, x.copy(), y), lambda following: run(following, x, y))


def run(plan: Plan, x: Array, y: Array) -> Result:
    """Run one forward pass and one backward sweep."""
    sweep = Sweep(plan) if plan.chain else GraphSweep(plan)
    output, saved = sweep.forward(x)
    sweep.backward(output, y, saved)
    return finish(plan, plan.loss.values(output, y).sum(), output, sweep.found)


class AtLoss:
    """The start of a sweep: the signals at the loss.

    Parameters
    ----------
    plan : Plan

    Attributes
    ----------
    found : dict
        Values of the statistics that the sweep computes, by statistic and parameter name.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.found: Found = {}

    def start(self, output: Array, target: Array) -> Signals:
        """Compute the signals at the loss: R ∇ℓₙ, √R Sₙ, √(R/(c M)) ∇ℓ(fₙ, ŷₙₘ) and R Σₙ ∇²ℓₙ."""
        loss, factor = self.plan.loss, self.plan.scale.factor
        loss.check_output(output)
        parts = [(GRADIENT, Columns(loss.gradients(output, target)[None] * factor))]
        for signal in self.plan.signals:
            if (columns := self.loss_columns(signal, output, target)) is not None:
                parts.append((signal, Columns(columns * factor**0.5)))
        average = loss.hessian_sum(output, target) * factor if AVERAGE in self.plan.signals else None
        return Signals(Stack.of(parts), average)

    def loss_columns(self, signal: Any, output: Array, target: Array) -> Array | None:
        """Compute the columns that start at the loss, without R, shape (V, N, *out), or None if there are none."""
        if signal == EXACT:
            return self.plan.loss.hessian_sqrt(output, target)
        if isinstance(signal, MonteCarlo):
            return self.plan.loss.hessian_sqrt_mc(output, self.plan.targets_of(signal, output, slice(None)), target)
        return None


class Sweep(AtLoss):
    """One forward pass and one backward sweep through a chain of layers, for the whole batch and all columns."""

    def forward(self, x: Array) -> tuple[Array, list[Any]]:
        """Compute xᵢ₊₁ = fᵢ(xᵢ); return the output (N, *out) and what each layer saved for the backward sweep."""
        saved = []
        for leaf, noise in zip(self.plan.leaves, self.plan.noise, strict=True):
            layer = leaf.layer
            x, kept = layer.forward_training(x, noise) if self.plan.training else layer.forward(x)
            saved.append(kept)
        return x, saved

    def backward(self, output: Array, target: Array, saved: list[Any]) -> None:
        """Sweep from the loss to the lowest layer with parameters."""
        signals = self.start(output, target)
        for leaf in reversed(self.plan.swept):
            signals = self.visit(leaf, saved[leaf.position], signals)

    def visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
        """Extract the statistics at a layer's output, then carry the signals to its input."""
        self.extract(leaf, saved, signals)
        if leaf.lowest:  # nothing below has parameters
            return signals
        return self.append(leaf, saved, signals, self.carry(leaf, saved, signals))

    def extract(self, leaf: Leaf, saved: Any, signals: Signals) -> None:
        """Compute each statistic of each parameter by its definition."""
        arriving: Arriving = {None: (), AVERAGE: (signals.average, leaf.output_shape)}
        arriving |= {signal: (columns.values, columns.sign) for signal, columns in signals.stack}
        jacobians = leaf.layer.parameter_jacobians(saved) if leaf.parameters else {}
        for key, name in leaf.parameters.items():
            for each in self.plan.extracted[name]:
                if each.signal in arriving and each.only in (None, name):
                    self.found[each, name] = each.reduction.define(jacobians[key], *arriving[each.signal])

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
        """Multiply every column by Jᵀ, and compute Ḡ ← 1/N Σₙ Jₙᵀ Ḡ Jₙ."""
        stack, average = Stack(leaf.layer.mjp(saved, signals.stack.values), signals.stack.spans), signals.average
        if average is not None:
            average = leaf.layer.average(saved, average, len(signals.gradient), leaf.output_shape)
        return Signals(stack, average)

    def append(self, leaf: Leaf, saved: Any, signals: Signals, below: Signals) -> Signals:
        """Append the columns of the layer's residual r = Σⱼ (∇² yⱼ) gⱼ, with g the gradient at the output."""
        if RESIDUAL not in self.plan.signals or leaf.layer.curvature == "zero":
            return below
        residual = leaf.layer.residual(saved, signals.gradient)
        return below.append(RESIDUAL, residual_columns(residual, leaf.input_shape))


class GraphSweep(Branching, AtLoss):
    """The sweep through any network."""


def finish(plan: Plan, loss: Array, output: Array, found: Found) -> Result:
    """Compute the results from the statistics; `loss` is Σₙ ℓₙ."""
    found, values, asked = with_rows(found, plan.statistics, plan.scale), [], tuple(each for each, _ in plan.needs)
    gradient = {name: found[GRADIENT_SUM, name] for name in plan.parameters}
    for quantity, statistics in plan.needs:
        shares = {name: [found.get((statistic, name), 0) for statistic in statistics] for name in plan.parameters}
        shares = shares if quantity.__module__.startswith(SHIPPED) else copied(shares)  # which it may write into
        together = quantity.together and quantity.together(quantity, plan.scale, shares)
        values.append({n: quantity.finish(plan.scale, *s) for n, s in shares.items()} if together is None else together)
    return Result(loss * plan.scale.factor, output, gradient, asked, values, plan.loss.plain or plan.loss, plan.scale)
