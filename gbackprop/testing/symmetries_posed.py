"""A network with loss and batch as it is given, and what results become when one of these is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gbackprop.array import asnumpy, like
from gbackprop.base.checks import is_shipped
from gbackprop.base.names import inside
from gbackprop.calculus.layer import INPUT, Layer, Leaf, Nodes, leaves_of
from gbackprop.calculus.signals import GRADIENT
from gbackprop.engine.backward import backward
from gbackprop.kronecker import GroupedKronecker, Kronecker
from gbackprop.losses.base import Loss
from gbackprop.network.container import Container
from gbackprop.quantities import Quantity, Statistic
from gbackprop.quantities.kronecker import Factors
from gbackprop.quantities.kronecker_error import BlockError
from gbackprop.quantities.merging_rules import Summed
from gbackprop.quantities.result import Result
from gbackprop.testing.claims import NotGivenError
from gbackprop.testing.runs import has_rows, in_both_axes, is_of_pairs, pairs
from gbackprop.testing.setting import SEED, Values, at_targets


class Gradient(Quantity):
    """The gradient and the loss of a call, by the properties that quantities state."""

    name, merging, powers = "gradient", Summed(), (1, 1)
    needs = (Statistic("sum", GRADIENT),)


@dataclass(frozen=True)
class Posed:
    """A network with loss and batch, and the quantities that are computed together there."""

    network: Container
    loss: Loss
    x: Any
    y: Any
    asked: tuple[Quantity, ...] = ()
    targets: Any = None  # [M, N, ...], of the Monte-Carlo quantities
    options: Mapping[str, Any] = field(default_factory=dict)
    call: Callable[..., Result] = backward

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The layers in the order of computation."""
        return leaves_of(self.network, self.x.shape[1:])

    @property
    def names(self) -> list[str]:
        """The parameters that are not frozen, in the order of operators' vectors."""
        return list(dict.fromkeys(name for leaf in self.leaves for name in leaf.parameters.values()))

    @cached_property
    def result(self) -> Result:
        """The result of the call."""
        asked = [at_targets(each, self.targets) for each in self.asked]
        return self.call(self.network, self.loss, self.x, self.y, *asked, **{"rng": SEED, **self.options})

    def part(self, quantity: Quantity) -> Result:
        """Return the part of the result that is of one quantity; of `Gradient` that without any."""
        i = next((i for i, each in enumerate(self.asked) if each is quantity), len(self.asked))
        return replace(self.result, quantities=self.result.quantities[i : i + 1], values=self.result.values[i : i + 1])

    def of(self, quantity: Quantity) -> Values:
        """Return the values of a quantity as arrays by name."""
        return arrays_of(self.part(quantity))

    def taken(self, rows: Any) -> Posed:
        """Return the setting with other samples of the batch."""
        at = like(np.asarray(rows), self.x, int)
        return replace(self, x=self.x[at], y=self.y[at], targets=None if self.targets is None else self.targets[:, at])


def arrays_of(part: Result) -> Values:
    """Return host arrays by name: "0.weight", "0.weight/A"; of matrices in an eigenbasis traces, of errors ‖G‖."""
    found: dict[str, Any] = {}
    for name, value in (part.values[0] if part.values else {**part.gradient, "loss": part.loss}).items():
        if isinstance(value, Kronecker | GroupedKronecker):
            found |= {f"{name}/{key}": a for key, a in (("A", value.A), ("B", value.B)) if a is not None}
        elif isinstance(value, BlockError):
            found[name] = np.array(value.norm)
        else:
            found[name] = value.trace() if hasattr(value, "to_dense") else value
    return {name: asnumpy(value) for name, value in found.items()}


def per_sample(quantity: Quantity, posed: Posed) -> bool:
    """Return whether a quantity has a row for each sample."""
    return not pairs(quantity) and has_rows(quantity, posed.of(quantity), len(posed.x), posed.network.parameters)


@dataclass(frozen=True)
class Remade:
    """A parameter that becomes another: θ'[o, i] = θ[rows[o], columns[i]] out / into, or both as [i, o]."""

    rows: Any = None
    columns: Any = None
    out: float = 1.0
    into: float = 1.0
    order: str = "OI"
    group: int = 0  # of the outputs of `old`, of which this parameter has but one group
    old: str = ""

    def of(self, array: Any) -> Any:
        """Return the new parameter, as a matrix."""
        return self._moved(array.reshape(1, len(array), -1))[0] * (self.out / self.into)

    def _moved(self, flat: Any) -> Any:
        first, second = (self.columns, self.rows) if self.order == "IO" else (self.rows, self.columns)
        flat = flat if first is None else flat[:, like(first, flat, int)]
        return flat if second is None else flat[:, :, like(second, flat, int)]

    def expected(self, quantity: Quantity, key: str, value: Any, given: Posed, old: str) -> Any:
        """Return what becomes of a factor, `key`, or of the whole value; None if nothing is known of it."""
        known = isinstance(quantity, Factors) if key else is_shipped(quantity)  # other A and B may share a scale
        if self.out != self.into and not known:
            raise NotGivenError("how it changes with the scale of a parameter is not stated")
        if key:
            return self._factor(getattr(quantity, "convention", None), key, value)
        first = all(each.reduction.name in ("sum", "batch") for each in quantity.statistics())
        scale, lead = (self.into / self.out) ** (1 if first else 2), per_sample(quantity, given)
        shape = given.network.parameter_shapes()[old]
        if pairs(quantity) or value.ndim != len(shape) + lead:  # a norm or trace, the same for entries in any order
            joint = self.into != 1 and vars(vars(quantity).get("of", quantity)).get("joint_bias")
            return None if self.old or joint else value * scale
        return self._moved(value.reshape(len(value) if lead else 1, shape[0], -1)) * scale

    def _factor(self, convention: Any, key: str, value: Any) -> Any:
        """Return what becomes of A or of B."""
        order, scale = (self.rows, 1 / self.out) if key == "B" else (self.columns, self.into)
        joint = convention and convention.joint_bias and key == "A"  # u is followed by a 1
        if value.ndim == 3:
            value = value[self.group]
        elif order is not None:
            order = np.append(order, len(order)) if joint else order
            value = value[np.ix_(order, order)]
        scales = np.full(len(value), scale)
        if joint:
            scales[-1] = 1.0
        if convention and convention.fisher == "forward-only" and key == "B":
            scales[:] = 1.0  # B = I
        return scales[:, None] * value * scales


