"""Edits of a call: other arguments, another value of an option, and care that a method should take."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from operator import add, floordiv, mul, sub
from typing import Any
from unittest import mock

import numpy as np

from gbackprop import layers
from gbackprop.base.checks import is_shipped
from gbackprop.calculus.jacobian import ParameterJacobian
from gbackprop.calculus.layer import INPUT, Layer, Leaf
from gbackprop.losses.base import Loss
from gbackprop.quantities import Quantity
from gbackprop.quantities.base import Scale
from gbackprop.testing.diagnosis.arrays import operations
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.probe import Probe
from gbackprop.testing.runs import Runs

Arguments = tuple[Any, ...]
Change = Callable[[Arguments], Arguments]
Edit = tuple[float, str, Change]
"""The cost of a change of arguments, its words, and the change."""

# ----------------------------------------------------------------------------------------------------------- arguments

ARRAYS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "were all ones": (1, np.ones_like),
    "were all zeros": (1, np.zeros_like),
    "were replaced by absolute values": (1, np.abs),
    "had the other sign": (1, np.negative),
    "were squared": (1.1, np.square),
    "were reversed": (1.1, lambda a: np.flip(a, 0).copy()),
    "were reversed along axis 1": (1.2, lambda a: np.flip(a, 1).copy()),
    "were reversed along the last axis": (1.2, lambda a: np.flip(a, -1).copy()),
    "were the first for all": (1.2, lambda a: np.repeat(a[:1], len(a), 0)),
    "were the first of axis 1 for all": (1.2, lambda a: np.repeat(a[:, :1], a.shape[1], 1)),
    "were moved on by one": (1.3, lambda a: np.roll(a, 1, 0)),
    "were moved on by one along the last axis": (1.3, lambda a: np.roll(a, 1, -1)),
    "were moved back by one along the last axis": (1.3, lambda a: np.roll(a, -1, -1)),
    "were its mean for all": (1.3, lambda a: np.repeat(a.mean(0, keepdims=True), len(a), 0)),
    "had its last two axes exchanged": (1.2, lambda a: np.swapaxes(a, -1, -2).reshape(a.shape)),
    "were read as it lies in memory": (1.4, lambda a: a.ravel("K").reshape(a.shape)),
    "were larger by 1": (1.4, lambda a: a + 1),
    "were smaller by 1": (1.4, lambda a: a - 1),
    "were 1 minus it": (1.4, lambda a: 1 - a),
}  # fmt: skip
"""Edits of an array that is given, each with its cost."""

GIVEN = {"tangents": "the tangents", "columns": "the columns", "signs": "the signs", "curvature": "the curvature",
         "x": "the input", "output": "the output", "target": "the target"}  # fmt: skip


def of_arrays(arguments: Arguments) -> Iterator[Edit]:
    """Yield edits of each array of the probe that a claim is made at."""
    for part in [part for part in arguments if isinstance(part, (Probe, LossProbe))][:1]:
        for name, title in GIVEN.items():
            for words, (cost, change) in ARRAYS.items() if isinstance(getattr(part, name, None), np.ndarray) else ():
                yield cost + 0.3 * (name in ("x", "output")), f"{title} {words}", on_probe(name, change)
        for op in operations(part.x.shape) if isinstance(part, Probe) else ():
            if op.closed:
                yield op.cost + 0.3, f"the input had {op.words}", on_probe("x", op.change)
        for op in operations(part.columns.shape) if isinstance(part, Probe) and part.columns is not None else ():
            if "alone" in op.words and "axis" in op.words:
                yield op.cost, f"the columns had {op.words}", on_probe("columns", op.change)
        if isinstance(part, LossProbe) and part.target.dtype.kind in "iu":
            classes = part.output.shape[1]
            for step, words in ((1, "next"), (-1, "previous")):
                moved = on_probe("target", lambda y, s=step, c=classes: (y + s) % c)
                yield 1, f"the target were the {words} class", moved
        for method, name in (("mjp", "columns"), ("jmp", "columns"), ("jmp", "tangents"), ("mjp", "tangents")):
            yield 1.5, f"the {name} had gone through {method}", partial(_carried, method, name)


def on_probe(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Return an edit of arguments: an array of the probe."""

    def changed(part: Any) -> Any:
        if not isinstance(part, (Probe, LossProbe)):
            return part
        before = getattr(part, name)
        after = np.array(change(before), dtype=before.dtype)
        if after.shape != before.shape:  # compiled code trusts the shapes that it is given
            raise ValueError(f"expected shape {before.shape}, got {after.shape}")
        return replace(part, **{name: after})  # type: ignore[arg-type]

    return lambda arguments: tuple(map(changed, arguments))


