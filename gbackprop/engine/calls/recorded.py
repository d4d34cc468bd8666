"""The sweep of a call run on arrays that write down what is done: the text of a function of the call's arrays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.recording.tape import mapped
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.state import digests_of
from gbackprop.engine.calls.faster import Faster, may_take_threads
from gbackprop.engine.calls.reused import TAKE, in_arena, taken
from gbackprop.engine.calls.shorter import Squares, without_repeats
from gbackprop.engine.calls.statements import ERRORS, CannotWriteError, Statements, is_written
from gbackprop.engine.calls.written import Written
from gbackprop.engine.finite import arrays_in
from gbackprop.engine.memory import Allocator
from gbackprop.engine.rows import SampleRows
from gbackprop.engine.sweep import OUTPUT, Execution, SampleBlock, sweep_block
from gbackprop.plain.plan import Plan
from gbackprop.plain.reference import finish
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result

MOST = 2_000
"""Most statements of a call."""

BEGINNING = "initial", "node_parameters"
"""Attributes of layers that say with which numbers parameters begin, in which a call has no part."""

READ = "drawn", "buffers"
"""Attributes of layers that are read in each call: dictionaries of arrays, the same objects while these change."""

Places = list[tuple[Layer, str, tuple[str, ...]]]
"""Places of parameters and buffers: layers, the attribute, and the keys in it."""


def places_of(layers: Sequence[Layer]) -> Places:
    """Return where parameters and buffers of layers are."""
    places = [(layer, kind) for layer in layers for kind in READ]
    return [(layer, kind, tuple(values)) for layer, kind in places if (values := getattr(layer, kind, None))]


def arrays_of(x: Array, y: Array, places: Places) -> list[Array]:
    """Return the arrays that a call is given: the batch, parameters and buffers as they are."""
    state = [values[key] for layer, kind, keys in places for values in (getattr(layer, kind),) for key in keys]
    return [x, y, *state]


def drawn_in(draws: dict[str, Any]) -> list[Array]:
    """Return the arrays of a call's random numbers, `noise` and `mc_noise`, among its attributes."""
    found: list[Array] = []
    _each([draws["noise"], draws["mc_noise"]], found.append)
    return found


def _each(value: Any, change: Callable[[Array], Any]) -> Any:
    """Return a value in which each array is changed."""
    return change(value) if isinstance(value, np.ndarray) else mapped(lambda part: _each(part, change), value)


def recorded(call: Execution, layers: Sequence[Layer], rng: np.random.Generator) -> tuple[str, dict[str, Any], bool]:
    """Run a call with numbers that are made up.

    Return the text of a function, what it refers to, and whether BLAS may compute its products in several threads.
    """
    plan, writer, classes = call.plan, Statements(Written), call.plan.output_shape[0]
    arrays = [*arrays_of(call.x, call.y, places_of(layers)), *drawn_in(vars(plan))]
    most = [int(call.x.max()) + 1 if call.x.dtype.kind in "iu" else classes, *[classes] * (len(arrays) - 1)]
    given = [writer.array(_made_up(*each, rng), f"a{i}") for i, each in enumerate(zip(arrays, most, strict=True))]
    x, y, *others = given
    memo: dict[int, Any] = {id(array): each for array, each in zip(arrays[2:], others, strict=True)}
    parts = [plan.network, *layers, plan.loss, *[quantity for quantity, _ in plan.needs]]
    inside = digests_of({str(i): part for i, part in enumerate(parts)}, lambda array: b"", BEGINNING)[1].arrays
    if len(memo) < len(others) or any(id(array) not in memo for array, _ in inside):
        raise CannotWriteError("two arrays are one, or there is one that is no parameter, buffer or random number")
    with np.errstate(**ERRORS, call=lambda *error: None):  # type: ignore[arg-type]
        result = _swept(call, memo, x, y)
    if len(writer.lines) > MOST:
        raise CannotWriteError("too many statements")
    results: list[Any] = []
    found = _text((result.loss, result.output, result.gradient, result.values), writer, results)
    memory = {each.memory for each in results}
    lines = without_repeats(writer.lines, writer, memory)
    looked: list[Any] = [each for each in arrays_in(result)[1:] if is_written(each)]
    floats = [each for each in (x, *others) if each.dtype.kind == "f"]
    squares = Squares(lines, [each.named for each in floats], [each.named for each in looked])
    found = f"{found[:-1]}{', '.join(squares.names)}, )"
    names = [each.name for each in results] + squares.names
    lines = Faster([*in_arena(squares.lines, memory)], writer, names).lines
    writer.names[taken] = TAKE
    arguments = [each.name for each in given] + [f"{TAKE}={TAKE}"] * any(line.function is taken for line in lines)
    return writer.function(arguments, found, names, lines), writer.scope, may_take_threads(lines)


