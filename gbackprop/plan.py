"""The plan of a backward call: what will be computed, checked in full before anything is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gbackprop import scratch
from gbackprop.arguments import generator, positive
from gbackprop.array import Array, asarray, device_of, free_memory
from gbackprop.checks import check_batch, check_parameters
from gbackprop.errors import TooLargeError, UnsupportedError
from gbackprop.layers.base import Layer, Leaf
from gbackprop.layers.jacobian import KRONECKER
from gbackprop.losses.base import Loss
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.signals import AVERAGE, EXACT, GRADIENT, RESIDUAL, MonteCarlo, Signal

GRADIENT_SUM = Statistic("sum", GRADIENT)
"""The gradient, which every call gives."""

KFRA_COPIES = 7
"""How many [D, D] matrices KFRA's largest step holds at once, at most, as measured: Ḡ, Ḡ J, its transpose, Jᵀ Ḡ J, and
what a layer's product needs on the way."""


@dataclass(frozen=True)
class Plan:
    """What a backward call will do.

    Attributes
    ----------
    leaves : list of Leaf
        The layers, from input to output, with the feature shapes that they see.
    statistics : tuple of Statistic
        All that the quantities need, each once.
    signals : tuple of Signal
        All that is to be propagated.
    scale : Scale
        N and R.
    lowest : int
        Index of the first layer with parameters: the sweep ends there.
    training : bool
        Whether layers such as Dropout act.
    noise : Any
        Randomness of the layers' training mode for the whole batch, or None.
    mc_noise : dict
        Randomness of each Monte-Carlo signal for the whole batch.
    """

    network: Layer
    loss: Loss
    leaves: list[Leaf]
    statistics: tuple[Statistic, ...]
    signals: tuple[Signal, ...]
    scale: Scale
    lowest: int
    training: bool
    noise: Any
    mc_noise: dict[Signal, np.ndarray]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Feature shape of the network's output."""
        return self.leaves[-1].output_shape

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters, in the network's order."""
        return [leaf.parameter(name) for leaf in self.leaves for name in leaf.layer.parameter_shapes()]

    def loss_columns(self, signal: Signal) -> int:
        """How many columns of a signal start at the loss."""
        if signal == EXACT:
            return self.loss.columns(self.output_shape)
        return signal.mc_samples if isinstance(signal, MonteCarlo) else 0

    def residual_columns(self, leaf: Leaf) -> int:
        """How many columns of the residual start at a layer."""
        return prod(leaf.input_shape) if RESIDUAL in self.signals and leaf.layer.curvature != "zero" else 0

    def windows(self, column_block: int | None) -> list[slice]:
        """Which columns each pass of the sweep takes, all columns but the gradient's numbered from loss to input."""
        total = sum(map(self.loss_columns, self.signals))
        total += sum(map(self.residual_columns, self.leaves[self.lowest + 1 :]))
        step = column_block or max(total, 1)
        return [slice(start, min(start + step, total)) for start in range(0, max(total, 1), step)]


def make_plan(
    network: Layer,
    loss: Loss,
    x: Array,
    y: Array,
    quantities: Sequence[Quantity],
    rng: int | np.random.Generator | None,
    training: bool = False,
    sample_block: int | None = None,
    column_block: int | None = None,
    workers: int | None = None,
) -> Plan:
    """Check everything and decide what is to be computed; the arguments are those of `gbackprop.backward`."""
    _check_kinds(network, loss, quantities)
    for name, value in (("sample_block", sample_block), ("column_block", column_block), ("workers", workers)):
        if value is not None:
            positive(name, value)
    if not isinstance(training, bool):
        raise TypeError(f"training: expected True or False, got {training!r}")
    check_parameters(network)
    check_batch(network, x)
    leaves = network.leaves(x.shape[1:]) or [Leaf("", network, x.shape[1:], x.shape[1:])]
    batch_shape = (x.shape[0], *leaves[-1].output_shape)
    loss.check_target("y", y, x, batch_shape)
    statistics = tuple(
        dict.fromkeys([GRADIENT_SUM] + [s for quantity in quantities for s in quantity.statistics()])
    )
    signals = tuple(dict.fromkeys(s.signal for s in statistics if s.signal is not None))
    lowest = next((i for i, leaf in enumerate(leaves) if leaf.layer.parameter_shapes()), len(leaves))
    _check_supported(leaves[lowest:], quantities)
    for quantity in quantities:
        _check_targets(quantity, loss, x, batch_shape)
    if AVERAGE in signals:
        _check_average(leaves[lowest:], x, sample_block, workers)
    noise, mc_noise = _draw(network, loss, x, batch_shape, signals, rng, training)
    scale = Scale(x.shape[0], loss.factor(x.shape[0]), x.dtype.name)
    return Plan(network, loss, leaves, statistics, signals, scale, lowest, training, noise, mc_noise)


