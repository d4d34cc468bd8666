"""The plain sweep recorded: what it does to `x`, `y`, the parameters and the random numbers, in order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gbackprop.array import Array
from gbackprop.base.names import inside
from gbackprop.base.recording.arrays import Recorded
from gbackprop.base.recording.tape import Ref, Tape
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.signals import Signals
from gbackprop.plain.completion import complete
from gbackprop.plain.plan import Plan
from gbackprop.plain.reference import AtLoss, GraphSweep, Sweep, finish
from gbackprop.quantities.result import Result


class Section(NamedTuple):
    """A part of the sweep: forward, loss, extract, carry, append or finish; and the layer's path."""

    kind: str
    layer: str = ""


@dataclass
class Recording:
    """The record of a call.

    Attributes
    ----------
    tape : Tape
        Its steps; the section of each is in `TapeStep.section`.
    inputs : dict of str to int
        The number of each input: "x", "y", "parameters/0.weight", "random/0".
    result : Result
        The result, with a `Ref` for each array.
    names : dict of int to str
        The letters of values, by their number.
    layers : dict of str to Layer
        The layers that were met, by their paths.
    """

    tape: Tape = field(default_factory=lambda: Tape(Recorded))
    inputs: dict[str, int] = field(default_factory=dict)
    result: Any = None
    names: dict[int, str] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)

    def leaf(self, name: str, value: Array) -> Recorded:
        """Return an input, which is the same each time that it is asked for."""
        if name not in self.inputs:
            self.inputs[name] = number = self.tape.add("leaf", value, (name,)).number
            self.names[number] = name.rpartition("/")[2]
        return Recorded(self.tape, self.inputs[name])

    def call(self, value: Any, name: str) -> None:
        """Name a value, if it is an array that has no name yet."""
        if isinstance(value, Recorded):
            self.names.setdefault(value.current(), name)


def record(found: Recording, plan: Plan, x: Array, y: Array) -> None:
    """Record `gb.reference` with a plan and its batch."""
    leaves: dict[str, Any] = {"x": found.leaf("x", x), "y": found.leaf("y", y)}
    found.tape.leaves = len(found.inputs)

    def run(following: Plan) -> Result:
        plan = _recorded(following, found, leaves["y"])
        sweep: Any = (_ChainSweep if plan.chain else _GraphSweep)(plan, found)
        output, saved = sweep.forward(leaves["x"])
        sweep.backward(output, leaves["y"], saved)
        found.tape.section = Section("finish")
        return finish(plan, plan.loss.values(output, leaves["y"]).sum(), output, sweep.found)

    try:
        result = complete(plan, x, run(plan), run)
    except Exception:
        if found.tape.refused is not None:  # NumPy replaces some errors by its own
            raise found.tape.refused from None
        raise
    if found.tape.refused is not None:
        raise found.tape.refused
    found.call(result.loss, "loss")
    for quantity, values in zip(result.quantities, result.values, strict=True):
        for name, value in values.items():
            for array in arrays_in(value):
                found.call(array, f"{quantity.name}_{_turned(name)}")
    found.result = mapped_arrays(replace(result, scale=None), lambda array: Ref(array.current()))
    found.tape.open = False


def inputs_of(plan: Plan) -> dict[str, dict[str, Array]]:
    """Return the inputs of a program beside x and y: parameters and buffers, and the random numbers of a batch."""
    parameters = {name: value for leaf in plan.leaves for name, value in _state(leaf)}
    random: dict[str, Array] = {}
    for name, value in _draws(plan):
        _random(value, random.setdefault, name)
    return {"parameters": parameters, "random": random}


def _state(leaf: Leaf) -> Iterator[tuple[str, Array]]:
    """Yield the parameters and buffers of a layer by their names in the network."""
    for kind in STATE:
        for key, value in (getattr(leaf.layer, kind, None) or {}).items():
            yield inside(leaf.name, key), value


