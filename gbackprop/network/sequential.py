"""`Sequential`, a chain of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from gbackprop.base.checks import own_methods
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer, Nodes
from gbackprop.network.container import Container, layers_of

OWN = ("forward", "forward_training", "noise", "jmp", "mjp")
"""Methods that a subclass of `Sequential` cannot override: a sweep visits the layers one by one."""

STRUCTURE = ("named_layers", "place", "output_shape", "initialize")
"""Methods by which a container says what is inside; those of a subclass are called."""


class Sequential(Container):
    """A chain of layers.

    Parameters
    ----------
    *layers : Layer
        Containers can be among them. Parameters are named as in torch: "0.weight", "1.0.bias", … A layer at several
        places has the same parameters at each, with the name of the first.
    rng : None, int or numpy.random.Generator
        Draws the parameters of all layers that have none yet, one after the other, as torch does by default. With
        None they are drawn from fresh entropy on first use, unless an outer Sequential's `rng` or `load_state_dict`
        sets them before.
    dtype : {"float32", "float64"}, optional
        dtype of the parameters; float32 if no container sets another.

    Raises
    ------
    TypeError
        If an argument is not a layer.
    ValueError
        If `dtype` is not one of the two.
    """

    def __init__(self, *layers: Layer, rng: int | np.random.Generator | None = None, dtype: Any = None) -> None:
        if layers and isinstance(layers[0], Container) and layers[0].several is not None:
            self.several = layers[0].several
        super().__init__({str(i): layer for i, layer in enumerate(layers)}, rng, dtype)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers from input to output, which are the children; others can be assigned."""
        return tuple(self.children.values())

    @layers.setter
    def layers(self, layers: Sequence[Layer]) -> None:
        self.children = layers_of({str(i): layer for i, layer in enumerate(layers)})

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...

    @overload
    def __getitem__(self, index: slice) -> Sequential: ...

    def __getitem__(self, index: int | slice) -> Layer:
        """Return a layer, or for a slice a network of these very layers: it shares their parameters with this one."""
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __repr__(self) -> str:
        words: list[str] = []
        waiting: list[Any] = [self]
        while waiting:
            at = waiting.pop()
            if isinstance(at, Sequential) and not _own(at, ("__repr__",)):
                parts = [part for child in at.layers for part in (", ", child)][1:]
                waiting += reversed(["Sequential(", *parts, ")"])
            else:
                words.append(at if isinstance(at, str) else repr(at))
        return "".join(words)

    def chain(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """Yield (path, layer) of the layers inside, from input to output, with a loop: nesting may be of any depth.

        A subclass of Sequential with methods of its own is given whole.
        """
        waiting: list[tuple[str, Layer]] = [(name, self)]
        while waiting:
            path, layer = waiting.pop()
            if isinstance(layer, Sequential) and (layer is self or not _own(layer, OWN + STRUCTURE)):
                inside = [(f"{path}.{i}" if path else str(i), child) for i, child in enumerate(layer.children.values())]
                waiting += reversed(inside)
            else:
                yield path, layer

    def every_layer(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        for path, layer in self.chain(name):
            yield from layer.named_layers(path)

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        plain = type(self) is Sequential and vars(self).keys().isdisjoint(OWN)
        for method in () if plain else _own(self, OWN):
            raise UnsupportedError(
                f"layer {name or '(the network)'}, {type(self).__name__}: expected a chain of layers, got a "
                f"subclass of Sequential with a {method} of its own (write a Layer instead)"
            )
        (source,) = sources
        for path, layer in self.chain(name):
            source = layer.place(nodes, path, source)
        return source


def _own(layer: Layer, methods: tuple[str, ...]) -> list[str]:
    """Return which of the methods are not those of `Sequential`, as it ships."""
    own = own_methods(layer)
    return [name for name in methods if name in own]
