"""Simplification of recorded steps: what nobody needs goes, what is done twice is done once, constants are computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gbackprop.base.recording.tape import Ref, Tape, TapeStep, mapped, refs

SMALL = 64
"""Largest size of an array that is written as numbers in place of what computes it."""


def simplified(tape: Tape, wanted: Sequence[int]) -> tuple[list[TapeStep], dict[int, int]]:
    """Return the steps that wanted values need, and for each value that goes the one that takes its place."""
    passing = Simplification(tape)
    for step in tape.steps:
        passing.add(step)
    return needed(passing.steps.values(), [passing.same.get(each, each) for each in wanted]), passing.same


def needed(steps: Iterable[TapeStep], wanted: Iterable[int]) -> list[TapeStep]:
    """Return the inputs, and the steps on which wanted values depend, in order."""
    live, found = set(wanted), []
    for step in reversed(list(steps)):
        if step.name == "leaf" or live.intersection(step.results):
            live.update(refs((step.args, step.kwargs)))
            found.append(step)
    return found[::-1]


class Simplification:
    """The steps so far, each once.

    Attributes
    ----------
    steps : dict of int to TapeStep
        By the number of their first result.
    same : dict of int to int
        For each value that is computed no more, the value that equals it.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape, self.steps, self.same = tape, dict[int, TapeStep](), dict[int, int]()
        self.seen: dict[Any, list[int]] = {}
        self.constant: set[int] = set()

    def add(self, step: TapeStep) -> None:
        """Append a step, or note which value equals its result."""
        step = replace(step, args=self._renamed(step.args), kwargs=self._renamed(step.kwargs))
        values = [self.tape.values[number] for number in step.results]
        if step.name != "leaf" and self.constant.issuperset(refs((step.args, step.kwargs))):
            self.constant.update(step.results)
            if len(values) == 1 and values[0].size <= SMALL:
                step = replace(step, name="constant", args=(), kwargs={}, function=None)
        found = self._shorter(step)
        if not isinstance(found, int):
            content = values[0].tobytes() if found.name == "constant" else None
            key = (found.name, repr((found.args, found.kwargs)), content, values[0].dtype.str, values[0].shape)
            if key not in self.seen:
                self.seen[key], self.steps[found.results[0]] = found.results, found
                return
            self.same.update(zip(step.results, self.seen[key], strict=True))
        else:
            self.same[step.results[0]] = found

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(self.same.get(value.number, value.number))
        return mapped(self._renamed, value)

    # ---------------------------------------------------------------------------------------------------------- rules

    def _shorter(self, step: TapeStep) -> TapeStep | int:
        """Return a step that computes the same in less, or the value that its result equals in every bit."""
        rule = RULES.get(step.name)
        if rule is None or not step.args or not isinstance(step.args[0], Ref) or step.kwargs:
            return step
        return rule(self, step, step.args[0].number)

    def same_type(self, step: TapeStep, number: int) -> bool:
        """Return whether a step's result has the shape and dtype of another value."""
        one, other = self.tape.values[step.results[0]], self.tape.values[number]
        return one.shape == other.shape and one.dtype == other.dtype

    def before(self, number: int, name: str) -> TapeStep | None:
        """Return the step that computed a value, if it is of that name."""
        step = self.steps.get(number)
        return step if step is not None and step.name == name else None


def _reshape(self: Simplification, step: TapeStep, base: int) -> TapeStep | int:
    """Shorten reshape(reshape(x)) to one reshape, and one to x's own shape to x."""
    while (first := self.before(base, "reshape")) is not None and not first.kwargs:
        base = first.args[0].number
    if self.same_type(step, base):
        return base
    return replace(step, args=(Ref(base), self.tape.values[step.results[0]].shape))


def _getitem(self: Simplification, step: TapeStep, base: int) -> TapeStep | int:
    """Shorten x[:] to x."""
    index = step.args[1] if type(step.args[1]) is tuple else (step.args[1],)
    sizes = self.tape.values[base].shape
    if len(index) > len(sizes) or not all(isinstance(each, slice) for each in index):
        return step
    whole = all(range(*each.indices(size)) == range(size) for each, size in zip(index, sizes, strict=False))
    return base if whole else step


def _setitem(self: Simplification, step: TapeStep, base: int) -> TapeStep | int:
    """Shorten x[...] = v, of the same shape and dtype, to v."""
    _, index, value = step.args
    if index is Ellipsis and isinstance(value, Ref) and self.same_type(step, value.number):
        return value.number
    return step


def _unchanged(self: Simplification, step: TapeStep, base: int) -> TapeStep | int:
    """Shorten a copy, or a conversion to x's own dtype, to x."""
    return base if self.same_type(step, base) else step


def _multiply(self: Simplification, step: TapeStep, base: int) -> TapeStep | int:
    """Shorten x · 1 to x."""
    factor = step.args[1]
    return base if not isinstance(factor, Ref) and factor == 1 and self.same_type(step, base) else step


def _add(self: Simplification, step: TapeStep, base: int) -> TapeStep | int:
    """Shorten x + 0 to x."""
    more = step.args[1]
    nothing = type(more) in (int, float) and more == 0
    return base if nothing and self.same_type(step, base) else step


def _transpose(self: Simplification, step: TapeStep, base: int) -> TapeStep | int:
    """Shorten a transposition that leaves the axes in order."""
    order = step.args[1] if len(step.args) > 1 else None
    return base if order is not None and tuple(order) == tuple(range(len(order))) else step


RULES: dict[str, Any] = {
    "reshape": _reshape, "getitem": _getitem, "setitem": _setitem, "copy": _unchanged, "astype": _unchanged,
    "multiply": _multiply, "add": _add, "transpose": _transpose, "ascontiguousarray": _unchanged,
}  # fmt: skip
"""Rules that shorten a step, by its name."""
