"""Registry of fast forms: each is registered under the function of a layer or Jacobian that it replaces.

A form is looked up by that very function. An object with another one (a subclass that overrides the method, an
attribute of that name, a wrapper) has no form, and is computed the plain way. With an empty registry everything is
computed the plain way; results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gbackprop.array import Array
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian, Reduction, congruence
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.views import Viewed
from gbackprop.calculus.walk import last_taken
from gbackprop.engine.memory import Allocator

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
    add_to : mapping
        For the pair `Layer.mjp`, `back` of layers that copy: ``form(layer, saved, mat, place)``, which adds to `place`.
    pure : set
        Functions `Layer.mjp` that store no reference to their arguments or results.
    average : mapping
        For the pair `Layer.mjp`, `Layer.average`: ``form(layer, saved, curvature, shape, context)``.
    jacobians : mapping
        For `Layer.parameter_jacobians`: ``form(layer, saved, context) -> dict``.
    jacobians_at_input : mapping
        For the pair `Layer.parameter_jacobians`, `Layer.mjp`: ``form(layer, saved) -> dict``, Jacobians of columns at
        the layer's input instead of its output.
    gradients : mapping
        For the same: ``form(layer, saved, mat, context) -> dict``, Σᵥₙ Jᵀ g of each parameter, to every bit as the
        reductions "sum" give it. It is used where only the gradient is asked for.
    reduce : mapping
        For the pair `ParameterJacobian.per_sample`, reduction: ``form(jacobian, *arriving, context)``. The reduction
        is the method that computes it, or the `Reduction` where there is none.
    write_rows : mapping
        For the same pair, for "batch": ``form(jacobian, mat, sign, rows, context)``, which writes the result into its
        final array.
    routes : mapping
        For the triple `Layer.forward`, `Layer.forward_training`, `Layer.mjp`: ``form(layer, saved, above, context)``,
        see `forms.routed`.
    beginnings : set
        Those of them that begin a route where `above` is None.
    routed : mapping
        For the triple `Layer.forward`, `Layer.mjp`, `Layer.parameter_jacobians`: a `forms.routed.Routed`.
    helpers : mapping
        For each replaced function, (name, function) of the methods that it calls: a form is taken only if these are
        the owner's, too.
    """

    forward: Table = field(default_factory=dict)
    carry: Table = field(default_factory=dict)
    in_place: Table = field(default_factory=dict)
    add_to: Table = field(default_factory=dict)
    pure: frozenset[Function | None] = frozenset()
    average: Table = field(default_factory=dict)
    jacobians: Table = field(default_factory=dict)
    jacobians_at_input: Table = field(default_factory=dict)
    gradients: Table = field(default_factory=dict)
    reduce: Table = field(default_factory=dict)
    write_rows: Table = field(default_factory=dict)
    routes: Table = field(default_factory=dict)
    beginnings: frozenset[Function | None] = frozenset()
    routed: Table = field(default_factory=dict)
    helpers: Table = field(default_factory=dict)

    def find(self, table: Table, owner: Any, *names: str, reduction: Reduction | None = None) -> Any:
        """Return the form in a table for an owner's methods, and a reduction that is none of them, or None."""
        functions = tuple([function_of(owner, name) for name in names])
        form = table.get((*functions, reduction) if reduction else functions if len(names) > 1 else functions[0])
        if form is not None:
            for function in functions:
                for name, helper in self.helpers.get(function, ()):
                    if function_of(owner, name) is not helper:
                        return None
        return form


SUM = REDUCTIONS["sum"]

ROUTED_METHODS = ("forward", "forward_training", "mjp")
"""Methods whose functions a route depends on."""

PLAIN = Forms()
"""An empty registry: everything is computed the plain way."""


@dataclass(frozen=True, slots=True)
class LayerForms:
    """The forms of one layer, each of them or None: found once, used in every block of every call.

    Attributes
    ----------
    layer : Layer
    forward, carry, in_place, add_to, jacobians, jacobians_at_input, gradients, routes, routed : callable, Routed, None
        As in `Forms`.
    begins : bool
        Whether `routes` begins a route.
    pure : bool
        Whether `Layer.mjp` stores no reference to its argument or its result.
    """

    layer: Layer
    forward: Function | None
    carry: Function | None
    in_place: Function | None
    add_to: Function | None
    jacobians: Function | None
    jacobians_at_input: Function | None
    gradients: Function | None
    routes: Function | None
    routed: Any
    begins: bool
    pure: bool

    @staticmethod
    def of(layer: Layer, forms: Forms) -> LayerForms:
        """Find the forms of a layer."""
        find = forms.find
        add_to, routes = find(forms.add_to, layer, "mjp", "back"), find(forms.routes, layer, *ROUTED_METHODS)
        return LayerForms(
            layer,
            find(forms.forward, layer, "forward"),
            find(forms.carry, layer, "mjp"),
            find(forms.in_place, layer, "mjp"),
            add_to,
            find(forms.jacobians, layer, "parameter_jacobians"),
            find(forms.jacobians_at_input, layer, "parameter_jacobians", "mjp"),
            find(forms.gradients, layer, "parameter_jacobians"),
            routes,
            find(forms.routed, layer, "forward", "mjp", "parameter_jacobians"),
            routes in forms.beginnings,
            add_to is not None or find(dict.fromkeys(forms.pure, True), layer, "mjp") is True,
        )


