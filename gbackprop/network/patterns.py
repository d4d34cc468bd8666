"""Patterns of operations in a graph that are layers: products with a parameter have Kronecker factors and speed.

In a product y[.., o] = Σᵢ x[.., i] w[o, i], x and w may be moved numbers, as the windows of an image are. Which numbers
meet is told by the letters of the axes, and by what the moves do to the numbers of the places.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import prod
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np

from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Window
from gbackprop.layers import Add, Conv1d, Conv2d, Conv3d, Linear
from gbackprop.layers.operations.copies import MOVES, places_of
from gbackprop.layers.operations.leaves import Parameter
from gbackprop.layers.operations.operation import Operation
from gbackprop.layers.operations.weights import Weight, take

Node = tuple[Any, ...]
"""A layer and the names of its inputs."""

MOVED = MOVES.keys() - {"pad", "scatter_add"}
"""The operations of which each number of the output is one of the input."""

CONVOLUTIONS: dict[int, Any] = {3: Conv1d, 4: Conv2d, 5: Conv3d}
"""Convolutions by the number of axes of their weight."""


def replaced(
    nodes: Mapping[str, Sequence[Any]], output: str | None = None, shapes: Mapping[str, Shape] | None = None
) -> dict[str, Node]:
    """Return the nodes of a `Graph` with layers in place of products with a parameter, and of a bias added to these.

    A parameter stays under its name and in its layout, and all results are the same. Only one that a single product
    takes, or that is added to its result, becomes part of a layer; all others are left alone. Convolutions are found
    where the feature `shapes` of nodes and inputs are given.
    """
    return _Patterns(nodes, list(nodes)[-1] if output is None else output, shapes or {}).found


class _Product(NamedTuple):
    """A product with a parameter: its node, those of x and the parameter, the places there of w, the axes' letters."""

    name: str
    x: str
    parameter: str
    w: np.ndarray
    letters: tuple[str, str, str]

    @property
    def inner(self) -> str:
        """The letters of i, in the order of w."""
        of_x, of_w, of_y = self.letters
        return "".join(each for each in of_w if each in of_x and each not in of_y)

    @property
    def rest(self) -> str:
        """The letters that x and y have, in the order of x."""
        of_x, of_w, of_y = self.letters
        return "".join(each for each in of_x if each not in of_w and each in of_y)

    @property
    def o(self) -> str:
        """The letter that w and y have; none if there are several, or other letters than these."""
        of_x, of_w, of_y = self.letters
        o = "".join(each for each in of_w if each not in of_x and each in of_y)
        sizes = [len(o) + len(self.inner), len(self.inner) + len(self.rest), len(self.rest) + len(o)]
        return o if len(o) == 1 and self.inner and sizes == [self.w.ndim, len(of_x), len(of_y)] else ""

    @property
    def matrix(self) -> np.ndarray:
        """The places of w[o, i]."""
        return _laid(self.w, self.letters[1], self.o, self.inner)


