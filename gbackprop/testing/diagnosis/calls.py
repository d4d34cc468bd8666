"""The grammar's edits of a call: other arguments, other options of the subject, and care that a method should take."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from itertools import combinations, permutations
from typing import Any
from unittest import mock

import numpy as np

from gbackprop import layers
from gbackprop.calculus.layer import Layer
from gbackprop.losses.base import Loss
from gbackprop.network import Graph
from gbackprop.quantities import Quantity
from gbackprop.testing.diagnosis.terms import options_of
from gbackprop.testing.flat import Flat
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.probe import Probe, is_container

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Edit:
    """A change of a claim's arguments."""

    name: str
    words: str
    cost: float
    change: Callable[[Arguments], Arguments]


# ----------------------------------------------------------------------------------------------------------- arguments

ARRAYS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "ones": (1, np.ones_like),
    "zeros": (1, np.zeros_like),
    "its absolute value": (1, np.abs),
    "its negative": (1, np.negative),
    "its square": (1.1, np.square),
    "reversed": (1.1, lambda a: a[::-1]),
    "with axis 1 reversed": (1.2, lambda a: np.flip(a, 1)),
    "with its last axis reversed": (1.2, lambda a: np.flip(a, -1)),
    "its first for all": (1.2, lambda a: np.broadcast_to(a[:1], a.shape).copy()),
    "the first of axis 1 for all": (1.2, lambda a: np.broadcast_to(a[:, :1], a.shape).copy()),
    "moved on by one": (1.3, lambda a: np.roll(a, 1, 0)),
    "with its last axis moved on by one": (1.3, lambda a: np.roll(a, 1, -1)),
    "with its last axis moved back by one": (1.3, lambda a: np.roll(a, -1, -1)),
    "its mean over axis 0 for all": (1.3, lambda a: np.broadcast_to(a.mean(0, keepdims=True), a.shape).copy()),
    "with its last two axes exchanged": (1.2, lambda a: np.swapaxes(a, -1, -2).reshape(a.shape)),
    "as it lies in memory": (1.4, lambda a: a.ravel("K").reshape(a.shape)),
    "larger by 1": (1.4, lambda a: a + 1),
    "smaller by 1": (1.4, lambda a: a - 1),
    "1 minus it": (1.4, lambda a: 1 - a),
}
"""Edits of an array that is given, each with its cost."""

FIELDS = {"tangents": "the tangents", "columns": "the columns", "signs": "the signs", "curvature": "the curvature",
          "x": "the input", "output": "the output", "target": "the target"}  # fmt: skip


def of_arrays(arguments: Arguments) -> Iterator[Edit]:
    """Yield edits of each array of the probes that a claim is made at."""
    for part in [part for part in arguments if isinstance(part, (Probe, LossProbe))][:1]:
        given = {name: getattr(part, name, None) for name in FIELDS}
        given = {name: array for name, array in given.items() if isinstance(array, np.ndarray)}
        for name, array in given.items():
            for words, (cost, change) in ARRAYS.items():
                more = 0.3 * (name in ("x", "output"))
                yield Edit(f"argument: {words}", f"{FIELDS[name]} {words}", cost + more, partial(_replaced, name, change))
            if array.dtype.kind in "iu" and isinstance(part, LossProbe) and part.output.ndim > 1:
                for step in (1, -1):
                    yield Edit("next class", f"the target {'next' if step > 0 else 'previous'} class", 1,
                               partial(_other_class, step))  # fmt: skip
        if isinstance(part, Probe) and part.columns is not None:
            for method, source, name in (("mjp", "columns", "columns"), ("jmp", "tangents", "columns"),
                                         ("jmp", "tangents", "tangents"), ("jmp", "columns", "columns")):  # fmt: skip
                words = f"{FIELDS[name]} {FIELDS[source]} after {method}"
                yield Edit("argument: carried", words, 1.5, partial(_carried, method, source, name))


def _replaced(name: str, change: Callable[[np.ndarray], np.ndarray], arguments: Arguments) -> Arguments:
    return tuple(
        replace(part, **{name: change(getattr(part, name))}) if getattr(part, name, None) is not None
        and isinstance(part, (Probe, LossProbe)) else part
        for part in arguments
    )  # fmt: skip


def _other_class(step: int, arguments: Arguments) -> Arguments:
    return tuple(
        replace(part, target=(part.target + step) % part.output.shape[1]) if isinstance(part, LossProbe) else part
        for part in arguments
    )


