"""The plain sweep recorded: what it does to `x`, `y`, the parameters and the random numbers, in order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from gbackprop.array import Array, asnumpy, device_of
from gbackprop.base.errors import UnsupportedError
from gbackprop.base.names import inside
from gbackprop.base.recording.arrays import Recorded
from gbackprop.base.recording.refused import MissingFunctionError, TraceError
from gbackprop.base.recording.tape import Ref, Tape
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.state import digests_of, parts_of
from gbackprop.losses.sample_weights import Targets
from gbackprop.plain.completion import complete
from gbackprop.plain.plan import Plan
from gbackprop.plain.programs.sections import (
    OF_LOSS,
    LetterTape,
    NamedFactor,
    RecordedFactor,
    Section,
    Sections,
    announced,
    turned,
)
from gbackprop.plain.reference import GraphSweep, Sweep, finish
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result


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
    names, notes : dict of int to str
        The letters of values, and what they are, by their number.
    layers : dict of str to Layer
        The layers that were met, by their paths.
    """

    tape: Tape = field(default_factory=lambda: LetterTape(Recorded))
    inputs: dict[str, int] = field(default_factory=dict)
    result: Any = None
    names: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)

    def part(self, section: Section | None) -> str:
        """Return the part of the call that a section is, for messages."""
        kind, path = section or Section("loss")
        if kind in ("forward", "columns", "extract", "carry", "append"):
            return f"layer {path or '(alone)'}, {self.layers[path]!r}, {kind}"
        if kind == "loss" or not path:
            return " ".join(filter(None, (kind, path)))
        return f"quantity {path}, {kind}"

    def leaf(self, name: str, value: Array) -> Recorded:
        """Return an input, which is the same each time that it is asked for."""
        if name not in self.inputs:
            self.inputs[name] = number = self.tape.add("leaf", value, (name,)).number
            self.names[number] = name.rpartition("/")[2]
        return Recorded(self.tape, self.inputs[name])

    def call(self, value: Any, name: str, note: str = "") -> None:
        """Name a value, if it is an array that has no name yet, and say what it is."""
        if isinstance(value, Recorded) and value.current() not in self.names:
            self.names[value.current()] = name
            self.notes[value.current()] = note


def recorded(plan: Plan, x: Array, y: Array) -> Recording:
    """Record the sweep; an error says in which part of it."""
    recording = Recording()
    try:
        record(recording, plan, x, y)
    except TraceError as error:
        part = recording.part(recording.tape.section)
        instead = "; gbackprop.reference computes it" if part.startswith("quantity") else ""
        raise UnsupportedError(f"program: {part}: {error}{instead}") from None
    return recording


def record(found: Recording, plan: Plan, x: Array, y: Array) -> None:
    """Record `gb.reference` with a plan and its batch."""
    leaves: dict[str, Any] = {"x": found.leaf("x", x)}
    if isinstance(y, Targets):
        leaves["y"] = Targets(found.leaf("y", y.y), found.leaf("sample_weight", y.weight))
    else:
        leaves["y"] = found.leaf("y", y)
    found.tape.leaves = len(found.inputs)

    def run(following: Plan) -> Result:
        plan = _recorded(following, found, leaves["y"])
        sweep: Any = (_ChainSweep if plan.chain else _GraphSweep)(plan, found)
        output, saved = sweep.forward(leaves["x"])
        sweep.backward(output, leaves["y"], saved)
        found.tape.section = Section("loss", "value")
        value = plan.loss.values(output, leaves["y"]).sum()
        found.tape.section = Section("finish")
        plan.__dict__["loss"] = following.loss
        return finish(plan, value, output, sweep.found)

    try:
        result = complete(plan, x, run(plan), run)
    except Exception:
        if found.tape.refused is not None:  # NumPy replaces some errors by its own
            raise found.tape.refused from None
        raise
    if found.tape.refused is not None:
        raise found.tape.refused
    found.call(result.loss, "L")
    for quantity, values in zip(result.quantities, result.values, strict=True):
        for name, value in values.items():
            if isinstance(value, Recorded):
                found.call(value, f"{quantity.name}_{turned(name)}")
                continue
            for key, array in attributes_of(value) if any(True for _ in arrays_in(value)) else []:
                found.call(array, f"{key}_{name.rpartition('.')[0]}")
    found.names = {**found.tape.letters, **found.names}  # type: ignore[attr-defined]
    finished: list[Any] = []
    for quantity, value in zip(result.quantities, result.values, strict=True):
        found.tape.section = _finish(quantity)
        finished.append(mapped_arrays(value, found.tape.ref, ARRAYS))
        for each in finished[-1].values() if isinstance(finished[-1], dict) else ():
            if any(True for _ in arrays_in(list(getattr(each, "__dict__", {}).values()), (Recorded,))):
                found.tape.refuse(MissingFunctionError, f"a result of class {type(each).__name__} is not in the table; "
                                  "expected arrays, or a dataclass, dictionary or list of these")  # fmt: skip
    result = replace(result, values=finished, objective=None, scale=None)
    found.result = mapped_arrays(result, found.tape.ref)
    found.tape.open = False


