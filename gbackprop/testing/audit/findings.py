"""The findings of an audit of one subject: the rows of its check, and what is shown beside them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gbackprop.calculus.layer import INPUT, Layer, Leaf, leaves_of
from gbackprop.calculus.walk import upwards
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.quantities import Quantity
from gbackprop.testing import (
    Certificate,
    Report,
    Row,
    check_layer,
    check_loss,
    check_network,
    check_operator,
    check_optimizer,
    check_quantity,
    check_symmetries,
)
from gbackprop.testing.audit.picture import Picture, layer_pictures, loss_pictures
from gbackprop.testing.audit.where import Whereabouts, place
from gbackprop.testing.flat import Flat, side_by_side
from gbackprop.testing.optimizers import OptimizerTrial
from gbackprop.testing.points import smooth_point
from gbackprop.testing.probe import Probe, twin_of
from gbackprop.testing.report import FAILED, OK

SAMPLES = 3
"""The number of samples of a batch that pictures look at, as the checks do."""

Reference = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Finding:
    """A subject and what its audit found."""

    kind: str  # "layer", "loss", "network", "quantity", "optimizer" or "operator"
    report: Report
    about: str = ""  # what the subject says of itself, in a line
    formulas: Mapping[str, str] = field(default_factory=dict)  # what it says that it computes
    pictures: tuple[Picture, ...] = ()
    unpictured: str = ""  # why there is no picture, or not every one
    places: Mapping[str, Whereabouts] = field(default_factory=dict)  # where the methods that fail are written

    @property
    def title(self) -> str:
        """The subject's name."""
        return self.report.subject


@dataclass(frozen=True)
class Auditor:
    """Makes findings: the same for the same seed, and with pictures, which take time, if these are asked for."""

    seed: int = 0
    pictures: bool = False

    def rng(self, *key: int) -> np.random.Generator:
        """Return a generator of random numbers for one purpose."""
        return np.random.default_rng([self.seed, *key])

    def layer(self, layer: Layer, x: np.ndarray, reference: Reference | None = None, title: str = "") -> Finding:
        """Audit a layer at a batch, shape (N, *in)."""
        layer, title = self._twin(layer), title or named(layer)
        x, pictures, problem = self._layer_pictures(layer, x)
        report = _checked(title, check_layer, layer, x, self.rng(3), reference)
        own = layer.layer if isinstance(layer, Flat) else layer
        return _finding("layer", own, report, pictures, problem, _jacobians(layer, x))

    def loss(
        self, loss: Loss, output: np.ndarray, target: np.ndarray, reference: Any = None, title: str = ""
    ) -> Finding:
        """Audit a loss at outputs, shape (N, *out), and targets."""
        pictures, problem = _made(loss_pictures(loss, output, target, self.rng(2))) if self.pictures else ([], "")
        report = _checked(title or named(loss), check_loss, loss, output, target, self.rng(3), reference)
        return _finding("loss", loss, report, pictures, problem)

    def quantity(self, quantity: Quantity, network: Layer, loss: Loss, x: np.ndarray, y: np.ndarray) -> Finding:
        """Audit a quantity on a network."""
        title = f"{named(quantity)} of {named(network)}"
        report = _checked(title, check_quantity, quantity, network, loss, x, y, self.rng(3))
        return _finding("quantity", quantity, report)

    def optimizer(self, make: Any) -> Finding:
        """Audit an optimizer, or a class or function of a network that makes one."""
        try:
            subject: Any = OptimizerTrial(make, self.seed).start()
        except Exception:  # the check raises the same
            subject = make
        return _finding("optimizer", subject, _checked(named(subject), check_optimizer, make, None, self.rng(3)))

    def operator(self, operator: Any) -> Finding:
        """Audit a linear operator by the laws of a matrix."""
        return _finding("operator", operator, _checked(named(operator), check_operator, operator, None, self.rng(3)))

    def certificate(self, subject: Any, certificate: Certificate) -> Finding:
        """Return the proofs of a certificate as a finding, its derivation beside the formulas."""
        found = _finding("loss" if isinstance(subject, Loss) else "layer", subject, certificate.report())
        steps = [step.partition(": ")[::2] for step in certificate.derivation]
        derived = {f"derived, {where}, {k}": step for k, (where, step) in enumerate(steps, 1)}
        return replace(found, formulas={**found.formulas, **derived})

    def whole(self, network: Layer, loss: Loss, x: np.ndarray, y: np.ndarray, title: str = "") -> Finding:
        """Audit a network with all that is in it, as one subject."""
        title = title or f"{named(network)} with {named(loss)}"
        return _finding("network", network, _checked(title, check_network, network, loss, x, y, self.rng(3)))

    def symmetries(self, network: Layer, loss: Loss, x: np.ndarray, y: np.ndarray, device: str) -> Finding:
        """Audit a network by symmetries, as it is given."""
        title = f"symmetries of {named(network)} with {named(loss)}"
        return _finding("network", network, _checked(title, check_symmetries, network, loss, x, y, self.rng(3), device))

    def network(self, network: Sequential, loss: Loss, x: np.ndarray, y: np.ndarray) -> list[Finding]:
        """Audit a network: a finding for each layer, where it stands, and one for what they do together."""
        twin = self._twin(network)
        whole = self.whole(twin, loss, x, y, f"the network with {named(loss)}")
        found, rest, at = [], whole.report.rows, {INPUT: x}
        for leaf, inputs in upwards(leaves_of(twin, x.shape[1:]), at):
            prefix = f"{leaf.name}."
            own = [row for row in rest if row.method.startswith(prefix)]
            rest = [row for row in rest if not row.method.startswith(prefix)]
            found.append(self._leaf(leaf, inputs, own))
            at[leaf.position] = _after(leaf, inputs, self.rng(4))
        report = Report(whole.title, rest)
        return [*found, replace(whole, report=report, places=_places(loss, report))]

    def until_one_raises(self, network: Sequential, x: np.ndarray) -> Iterator[Finding]:
        """Audit one layer after the other, as far as outputs go."""
        for name, layer in self._twin(network).named_layers():
            yield self.layer(layer, x, title=f"layer {name}, {named(layer)}")
            try:
                x = layer.forward(x.copy())[0]
            except Exception:  # its rows say so
                return

    def _leaf(self, leaf: Leaf, inputs: list[np.ndarray], own: list[Row]) -> Finding:
        """Return a layer's finding from a network's rows; it is audited alone if the forward pass did not reach it."""
        title, layer, x = f"layer {leaf.name}, {named(leaf.layer)}", leaf.layer, inputs[0]
        if len(inputs) > 1:
            layer, x = Flat(layer, leaf.input_shapes), side_by_side(inputs)
        if not own:
            return self.layer(layer, x, title=title)
        report = Report(title, [replace(row, method=row.method.removeprefix(f"{leaf.name}.")) for row in own])
        _, pictures, problem = self._layer_pictures(layer, x)
        return _finding("layer", leaf.layer, report, pictures, problem, _jacobians(layer, x))

    def _twin(self, layer: Layer) -> Any:
        """Return a copy with its parameters drawn, so that check and pictures look at the same; or itself."""
        try:
            return twin_of(layer, rng=self.rng(0))
        except Exception:  # the check will find the same, and say so in a row
            return layer

    def _layer_pictures(self, layer: Layer, x: np.ndarray) -> tuple[np.ndarray, list[Picture], str]:
        """Return the batch, moved off kinks so that a check finds nothing to move; pictures; why there are no more."""
        if not self.pictures:
            return x, [], ""
        try:
            layer = copy.deepcopy(layer)  # what one call leaves behind is for the check to find
            bare = Probe(layer, np.array(x[:SAMPLES], dtype=np.float64))
            point = smooth_point(bare, self.rng(1))
            probe = Probe.at(layer, point.x, None, False, self.rng(2))
        except Exception as error:
            return x, [], _raised(error)
        return point.x, *_made(layer_pictures(probe, point, self.rng(3)))