def _carried(method: str, name: str, arguments: Arguments) -> Arguments:
    probe = next(part for part in arguments if isinstance(part, Probe))
    return on_probe(name, lambda mat: getattr(probe.layer, method)(probe.saved, mat))(arguments)


def on_subject(change: Callable[[Any], Any]) -> Change:
    """Return an edit of arguments: a change of the layer, loss or quantity that they are of."""

    def changed(part: Any) -> Any:
        for name in ("layer", "loss") if isinstance(part, (Probe, LossProbe)) else ():
            if hasattr(part, name):
                return replace(part, **{name: change(getattr(part, name))})
        return change(part) if isinstance(part, (Layer, Loss, Quantity)) else part

    def everywhere(arguments: Arguments) -> Arguments:
        after = tuple(map(changed, arguments))
        asked = [part for part in after if isinstance(part, Quantity)]
        for part in arguments if asked else ():
            if isinstance(part, Runs):  # it knows quantities by themselves
                runs = Runs(part.setting, np.random.default_rng(0))
                runs.order, runs.members = part.order, asked
                after = tuple(runs if each is part else each for each in after)
        return after

    return everywhere


# ------------------------------------------------------------------------------------------------------------- options


NO_OPTIONS = ("constant_jacobian", "broadcasts", "bilinear", "__firstlineno__")
"""Attributes of classes that state what a layer is."""


def of_options(subject: Any) -> Iterator[tuple[float, str, Callable[[Any], Any]]]:
    """Yield changes of a copy of a subject: one of its options, or of its parameters, has another value."""
    own = {name: value for kind in type(subject).__mro__[:-1] for name, value in vars(kind).items()
           if isinstance(value, (bool, float)) and name not in NO_OPTIONS}
    own |= vars(subject)
    usual = {name: _default(subject, name) for name in own}
    given = {name: value for name, value in usual.items() if value is not None}
    differ = {name: value for name, value in given.items() if not np.array_equal(value, own[name])}
    if len(differ) > 1:
        yield 1.1, "all options had their defaults", partial(_with_options, differ)
    for name, value in own.items():
        for cost, words, other in _others(value, _default(subject, name)):
            yield cost, f"{name} were {words}", partial(with_option, name, other)
    for name, value in subject.parameters.items() if isinstance(subject, Layer) else ():  # type: ignore[assignment]
        for cost, words, other in _others(np.asarray(value), None):
            yield cost + 0.2, f"{name} were {words}", partial(with_parameter, name, other)


def of_defaults(subject: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield each option of a subject that has not its default, or 1, and a change of a copy that gives it that."""
    for name, needed in _signature(subject).items():
        other = 1 if needed.default is needed.empty else needed.default
        if name in vars(subject) and vars(subject)[name] is not other:
            yield f"option {name}", partial(with_option, name, other)


def _signature(subject: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a subject's class; none of one that Python knows none of."""
    try:
        return inspect.signature(type(subject)).parameters
    except ValueError:
        return {}


def _default(subject: Any, name: str) -> Any:
    """Return the default of an option in the signature of its class, or None."""
    parameter = _signature(subject).get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "0": lambda v: 0 * v, "1": lambda v: 0 * v + 1, "its negative": lambda v: -v, "larger by 1": lambda v: v + 1,
    "smaller by 1": lambda v: v - 1, "doubled": lambda v: 2 * v, "halved": lambda v: v / 2,
    "squared": lambda v: v * v, "its square root": lambda v: np.abs(v) ** 0.5, "1 over it": lambda v: 1 / v,
}  # fmt: skip
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "reversed": lambda v: v[::-1], "its first for all": lambda v: 0 * v + v[:1], "transposed": lambda v: v.T,
}  # fmt: skip


