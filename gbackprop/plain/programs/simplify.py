"""Simplification of recorded steps: what nobody needs goes, what is done twice is done once, constants are computed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gbackprop.base.recording.tape import Ref, Tape, TapeStep, mapped, refs
from gbackprop.plain.programs.rules import shorter

SMALL = 64
"""Largest size of an array that is written as numbers in place of what computes it."""


def simplified(tape: Tape, wanted: Sequence[int], named: Container[int]) -> tuple[list[TapeStep], dict[int, int]]:
    """Return the steps that wanted values need, and for each value that goes the one that takes its place."""
    passing = Simplification(tape, named)
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
    places : dict of int to list of (int, ndarray)
        For each value that is another one with its numbers in other places: that value, and the place of each number;
        then the values on the way from which it is shorter to go on.
    """

    def __init__(self, tape: Tape, named: Container[int]) -> None:
        self.named = named
        self.tape, self.steps, self.same = tape, dict[int, TapeStep](), dict[int, int]()
        self.places: dict[int, list[tuple[int, np.ndarray]]] = {}
        self.seen: dict[Any, list[int]] = {}
        self.constant: set[int] = set()

    def add(self, step: TapeStep) -> int:
        """Append a step, or note which value equals its result; return the number of the (first) result."""
        step = replace(step, args=self._renamed(step.args), kwargs=self._renamed(step.kwargs))
        values = [self.tape.values[number] for number in step.results]
        if step.name != "leaf" and self.constant.issuperset(refs((step.args, step.kwargs))):
            self.constant.update(step.results)
            if len(values) == 1 and (values[0].size <= SMALL or (values[0] == values[0].flat[0]).all()):
                step = replace(step, name="constant", args=(), kwargs={}, function=None)
        found = shorter(self, step)
        if not isinstance(found, int):
            content = values[0].tobytes() if found.name == "constant" else None
            key = (found.name, repr((found.args, found.kwargs)), content, values[0].dtype.str, values[0].shape)
            if key not in self.seen:
                self.seen[key], self.steps[found.results[0]] = found.results, found
                return found.results[0]
            self.same.update(zip(step.results, self.seen[key], strict=True))
        else:
            self.same[step.results[0]] = found
        number = self.same[step.results[0]]
        if (part := self.before(number, "getitem")) is not None and getattr(step.section, "kind", "") == "columns":
            part.section = step.section  # columns are named where they arrive
        return number

    def make(self, like: TapeStep, name: str, *args: Any, **kwargs: Any) -> int:
        """Append a step that was not recorded, in the section of another; return the number of its result."""
        function = {"getitem": _taken}.get(name) or getattr(np, name)
        self.tape.values.append(np.asarray(function(*self.tape.lowered(args), **kwargs)))
        number = len(self.tape.values) - 1
        return self.add(replace(like, name=name, args=args, kwargs=kwargs, results=[number], function=function))

    def shaped(self, like: TapeStep, number: int, shape: tuple[int, ...]) -> int:
        """Return the number of a value in another shape."""
        return number if self.shape(number) == shape else self.make(like, "reshape", Ref(number), shape)

    def shape(self, number: int) -> tuple[int, ...]:
        """Return a value's shape."""
        return self.tape.values[number].shape

    def same_type(self, step: TapeStep, number: int) -> bool:
        """Return whether a step's result has the shape and dtype of another value."""
        one, other = self.tape.values[step.results[0]], self.tape.values[number]
        return one.shape == other.shape and one.dtype == other.dtype

    def before(self, number: int, name: str) -> TapeStep | None:
        """Return the step that computed a value, if it is of that name."""
        step = self.steps.get(number)
        return step if step is not None and step.name == name else None

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(self.same.get(value.number, value.number))
        return mapped(self._renamed, value)


def _taken(x: Any, index: Any) -> Any:
    return x[index]