@dataclass(frozen=True)
class Change:
    """A changed setting, and how results change with it: by what each quantity states of itself."""

    posed: Posed
    rows: Any = None  # the sample of the given batch that each new sample is
    r: float = 1.0  # the new R over the given one
    c: float = 1.0  # the new weight of the loss over the given one
    entries: Mapping[str, Remade] = field(default_factory=dict)  # of the parameters that become others
    lacks: Callable[[Quantity], str] = lambda quantity: ""  # the reason why a quantity is not judged
    without: tuple[str, ...] = ()  # names that are not compared

    def expected(self, quantity: Quantity, given: Posed) -> Values:
        """Return what becomes of a quantity's values, of those that it still has."""
        values, powers, found = given.of(quantity), quantity.stated("powers"), {}
        if (self.r, self.c) != (1, 1) and powers is None:
            raise NotGivenError("its powers of R and c are not stated: give the quantity `powers`")
        factor = self.r ** powers[0] * self.c ** powers[1] if powers else 1.0
        for name in self.posed.of(quantity):
            parameter, _, key = name.partition("/")
            entries = self.entries.get(parameter, Remade())
            old = entries.old or parameter
            value = values.get(f"{old}/{key}" if key else old)
            if value is not None and self.rows is not None and name != "loss":
                value = in_rows(quantity, value, self.rows, given)
            if value is not None and parameter in self.entries:
                value = entries.expected(quantity, key, value, given, old)
            if value is not None and name not in self.without:
                found[name] = value if key == "A" else value * factor
        return found


def in_rows(quantity: Quantity, value: np.ndarray, rows: np.ndarray, given: Posed) -> np.ndarray:
    """Return values of other samples of the batch, in the axes of samples that a quantity has."""
    if not pairs(quantity):
        return value[rows] if per_sample(quantity, given) else value
    if not is_of_pairs(value, len(given.x)):
        raise NotGivenError("how it follows from pairs of samples is not known")
    return in_both_axes(value, int(max(rows)) + 1, rows)


class Rewritten(Container):
    """The layers of a network, some replaced by chains of others; the first with parameters has the old one's path."""

    def __init__(self, leaves: list[Leaf], instead: Mapping[int, tuple[Layer, ...]]) -> None:
        self.leaves, self.instead = leaves, dict(instead)
        super().__init__({path: layer for leaf in leaves for path, layer in self.chain(leaf)})

    def chain(self, leaf: Leaf) -> Iterator[tuple[str, Layer]]:
        """Yield the layers that stand for one, with their paths."""
        chain = self.instead.get(leaf.position, (leaf.layer,))
        of_nodes = leaf.layer.node_parameters  # named as these were, and not after the layer
        ends = ((name, of_nodes.get(key, (key,))[0]) for key, name in leaf.parameters.items())
        path = next((name.removesuffix(end).removesuffix(".") for name, end in ends), leaf.name)
        main = next((i for i, layer in enumerate(chain) if layer.parameter_shapes()), 0)
        yield from ((path if i == main else f"{leaf.name}+{i}", layer) for i, layer in enumerate(chain))

    def every_layer(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        for path, layer in (each for leaf in self.leaves for each in self.chain(leaf)):
            yield from layer.named_layers(inside(name, path))

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        at = {INPUT: sources[0]}
        for leaf in self.leaves:
            taken = [at[source] for source in leaf.sources]
            for path, layer in self.chain(leaf):
                taken = [layer.place(nodes, inside(name, path), *taken)]
            (at[leaf.position],) = taken
        return at[self.leaves[-1].position]


def rewritten(posed: Posed, instead: Mapping[int, tuple[Layer, ...]], reason: str = "", **known: Any) -> Change:
    """Return the change of a network in which some layers are replaced; raise the reason why there are none."""
    if not instead:
        raise NotGivenError(reason)
    return Change(replace(posed, network=Rewritten(posed.leaves, instead)), **known)