class NetworkForms:
    """The forms that were found for the layers of a network, and for the reductions of their Jacobians.

    It is valid while the methods of these layers and of their classes stay the same.

    Parameters
    ----------
    forms : Forms
    leaves : sequence of Leaf
        The layers of a sweep: `at` has the forms of each by its position, `last_taken` those of the layers whose
        output no later layer takes.
    """

    def __init__(self, forms: Forms, leaves: Sequence[Leaf] = ()) -> None:
        self.forms = forms
        self.at = [LayerForms.of(leaf.layer, forms) for leaf in leaves]
        self.last_taken = last_taken(leaves)
        self.layers: dict[int, LayerForms] = {}  # by identity, which stays taken while the layer is stored here
        self.reductions: dict[tuple[Any, ...], tuple[Reduction, Function | None]] = {}

    def of(self, layer: Layer) -> LayerForms:
        """Return the forms of a layer."""
        found = self.layers.get(id(layer))
        if found is None:
            found = self.layers[id(layer)] = LayerForms.of(layer, self.forms)
        return found

    def reduction(self, jacobian: ParameterJacobian, reduction: Reduction, table: str = "reduce") -> Function | None:
        """Return the form of a reduction of a Jacobian in `Forms.reduce`, or in `Forms.write_rows`."""
        key = (type(jacobian), type(jacobian).per_sample, id(reduction), table, *jacobian.__dict__)
        found = self.reductions.get(key)
        if found is None:
            forms, find = getattr(self.forms, table), self.forms.find
            if has_method(reduction):
                form = find(forms, jacobian, "per_sample", reduction.name)
            else:
                form = find(forms, jacobian, "per_sample", reduction=reduction)
            found = (reduction, form)
            if _is_plain(jacobian):
                self.reductions[key] = found
        return found[1]


class Context:
    """Context of one sweep over one block of samples: what forms need in addition to their arguments.

    Attributes
    ----------
    forms : Forms
    memory : Allocator
    known : NetworkForms
        The forms that were found before.
    sums : list of (Bias, columns, sums)
        Sums over positions of the columns at the current layer, cached because every reduction needs them.
    total : (ParameterJacobian, columns, sum)
        The latest reduction "sum", cached because the moments start from the mean.
    curvature : (Bias, columns, B)
        The latest B of a bias, cached because it is that of the weight, too; columns have one sign.
    squares : (Bias, columns, sign, squares)
        The latest squares of a bias, summed over columns, cached because the weight's are computed from them, too.
    swapped : (layer, columns, Outer)
        The latest Jacobian of a convolution with its sides swapped, for the columns at a transposed convolution, cached
        because its windows serve all statistics, and the columns below. All but `total` are cleared at the next layer.
    """

    def __init__(self, forms: Forms, memory: Allocator, known: NetworkForms | None = None) -> None:
        self.forms, self.memory, self.known = forms, memory, known or NetworkForms(forms)
        self.sums: list[tuple[Any, Array, Array]] = []
        self.total: tuple[Any, Any, Any] = (None, None, None)
        self.curvature: tuple[Any, Any, Any] = (None, None, None)
        self.squares: tuple[Any, Any, Any, Any] = (None, None, None, None)
        self.swapped: tuple[Any, Any, Any] = (None, None, None)

    def forward(self, layer: Layer, *inputs: Array) -> tuple[Array, Any]:
        """Compute `Layer.forward`, by its fast form if there is one."""
        form = self.known.of(layer).forward
        return layer.forward(*inputs) if form is None else form(layer, *inputs, self)

    def mjp(self, layer: Layer, saved: Any, mat: Array) -> Array:
        """Compute `Layer.mjp` likewise."""
        form = self.known.of(layer).carry
        return layer.mjp(saved, mat) if form is None else form(layer, saved, mat, self)

    def average(self, layer: Layer, saved: Any, curvature: Array, batch: int, shape: tuple[int, ...]) -> Array:
        """Compute `Layer.average` likewise; the default of it by the form of `Layer.mjp`."""
        form = self.forms.find(self.forms.average, layer, "mjp", "average")
        if form is not None:
            return form(layer, saved, curvature, shape, self)
        if function_of(layer, "average") is not Layer.average:
            return layer.average(saved, curvature, batch, shape)
        n = 1 if layer.constant_jacobian else batch
        blocks = congruence(lambda mat: self.mjp(layer, saved, mat), curvature, n, shape)
        return blocks[:, 0] if n == 1 else blocks.sum(1) / n

    def jacobians(self, layer: Layer, saved: Any) -> dict[str, ParameterJacobian]:
        """Compute `Layer.parameter_jacobians` likewise."""
        form = self.known.of(layer).jacobians
        return layer.parameter_jacobians(saved) if form is None else form(layer, saved, self)

    def reduce(self, jacobian: ParameterJacobian, reduction: Reduction, *arriving: Any) -> Any:
        """Compute a reduction of a Jacobian: by its form, else by the Jacobian's method, else by the definition."""
        if isinstance(reduction, Viewed):
            jacobian, reduction = reduction.view(jacobian), REDUCTIONS[reduction.name]
        form = self.known.reduction(jacobian, reduction)
        if form is not None:
            value = form(jacobian, *arriving, self)
        elif has_method(reduction) and reduction.formula is not None:
            value = getattr(jacobian, reduction.name)(*arriving)
        else:
            return reduction.define(jacobian, *arriving)
        if reduction is SUM:
            self.total = (jacobian, arriving[0], value)
        return value


def has_method(reduction: Reduction) -> bool:
    """Return whether `ParameterJacobian` has a method for a reduction: a user's own may bear any name."""
    return reduction.formula is None or REDUCTIONS.get(reduction.name) is reduction


def _is_plain(jacobian: ParameterJacobian) -> bool:
    """Return whether a Jacobian is one of this package, with the methods of its class."""
    own = [getattr(type(jacobian), name, None) for name in vars(jacobian)]
    return type(jacobian).__module__.startswith("gbackprop.") and not any(map(callable, own))
