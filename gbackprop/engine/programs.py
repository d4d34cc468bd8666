"""Programs of small calls: what one did, as statements, run again for other numbers in place of the sweep.

A call is recorded with numbers that are made up: twice, so that a number that was read from them, and would be another
one in the next call, is noticed. The program must give the results of a call to every bit. Otherwise there is none.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gbackprop.array import FLOATS, Array, all_finite
from gbackprop.base.recording.tape import mapped
from gbackprop.base.threads import NO_CONTEXT, one_blas_thread
from gbackprop.calculus.inputs import check_input
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.state import digests_of, parts_of
from gbackprop.engine.finite import floats_of
from gbackprop.engine.memory import Allocator, result_array
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.rows import SampleRows
from gbackprop.engine.sweep import OUTPUT, Execution, SampleBlock, sweep_block
from gbackprop.engine.writing import ERRORS, CannotWriteError, Statement, Writer, Written, is_written
from gbackprop.losses.base import Loss
from gbackprop.plain.plan import Plan
from gbackprop.plain.reference import finish
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result

LARGEST = {np.dtype(name): float(np.finfo(name).max) for name in FLOATS}

NAME = re.compile(r"\bt\d+\b")
"""The name of an array that a statement makes."""

LARGE = 2**14
"""Least size, in bytes, of an array that is deleted after its last use."""

AFTER = 8
"""The number of equal calls after which there is a program: it takes as long to write as some forty calls."""

MOST = 2_000
"""Most statements of a program."""

MAKERS = (np.empty, np.empty_like, result_array)
"""Functions whose arrays have any numbers."""

STATE = ("drawn", "buffers")
"""The attributes of layers that are read in each call: dictionaries of arrays."""


class Program:
    """A call as a function of its arrays.

    Attributes
    ----------
    run : function of arrays
        Returns loss, output, gradient and the values of the quantities; and in what to look for NaN: arrays, and
        pairs of which the outer product is a result.
    kinds : list of (type, shape, strides, dtype)
        Of each array.
    """

    def __init__(self, run: Callable[..., Any], plan: Plan, x: Array, y: Array, alone: bool) -> None:
        self.run, self.layers = run, layers_of(plan)
        self.kinds = [_kind(array) for array in (x, y, *state_of(self.layers))]
        self.context = one_blas_thread() if alone else NO_CONTEXT
        self.scale, self.batch_shape = plan.scale, (plan.scale.batch, *plan.output_shape)
        self.where = f"y of {type(plan.loss).__name__}({plan.loss.reduction!r})"
        self.random = plan.training or plan.mc_noise

    def __call__(self, plan: Plan, x: Array, y: Array, rng: Any) -> tuple[Result | None, bool]:
        """Return the result of a call, and whether it is finite; None where the sweep must look at the arguments."""
        arrays = [x, y, *state_of(self.layers)]
        try:
            if [_kind(array) for array in arrays] != self.kinds or not all_finite(x, *arrays[2:]):
                return None, False
        except AttributeError:  # what is no array
            return None, False
        like = x if plan.floats else check_input(plan.leaves, x)
        plan.loss.check_values(self.where, y, self.batch_shape, like)  # the rest is in `kinds`
        if self.random or rng is not None:
            drawn = plan.draws(self.batch_shape, rng)
            arrays += _random(*drawn) if self.random else []
        with self.context:
            loss, output, gradient, values, numbers, products = self.run(*arrays)
        asked = tuple([each for each, _ in plan.needs])
        finite = all_finite(*numbers) and all([_is_product_finite(*factors) for factors in products])
        return Result(loss, output, gradient, asked, values, plan.loss, self.scale), finite


def _is_product_finite(a: Array, b: Array) -> bool:
    """Return whether an outer product is finite, by the norms of its factors; False also where these overflow."""
    a, b = a.ravel("K"), b.ravel("K")
    return float(a.dot(a)) ** 0.5 * float(b.dot(b)) ** 0.5 < LARGEST[a.dtype]


def _kind(array: Array) -> Any:
    return type(array), array.shape, array.strides, array.dtype


def _is_small(run: Execution) -> bool:
    """Return whether a call may become a program: one small block, whose R does not depend on targets."""
    plan = run.plan
    usual = run.cut.written and run.reuse and plan.loss.plain is None and not plan.loss.weighted
    return usual and not run.updates and run.x.flags.c_contiguous


def program_of(run: Execution, result: Result) -> Program | None:
    """Return the program of a call, which gave a result; None if there can be none, or the call is large."""
    if not _is_small(run):
        return None
    try:
        texts = [_written(run, np.random.default_rng(seed)) for seed in (0, 1)]
        if texts[0][0] != texts[1][0] or not _same(texts[0][1], texts[1][1]):
            return None
        scope, code = texts[0][1], compile(texts[0][0], "<call>", "exec")
        arrays = inputs_of(run.plan, run.x, run.y)
        dirty = {name: _dirty(value) if any(value is each for each in MAKERS) else value for name, value in scope.items()}
        loss, output, gradient, values, *_ = _compiled(code, dirty)(*arrays)
        if not _same([loss, output, gradient, *values], [result.loss, result.output, result.gradient, *result.values]):
            return None
        return Program(_compiled(code, scope), run.plan, run.x, run.y, run.cut.small)
    except Exception:  # whatever a form, or NumPy, says of arrays that write down what is done: the sweep runs
        return None


def _compiled(code: Any, scope: dict[str, Any]) -> Callable[..., Any]:
    scope = {**scope}
    exec(code, scope)
    run: Callable[..., Any] = scope["run"]
    return run


def _dirty(make: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function that makes arrays as another one does, with numbers that no result has."""

    def made(*args: Any, **named: Any) -> Array:
        array = make(*args, **named)
        array.fill(np.nan if array.dtype.kind == "f" else 77)
        return array

    return made


