"""The shipped subjects: layers in several configurations, losses with targets, networks for the quantities.

A new layer or loss gets a line here; quantities need none, nor do activations, for which a line adds what the function
itself should be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy import special

from gbackprop import layers, losses
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.losses.base import Loss
from gbackprop.network import Sequential
from gbackprop.testing.audit import graph_subjects as graphs
from gbackprop.testing.audit import norms, plain, pools_and_moves, sequences
from gbackprop.testing.audit.findings import Auditor, Finding
from gbackprop.testing.audit.network_subjects import network_cases

BATCH = 3


def shipped(auditor: Auditor) -> Iterator[Finding]:
    """Audit each layer in several configurations, each loss, and each quantity on several networks."""
    for i, layer in enumerate(layer_cases()):
        layer.layer.initialize(auditor.rng(0, i))
        x = auditor.rng(1, i).standard_normal((BATCH, *layer.shape))
        yield auditor.layer(layer.layer, x, layer.reference(), f"{layer.layer!r} of {_size(layer.shape)}")
    for loss in loss_cases(auditor.rng(2)):
        yield auditor.loss(loss.loss, loss.output, loss.target, f"{loss.loss!r} of {_size(loss.output.shape[1:])}")
    for network in network_cases(auditor.rng(3)):
        yield auditor.whole(network.network, network.loss, network.x, network.y)


def _size(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


# ------------------------------------------------------------------------------------------------------------- layers


@dataclass(frozen=True)
class LayerCase:
    """A layer, the feature shape to look at, and what it should compute.

    Attributes
    ----------
    layer : Layer
    shape : tuple of int
    plain : callable, optional
        ``(x, **parameters) -> y``, sharing no code with the layer.
    """

    layer: Layer
    shape: Shape
    plain: Callable[..., np.ndarray] | None = None

    def reference(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """`plain` with the layer's parameters, which must have been drawn."""
        if self.plain is None:
            return None
        return partial(self.plain, **self.layer.parameters)


def layer_cases() -> list[LayerCase]:
    """Return every layer that ships, with parameters not drawn yet."""
    cases = [*_linears(), *_elementwise(), *_slopes_and_softmax(), *_convolutions(), *_pools(), *_moves()]
    elsewhere = (*pools_and_moves.cases(), *graphs.joins(), *graphs.branches(), *norms.cases())
    elsewhere += (*sequences.parts(), *sequences.whole())
    cases += [*_containers(), *(LayerCase(*case) for case in elsewhere)]
    listed = {type(case.layer) for case in cases}
    exported = [getattr(layers, name) for name in layers.__all__]
    activations = [kind for kind in exported if issubclass(kind, layers.Elementwise) and kind is not layers.Elementwise]
    return cases + [LayerCase(kind(), (6,)) for kind in activations if kind not in listed]


def _linears() -> Iterator[LayerCase]:
    yield LayerCase(layers.Linear(5, 3), (5,), plain.linear)
    yield LayerCase(layers.Linear(4, 1, bias=False), (4,), plain.linear)
    yield LayerCase(layers.Linear(3, 2), (4, 3), plain.linear)
    yield LayerCase(layers.Linear(2, 3, bias=False), (2, 3, 2), plain.linear)


def _elementwise() -> Iterator[LayerCase]:
    rules: list[tuple[Layer, Callable[..., np.ndarray]]] = [
        (layers.ReLU(), lambda x: np.where(x > 0, x, 0)),
        (layers.Sigmoid(), special.expit),
        (layers.Tanh(), lambda x: np.sinh(x) / np.cosh(x)),
        (layers.LeakyReLU(0.2), lambda x: np.maximum(x, 0) + 0.2 * np.minimum(x, 0)),
        (layers.Threshold(-0.3, 2.0), lambda x: np.where(x > -0.3, x, 2)),
        (layers.Hardtanh(-0.5, 1.5), lambda x: np.minimum(np.maximum(x, -0.5), 1.5)),
        (layers.ReLU6(), lambda x: np.minimum(np.maximum(x, 0), 6)),
        (layers.Hardsigmoid(), lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6),
        (layers.Hardswish(), lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6),
        (layers.Hardshrink(0.3), lambda x: np.where(np.abs(x) > 0.3, x, 0)),
        (layers.Softshrink(0.3), lambda x: x - np.minimum(np.maximum(x, -0.3), 0.3)),
        (layers.ELU(0.7), lambda x: np.maximum(x, 0) + 0.7 * np.expm1(np.minimum(x, 0))),
        (layers.SELU(), lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
        (layers.CELU(2.5), lambda x: np.maximum(x, 0) + 2.5 * np.expm1(np.minimum(x, 0) / 2.5)),
        (layers.Softplus(1.3), lambda x: np.logaddexp(0, 1.3 * x) / 1.3),
        (layers.LogSigmoid(), special.log_expit),
        (layers.Softsign(), lambda x: x / (1 + np.abs(x))),
        (layers.Tanhshrink(), lambda x: x - np.sinh(x) / np.cosh(x)),
        (layers.SiLU(), lambda x: x * special.expit(x)),
        (layers.Mish(), lambda x: x * np.tanh(np.logaddexp(0, x))),
        (layers.GELU(), lambda x: x * special.ndtr(x)),
        (layers.GELU("tanh"), lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))),
    ]
    for layer, rule in rules:
        yield LayerCase(layer, (6,), rule)
        yield LayerCase(layer, (2, 3, 2), rule)


