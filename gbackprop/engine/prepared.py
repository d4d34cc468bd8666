"""Prepared calls: the plan, the blocks and the forms of a call, used again by calls that differ in numbers alone.

They are valid for a network, a kind of loss, kinds of quantities, a shape, dtype and device of the batch, and options
of the call, and as long as nothing changes on which they depend:

- the attributes of each layer and container in the network, of the loss and of the quantities, such as the layers of
  a container, what is frozen, or the probability of a dropout;
- the methods and class attributes of the layers, their Jacobians, the loss and the quantities, and the registry of
  forms;
- the number of processors that the process may use, where blocks depend on it.

Parameters are read in each call: they may be replaced or changed in place. Layers, losses and quantities of users, and
pseudo-targets that are given, are prepared anew in each call, because what they depend on is unknown. Small calls are
written down after some: see `calls`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gbackprop.array import Array, device_of, is_array
from gbackprop.base.checks import check_batch, check_shape, is_original, is_shipped, shapes_of
from gbackprop.base.threads import cpu_count
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.signals import MonteCarlo
from gbackprop.calculus.state import changed_class
from gbackprop.engine.blocks import Cut
from gbackprop.engine.calls.call import AFTER, Parts, WrittenCall, write_call
from gbackprop.engine.calls.recorded import READ, drawn_in
from gbackprop.engine.registry import NetworkForms
from gbackprop.engine.sweep import Execution
from gbackprop.losses.base import Loss
from gbackprop.plain.plan import Plan
from gbackprop.quantities.base import Quantity
from gbackprop.quantities.result import Result

MOST = 16
"""Largest number of prepared calls of one network; one more replaces the oldest."""

Options = tuple[Any, ...]
"""`training`, the registry of forms, which is compared by identity, the names of `wrt`, and the four of `Limits`."""

_LIMITS = {type(None), int, str}


@dataclass(slots=True)
class Prepared:
    """The preparations that calls share which differ in numbers alone."""

    fields: dict[str, Any]  # attributes of a `Plan` but for network, loss, quantities and what belongs to a batch
    statistics: list[Any]  # those of each quantity
    shapes: list[tuple[str, Layer, str, tuple[int, ...]]]  # name, layer, key and shape of each parameter
    cut: Cut
    known: NetworkForms
    layers: list[tuple[Layer | None, dict[str, Any]]]  # attributes of layers and containers; the network itself is None
    orders: list[tuple[Layer | None, str, list[Any]]]  # the keys of dicts among these, such as children
    others: list[dict[str, Any]]  # attributes of the loss and of each quantity
    kinds: dict[type, dict[str, Any]]  # the classes of all these, with their attributes
    processors: int  # 0 where the blocks do not depend on their number
    calls: int = 0  # so far
    written: WrittenCall | None = None  # what such calls run, once it is there

    def is_valid(self, network: Layer, loss: Loss, quantities: Sequence[Quantity]) -> bool:
        """Return whether nothing has changed on which this depends, parameters apart."""
        try:
            for layer, attributes in self.layers:
                if (network if layer is None else layer).__dict__ != attributes:
                    return False
            for layer, name, keys in self.orders:  # two dicts are equal in any order
                if [*getattr(network if layer is None else layer, name)] != keys:
                    return False
            for part, attributes in zip((loss, *quantities), self.others, strict=True):
                if part.__dict__ != attributes:
                    return False
            if changed_class({**self.kinds, **self.known.kinds}):  # in one dict, as threads may add to the second
                return False
        except ValueError:  # of the comparison of two arrays: an attribute is another array now
            return False
        return not self.processors or self.processors == cpu_count()

    def again(self, parts: Parts, batch: tuple[Array, Array, Any], written: bool) -> Result | Plan:
        """Return the result of a call that is written down, if it may be; else its plan. A batch is x, y and rng."""
        (x, y, rng), run = batch, self.written if written else None
        if run is not None and run.plain and (rng is None or (type(rng) is int and rng >= 0)):
            drawn = drawn_in(self.plan(*parts).draw(run.shape, rng)) if run.draws else ()
            result = run(parts, x, y, drawn)
            if result is not None:
                return result
        check_batch(x)
        for name, layer, key, shape in self.shapes:
            value = layer.drawn[key] if layer.drawn and key in layer.drawn else None
            if value.__class__ is not np.ndarray or value.shape != shape:  # small calls count function calls
                check_shape(name, value, shape)
        plan = self.plan(*parts).with_batch(x, y, rng)
        result = run(parts, x, y, drawn_in(vars(plan)), plan) if run is not None else None
        return plan if result is None else result

    def plan(self, network: Layer, loss: Loss, quantities: Sequence[Quantity]) -> Plan:
        """Return the plan of a call, without its batch."""
        plan = object.__new__(Plan)
        needs = list(zip(quantities, self.statistics, strict=True))
        plan.__dict__.update(self.fields, network=network, loss=loss, needs=needs)
        return plan

    def count(self, run: Execution, result: Result) -> None:
        """Count a call that swept, and had a result; write it down after some. Those with weights are not counted."""
        if run.plan.loss.plain is not None:
            return
        self.calls += 1
        if self.calls == AFTER:
            self.written = write_call(run, result, [layer for layer, _ in self.layers if layer is not None])


class Calls:
    """The prepared calls of networks, as long as these exist."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.of: WeakKeyDictionary[Layer, OrderedDict[Any, Prepared]] = WeakKeyDictionary()

    def find(self, network: Any, loss: Any, x: Any, quantities: Sequence[Any], options: Options) -> Prepared | None:
        """Return the prepared call for these arguments, if there is one that is valid."""
        try:
            calls = self.of.get(network) if type(x) is np.ndarray or is_array(x) else None
        except TypeError:  # what is no network may have no weak reference, or no hash
            return None
        # True equals 1: what is not of the right type must not be found, but get its error
        if calls is None or type(options[0]) is not bool or not _LIMITS.issuperset(map(type, options[3:])):
            return None
        found = calls.get(_key(loss, x, quantities, options))
        if found is None or found.known.forms is not options[1] or not found.is_valid(network, loss, quantities):
            return None
        return found

    def add(self, run: Execution, options: Options) -> Prepared | None:
        """Store a call, if all that it depends on is known, and return it."""
        plan, cut = run.plan, run.cut
        network, loss, quantities = plan.network, plan.loss.plain or plan.loss, [quantity for quantity, _ in plan.needs]
        leaves = [leaf.layer for leaf in plan.leaves]
        layers = list(_inside(network, [*leaves, *_layers_of(loss), *chain(*map(_layers_of, quantities))]))
        parts = [*layers, loss, *quantities]
        given = any(isinstance(signal, MonteCarlo) and signal.targets is not None for signal in plan.signals)
        ours = all(map(is_original, parts))
        swept = set(map(id, leaves))
        if given or not ours or id(network) in swept:  # it would refer to its own key
            return None
        placing = [layer for layer in _inside(network, []) if id(layer) not in swept]
        if any(_has_array(value) for layer in placing for name, value in vars(layer).items() if name not in READ):
            return None  # its parts were made from these numbers, which may change
        fields = {**plan.__dict__, "flow": plan.flow, "noise": [], "mc_noise": {}}
        for name in ("network", "loss", "needs"):
            del fields[name]
        known = [(None if layer is network else layer, layer.__dict__) for layer in layers]
        dicts = [(layer, name, value) for layer, values in known for name, value in values.items() if name not in READ]
        classes = {kind for part in parts for kind in type(part).__mro__}
        whole = len(cut.samples) == 1 and cut.threads == 1
        prepared = Prepared(
            fields,
            [statistics for _, statistics in plan.needs],
            shapes_of(plan.leaves),
            cut,
            run.known,
            [(layer, _copied(values)) for layer, values in known],
            [(layer, name, [*value]) for layer, name, value in dicts if isinstance(value, dict)],
            [_copied(part.__dict__) for part in (loss, *quantities)],
            {kind: dict(kind.__dict__) for kind in classes if is_shipped(kind)},
            0 if whole else cpu_count(),
        )
        with self.lock:
            calls = self.of.setdefault(network, OrderedDict())
            calls[_key(loss, run.x, quantities, options)] = prepared
            if len(calls) > MOST:
                calls.popitem(last=False)
        return prepared


