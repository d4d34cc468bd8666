"""The plan of a backward call: what it computes. All checks are made before any computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gbackprop.array import FLOAT_NAMES, FLOATS, Array, asarray, device_of
from gbackprop.base.checks import SHIPPED, check_batch, check_parameters, generator, shown
from gbackprop.base.errors import UnsupportedError
from gbackprop.base.memory import MANY_DRAWS, check_average, check_draws
from gbackprop.calculus.inputs import check_input, noise_of
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.layer import INPUT, Layer, Leaf, Nodes, Shape, leaves_of
from gbackprop.calculus.signals import AVERAGE, GRADIENT, RESIDUAL, SAMPLES, MonteCarlo, Signal
from gbackprop.calculus.wrt import InputRows, Names, X, check_names, every_value, names_of, placed
from gbackprop.losses.base import Loss
from gbackprop.losses.checks import check_factor, check_targets
from gbackprop.plain.coupling import Meeting, statistics_of
from gbackprop.plain.flow import Flow
from gbackprop.plain.support import check_chain, check_own, lacks_factor, lacks_residual, left_out
from gbackprop.quantities.base import Quantity, Scale, Statistic
from gbackprop.quantities.rows import extracted, in_rows

GRADIENT_SUM = Statistic("sum", GRADIENT)
"""The statistic of the gradient, which every call computes."""


@dataclass(frozen=True)
class Plan(Meeting):
    """A description of what a backward call computes.

    Attributes
    ----------
    network : Layer
    loss : Loss
    parameters : list of str
        Names of the parameters that are not frozen, or of those that were asked for, in the order of computation.
    leaves : list of Leaf
        The layers, from input to output, with their input and output feature shapes.
    needs : list of (Quantity, tuple of Statistic)
        What each quantity needs, in the order in which they were asked for.
    statistics : tuple of Statistic
        All statistics of the call, without repetition.
    extracted : dict of str to tuple of Statistic
        Those that the sweep extracts of each parameter: of the input, those that have a row for each sample.
    signals : tuple of Signal
        All signals to propagate.
    swept : list of Leaf
        The layers that the sweep visits: those with parameters, and those that depend on one of these.
    chain : bool
        Whether each layer takes the output of the one before, no parameter is used twice, and no samples meet.
    floats : bool
        Whether the network takes floats, and each layer in it.
    training : bool
        Whether layers such as Dropout are active.
    wrt : frozenset of str or None
        The names that were asked for, "x" for the entries of the input; None for all parameters that are not frozen.
    scale : Scale
        N and R. This, `noise` and `mc_noise` are those of a batch, set by `with_batch`.
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
    extracted: dict[str, tuple[Statistic, ...]]
    signals: tuple[Signal, ...]
    swept: list[Leaf]
    chain: bool
    floats: bool
    training: bool
    wrt: Names | None
    scale: Scale
    noise: list[Any]
    mc_noise: dict[Signal, np.ndarray]

    @cached_property
    def flow(self) -> Flow:
        """The sharing of outputs and parameters among layers."""
        return Flow(self.leaves)

    def with_batch(self, x: Array, y: Array, rng: int | np.random.Generator | None, first: bool = False) -> Plan:
        """Check the numbers of parameters, `x`, `y` and given targets; return the plan with all draws and with R.

        At the `first` batch, check also that each layer can give what is asked for.
        """
        leaves, loss, batch_shape = self.leaves, self.loss, (x.shape[0], *self.leaves[-1].output_shape)
        like = x if self.floats else check_input(leaves, x)
        values = [(leaf.parameters, leaf.layer.parameters) for leaf in leaves if leaf.parameters]
        values = every_value(leaves) if self.wrt is not None else values  # the others are used, too
        check_parameters({name: its.get(key) for names, its in values for key, name in names.items()}, like)
        loss.check_target("y", y, like, batch_shape)
        if first:
            _check_supported(self)
            parts = [loss.plain or loss, *[leaf.layer for leaf in leaves]]
            if any(not p.__module__.startswith(SHIPPED) or any(map(callable, vars(p).values())) for p in parts):
                check_own(leaves, x, self.training, self.needs)
                check_factor(loss, x.shape[0], y)
            if AVERAGE in self.signals:
                check_chain(leaves)
        for quantity, statistics in self.needs:
            for signal in [statistic.signal for statistic in statistics if isinstance(statistic.signal, MonteCarlo)]:
                if signal.targets is not None:
                    check_targets(f"targets of {type(quantity).__name__}", signal.targets, loss, like, batch_shape)
                elif signal.mc_samples * prod(batch_shape) > MANY_DRAWS:
                    check_draws(quantity, loss, signal.mc_samples, batch_shape)
        if AVERAGE in self.signals:
            check_average(self.swept, like)
        new = object.__new__(Plan)  # dataclasses.replace takes longer than a small sweep
        n, known = x.shape[0], self.scale
        scale = Scale(n, loss.factor(n, y), FLOAT_NAMES[like.dtype], known.rows, known.meets)
        new.__dict__.update(self.__dict__, **self.draw(batch_shape, rng), scale=scale)
        return new

    def draw(self, batch_shape: Shape, rng: int | np.random.Generator | None) -> dict[str, Any]:
        """Return the random numbers of a batch: `noise` and `mc_noise`.

        They are drawn for the whole batch: blocks take rows of them and do not change the draw. Each use has its own
        random stream, seeded by its purpose: further quantities do not change the draws of others.
        """
        drawn = [signal for signal in self.signals if isinstance(signal, MonteCarlo) and signal.targets is None]
        noise: list[Any] = [None] * len(self.leaves)
        mc_noise: dict[Signal, np.ndarray] = {}
        if self.training or drawn or not (rng is None or (type(rng) is int and rng >= 0)):
            # a Generator advances equally for all quantities; an int has no state
            entropy = generator(rng).integers(2**32, size=4).tolist()
            if self.training:
                masks = np.random.default_rng([*entropy, 0])
                noise = [noise_of(leaf, batch_shape[0], masks) for leaf in self.leaves]
            for signal in drawn:
                source = np.random.default_rng([*entropy, signal.mc_samples])
                mc_noise[signal] = self.loss.noise(batch_shape, signal.mc_samples, source)
        return {"noise": noise, "mc_noise": mc_noise}

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
    wrt: Any = None,
) -> Plan:
    """Check all arguments, which are those of `gbackprop.backward`, and decide what to compute."""
    return plan_of(network, loss, x, quantities, training, wrt).with_batch(x, y, rng, first=True)