# -------------------------------------------------------------------------------------------------------------- inputs


def inputs_of(plan: Plan, x: Array, y: Array) -> list[Array]:
    """Return all arrays that a call reads: the batch, parameters and buffers, random numbers."""
    return [x, y, *state_of(layers_of(plan)), *_random(plan.noise, plan.mc_noise)]


def inside(network: Layer, leaves: Sequence[Leaf]) -> Iterator[Layer]:
    """Yield a network, all containers in it, and all layers that the sweep meets, each once."""
    seen, waiting = {id(network)}, [network, *[leaf.layer for leaf in leaves]]
    while waiting:
        layer = waiting.pop()
        if id(layer) not in seen or layer is network:
            seen.add(id(layer))
            yield layer
            parts = [*layer.__dict__.values(), *getattr(layer, "children", {}).values()]
            waiting += [part for part in parts if isinstance(part, Layer) and id(part) not in seen]


def layers_of(plan: Plan) -> list[Layer]:
    """Return the layers in which a call reads arrays."""
    return [layer for layer in inside(plan.network, plan.leaves) if layer is not plan.network]


def state_of(layers: Iterable[Layer]) -> list[Array]:
    """Return parameters and buffers of layers."""
    found: list[Array] = []
    for layer in layers:
        for values in (layer.drawn, getattr(layer, "buffers", None)):
            found += values.values() if values else ()
    return found


def _random(*drawn: Any) -> list[Array]:
    """Return the arrays in random numbers."""
    found: list[Array] = []
    _each(drawn, found.append)
    return found


def _each(value: Any, change: Callable[[Array], Any]) -> Any:
    """Return a value in which each array is changed."""
    return change(value) if isinstance(value, np.ndarray) else mapped(lambda part: _each(part, change), value)


def _made_up(array: Array, rng: np.random.Generator, classes: int) -> Array:
    """Return other numbers of the kind of an array's: labels, shares between 0 and 1, or any."""
    if array.dtype.kind in "iu":
        return rng.integers(0, max(1, classes), array.shape).astype(array.dtype)
    if array.dtype.kind == "f":
        return rng.uniform(0.1, 0.9, array.shape).astype(array.dtype)
    return rng.integers(0, 2, array.shape).astype(array.dtype)


# ----------------------------------------------------------------------------------------------------------- recording


