"""Registry of fast forms: each is registered under the function of a layer or Jacobian that it replaces.

A form is looked up by that very function. An object with another one (a subclass that overrides the method, an
attribute of that name, a wrapper) has no form, and is computed the plain way. With an empty registry everything is
computed the plain way; results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gbackprop.array import Array
from gbackprop.engine.memory import Allocator
from gbackprop.layers.base import Layer
from gbackprop.layers.jacobian import REDUCTIONS, ParameterJacobian, congruence

Function = Callable[..., Any]

Table = Mapping[Any, Any]
"""Forms by a function, or by a tuple of functions."""


def function_of(method: Any) -> Function | None:
    """Return the function behind a bound method; None for any other callable."""
    return getattr(method, "__func__", None)


@dataclass(frozen=True)
class Forms:
    """Registry of fast forms by the function that they replace.

    Attributes
    ----------
    forward : mapping
        For `Layer.forward`: ``form(layer, x, context) -> (y, saved)``, with `saved` as the plain function returns it.
    carry : mapping
        For `Layer.mjp`: ``form(layer, saved, mat, context) -> mat``.
    in_place : mapping
        For `Layer.mjp`: ``form(layer, saved, mat)``, which overwrites a `mat` that nothing else refers to.
    pure : set
        Functions `Layer.mjp` that store no reference to their arguments or results.
    average : mapping
        For the pair `Layer.mjp`, `Layer.average`: ``form(layer, saved, curvature, batch, shape, context)``.
    jacobians : mapping
        For `Layer.parameter_jacobians`: ``form(layer, saved, context) -> dict``.
    reduce : mapping
        For the pair `ParameterJacobian.per_sample`, reduction: ``form(jacobian, *arriving, context)``.
    write_rows : mapping
        For the same pair, for "batch": ``form(jacobian, mat, sign, rows, context)``, which writes the result into its
        final array.
    routes : mapping
        For the pair `Layer.forward`, `Layer.mjp`: ``form(layer, saved, above)``, see `engine.routes`.
    routed : mapping
        For the triple `Layer.forward`, `Layer.mjp`, `Layer.parameter_jacobians`: see `engine.routes`.
    """

    forward: Table = field(default_factory=dict)
    carry: Table = field(default_factory=dict)
    in_place: Table = field(default_factory=dict)
    pure: frozenset[Function | None] = frozenset()
    average: Table = field(default_factory=dict)
    jacobians: Table = field(default_factory=dict)
    reduce: Table = field(default_factory=dict)
    write_rows: Table = field(default_factory=dict)
    routes: Table = field(default_factory=dict)
    routed: Table = field(default_factory=dict)


SUM = REDUCTIONS["sum"]

PLAIN = Forms()
"""An empty registry: everything is computed the plain way."""


class Context:
    """Context of one sweep over one block of samples: what forms need in addition to their arguments.

    Attributes
    ----------
    forms : Forms
    memory : Allocator
    sums : list of (Bias, columns, sums)
        Sums over positions of the columns at the current layer, cached because every reduction needs them.
    total : (ParameterJacobian, columns, sum)
        The latest reduction "sum", cached because the moments start from the mean.
    """

    def __init__(self, forms: Forms, memory: Allocator) -> None:
        self.forms, self.memory = forms, memory
        self.sums: list[tuple[Any, Array, Array]] = []
        self.total: tuple[Any, Any, Any] = (None, None, None)

    def forward(self, layer: Layer, x: Array) -> tuple[Array, Any]:
        """Compute `Layer.forward`, by its fast form if there is one."""
        method = layer.forward
        form = self.forms.forward.get(function_of(method))
        return method(x) if form is None else form(method.__self__, x, self)  # type: ignore[attr-defined]

    def mjp(self, layer: Layer, saved: Any, mat: Array) -> Array:
        """Compute `Layer.mjp`, by its fast form if there is one."""
        method = layer.mjp
        form = self.forms.carry.get(function_of(method))
        return method(saved, mat) if form is None else form(method.__self__, saved, mat, self)  # type: ignore[attr-defined]

    def average(self, layer: Layer, saved: Any, curvature: Array, batch: int, shape: tuple[int, ...]) -> Array:
        """Compute `Layer.average`, by its fast form if there is one; its default by the form of `Layer.mjp`."""
        average = function_of(layer.average)
        form = self.forms.average.get((function_of(layer.mjp), average))
        if form is not None:
            return form(layer, saved, curvature, batch, shape, self)
        if average is not Layer.average:
            return layer.average(saved, curvature, batch, shape)
        n = 1 if layer.constant_jacobian else batch
        blocks = congruence(lambda mat: self.mjp(layer, saved, mat), curvature, n, shape)
        return blocks[:, 0] if n == 1 else blocks.sum(1) / n

    def jacobians(self, layer: Layer, saved: Any) -> dict[str, ParameterJacobian]:
        """Compute `Layer.parameter_jacobians`, by its fast form if there is one."""
        method = layer.parameter_jacobians
        form = self.forms.jacobians.get(function_of(method))
        return method(saved) if form is None else form(method.__self__, saved, self)  # type: ignore[attr-defined]

    def reduce(self, jacobian: ParameterJacobian, reduction: Any, *arriving: Any) -> Any:
        """Compute a reduction of a Jacobian: by its form, else by the Jacobian's method, else by the definition."""
        method = getattr(jacobian, reduction.name, None)
        if method is None:
            return reduction.define(jacobian, *arriving)
        form = self.forms.reduce.get((function_of(jacobian.per_sample), function_of(method)))
        value = method(*arriving) if form is None else form(jacobian, *arriving, self)
        if reduction is SUM:
            self.total = (jacobian, arriving[0], value)
        return value
