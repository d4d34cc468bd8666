"""The sections of a sweep, and the letters of values: those of the pages on derivations."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gbackprop.base.recording.arrays import Recorded
from gbackprop.base.recording.tape import Tape, refs
from gbackprop.calculus.layer import Leaf
from gbackprop.calculus.signals import AVERAGE, GRADIENT, RESIDUAL, Signals
from gbackprop.plain.explanation.steps import STARTS
from gbackprop.plain.reference import AtLoss

SYMBOLS = {"weight": "W", "bias": "b"}
"""The letters of parameters."""

COLUMNS = {"gradient": "g", "exact": "S", "mc": "S_mc", "residual": "P", "samples": "g_each"}
KINDS = {"mc": "Monte-Carlo"}
"""The letters of the columns of each signal, and what they are called where that is not the signal's name."""


class NamedFactor(float):
    """R, or a power of it, as a number that knows its name."""

    text = "R"

    def __pow__(self, exponent: Any, modulo: None = None) -> Any:
        """Return a power of R by its name; one of that is a number."""
        new = float(self) ** exponent
        if self.text == "R":
            new = NamedFactor(new)
            new.text = f"R ** {exponent}"
        return new


class RecordedFactor(Recorded):
    """R of these targets, or a power of it: as a number does, it takes the dtype of an array that it meets."""

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        met = [each.dtype for each in args if hasattr(each, "dtype") and not isinstance(each, RecordedFactor)]
        if met:
            dtype = np.result_type(*met)
            args = tuple(each.astype(dtype) if _is_other(each, dtype) else each for each in args)
        found = super().__array_ufunc__(ufunc, method, *args, **kwargs)
        return found if met else RecordedFactor(found.tape, found.number)


def _is_other(value: Any, dtype: np.dtype) -> bool:
    """Return whether a value is a factor of another dtype than an array of floats has."""
    return isinstance(value, RecordedFactor) and dtype.kind == "f" and value.dtype != dtype


class Section(NamedTuple):
    """A part of the sweep: forward, loss, columns, extract, carry, append or finish; and the layer's path."""

    kind: str
    layer: str = ""


PLAIN = ("p", "e", "z", "u", "total", "rest", "roots", "steps", "mean", "variance", "sigma", "reached")
LETTERS: dict[str, dict[str, str]] = {
    "": dict(zip(PLAIN, PLAIN, strict=True)),
    "gbackprop.layers.elementwise.activation": {"below": "low"},
    "gbackprop.layers.windows.pooling": {"places": "k"},
    "gbackprop.calculus.moments": {"shift": "K", "q": "Q"},
}
"""The letters of variables in modules' functions; of the modules without letters of their own, those in forward
passes and losses that are called as in the derivations."""


@dataclass
class LetterTape(Tape):
    """A tape that also keeps the letter to which a line of the package assigned the value of its last step."""

    letters: dict[int, str] = field(default_factory=dict)

    def add(self, name: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().add(name, value, *args, **kwargs)
        if self.section is None:
            return found
        frame: Any = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PASSED):
            frame = frame.f_back
        called = self.section.kind == "forward" or (self.section.kind == "loss" and self.section.layer != "factor")
        plain = LETTERS[""] if called else {}
        letters, number = LETTERS.get(frame.f_globals.get("__name__", ""), plain), len(self.values) - 1
        text = re.match(r"\s*(\w+) [-+*/&]?= ", linecache.getline(frame.f_code.co_filename, frame.f_lineno))
        if text and (letter := letters.get(text[1])):
            letter = letter if self.section.kind == "loss" else f"{letter}_{self.section.layer}"
            for before in refs(args):
                if self.letters.get(before) == letter:  # it is a part of this value
                    del self.letters[before]
            self.letters[number] = letter
        return found

    def lowered(self, value: Any) -> Any:
        """Return arguments with values for `Ref`, and R as NumPy takes it: in the dtype of an array beside it."""
        return float(value) if isinstance(value, NamedFactor) else super().lowered(value)


PASSED = ("gbackprop.base", "gbackprop.array", "gbackprop.plain.programs", "numpy")
"""The modules between a line and the tape."""


def turned(name: str) -> str:
    """Return the name of a parameter with its layer last: "W_0" of "0.weight"."""
    path, _, key = name.rpartition(".")
    return "_".join(filter(None, (SYMBOLS.get(key, key), path)))


