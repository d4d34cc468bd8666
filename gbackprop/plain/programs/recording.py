"""The plain sweep recorded: what it does to `x`, `y`, the parameters and the random numbers, in order."""

from __future__ import annotations

import copy
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gbackprop.array import Array
from gbackprop.base.names import inside
from gbackprop.base.recording.arrays import Recorded
from gbackprop.base.recording.tape import Ref, Tape
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.signals import AVERAGE, GRADIENT, RESIDUAL, Signals
from gbackprop.plain.completion import complete
from gbackprop.plain.explanation.steps import STARTS
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
    names, notes : dict of int to str
        The letters of values, and what they are, by their number.
    layers : dict of str to Layer
        The layers that were met, by their paths.
    """

    tape: Tape = field(default_factory=lambda: _Tape(Recorded))
    inputs: dict[str, int] = field(default_factory=dict)
    result: Any = None
    names: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)

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


LETTERS = ("p", "e", "z", "u", "total", "roots", "steps", "mean", "variance", "sigma", "reached")
"""The variables of the package's functions whose names are those of the derivations."""


@dataclass
class _Tape(Tape):
    """A tape that also keeps the letter to which a line of the package assigned a value: that of the line's last step."""

    letters: dict[int, str] = field(default_factory=dict)
    last: Any = None

    def add(self, name: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().add(name, value, *args, **kwargs)
        frame: Any = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PASSED):
            frame = frame.f_back
        place, number = (frame.f_code, frame.f_lineno), len(self.values) - 1
        text = re.match(r"\s*(\w+) = ", linecache.getline(frame.f_code.co_filename, frame.f_lineno))
        if text and text[1] in LETTERS and self.section is not None and self.section.kind in ("forward", "loss"):
            if self.last == place:
                self.letters.pop(number - 1, None)
            self.letters[number] = f"{text[1]}_{self.section.layer}" if self.section.kind == "forward" else text[1]
        self.last = place
        return found


PASSED = ("gbackprop.base", "gbackprop.array", "gbackprop.plain.programs", "numpy")
"""The modules between a line and the tape."""


def record(found: Recording, plan: Plan, x: Array, y: Array) -> None:
    """Record `gb.reference` with a plan and its batch."""
    leaves: dict[str, Any] = {"x": found.leaf("x", x), "y": found.leaf("y", y)}
    found.tape.leaves = len(found.inputs)

    def run(following: Plan) -> Result:
        plan = _recorded(following, found, leaves["y"])
        plan.__dict__["loss"] = _announced(copy.copy(following.loss), found, OF_LOSS)
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


SYMBOLS = {"weight": "W", "bias": "b"}
"""The letters of parameters."""

COLUMNS = {"gradient": "g", "exact": "S", "mc": "S_mc", "residual": "P", "samples": "g_each"}
KINDS = {"mc": "Monte-Carlo"}
"""The letters of the columns of each signal, and what they are called where that is not the signal's name."""

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
                found.names |= {array.number: f"{SYMBOLS.get(key, key)}_{leaf.name}" for key, array in new.__dict__[kind].items()}
    return copies[id(layer)]


def _announced(owner: Any, recording: Recording, methods: Mapping[str, tuple[str, str]], of: str = "") -> Any:
    """Make a copied layer or loss name what its methods return."""
    for method in methods:
        if (plain := getattr(owner, method, None)) is not None:

            def announced(*args: Any, plain: Any = plain, method: str = method, **kwargs: Any) -> Any:
                found = plain(*args, **kwargs)
                drawn = method == "gradients" and recording.tape.section.layer != GRADIENT.name
                letter, note = methods["drawn" if drawn else method]
                recording.call(found, f"{letter}{of}", note)
                return found

            owner.__dict__[method] = announced
    return owner