def _others(value: Any, default: Any) -> Iterator[tuple[float, str, Any]]:
    """Yield other values of an option with cost and words, the default and the neutral ones first."""
    if isinstance(value, bool):
        yield 1, str(not value), not value
    elif isinstance(value, (int, float, tuple)):
        if default is not None and default != value:
            yield 1, f"{default!r}, its default", default
        if isinstance(value, tuple) and all(isinstance(each, int) for each in value):
            for other in [value[::-1], (1,) * len(value), (0,) * len(value), *permutations(value)][:24]:
                yield 1.3, str(other), other
        known = [value, default]
        for words, change in NUMBERS.items() if not isinstance(value, tuple) else ():
            if (value or words == "1") and (changed := type(value)(change(value))) not in known:
                known.append(changed)
                yield 1.2, words, changed
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        for words, change in {**NUMBERS, **ENTRIES}.items():
            if np.shape(changed := change(value)) == value.shape:
                yield 1.5, words, np.array(changed)


def with_option(name: str, value: Any, subject: Any) -> Any:
    """Return a copy with another value of an option, through its constructor's checks where code is compiled for it."""
    twin = copy.deepcopy(subject)
    if is_shipped(subject) and not isinstance(value, (bool, float, np.ndarray)):
        needed = inspect.signature(type(subject)).parameters
        made = type(subject)(**{key: vars(subject)[key] for key in needed if key in vars(subject)} | {name: value})
        twin.__dict__ |= {key: each for key, each in vars(made).items() if key != "drawn"}
    else:
        setattr(twin, name, value)
    return twin


def _with_options(options: dict[str, Any], subject: Any) -> Any:
    for name, value in options.items():
        subject = with_option(name, value, subject)
    return subject


def with_parameter(name: str, value: np.ndarray, subject: Any) -> Any:
    """Return a copy with another value of a parameter."""
    twin = copy.deepcopy(subject)
    twin.parameters[name][...] = value
    return twin


def of_leaves(leaves: list[Leaf], numbers: Collection[float]) -> Iterator[tuple[float, str, list[Leaf]]]:
    """Yield changes of a network's layers: another layer, option or input of one, or two of them exchanged.

    A factor may also be a root of one of some `numbers`, or one over it. A layer at several places changes at each.
    """
    joins = (layers.Add, layers.Multiply)
    for join, another in (joins, joins[::-1]):
        twin = [replace(leaf, layer=another()) if type(leaf.layer) is join else leaf for leaf in leaves]
        yield 1.4, f"every {join.__name__} were {another.__name__}", twin
    for i, leaf in enumerate(leaves):
        kinds: tuple[type[Layer], ...] = joins if isinstance(leaf.layer, joins) else (
            layers.Identity, layers.ReLU, layers.Sigmoid, layers.Tanh, layers.SiLU, layers.GELU, layers.Softplus,
        )
        for kind in kinds if isinstance(leaf.layer, (*joins, layers.Elementwise)) else ():
            if type(leaf.layer) is not kind:
                twin = [*leaves[:i], replace(leaf, layer=kind()), *leaves[i + 1 :]]
                yield 1.5, f"{leaf.name} were {kind.__name__}()", twin
    plain = list({id(leaf.layer): leaf for leaf in leaves if not leaf.layer.parameters}.values())
    for leaf in plain:
        changes = list(of_options(leaf.layer))
        for name in (name for name, value in vars(leaf.layer).items() if isinstance(value, float)):
            roots = [value**power for value in numbers for power in (0.5, -0.5)]
            changes += [(1.5, f"{name} were {root:.6g}", partial(with_option, name, root)) for root in roots]
        for cost, words, change in changes:
            with suppress(Exception):  # its constructor may refuse it
                new = change(leaf.layer)
                twin = [replace(each, layer=new) if each.layer is leaf.layer else each for each in leaves]
                yield cost + 0.2, f"of {leaf.name} {words}", twin
    for one, other in combinations(plain, 2):
        both = {id(one.layer): other.layer, id(other.layer): one.layer}
        twin = [replace(each, layer=both.get(id(each.layer), each.layer)) for each in leaves]
        yield 1.8, f"{one.name} and {other.name} were exchanged", twin
    for i, leaf in enumerate(leaves):
        for k, other in ((k, other) for k in range(len(leaf.sources)) for other in (INPUT, *range(i))):
            named, sources = "the input" if other == INPUT else leaves[other].name, list(leaf.sources)
            sources[k] = other
            twin = [*leaves[:i], replace(leaf, sources=tuple(sources)), *leaves[i + 1 :]]
            yield 1.7, f"input {k} of {leaf.name} were {named}", twin


