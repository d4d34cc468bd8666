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

    A parameter stays under its name and in its layout, and all results are the same. It becomes part of a layer where
    all that takes it are products of one kind, or sums with the results of one layer; all others are left alone.
    Convolutions are found where the feature `shapes` of nodes and inputs are given.
    """
    return _Patterns(nodes, list(nodes)[-1] if output is None else output, shapes or {}).found


class _Product(NamedTuple):
    """A product with a parameter: its node, that of x, the places of w[o, i] in the parameter, and letters of axes."""

    name: str
    x: str
    matrix: np.ndarray
    of_x: str
    of_y: str
    o: str
    inner: list[str]
    rest: list[str]


class _Patterns:
    """The nodes of a graph while layers replace some of them."""

    def __init__(self, nodes: Mapping[str, Sequence[Any]], output: str, shapes: Mapping[str, Shape]) -> None:
        self.found: dict[str, Node] = {name: tuple(node) for name, node in nodes.items()}
        self.above: dict[str, list[str]] = defaultdict(list, {output: [""]})  # the nodes that take a node
        for name, node in self.found.items():
            for each in node[1:]:
                self.above[each].append(name)
        self.places = Counter(id(node[0]) for node in self.found.values())
        self.shapes, self.data = dict(shapes), self._with_data()
        own = [each for each in nodes if type(self._of(each)) is Parameter and self.places[id(self._of(each))] == 1]
        for replace in self._weight, self._bias:
            for name in own:
                replace(name, self._ends(name))

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
        weight = self._of(parameter)
        products = [each for end in dict.fromkeys(ends) for each in self._products(end, parameter)]
        found = [self._linear(each, weight.shape) or self._conv(each, weight.shape) for each in products]
        names, kinds = [each.name for each in products], {pair and repr(pair[0]) for pair in found}
        if names == ends and len(kinds) == 1 and found[0] and self.data & {each.x for each in products}:
            layer, _ = found[0]
            take(layer, "weight", parameter, weight)
            self.places[id(layer)] = len(found)
            for of, (_, x) in zip(products, found, strict=True):  # type: ignore[misc]
                self._put(of, layer, x)

    def _products(self, name: str, parameter: str) -> Iterator[_Product]:
        """Yield a node as a product with a moved parameter."""
        layer, *inputs = self.found.get(name, (None,))
        found: list[Any] = []
        if _is(layer, "matmul"):
            a, b = (ascii_lowercase[: max(len(self.shapes.get(each, ())) - 1, 0)] for each in inputs)
            found = [(*inputs, f"{a}y", "yz", f"{a}z"), (*inputs[::-1], f"{b[:-1]}yt", "zy", f"{b[:-1]}zt")]
        elif _is(layer, "einsum"):
            both, _, out = layer.options["subscripts"].replace(" ", "").partition("->")
            (x, w), (a, b) = inputs, both.split(",")
            found = [(x, w, a, b, out), (w, x, b, a, out)]
        for x, w, of_x, of_w, of_y in found:
            o, inner = ([each for each in of_w if (each in of_x, each in of_y) == at] for at in ((0, 1), (1, 0)))
            rest, chain = [each for each in of_x if each in of_y and each not in of_w], self._chain(w)
            if chain[-1] == parameter and (len(o), len(rest)) == (1, len(of_x) - len(inner)) and inner:
                places = self._moved(chain, places_of(self._of(parameter).shape))
                if places.ndim == len(of_w) == 1 + len(inner) and len(of_y) == 1 + len(rest):
                    yield _Product(name, x, _laid(places, of_w, o, inner), of_x, of_y, o[0], inner, rest)

    def _linear(self, of: _Product, weight: Shape) -> tuple[Any, str] | None:
        """Return a linear layer and x of x @ w, x @ w.T and their like, where i and o are the last axes of x and y."""
        outputs, inputs = of.matrix.shape
        for kind, matrix in ((Linear, of.matrix), (Weight, of.matrix.T)):
            same = np.array_equal(matrix, places_of(weight))
            if same and of.inner == [of.of_x[-1]] and [*of.of_y] == [*of.rest, of.o]:
                return kind(inputs, outputs, bias=False), of.x
        return None

    def _conv(self, of: _Product, weight: Shape) -> tuple[Any, str] | None:
        """Return the convolution of a product of windows and a weight (O, C, *kernel), and the image (C, *S)."""
        order, chain = np.argsort(of.matrix[0]), self._chain(of.x) if of.x in self.shapes else []
        if len(weight) not in CONVOLUTIONS or not np.array_equal(of.matrix[:, order].ravel(), np.arange(prod(weight))):
            return None
        for i, image in enumerate(chain):
            shape = self.shapes[image]
            if len(shape) == len(weight) - 1 and shape[0] == weight[1]:
                seen = _laid(self._moved(chain[: i + 1], places_of(shape)), of.of_x, of.inner, of.rest)
                window = _window(seen[order], weight[2:], shape)
                if window is not None:
                    padding, inside = self._padding(image)
                    sizes: Any = weight[1], weight[0], weight[2:], window.stride, padding, window.dilation
                    return CONVOLUTIONS[len(weight)](*sizes, 1, False), inside
        return None

    def _padding(self, image: str) -> tuple[Any, str]:
        """Return the zeros around an image, where both sides of an axis have as many, and the node without them."""
        if _is(self._of(image), "pad"):
            inside = self.found[image][1]
            o = self._of(image).bound(self.shapes[inside])
            if o.frame and o.value == 0 and o.pairs[0] == (0, 0) and all(a == b for a, b in o.pairs):
                each = tuple(before for before, _ in o.pairs[1:])
                return each[0] if len(set(each)) == 1 else each, inside
        return 0, image

    def _put(self, of: _Product, layer: Any, x: str) -> None:
        """Put a layer at a product, below moves from (O, *out) to the product's axes if these are others."""
        before, letters, layers = self.found[of.name][1:], [of.o, *of.rest], [layer]
        if not isinstance(layer, Linear):
            wide = tuple(self.shapes[of.name][of.of_y.index(each)] for each in letters)
            axes = tuple(letters.index(each) - len(letters) for each in of.of_y)
            if [*of.of_y] != letters or wide != layer.output_shape(self.shapes[x]):
                layers += [Operation("reshape", shape=wide), Operation("transpose", axes=axes)]
        for i, each in enumerate(layers, 1):
            name = of.name if i == len(layers) else self._free(of.name)
            self.found[name] = each, x
            self.above[x].append(name)
            if len(layers) > 1:
                self.shapes[name] = each.output_shape(self.shapes[x])
            x = name
        for each in before:
            self._release(each, of.name)

    # --------------------------------------------------------------------------------------------------------- sums

    def _bias(self, parameter: str, ends: list[str]) -> None:
        """Replace the sums with a parameter that is the bias of a layer at all of its places."""
        adds = [[*self._added(each, parameter)] for each in dict.fromkeys(ends)]
        for layer in [self._of(path[-1]) for path in (adds[0] if adds else [])]:
            paths = [path for each in adds for path in each if self._of(path[-1]) is layer]
            if [path[0] for path in paths] == ends and len(ends) == self.places[id(layer)]:
                layer.bias = True
                take(layer, "bias", parameter, self._of(parameter))
                for name, x, *_ in paths:
                    self._release(next(each for each in self.found[name][1:] if each != x), name)
                    self.found[name] = self.found.pop(x)
                    for each in self.found[name][1:]:
                        self.above[each] = [name if taker == x else taker for taker in self.above[each]]
                return

    def _added(self, name: str, parameter: str) -> Iterator[list[str]]:
        """Yield the paths from a sum with a moved parameter down to the layers whose bias it can be.

        They go through moves and sums that nothing else takes.
        """
        layer, *both = self.found.get(name, (None,))
        chains = [self._chain(each) for each in both] if _is_sum(layer) else []
        waiting = [[name, both[1 - i]] for i, chain in enumerate(chains) if chain[-1] == parameter and len(both) == 2]
        while waiting:
            path = waiting.pop()
            layer, *below = self.found.get(path[-1], (None,))
            if len(self.above[path[-1]]) == 1:
                if layer is not None and layer.node_parameters.keys() == {"weight"}:
                    if self._is_bias(path[1:], chains[both[0] == path[1]]):
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
    """Return whether a layer is an operation that only moves numbers."""
    return isinstance(layer, Operation) and layer.name in MOVED