def _written(run: Execution, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Run a call with other numbers; return the text of the function, and what it refers to."""
    plan, writer = run.plan, Writer()
    network, loss = plan.network, plan.loss
    arrays, given = inputs_of(plan, run.x, run.y), []
    labels = int(run.x.max()) + 1 if run.x.dtype.kind in "iu" else plan.output_shape[0]
    for i, array in enumerate(arrays):
        classes = labels if i == 0 else plan.output_shape[0]
        given.append(writer.input(_made_up(array, rng, classes), f"a{i}"))
    x, y, *others = given
    memo = {id(array): each for array, each in zip(arrays[2:], others, strict=True)}
    if len(memo) < len(others):
        raise CannotWriteError("two inputs are one array")
    names = [each.name for each in given]
    found = digests_of(parts_of(network, loss), lambda array: b"")[1].arrays
    found = found + digests_of(parts_of(network, loss, [q for q, _ in plan.needs]), lambda array: b"")[1].arrays
    for array, _ in found:
        if id(array) not in memo:  # it stays the same array, whose numbers may change
            memo[id(array)] = writer.constant(array)
    leaves = _copied(plan, memo)
    new: Any = object.__new__(Plan)
    swept = [_visit(leaf, leaves) for leaf in plan.swept]
    noise, mc_noise = _each([plan.noise, plan.mc_noise], lambda array: memo[id(array)])
    new.__dict__.update(plan.__dict__, leaves=leaves, swept=swept, noise=noise, mc_noise=mc_noise)
    new.__dict__.update(loss=copy.deepcopy(loss, memo))
    new.__dict__.pop("flow", None)
    with np.errstate(**ERRORS, call=lambda *error: None):
        call = Execution(new, x, y, run.cut, NetworkForms(run.known.forms, leaves), True, None, [])
        rows = SampleRows(len(x), True)
        total = sweep_block(call, SampleBlock(run.cut.samples[0], rows), Allocator())
        output = rows.arrays.pop(OUTPUT)
        total.found.update(rows.arrays)
        result = finish(new, total.loss, output, total.found)
    if call.updates:
        raise CannotWriteError("buffers are updated")
    taken: list[str] = []
    text = ", ".join(_text(each, writer, taken) for each in (result.loss, result.output, result.gradient))
    text += f", [{', '.join(_text(each, writer, taken) for each in result.values)}]"
    numbers = [(each, writer.factors(each) if is_written(each) else None) for each in floats_of(result)]
    text += f", ({', '.join(_text(each, writer, taken) for each, factors in numbers if factors is None)},)"
    text += f", [{', '.join(_text(factors, writer, taken) for _, factors in numbers if factors is not None)}]"
    return function_of(writer, names, text, taken), writer.scope


def _copied(plan: Plan, memo: dict[int, Any]) -> list[Any]:
    layers = copy.deepcopy([leaf.layer for leaf in plan.leaves], memo)
    return [replace(leaf, layer=layer) for leaf, layer in zip(plan.leaves, layers, strict=True)]


def _visit(leaf: Any, leaves: list[Any]) -> Any:
    passed = tuple(leaves[each.position] for each in leaf.passed)
    return replace(leaf, layer=leaves[leaf.position].layer, passed=passed)


def _text(value: Any, writer: Writer, taken: list[str]) -> str:
    """Return a result as text."""
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
    new = object.__new__(kind)
    new.__dict__.update(attributes)
    return new


def function_of(writer: Writer, names: list[str], result: str, taken: list[str]) -> str:
    """Return the text of a function: the statements that the result needs, each once."""
    statements = _needed(_once(writer, taken), taken)
    if len(statements) > MOST:
        raise CannotWriteError("too many statements")
    last = {name: i for i, each in enumerate(statements) for name in (*each.given, *each.taken)}
    ends: dict[int, list[str]] = {}
    made = {name for each in statements for name in each.given} - {*taken}
    for name, i in last.items():
        if name in made and writer.bytes[writer.roots[name]] >= LARGE:
            ends.setdefault(i, []).append(name)
    lines, before = [f"def run({', '.join(names)}):"], ()
    for i, (_, text, _, errors, _) in enumerate(statements):
        if errors and errors != before:
            lines.append(f"    with {writer.text(np.errstate, [])}({', '.join(f'{k}={v!r}' for k, v in errors)}):")
        before, pad = errors, "        " if errors else "    "
        lines.append(pad + text)
        lines += [f"{pad}del {', '.join(ends[i])}"] if i in ends else []
    return "\n".join([*lines, f"    return {result}", ""])


def _needed(statements: list[Statement], wanted: list[str]) -> list[Statement]:
    live, found = set(wanted), []
    for each in reversed(statements):
        if each.writes or live.intersection(each.given):
            live.update(each.taken)
            found.append(each)
    return found[::-1]


def _once(writer: Writer, wanted: list[str]) -> list[Statement]:
    """Return the statements but for those whose result is there already, or is the same in each call."""
    roots, results = writer.roots, {writer.roots[name] for name in wanted}
    same: dict[str, str] = {}
    seen: dict[Any, list[str]] = {}
    times: Counter[str] = Counter()  # how often each array was written to
    found = []
    for each in _needed(writer.statements, wanted):
        text = NAME.sub(lambda name: same.get(name[0], name[0]), each.text)
        taken = [same.get(name, name) for name in each.taken]
        each = each._replace(text=text, taken=taken)
        own = [name for name in each.given if roots[name] == name]
        if each.writes or any(name in writer.written or name in results for name in own) or {*each.given} & {*wanted}:
            times.update({roots[name] for name in taken} if each.writes else ())
            found.append(each)
        elif not taken:
            exec(text, writer.scope)
        else:
            key = text.partition(" = ")[2], each.errors, *[times[roots[name]] for name in taken]
            if key in seen:
                same.update(zip(each.given, seen[key], strict=True))
            else:
                seen[key] = each.given
                found.append(each)
    return found


# ---------------------------------------------------------------------------------------------------------- comparison


def _order(array: Any) -> list[int]:
    """Return the strides of an array's axes, but for those of length 1."""
    return [stride for stride, n in zip(array.strides, array.shape, strict=True) if n > 1]


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, arrays in every bit and in their order in memory."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Written):
        return one.name == other.name
    if isinstance(one, np.ndarray | np.generic):
        alike = (one.shape, one.dtype, _order(one)) == (other.shape, other.dtype, _order(other))
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if hasattr(one, "__dict__") and not callable(one) and not isinstance(one, type):
        return _same(vars(one), vars(other))
    return bool(one == other)