def announced(owner: Any, recording: Any, methods: Mapping[str, tuple[str, str]], of: str = "") -> None:
    """Make a copied layer or loss name the results of its methods."""

    def named(method: str, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = plain(*args, **kwargs)
        drawn = method == "gradients" and recording.tape.section.layer != GRADIENT.name
        letter, note = methods["drawn" if drawn else method]
        recording.call(found, f"{letter}{of}", note)
        return found

    derive(owner, [name for name in methods if callable(getattr(owner, name, None))], named)


def derive(owner: Any, methods: Iterable[str], around: Callable[..., Any]) -> None:
    """Give an object a class of its own, so that its copies have it, too; calls of some methods go to `around`."""

    def passed(name: str) -> Callable[..., Any]:
        return lambda self, *args, **kwargs: around(name, getattr(super(new, self), name), *args, **kwargs)

    kind = type(owner)
    new = type(kind.__name__, (kind,), {"__module__": kind.__module__, **{name: passed(name) for name in methods}})
    owner.__class__ = new


OF_LOSS = {"gradients": ("grad", "∇ℓₙ"), "hessian_sqrt": ("S", "Sₙ"), "hessian_sqrt_mc": ("S_mc", "∇ℓ(fₙ, ŷₙₘ)"),
           "pseudo_targets": ("y_mc", "ŷₙₘ"), "values": ("l", "ℓₙ"), "drawn": ("grad_mc", "∇ℓ(fₙ, ŷₙₘ)")}  # fmt: skip
OF_LAYER = {"residual": ("r", "the residual's diagonal"), "first": ("d", "φ'(x)"), "second": ("d2", "φ''(x)")}
"""The letters of what methods return, and their formulas."""


class Sections(AtLoss):
    """The sections of a sweep, and the letters of what crosses from one to the next."""

    def __init__(self, plan: Any, recording: Any) -> None:
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
        announced(layer, recording, OF_LAYER, f"_{leaf.name}")

        def forward(method: str, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            before, recording.tape.section = recording.tape.section, Section("forward", leaf.name)
            output, saved = plain(*args, **kwargs)
            recording.call(output, f"z_{leaf.name}")
            recording.tape.section = before
            return output, saved

        if not hasattr(layer, "children"):  # a network without layers computes nothing
            derive(layer, ("forward", "forward_training"), forward)

    def start(self, output: Any, target: Any) -> Signals:
        def average(method: str, plain: Callable[..., Any], *args: Any) -> Any:
            self.recording.tape.section = Section("loss", AVERAGE.name)
            return plain(*args)

        derive(self.plan.loss, ("hessian_sum",), average)
        self.recording.tape.section = Section("loss", GRADIENT.name)
        signals = super().start(output, target)
        self._signals(signals, self.plan.leaves[-1].name)
        return signals

    def loss_columns(self, signal: Any, output: Any, target: Any) -> Any:
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
            formula = reduction.text.replace("± " * (statistic.signal != RESIDUAL), "").replace("Jᵀ", "J_θᵀ")
            for more, part in zip(("", "_more"), value if isinstance(value, tuple) else (value,), strict=False):
                self.recording.call(part, text + more, formula.replace("g", letter or "g"))

    def carry(self, leaf: Leaf, saved: Any, signals: Signals) -> Any:
        self.recording.tape.section = Section("carry", leaf.name)
        found = super().carry(leaf, saved, signals)  # type: ignore[misc]
        if isinstance(found, Signals):
            self.recording.call(found.stack.values, f"carried_{leaf.name}", "these columns at the input")
        return found

    def append(self, leaf: Leaf, saved: Any, signals: Signals, below: Any) -> Any:
        self.recording.tape.section = Section("append", leaf.name)
        return super().append(leaf, saved, signals, below)  # type: ignore[misc]

    def meet(self, before: Signals, more: Signals, source: int) -> Signals:
        """Add what another layer carries to the output of a source."""
        self.recording.tape.section = Section("columns", self.plan.leaves[source].name)
        return super().meet(before, more, source)  # type: ignore[misc]

    def _signals(self, signals: Signals, name: str) -> None:
        """Name the columns at the output of a layer: all of them together, and those of each signal."""
        names, notes, start = self.recording.names, self.recording.notes, self.recording.tape.section.kind == "loss"
        self.recording.call(signals.average, f"G_{name}", "Ḡ")
        stack: Any = signals.stack.values
        names[stack.current()] = f"columns_{name}"
        if self.recording.tape.steps[-1].name == "concatenate":
            self.recording.tape.steps[-1].section = Section("columns", name)
        self.recording.call(signals.gradient, f"g_{name}", "the gradient's column")
        columns: Any
        for signal, columns in signals.stack:
            text = f"{COLUMNS.get(signal.name, signal.name)}_{name}"
            note = STARTS.get(signal.name, "") if start else f"{KINDS.get(signal.name, signal.name)} columns"
            for each in (columns.values, columns.values[0]) if signal != GRADIENT else ():
                names[each.current()], notes[each.current()] = text, note
            if columns.sign is not None:
                self.recording.call(columns.sign, f"sign_{name}", "signs of r")
