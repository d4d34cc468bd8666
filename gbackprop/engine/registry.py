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
from gbackprop.layers.base import Layer, Leaf
from gbackprop.layers.jacobian import REDUCTIONS, ParameterJacobian, Reduction, congruence

Function = Callable[..., Any]

Table = Mapping[Any, Any]
"""Forms by a function, or by a tuple of functions."""


def function_of(owner: Any, name: str) -> Function | None:
    """Return the function behind a method that is bound to its owner; None for any other callable."""
    method = getattr(owner, name, None)
    return getattr(method, "__func__", None) if getattr(method, "__self__", None) is owner else None


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
        For the triple `Layer.forward`, `Layer.forward_training`, `Layer.mjp`: ``form(layer, saved, above, context)``,
        see `forms.routed`.
    routed : mapping
        For the triple `Layer.forward`, `Layer.mjp`, `Layer.parameter_jacobians`: a `forms.routed.Routed`.
    helpers : mapping
        For each replaced function, (name, function) of the methods that it calls: a form is taken only if these are
        the owner's, too.
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
    helpers: Table = field(default_factory=dict)

    def find(self, table: Table, owner: Any, *names: str) -> Any:
        """Return the form in a table for an owner's methods, or None."""
        functions = tuple([function_of(owner, name) for name in names])
        form = table.get(functions if len(names) > 1 else functions[0])
        if form is not None:
            for function in functions:
                for name, helper in self.helpers.get(function, ()):
                    if function_of(owner, name) is not helper:
                        return None
        return form


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
    lower : dict of int to Leaf or None
        The next layer below that no route passes, by a layer's position, cached because many layers have the same.
    """

    def __init__(self, forms: Forms, memory: Allocator) -> None:
        self.forms, self.memory = forms, memory
        self.sums: list[tuple[Any, Array, Array]] = []
        self.total: tuple[Any, Any, Any] = (None, None, None)
        self.lower: dict[int, Leaf | None] = {}

    def forward(self, layer: Layer, *inputs: Array) -> tuple[Array, Any]:
        """Compute `Layer.forward`, by its fast form if there is one."""
        form = self.forms.find(self.forms.forward, layer, "forward")
        return layer.forward(*inputs) if form is None else form(layer, *inputs, self)

    def mjp(self, layer: Layer, saved: Any, mat: Array) -> Array:
        """Compute `Layer.mjp` likewise."""
        form = self.forms.find(self.forms.carry, layer, "mjp")
        return layer.mjp(saved, mat) if form is None else form(layer, saved, mat, self)

    def average(self, layer: Layer, saved: Any, curvature: Array, batch: int, shape: tuple[int, ...]) -> Array:
        """Compute `Layer.average` likewise; the default of it by the form of `Layer.mjp`."""
        form = self.forms.find(self.forms.average, layer, "mjp", "average")
        if form is not None:
            return form(layer, saved, curvature, batch, shape, self)
        if function_of(layer, "average") is not Layer.average:
            return layer.average(saved, curvature, batch, shape)
        n = 1 if layer.constant_jacobian else batch
        blocks = congruence(lambda mat: self.mjp(layer, saved, mat), curvature, n, shape)
        return blocks[:, 0] if n == 1 else blocks.sum(1) / n

    def jacobians(self, layer: Layer, saved: Any) -> dict[str, ParameterJacobian]:
        """Compute `Layer.parameter_jacobians` likewise."""
        form = self.forms.find(self.forms.jacobians, layer, "parameter_jacobians")
        return layer.parameter_jacobians(saved) if form is None else form(layer, saved, self)

    def reduce(self, jacobian: ParameterJacobian, reduction: Reduction, *arriving: Any) -> Any:
        """Compute a reduction of a Jacobian: by its form, else by the Jacobian's method, else by the definition."""
        if not has_method(reduction):
            return reduction.define(jacobian, *arriving)
        form = self.forms.find(self.forms.reduce, jacobian, "per_sample", reduction.name)
        value = getattr(jacobian, reduction.name)(*arriving) if form is None else form(jacobian, *arriving, self)
        if reduction == SUM:
            self.total = (jacobian, arriving[0], value)
        return value


def has_method(reduction: Reduction) -> bool:
    """Whether `ParameterJacobian` has a method for a reduction: a user's own may bear any name."""
    return reduction.formula is None or REDUCTIONS.get(reduction.name) == reduction
