"""Registry of fast forms: one row for each class of layers, of Jacobians and of losses, which names all of its forms.

A row is valid for an object whose functions are those of the row's class. An object with another one (a subclass that
overrides a method, an attribute of that name, a wrapper, a patched class) is computed the plain way. With an empty
registry everything is computed the plain way; results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any

from gbackprop.array import Array
from gbackprop.base.checks import SHIPPED, is_shipped
from gbackprop.calculus.copies import owned
from gbackprop.calculus.jacobian import REDUCTIONS, ParameterJacobian, Reduction, congruence
from gbackprop.calculus.layer import Layer, Leaf
from gbackprop.calculus.views import Viewed
from gbackprop.calculus.walk import last_taken
from gbackprop.engine.memory import Allocator

Function = Callable[..., Any]

SUM = REDUCTIONS["sum"]

FREE_METHODS = {"describe", "output_shape", "parameter_shapes", "draw", "initialize", "place", "named_layers"}
"""Methods on which no form depends: what a layer is called, takes and begins with."""


GUARDED = FunctionType, property, cached_property


def defined(kind: type, names: Set[str]) -> dict[str, Any]:
    """Return what a class or its bases define under some names, as it stands there."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        found |= {name: base.__dict__[name] for name in names & base.__dict__.keys()}
    return found


def function_of(owner: Any, name: str) -> Function | None:
    """Return the function behind a method that is bound to its owner; None for any other callable."""
    method = getattr(owner, name, None)
    return getattr(method, "__func__", None) if getattr(method, "__self__", None) is owner else None


