"""Rules that say a recorded step in less: moved numbers, parts of parts, and axes of size 1."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gbackprop.base.recording.tape import Ref, TapeStep, refs

MOVES = ("reshape", "transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "ravel",
         "matrix_transpose", "getitem", "permute_dims", "stack", "atleast_1d", "atleast_2d", "copy", "astype",
         "ascontiguousarray")  # fmt: skip
"""Functions whose result may have the numbers of their argument, each once, in other places."""

REDUCTIONS = ("sum", "max", "min", "mean", "prod", "add.reduce")


def shorter(done: Any, step: TapeStep) -> TapeStep | int:
    """Return a step that computes the same in less, or the number of the value that its result equals."""
    if step.name in ("constant", "leaf") or len(step.results) > 1 or not refs((step.args, step.kwargs)):
        return step
    if step.name in MOVES and (found := _moved(done, step)) is not None:
        return found
    if step.name in RULES:
        return RULES[step.name](done, step)
    if step.name in REDUCTIONS:
        return _reduced(done, step)
    ufunc = getattr(np, step.name, None)
    if isinstance(ufunc, np.ufunc) and not step.kwargs and ufunc.nout == 1:
        return _without_units(done, step, 0 if ufunc.signature is None else 2)
    return step


# -------------------------------------------------------------------------------------------------------------- moves


def _moved(done: Any, step: TapeStep) -> TapeStep | int | None:
    """Shorten moves of numbers to at most a transposition and a reshape of the value where they come from."""
    value = done.tape.values[step.results[0]]
    first, *rest = step.args
    if step.name == "stack" and len(first) == 1:
        first, rest = first[0], [(rest or [0])[0]]
    if not isinstance(first, Ref) or step.kwargs or (step.name == "getitem" and not _basic(rest[0])):
        return None
    number = step.results[0]
    argument = done.tape.values[first.number]
    if value.size != argument.size or value.dtype != argument.dtype:
        return None
    found, best = done.places.setdefault(number, []), None
    for last in (False, True):
        known = done.places.get(first.number, [])
        if last:  # no value is near enough: from the argument
            base, lead = first.number, next((i for i, size in enumerate(argument.shape) if size != 1), 0)
            if best is None and step.name != "reshape" and _adds_units(done, base):
                base = done.shaped(step, base, argument.shape[lead:])
            known = [(base, np.zeros(argument.shape, np.int8))]
        for base, places in known if best is None else []:
            if step.name not in ("copy", "astype", "ascontiguousarray"):
                places = _gone_on(step, places, rest, done.tape.lowered(rest))
            found.append((base, places))
            shape = done.shape(base)
            order = tuple(range(len(shape))) if _in_order(places) else _order(places, shape)
            if order is not None:
                turns = order != tuple(range(len(shape)))
                cost = turns + (tuple(shape[i] for i in order) != value.shape)
                this = (cost, base not in done.named), base, order, turns
                best = this if best is None or this[0] < best[0] else best
    if best is None:
        return step
    (cost, _), base, order, turns = best
    if number in done.named:
        found.append((number, np.zeros(value.shape, np.int8)))
    if cost == 2:
        base = done.make(step, "transpose", Ref(base), order)
    if cost == 0:
        return base
    if turns and cost == 1:
        return replace(step, name="transpose", args=(Ref(base), order), function=np.transpose)
    return replace(step, name="reshape", args=(Ref(base), value.shape), function=np.reshape)


def _basic(index: Any) -> bool:
    parts = index if type(index) is tuple else (index,)
    return all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts)


def _gone_on(step: TapeStep, places: np.ndarray, rest: Any, more: Any) -> np.ndarray:
    """Return places after a move: of views of an array the strides say them, of other arrays the numbers."""

    def moved(places: np.ndarray) -> np.ndarray:
        return np.stack([places], *rest) if step.name == "stack" else step.function(places, *more)

    found = moved(places)
    if places.dtype != np.int8 or (np.may_share_memory(found, places) and min(found.strides, default=0) >= 0):
        return found
    return moved(as_strided(np.arange(places.size), places.shape, [8 * each for each in places.strides]))


def _in_order(places: np.ndarray) -> bool:
    if places.dtype == np.int8:
        return places.flags.c_contiguous
    return bool((places.ravel() == np.arange(places.size)).all())


def _place(places: np.ndarray, at: int) -> int:
    """Return the place of a number relative to that of the first one."""
    if places.dtype == np.int8:
        return int(np.dot(np.unravel_index(at, places.shape), places.strides))
    return int(places.flat[at] - places.flat[0])


def _axes(view: np.ndarray) -> list[tuple[int, int]]:
    """Return the sizes and strides of axes, of which those that are one in memory are joined."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(view.shape, view.strides, strict=True):
        if found and found[-1][1] == size * stride:
            found[-1] = found[-1][0] * size, stride
        elif size != 1:
            found.append((size, stride))
    return found


