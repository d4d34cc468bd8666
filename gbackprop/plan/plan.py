"""The plan of a backward call: what it computes. All checks are made before any computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import Array, asarray, device_of
from gbackprop.checks import (
    MANY_DRAWS,
    check_average,
    check_batch,
    check_draws,
    check_parameters,
    check_targets,
    generator,
)
from gbackprop.layers.base import INPUT, Layer, Leaf, leaves_of
from gbackprop.losses.base import Loss
from gbackprop.plan.flow import Flow
from gbackprop.plan.support import check_chain, check_contracts, check_kinds, check_supported
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.signals import AVERAGE, GRADIENT, MonteCarlo, Signal

GRADIENT_SUM = Statistic("sum", GRADIENT)
"""The statistic of the gradient, which every call computes."""


@dataclass(frozen=True)
class Plan:
    """A description of what a backward call computes.

    Attributes
    ----------
    network : Layer
    loss : Loss
    parameters : list of str
        Names of all parameters, in the network's order.
    leaves : list of Leaf
        The layers, from input to output, with their input and output feature shapes.
    needs : list of (Quantity, tuple of Statistic)
        What each quantity needs, in the order in which they were asked for.
    statistics : tuple of Statistic
        All statistics of the call, without repetition.
    signals : tuple of Signal
        All signals to propagate.
    scale : Scale
        N and R.
    swept : list of Leaf
        The layers that the sweep visits: those with parameters, and those that depend on one of these.
    chain : bool
        Whether each layer takes the output of the one before, and no parameter is used twice.
    training : bool
        Whether layers such as Dropout are active.
    noise : list
        For each layer, the random numbers of its training mode for the whole batch, or None.
    mc_noise : dict
        Random numbers of each Monte-Carlo signal for the whole batch.
    """

    network: Layer
    loss: Loss
    parameters: list[str]
    leaves: list[Leaf]
    needs: list[tuple[Quantity, tuple[Statistic, ...]]]
    statistics: tuple[Statistic, ...]
    signals: tuple[Signal, ...]
    scale: Scale
    swept: list[Leaf]
    chain: bool
    training: bool
    noise: list[Any]
    mc_noise: dict[Signal, np.ndarray]

    @cached_property
    def flow(self) -> Flow:
        """Where outputs and parameters are shared."""
        return Flow(self.leaves)

    def reaches(self, source: int) -> bool:
        """Return whether the sweep visits the layer at a position."""
        return source != INPUT and self.leaves[source].swept

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Feature shape of the network's output."""
        return self.leaves[-1].output_shape

    def targets_of(self, signal: MonteCarlo, output: Array, rows: slice) -> Array:
        """Return the pseudo-targets of some samples, given or drawn, shape (M, n, ...)."""
        if signal.targets is not None:
            return signal.targets[:, rows]
        return self.loss.pseudo_targets(output, asarray(self.mc_noise[signal][:, rows], device_of(output)))


def make_plan(
    network: Layer,
    loss: Loss,
    x: Array,
    y: Array,
    quantities: Sequence[Quantity],
    rng: int | np.random.Generator | None,
    training: bool = False,
) -> Plan:
    """Check all arguments, which are those of `gbackprop.backward`, and decide what to compute."""
    check_kinds(network, loss, quantities, training)
    check_batch(x)
    leaves = leaves_of(network, x.shape[1:]) or [Leaf("", network, (x.shape[1:],), x.shape[1:])]
    parameters: dict[str, Array] = {}
    for leaf in leaves:
        parameters |= {name: leaf.layer.parameters[key] for key, name in leaf.parameters.items()}
    check_parameters(parameters, x)
    batch_shape = (x.shape[0], *leaves[-1].output_shape)
    loss.check_target("y", y, x, batch_shape)
    needs = [(quantity, quantity.statistics()) for quantity in quantities]
    statistics = tuple(dict.fromkeys([GRADIENT_SUM, *[statistic for _, some in needs for statistic in some]]))
    signals = tuple(dict.fromkeys(s.signal for s in statistics if s.signal is not None))
    swept = [leaf for leaf in leaves if leaf.swept]
    chain = all(leaf.sources == (leaf.position - 1,) for leaf in leaves)
    chain = chain and len(parameters) == sum([len(leaf.parameters) for leaf in leaves])
    check_supported(swept, None if chain else Flow(leaves), needs)
    check_contracts(leaves, x)
    for quantity, some in needs:
        for signal in [statistic.signal for statistic in some if isinstance(statistic.signal, MonteCarlo)]:
            if signal.targets is not None:
                check_targets(f"targets of {type(quantity).__name__}", signal.targets, loss, x, batch_shape)
            elif signal.mc_samples * prod(batch_shape) > MANY_DRAWS:
                check_draws(quantity, loss, signal.mc_samples, batch_shape)
    if AVERAGE in signals:
        check_chain(leaves)
        check_average(swept, x)
    noise, mc_noise = _draw(leaves, loss, batch_shape, signals, rng, training)
    scale = Scale(x.shape[0], loss.factor(x.shape[0]), x.dtype.name)
    return Plan(
        network, loss, list(parameters), leaves, needs, statistics, signals, scale, swept, chain, training, noise,
        mc_noise,
    )  # fmt: skip


def _draw(
    leaves: list[Leaf],
    loss: Loss,
    batch_shape: tuple[int, ...],
    signals: tuple[Signal, ...],
    rng: int | np.random.Generator | None,
    training: bool,
) -> tuple[list[Any], dict[Signal, np.ndarray]]:
    """Draw all random numbers of a call for the whole batch: blocks take rows of them and do not change the draw.

    Each use has its own random stream, seeded by its purpose: further quantities do not change the draws of others.
    """
    drawn = [signal for signal in signals if isinstance(signal, MonteCarlo) and signal.targets is None]
    if not training and not drawn and (rng is None or (type(rng) is int and rng >= 0)):
        return [None] * len(leaves), {}  # a Generator advances equally for all quantities; an int has no state
    entropy = generator(rng).integers(2**32, size=4).tolist()
    masks = np.random.default_rng([*entropy, 0])
    noise = [
        leaf.layer.noise((batch_shape[0], *leaf.input_shapes[0]), masks) if training else None for leaf in leaves
    ]
    mc_noise: dict[Signal, np.ndarray] = {
        signal: loss.noise(batch_shape, signal.mc_samples, np.random.default_rng([*entropy, signal.mc_samples]))
        for signal in drawn
    }
    return noise, mc_noise
