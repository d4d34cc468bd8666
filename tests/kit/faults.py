"""What a planted fault is, and how the tables of faults write them down."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import definitions
import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.engine.forms import FORMS
from gbackprop.testing import Report, check_layer, check_loss, check_network
from gbackprop.testing.audit import graph_subjects as graphs
from gbackprop.testing.strategies import outputs, targets

Check = Callable[[], Report]
Wrong = Callable[[Any], Any]


@dataclass(frozen=True)
class Fault:
    """One wrong line.

    Attributes
    ----------
    owner : class or module
    attribute : str
        What is replaced.
    name : str
        What is wrong.
    wrong : callable
        Makes the wrong attribute from the sound one.
    check : callable
        The check that should catch it; it must pass without the fault.
    method : str
        What the first failing row should name.
    """

    owner: Any
    attribute: str
    name: str
    wrong: Wrong
    check: Check
    method: str

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.attribute}: {self.name}"


def plant(patch: Any, fault: Fault) -> None:
    """Put a fault in place, in the registry of fast forms too if it is one."""
    sound = getattr(fault.owner, fault.attribute)
    wrong = fault.wrong(sound)
    patch.setattr(fault.owner, fault.attribute, wrong)
    for kind, row in FORMS.items():
        names = [name for name, form in vars(row).items() if form is sound]
        reduce = {reduction: form for reduction, form in getattr(row, "reduce", {}).items() if form is sound}
        if names:
            patch.setitem(FORMS, kind, replace(row, **dict.fromkeys(names, wrong)))
        for reduction in reduce:
            patch.setitem(row.reduce, reduction, wrong)


# --------------------------------------------------------------------------------------------------------- wrong lines


def after(change: Callable[..., Any]) -> Wrong:
    """The sound result, changed."""
    return lambda sound: lambda *given, **named: change(sound(*given, **named))


def before(change: Callable[..., tuple[Any, ...]]) -> Wrong:
    """The sound function of changed arguments."""
    return lambda sound: lambda *given, **named: sound(*change(*given), **named)


def instead(value: Any) -> Wrong:
    """Another value, or another function, altogether."""
    return lambda sound: value


def times(factor: float) -> Wrong:
    """A wrong factor."""
    return after(lambda result: result * factor)


# -------------------------------------------------------------------------------------------------------------- checks


def on_layer(make: Callable[[], layers.Layer], shape: tuple[int, ...], reference: Any = None) -> Check:
    """`check_layer` of a layer made afresh, with a reference from the plain definitions."""

    def check() -> Report:
        layer = make()
        layer.dtype = "float64"
        layer.initialize(np.random.default_rng(0))
        x = np.random.default_rng(1).standard_normal((3, *shape))
        plain = None if reference is None else lambda x: reference(x, **layer.parameters)
        return check_layer(layer, x, reference=plain)

    return check


def on_loss(kind: type[losses.Loss], shape: tuple[int, ...], reduction: str = "mean", **options: Any) -> Check:
    """`check_loss` of a loss made afresh."""

    def check() -> Report:
        loss = kind(reduction, **options)
        output = outputs(loss, (3, *shape), 0)
        return check_loss(loss, output, targets(loss, output.shape, 1), reference=definitions.of_loss(loss))

    return check


def on_network(kind: type[losses.Loss] = losses.MSELoss, reduction: str = "mean") -> Check:
    """`check_network` of a small network with curvature in two places."""

    def check() -> Report:
        network = gb.Sequential(
            layers.Linear(3, 2),
            layers.Tanh(),
            gb.Sequential(layers.Linear(2, 3), layers.Sigmoid()),
            layers.Linear(3, 2),
            rng=0,
            dtype="float64",
        )
        loss = kind(reduction)
        return check_network(network, loss, np.random.default_rng(1).standard_normal((5, 3)), targets(loss, (5, 2), 2))

    return check


def on_join(layer: layers.Layer, shapes: list[tuple[int, ...]], reference: Callable[..., Any]) -> Check:
    """`check_layer` of a layer of several inputs, with the function in plain terms."""

    def plain(x: np.ndarray) -> np.ndarray:
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        parts = zip(np.split(x, ends, axis=1), shapes, strict=True)
        return reference(*[part.reshape(-1, *shape) for part, shape in parts])

    def check() -> Report:
        rng = np.random.default_rng(1)
        return check_layer(layer, tuple(rng.standard_normal((3, *shape)) for shape in shapes), reference=plain)

    return check


def on_graph(make: Callable[[], list[layers.Layer]] | None = None) -> Check:
    """`check_network` of layers made afresh; by default with every kind of branch and parameters with several uses."""

    def check() -> Report:
        rng = np.random.default_rng(1)
        if make is None:
            network, x = graphs.network(np.random.default_rng(0)), rng.standard_normal((3, 2, 2))
        else:
            network, x = gb.Sequential(*make(), rng=0, dtype="float64"), rng.standard_normal((3, 2))
        return check_network(network, losses.CrossEntropyLoss(), x, np.array([0, 1, 1]))

    return check
