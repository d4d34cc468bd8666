"""Networks that are the same function written in another way: units in another order, layers split, joined, scaled."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gbackprop import layers as L
from gbackprop.array import array_module, asnumpy, like
from gbackprop.base.checks import is_shipped
from gbackprop.calculus.layer import INPUT, Layer, Leaf, Nodes, leaves_of
from gbackprop.calculus.signals import AVERAGE
from gbackprop.calculus.walk import upwards
from gbackprop.layers.norms.affine import Times
from gbackprop.network import Concatenate, Sequential
from gbackprop.network.container import Container
from gbackprop.testing.claims import NotGivenError
from gbackprop.testing.symmetries_setting import Change, Entries, Gradient, Posed

CONVOLUTIONS = (L.Conv1d, L.Conv2d, L.Conv3d)
Instead = Mapping[int, tuple[Layer, ...]]


class Rewritten(Container):
    """The layers of a network, some replaced by chains of others; the first with parameters has the old one's path."""

    def __init__(self, leaves: list[Leaf], instead: Instead) -> None:
        self.leaves, self.instead = leaves, dict(instead)
        super().__init__({str(leaf.position): leaf.layer for leaf in leaves})

    def _chain(self, leaf: Leaf) -> Iterator[tuple[str, Layer]]:
        """Yield the layers that stand for one, with their paths."""
        chain = self.instead.get(leaf.position, (leaf.layer,))
        path = next((name.removesuffix(f".{key}") for key, name in leaf.parameters.items()), leaf.name)
        main = next((i for i, layer in enumerate(chain) if layer.parameter_shapes()), 0)
        for i, layer in enumerate(chain):
            yield path if i == main else f"{leaf.name}+{i}", layer

    def every_layer(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        for leaf in self.leaves:
            for path, layer in self._chain(leaf):
                yield from layer.named_layers(f"{name}.{path}" if name else path)

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        at = {INPUT: sources[0]}
        for leaf in self.leaves:
            taken = [at[source] for source in leaf.sources]
            for path, layer in self._chain(leaf):
                taken = [layer.place(nodes, f"{name}.{path}" if name else path, *taken)]
            at[leaf.position] = taken[0]
        return at[self.leaves[-1].position]


def leaves_in(posed: Posed) -> list[Leaf]:
    """Return the layers of a setting's network."""
    return leaves_of(posed.network, posed.x.shape[1:])


def rewritten(posed: Posed, instead: Instead, **known: Any) -> Change:
    """Return the change of a network in which some layers are replaced."""
    return Change(replace(posed, network=Rewritten(leaves_in(posed), instead)), **known)


def with_values(layer: Layer, values: Mapping[str, Any], frozen: bool = False) -> Layer:
    """Return a copy of a layer with other parameters."""
    twin = copy.copy(layer)
    twin.drawn = dict(values)
    twin.frozen = frozenset(values) if frozen else layer.frozen
    return twin


def weights(leaves: list[Leaf]) -> list[Leaf]:
    """Return linear layers and convolutions without groups that stand at one place and are not frozen."""
    places = Counter(id(leaf.layer) for leaf in leaves)

    def fits(layer: Layer) -> bool:
        known = isinstance(layer, L.Linear) or (isinstance(layer, CONVOLUTIONS) and layer.groups == 1)
        return known and is_shipped(layer) and not layer.frozen and places[id(layer)] == 1

    return [leaf for leaf in leaves if fits(leaf.layer)]


def some(found: Any, reason: str) -> Any:
    """Return what was found; raise the reason why nothing was."""
    if not found:
        raise NotGivenError(reason)
    return found


# -------------------------------------------------------------------------------------------------------- more layers


def identities(posed: Posed, rng: np.random.Generator) -> Change:
    """After each layer one that does nothing."""
    return rewritten(posed, {leaf.position: (leaf.layer, L.Identity()) for leaf in leaves_in(posed)})


def doubled(posed: Posed, rng: np.random.Generator) -> Change:
    """After each layer one that doubles, and one that halves: powers of two, so that nothing is rounded."""
    return rewritten(posed, {leaf.position: (leaf.layer, Times(2.0), Times(0.5)) for leaf in leaves_in(posed)})


def split(posed: Posed, rng: np.random.Generator) -> Change:
    """W = M (M⁻¹ W): −2 times the outputs in another order, and a layer that takes this back, without rounding."""
    instead, entries = {}, {}
    for leaf in some(weights(leaves_in(posed)), "no linear layer or convolution of its own"):
        layer, weight = leaf.layer, leaf.layer.parameters["weight"]
        size = len(weight)
        order, back = np.roll(np.arange(size), 1), np.zeros((size, size))
        back[order, np.arange(size)] = -0.5
        made = Entries(rows=order, out=-2.0)
        first = with_values(layer, {key: made.of(value) for key, value in layer.parameters.items()})
        second = L.Linear(size, size, bias=False) if isinstance(layer, L.Linear) else type(layer)(size, size, 1, bias=False)
        matrix = like(back.reshape(size, size, *[1] * (weight.ndim - 2)), weight, weight.dtype)
        instead[leaf.position] = (first, with_values(second, {"weight": matrix}, frozen=True))
        entries |= dict.fromkeys(leaf.parameters.values(), made)
    return rewritten(posed, instead, entries=entries)


# ------------------------------------------------------------------------------------------------------- other layers


def _pointwise(layer: Any) -> bool:
    window = getattr(layer, "window", None)
    return window is not None and layer.frame is None and not any(map(any, window.padding)) and (
        set(window.kernel) == set(window.stride) == {1}
    )  # fmt: skip


def pointwise(posed: Posed, rng: np.random.Generator) -> Change:
    """A linear layer of vectors as a 1×1 convolution of one pixel, and a 1×1 convolution as a linear layer of pixels."""
    instead: dict[int, tuple[Layer, ...]] = {}
    for leaf in weights(leaves_in(posed)):
        layer, values = leaf.layer, dict(leaf.layer.parameters)
        weight = values["weight"]
        out, size, *_ = weight.shape
        if isinstance(layer, L.Linear) and len(leaf.input_shape) == 1:
            values["weight"] = weight.reshape(out, size, 1, 1)
            pixel = with_values(L.Conv2d(size, out, 1, bias=layer.bias), values)
            instead[leaf.position] = (L.Unflatten(1, (size, 1, 1)), pixel, L.Flatten())
        elif isinstance(layer, CONVOLUTIONS) and _pointwise(layer):
            values["weight"] = weight.reshape(out, size)
            axes = range(2, weight.ndim)
            dense = with_values(L.Linear(size, out, bias=layer.bias), values)
            last = (0, weight.ndim - 1, *range(1, weight.ndim - 1))
            instead[leaf.position] = (L.Permute((0, *axes, 1)), dense, L.Permute(last))
    return rewritten(posed, some(instead, "no linear layer of vectors, no 1×1 convolution"))


def ungrouped(posed: Posed, rng: np.random.Generator) -> Change:
    """A convolution with groups as separate convolutions of their channels."""
    instead: dict[int, tuple[Layer, ...]] = {}
    entries = {}
    for leaf in leaves_in(posed):
        layer = leaf.layer
        if not isinstance(layer, CONVOLUTIONS) or layer.groups == 1 or layer.frozen or not is_shipped(layer):
            continue
        ins, outs, parts = layer.in_channels // layer.groups, layer.out_channels // layer.groups, []
        for i in range(layer.groups):
            part = with_values(layer, {key: v[i * outs : (i + 1) * outs] for key, v in layer.parameters.items()})
            part.in_channels, part.out_channels, part.groups = ins, outs, 1
            parts.append(Sequential(L.Slice(1, i * ins, (i + 1) * ins), part))
            for key, name in leaf.parameters.items():
                entries[f"{leaf.name}.{i}.1.{key}"] = Entries(group=(i, layer.groups), old=name)
        instead[leaf.position] = (Concatenate(*parts),)
    some(instead, "no convolution with groups")
    asked = tuple(each for each in posed.asked if not any(s.signal == AVERAGE for s in each.statistics()))
    lacks = lambda each: "" if each in asked or isinstance(each, Gradient) else "its recursion is for chains"  # noqa: E731
    return rewritten(replace(posed, asked=asked), instead, entries=entries, lacks=lacks)


# ----------------------------------------------------------------------------------------------------- hidden units


def _between(leaves: list[Leaf]) -> Iterator[tuple[Leaf, list[Leaf], Leaf]]:
    """Yield two layers with weights, and the layers between them of which each has one taker."""
    ends = {leaf.position for leaf in weights(leaves)}
    taken = Counter(source for leaf in leaves for source in leaf.sources)
    taker = {leaf.sources[0]: leaf for leaf in leaves if len(leaf.sources) == 1}
    for position in ends:
        at, middle = position, []
        while taken[at] == 1 and at in taker:
            leaf = taker[at]
            if leaf.position in ends:
                yield leaves[position], middle, leaf
                break
            middle, at = [*middle, leaf], leaf.position


def _through(middle: list[Leaf], y: Any) -> Any:
    for leaf in middle:
        y = leaf.layer.forward(y)[0]
    return y


def _outputs(posed: Posed) -> dict[int, Any]:
    at = {INPUT: posed.x[:2]}
    for leaf, inputs in upwards(leaves_in(posed), at):
        at[leaf.position] = leaf.layer.forward(*inputs)[0]
    return at


def _changed(posed: Posed, found: dict[int, dict[str, Any]]) -> Change:
    """Return the change of the weights at some positions."""
    instead: dict[int, tuple[Layer, ...]] = {}
    entries = {}
    for leaf in leaves_in(posed):
        for key, name in leaf.parameters.items() if leaf.position in found else ():
            given = found[leaf.position]
            entries[name] = Entries(**{k: v for k, v in given.items() if key == "weight" or k in ("rows", "out")})
        if leaf.position in found:
            values = {key: entries[name].of(leaf.layer.parameters[key]) for key, name in leaf.parameters.items()}
            instead[leaf.position] = (with_values(leaf.layer, values),)
    return rewritten(posed, instead, entries=entries)


def permuted_units(posed: Posed, rng: np.random.Generator) -> Change:
    """The units between two layers in another order, where what lies between them takes each by itself."""
    found: dict[int, dict[str, Any]] = {}
    at = _outputs(posed)
    for lower, middle, upper in _between(leaves_in(posed)):
        h, image = at[lower.position], isinstance(upper.layer, CONVOLUTIONS)
        axis = h.ndim - 1 if isinstance(lower.layer, L.Linear) else 1
        order = rng.permutation(h.shape[axis])
        y, moved = _through(middle, h), _through(middle, h.take(like(order, h, int), axis))
        times = y.shape[1 if image else -1] // len(order)
        ways = [(order[:, None] * times + np.arange(times)).ravel(), (np.arange(times)[:, None] * len(order) + order).ravel()]
        for way in ways:
            if len(way) == y.shape[1 if image else -1] and bool((moved == y.take(like(way, h, int), 1 if image else -1)).all()):
                kernel = prod(upper.layer.parameters["weight"].shape[2:])
                found.setdefault(lower.position, {})["rows"] = order
                columns = (way[:, None] * kernel + np.arange(kernel)).ravel()
                found.setdefault(upper.position, {})["columns"] = columns
                break
    return _changed(posed, some(found, "no two weights between which each unit goes by itself"))


def rescaled(posed: Posed, rng: np.random.Generator) -> Change:
    """W₁ → 2 W₁, W₂ → W₂ / 2, where what lies between them is positively homogeneous: without rounding."""
    found: dict[int, dict[str, Any]] = {}
    at = _outputs(posed)
    for lower, middle, upper in _between(leaves_in(posed)):
        h = at[lower.position]
        if bool((_through(middle, 2 * h) == 2 * _through(middle, h)).all()):
            found.setdefault(lower.position, {})["out"] = 2.0
            found.setdefault(upper.position, {})["into"] = 2.0
    return _changed(posed, some(found, "no two weights with a positively homogeneous function between them"))
