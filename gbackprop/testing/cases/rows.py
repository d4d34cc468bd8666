"""Rows of the table of cases: a layer with the features that it takes, or a loss with outputs; and its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer, Shape
from gbackprop.testing.flat import Flat, apart

Definition = Callable[..., np.ndarray]
"""A function in plain terms, ``(x, **parameters) -> y``, that shares no code with the layer."""


@dataclass(frozen=True)
class LayerRow:
    """A layer to check: how to make one, features that it takes, and what it should compute.

    Only a container of layers that have rows themselves may have no definition.
    """

    make: Callable[[], Layer]  # a new one at each call, with parameters not drawn yet
    shape: Shape
    definition: Definition | None = None

    @staticmethod
    def of(definition: Definition, kind: type[Layer], shape: Shape, *sizes: Any, **options: Any) -> LayerRow:
        """Return the row of ``kind(*sizes, **options)``, whose definition takes the same options."""
        return LayerRow(partial(kind, *sizes, **options), shape, partial(definition, **options))

    @classmethod
    def of_several(cls, make: Callable[[], Layer], shapes: Sequence[Shape], definition: Definition) -> LayerRow:
        """Return the row of a layer of several inputs, as a function of all of them flat and side by side."""
        return cls(lambda: Flat(make(), shapes), (sum(map(prod, shapes)),), lambda x: definition(*apart(x, shapes)))

    @property
    def kind(self) -> type[Layer]:
        """The class of the layer."""
        made = self.make()
        return type(made.layer if isinstance(made, Flat) else made)

    def layer(self, rng: int | np.random.Generator = 0) -> Layer:
        """Return the layer in float64, its parameters drawn."""
        layer = self.make()
        for _, part in layer.named_layers():
            part.dtype = "float64"
        layer.initialize(np.random.default_rng(rng))
        return layer

    def x(self, batch: int = 3, rng: int | np.random.Generator = 0) -> np.ndarray:
        """Return a batch for it."""
        return np.random.default_rng(rng).standard_normal((batch, *self.shape))

    def reference(self, layer: Layer) -> Definition | None:
        """Return the definition as a function of the input alone, with the parameters of a layer that were drawn."""
        return None if self.definition is None else partial(self.definition, **layer.parameters)

    def __str__(self) -> str:
        return f"{self.make()!r} on {self.shape}"


def drawn(layer: Layer) -> Layer:
    """Return a layer whose parameters are drawn at random where it would begin with ones and zeros."""
    shapes = layer.parameter_shapes()
    layer.draw = lambda rng: {n: rng.standard_normal(shape) for n, shape in shapes.items()}  # type: ignore[method-assign]
    return layer