def inputs_of(plan: Plan) -> dict[str, dict[str, Array]]:
    """Return the inputs of a program beside x and y: parameters and buffers, and the random numbers of a batch."""
    parameters = {name: value for leaf in plan.leaves for name, value in _state(leaf)}
    random: dict[str, Array] = {}
    for name, value in _draws(plan):
        _random(value, random.setdefault, name)
    return {"parameters": parameters, "random": random}


def on_host(plan: Plan, x: Array, y: Any) -> tuple[Plan, Array, Any]:
    """Return a plan with x and y on the host, where they are not a copy."""
    if device_of(x) == "cpu":
        return plan, x, y
    targets = [y.y, y.weight] if isinstance(y, Targets) else [y]
    parts = parts_of(plan.network, plan.loss, [quantity for quantity, _ in plan.needs])
    constants = [array for array, _ in digests_of(parts, lambda array: b"")[1].arrays]
    arrays = [x, *targets, *constants, *(each for kind in inputs_of(plan).values() for each in kind.values())]
    known: dict[int, Any] = {id(each): asnumpy(each) for each in arrays}
    return copy.deepcopy((plan, x, y), known)


def _state(leaf: Leaf) -> Iterator[tuple[str, Array]]:
    """Yield the parameters and buffers of a layer by their names in the network."""
    for kind in STATE:
        for key, value in (getattr(leaf.layer, kind, None) or {}).items():
            yield _name(leaf, key), value


def _name(leaf: Leaf, key: str) -> str:
    """Return the network's name of a parameter; of what is frozen, and of buffers, that of the layer's own."""
    return leaf.parameters.get(key) or inside(leaf.name, key)


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
    if value is not None:
        raise UnsupportedError(f"program: {name}: expected random numbers as arrays, got {value!r:.80}")
    return value


STATE = ("drawn", "buffers")
"""The attributes of layers that a program reads in each call: dictionaries of arrays."""


RECORDED = (Recorded, Ref)
ARRAYS = (*RECORDED, np.ndarray)


def mapped_arrays(value: Any, change: Callable[[Any], Any], kinds: tuple[type, ...] = RECORDED) -> Any:
    """Return a copy of a value in which each recorded array, or its `Ref`, is replaced."""
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped_arrays(each, change, kinds) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(mapped_arrays(each, change, kinds) for each in value)
    if any(True for _ in arrays_in(value, kinds)):
        new = object.__new__(type(value))
        for name, each in attributes_of(value):
            object.__setattr__(new, name, mapped_arrays(each, change, kinds))
        return new
    return value


