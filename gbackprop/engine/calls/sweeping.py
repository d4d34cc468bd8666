"""The sweep of a call run on arrays that write down what is done: the text of a function of the call's arrays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gbackprop.array import Array
from gbackprop.base.recording.tape import mapped
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.state import digests_of, parts_of
from gbackprop.engine.calls.statements import ERRORS, CannotWriteError, Statements, is_written
from gbackprop.engine.calls.written import Written
from gbackprop.engine.finite import floats_of
from gbackprop.engine.memory import Allocator
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.rows import SampleRows
from gbackprop.engine.sweep import OUTPUT, Execution, SampleBlock, sweep_block
from gbackprop.plain.plan import Plan
from gbackprop.plain.reference import finish
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result

LARGE = 2**14
"""Least size, in bytes, of an array that is deleted after its last use."""

MOST = 2_000
"""Most statements of a program."""


def inputs_of(plan: Plan, x: Array, y: Array) -> list[Array]:
    """Return all arrays that a call reads: the batch, parameters and buffers, random numbers."""
    return [x, y, *state_of(places_of(plan)), *random_of(plan.noise, plan.mc_noise)]


def places_of(plan: Plan) -> list[tuple[Layer, str, tuple[str, ...]]]:
    """Return where a call finds parameters and buffers: layers, the attribute, and the keys in it."""
    places = [(layer, kind) for layer in layers_of(plan) for kind in ("drawn", "buffers")]
    return [(layer, kind, tuple(values)) for layer, kind in places if (values := getattr(layer, kind, None))]


def state_of(places: Iterable[tuple[Layer, str, tuple[str, ...]]]) -> list[Array]:
    """Return parameters and buffers as they are."""
    return [values[key] for layer, kind, keys in places for values in (getattr(layer, kind),) for key in keys]


def random_of(*drawn: Any) -> list[Array]:
    """Return the arrays in random numbers."""
    found: list[Array] = []
    _each(drawn, found.append)
    return found


def _each(value: Any, change: Callable[[Array], Any]) -> Any:
    """Return a value in which each array is changed."""
    return change(value) if isinstance(value, np.ndarray) else mapped(lambda part: _each(part, change), value)


def layers_of(plan: Plan) -> list[Layer]:
    """Return all layers and containers of a call, but for the network itself."""
    return [layer for layer in _inside(plan.network, plan.leaves) if layer is not plan.network]


def _inside(network: Layer, leaves: Sequence[Leaf]) -> Iterator[Layer]:
    """Yield a network, all containers in it, and all layers that the sweep meets, each once."""
    seen, waiting = {id(network)}, [network, *[leaf.layer for leaf in leaves]]
    while waiting:
        layer = waiting.pop()
        if id(layer) not in seen or layer is network:
            seen.add(id(layer))
            yield layer
            parts = [*layer.__dict__.values(), *getattr(layer, "children", {}).values()]
            waiting += [part for part in parts if isinstance(part, Layer) and id(part) not in seen]


def recorded(run: Execution, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Run a call with numbers that are made up; return the text of a function, and what it refers to."""
    plan, writer = run.plan, Statements(Written)
    inputs, classes = inputs_of(plan, run.x, run.y), plan.output_shape[0]
    labels = [int(run.x.max()) + 1 if run.x.dtype.kind in "iu" else classes, *[classes] * (len(inputs) - 1)]
    given = [_made_up(array, rng, most) for array, most in zip(inputs, labels, strict=True)]
    x, y, *others = [writer.input(array, f"a{i}") for i, array in enumerate(given)]
    memo: dict[int, Any] = {id(array): each for array, each in zip(inputs[2:], others, strict=True)}
    if len(memo) < len(others):
        raise CannotWriteError("two inputs are one array")
    for array in _arrays_in(parts_of(plan.network, plan.loss)):
        if id(array) not in memo:
            memo[id(array)] = writer.constant(array)
    if _arrays_in(dict(enumerate([quantity for quantity, _ in plan.needs]))):
        raise CannotWriteError("a quantity has an array")
    with np.errstate(**ERRORS, call=lambda *error: None):  # type: ignore[arg-type]
        result = _swept(run, _copied(plan, memo), x, y)
    taken: list[str] = []
    numbers = [part for each in floats_of(result) for part in (writer.factors(each) if is_written(each) else [each])]
    parts = [result.loss, result.output, result.gradient, list(result.values), numbers]
    text = ", ".join(_text(part, writer, taken) for part in parts)
    return _function(writer, [f"a{i}" for i in range(len(inputs))], text, taken), writer.scope