class _Patterns:
    """The nodes of a graph while layers replace some of them."""

    def __init__(self, nodes: Mapping[str, Sequence[Any]], output: str, shapes: Mapping[str, Shape]) -> None:
        self.found: dict[str, Node] = {name: tuple(node) for name, node in nodes.items()}
        self.above: dict[str, list[str]] = defaultdict(list, {output: [""]})  # the nodes that take a node
        for name, node in self.found.items():
            for each in node[1:]:
                self.above[each].append(name)
        self.places = Counter(id(node[0]) for node in self.found.values())
        self.shapes, self.data, self.changed = dict(shapes), self._with_data(), set[str]()
        own = [each for each in nodes if type(self._of(each)) is Parameter and self.places[id(self._of(each))] == 1]
        for name in own:
            self._weight(name, self._ends(name))
        for name in own:
            self._bias(name, self._ends(name))
        new = {name: self._free(name) for name in self.changed & self.found.keys()}
        self.found = {new.get(name, name): (layer, *[new.get(each, each) for each in taken])
                      for name, (layer, *taken) in self.found.items()}  # fmt: skip

    def _with_data(self) -> set[str]:
        """Return the names of what depends on the inputs, which are no nodes."""
        found, waiting = set(), [name for name in self.above if name not in self.found]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.above.get(name, ())
        return found

    # ---------------------------------------------------------------------------------------------------- products

    def _weight(self, parameter: str, ends: list[str]) -> None:
        """Replace the products of a parameter by a layer, the same at all of them, if nothing else takes it."""
        products = [each for end in dict.fromkeys(ends) for each in self._products(end, parameter)]
        if [each.name for each in products] != ends or self.data.isdisjoint(each.x for each in products):
            return
        found = [pair for each in products if (pair := self._linear(each) or self._convolution(each))]
        if len(found) == len(products) and len({repr(layer) for layer, _ in found}) == 1:
            layer = found[0][0]
            take(layer, "weight", parameter, self._of(parameter))
            self.places[id(layer)] = len(found)
            for of, (_, x) in zip(products, found, strict=True):
                self._put(of, layer, x)

    def _products(self, name: str, parameter: str) -> list[_Product]:
        """Return a node as a product with a moved parameter; none if it is another."""
        layer, *inputs = self.found.get(name, (None,))
        found: list[Any] = []
        if _is(layer, "matmul"):
            a, b = (ascii_lowercase[: max(len(self.shapes.get(each, ())) - 1, 0)] for each in inputs)
            found = [(*inputs, f"{a}y", "yz", f"{a}z"), (*inputs[::-1], f"{b[:-1]}yt", "zy", f"{b[:-1]}zt")]
        elif _is(layer, "einsum"):
            both, _, out = layer.options["subscripts"].replace(" ", "").partition("->")
            (x, w), (a, b) = inputs, both.split(",")
            found = [(x, w, a, b, out), (w, x, b, a, out)]
        products = []
        for x, w, *letters in found:
            if (chain := self._chain(w))[-1] == parameter:
                places = self._moved(chain, places_of(self._of(parameter).shape))
                products.append(_Product(name, x, parameter, places, tuple(letters)))
        return [each for each in products if each.o]

    def _linear(self, of: _Product) -> tuple[Any, str] | None:
        """Return a linear layer and x of x @ w, x @ w.T and their like, where i and o are the last axes of x and y."""
        (of_x, _, of_y), matrix, (outputs, inputs) = of.letters, of.matrix, of.matrix.shape
        for kind, each in ((Linear, matrix), (Weight, matrix.T)):
            same = np.array_equal(each, places_of(self._of(of.parameter).shape))
            if same and of.inner == of_x[-1] and of_y == of.rest + of.o:
                return kind(inputs, outputs, bias=False), of.x
        return None

    def _convolution(self, of: _Product) -> tuple[Any, str] | None:
        """Return the convolution of a product of windows and a weight (O, C, *kernel), and the image (C, *S)."""
        weight, matrix = self._of(of.parameter).shape, of.matrix
        order, chain = np.argsort(matrix[0]), self._chain(of.x) if of.x in self.shapes else []
        if len(weight) not in CONVOLUTIONS or not np.array_equal(matrix[:, order].ravel(), np.arange(prod(weight))):
            return None
        for i, image in enumerate(chain):
            shape = self.shapes[image]
            if len(shape) == len(weight) - 1 and shape[0] == weight[1]:
                seen = _laid(self._moved(chain[: i + 1], places_of(shape)), of.letters[0], of.inner, of.rest)
                window = Window.of(seen[order], weight[2:], shape)
                if window is not None:
                    padding, inside = self._padding(image)
                    sizes: Any = weight[1], weight[0], weight[2:], window.stride, padding, window.dilation
                    return CONVOLUTIONS[len(weight)](*sizes, 1, False), inside
        return None

    def _padding(self, base: str) -> tuple[Any, str]:
        """Return the number of zeros around an image, as many on both sides of an axis, and the node without them."""
        if _is(self._of(base), "pad"):
            image = self.found[base][1]
            o = self._of(base).bound(self.shapes[image])
            if o.frame and o.value == 0 and o.pairs[0] == (0, 0) and all(a == b for a, b in o.pairs):
                each = tuple(before for before, _ in o.pairs[1:])
                return each[0] if len(set(each)) == 1 else each, image
        return 0, base

    def _put(self, of: _Product, layer: Any, x: str) -> None:
        """Put a layer at a product, below moves to the product's axes if these are others."""
        before, moves = self.found[of.name][1:], [] if isinstance(layer, Linear) else self._moves(of, layer, x)
        for each in [layer, *moves]:
            name = of.name if each is [layer, *moves][-1] else self._free(of.name)
            self.found[name] = each, x
            self.above[x].append(name)
            if moves:
                self.shapes[name] = each.output_shape(self.shapes[x])
            x = name
        for each in before:
            self._release(each, of.name)

    def _moves(self, of: _Product, layer: Any, x: str) -> list[Operation]:
        """Return the moves from the axes (O, *out) of a convolution of x to those of a product."""
        letters, (_, _, of_y), sizes = of.o + of.rest, of.letters, self.shapes[of.name]
        wide = tuple(sizes[of_y.index(each)] for each in letters)
        moves = [Operation("reshape", shape=wide)] if wide != layer.output_shape(self.shapes[x]) else []
        axes = tuple(letters.index(each) - len(letters) for each in of_y)
        return moves + ([Operation("transpose", axes=axes)] if letters != of_y else [])

    # --------------------------------------------------------------------------------------------------------- sums

    def _bias(self, parameter: str, ends: list[str]) -> None:
        """Replace the sums with a parameter that is the bias of a layer at all of its places."""
        adds = [self._added(each, parameter) for each in dict.fromkeys(ends)]
        for layer in [self._of(path[-1]) for path in (adds[0] if adds else [])]:
            paths = [path for each in adds for path in each if self._of(path[-1]) is layer]
            if [path[0] for path in paths] == ends and len(ends) == self.places[id(layer)]:
                layer.bias = True
                take(layer, "bias", parameter, self._of(parameter))
                for path in paths:
                    self._leave_out(path)
                return

    def _leave_out(self, path: list[str]) -> None:
        """Put what is added to at a sum: the second node of a path that begins there."""
        name, x, *below = path
        _, *both = self.found[name]
        for each in both:
            if each != x:
                self._release(each, name)
        self.found[name] = self.found.pop(x)
        for each in self.found[name][1:]:
            self.above[each] = [name if taker == x else taker for taker in self.above[each]]
        self.changed |= set(below)  # these have other values

    def _added(self, name: str, parameter: str) -> list[list[str]]:
        """Return the paths from a sum with a moved parameter down to the layers whose bias it can be."""
        layer, *both = self.found.get(name, (None,))
        found: list[list[str]] = []
        for x, b in (both, both[::-1]) if _is_sum(layer) and len(both) == 2 else ():
            if (chain := self._chain(b))[-1] == parameter:
                found += [[name, *path] for path in self._paths(x) if self._is_bias(path, chain)]
        return found

    def _paths(self, name: str) -> Iterator[list[str]]:
        """Yield the paths from a node down to layers without a bias, through moves and sums that nothing else takes."""
        waiting = [[name]]
        while waiting:
            path = waiting.pop()
            layer, *below = self.found.get(path[-1], (None,))
            if len(self.above[path[-1]]) == 1:
                if layer is not None and layer.node_parameters.keys() == {"weight"}:
                    yield path
                elif _is_move(layer) or (_is_sum(layer) and path[-1] in self.shapes):
                    waiting += [[*path, each] for each in below[::-1]]

    def _is_bias(self, path: list[str], chain: list[str]) -> bool:
        """Return whether what a chain adds to each number of a path is a number of its feature o."""
        layer, node = self._of(path[-1]), self._of(chain[-1])
        features = layer.out_features if isinstance(layer, Linear) else layer.out_channels
        alike = (layer.dtype, layer.drawn is None) == (node.dtype, node.drawn is None)
        if not alike or node.shape != (features,) or (len(path) > 1 and path[-1] not in self.shapes):
            return False
        o = np.arange(features).reshape(-1, *(1,) * getattr(layer, "dims", 0))
        places = self._moved(path, np.broadcast_to(o, self.shapes.get(path[-1], node.shape)))
        added = self._moved(chain, o.ravel())
        wide = np.broadcast_shapes(places.shape, added.shape) == places.shape
        return wide and np.array_equal(places, np.broadcast_to(added, places.shape))

    # -------------------------------------------------------------------------------------------------------- nodes

    def _of(self, name: str) -> Any:
        """Return the layer of a node, None of the input."""
        return self.found.get(name, (None,))[0]

    def _ends(self, name: str) -> list[str]:
        """Return the nodes that take a node, or what moves make of it."""
        found: list[str] = []
        waiting = [name]
        while waiting:
            for each in self.above[waiting.pop()]:
                (waiting if _is_move(self._of(each)) else found).append(each)
        return found

    def _chain(self, name: str) -> list[str]:
        """Return a node and those below it, through moves of numbers down to the first that is none."""
        found = [name]
        while _is_move(self._of(found[-1])):
            found.append(self.found[found[-1]][1])
        return found

    def _moved(self, path: list[str], places: np.ndarray) -> np.ndarray:
        """Return what the moves of a path make of numbers at its end; sums broadcast them."""
        for name in reversed(path[:-1]):
            move = self._of(name) if _is_move(self._of(name)) else None
            places = move.forward(places[None])[0][0] if move else np.broadcast_to(places, self.shapes[name])
        return places

    def _free(self, name: str) -> str:
        """Return the name of a new node beside another."""
        numbered = (f"{name}_{k}" for k in count(1))
        return next(each for each in numbered if each not in self.found and each not in self.shapes)

    def _release(self, name: str, taker: str) -> None:
        """Take back that a node takes another, which is deleted if none is left that does."""
        waiting = [(name, taker)]
        while waiting:
            name, taker = waiting.pop()
            self.above[name].remove(taker)
            if not self.above[name] and name in self.found:
                waiting += [(each, name) for each in self.found.pop(name)[1:]]


def _is(layer: Any, name: str) -> bool:
    """Return whether a layer is an operation of a name."""
    return isinstance(layer, Operation) and layer.name == name


def _is_move(layer: Any) -> bool:
    return isinstance(layer, Operation) and layer.name in MOVED


def _is_sum(layer: Any) -> bool:
    return _is(layer, "add") or type(layer) is Add


def _laid(places: np.ndarray, letters: str, rows: str, columns: str) -> np.ndarray:
    """Return an array as a matrix, with some of its letters along each of both axes."""
    sizes = [places.shape[letters.index(each)] for each in rows]
    return places.transpose(*(letters.index(each) for each in rows + columns)).reshape(prod(sizes), -1)