def arrays_in(value: Any, kinds: tuple[type, ...] = RECORDED) -> Iterator[Any]:
    """Yield the recorded arrays in a value."""
    if isinstance(value, kinds):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from arrays_in(each, kinds)
    elif type(value) in (list, tuple):
        for each in value:
            yield from arrays_in(each, kinds)
    elif type(value).__module__.startswith("gbackprop.kronecker") or is_dataclass(value):
        for _, each in attributes_of(value):
            yield from arrays_in(each, kinds)


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object."""
    if is_dataclass(value) and not hasattr(value, "__dict__"):
        return [(each.name, getattr(value, each.name)) for each in fields(value)]
    return list(vars(value).items())


def results_of(result: Result) -> dict[str, Any]:
    """Return the numbers of all arrays of a result in dictionaries: loss, output, gradient, and quantities by name."""
    found = {"loss": result.loss, "output": result.output, "gradient": result.gradient}
    for quantity, values in zip(result.quantities, result.values, strict=True):
        name = quantity.name
        while name in found:
            name += "_"
        found[name] = values
    return {name: _numbers(value) for name, value in found.items()}


def _numbers(value: Any) -> Any:
    if isinstance(value, Ref):
        return value.number
    pairs = value.items() if isinstance(value, Mapping) else attributes_of(value)
    return {key: _numbers(each) for key, each in pairs if any(True for _ in arrays_in(each))}


def leaves_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path and the number of each array."""
    if isinstance(value, int):
        yield path, value
    else:
        for key, each in value.items():
            yield from leaves_in(each, (*path, key))


# --------------------------------------------------------------------------------------------------------- the sweep


def _recorded(plan: Plan, found: Recording, y: Any) -> Plan:
    """Return the plan with recorded parameters, random numbers, and R where it follows from the targets."""
    leaves = [replace(leaf, layer=_copied(leaf, found)) for leaf in plan.leaves]

    def give(name: str, value: Array) -> Recorded:
        return found.leaf(f"random/{name}", value)

    draws = [_random(each, give, name) for name, each in _draws(plan)]
    noise, mc_noise = draws[: len(leaves)], dict(zip(plan.mc_noise, draws[len(leaves) :], strict=True))
    new = object.__new__(Plan)
    new.__dict__.update(plan.__dict__, leaves=leaves, swept=[leaves[leaf.position] for leaf in plan.swept])
    found.tape.section = Section("loss", "factor")
    factor: Any = plan.loss.factor(plan.scale.batch, y)
    recorded = isinstance(factor, Recorded)
    factor = RecordedFactor(found.tape, factor.number) if recorded else NamedFactor(plan.scale.factor)
    found.call(factor, "R_y")
    scale = replace(plan.scale, factor=factor)
    announced(loss := copy.copy(plan.loss), found, OF_LOSS)
    loss.__dict__["check_output"] = lambda output: None  # reads numbers; each call of the program does
    new.__dict__.update(noise=noise, mc_noise=mc_noise, scale=scale, loss=loss)
    new.__dict__["needs"] = _Announced(found.tape, plan.needs)
    new.__dict__.pop("flow", None)
    return new


@dataclass
class _Announced:
    """The statistics of quantities; an iteration over them begins the section of each."""

    tape: Tape
    needs: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        for quantity, statistics in self.needs:
            self.tape.section = _finish(quantity)
            yield quantity, statistics


def _finish(quantity: Quantity) -> Section:
    return Section("finish", f"{quantity.name}, {quantity!r}")


def _copied(leaf: Leaf, found: Recording) -> Layer:
    """Return a copy of a layer whose parameters and buffers are recorded."""
    leaf.layer.parameters  # noqa: B018  # drawn now, if they were not
    found.layers[leaf.name], new = leaf.layer, copy.copy(leaf.layer)
    for kind in STATE:
        for key, value in (getattr(new, kind, None) or {}).items():
            array = found.leaf(f"parameters/{_name(leaf, key)}", value)
            new.__dict__[kind] = {**getattr(new, kind), key: array}
            found.names[array.number] = turned(_name(leaf, key))
    return new


class _ChainSweep(Sections, Sweep):
    """The sections of the sweep through a chain."""


class _GraphSweep(Sections, GraphSweep):
    """The sections of the sweep through a graph."""