def _carried(method: str, source: str, name: str, arguments: Arguments) -> Arguments:
    def changed(part: Any) -> Any:
        if not isinstance(part, Probe):
            return part
        made = getattr(part.layer, method)(part.saved, getattr(part, source))
        if made.shape != getattr(part, name).shape:
            raise ValueError("of another shape")
        return replace(part, **{name: made})

    return tuple(map(changed, arguments))


# ------------------------------------------------------------------------------------------------------------- options


def of_options(subject: Any) -> Iterator[tuple[str, float, Callable[[Any], Any]]]:
    """Yield changes of a copy of a subject: an option of it or of a part at another value, parts exchanged or replaced."""
    parts = dict(_parts(subject))
    if len(parts) > 2:
        yield from _of_parts(parts)
        for path, part in parts.items():
            if isinstance(part, Graph):
                yield from _of_wires(path, part)
    for path, part in parts.items():
        place = f"{path}." if path else ""
        for name, value in {**options_of(part), **_arrays_of(part)}.items():
            for cost, words, other in _others(value, _default(part, name)):
                yield f"{place}{name} {words}", cost, partial(_with_option, path, name, other)
        for name, value in getattr(part, "parameters", {}).items() if isinstance(part, Layer) and not _has_parts(part) else ():
            for cost, words, other in _others(np.asarray(value), None):
                yield f"{place}{name} {words}", cost + 0.2, partial(_with_parameter, path, name, other)