def named(subject: Any) -> str:
    """Return the subject's repr in one line, or the name of its class if repr raises."""
    try:
        return " ".join(repr(subject).split())
    except Exception:
        return type(subject).__name__


def _checked(title: str, check: Callable[..., Report], *arguments: Any) -> Report:
    """Return the report of a check, under a title; with a failed row if the check raises, or judges nothing."""
    try:
        rows, problem = check(*arguments).rows, "no claim could be judged"
    except Exception as error:
        rows, problem = [], _raised(error)
    if not any(row.verdict in (OK, FAILED) for row in rows):
        rows.append(Row("can be checked", "check", verdict=FAILED, problem=problem))
    return Report(title, rows)


def _finding(
    kind: str, subject: Any, report: Report, pictures: Iterable[Picture] = (), problem: str = "",
    jacobians: Mapping[str, Any] | None = None,
) -> Finding:  # fmt: skip
    formulas = getattr(subject, "formulas", {})
    formulas = formulas if isinstance(formulas, Mapping) else {}
    places = _places(subject, report, jacobians)
    return Finding(kind, report, _about(subject), formulas, tuple(pictures), problem, places)


def _places(subject: Any, report: Report, jacobians: Mapping[str, Any] | None = None) -> dict[str, Whereabouts]:
    """Return the place in the source of each method that fails, of those that the subject's own code defines."""
    methods = dict.fromkeys(row.method for row in report.failures)
    found = {method: place(subject, method, jacobians) for method in methods}
    return {method: where for method, where in found.items() if where.sources}


def _jacobians(layer: Layer, x: np.ndarray) -> Mapping[str, Any]:
    """Return the Jacobians in a layer's parameters, if it gives any."""
    try:
        layer = copy.deepcopy(layer)
        return dict(layer.parameter_jacobians(layer.forward(np.array(x[:1], dtype=np.float64))[1]))
    except Exception:  # a row says what it raises
        return {}


def _about(subject: Any) -> str:
    """Return the first sentence or formula of a class's documentation, without what it inherits."""
    text = inspect.cleandoc(type(subject).__doc__ or "")
    return " ".join(text.partition("\n\n")[0].replace("``", "").split())


def _after(leaf: Leaf, inputs: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Compute the input of the next layer; random numbers of the right shape if the layer fails."""
    try:
        y = leaf.layer.forward(*[x.copy() for x in inputs])[0]
        if y.shape[1:] == leaf.output_shape:
            return y
    except Exception:  # the layer's own rows say so
        pass
    return rng.standard_normal((len(inputs[0]), *leaf.output_shape))


def _raised(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _made(pictures: Iterable[Picture]) -> tuple[list[Picture], str]:
    """Return as many pictures as can be made, and the error of the next."""
    made: list[Picture] = []
    try:
        for picture in pictures:
            made.append(picture)
    except Exception as error:  # whatever a subject raises is a finding of the check
        return made, _raised(error)
    return made, ""
