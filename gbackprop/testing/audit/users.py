"""Audits of what a user names: a layer, a loss, a quantity, an optimizer, a linear operator, or a whole network."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from math import prod
from traceback import walk_tb

import numpy as np

from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.state.classes import is_of_library
from gbackprop.engine.backward import backward
from gbackprop.losses import CrossEntropyLoss, MSELoss
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.quantities import Quantity
from gbackprop.testing.audit.findings import Auditor, Finding
from gbackprop.testing.audit.target import Subject, TargetError, parse_shapes, resolve_loss
from gbackprop.testing.cases import NETWORKS
from gbackprop.testing.flat import Flat
from gbackprop.testing.loss_scale import with_reduction
from gbackprop.testing.operators import is_operator
from gbackprop.testing.points import inside
from gbackprop.testing.probe import is_container
from gbackprop.testing.symmetries import is_trainable


def audited(asked: Namespace, subject: Subject, auditor: Auditor) -> tuple[Iterable[Finding], bool]:
    """Return findings on a subject by the options of the command, and whether its rows are few enough to be shown."""
    if asked.symmetries and not isinstance(subject, Layer):
        raise TargetError(f"{asked.target}: --symmetries takes a network or layer, got {subject!r}")
    if isinstance(subject, Quantity):
        return _quantity(subject, auditor), True
    if is_operator(subject):
        return [auditor.operator(subject)], True
    if not isinstance(subject, Layer | Loss):
        return [auditor.optimizer(subject)], True
    shape, *others = parse_shapes(asked.input, asked.target)
    side_by_side = (sum(map(prod, [shape, *others])),)
    if (several := getattr(subject, "several", None)) is not None:  # it takes them side by side
        if any(part.kind != "floats" for part in several.parts.values()):
            problem = "audit draws floats, and an input is of integers: give check_network yours"
            raise TargetError(f"{asked.target}: {problem}")
        shape = side_by_side
    elif others and (isinstance(subject, Loss) or is_container(subject)):
        raise TargetError(f"{asked.target} takes one input, got --input {asked.input}")
    elif others and isinstance(subject, Layer):
        subject, shape = Flat(subject, [shape, *others]), side_by_side
    if isinstance(subject, Loss):
        return _loss(asked, subject, shape, auditor), True
    out = _output_shape(asked, subject, shape)
    x = _inputs(subject, (asked.batch, *shape), auditor.rng(1))
    alone = not is_container(subject) and subject.takes != "integers"  # of these a network's quantities are looked at
    if alone and asked.loss is None and not asked.symmetries:
        return [auditor.layer(subject, x)], True
    network = subject if isinstance(subject, Sequential) else Sequential(subject)
    if asked.symmetries and not is_trainable(network):
        raise TargetError(f"{asked.target}: --symmetries takes a network with a parameter that is not frozen")
    if out is None:
        return auditor.until_one_raises(network, x), False
    loss = _loss_for(asked, out)
    y = _targets(loss, inside(loss, auditor.rng(2).standard_normal((asked.batch, *out))), auditor.rng(3))
    if asked.symmetries:
        return [auditor.symmetries(network, loss, x, y, asked.device)], False
    return auditor.network(network, loss, x, y), False


def _quantity(quantity: Quantity, auditor: Auditor) -> Iterator[Finding]:
    """Audit a quantity on the networks that ship and do not refuse it, or on all of them if each does."""
    posed = [(row.network(auditor.rng(4)), row.loss, *row.batch(auditor.seed)) for row in NETWORKS]
    for each in [each for each in posed if not _is_refused(quantity, *each)] or posed:
        yield auditor.quantity(quantity, *each)


def _is_refused(quantity: Quantity, network: Layer, loss: Loss, x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether a network or loss is not made for a quantity, by no line of the user's own; of a copy of it."""
    try:
        backward(network, loss, x, y, copy.deepcopy(quantity), rng=0)
    except UnsupportedError as error:
        return all(is_of_library(frame.f_globals["__name__"]) for frame, _ in walk_tb(error.__traceback__))
    except Exception:  # its rows will say so
        return False
    return False


def _output_shape(asked: Namespace, layer: Layer, shape: Shape) -> Shape | None:
    """Feature shape of the output; None if a layer raises something that may be a finding.

    A layer that says which shapes it takes, and does not take this one, was asked for the wrong thing. One that leaves
    that to its forward pass may be wrong itself.
    """
    try:
        return layer.output_shape(shape)
    except ValueError as error:
        if not _says_what_it_takes(layer, shape):
            return None
        raise TargetError(f"{asked.target} does not take --input {asked.input}: {error}") from error
    except Exception:  # its rows will say so
        return None


def _inputs(layer: Layer, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Draw a batch: of normal numbers, or of indices where a layer takes integers."""
    sizes = [getattr(part, "num_embeddings", 2) for _, part in layer.named_layers() if part.takes == "integers"]
    return rng.integers(0, min(sizes), shape) if sizes else rng.standard_normal(shape)


def _says_what_it_takes(layer: Layer, shape: Shape) -> bool:
    """Return whether the first part that refuses its input's shape has an `output_shape` of its own."""
    for _, part in layer.named_layers():
        try:
            shape = part.output_shape(shape)
        except Exception:
            return type(part).output_shape is not Layer.output_shape
    return True


def _loss(asked: Namespace, loss: Loss, shape: Shape, auditor: Auditor) -> Iterable[Finding]:
    """Return the findings on a loss with both reductions."""
    output = inside(loss, 2 * auditor.rng(1).standard_normal((asked.batch, *shape)))
    _check_takes(loss, output.shape, f"{asked.target} does not take --input {asked.input}")
    target = _targets(loss, output, auditor.rng(3))
    twins = with_reduction(loss, "mean"), with_reduction(loss, "sum")
    return (auditor.loss(twin, output, target) for twin in twins)


def _loss_for(asked: Namespace, out: Shape) -> Loss:
    """Return the loss asked for, or one that takes such outputs."""
    if asked.loss is None:
        return CrossEntropyLoss() if len(out) == 1 and out[0] > 1 else MSELoss()
    loss = resolve_loss(asked.loss)
    _check_takes(loss, (asked.batch, *out), f"--loss {asked.loss} does not take the outputs of {asked.target}")
    return loss


def _check_takes(loss: Loss, batch_shape: Shape, problem: str) -> None:
    try:
        loss.target_shape(batch_shape)
    except ValueError as error:
        raise TargetError(f"{problem}: {error}") from error
    except Exception:  # its rows will say so
        pass


def _targets(loss: Loss, output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Targets that a loss takes: drawn by itself, or the first that it does not refuse."""

    def shape() -> Shape:
        return loss.target_shape(output.shape)

    ways: list[Callable[[], np.ndarray]] = [
        lambda: rng.random(shape()),
        lambda: rng.standard_normal(shape()),
        lambda: rng.integers(0, output.shape[1], shape()),
        lambda: np.asarray(loss.draw(output, 1, rng)[0]),
    ]
    for way in ways:
        try:
            target = way()
            loss.check_target("target", target, output)
        except Exception:  # it does not take these
            continue
        return target
    return rng.random(output.shape)