def _slopes_and_softmax() -> Iterator[LayerCase]:
    yield LayerCase(layers.PReLU(), (2, 3), plain.prelu)
    yield LayerCase(layers.PReLU(3), (3, 2, 2), plain.prelu)
    for dim, shape in ((1, (5,)), (-1, (2, 3)), (2, (2, 3, 2))):
        axis = dim % (len(shape) + 1)
        yield LayerCase(layers.Softmax(dim), shape, partial(plain.softmax, axis=axis))
        yield LayerCase(layers.LogSoftmax(dim), shape, partial(special.log_softmax, axis=axis))


def _convolutions() -> Iterator[LayerCase]:
    conv, rule = layers.Conv2d, plain.convolution
    yield LayerCase(conv(2, 3, 3), (2, 5, 4), partial(rule, out=(3, 2)))
    yield LayerCase(conv(3, 2, 1, bias=False), (3, 2, 3), partial(rule, out=(2, 3)))
    yield LayerCase(conv(2, 3, 3, padding=1), (2, 4, 4), partial(rule, out=(4, 4), before=(1, 1)))
    yield LayerCase(
        conv(2, 2, (2, 3), stride=(2, 1), padding=(1, 0)),
        (2, 5, 4),
        partial(rule, out=(3, 2), stride=(2, 1), before=(1, 0)),
    )
    yield LayerCase(conv(1, 2, 3, stride=2), (1, 6, 6), partial(rule, out=(2, 2), stride=(2, 2)))
    yield LayerCase(conv(2, 2, 2, dilation=(2, 3)), (2, 4, 6), partial(rule, out=(2, 3), dilation=(2, 3)))
    yield LayerCase(conv(1, 2, (2, 3), padding="same"), (1, 4, 4), partial(rule, out=(4, 4), before=(0, 1)))
    yield LayerCase(
        conv(4, 6, 2, padding=1, groups=2), (4, 3, 3), partial(rule, out=(4, 4), before=(1, 1), groups=2)
    )
    yield LayerCase(conv(3, 3, 3, groups=3, bias=False), (3, 4, 4), partial(rule, out=(2, 2), groups=3))
    for mode, name in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        around = partial(np.pad, pad_width=((0, 0), (0, 0), (2, 2), (1, 1)), mode=name)
        yield LayerCase(
            conv(1, 2, 2, padding=(2, 1), padding_mode=mode),
            (1, 3, 3),
            lambda x, around=around, **parameters: rule(around(x), **parameters, out=(6, 4)),
        )
    yield LayerCase(
        layers.Conv1d(2, 3, 3, stride=2, padding=1),
        (2, 6),
        partial(rule, out=(3,), stride=(2,), before=(1,), dilation=(1,)),
    )
    yield LayerCase(
        layers.Conv3d(2, 2, (2, 1, 2), dilation=(1, 1, 2), groups=2),
        (2, 3, 2, 3),
        partial(rule, out=(2, 2, 1), stride=(1, 1, 1), before=(0, 0, 0), dilation=(1, 1, 2), groups=2),
    )


def _pools() -> Iterator[LayerCase]:
    most, mean = layers.MaxPool2d, layers.AvgPool2d
    two: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2)}
    three: dict[str, Any] = {"kernel": (3, 3), "stride": (2, 2)}
    yield LayerCase(most(2), (2, 4, 5), partial(plain.max_pool, out=(2, 2), **two))
    yield LayerCase(most(3, 2, padding=1), (2, 5, 6), partial(plain.max_pool, out=(3, 3), before=(1, 1), **three))
    yield LayerCase(most(3, 2, ceil_mode=True), (1, 6, 5), partial(plain.max_pool, out=(3, 2), **three))
    yield LayerCase(
        most((2, 1), (1, 2), dilation=(2, 1)),
        (2, 5, 4),
        partial(plain.max_pool, out=(3, 2), kernel=(2, 1), stride=(1, 2), dilation=(2, 1)),
    )
    yield LayerCase(mean(2), (2, 4, 5), partial(plain.average_pool, out=(2, 2), **two))
    padded = partial(plain.average_pool, out=(3, 3), padding=(1, 1), **three)
    yield LayerCase(mean(3, 2, padding=1), (2, 5, 6), partial(padded, counted=(1, 1)))
    yield LayerCase(mean(3, 2, padding=1, count_include_pad=False), (2, 5, 6), padded)
    yield LayerCase(mean(3, 2, padding=1, divisor_override=4), (2, 5, 6), partial(padded, divisor=4))
    yield LayerCase(mean(3, 2, ceil_mode=True), (1, 6, 5), partial(plain.average_pool, out=(3, 2), **three))


