"""Patterns of operations in a graph that are layers: products with a parameter have Kronecker factors and speed.

In a product y[.., o] = Σᵢ x[.., i] w[o, i], x and w may be moved numbers, as the windows of an image are. Which numbers
meet is told by the letters of the axes, and by what the moves do to the numbers of the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
        self.takers = Counter([output, *(name for node in self.found.values() for name in node[1:])])
        self.places = Counter(id(node[0]) for node in self.found.values())
        self.shapes, self.data = dict(shapes), self._with_data()
        for name in nodes:
            any(self._linear(each) or self._convolution(each) for each in self._products(name))
        for name in nodes:
            self._sum(name)

    def _with_data(self) -> set[str]:
        """Return the names of what depends on the inputs, which are no nodes."""
        takers: dict[str, list[str]] = {}
        for name, node in self.found.items():
            for each in node[1:]:
                takers.setdefault(each, []).append(name)
        found, waiting = set(), [name for name in takers if name not in self.found]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += takers.get(name, ())
        return found

    def _products(self, name: str) -> list[_Product]:
        """Return a node as products of data and a moved parameter that nothing else takes."""
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
            if x in self.data and self._parameter(chain := self._chain(w)):
                places = self._moved(chain, places_of(self._of(chain[-1]).shape))
                products.append(_Product(name, x, chain[-1], places, tuple(letters)))
        return [each for each in products if each.o]

    # ---------------------------------------------------------------------------------------------------- products

    def _linear(self, of: _Product) -> bool:
        """Replace x @ w, x @ w.T and their like, where i and o are the last axes of x and y, by a matrix w."""
        (of_x, _, of_y), matrix, (outputs, inputs) = of.letters, of.matrix, of.matrix.shape
        for kind, each in ((Linear, matrix), (Weight, matrix.T)):
            same = np.array_equal(each, places_of(self._of(of.parameter).shape))
            if same and of.inner == of_x[-1] and of_y == of.rest + of.o:
                self._put(of, kind(inputs, outputs, bias=False), of.x)
                return True
        return False

    def _convolution(self, of: _Product) -> bool:
        """Replace a product of the windows of an image (C, *S) and a weight (O, C, *kernel)."""
        weight, matrix, chain = self._of(of.parameter).shape, of.matrix, self._chain(of.x)
        order = np.argsort(matrix[0])
        if of.x not in self.shapes or not np.array_equal(matrix[:, order].ravel(), np.arange(prod(weight))):
            return False
        for i, base in enumerate(chain):
            shape = self.shapes[base]
            if len(weight) in CONVOLUTIONS and len(shape) == len(weight) - 1 and shape[0] == weight[1]:
                seen = _laid(self._moved(chain[: i + 1], places_of(shape)), of.letters[0], of.inner, of.rest)
                window = Window.of(seen[order], weight[2:], shape)
                if window is not None:
                    padding, image = self._padding(base)
                    sizes: Any = weight[1], weight[0], weight[2:], window.stride, padding, window.dilation
                    self._put(of, CONVOLUTIONS[len(weight)](*sizes, 1, False), image)
                    return True
        return False

    def _padding(self, base: str) -> tuple[Any, str]:
        """Return the number of zeros around an image, as many on both sides of an axis, and the node without them."""
        if _is(self._of(base), "pad"):
            image = self.found[base][1]
            o = self._of(base).bound(self.shapes[image])
            if o.frame and o.value == 0 and o.pairs[0] == (0, 0) and all(a == b for a, b in o.pairs):
                return tuple(before for before, _ in o.pairs[1:]), image
        return 0, base

    def _put(self, of: _Product, layer: Any, x: str) -> None:
        """Put a layer at a product, below moves to the product's axes if these are others."""
        take(layer, "weight", of.parameter, self._of(of.parameter))
        before, after = self.found[of.name][1:], [] if isinstance(layer, Linear) else self._moves(of, layer, x)
        for each in [layer, *after]:
            name = self._free(of.name) if each is not [layer, *after][-1] else of.name
            self.found[name] = each, x
            self.takers[x] += 1
            if after:
                self.shapes[name] = each.output_shape(self.shapes[x])
            x = name
        for each in before:
            self._release(each)

    def _moves(self, of: _Product, layer: Any, x: str) -> list[Operation]:
        """Return the moves from the axes (O, *out) of a convolution of x to those of a product."""
        letters, (_, _, of_y), sizes = of.o + of.rest, of.letters, self.shapes[of.name]
        wide = tuple(sizes[of_y.index(each)] for each in letters)
        moves = [Operation("reshape", shape=wide)] if wide != layer.output_shape(self.shapes[x]) else []
        axes = tuple(letters.index(each) - len(letters) for each in of_y)
        return moves + ([Operation("transpose", axes=axes)] if letters != of_y else [])

    # --------------------------------------------------------------------------------------------------------- sums

    def _sum(self, name: str) -> None:
        """Replace the sum of a product that was replaced and a bias."""
        layer, *inputs = self.found.get(name, (None,))
        if (_is(layer, "add") or type(layer) is Add) and len(inputs) == 2:
            for x, b in (inputs, inputs[::-1]):
                chain, bias = self._chain(x), self._chain(b)
                if self._parameter(bias) and self._is_bias(chain, bias):
                    product = self._of(chain[-1])
                    product.bias = True
                    take(product, "bias", bias[-1], self._of(bias[-1]))
                    self._release(b)
                    for each in chain:  # under other names, as they have other values
                        self.found[name] = self.found.pop(each)
                        if each != chain[-1]:
                            name, above = self._free(each), name
                            self.found[above] = self.found[above][0], name
                    return

    def _is_bias(self, chain: list[str], bias: list[str]) -> bool:
        """Return whether what is added to each number of a moved product is the bias of its feature o."""
        product, node = self._of(chain[-1]), self._of(bias[-1])
        own = getattr(product, "node_parameters", {}).keys() == {"weight"}
        if not own or any(self.takers[each] != 1 for each in chain):
            return False
        features = product.out_features if isinstance(product, Linear) else product.out_channels
        alike = (product.dtype, product.drawn is None) == (node.dtype, node.drawn is None)
        if not alike or node.shape != (features,) or (len(chain) > 1 and chain[-1] not in self.shapes):
            return False
        o = np.arange(features).reshape(-1, *(1,) * getattr(product, "dims", 0))
        places = self._moved(chain, np.broadcast_to(o, self.shapes.get(chain[-1], node.shape)))
        added = self._moved(bias, o.ravel())
        wide = np.broadcast_shapes(places.shape, added.shape) == places.shape
        return wide and np.array_equal(places, np.broadcast_to(added, places.shape))

    # -------------------------------------------------------------------------------------------------------- nodes

    def _of(self, name: str) -> Any:
        """Return the layer of a node, None of the input."""
        return self.found.get(name, (None,))[0]

    def _chain(self, name: str) -> list[str]:
        """Return a node and those below it, through moves of numbers down to the first that is none."""
        found = [name]
        while isinstance(self._of(found[-1]), Operation) and self._of(found[-1]).name in MOVED:
            found.append(self.found[found[-1]][1])
        return found

    def _moved(self, chain: list[str], places: np.ndarray) -> np.ndarray:
        """Return what the moves of a chain make of numbers at its end."""
        for name in reversed(chain[:-1]):
            places = self._of(name).forward(places[None])[0][0]
        return places

    def _parameter(self, chain: list[str]) -> bool:
        """Return whether a chain ends at a parameter that is nowhere else, and nothing else takes one of its nodes."""
        layer = self._of(chain[-1])
        alone = all(self.takers[each] == 1 for each in chain) and self.places[id(layer)] == 1
        return type(layer) is Parameter and alone

    def _free(self, name: str) -> str:
        """Return the name of a new node beside another."""
        numbered = (f"{name}_{k}" for k in count(1))
        return next(each for each in numbered if each not in self.found and each not in self.shapes)

    def _release(self, name: str) -> None:
        """Take back that a node takes another, which is deleted if none is left that does."""
        self.takers[name] -= 1
        if not self.takers[name] and name in self.found:
            for each in self.found.pop(name)[1:]:
                self._release(each)


def _is(layer: Any, name: str) -> bool:
    """Return whether a layer is an operation of a name."""
    return isinstance(layer, Operation) and layer.name == name


def _laid(places: np.ndarray, letters: str, rows: str, columns: str) -> np.ndarray:
    """Return an array as a matrix, with some of its letters along each of both axes."""
    sizes = [places.shape[letters.index(each)] for each in rows]
    return places.transpose(*(letters.index(each) for each in rows + columns)).reshape(prod(sizes), -1)
