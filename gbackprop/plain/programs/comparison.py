"""Checks of a recording: by a second one, in which a step differs if a number was read from data, and by the sweep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.errors import UnsupportedError
from gbackprop.base.recording.refused import called
from gbackprop.base.recording.tape import Tape, TapeStep, refs, same
from gbackprop.kronecker.low_rank import LEAST_SIZE
from gbackprop.losses.sample_weights import Targets
from gbackprop.plain.programs.recording import ARRAYS, Recording, arrays_in, attributes_of
from gbackprop.quantities.result import Result


@contextmanager
def other_numbers(first: Recording, x: Array, y: Any) -> Iterator[tuple[Array, Any]]:
    """Give the parameters and buffers of a recording other numbers for a while; yield x and y with others, too.

    Whoever refers to these arrays, by whatever way, finds the other numbers. Samples are in the reverse order; floats,
    but for targets, move towards zero by a tenth at most, and none is zero: labels, indices and probabilities remain
    what they are.
    """
    rng = np.random.default_rng(0)
    values = [first.tape.values[number] for name, number in first.inputs.items() if name.startswith("parameters/")]
    arrays = {id(each): each for each in values if each.flags.writeable}.values()
    before = [array.copy() for array in arrays]
    try:
        for array in arrays:
            array[...] = _moved(array, rng)
        weighted = isinstance(y, Targets)
        yield _moved(x[::-1], rng), Targets(y.y[::-1], _moved(y.weight[::-1], rng)) if weighted else y[::-1].copy()
    finally:
        for array, numbers in zip(arrays, before, strict=True):
            array[...] = numbers


def _moved(array: Array, rng: np.random.Generator) -> Array:
    """Return a copy whose floats are nearer to zero."""
    if array.dtype.kind != "f":
        return array.copy()
    return (array * rng.uniform(0.9, 1, array.shape) + 0.01 * (array == 0)).astype(array.dtype)


def forget(tape: Tape) -> None:
    """Leave of what was computed from inputs shapes and dtypes alone: nothing of a program follows from its numbers."""
    computed: set[int] = set()
    for step in tape.steps:
        if step.name == "leaf":
            computed.update(step.results)
        elif not computed.isdisjoint(refs((step.args, step.kwargs))):
            computed.update(step.results)
            for number in step.results:
                value = tape.values[number]
                tape.values[number] = np.broadcast_to(np.zeros((), value.dtype), value.shape)


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
    for (path, one), (_, value) in zip(_numbers(first.result, False), _numbers(second.result, False), strict=True):
        if not same(one, value):  # a number that no step computes
            raise UnsupportedError(f"program: {path}: {DIFFERS}")


DIFFERS = (
    "another step is computed if x, y and parameters have other numbers: one is read from data, or drawn here, and "
    "would be a constant (a layer draws in `noise`, from the rng that it is given)"
)


def check_result(got: Result, want: Result, fold: bool) -> None:
    """Raise an error if a program's result is another one than that of the plain sweep."""
    pairs = list(zip_longest(_numbers(got, fold), _numbers(want, fold), fillvalue=("", np.zeros(0))))
    floats = [value for _, (_, value) in pairs if value.dtype.kind == "f"]
    largest = max((np.abs(value[np.isfinite(value)]).max(initial=0) for value in floats), default=0)
    for (path, a), (other, b) in pairs:
        if (path, a.shape, a.dtype) == (other, b.shape, b.dtype):
            own, all_in_all = BOUNDS.get(b.dtype.name, (0, 0))
            size = np.abs(b[np.isfinite(b)]).max(initial=0) if own else 0
            if np.allclose(a, b, 0, own * size + all_in_all * largest, equal_nan=True):
                continue
        raise UnsupportedError(f"program: {other or path}: {ANOTHER}")


def check_there(source: str, special: Any) -> None:
    """Raise an error if a program calls a function of SciPy that the module on its device lacks."""
    for name in re.findall(r"\bspecial\.(\w+)", source):
        if not hasattr(special, name):
            raise UnsupportedError(f"program: scipy.special.{name}: expected one that CuPy has, too")


BOUNDS = {"float64": (1e-9, 1e-12), "float32": (1e-3, 1e-5)}
"""Largest differences by rounding: of an array in parts of its largest number, and of the largest of all."""

ANOTHER = (
    "the program computes another one than gbackprop.reference: the network, the loss or a quantity asks for the class "
    "of an array (`isinstance(x, np.ndarray)`) or of itself, or changes from call to call"
)

BASES = ("QA", "QB", "eigenvalues")
"""Attributes that rounding changes, as eigenvectors of equal or tiny eigenvalues are not unique."""


def _numbers(result: Result, fold: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the numbers of a result with their paths; folded and large ones without those of bases."""
    found = [("loss", result.loss), ("output", result.output), ("gradient", result.gradient)]
    for quantity, values in zip(result.quantities, result.values, strict=True):
        found.append((f"quantity {quantity.name}, {quantity!r}", values))
    while found:
        path, value = found.pop(0)
        if isinstance(value, np.ndarray | np.generic | int | float | complex):
            yield path, np.asarray(value)
        elif isinstance(value, Mapping | list | tuple):
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            found += [(f"{path}, {key}", each) for key, each in pairs]
        elif any(True for _ in arrays_in(value, ARRAYS)):
            attributes = attributes_of(value)
            rounded = fold or any(key in BASES and np.shape(each)[-1:] >= (LEAST_SIZE,) for key, each in attributes)
            found += [(f"{path}, {key}", each) for key, each in attributes if not (rounded and key in BASES)]
            found += [(f"{path}, trace", each.sum()) for key, each in attributes if rounded and key == "eigenvalues"]


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
