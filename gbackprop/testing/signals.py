"""What a sweep brings to each layer's output; and what it should, by the chain rule in dense matrices.

Layers and loss are taken at their word here: they are checked by themselves, and what is judged is the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gbackprop.layers.base import Layer, Leaf
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.plan import make_plan
from gbackprop.quantities.base import Quantity
from gbackprop.reference import Sweep
from gbackprop.signals import AVERAGE, EXACT, GRADIENT, RESIDUAL, Columns, Signals
from gbackprop.testing.points import units

Arrivals = dict[str, dict[str, np.ndarray]]
"""Signal -> layer name -> what arrives at its output: the gradient (N, D), Ḡ (D, D), of others Σᵥ s v vᵀ (N, D, D)."""


def arrivals(
    network: Sequential, loss: Loss, x: np.ndarray, y: np.ndarray, quantities: Sequence[Quantity]
) -> Arrivals:
    """What a sweep brings to each layer that it reaches, with all columns at each."""
    plan = make_plan(network, loss, x, y, quantities, 0)
    found: Arrivals = {signal.name: {} for signal in plan.signals}

    class Watch(Sweep):
        def visit(self, leaf: Leaf, saved: Any, signals: Signals) -> Signals:
            for signal, columns in signals.stack:
                found[signal.name][leaf.name] = _gradient(columns) if signal == GRADIENT else _squared(columns)
            if signals.average is not None:
                found[AVERAGE.name][leaf.name] = signals.average
            return super().visit(leaf, saved, signals)

    sweep = Watch(plan)
    output, saved = sweep.forward(x)
    sweep.backward(output, y, saved)
    return found


def _gradient(columns: Columns) -> np.ndarray:
    return columns.values[0].reshape(columns.values.shape[1], -1).copy()


def _squared(columns: Columns) -> np.ndarray:
    flat = columns.values.reshape(*columns.values.shape[:2], -1)
    weighted = flat if columns.sign is None else flat * columns.sign[:, :, None]
    return np.einsum("vni,vnj->nij", weighted, flat, optimize=True)


def dense_arrivals(
    network: Sequential, loss: Loss, x: np.ndarray, y: np.ndarray, mc_targets: np.ndarray
) -> Arrivals:
    """The same as `arrivals`, with one dense Jacobian per layer and sample."""
    passes, point = [], x
    for leaf in network.leaves(x.shape[1:]):
        output, saved = leaf.layer.forward(point)
        passes.append((leaf, point, output, saved))
        point = output
    factor, gradient = loss.factor(len(x)), loss.gradients(point, y)
    carried = {
        GRADIENT.name: factor * gradient.reshape(len(x), -1),
        EXACT.name: factor * _squares(loss.hessian_sqrt(point, y)),
        "mc": factor * _squares(loss.hessian_sqrt_mc(point, mc_targets)),
        AVERAGE.name: factor * loss.hessian_sum(point, y),
    }
    carried[RESIDUAL.name] = np.zeros_like(carried[EXACT.name])
    found: Arrivals = {name: {} for name in carried}
    for leaf, inputs, output, saved in reversed(passes):
        for name, value in carried.items():
            found[name][leaf.name] = value
        carried = _carried(leaf.layer, inputs, output, saved, carried)
    return found


def _carried(
    layer: Layer, inputs: np.ndarray, output: np.ndarray, saved: Any, carried: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What comes to a layer's input, from what is at its output."""
    n, out = len(inputs), output.shape[1:]
    j = layer.mjp(saved, units(out, n, np.arange(prod(out)))).reshape(prod(out), n, -1).swapaxes(0, 1)  # [N, D, D']
    below = {name: j.swapaxes(1, 2) @ value @ j for name, value in carried.items() if name != GRADIENT.name}
    below[AVERAGE.name] = below[AVERAGE.name].sum(0) / n
    if layer.curvature != "zero":
        residual = layer.residual(saved, carried[GRADIENT.name].reshape(output.shape)).reshape(n, -1)
        d = j.shape[2]
        dense = residual.reshape(n, d, d) if residual.shape[1] == d * d != d else residual[:, :, None] * np.eye(d)
        below[RESIDUAL.name] = below[RESIDUAL.name] + dense
    return below | {GRADIENT.name: np.einsum("nai,na->ni", j, carried[GRADIENT.name])}


def _squares(columns: np.ndarray) -> np.ndarray:
    """Σᵥ v vᵀ, shape (N, D, D)."""
    flat = columns.reshape(*columns.shape[:2], -1)
    return np.einsum("vni,vnj->nij", flat, flat, optimize=True)