def _made_up(array: Array, classes: int, rng: np.random.Generator) -> Array:
    """Return other numbers of the kind of an array's: labels, shares between 0 and 1, or truth values."""
    new = np.empty_like(array)
    if new.strides != array.strides:
        raise CannotWriteError("an array has gaps, or is turned")
    floats = array.dtype.kind == "f"
    new[...] = rng.uniform(0.1, 0.9, array.shape) if floats else rng.integers(0, max(1, classes), array.shape)
    return new


def _swept(call: Execution, memo: dict[int, Any], x: Any, y: Any) -> Result:
    """Return the result of a call that has one block of samples, on copies of the layers with the arrays of `memo`."""
    plan, known = call.plan, copy.copy(call.known)
    new = dict(memo)  # the copies, too
    parts: list[Any] = [*[leaf.layer for leaf in plan.leaves], plan.loss]
    *layers, loss = copy.deepcopy(parts, new)
    leaves = [replace(leaf, layer=layer) for leaf, layer in zip(plan.leaves, layers, strict=True)]
    known.layers = {id(layer): (layer, forms) for layer, forms in zip(layers, known.at, strict=True)}
    visits: list[Any] = [*plan.swept]
    swept = [
        replace(visit, layer=layers[visit.position], passed=tuple(leaves[leaf.position] for leaf in visit.passed))
        for visit in visits
    ]
    noise, mc_noise = _each([plan.noise, plan.mc_noise], lambda array: memo[id(array)])
    same: Plan = object.__new__(Plan)
    same.__dict__.update(plan.__dict__, leaves=leaves, swept=swept, noise=noise, mc_noise=mc_noise, loss=loss)
    same.__dict__.pop("flow", None)
    rows, updates = SampleRows(len(x), call.reuse), []  # type: ignore[var-annotated]
    block = SampleBlock(call.cut.samples[0], rows)
    total = sweep_block(Execution(same, x, y, call.cut, known, updates=updates), block, Allocator())
    if updates:
        raise CannotWriteError("buffers are updated")
    output = rows.arrays.pop(OUTPUT)
    total.found.update(rows.arrays)  # type: ignore[arg-type]
    return finish(same, total.loss, output, total.found)


def _text(value: Any, writer: Statements, used: list[Any]) -> str:
    """Return a part of the result as text; names of arrays are added to `used`."""
    if is_written(value):
        used.append(writer.refs(value))
        return writer.text(used[-1])
    if isinstance(value, np.ndarray):
        return f"{writer.text(value)}.copy()"
    if type(value) is dict:
        pairs = [f"{writer.text(key)}: {_text(each, writer, used)}" for key, each in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if type(value) in (list, tuple):
        inside = "".join([f"{_text(each, writer, used)}, " for each in value])
        return f"[{inside}]" if type(value) is list else f"({inside})"
    if isinstance(value, Quantity):
        raise CannotWriteError("there is a further sweep")
    if getattr(value, "__dict__", None) and not isinstance(value, type) and not callable(value):
        return f"{writer.text(_object)}({writer.text(type(value))}, {_text(vars(value), writer, used)})"
    return writer.text(value)


def _object(kind: type, attributes: dict[str, Any]) -> Any:
    """Return an object of a class with attributes."""
    new: Any = object.__new__(kind)
    new.__dict__.update(attributes)
    return new