# ---------------------------------------------------------------------------------------------------------------- care

Method = Callable[..., Any]
Wrapper = Callable[[Method, Any, str], Method]
"""A method as it should be, from the method, its owner, and its name."""


def _each(change: Callable[[np.ndarray], np.ndarray], given: Any) -> Any:
    """Change each array of an argument or result."""
    if isinstance(given, (tuple, list)):
        return type(given)(_each(change, each) for each in given)
    return change(given) if isinstance(given, np.ndarray) else given


def _of_arguments(change: Callable[[np.ndarray], np.ndarray]) -> Wrapper:
    return lambda sound, owner, name: lambda *given, **named: sound(*(_each(change, each) for each in given), **named)


def _of_result(change: Callable[..., Any]) -> Wrapper:
    """A change of the result, given the arguments, too."""
    return lambda sound, owner, name: lambda *given, **named: change(sound(*given, **named), *given)


def _cast(result: Any, *given: Any) -> Any:
    kinds: list[np.dtype] = [each.dtype for each in given if isinstance(each, Scale)]
    _each(lambda a: kinds.append(a.dtype) or a if a.dtype.kind == "f" else a, list(given))  # type: ignore[func-returns-value]
    return _each(lambda a: a.astype(kinds[0]) if a.dtype.kind in "fib" else a, result)


def _afresh(sound: Method, owner: Any, name: str) -> Method:
    def afresh(*given: Any, **named: Any) -> Any:
        twin = copy.deepcopy(owner)
        vars(twin).pop(name, None)
        return getattr(twin, name)(*given, **named)

    return afresh


def _seeded(sound: Method, owner: Any, name: str) -> Method:
    def seeded(*given: Any, **named: Any) -> Any:
        with mock.patch("numpy.random.default_rng", return_value=np.random.Generator(np.random.PCG64(0))):
            return sound(*given, **named)

    return seeded


def _complete(sound: Method, owner: Any, name: str) -> Method:
    return lambda *given: {each: ParameterJacobian() for each in owner.parameters} | sound(*given)


def _inherited(sound: Method, owner: Any, name: str) -> Method:
    owners = [kind for kind in type(owner).__mro__ if name in vars(kind)]
    return partial(vars(owners[1])[name], owner)