def _made_up(array: Array, rng: np.random.Generator, classes: int) -> Array:
    """Return other numbers of the kind of an array's: labels, shares between 0 and 1, or truth values."""
    floats = array.dtype.kind == "f"
    new = np.empty_like(array)
    new[...] = rng.uniform(0.1, 0.9, array.shape) if floats else rng.integers(0, max(1, classes), array.shape)
    return new


def _arrays_in(parts: dict[Any, Any]) -> list[Array]:
    return [array for array, _ in digests_of({str(name): part for name, part in parts.items()}, _nothing)[1].arrays]


def _nothing(array: Array) -> bytes:
    return b""


def _copied(plan: Plan, memo: dict[int, Any]) -> Plan:
    """Return a plan of layers, a loss and random numbers whose arrays are those of `memo`."""
    parts: list[Any] = [*[leaf.layer for leaf in plan.leaves], plan.loss]
    *layers, loss = copy.deepcopy(parts, memo)
    leaves = [replace(leaf, layer=layer) for leaf, layer in zip(plan.leaves, layers, strict=True)]
    noise, mc_noise = _each([plan.noise, plan.mc_noise], lambda array: memo[id(array)])
    visits: list[Any] = [*plan.swept]
    swept = [
        replace(visit, layer=layers[visit.position], passed=tuple(leaves[leaf.position] for leaf in visit.passed))
        for visit in visits
    ]
    new: Plan = object.__new__(Plan)
    new.__dict__.update(plan.__dict__, leaves=leaves, swept=swept, noise=noise, mc_noise=mc_noise, loss=loss)
    new.__dict__.pop("flow", None)
    return new


def _swept(run: Execution, plan: Plan, x: Any, y: Any) -> Result:
    """Return the result of a call that has one block of samples."""
    call = Execution(plan, x, y, run.cut, NetworkForms(run.known.forms, plan.leaves), updates=[])
    rows = SampleRows(len(x), run.reuse)
    total = sweep_block(call, SampleBlock(run.cut.samples[0], rows), Allocator())
    if call.updates:
        raise CannotWriteError("buffers are updated")
    output = rows.arrays.pop(OUTPUT)
    total.found.update(rows.arrays)  # type: ignore[arg-type]
    return finish(plan, total.loss, output, total.found)


# ---------------------------------------------------------------------------------------------------------------- text


def _text(value: Any, writer: Statements, taken: list[str]) -> str:
    """Return a part of the result as text."""
    if is_written(value):
        return writer.text(value, taken)
    if isinstance(value, np.ndarray):
        return f"{writer.text(value, taken)}.copy()"
    if type(value) is dict:
        pairs = [f"{writer.text(key, taken)}: {_text(each, writer, taken)}" for key, each in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if type(value) in (list, tuple):
        inside = "".join(f"{_text(each, writer, taken)}, " for each in value)
        return f"[{inside}]" if type(value) is list else f"({inside})"
    if isinstance(value, Quantity):
        raise CannotWriteError("there is a further sweep")
    if getattr(value, "__dict__", None) and not isinstance(value, type) and not callable(value):
        return f"{writer.text(_object, taken)}({writer.text(type(value), taken)}, {_text(vars(value), writer, taken)})"
    return writer.text(value, taken)


def _object(kind: type, attributes: dict[str, Any]) -> Any:
    """Return an object of a class with attributes."""
    new: Any = object.__new__(kind)
    new.__dict__.update(attributes)
    return new


def _function(writer: Statements, names: list[str], result: str, taken: list[str]) -> str:
    """Return the text of a function of arrays."""
    statements = writer.needed(taken)
    if len(statements) > MOST:
        raise CannotWriteError("too many statements")
    last = {name: i for i, each in enumerate(statements) for name in (*each.made, *each.taken)}
    ends: dict[int, list[str]] = {}
    for name in {name for each in statements for name in each.made} - {*taken}:
        if writer.bytes[writer.roots[name]] >= LARGE:
            ends.setdefault(last[name], []).append(name)
    lines, before = [f"def run({', '.join(names)}):"], tuple[tuple[str, str], ...]()
    for i, (_, text, _, errors, _) in enumerate(statements):
        if errors and errors != before:
            lines.append(f"    with {writer.text(np.errstate, [])}({', '.join(f'{k}={v!r}' for k, v in errors)}):")
        before, pad = errors, "        " if errors else "    "
        lines.append(pad + text)
        lines += [f"{pad}del {', '.join(sorted(ends[i]))}"] if i in ends else []
    return "\n".join([*lines, f"    return {result}", ""])