def _key(loss: Any, x: Array, quantities: Sequence[Any], options: Options) -> tuple[Any, ...]:
    training, _, wrt, *limits = options
    device = "cpu" if type(x) is np.ndarray else device_of(x)
    return (x.shape, x.dtype, device, type(loss), tuple(map(type, quantities)), training, wrt, *limits)


def _layers_of(part: Any) -> list[Layer]:
    """Return the layers that are attributes of an object."""
    return [value for value in vars(part).values() if isinstance(value, Layer)]


def _inside(network: Layer, others: Sequence[Layer]) -> Iterator[Layer]:
    """Yield a network, all containers in it, and other layers with what is in these, each once."""
    seen, waiting = {id(network)}, [network, *others]
    while waiting:
        layer = waiting.pop()
        if id(layer) not in seen or layer is network:
            seen.add(id(layer))
            yield layer
            parts = [*_layers_of(layer), *getattr(layer, "children", {}).values()]
            waiting += [part for part in parts if isinstance(part, Layer) and id(part) not in seen]


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with copies of what may change; dicts of parameters and buffers are the same objects."""
    return {name: value if name in READ else _copy(value) for name, value in attributes.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copy, value))
    return value.copy() if isinstance(value, set) else value


def _has_array(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return is_array(value) or any(map(_has_array, parts))