OF_LOSS = {"gradients": ("grad", "∇ℓₙ"), "hessian_sqrt": ("S", "Sₙ"), "hessian_sqrt_mc": ("S_mc", "∇ℓ(fₙ, ŷₙₘ)"),
           "pseudo_targets": ("y_mc", "ŷₙₘ"), "values": ("l", "ℓₙ"), "drawn": ("grad_mc", "∇ℓ(fₙ, ŷₙₘ)")}  # fmt: skip
OF_LAYER = {"residual": ("r", "the residual"), "first": ("d", "φ'(x)"), "second": ("d2", "φ''(x)")}
"""The letters of what methods return, and their formulas."""


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
        _announced(layer, recording, OF_LAYER, f"_{leaf.name}")
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
        self.recording.tape.section = Section("loss", GRADIENT.name)
        signals = super().start(output, target)
        self._signals(signals, self.plan.leaves[-1].name)
        return signals

    def loss_columns(self, signal: Any, output: Any, target: Any) -> Any:
        if signal.name in STARTS and signal not in (AVERAGE, RESIDUAL):
            self.recording.tape.section = Section("loss", signal.name)
        return super().loss_columns(signal, output, target)

    def extract(self, leaf: Leaf, saved: Any, signals: Signals) -> None:
        self.recording.tape.section = Section("columns", leaf.name)
        self._signals(signals, leaf.name)
        self.recording.tape.section = Section("extract", leaf.name)
        before = set(self.found)
        super().extract(leaf, saved, signals)  # type: ignore[misc]
        for statistic, name in [key for key in self.found if key not in before]:
            value, reduction = self.found[statistic, name], statistic.reduction
            letter, path = COLUMNS.get(getattr(statistic.signal, "name", ""), ""), turned(name)
            text = {"kronecker": "B", "average_kronecker": "B", "input_square": "uu"}.get(reduction.name)
            text = f"{text}_{leaf.name}" if text else f"{reduction.name}_{letter}_{path}".replace("sum_g_", "grad_")
            for more, part in zip(("", "_more"), value if isinstance(value, tuple) else (value,), strict=False):
                self.recording.call(part, text + more, reduction.text.replace("g", letter) if letter else reduction.text)

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> Any:
        self.recording.tape.section = Section("carry", leaf.name)
        found = super().carry(leaf, saved, signals)  # type: ignore[misc]
        if isinstance(found, Signals):
            self.recording.call(found.stack.values, f"carried_{leaf.name}", "all columns at the input")
        return found

    def append(self, leaf: Leaf, saved: Any, signals: Signals, below: Any) -> Any:
        self.recording.tape.section = Section("append", leaf.name)
        return super().append(leaf, saved, signals, below)  # type: ignore[misc]

    def _signals(self, signals: Signals, name: str) -> None:
        """Name the columns at the output of a layer: all of them together, and those of each signal."""
        names, notes, start = self.recording.names, self.recording.notes, self.recording.tape.section.kind == "loss"
        self.recording.call(signals.average, f"G_{name}", "Ḡ")
        names[signals.stack.values.current()] = f"columns_{name}"
        if self.recording.tape.steps[-1].name == "concatenate":
            self.recording.tape.steps[-1].section = Section("columns", name)
        self.recording.call(signals.gradient, f"g_{name}", "the gradient's column")
        for signal, columns in signals.stack:
            letter = COLUMNS.get(signal.name, signal.name)
            if signal != GRADIENT:
                for each in (columns.values, columns.values[0]):
                    names[each.current()], notes[each.current()] = (f"{letter}_{name}",
                                                                        STARTS.get(signal.name, "") if start else f"{KINDS.get(signal.name, signal.name)} columns")
            if columns.sign is not None:
                self.recording.call(columns.sign, f"sign_{name}", "signs of r")


def turned(name: str) -> str:
    """Return the name of a parameter with its layer last: "W_0" of "0.weight"."""
    path, _, key = name.rpartition(".")
    return "_".join(filter(None, (SYMBOLS.get(key, key), path)))


class _ChainSweep(_Sections, Sweep):
    """The sections of the sweep through a chain."""


class _GraphSweep(_Sections, GraphSweep):
    """The sections of the sweep through a graph."""
