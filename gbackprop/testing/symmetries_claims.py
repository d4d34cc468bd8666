"""Claims of symmetry as a table: each changes a network, its batch or its loss in a way whose effect is known."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gbackprop import layers as L
from gbackprop import losses
from gbackprop.array import array_module, asnumpy, like
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.signals import EXACT, GRADIENT, RESIDUAL
from gbackprop.curvature.data import merge
from gbackprop.layers.norms.affine import Plus
from gbackprop.losses.base import Loss
from gbackprop.plain.reference import reference
from gbackprop.quantities import Quantity
from gbackprop.testing import symmetries_networks as written
from gbackprop.testing.claims import NotGivenError
from gbackprop.testing.runs import fits, pairs
from gbackprop.testing.setting import Values
from gbackprop.testing.symmetries_setting import Change, Gradient, Posed, per_sample

Make = Callable[[Posed, np.random.Generator], Change]


@dataclass(frozen=True)
class Symmetry:
    """A claim: how results change under a change of what is given."""

    name: str
    make: Make  # raises NotGivenError with the reason where it does not apply
    of_batch: bool = False  # whether it is about the samples, so that it is asked of the whole batch, too


# ------------------------------------------------------------------------------------------------------------- samples


def taken(posed: Posed, rows: np.ndarray) -> Posed:
    """Return the setting with other samples of the batch."""
    at = like(rows, posed.x, int)
    targets = None if posed.targets is None else posed.targets[:, at]
    return replace(posed, x=posed.x[at], y=posed.y[at], targets=targets)


def of_reduction(posed: Posed, reduction: Any) -> Posed:
    """Return the setting with another reduction of the loss."""
    loss = copy.copy(posed.loss)
    loss.reduction = reduction
    return replace(posed, loss=loss)


def permuted(posed: Posed, rng: np.random.Generator) -> Change:
    """The samples in another order."""
    rows = rng.permutation(len(posed.x))
    return Change(taken(posed, rows), rows=rows)


def _unmerged(quantity: Quantity) -> bool:
    return not isinstance(quantity.stated("merging") or "", str)


@dataclass(frozen=True)
class Merged(Change):
    """A change after which results are those of batches, merged by the quantities' own rules."""

    batches: tuple[Posed, ...] = ()

    def expected(self, quantity: Quantity, values: Values, shapes: Any, got: Values) -> Values:
        rule = quantity.stated("merging")
        if rule is None or isinstance(rule, str):
            if len({id(each) for each in self.batches}) > 1 or not per_sample(quantity) + pairs(quantity):
                if self.batches[0] is self.batches[-1] and (quantity.stated("powers") or (0,))[0] == 1:
                    return {name: value * (1 if name.endswith("/A") else 2 * self.r) for name, value in values.items()}
                raise NotGivenError(rule or "how results of batches are merged is not stated: give it `merging`")
            return super().expected(quantity, values, shapes, got)
        results = [replace(each.result, quantities=(), values=()) if isinstance(quantity, Gradient) else _alone(each, quantity) for each in self.batches]
        merged = merge(results)
        return self.posed.of(quantity, merged if isinstance(quantity, Gradient) else _placed(self.posed, quantity, merged))


def _alone(posed: Posed, quantity: Quantity) -> Any:
    """Return the part of a result that is of one quantity."""
    i = next(i for i, each in enumerate(posed.asked) if each is quantity)
    return replace(posed.result, quantities=(posed.result.quantities[i],), values=(posed.result.values[i],))


def _placed(posed: Posed, quantity: Quantity, result: Any) -> Any:
    """Return a result of one quantity with its values at the quantity's place in a setting."""
    return replace(result, values=[result.values[0]] * len(posed.asked))


def repeated(posed: Posed, rng: np.random.Generator) -> Change:
    """Each sample twice: rows twice, with R of twice as many samples; means and sums by their rules."""
    rows = np.concatenate([np.arange(len(posed.x))] * 2)
    r = 0.5 if posed.loss.reduction == "mean" else 1.0
    return Merged(taken(posed, rows), rows=rows, r=r, batches=(posed, posed))