def _is_sum(layer: Any) -> bool:
    """Return whether a layer adds its inputs."""
    return _is(layer, "add") or type(layer) is Add


def _laid(places: np.ndarray, letters: str, rows: Sequence[str], columns: Sequence[str]) -> np.ndarray:
    """Return an array as a matrix, with some of its letters along each of both axes."""
    axes = [letters.index(each) for each in (*rows, *columns)]
    return places.transpose(axes).reshape(prod(places.shape[axis] for axis in axes[: len(rows)]), -1)


def _window(seen: np.ndarray, kernel: Shape, image: Shape) -> Window | None:
    """Return the window that sees places of an image (C, *S), [C ∏ kernel, T], or None if there is none."""
    first = [axis.reshape(*kernel, -1) for axis in np.unravel_index(seen[: prod(kernel)], image)[1:]]
    lines = [np.moveaxis(at, axis, -2)[(0,) * (len(kernel) - 1)] for axis, at in enumerate(first)]  # [kernel, T]
    starts = [np.unique(line[0]) for line in lines]
    dilations = [int(line[1, 0] - line[0, 0]) if len(line) > 1 else 1 for line in lines]
    axes = zip(starts, [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)], image[1:], strict=True)
    strides = [int(at[1] - at[0]) if len(at) > 1 else 1 if reach == size else size for at, reach, size in axes]
    window = Window(kernel, tuple(strides), tuple(dilations), ((0, 0),) * len(kernel))
    if min(dilations) < 1 or any(reach > size for reach, size in zip(window.reach, image[1:], strict=True)):
        return None
    own = window.unfold(np.moveaxis(places_of(image)[None], 1, -1)).reshape(-1, prod(kernel), image[0])
    return window if np.array_equal(own.transpose(2, 1, 0).reshape(len(seen), -1), seen) else None