def _draws(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the random numbers of each layer and of each Monte-Carlo signal."""
    yield from ((f"noise_{leaf.name}", each) for leaf, each in zip(plan.leaves, plan.noise, strict=True))
    for signal, each in plan.mc_noise.items():
        yield f"{signal.name}_{getattr(signal, 'mc_samples', '')}", each


def _random(value: Any, give: Callable[[str, Array], Any], name: str) -> Any:
    """Return random numbers with what is given for each array, by its name."""
    if isinstance(value, np.ndarray):
        return give(name, value)
    if isinstance(value, dict):
        return {key: _random(each, give, f"{name}_{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_random(each, give, f"{name}_{i}") for i, each in enumerate(value))
    return value


STATE = ("drawn", "buffers")
"""The attributes of layers that a program reads in each call: dictionaries of arrays."""


def mapped_arrays(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a value in which each recorded array, or its `Ref`, is replaced."""
    if isinstance(value, Recorded | Ref):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped_arrays(each, change) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(mapped_arrays(each, change) for each in value)
    if any(True for _ in arrays_in(value)):
        new = object.__new__(type(value))
        for name, each in attributes_of(value):
            object.__setattr__(new, name, mapped_arrays(each, change))
        return new
    return value


def arrays_in(value: Any) -> Iterator[Any]:
    """Yield the recorded arrays in a value."""
    if isinstance(value, Recorded | Ref):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from arrays_in(each)
    elif type(value) in (list, tuple):
        for each in value:
            yield from arrays_in(each)
    elif type(value).__module__.startswith("gbackprop.kronecker") or is_dataclass(value):
        for _, each in attributes_of(value):
            yield from arrays_in(each)


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object."""
    if is_dataclass(value) and not hasattr(value, "__dict__"):
        return [(each.name, getattr(value, each.name)) for each in fields(value)]
    return list(vars(value).items())


# --------------------------------------------------------------------------------------------------------- the sweep


def _recorded(plan: Plan, found: Recording, y: Any) -> Plan:
    """Return the plan with recorded parameters, random numbers, and R where it follows from the targets."""
    copies: dict[int, Layer] = {}
    leaves = [replace(leaf, layer=_copied(leaf, found, copies)) for leaf in plan.leaves]

    def give(name: str, value: Array) -> Recorded:
        return found.leaf(f"random/{name}", value)

    draws = [_random(each, give, name) for name, each in _draws(plan)]
    noise, mc_noise = draws[: len(leaves)], dict(zip(plan.mc_noise, draws[len(leaves) :], strict=True))
    new = object.__new__(Plan)
    new.__dict__.update(plan.__dict__, leaves=leaves, swept=[leaves[leaf.position] for leaf in plan.swept])
    factor: Any = plan.loss.factor(plan.scale.batch, y)
    scale = replace(plan.scale, factor=factor.astype(plan.scale.dtype)) if isinstance(factor, Recorded) else plan.scale
    new.__dict__.update(noise=noise, mc_noise=mc_noise, scale=scale)
    new.__dict__.pop("flow", None)
    return new


def _copied(leaf: Leaf, found: Recording, copies: dict[int, Layer]) -> Layer:
    """Return a copy of a layer whose parameters and buffers are recorded, and that says when it goes forward."""
    layer = leaf.layer
    if id(layer) not in copies:
        new = copies[id(layer)] = copy.copy(layer)
        layer.parameters  # noqa: B018  # drawn now, if they were not
        found.layers[leaf.name] = layer
        for kind in STATE:
            if values := getattr(layer, kind, None):
                new.__dict__[kind] = {k: found.leaf(f"parameters/{inside(leaf.name, k)}", v) for k, v in values.items()}
                found.names |= {array.number: f"{key}_{leaf.name}" for key, array in new.__dict__[kind].items()}
    return copies[id(layer)]


class _Sections(AtLoss):
    """The sections of a sweep, and the letters of what crosses from one to the next."""

    def __init__(self, plan: Plan, recording: Recording) -> None:
        super().__init__(plan)
        self.recording = recording

    def forward(self, x: Any) -> Any:
        """Compute the layers' outputs, each in a section of its own."""
        for leaf in self.plan.leaves:
            self._announce(leaf)
        return super().forward(x)  # type: ignore[misc]

    def _announce(self, leaf: Leaf) -> None:
        """Make a copied layer say in which section its forward pass is, and name its output."""
        layer, recording = leaf.layer, self.recording
        for method in ("forward", "forward_training"):
            plain = getattr(type(layer), method).__get__(layer)

            def announced(*args: Any, plain: Any = plain, **kwargs: Any) -> Any:
                before, recording.tape.section = recording.tape.section, Section("forward", leaf.name)
                output, saved = plain(*args, **kwargs)
                recording.call(output, f"z_{leaf.name}")
                recording.tape.section = before
                return output, saved

            layer.__dict__[method] = announced

    def start(self, output: Any, target: Any) -> Signals:
        self.recording.tape.section = Section("loss")
        signals = super().start(output, target)
        self._signals(signals, self.plan.leaves[-1].name)
        return signals

    def extract(self, leaf: Leaf, saved: Any, signals: Signals) -> None:
        self.recording.tape.section = Section("extract", leaf.name)
        self._signals(signals, leaf.name)
        before = set(self.found)
        super().extract(leaf, saved, signals)  # type: ignore[misc]
        for statistic, name in [key for key in self.found if key not in before]:
            value, text = self.found[statistic, name], f"{statistic.reduction.name}_{_turned(name)}"
            for letter, part in zip(("", "_more"), value if isinstance(value, tuple) else (value,), strict=False):
                self.recording.call(part, text + letter)

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> Any:
        self.recording.tape.section = Section("carry", leaf.name)
        return super().carry(leaf, saved, signals)  # type: ignore[misc]

    def append(self, leaf: Leaf, saved: Any, signals: Signals, below: Any) -> Any:
        self.recording.tape.section = Section("append", leaf.name)
        return super().append(leaf, saved, signals, below)  # type: ignore[misc]

    def _signals(self, signals: Signals, name: str) -> None:
        """Name the columns at the output of a layer."""
        self.recording.call(signals.stack.values, f"u_{name}")
        if signals.average is not None:
            self.recording.call(signals.average, f"G_{name}")


def _turned(name: str) -> str:
    """Return the name of a parameter with its layer last: "weight_0" of "0.weight"."""
    path, _, key = name.rpartition(".")
    return "_".join(filter(None, (key, path)))


class _ChainSweep(_Sections, Sweep):
    """The sections of the sweep through a chain."""


class _GraphSweep(_Sections, GraphSweep):
    """The sections of the sweep through a graph."""
