"""The columns that a sweep carries to each layer's output; and the expected ones, by the chain rule in dense matrices.

Layers and loss are taken at their word here: they are checked by themselves, and what is judged is the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Leaf, leaves_of
from gbackprop.calculus.residual import balanced
from gbackprop.calculus.signals import AVERAGE, EXACT, GRADIENT, RESIDUAL, Columns, Signals
from gbackprop.calculus.walk import is_swept_chain
from gbackprop.losses.base import Loss
from gbackprop.network import Container
from gbackprop.plain.observer import Observer, observed
from gbackprop.plain.plan import make_plan
from gbackprop.plain.reference import GraphSweep, Sweep
from gbackprop.quantities.base import Quantity
from gbackprop.testing.complex_steps import Passed, passes
from gbackprop.testing.flat import dense
from gbackprop.testing.points import units

Arrivals = dict[str, dict[str, np.ndarray]]
"""Signal -> layer name -> what arrives at its output: the gradient (N, D), Ḡ (D, D), of others Σᵥ s v vᵀ (N, D, D)."""


def arrivals(network: Container, loss: Loss, x: np.ndarray, y: np.ndarray, quantities: Sequence[Quantity]) -> Arrivals:
    """Return all columns that a sweep carries to each layer that it reaches."""
    plan = make_plan(network, loss, x, y, quantities, 0)
    arriving = _Arriving({signal.name: {} for signal in plan.signals})
    sweep = observed(Sweep(plan) if plan.chain else GraphSweep(plan), arriving)
    output, saved = sweep.forward(x)
    sweep.backward(output, y, saved)
    return arriving.found


class _Arriving(Observer):
    """An observer of what arrives at each layer."""

    def __init__(self, found: Arrivals) -> None:
        self.found = found

    def at_layer(self, leaf: Leaf, arriving: Signals, leaving: Any) -> None:
        for signal, columns in arriving.stack:
            self.found[signal.name][leaf.name] = _gradient(columns) if signal == GRADIENT else _squared(columns)
        if arriving.average is not None:
            self.found[AVERAGE.name][leaf.name] = arriving.average


def _gradient(columns: Columns) -> np.ndarray:
    return columns.values[0].reshape(columns.values.shape[1], -1).copy()


def _squared(columns: Columns) -> np.ndarray:
    columns = balanced(columns)
    flat = columns.values.reshape(*columns.values.shape[:2], -1)
    weighted = flat if columns.sign is None else flat * columns.sign[:, :, None]
    return np.einsum("vni,vnj->nij", weighted, flat, optimize=True)


def dense_arrivals(
    network: Container, loss: Loss, x: np.ndarray, y: np.ndarray, mc_targets: np.ndarray | None
) -> Arrivals:
    """Return the same as `arrivals`, from the dense Jacobians of the outputs of layers in each other."""
    passed = list(passes(leaves_of(network, x.shape[1:]), x))
    output, factor = passed[-1].output, loss.factor(len(x), y)
    start = {EXACT.name: factor * _squares(loss.hessian_sqrt(output, y))}
    if mc_targets is not None:
        start["mc"] = factor * _squares(loss.hessian_sqrt_mc(output, mc_targets, y))
    gradient = factor * loss.gradients(output, y).reshape(len(x), -1)
    found: Arrivals = {name: {} for name in (GRADIENT.name, RESIDUAL.name, AVERAGE.name, *start)}
    jacobians = [_jacobians(each) for each in passed]
    swept = [each for each in passed if each.leaf.swept]
    above = {each.leaf.name: _jacobians_of_later(each.leaf.position, passed, jacobians) for each in swept}
    gradients = {name: np.einsum("nca,nc->na", later[len(passed) - 1], gradient) for name, later in above.items()}
    curved = [each for each in swept if each.leaf.layer.curvature != "zero"]
    residuals = [(each, dense_residual(each, gradients[each.leaf.name])) for each in curved]
    for each in reversed(swept):
        name, later = each.leaf.name, above[each.leaf.name]
        found[GRADIENT.name][name] = gradients[name]
        for kind in start:
            found[kind][name] = _congruent(later[len(passed) - 1], start[kind])
        found[RESIDUAL.name][name] = np.zeros_like(found[EXACT.name][name])
        for other, residual in residuals:
            if any(source in later for source in other.leaf.sources):
                found[RESIDUAL.name][name] += _congruent(_of_inputs(other, later, each.output), residual)
    if is_swept_chain([each.leaf for each in passed]):
        found[AVERAGE.name] = _averages(swept, jacobians, factor * loss.hessian_sum(output, y))
    return found


def _averages(passed: list[Passed], jacobians: list[list[np.ndarray]], average: np.ndarray) -> dict[str, np.ndarray]:
    """KFRA's recursion, by layer name."""
    found = {}
    for each in reversed(passed):
        found[each.leaf.name] = average
        if each.leaf.lowest:
            break
        (j,) = jacobians[each.leaf.position]
        average = np.einsum("nai,ab,nbj->ij", j, average, j, optimize=True) / len(j)
    return found


