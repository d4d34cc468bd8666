"""What a planted fault is, and how the tables of faults write them down."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.engine.forms import FORMS
from gbackprop.testing import Report, check_layer, check_loss, check_network
from gbackprop.testing.cases import ALL_LAYERS
from gbackprop.testing.cases.loss_rows import definition_of_loss
from gbackprop.testing.cases.network_rows import BRANCHED
from gbackprop.testing.cases.rows import LayerRow
from gbackprop.testing.flat import Flat
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
    check : callable, or class of layers
        The check that should catch it; it must pass without the fault. Of a class: that of all of its rows.
    method : str
        What the first failing row should name.
    """

    owner: Any
    attribute: str
    name: str
    wrong: Wrong
    check: Any
    method: str

    def __post_init__(self) -> None:
        if isinstance(self.check, type):
            object.__setattr__(self, "check", on_rows(self.check))

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.attribute}: {self.name}"


def plant(patch: Any, fault: Fault) -> None:
    """Put a fault in place, in the registry of fast forms too if it is one."""
    sound = getattr(fault.owner, fault.attribute)
    wrong = fault.wrong(sound)
    patch.setattr(fault.owner, fault.attribute, wrong)
    for kind, row in FORMS.items():
        names = [name for name, form in vars(row).items() if form is sound and name != "kind"]
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


def on_layer(make: Callable[[], layers.Layer], shape: tuple[int, ...], definition: Any = None) -> Check:
    """`check_layer` of a layer made afresh."""
    return partial(check_rows, (LayerRow(make, shape, definition),))


def of(kind: type[layers.Layer], shape: tuple[int, ...], definition: Any, *sizes: Any, **options: Any) -> Check:
    """`check_layer` of ``kind(*sizes, **options)``, whose definition takes the same options."""
    return partial(check_rows, (LayerRow.of(definition, kind, shape, *sizes, **options),))


@cache
def on_rows(kind: type[layers.Layer]) -> Check:
    """`check_layer` of all rows that the table of cases has of a class."""
    return partial(check_rows, tuple(row for row in ALL_LAYERS if row.kind is kind))


def check_rows(rows: tuple[LayerRow, ...]) -> Report:
    """Check layers up to the first of which a claim fails; the report is on that, or on the last."""
    for row in rows:
        layer, x = row.layer(), row.x(rng=1)
        reference = row.reference(layer)
        if isinstance(layer, Flat):
            report = check_layer(layer.layer, tuple(layer.split(x, 1)), reference=reference)
        else:
            report = check_layer(layer, x, reference=reference)
        if not report.ok:
            break
    return report


def on_loss(kind: type[losses.Loss], shape: tuple[int, ...], reduction: str = "mean", **options: Any) -> Check:
    """`check_loss` of a loss made afresh."""

    def check() -> Report:
        loss = kind(reduction, **options)
        output = outputs(loss, (3, *shape), 0)
        return check_loss(loss, output, targets(loss, output.shape, 1), reference=definition_of_loss(loss))

    return check


def on_network(kind: type[losses.Loss] = losses.MSELoss, reduction: str = "mean") -> Check:
    """`check_network` of a small network with curvature in two places."""

    def check() -> Report:
        inner, loss = gb.Sequential(layers.Linear(2, 3), layers.Sigmoid()), kind(reduction)
        chain = [layers.Linear(3, 2), layers.Tanh(), inner, layers.Linear(3, 2)]
        network = gb.Sequential(*chain, rng=0, dtype="float64")
        return check_network(network, loss, np.random.default_rng(1).standard_normal((5, 3)), targets(loss, (5, 2), 2))

    return check


def on_graph(make: Callable[[], list[layers.Layer]] | None = None) -> Check:
    """`check_network` of layers made afresh; by default with every kind of branch and parameters with several uses."""

    def check() -> Report:
        rng = np.random.default_rng(1)
        if make is None:
            network, x = BRANCHED.network(), rng.standard_normal((3, 2, 2))
        else:
            network, x = gb.Sequential(*make(), rng=0, dtype="float64"), rng.standard_normal((3, 2))
        return check_network(network, losses.CrossEntropyLoss(), x, np.array([0, 1, 1]))

    return check