def merged(posed: Posed, rng: np.random.Generator) -> Change:
    """Two batches merged."""
    n = len(posed.x)
    if n == 1:
        raise NotGivenError("one sample cannot be split")
    return Merged(posed, batches=tuple(taken(posed, rows) for rows in np.split(np.arange(n), [1 + n // 3])))


def in_blocks(posed: Posed, rng: np.random.Generator, **options: int) -> Change:
    """The work cut into blocks."""
    asked = tuple(each for each in posed.asked if fits(each, options))
    lacks = lambda each: "" if each in asked or isinstance(each, Gradient) else "needs the whole batch at each layer"  # noqa: E731
    return Change(replace(posed, asked=asked, options={**posed.options, **options}), lacks=lacks)


# -------------------------------------------------------------------------------------------------------------- losses


def weighted(posed: Posed, rng: np.random.Generator) -> Change:
    """Three times the loss, by weights of samples."""
    xp, like_it = array_module(posed.x), next(iter(posed.network.parameters.values()))
    return Change(replace(posed, options={"sample_weight": xp.full(len(posed.x), 3.0, like_it.dtype)}), c=3.0)


def summed(posed: Posed, rng: np.random.Generator) -> Change:
    """"sum" beside "mean": N times as much, and c of the loss's mean over outputs."""
    mean, total = (of_reduction(posed, reduction) for reduction in ("mean", "sum"))
    shape = posed.network.output_shape(posed.x.shape[1:])
    r = mean.loss.factor(len(posed.x), posed.y) if posed.loss.weighted else 1 / len(posed.x)
    own, other = (each.loss.summed_weight(shape) for each in (posed, total if posed.loss.reduction == "mean" else mean))
    if posed.loss.reduction == "mean":
        return Change(total, r=1 / r, c=other / own)
    return Change(mean, r=r, c=other / own)


FREE = (losses.CrossEntropyLoss, losses.MSELoss, losses.BCEWithLogitsLoss)
"""Losses whose Hessian does not depend on the targets, if these have no weights."""


def relabelled(posed: Posed, rng: np.random.Generator) -> Change:
    """The targets of other samples: what is of the loss's Hessian, and of it alone, does not move."""
    order, loss, y = np.roll(np.arange(len(posed.x)), 1), posed.loss, posed.y
    other = y[like(order, posed.x, int)]
    if bool((other == y).all()):
        raise NotGivenError("all samples have the same target")
    known = isinstance(loss, FREE) or (isinstance(loss, losses.PoissonNLLLoss) and loss.log_input)
    if loss.weighted or not known:
        output = posed.network(posed.x)
        roots = [loss.hessian_sqrt(output, target) for target in (y, other)]
        if not bool((roots[0] == roots[1]).all()):
            raise NotGivenError("the loss's Hessian depends on the targets")
    return Change(replace(posed, y=other), lacks=_lacks_curvature)


def _lacks_curvature(quantity: Quantity) -> str:
    signals = {statistic.signal for statistic in quantity.statistics()}
    return "depends on the targets" if signals & {GRADIENT, RESIDUAL} else ""


def shifted(posed: Posed, rng: np.random.Generator) -> Change:
    """A constant added to all logits, beyond which e^z would overflow."""
    if not isinstance(posed.loss, losses.CrossEntropyLoss):
        raise NotGivenError("for cross entropy of logits")
    single = next(iter(posed.network.parameters.values())).dtype == np.float32
    return _ending(posed, (Plus(128.0 if single else 1024.0),))


def _ending(posed: Posed, ending: tuple[Layer, ...], **known: Any) -> Change:
    """Return the change of a network that goes on."""
    last = written.leaves_in(posed)[-1]
    return written.rewritten(posed, {last.position: (last.layer, *ending)}, **known)


@dataclass(frozen=True)
class Other:
    """A loss of the outputs of further layers that is the same function as another, times c."""

    layers: tuple[Layer, ...]
    loss: Loss
    targets: Callable[[Any], Any] | None = None  # its targets from the other's
    c: float = 1.0
    exact: bool = False  # whether the loss's Hessian is the same, too, and not that of the network alone
    shifted: bool = False  # whether its value differs by a constant


def _bits_as_classes(loss: Any, posed: Posed) -> Other:
    shape, parameters = posed.network.output_shape(posed.x.shape[1:]), next(iter(posed.network.parameters.values()))
    pair = L.Linear(1, 2, bias=False)
    pair = written.with_values(pair, {"weight": like(np.array([[0.0], [1.0]]), parameters, parameters.dtype)}, frozen=True)
    ending = (L.Unflatten(len(shape), (shape[-1], 1)), pair, L.Permute((0, len(shape) + 1, *range(1, len(shape) + 1))))
    return Other(ending, losses.CrossEntropyLoss(loss.reduction), lambda y: array_module(y).stack([1 - y, y], 1), exact=True)


def _squares_as_normal(loss: Any, posed: Posed) -> Other:
    variance = lambda y: array_module(y).stack([y, array_module(y).full_like(y, 0.5)], 1)  # noqa: E731
    return Other((), losses.GaussianNLLLoss(loss.reduction), variance, exact=True, shifted=True)


OTHERS: dict[type[Loss], Callable[[Any, Posed], Other]] = {
    losses.CrossEntropyLoss: lambda loss, posed: Other(
        (L.LogSoftmax(1),), losses.NLLLoss(loss.reduction, weight=loss.weight, ignore_index=loss.ignore_index)
    ),
    losses.BCEWithLogitsLoss: _bits_as_classes,
    losses.MSELoss: _squares_as_normal,
    losses.HuberLoss: lambda loss, posed: Other((), losses.SmoothL1Loss(loss.reduction, loss.delta), None, loss.delta, True),
    losses.SmoothL1Loss: lambda loss, posed: Other((), losses.HuberLoss(loss.reduction, loss.beta), None, 1 / loss.beta, True),
}
"""Losses written as others."""


def as_another(posed: Posed, rng: np.random.Generator) -> Change:
    """The loss as another: BCE(z) = CE([0, z]), CE(z) = NLL(log softmax z), squares as −log of a normal density."""
    loss, y = posed.loss, posed.y
    other = OTHERS[type(loss)](loss, posed) if type(loss) in OTHERS else None
    smooth = getattr(loss, "label_smoothing", 0) or (loss.probabilities and y.dtype.kind == "f")
    if other is None or smooth or (loss.weighted and not isinstance(loss, losses.CrossEntropyLoss)):
        raise NotGivenError("the loss has no other form here")

    def lacks(quantity: Quantity) -> str:
        signals = {statistic.signal for statistic in quantity.statistics()} - {None}
        if pairs(quantity) and signals != {GRADIENT}:
            return "its columns are another root of the same Hessian"
        hessian = signals <= {GRADIENT} or {EXACT, RESIDUAL} <= signals
        return "" if hessian or (other.exact and signals <= {EXACT, GRADIENT}) else "the part that is of the loss is another"

    there = other.targets or (lambda each: each)
    change = _ending(posed, other.layers, c=1 / other.c, lacks=lacks, without=("loss",) if other.shifted else ())
    asked = tuple(each for each in posed.asked if not lacks(each))
    return replace(change, posed=replace(change.posed, loss=other.loss, y=there(y), targets=None, asked=asked))


# --------------------------------------------------------------------------------------------------- ways to compute


def frozen(posed: Posed, rng: np.random.Generator) -> Change:
    """One layer frozen: the others' values do not move."""
    found = [leaf for leaf in written.leaves_in(posed) if leaf.parameters]
    if len({name for leaf in found for name in leaf.parameters.values()}) == len(found[0].parameters):
        raise NotGivenError("one layer has all parameters")
    layer = found[int(rng.integers(len(found)))].layer
    twin = written.with_values(layer, layer.parameters, frozen=True)
    return written.rewritten(posed, {leaf.position: (twin,) for leaf in written.leaves_in(posed) if leaf.layer is layer})


def asked_alone(posed: Posed, rng: np.random.Generator) -> Change:
    """The quantities in the opposite order."""
    return Change(replace(posed, asked=posed.asked[::-1]))


def by_definition(posed: Posed, rng: np.random.Generator) -> Change:
    """The plain sweep in place of the fast one."""
    return Change(replace(posed, call=reference))


SYMMETRIES = (
    Symmetry("samples permuted", permuted, True),
    Symmetry("each sample twice", repeated, True),
    Symmetry("the batch split and merged", merged, True),
    Symmetry("blocks of samples", partial(in_blocks, sample_block=2)),
    Symmetry("blocks of columns", partial(in_blocks, column_block=2)),
    Symmetry("asked for in another order", asked_alone),
    Symmetry("gb.reference for gb.backward", by_definition),
    Symmetry("the loss × 3", weighted, True),
    Symmetry("sum = N × mean", summed, True),
    Symmetry("labels changed", relabelled, True),
    Symmetry("a layer frozen", frozen),
    Symmetry("Identity inserted", written.identities),
    Symmetry("doubled and halved", written.doubled),
    Symmetry("linear layers split into two", written.split),
    Symmetry("1×1 convolutions as linear layers, and back", written.pointwise),
    Symmetry("groups as separate convolutions", written.ungrouped),
    Symmetry("hidden units permuted", written.permuted_units),
    Symmetry("W₁ × 2, W₂ / 2", written.rescaled),
    Symmetry("logits + constant", shifted),
    Symmetry("the loss written as another", as_another),
)
"""All symmetries."""