def plan_of(
    network: Layer, loss: Loss, x: Array, quantities: Sequence[Quantity], training: bool, wrt: Any = None
) -> Plan:
    """Check what the arguments are, and decide what depends on no number in a batch, only on its shape and dtype."""
    for name, value, kind in (("network", network, Layer), ("loss", loss, Loss)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected a {kind.__name__}, got {shown(value)}")
    for i, quantity in enumerate(quantities):
        if not isinstance(quantity, Quantity):
            raise TypeError(f"quantity {i}: expected a Quantity, got {shown(quantity)}")
        if not isinstance(getattr(quantity, "name", None), str):
            raise TypeError(f"quantity {i}, {type(quantity).__name__}: expected a name, by which results are found")
    if not isinstance(training, bool):
        raise TypeError(f"training: expected True or False, got {training!r}")
    check_batch(x)
    shape, wrt = x.shape[1:], None if wrt is None else check_names(network, names_of(wrt), x)
    nodes = Nodes(shape, wrt, training)
    leaves = leaves_of(network, shape, nodes) if wrt is None else placed(network, nodes)
    leaves = leaves or [Leaf("", network, (shape,), shape)]
    used = [name for leaf in leaves for name in leaf.parameters.values()]
    own = frozenset(name for leaf in leaves if isinstance(leaf.layer, InputRows) for name in leaf.parameters.values())
    meeting = next((leaf for leaf in leaves if leaf.layer.mixes), None)
    needs = [(quantity, quantity.statistics()) for quantity in quantities]
    if meeting or any(statistic.signal == SAMPLES for _, each in needs for statistic in each):
        needs = statistics_of(needs, meeting, own)
    statistics = tuple(dict.fromkeys([GRADIENT_SUM, *[statistic for _, each in needs for statistic in each]]))
    signals = tuple(dict.fromkeys(s.signal for s in statistics if s.signal is not None))
    swept, parameters = [leaf for leaf in leaves if leaf.swept], list(dict.fromkeys(used))
    todo = extracted(statistics, parameters, own) if own else dict.fromkeys(parameters, statistics)
    follow = all(leaf.sources == (leaf.position - 1,) for leaf in leaves)
    chain = follow and parameters == used and meeting is None
    floats = x.dtype.kind == "f" and all(leaf.layer.takes != "integers" for leaf in leaves)
    return Plan(
        network, loss, parameters, leaves, needs, statistics, todo, signals, swept, chain, floats, training, wrt,
        Scale(x.shape[0], 1.0, FLOATS[0], own, meeting is not None), [], {},
    )  # fmt: skip


def _check_supported(plan: Plan) -> None:
    """Check that each parameter that is named exists, and that each layer of the sweep has what the quantities need."""
    flow = None if plan.chain else plan.flow
    for leaf in plan.swept:
        if type(leaf.layer).mjp is Layer.mjp and not leaf.lowest:
            raise UnsupportedError(f"{leaf} cannot give a gradient: it has no mjp")
    for quantity, statistics in plan.needs:
        for statistic in statistics:
            if statistic.only is not None and statistic.only not in plan.parameters:
                message = f"expected only= one of {plan.parameters}, got {statistic.only!r}"
                raise ValueError(f"{type(quantity).__name__}: {message}")
            for leaf in plan.swept:
                if (reason := _lacks(leaf, flow, statistic)) is not None:
                    raise UnsupportedError(f"{leaf} cannot give {type(quantity).__name__}: {reason}")


def _lacks(leaf: Leaf, flow: Flow | None, statistic: Statistic) -> str | None:
    """Return the reason why a layer cannot give a statistic, or None."""
    layer, reduction, asked = leaf.layer, statistic.reduction, statistic.only in (None, *leaf.parameters.values())
    if isinstance(layer, InputRows) and asked and in_rows(statistic) is None:
        return f"{layer.kronecker_factors} (leave {X!r} out of wrt, or ask for another quantity)"
    if statistic.signal == RESIDUAL and (reason := lacks_residual(leaf, flow)):
        return reason
    if reduction.formula is not None or not (asked and leaf.parameters):
        return None
    tied = flow is not None and any(flow.uses[name] > 1 for name in leaf.parameters.values())
    if reduction.name in REDUCTIONS and isinstance(layer.kronecker_factors, str):
        return f"{layer.kronecker_factors}{left_out(leaf)}"
    known = layer.kronecker_factors is True and not tied and layer.__module__.startswith(SHIPPED)  # others: any kind
    return None if known and REDUCTIONS.get(reduction.name) == reduction else lacks_factor(leaf, flow, reduction)