def _order(places: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the order of axes in which an array of a shape has its numbers at these places, row by row."""
    size, order = 1, list[int]()
    units, left = ([i for i, each in enumerate(shape) if (each == 1) == unit] for unit in (True, False))
    while left and size < places.size:
        step = _place(places, size)
        axis = next((i for i in left if np.prod(shape[i + 1 :]) == step), None)
        if axis is None:
            return None
        left.remove(axis)
        order, size = [axis, *order], size * shape[axis]
    if places.dtype == np.int8:
        if _axes(np.zeros(shape, np.int8).transpose(order + units)) != _axes(places):
            return None
    elif not np.array_equal(np.arange(places.size).reshape(shape).transpose(order + units).ravel(), places.ravel()):
        return None
    if [each for each in places.shape if each > 1] == [shape[i] for i in order]:
        rest, ones = iter(order), iter(units)
        order = [i for each in places.shape for i in ([next(rest)] if each > 1 else list(islice(ones, 1)))]
    return (*order, *(i for i in units if i not in order))


# -------------------------------------------------------------------------------------------------------- parts, copies


def _getitem(done: Any, step: TapeStep) -> TapeStep | int:
    """Shorten parts of parts, of what was joined, and of what was assigned."""
    base, index = step.args[0].number, step.args[1]
    given = done.before(base, "setitem")
    value = given.args[2] if given is not None and repr(given.args[1]) == repr(index) else None
    if isinstance(value, Ref) and done.same_type(step, value.number):
        return value.number
    span, whole = _slice(index, len(done.tape.values[base])), type(index) is int
    if span is None:
        return step
    start, stop = span
    if stop == start + 1 and not whole:
        return done.shaped(step, done.make(step, "getitem", Ref(base), start), done.shape(step.results[0]))
    join = done.before(base, "concatenate")
    if join is not None and len(join.args) == 1 and not join.kwargs:
        for part in join.args[0]:
            size = len(done.tape.values[part.number])
            if start >= 0 and stop <= size:
                return done.make(step, "getitem", part, start if whole else slice(start, stop))
            start, stop = start - size, stop - size
        return step
    within = done.before(base, "getitem")
    if within is not None and isinstance(within.args[1], slice):
        outer = _slice(within.args[1], len(done.tape.values[within.args[0].number]))
        if outer is not None:
            start, stop = start + outer[0], stop + outer[0]
            return done.make(step, "getitem", within.args[0], start if whole else slice(start, stop))
    return step


def _slice(index: Any, size: int) -> tuple[int, int] | None:
    """Return where an index of the first axis starts and stops, None if it is no number or slice without steps."""
    if type(index) is int:
        return index % size, index % size + 1
    return index.indices(size)[:2] if isinstance(index, slice) and index.step in (None, 1) else None


def _span(done: Any, number: int) -> tuple[int, int, int]:
    """Return the value of which another is a slice along the first axis, and where it starts and stops."""
    at, base = done.before(number, "reshape"), number
    if at is not None and done.shape(number) == (1, *done.shape(at.args[0].number)):
        base = at.args[0].number
    part = done.before(base, "getitem")
    if part is not None and (type(part.args[1]) is int) == (base != number):
        span = _slice(part.args[1], len(done.tape.values[part.args[0].number]))
        if span is not None:
            return part.args[0].number, *span
    return number, 0, done.shape(number)[0]


def _concatenate(done: Any, step: TapeStep) -> TapeStep | int:
    """Join adjacent slices of one array to one slice."""
    if len(step.args) > 1 or step.kwargs or not all(isinstance(each, Ref) for each in step.args[0]):
        return step
    spans: list[tuple[int, int, int]] = []
    for part in step.args[0]:
        base, start, stop = _span(done, part.number)
        if spans and spans[-1][0] == base and spans[-1][2] == start and base != part.number:
            start = spans.pop()[1]
        spans.append((base, start, stop))
    if len(spans) == len(step.args[0]) > 1:
        return step
    parts = []
    for base, start, stop in spans:
        whole = (start, stop) == (0, done.shape(base)[0])
        parts.append(Ref(base if whole else done.make(step, "getitem", Ref(base), slice(start, stop))))
    if len(parts) == 1:
        return parts[0].number
    return replace(step, args=(parts,))


def _setitem(done: Any, step: TapeStep) -> TapeStep | int:
    """Shorten x[...] = v, with a new number in each place, to v."""
    base, index, value = step.args
    if not isinstance(value, Ref) or not _basic(index):
        return step
    new, old = done.tape.values[value.number], done.tape.values[base.number]
    part = old[index]
    if part.size != old.size or new.shape != part.shape or new.dtype != done.tape.values[step.results[0]].dtype:
        return step
    in_order = _in_order(np.zeros(old.shape, np.int8)[index])
    return done.shaped(step, value.number, old.shape) if in_order else step


def _neutral(done: Any, step: TapeStep) -> TapeStep | int:
    """Shorten x · 1, x + 0 and x & True to x."""
    neutral = {"multiply": 1, "add": 0, "bitwise_and": True}[step.name]
    for x, other in (step.args, step.args[::-1]):
        known = done.tape.values[other.number] if isinstance(other, Ref) and other.number in done.constant else other
        fits = isinstance(x, Ref) and not isinstance(known, Ref) and done.same_type(step, x.number)
        if fits and np.all(known == neutral) and (step.name != "bitwise_and" or np.asarray(known).dtype == bool):
            return x.number
    return _without_units(done, step, 0)


# ------------------------------------------------------------------------------------------------------- axes of size 1


def _adds_units(done: Any, number: int) -> bool:
    """Return whether a value is another one with a first axis of size 1, which can be left out."""
    shape = done.shape(number)
    return shape[:1] == (1,) and (number in done.constant or done.before(number, "reshape") is not None)


def _without_units(done: Any, step: TapeStep, least: int) -> TapeStep | int:
    """Compute without first axes of size 1 that were added, and add them afterwards; `least` axes remain."""
    numbers = [each.number for each in step.args if isinstance(each, Ref)]
    sizes = {number: len(done.shape(number)) for number in numbers}
    if not all(isinstance(each, Ref | int | float | np.generic) for each in step.args) or min(sizes.values()) < least:
        return step
    result = done.shape(step.results[0])
    wide = [number for number in numbers if sizes[number] == len(result)]
    gone = bool(len(result) > least and result[0] == 1 and wide and all(_adds_units(done, each) for each in wide))

    def narrow(number: int) -> int:
        others = any(sizes[each] >= len(result) - gone for each in numbers if each != number)
        while (size := len(done.shape(number))) > least and _adds_units(done, number):
            if size <= len(result) - gone and not others:
                break
            number = done.shaped(step, number, done.shape(number)[1:])
        return number

    args = [Ref(narrow(each.number)) if isinstance(each, Ref) else each for each in step.args]
    outer = step.name == "matmul" and done.shape(args[0].number)[-1] == 1
    if args == list(step.args) and not outer:
        return step
    most = max(len(done.shape(each.number)) for each in args if isinstance(each, Ref))
    value = done.tape.values[step.results[0]].reshape(result[max(len(result) - most, 0) :])
    return done.shaped(step, done.make(step, "multiply" if outer else step.name, *args, value=value), result)


def _reduced(done: Any, step: TapeStep) -> TapeStep | int:
    """Leave out axes of size 1 of what is summed."""
    first, *rest = step.args
    axis = rest[0] if rest else step.kwargs.get("axis")
    known = len(rest) <= 1 and set(step.kwargs) <= {"axis", "keepdims"}
    if not isinstance(first, Ref) or not known or type(axis) not in (int, tuple):
        return step
    shape, result = done.shape(first.number), done.shape(step.results[0])
    axes = [each % len(shape) for each in (axis if type(axis) is tuple else (axis,))]
    lead = next((i for i, size in enumerate(shape) if size != 1), len(shape))
    added = done.before(first.number, "reshape") is not None
    gone = [i for i, size in enumerate(shape) if size == 1 and (i in axes or (added and i < lead))]
    kept = [i for i in range(len(shape)) if i not in gone]
    left = [kept.index(i) for i in axes if i in kept]
    if not gone or (not left and done.tape.values[first.number].dtype != done.tape.values[step.results[0]].dtype):
        return step
    number = done.shaped(step, first.number, tuple(shape[i] for i in kept))
    if left:
        value = done.tape.values[step.results[0]].reshape([shape[i] for i in kept if i not in axes])
        number = done.make(step, step.name, Ref(number), left[0] if len(left) == 1 else tuple(left), value=value)
    return done.shaped(step, number, result)


RULES: dict[str, Any] = {"getitem": _getitem, "setitem": _setitem, "concatenate": _concatenate, "multiply": _neutral,
                         "add": _neutral, "bitwise_and": _neutral}  # fmt: skip
"""Rules that shorten a step, by its name."""