def _parts(subject: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(subject, Flat):
        subject = subject.layer
    yield "", subject
    if isinstance(subject, Layer) and is_container(subject):
        yield from ((name, part) for name, part in subject.named_layers() if part is not subject)


def _has_parts(part: Layer) -> bool:
    return is_container(part)


def _arrays_of(part: Any) -> dict[str, np.ndarray]:
    return {name: value for name, value in vars(part).items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"}


def _default(part: Any, name: str) -> Any:
    """Return the default of an option in the signature of its class, or None."""
    import inspect

    try:
        default = inspect.signature(type(part)).parameters[name].default
    except (KeyError, ValueError, TypeError):
        return None
    return None if default is inspect.Parameter.empty else default


def _others(value: Any, default: Any) -> Iterator[tuple[float, str, Any]]:
    """Yield other values of an option, with cost and words: the neutral ones first."""
    if isinstance(value, bool):
        yield 1, f"= {not value}", not value
        return
    if default is not None and not np.array_equal(default, value):
        yield 1, f"= {default!r}, its default", default
    if isinstance(value, np.ndarray):
        for words, change in {"all ones": np.ones_like, "all zeros": np.zeros_like, "squared": np.square,
                              "its square root": lambda a: np.sqrt(np.abs(a)), "negated": np.negative,
                              "reversed": lambda a: a[::-1], "doubled": lambda a: 2 * a, "halved": lambda a: a / 2,
                              "as 1 over it": lambda a: 1 / np.where(a == 0, 1, a),
                              "its first for all": lambda a: np.broadcast_to(a[:1], a.shape).copy()}.items():  # fmt: skip
            with np.errstate(all="ignore"):
                yield 1.5, words, change(value)
        if value.ndim == 2 and value.shape[0] == value.shape[1]:
            yield 1.4, "transposed", value.T.copy()
        return
    if isinstance(value, str):
        return
    if isinstance(value, tuple):
        yield 1.2, "reversed", value[::-1]
        kind = type(value[0])
        yield 1.2, "all ones", (kind(1),) * len(value)
        yield 1.2, "all zeros", (kind(0),) * len(value)
        for i, j in combinations(range(len(value)), 2):
            other = list(value)
            other[i], other[j] = other[j], other[i]
            yield 1.4, f"with entries {i} and {j} exchanged", tuple(other)
        for i in range(len(value)):
            for step in (1, -1):
                yield 1.6, f"with entry {i} {'larger' if step > 0 else 'smaller'} by 1", (
                    *value[:i], value[i] + step, *value[i + 1 :]
                )  # fmt: skip
        return
    numbers: dict[str, float] = {"= 0": 0, "= 1": 1, "with the other sign": -value, "larger by 1": value + 1,
                                 "smaller by 1": value - 1, "doubled": 2 * value}  # fmt: skip
    if isinstance(value, float):
        numbers |= {"halved": value / 2, "squared": value**2, "its square root": abs(value) ** 0.5}
        numbers |= {"as 1 over it": 1 / value} if value else {}
    for cost, (words, other) in enumerate(numbers.items()):
        if other != value:
            yield 1 + 0.1 * cost, words, type(value)(other)


def _found(subject: Any, path: str) -> Any:
    inner = subject.layer if isinstance(subject, Flat) else subject
    return dict(inner.named_layers())[path] if path else inner


def _with_option(path: str, name: str, value: Any, subject: Any) -> Any:
    twin = copy.deepcopy(subject)
    part = _found(twin, path)
    owner, _, field = name.rpartition(".")
    if owner and is_dataclass(getattr(part, owner)):
        setattr(part, owner, replace(getattr(part, owner), **{field: value}))
    else:
        setattr(part, name, value)
    return twin


def _with_parameter(path: str, name: str, value: np.ndarray, subject: Any) -> Any:
    twin = copy.deepcopy(subject)
    part = _found(twin, path)
    part.parameters[name] = value
    return twin


def _of_parts(parts: dict[str, Any]) -> Iterator[tuple[str, float, Callable[[Any], Any]]]:
    """Two parts exchanged, one left out, and another activation or join in its place."""
    leaves = {path: part for path, part in parts.items() if path and not is_container(part)}
    joins = (layers.Add, layers.Multiply)
    for path, part in leaves.items():
        if isinstance(part, joins):
            (kind,) = (kind for kind in joins if not isinstance(part, kind))
            yield f"{path} = {kind.__name__}()", 1.5, partial(_instead, path, kind())
    for path, part in leaves.items():
        if isinstance(part, layers.Elementwise):
            for kind in (layers.Identity, layers.ReLU, layers.Sigmoid, layers.Tanh, layers.SiLU, layers.GELU, layers.Softplus):
                if type(part) is not kind:
                    yield f"{path} = {kind.__name__}()", 1.6, partial(_instead, path, kind())
    for (one, first), (other, second) in combinations(leaves.items(), 2):
        if vars(first) != vars(second) if type(first) is type(second) and not first.parameter_shapes() else (
            not first.parameter_shapes() and not second.parameter_shapes()
        ):
            yield f"{one} and {other} exchanged", 1.8, partial(_exchanged, one, other)


def _of_wires(path: str, graph: Graph) -> Iterator[tuple[str, float, Callable[[Any], Any]]]:
    """An input of a node from elsewhere."""
    for node, taken in graph.inputs.items():
        for i in range(len(taken)):
            for other in ("input", *graph.inputs):
                if other not in (node, taken[i]):
                    words = f"input {i} of {path + '.' if path else ''}{node} were {other}"
                    yield words, 1.7, partial(_rewired, path, node, i, other)


def _rewired(path: str, node: str, i: int, other: str, subject: Any) -> Any:
    twin = copy.deepcopy(subject)
    graph = _found(twin, path)
    inputs = {name: list(taken) for name, taken in graph.inputs.items()}
    inputs[node][i] = other
    graph.__dict__ = Graph({name: (graph.children[name], *taken) for name, taken in inputs.items()}).__dict__
    return twin


def _exchanged(one: str, other: str, subject: Any) -> Any:
    twin = copy.deepcopy(subject)
    first, second = _found(twin, one), _found(twin, other)
    first.__class__, second.__class__ = type(second), type(first)
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    return twin


def _instead(path: str, part: Layer, subject: Any) -> Any:
    twin = copy.deepcopy(subject)
    old, new = _found(twin, path), copy.deepcopy(part)
    old.__class__, old.__dict__ = type(new), vars(new)
    return twin


def with_subject(change: Callable[[Any], Any]) -> Callable[[Arguments], Arguments]:
    """Return an edit of arguments: a change of the layer, loss or quantity that they are of."""

    def changed(part: Any) -> Any:
        if isinstance(part, Probe):
            return replace(part, layer=change(part.layer))
        if isinstance(part, LossProbe):
            return replace(part, loss=change(part.loss))
        return change(part) if isinstance(part, (Layer, Loss, Quantity)) else part

    return lambda arguments: tuple(map(changed, arguments))


# ---------------------------------------------------------------------------------------------------------------- care

Method = Callable[..., Any]
Wrapper = Callable[[Method, Any], Method]
"""A method as it should be, from the method and its owner."""


def _arrays(change: Callable[[np.ndarray], np.ndarray], given: Any) -> Any:
    """Change each array of an argument or result."""
    if isinstance(given, np.ndarray):
        return change(given)
    if isinstance(given, (tuple, list)):
        return type(given)(_arrays(change, each) for each in given)
    return given


def _of_arguments(change: Callable[[np.ndarray], np.ndarray]) -> Wrapper:
    return lambda sound, owner: lambda *given, **named: sound(*(_arrays(change, each) for each in given), **named)


def _of_result(change: Callable[[Any], Any]) -> Wrapper:
    return lambda sound, owner: lambda *given, **named: change(sound(*given, **named))


def _cast(sound: Method, owner: Any) -> Method:
    def cast(*given: Any, **named: Any) -> Any:
        kinds: list[np.dtype] = []
        _arrays(lambda a: kinds.append(a.dtype) or a if a.dtype.kind == "f" else a, list(given))  # type: ignore[func-returns-value]
        return _arrays(lambda a: a.astype(kinds[0]) if a.dtype.kind in "fib" and kinds else a, sound(*given, **named))

    return cast


def _cut(sound: Method, owner: Any) -> Method:
    return lambda *given, **named: sound(*given, **named)[given[-1] if isinstance(given[-1], slice) else slice(None)]


def _afresh(sound: Method, owner: Any) -> Method:
    def afresh(*given: Any, **named: Any) -> Any:
        twin = copy.deepcopy(owner)
        vars(twin).pop(sound.__name__, None)
        return getattr(twin, sound.__name__)(*given, **named)

    return afresh


def _seeded(sound: Method, owner: Any) -> Method:
    def seeded(*given: Any, **named: Any) -> Any:
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        try:
            with mock.patch("numpy.random.default_rng", lambda *_: np.random.Generator(np.random.PCG64(0))):
                return sound(*given, **named)
        finally:
            np.random.set_state(state)  # noqa: NPY002

    return seeded


def _inherited(sound: Method, owner: Any) -> Method:
    name, kinds = sound.__name__, type(owner).__mro__
    owners = [kind for kind in kinds if name in vars(kind)]
    return partial(vars(owners[1])[name], owner)


CARE: dict[str, tuple[float, Wrapper]] = {
    "its arguments were copied": (1, _of_arguments(np.copy)),
    "its arguments were contiguous": (1.1, _of_arguments(np.ascontiguousarray)),
    "its result were copied": (1.1, _of_result(copy.deepcopy)),
    "its result were cast to the type of its arguments": (1.1, _cast),
    "its result were cut to the slice that is given": (1.1, _cut),
    "it wrote nothing into its owner": (1.2, _afresh),
    "its random numbers were seeded": (1.3, _seeded),
    "it were the inherited one": (1.6, _inherited),
    "its result were negated": (1.5, _of_result(lambda a: -a)),
    "its result were larger by 1": (1.2, _of_result(lambda a: a + 1)),
    "its result were smaller by 1": (1.2, _of_result(lambda a: a - 1)),
    "its result were doubled": (1.3, _of_result(lambda a: 2 * a)),
    "its result were halved": (1.3, _of_result(lambda a: a // 2 if isinstance(a, int) else a / 2)),
    "its result were 1 minus it": (1.4, _of_result(lambda a: 1 - a)),
    "its result had one axis less at the end": (1.3, _of_result(lambda a: a[:-1] if isinstance(a, tuple) else a / 0)),
    "its result had one axis less in front": (1.3, _of_result(lambda a: a[1:] if isinstance(a, tuple) else a / 0)),
}
"""Edits of a method, with their cost."""


def _next_class(step: int) -> Wrapper:
    return lambda sound, owner: lambda output, *rest: (sound(output, *rest) + step) % output.shape[1]


def _spread(factor: float) -> Wrapper:
    return lambda sound, owner: lambda output, *rest: output + (sound(output, *rest) - output) * factor


DRAWS: dict[str, tuple[float, Wrapper]] = {
    "the next class were drawn": (1.2, _next_class(1)),
    "the previous class were drawn": (1.2, _next_class(-1)),
    **{f"draws were {words} as far from the output": (1.3, _spread(factor)) for words, factor in
       {"√2 times": 2**0.5, "1/√2 times": 0.5**0.5, "twice": 2.0, "half": 0.5}.items()},
}  # fmt: skip


def untouched(method: str) -> Callable[[Arguments], Arguments]:
    """Return the edit that puts a method in the place of itself: where a claim then holds, it is not on that method."""
    return partial(_wrapped, method, lambda sound, owner: lambda *given, **named: sound(*given, **named))


def of_care(arguments: Arguments, method: str) -> Iterator[Edit]:
    """Yield edits of the method that a claim is on, in a copy of its owner."""
    ways = {**CARE, **(DRAWS if method == "draw" else {})}
    for words, (cost, wrapper) in ways.items():
        if wrapper is _inherited and method == "output_shape":
            continue  # that asks the forward pass
        yield Edit("care", words, cost, partial(_wrapped, method, wrapper))
    if method == "output_shape":
        yield from _of_shapes(arguments)


def _wrapped(method: str, wrapper: Wrapper, arguments: Arguments) -> Arguments:
    def changed(part: Any) -> Any:
        if isinstance(part, Probe):
            return replace(part, layer=_with_method(part.layer, method, wrapper))
        if isinstance(part, LossProbe):
            return replace(part, loss=_with_method(part.loss, method, wrapper))
        if isinstance(part, (Layer, Loss)):
            return _with_method(part, method, wrapper)
        if isinstance(part, Quantity):
            return _with_method(part, "finish", wrapper)
        return part

    return tuple(map(changed, arguments))


def _with_method(owner: Any, method: str, wrapper: Wrapper) -> Any:
    parameter, _, reduction = method.rpartition(".")
    if parameter:
        return _with_method(owner, "parameter_jacobians", partial(_in_jacobian, parameter, reduction, wrapper))
    twin = copy.copy(owner)
    setattr(twin, method, wrapper(getattr(twin, method), twin))
    return twin


def _in_jacobian(parameter: str, reduction: str, wrapper: Wrapper, sound: Method, owner: Any) -> Method:
    def jacobians(saved: Any) -> Any:
        found = dict(sound(saved))
        found[parameter] = _with_method(found[parameter], reduction, wrapper)
        return found

    return jacobians


def _of_shapes(arguments: Arguments) -> Iterator[Edit]:
    """Other rules for the shape of the output."""
    (part,) = (part for part in arguments if isinstance(part, Probe))
    options = options_of(part.layer)
    shape = part.x.shape[1:]
    for order in permutations(range(len(shape))) if 1 < len(shape) < 5 else ():
        yield _shape_edit(f"the input's axes {order}", lambda given, order=order: tuple(given[i] for i in order))
    yield _shape_edit("the input's", lambda given: given)
    for name, value in options.items():
        if isinstance(value, tuple):
            yield _shape_edit(f"{name} for the last axes", lambda given, v=value: (*given[: len(given) - len(v)], *v))
        elif isinstance(value, int) and not isinstance(value, bool):
            for i in range(len(shape)):
                for words, rule in {
                    f"{name} for axis {i}": lambda size, v=value: v,
                    f"axis {i} times {name}": lambda size, v=value: size * v,
                    f"axis {i} over {name}": lambda size, v=value: size // v,
                    f"axis {i} and {name} more": lambda size, v=value: size + v,
                    f"axis {i} and twice {name} more": lambda size, v=value: size + 2 * v,
                    f"axis {i} and {name} less": lambda size, v=value: size - v,
                    f"axis {i} and {name} − 1 less": lambda size, v=value: size - v + 1,
                }.items():
                    yield _shape_edit(words, lambda given, i=i, r=rule: (*given[:i], r(given[i]), *given[i + 1 :]))
    for i in range(len(shape)):
        for step in (1, -1):
            yield _shape_edit(f"axis {i} {'one more' if step > 0 else 'one less'}",
                              lambda given, i=i, s=step: (*given[:i], given[i] + s, *given[i + 1 :]))  # fmt: skip
            yield Edit("shape", f"axis {i} of its result were {'one more' if step > 0 else 'one less'}", 1.3, partial(
                _wrapped, "output_shape", _of_result(lambda t, i=i, s=step: (*t[:i], t[i] + s, *t[i + 1 :]))))  # fmt: skip


def _shape_edit(words: str, rule: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Edit:
    wrapper: Wrapper = lambda sound, owner: rule  # noqa: E731
    return Edit("shape", f"it gave {words}", 1.2, partial(_wrapped, "output_shape", wrapper))