CARE: dict[str, tuple[float, Wrapper]] = {
    "its arguments were copied": (1, _of_arguments(np.copy)),
    "its arguments were contiguous": (1.1, _of_arguments(np.ascontiguousarray)),
    "its result were copied": (1.1, _of_result(lambda y, *_: copy.deepcopy(y))),
    "its result were cast to the type of its arguments": (1.1, _of_result(_cast)),
    "its result were cut to the slice that is given": (1.1, _of_result(
        lambda y, *given: y[given[-1]] if isinstance(given[-1], slice) else y)),
    "it wrote nothing into its owner": (1.2, _afresh),
    "the largest of each sample were subtracted from the output": (1.3, _of_arguments(
        lambda a: a - a.max(1, keepdims=True) if a.dtype.kind == "f" and a.ndim > 1 else a)),
    "its random numbers were seeded": (1.3, _seeded),
    "it were the inherited one": (1.6, _inherited),
    "it gave a Jacobian for each of the other parameters, too": (1.1, _complete),
    "its result were larger by 1": (1.2, _of_result(lambda y, *_: y + 1)),
    "its result were smaller by 1": (1.2, _of_result(lambda y, *_: y - 1)),
    "its result were doubled": (1.3, _of_result(lambda y, *_: 2 * y)),
    "its result were halved": (1.3, _of_result(lambda y, *_: y // 2)),
    "its result were 1 minus it": (1.4, _of_result(lambda y, *_: 1 - y)),
    "its result had no last axis": (1.3, _of_result(lambda y, *_: y[:-1] if isinstance(y, tuple) else y[..., 0])),
    "its result had no first axis": (1.3, _of_result(lambda y, *_: y[1:] if isinstance(y, tuple) else y[0])),
    "its shapes were reversed": (1.3, _of_result(lambda y, *_: {name: shape[::-1] for name, shape in y.items()})),
    "the last axes of its result were exchanged": (1.3, _of_result(lambda y, *_: np.swapaxes(y, -1, -2))),
    "the last three axes of its result were reversed": (1.4, _of_result(lambda y, *_: np.moveaxis(
        y, (-3, -2, -1), (-1, -2, -3)))),
}  # fmt: skip
"""Edits of a method, with their cost."""

DRAWS: dict[str, tuple[float, Wrapper]] = {
    "the next class were drawn": (1.2, _of_result(lambda y, f, *_: (y + 1) % f.shape[1])),
    "the previous class were drawn": (1.2, _of_result(lambda y, f, *_: (y - 1) % f.shape[1])),
    **{f"draws were {words} as far from the output": (1.3, _of_result(lambda y, f, *_, c=c: f + (y - f) * c))
       for words, c in {"√2 times": 2**0.5, "1/√2 times": 0.5**0.5, "twice": 2.0, "half": 0.5}.items()},
}  # fmt: skip


def of_care(method: str, probe: Any) -> Iterator[Edit]:
    """Yield edits of the method that a claim is on, in a copy of its owner."""
    shapes = _shapes(probe) if method == "output_shape" and isinstance(probe, Probe) else {}
    ways = CARE | (DRAWS if method == "draw" else shapes)
    for words, (cost, wrapper) in ways.items():
        if wrapper is not _inherited or method != "output_shape":  # that asks the forward pass
            yield cost, words, wrapped(method, wrapper)
    for value in ("zero", "diagonal", "dense") if method == "curvature" else ():
        yield 1, f"{method} were {value!r}", on_subject(partial(_declaring, method, value))


def _declaring(name: str, value: Any, owner: Any) -> Any:
    twin = copy.copy(owner)
    setattr(twin, name, value)
    return twin


def wrapped(method: str, wrapper: Wrapper | None = None) -> Change:
    """Return an edit of arguments: a method of their subject is wrapped, or put in the place of itself."""
    wrapper = wrapper or (lambda sound, owner, name: lambda *given, **named: sound(*given, **named))
    return on_subject(lambda owner: _wrapped(owner, "finish" if isinstance(owner, Quantity) else method, wrapper))


def _wrapped(owner: Any, method: str, wrapper: Wrapper) -> Any:
    parameter, _, own = method.rpartition(".")
    twin = copy.copy(owner)
    if not parameter:
        setattr(twin, method, wrapper(getattr(twin, method), twin, method))
        return twin
    jacobians = _of_result(lambda found, *_: {**found, parameter: _wrapped(found[parameter], own, wrapper)})
    return _wrapped(owner, "parameter_jacobians", jacobians)


def _shapes(probe: Any) -> dict[str, tuple[float, Wrapper]]:
    """Return other rules for the shape of the output: of the input's axes, options, and its own."""
    found: dict[str, Callable[..., Any]] = {"it gave the input's shape": lambda y, x: x}
    options = {name: value for name, value in vars(probe.layer).items() if isinstance(value, (int, tuple))}
    for i in range(len(probe.x.shape) - 1):
        axis, given = f"axis {i} of its result were", f"the input's axis {i}"
        found[f"{axis} larger by 1"] = lambda y, x, i=i: (*y[:i], y[i] + 1, *y[i + 1 :])
        found[f"{axis} smaller by 1"] = lambda y, x, i=i: (*y[:i], y[i] - 1, *y[i + 1 :])
        for name, value in options.items():
            rules = {name: lambda size, v: v, f"{given} minus {name} plus 1": lambda size, v: size - v + 1}
            ways = {"times": mul, "over": floordiv, "plus": add, "minus": sub}
            rules |= {f"{given} {way} {name}": rule for way, rule in ways.items()}
            for words, rule in rules.items() if isinstance(value, int) else ():
                found[f"{axis} {words}"] = lambda y, x, i=i, r=rule, v=value: (*x[:i], r(x[i], v), *x[i + 1 :])
    for name, value in options.items():
        if isinstance(value, tuple):
            found[f"the last axes of its result were {name}"] = lambda y, x, v=value: (*x[: len(x) - len(v)], *v)
    return {words: (1.2, _of_result(rule)) for words, rule in found.items()}