def _jacobians(passed: Passed) -> list[np.ndarray]:
    """Return the dense Jacobian of a layer's output in each input, shape (N, D, D'); none where the sweep ends."""
    if passed.leaf.lowest:
        return []
    n, out = len(passed.output), passed.output.shape[1:]
    below = passed.leaf.layer.mjp(passed.saved, units(out, n, np.arange(prod(out))))
    parts = below if isinstance(below, tuple) else (below,)
    return [part.reshape(prod(out), n, -1).swapaxes(0, 1) for part in parts]


def _jacobians_of_later(
    position: int, passed: list[Passed], jacobians: list[list[np.ndarray]]
) -> dict[int, np.ndarray]:
    """Return the dense Jacobian of the outputs of later layers in one layer's output, by position."""
    n, size = len(passed[position].output), prod(passed[position].output.shape[1:])
    found = {position: np.broadcast_to(np.eye(size), (n, size, size))}
    for each in passed[position + 1 :]:
        of_sources = zip(jacobians[each.leaf.position], each.leaf.sources, strict=False)
        sources = [(j, found[source]) for j, source in of_sources if source in found]
        if sources:
            found[each.leaf.position] = sum(j @ below for j, below in sources)  # type: ignore[assignment]
    return found


def _of_inputs(passed: Passed, later: dict[int, np.ndarray], output: np.ndarray) -> np.ndarray:
    """Return the dense Jacobian of all inputs of a layer, side by side, in the output of another, shape (N, D, D')."""
    n, size = len(output), prod(output.shape[1:])
    pairs = zip(passed.leaf.sources, passed.inputs, strict=True)
    parts = [later.get(source, np.zeros((n, prod(inputs.shape[1:]), size))) for source, inputs in pairs]
    return np.concatenate(parts, axis=1)


def dense_residual(passed: Passed, gradient: np.ndarray) -> np.ndarray:
    """Return a layer's residual over all of its inputs, shape (N, D, D), for a gradient (N, D) at its output."""
    residual = dense(passed.leaf.layer.residual(passed.saved, gradient.reshape(passed.output.shape)))
    n, d = len(residual), sum(prod(x.shape[1:]) for x in passed.inputs)
    return residual if residual.shape == (n, d, d) else residual.reshape(n, d)[:, :, None] * np.eye(d)


def _congruent(j: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Jᵀ M J for each sample."""
    return j.swapaxes(1, 2) @ matrix @ j


def _squares(columns: np.ndarray) -> np.ndarray:
    """Σᵥ v vᵀ, shape (N, D, D)."""
    flat = columns.reshape(*columns.shape[:2], -1)
    return np.einsum("vni,vnj->nij", flat, flat, optimize=True)
