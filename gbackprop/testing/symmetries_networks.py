"""Networks that are the same function written in another way: units in another order, layers split or scaled."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gbackprop import layers as L
from gbackprop.array import like
from gbackprop.base.checks import is_shipped
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.signals import AVERAGE
from gbackprop.network import Concatenate, Sequential
from gbackprop.testing.complex_steps import passes
from gbackprop.testing.symmetries_posed import Change, Posed, Remade, rewritten

CONVOLUTIONS = (L.Conv1d, L.Conv2d, L.Conv3d)


def with_values(layer: Any, values: Mapping[str, Any], frozen: bool = False) -> Any:
    """Return a copy of a layer with parameters of its own."""
    twin = copy.copy(layer)
    twin.drawn = {key: v.reshape(layer.parameter_shapes()[key]) for key, v in values.items()}
    twin.frozen = frozenset(values) if frozen else layer.frozen
    return twin


def weights(posed: Posed) -> list[Leaf]:
    """Return linear layers and convolutions that stand at one place and are not frozen."""
    places, kinds = Counter(id(leaf.layer) for leaf in posed.leaves), (L.Linear, *CONVOLUTIONS)
    found = [leaf for leaf in posed.leaves if isinstance(leaf.layer, kinds) and is_shipped(leaf.layer)]
    return [leaf for leaf in found if places[id(leaf.layer)] == 1 and not leaf.layer.frozen]


def ungrouped_weights(posed: Posed) -> list[Leaf]:
    """Return those without groups."""
    return [leaf for leaf in weights(posed) if getattr(leaf.layer, "groups", 1) == 1]


def remade(layer: Layer, rows: Any = None, out: float = 1.0, **inputs: Any) -> tuple[Layer, dict[str, Remade]]:
    """Return a copy of a layer of which outputs are moved and scaled, and inputs of its weight; and by what."""
    weight = Remade(rows, out=out, order=layer.weight_order, **inputs)
    made = {key: weight if key == "weight" else Remade(rows, out=out) for key in layer.parameters}
    return with_values(layer, {key: each.of(layer.parameters[key]) for key, each in made.items()}), made


def after_each(posed: Posed, rng: np.random.Generator, more: tuple[Layer, ...]) -> Change:
    """After each layer others that together do nothing; powers of two are not rounded."""
    leaves = [leaf for leaf in posed.leaves if leaf.layer.takes != "integers" or leaf.parameters]  # no index is moved
    return rewritten(posed, {leaf.position: (leaf.layer, *more) for leaf in leaves})


def split(posed: Posed, rng: np.random.Generator) -> Change:
    """W = M (M⁻¹ W): −2 times the outputs in another order, and a layer that takes this back, without rounding."""
    instead: dict[int, tuple[Layer, ...]] = {}
    entries: dict[str, Remade] = {}
    for leaf in ungrouped_weights(posed):
        layer, weight = leaf.layer, leaf.layer.parameters["weight"]
        size = weight.shape[layer.weight_order.index("O")]
        rows, back = np.roll(np.arange(size), 1), np.zeros((size, size))
        back[rows, np.arange(size)] = -0.5
        first, made = remade(layer, rows, -2.0)
        linear = isinstance(layer, L.Linear)
        second: Any = L.Linear(size, size, bias=False) if linear else type(layer)(size, size, 1, bias=False)
        instead[leaf.position] = (first, with_values(second, {"weight": like(back, weight, weight.dtype)}, frozen=True))
        entries |= {leaf.parameters[key]: each for key, each in made.items()}
    return rewritten(posed, instead, "no linear layer or convolution of its own", entries=entries)


def pointwise(posed: Posed, rng: np.random.Generator) -> Change:
    """A linear layer of vectors as a 1×1 convolution of a pixel, a 1×1 convolution as a linear layer of pixels.

    Layers with a weight (I, O) stay as they are: no convolution has such a one.
    """
    instead: dict[int, tuple[Layer, ...]] = {}
    for leaf in (leaf for leaf in ungrouped_weights(posed) if leaf.layer.weight_order == "OI"):
        layer: Any = leaf.layer
        (out, size, *kernel), window = layer.parameters["weight"].shape, getattr(layer, "window", None)
        if window is None and len(leaf.input_shape) == 1:
            pixel = with_values(L.Conv2d(size, out, 1, bias=layer.bias), layer.parameters)
            instead[leaf.position] = (L.Unflatten(1, (size, 1, 1)), pixel, L.Flatten())
        elif window and {*kernel, *window.stride} == {1} and not (layer.frame or any(map(any, window.padding))):
            dense, axes = with_values(L.Linear(size, out, bias=layer.bias), layer.parameters), range(2, 2 + len(kernel))
            back = L.Permute((0, 1 + len(kernel), *range(1, 1 + len(kernel))))
            instead[leaf.position] = (L.Permute((0, *axes, 1)), dense, back)
    return rewritten(posed, instead, "no linear layer of vectors with a weight (O, I), no 1×1 convolution")


def separate(posed: Posed, rng: np.random.Generator) -> Change:
    """A convolution with groups as separate convolutions of their channels."""
    instead: dict[int, tuple[Layer, ...]] = {}
    entries: dict[str, Remade] = {}
    for leaf in (leaf for leaf in weights(posed) if getattr(leaf.layer, "groups", 1) > 1):
        layer: Any = leaf.layer
        count, parts = layer.groups, []
        ins, outs = layer.in_channels // count, layer.out_channels // count
        for i in range(count):
            part, rows = copy.copy(layer), np.arange(i * outs, (i + 1) * outs)
            vars(part).update(in_channels=ins, out_channels=outs, groups=1)
            part = with_values(part, {key: v[i * outs : (i + 1) * outs] for key, v in layer.parameters.items()})
            parts.append(Sequential(L.Slice(1, i * ins, (i + 1) * ins), part))
            own = {f"{leaf.name}.{i}.1.{key}": name for key, name in leaf.parameters.items()}
            entries |= {name: Remade(rows=rows, group=i, old=old) for name, old in own.items()}
        instead[leaf.position] = (Concatenate(*parts),)
    chains = tuple(each for each in posed.asked if any(s.signal == AVERAGE for s in each.statistics()))
    rest = replace(posed, asked=tuple(each for each in posed.asked if each not in chains))
    lacks = {id(each): "its recursion is for chains" for each in chains}
    return rewritten(
        rest, instead, "no convolution with groups", entries=entries, lacks=lambda each: lacks.get(id(each), "")
    )


def _between(posed: Posed) -> Iterator[tuple[Leaf, list[Leaf], Leaf]]:
    """Yield two layers with weights, and what lies between: layers without parameters, each with one taker."""
    ends = {leaf.position: leaf for leaf in ungrouped_weights(posed)}
    taken = Counter(source for leaf in posed.leaves for source in leaf.sources)
    taker = {leaf.sources[0]: leaf for leaf in posed.leaves if len(leaf.sources) == 1}
    for at, lower in ends.items():
        middle: list[Leaf] = []
        while taken[at] == 1 and at in taker and not taker[at].layer.parameter_shapes():
            middle, at = [*middle, taker[at]], taker[at].position
        if taken[at] == 1 and at in taker and taker[at].position in ends:
            yield lower, middle, taker[at]


def units(posed: Posed, rng: np.random.Generator, scale: float = 1.0) -> Change:
    """Units between two layers, in another order or times a power of two, and the upper layer's inputs likewise.

    It applies where what lies between them takes each unit by itself, or is positively homogeneous.
    """
    at, found = {each.leaf.position: each.output for each in passes(posed.leaves, posed.x)}, dict[int, Any]()
    for lower, middle, upper in _between(posed):
        h = y = at[lower.position]
        axis, end = (-1 if isinstance(each.layer, L.Linear) else 1 for each in (lower, upper))
        count = h.shape[axis]
        order = np.arange(count) if scale != 1 else rng.permutation(count)
        moved = scale * h.take(like(order, h, int), axis)
        for leaf in middle:
            y, moved = leaf.layer.forward(y)[0], leaf.layer.forward(moved)[0]
        size = y.shape[end] // count
        for way in ((order[:, None] * size + np.arange(size)), (np.arange(size)[:, None] * count + order)):
            if way.size == y.shape[end] and bool((moved == scale * y.take(like(way.ravel(), h, int), end)).all()):
                k = prod(upper.layer.parameters["weight"].shape[2:])
                columns = (way.reshape(-1, 1) * k + np.arange(k)).ravel()
                found.setdefault(lower.position, {}).update(rows=order, out=scale)
                found.setdefault(upper.position, {}).update(columns=columns, into=scale)
                break
    instead: dict[int, tuple[Layer, ...]] = {}
    entries: dict[str, Remade] = {}
    for leaf in (posed.leaves[position] for position in found):
        layer, made = remade(leaf.layer, **found[leaf.position])
        instead[leaf.position] = (layer,)
        entries |= {leaf.parameters[key]: each for key, each in made.items()}
    return rewritten(posed, instead, "no two weights with such a function between them", entries=entries)