def _check_kinds(network: Any, loss: Any, quantities: Sequence[Any]) -> None:
    for name, value, kind in (("network", network, Layer), ("loss", loss, Loss)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected a {kind.__name__}, got {value!r}")
    for i, quantity in enumerate(quantities):
        if not isinstance(quantity, Quantity):
            hint = " (call the class)" if isinstance(quantity, type) else ""
            raise TypeError(f"quantity {i}: expected a Quantity, got {quantity!r}{hint}")


def _check_supported(leaves: list[Leaf], quantities: Sequence[Quantity]) -> None:
    """Every layer, from the lowest with parameters, has what the quantities need."""
    for leaf in leaves[1:]:
        if not _has(leaf.layer, "mjp"):
            raise UnsupportedError(f"{leaf} cannot give a gradient: it has no mjp")
    for quantity in quantities:
        for statistic in quantity.statistics():
            for leaf in leaves:
                reason = _lacks(leaf, statistic)
                if reason is not None:
                    raise UnsupportedError(f"{leaf} cannot give {type(quantity).__name__}: {reason}")


def _lacks(leaf: Leaf, statistic: Statistic) -> str | None:
    """Why a layer cannot give a statistic, if it cannot."""
    if statistic.signal == RESIDUAL and leaf.layer.curvature != "zero" and not _has(leaf.layer, "residual"):
        return f"its curvature is {leaf.layer.curvature!r}, and it has no residual"
    if statistic.method in KRONECKER:
        return leaf.layer.unsupported(leaf.input_shape).get(statistic.method)
    return None


def _has(layer: Layer, method: str) -> bool:
    return getattr(type(layer), method) is not getattr(Layer, method)


def _check_targets(quantity: Quantity, loss: Loss, x: Array, batch_shape: tuple[int, ...]) -> None:
    for statistic in quantity.statistics():
        signal = statistic.signal
        if not isinstance(signal, MonteCarlo) or signal.targets is None:
            continue
        name, targets = f"targets of {type(quantity).__name__}", signal.targets
        expected = loss.target_shape(batch_shape)
        if targets.ndim == 0 or targets.shape[0] == 0 or targets.shape[1:] != expected:
            shape = ", ".join(map(str, expected))
            raise ValueError(f"{name}: expected shape (M, {shape}), got {targets.shape}")
        rows = targets.reshape(-1, *targets.shape[2:])
        try:  # all at once: a GPU is waited for at each check
            loss.check_target(name, rows, x, (rows.shape[0], *batch_shape[1:]))
        except (TypeError, ValueError):
            for m, target in enumerate(targets):
                loss.check_target(f"{name}[{m}]", target, x, batch_shape)
            raise


def _check_average(leaves: list[Leaf], x: Array, sample_block: int | None, workers: int | None) -> None:
    """KFRA needs the whole batch, and matrices [D, D] at each layer's output and, but for the first, input."""
    if (sample_block or len(x)) < len(x) or (workers or 1) > 1:
        raise ValueError("KFRA averages over the whole batch at each layer: sample_block and workers must be None")
    largest = max(leaves, key=lambda leaf: prod(leaf.output_shape), default=None)
    if largest is None:
        return
    d = prod(largest.output_shape)
    size, free = d * d * x.dtype.itemsize, free_memory(device_of(x))
    if KFRA_COPIES * size > free:
        scratch.free()  # what waits for other calls is in the way of this one
        free = free_memory(device_of(x))
    if KFRA_COPIES * size > free:
        raise TooLargeError(
            f"KFRA needs the averaged curvature at the output of {largest}: a [{d}, {d}] matrix of "
            f"{size / 2**30:.1f} GiB, {KFRA_COPIES} times, with {free / 2**30:.1f} GiB free"
        )


def _draw(
    network: Layer,
    loss: Loss,
    x: Array,
    batch_shape: tuple[int, ...],
    signals: tuple[Signal, ...],
    rng: int | np.random.Generator | None,
    training: bool,
) -> tuple[Any, dict[Signal, np.ndarray]]:
    """All randomness of a call, for the whole batch: blocks take their rows, so that they do not change the draw.

    Each use has a stream of its own, told apart by what it is for: asking for more does not change the others' draws.
    """
    drawn = [signal for signal in signals if isinstance(signal, MonteCarlo) and signal.targets is None]
    if not training and not drawn and (rng is None or (type(rng) is int and rng >= 0)):
        return None, {}  # a Generator moves on by as much whatever is asked for; these have nothing to move
    entropy = generator(rng).integers(2**32, size=4).tolist()
    noise = network.noise(x.shape, np.random.default_rng([*entropy, 0])) if training else None
    mc_noise: dict[Signal, np.ndarray] = {
        signal: loss.noise(batch_shape, signal.mc_samples, np.random.default_rng([*entropy, signal.mc_samples]))
        for signal in drawn
    }
    return noise, mc_noise


def rows_of(noise: Any, rows: slice) -> Any:
    """The samples' share in what layers drew: arrays with N rows, None, or tuples of these."""
    if isinstance(noise, tuple):
        return tuple(rows_of(part, rows) for part in noise)
    return None if noise is None else noise[rows]


def targets_of(plan: Plan, signal: MonteCarlo, output: Array, rows: slice) -> Array:
    """The pseudo-targets of some samples: given, or drawn; shape (M, n, ...)."""
    if signal.targets is not None:
        return signal.targets[:, rows]
    return plan.loss.pseudo_targets(output, asarray(plan.mc_noise[signal][:, rows], device_of(output)))