def _moves() -> Iterator[LayerCase]:
    yield LayerCase(layers.Flatten(), (2, 3, 2), lambda x: x.reshape(len(x), 12))
    yield LayerCase(layers.Flatten(2, 3), (2, 3, 2), lambda x: x.reshape(len(x), 2, 6))
    yield LayerCase(layers.ZeroPad2d(1), (2, 2, 3), partial(plain.pad, out=(4, 5), before=(1, 1)))
    yield LayerCase(layers.ZeroPad2d((2, -1, 0, 1)), (1, 3, 4), partial(plain.pad, out=(4, 5), before=(0, 2)))
    yield LayerCase(layers.Identity(), (5,), np.copy)
    yield LayerCase(layers.Dropout(0.4), (2, 3), np.copy)
    yield LayerCase(layers.Dropout(1.0), (4,), np.copy)


def _containers() -> Iterator[LayerCase]:
    yield LayerCase(Sequential(layers.Linear(4, 3), layers.Tanh(), Sequential(layers.Linear(3, 2))), (4,))
    yield LayerCase(Sequential(layers.Conv2d(1, 2, 2), layers.ReLU(), layers.Dropout(0.3)), (1, 3, 3))
    yield LayerCase(Sequential(), (3,), np.copy)


# ------------------------------------------------------------------------------------------------------------- losses


@dataclass(frozen=True)
class LossCase:
    """A loss with outputs and targets."""

    loss: Loss
    output: np.ndarray
    target: np.ndarray


def loss_cases(rng: np.random.Generator) -> Iterator[LossCase]:
    """Yield every loss that ships, with both reductions."""
    for reduction in ("mean", "sum"):
        for classes in (4, 1):
            logits = 2 * rng.standard_normal((BATCH, classes))
            yield LossCase(losses.CrossEntropyLoss(reduction), logits, rng.integers(0, classes, BATCH))
        yield from _classes(reduction, rng)
        for shape in ((4,), (2, 3)):
            output = 2 * rng.standard_normal((BATCH, *shape))
            yield LossCase(losses.MSELoss(reduction), output, rng.standard_normal(output.shape))
            soft, hard = rng.random(output.shape), rng.integers(0, 2, output.shape).astype(float)
            bits = np.where(soft < 0.5, soft, hard)
            weights = {"weight": 0.5 + rng.random(shape), "pos_weight": 0.5 + rng.random(shape[-1:])}
            yield LossCase(losses.BCEWithLogitsLoss(reduction), output, bits)
            yield LossCase(losses.BCEWithLogitsLoss(reduction, **weights), output, bits)
            for edge in (1.0, 2.5):
                yield LossCase(losses.HuberLoss(reduction, edge), output, rng.standard_normal(output.shape))
                yield LossCase(losses.SmoothL1Loss(reduction, edge), output, rng.standard_normal(output.shape))
            counts = rng.poisson(2.0, output.shape).astype(float)
            yield LossCase(losses.PoissonNLLLoss(reduction, full=True), output, counts)
            yield LossCase(losses.PoissonNLLLoss(reduction, log_input=False), 0.1 + np.abs(output), counts)
            likely, several = 0.02 + 0.96 * rng.random(output.shape), rng.random((BATCH, 2, *shape))
            yield LossCase(losses.BCELoss(reduction, weight=weights["weight"]), likely, bits)
            yield LossCase(losses.L1Loss(reduction), output, rng.standard_normal(output.shape))
            yield LossCase(losses.GaussianNLLLoss(reduction, full=True), output, several)


def _classes(reduction: Literal["mean", "sum"], rng: np.random.Generator) -> Iterator[LossCase]:
    """Cross-entropy with weights, labels to ignore, smoothing, positions and class probabilities."""
    kind, weight = losses.CrossEntropyLoss, 0.5 + rng.random(4)
    logits, labels = 2 * rng.standard_normal((BATCH, 4, 2)), rng.integers(0, 4, (BATCH, 2))
    ignored = np.where([[True, False], [False, False], [True, True]], -100, labels)
    likely = np.moveaxis(rng.dirichlet(np.ones(4), labels.shape), -1, 1).copy()
    yield LossCase(kind(reduction, weight=weight), logits[:, :, 0], labels[:, 0])
    yield LossCase(kind(reduction, label_smoothing=0.2), logits[:, :, 0], labels[:, 0])
    yield LossCase(kind(reduction), logits[:, :, 0], likely[:, :, 0])
    yield LossCase(kind(reduction), logits, labels)
    yield LossCase(kind(reduction, ignore_index=-100), logits, ignored)
    yield LossCase(kind(reduction, weight=weight, ignore_index=-100, label_smoothing=0.2), logits, ignored)
    yield LossCase(kind(reduction, weight=weight), logits, likely)
    yield LossCase(losses.NLLLoss(reduction, weight=weight, ignore_index=-100), special.log_softmax(logits, 1), ignored)