@dataclass(frozen=True)
class ClassForms:
    """The fast forms of a class; those that it lacks are None.

    Attributes
    ----------
    kind : type
    varying : tuple of str
        Methods that a subclass defines, and that the forms call.
    functions : dict
        All other methods of the class, by name, but for special ones and `FREE_METHODS`; properties, too.
    """

    kind: type
    varying: tuple[str, ...] = ()
    functions: Mapping[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = {name for name in dir(self.kind) if not name.startswith("__")} - {*FREE_METHODS, *self.varying}
        found = defined(self.kind, names)
        functions = {name: value for name, value in found.items() if isinstance(value, GUARDED)}
        object.__setattr__(self, "functions", functions)

    def holds(self, owner: Any) -> bool:
        """Return whether an object of this class has its functions."""
        kind = type(owner)
        if kind.__getattribute__ is not object.__getattribute__:  # it may return any other function
            return False
        if defined(kind, self.functions.keys()) != self.functions:
            return False
        own = self.functions.keys() & vars(owner)  # where cached properties are stored, too
        return not own or all(isinstance(self.functions[name], cached_property) for name in own)


@dataclass(frozen=True)
class LayerForms(ClassForms):
    """The fast forms of a class of layers; each has the arguments that stand above it."""

    # For `Layer.forward`, (layer, x, context): y, and what the plain function saves.
    forward: Function | None = None
    # For `Layer.mjp`, (layer, saved, mat, context).
    carry: Function | None = None
    # For layers of time steps, (array): whether all steps are one compiled loop for arrays of its kind.
    loops: Function | None = None
    # For `Layer.mjp`, (layer, saved, mat): overwrites a `mat` that nothing else refers to, or returns None.
    in_place: Function | None = None
    # For `Layer.mjp` of layers that copy, (layer, saved, mat, place): adds to `place`.
    add_to: Function | None = None
    # Whether `Layer.mjp` stores no reference to its argument or its result.
    pure: bool = False
    # For `Layer.average`, (layer, saved, curvature, shape, context).
    average: Function | None = None
    # For `Layer.parameter_jacobians`, (layer, saved, context).
    jacobians: Function | None = None
    # For the same, (layer, saved): Jacobians of columns at the layer's input instead of its output.
    jacobians_at_input: Function | None = None
    # For the same, (layer, saved, mat, context): Σᵥₙ Jᵀ g of each parameter, to every bit as the reductions "sum" give
    # it. It is used where only the gradient is asked for.
    gradients: Function | None = None
    # (layer, saved, above, context): the `Route` to the layer's input, given the route `above` to its output. Where
    # `above` is None no route has begun, and None is returned, but where it begins.
    routes: Function | None = None
    # Whether a route begins at the layer.
    begins: bool = False
    # For parameters below a route.
    routed: Routed | None = None
    # For `Layer.jmp`, (layer, saved, mat, context).
    jmp: Function | None = None
    # For `Layer.residual`, (layer, saved, g, *ẋ): the product of the residual, one array for each input.
    residual_product: Function | None = None
    # For `mixed_residual` of the one parameter p that is not added, (layer, saved, g, P, context): (∂²(gᵀf) / ∂x ∂p) P,
    # shape (K, N, *in).
    mixed_input: Function | None = None
    # For the same, (layer, saved, g, ẋ, context): Σₙ (∂²(gᵀf) / ∂p ∂x) ẋ, shape (K, *p).
    mixed_parameter: Function | None = None


@dataclass(frozen=True)
class Routed:
    """The forms of a layer with parameters for columns that are routed through max pooling."""

    # (layer, columns, windows, shape): whether squares are faster from routed columns with `windows` numbers for each
    # channel, for inputs of feature shape `shape`.
    is_faster: Function
    # (layer, plain, route, context): the Jacobians for routed columns [V, N, C, *W].
    jacobians: Function


class NoFormError(Exception):
    """A `push` does not apply: a Jacobian's rows are a copy of the columns, or its layer has functions of its own."""


@dataclass(frozen=True)
class JacobianForms(ClassForms):
    """The fast forms of a class of Jacobians."""

    # By reduction, (jacobian, *arriving, context).
    reduce: Mapping[Reduction, Function] = field(default_factory=dict)
    # For "batch", (jacobian, mat, sign, rows, context): writes into the final array `rows(like)`.
    write_batch: Function | None = None
    # J P, (jacobian, directions, shape): [K, *p] -> [K, *shape], for outputs of shape (N, *out).
    push: Function | None = None
    # (jacobian, directions, total): adds J P to `total` where that is, if it can; returns whether it could.
    add_push: Function | None = None
    # Σₙ Jᵀ g of each column, (jacobian, mat): [K, N, *out] -> [K, *p].
    pull: Function | None = None


@dataclass(frozen=True)
class LossForms(ClassForms):
    """The fast forms of a class of losses."""

    # For `Loss.hessian_sqrt`, (loss, output, target, mat): ∇²ℓₙ z[k, n].
    hessian_product: Function | None = None


Forms = dict[type, ClassForms]
"""The registry: rows by their class."""

PLAIN: Forms = {}
"""An empty registry: everything is computed the plain way."""

NO_LAYER, NO_JACOBIAN = LayerForms(object), JacobianForms(object)
"""Rows without forms."""


def find(forms: Forms, owner: Any) -> Any:
    """Return the row of an object's class, or of the nearest base class, that is valid for it; None without one."""
    for kind in type(owner).__mro__:
        row = forms.get(kind)
        if row is not None and row.holds(owner):
            return row
    return None


class NetworkForms:
    """The forms that were found for the layers of a network, and for their Jacobians.

    It is valid while the methods of these layers and of their classes stay the same, and the attributes of `kinds`.

    Parameters
    ----------
    forms : Forms
    leaves : sequence of Leaf
        The layers of a sweep: `at` has the forms of each by its position, `last_taken` those of the layers whose
        output no later layer takes.

    Attributes
    ----------
    kinds : dict
        The classes of the Jacobians that were met, with their attributes.
    """

    def __init__(self, forms: Forms, leaves: Sequence[Leaf] = ()) -> None:
        self.forms = forms
        self.layers: dict[int, tuple[Layer, LayerForms]] = {}  # by identity, which stays taken while it is stored here
        self.jacobians: dict[tuple[Any, ...], JacobianForms] = {}
        self.kinds: dict[type, dict[str, Any]] = {}
        self.at = [self.of(leaf.layer) for leaf in leaves]
        self.last_taken = last_taken(leaves)

    def of(self, layer: Layer) -> LayerForms:
        """Return the forms of a layer."""
        found = self.layers.get(id(layer))
        if found is None:
            found = self.layers[id(layer)] = layer, find(self.forms, layer) or NO_LAYER
        return found[1]

    def of_jacobian(self, jacobian: ParameterJacobian) -> JacobianForms:
        """Return the forms of a Jacobian: those of its class, if no attribute has the name of a method."""
        key = (type(jacobian), type(jacobian).per_sample, *jacobian.__dict__)
        found = self.jacobians.get(key)
        if found is None:
            for kind in filter(is_shipped, type(jacobian).__mro__):
                self.kinds.setdefault(kind, dict(vars(kind)))
            found = self.jacobians[key] = find(self.forms, jacobian) or NO_JACOBIAN
        return found


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
    summed : bool
        Whether nothing but sums over samples is wanted, so that columns at what has one row may be their sum.
    stored : dict or None
        What forms compute from a forward pass that has several sweeps, by the identity of what a layer saved.
    """

    def __init__(
        self, forms: Forms, memory: Allocator, known: NetworkForms | None = None, stored: dict[Any, Any] | None = None
    ) -> None:
        self.memory, self.known, self.stored = memory, known or NetworkForms(forms), stored
        self.sums: list[tuple[Any, Array, Array]] = []
        self.summed = False
        nothing: tuple[Any, Any, Any] = (None, None, None)
        self.total = self.curvature = self.swapped = nothing
        self.squares: tuple[Any, Any, Any, Any] = (None, None, None, None)

    def forward(self, layer: Layer, *inputs: Array) -> tuple[Array, Any]:
        """Compute `Layer.forward`, by its fast form if there is one."""
        form = self.known.of(layer).forward
        return layer.forward(*inputs) if form is None else form(layer, *inputs, self)

    def jmp(self, layer: Layer, saved: Any, *mats: Array) -> Array:
        """Compute `Layer.jmp` likewise."""
        form = self.known.of(layer).jmp
        return layer.jmp(saved, *mats) if form is None else form(layer, saved, *mats, self)

    def mjp(self, layer: Layer, saved: Any, mat: Array) -> Array:
        """Compute `Layer.mjp` likewise."""
        form = self.known.of(layer).carry
        return layer.mjp(saved, mat) if form is None else form(layer, saved, mat, self)

    def average(self, layer: Layer, saved: Any, curvature: Array, batch: int, shape: tuple[int, ...]) -> Array:
        """Compute `Layer.average` likewise; the default of it by the form of `Layer.mjp`."""
        form = self.known.of(layer).average
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
        form = self.known.of_jacobian(jacobian).reduce.get(reduction)
        if form is not None:
            value = form(jacobian, *arriving, self)
        elif reduction.formula is not None and REDUCTIONS.get(reduction.name) is reduction:
            value = getattr(jacobian, reduction.name)(*arriving)
            ours = jacobian.__module__.startswith(SHIPPED) and reduction.name not in vars(jacobian)
            value = value if ours else owned(value)  # another's may be stored, as in `Reduction.define`
        else:  # a user's own may bear the name of any method
            return reduction.define(jacobian, *arriving)
        if reduction is SUM:
            self.total = (jacobian, arriving[0], value)
        return value
