"""The plan of a backward call: what it computes. All checks are made before any computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakSet

import numpy as np

from gbackprop import layers as shipped
from gbackprop.array import Array, asarray, device_of
from gbackprop.checks import (
    MANY_DRAWS,
    check_average,
    check_batch,
    check_contract,
    check_draws,
    check_parameters,
    check_targets,
    generator,
)
from gbackprop.errors import UnsupportedError
from gbackprop.layers.base import Layer, Leaf, zeros
from gbackprop.layers.jacobian import REDUCTIONS, ParameterJacobian
from gbackprop.losses.base import Loss
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.signals import AVERAGE, GRADIENT, RESIDUAL, MonteCarlo, Signal

SHIPPED = frozenset(getattr(shipped, name) for name in shipped.__all__)
"""Layers that the tests check."""

_CHECKED: WeakSet[Layer] = WeakSet()

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
    lowest : int
        Index of the first layer with parameters: the sweep ends there.
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
    lowest: int
    training: bool
    noise: list[Any]
    mc_noise: dict[Signal, np.ndarray]

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
    _check_kinds(network, loss, quantities, training)
    check_batch(x)
    leaves = network.leaves(x.shape[1:]) or [Leaf("", network, x.shape[1:], x.shape[1:])]
    keys = [(leaf, key) for leaf in leaves for key in leaf.layer.parameter_shapes()]
    parameters = {leaf.parameter(key): leaf.layer.parameters[key] for leaf, key in keys}
    check_parameters(parameters, x)
    batch_shape = (x.shape[0], *leaves[-1].output_shape)
    loss.check_target("y", y, x, batch_shape)
    needs = [(quantity, quantity.statistics()) for quantity in quantities]
    statistics = tuple(dict.fromkeys([GRADIENT_SUM, *[statistic for _, some in needs for statistic in some]]))
    signals = tuple(dict.fromkeys(s.signal for s in statistics if s.signal is not None))
    lowest = next((i for i, leaf in enumerate(leaves) if leaf.layer.parameter_shapes()), len(leaves))
    _check_supported(leaves[lowest:], needs)
    _check_contracts(leaves, x)
    for quantity, some in needs:
        for signal in [statistic.signal for statistic in some if isinstance(statistic.signal, MonteCarlo)]:
            if signal.targets is not None:
                check_targets(f"targets of {type(quantity).__name__}", signal.targets, loss, x, batch_shape)
            elif signal.mc_samples * prod(batch_shape) > MANY_DRAWS:
                check_draws(quantity, loss, signal.mc_samples, batch_shape)
    if AVERAGE in signals:
        check_average(leaves[lowest:], x)
    noise, mc_noise = _draw(leaves, loss, batch_shape, signals, rng, training)
    scale = Scale(x.shape[0], loss.factor(x.shape[0]), x.dtype.name)
    return Plan(
        network, loss, list(parameters), leaves, needs, statistics, signals, scale, lowest, training, noise,
        mc_noise,
    )  # fmt: skip


def _check_kinds(network: Any, loss: Any, quantities: Sequence[Any], training: Any) -> None:
    for name, value, kind in (("network", network, Layer), ("loss", loss, Loss)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected a {kind.__name__}, got {value!r}")
    for i, quantity in enumerate(quantities):
        if not isinstance(quantity, Quantity):
            hint = " (call the class)" if isinstance(quantity, type) else ""
            raise TypeError(f"quantity {i}: expected a Quantity, got {quantity!r}{hint}")
        if not isinstance(getattr(quantity, "name", None), str):
            raise TypeError(f"quantity {i}, {type(quantity).__name__}: expected a name, by which results are found")
    if not isinstance(training, bool):
        raise TypeError(f"training: expected True or False, got {training!r}")


def _check_contracts(leaves: list[Leaf], x: Array) -> None:
    """Check the layers that do not ship, each at its first call, on up to eight samples."""
    if any(type(leaf.layer) not in SHIPPED and leaf.layer not in _CHECKED for leaf in leaves):
        at = x[:8].copy()
        for leaf in leaves:
            at = leaf.layer.forward(at)[0] if type(leaf.layer) in SHIPPED else check_contract(leaf, at)
        _CHECKED.update(leaf.layer for leaf in leaves if type(leaf.layer) not in SHIPPED)


def _check_supported(leaves: list[Leaf], needs: list[tuple[Quantity, tuple[Statistic, ...]]]) -> None:
    """Check that every layer, from the lowest with parameters, provides what the quantities need."""
    for leaf in leaves[1:]:
        if type(leaf.layer).mjp is Layer.mjp:
            raise UnsupportedError(f"{leaf} cannot give a gradient: it has no mjp")
    for quantity, statistics in needs:
        for statistic in statistics:
            for leaf in leaves:
                reason = _lacks(leaf, statistic)
                if reason is not None:
                    raise UnsupportedError(f"{leaf} cannot give {type(quantity).__name__}: {reason}")


def _lacks(leaf: Leaf, statistic: Statistic) -> str | None:
    """Return the reason why a layer cannot give a statistic, or None."""
    layer, reduction = leaf.layer, statistic.reduction
    if statistic.signal == RESIDUAL and layer.curvature != "zero" and type(layer).residual is Layer.residual:
        return f"its curvature is {layer.curvature!r}, and it has no residual"
    if reduction.formula is not None or not layer.parameter_shapes():
        return None
    if reduction.name in REDUCTIONS and layer.kronecker_factors is not None:
        return None if layer.kronecker_factors is True else str(layer.kronecker_factors)
    jacobians = layer.parameter_jacobians(layer.forward(zeros(layer, leaf.input_shape))[1])
    base = getattr(ParameterJacobian, reduction.name, None)
    without = [key for key, jacobian in jacobians.items() if getattr(type(jacobian), reduction.name, base) is base]
    return f"the Jacobian of its {without[0]} has no {reduction.name.replace('_', ' ')}" if without else None


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
    noise = [leaf.layer.noise((batch_shape[0], *leaf.input_shape), masks) if training else None for leaf in leaves]
    mc_noise: dict[Signal, np.ndarray] = {
        signal: loss.noise(batch_shape, signal.mc_samples, np.random.default_rng([*entropy, signal.mc_samples]))
        for signal in drawn
    }
    return noise, mc_noise
