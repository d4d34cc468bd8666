"""Edits of a subject: another value of an option or parameter, or other layers of a network."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from gbackprop import layers
from gbackprop.base.checks import is_shipped
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.calculus.layer import INPUT, Layer, Leaf
from gbackprop.calculus.signals import EXACT, GRADIENT, RESIDUAL
from gbackprop.quantities import Quantity, Statistic
from gbackprop.quantities.merging_rules import Averaged, Rows, Summed
from gbackprop.testing.diagnosis.terms import attributes_of

NO_OPTIONS = ("constant_jacobian", "broadcasts", "bilinear", "linear_in", "mixes", "remade", "__firstlineno__")
"""Attributes of classes that state what a layer is."""


RULES = Summed(), Averaged(), Rows(), Summed(2), Rows(2)
"""The rules by which results of batches are merged."""

SIGNALS = GRADIENT, EXACT, RESIDUAL
"""The columns that a statistic may be of."""


def of_options(subject: Any) -> Iterator[tuple[float, str, Callable[[Any], Any]]]:
    """Yield changes of a copy of a subject: one of its options, or of its parameters, has another value."""
    own = {name: value for name, value in attributes_of(subject).items() if name in vars(subject)
           or (isinstance(value, (bool, float)) and name not in NO_OPTIONS)}  # fmt: skip
    usual = {name: _default(subject, name) for name in own}
    given = {name: value for name, value in usual.items() if value is not None}
    differ = {name: value for name, value in given.items() if not np.array_equal(value, own[name])}
    if len(differ) > 1:
        yield 1.1, "all options had their defaults", partial(_with_options, differ)
    for name, value in own.items():
        for cost, words, other in _others(value, _default(subject, name)):
            yield cost, f"{name} were {words}", partial(with_option, name, other)
    for rule in RULES if isinstance(subject, Quantity) else ():
        cost = 1.6 if getattr(rule, "power", 1) > 1 else 1
        yield cost, f"merging were {rule!r}", partial(with_attribute, "merging", rule)
    yield from _of_statistics(subject) if isinstance(subject, Quantity) else ()
    for name, array in subject.parameters.items() if isinstance(subject, Layer) else ():
        for words, change, _ in _changed(array):
            yield 1.7, f"{name} were {words}", partial(with_parameter, name, change)


def of_defaults(subject: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield each option of a subject that has not its default, or 1, and a change of a copy that gives it that."""
    for name, needed in _signature(subject).items():
        other = 1 if needed.default is needed.empty else needed.default
        change = partial(with_option, name, other)
        with suppress(Exception):  # it is no option, or may not be 1
            if not np.array_equal(vars(subject)[name], other) and _shapes(change(subject)) == _shapes(subject):
                yield f"option {name}", change


def _shapes(subject: Any) -> Any:
    """Return the shapes of a layer's parameters, which some options say."""
    return subject.parameter_shapes() if isinstance(subject, Layer) else None


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
    "1 less it": lambda v: 1 - v,
}  # fmt: skip
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "reversed": lambda v: v[::-1], "its first for all": lambda v: 0 * v + v[:1], "transposed": lambda v: v.T,
    "transposed in its last two axes": lambda v: v.swapaxes(-1, -2) if v.ndim > 2 else v[:0],
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
        for words, _, changed in _changed(value):
            yield 1.5, words, np.array(changed)


def _changed(array: Any) -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """Yield the changes that leave an array its shape: words, function and result."""
    for words, change in {**NUMBERS, **(ENTRIES if np.ndim(array) else {})}.items():
        if np.shape(changed := change(array)) == array.shape:
            yield words, change, changed


def with_option(name: str, value: Any, subject: Any) -> Any:
    """Return a copy with another value of an option, through its constructor's checks where code is compiled for it."""
    twin = copy.deepcopy(subject)
    if is_shipped(subject) and not isinstance(value, (bool, float, np.ndarray)):
        needed = inspect.signature(type(subject)).parameters
        made = type(subject)(**{key: vars(subject)[key] for key in needed if key in vars(subject)} | {name: value})
        twin.__dict__ |= {key: each for key, each in vars(made).items() if key != "drawn"}
    elif name in vars(twin):
        vars(twin)[name] = value  # also of those that cannot be assigned
    else:
        setattr(twin, name, value)
    return twin


def _of_statistics(quantity: Quantity) -> Iterator[tuple[float, str, Callable[[Any], Any]]]:
    """Yield changes of a copy of a quantity: one of its statistics is of other columns, or by another reduction."""
    needs: list[tuple[int, Statistic]] = []
    with suppress(Exception):  # a claim says what it raises
        needs += [(i, each) for i, each in enumerate(quantity.statistics()) if isinstance(each, Statistic)]
    for i, each in needs:
        kinds = [each.reduction, *REDUCTIONS.values()] if each.reduction.formula is not None else []
        for signal, kind, mean in product((each.signal, *SIGNALS), kinds, (each.mean, not each.mean)):
            changes = [signal != each.signal, kind != each.reduction, mean != each.mean]
            with suppress(ValueError):  # there is no such statistic
                other = Statistic(kind, signal, None, each.only, mean)
                if sum(changes) == 1 and kind.formula is not None:
                    words = f"the statistic {_stated(each)} were {_stated(other)}"
                    yield 1.2, words, partial(with_statistic, i, other)


def _stated(statistic: Statistic) -> str:
    """Return reduction and columns of a statistic in words."""
    columns = getattr(statistic.signal, "name", "no columns")
    return f"{statistic.reduction.name!r} of {columns}{', / N' * statistic.mean}"


def with_statistic(i: int, other: Statistic, quantity: Quantity) -> Quantity:
    """Return a copy of a quantity with another statistic."""
    needs = list(quantity.statistics())
    needs[i] = other
    return with_attribute("statistics", lambda: tuple(needs), quantity)


def with_attribute(name: str, value: Any, subject: Any) -> Any:
    """Return a copy of a subject that has an attribute of its own."""
    twin = copy.copy(subject)
    vars(twin)[name] = value
    return twin


def _with_options(options: dict[str, Any], subject: Any) -> Any:
    for name, value in options.items():
        subject = with_option(name, value, subject)
    return subject


def with_parameter(name: str, change: Callable[[Any], Any], subject: Any) -> Any:
    """Return a copy in which a parameter is changed."""
    twin = copy.deepcopy(subject)
    twin.parameters[name][...] = np.array(change(twin.parameters[name]))
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
