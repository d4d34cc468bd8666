"""A second recording with other numbers: a step that differs has read a number from data, or has drawn one."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.errors import UnsupportedError
from gbackprop.base.recording.refused import called
from gbackprop.base.recording.tape import TapeStep, same
from gbackprop.plain.plan import Plan
from gbackprop.plain.programs.recording import Recording


def other_numbers(first: Recording, plan: Plan, x: Array, y: Array) -> tuple[Plan, Array, Array]:
    """Return a copy of a plan, with x and y, in which all inputs of a recording have other numbers.

    Samples are in the reverse order; floats, but for targets, move towards zero by a tenth at most, and none is zero:
    labels, indices and probabilities remain what they are.
    """
    rng = np.random.default_rng(0)
    known: dict[int, Any] = {id(y): y[::-1].copy()}
    for name, number in first.inputs.items():
        array = first.tape.values[number]
        if name != "y":
            moved = array[::-1] if array.ndim and name == "x" else array
            if array.dtype.kind == "f":
                moved = (moved * rng.uniform(0.9, 1, array.shape) + 0.01 * (moved == 0)).astype(array.dtype)
            known[id(array)] = moved.copy()
    other = known[id(x)], known[id(y)]
    with suppress(Exception):  # if an object of a user's cannot be copied, parameters remain what they are
        plan = copy.deepcopy(plan, known)  # whatever refers to one of these arrays refers to the other one
    return plan, *other


def compare(first: Recording, second: Recording) -> None:
    """Raise an error that names the first step which differs, or which a program cannot have."""
    steps, others = first.tape.steps, second.tape.steps
    arrays = [first.tape.values[number] for number in first.inputs.values()]
    taken = {n for held, n in first.tape.constants.values() if any(np.may_share_memory(held, a) for a in arrays)}
    for step, other in zip(steps, others, strict=False):
        if taken.intersection(step.results):
            _refuse(first, step, "x, y or a parameter is taken from elsewhere than the arguments of the method")
        if any(callable(each) and not isinstance(each, type) for each in (*step.args, *step.kwargs.values())):
            _refuse(first, step, f"{called(step.name)} takes a function, which is no step of a program")
        if not _agree(first, step, second, other):
            _refuse(first, step, DIFFERS)
    if len(steps) != len(others):
        longer = max(first, second, key=lambda each: len(each.tape.steps))
        _refuse(longer, longer.tape.steps[min(len(steps), len(others))], DIFFERS)


DIFFERS = (
    "another step is computed if x, y and parameters have other numbers: one is read from data, or drawn here, and "
    "would be a constant (a layer draws in `noise`, from the rng that it is given)"
)


def _refuse(recording: Recording, step: TapeStep, words: str) -> None:
    raise UnsupportedError(f"program: {recording.part(step.section)}: {step.line}: {words}")


def _agree(first: Recording, one: TapeStep, second: Recording, other: TapeStep) -> bool:
    """Return whether two steps are one of a program: they differ in the numbers of arrays that are computed alone."""
    if (one.name, one.results, one.section) != (other.name, other.results, other.section):
        return False
    pairs = [(first.tape.values[number], second.tape.values[number]) for number in one.results]
    if one.name == "constant" and not same(*pairs[0]):
        return False
    kinds = all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    return kinds and repr((one.args, one.kwargs)) == repr((other.args, other.kwargs))
