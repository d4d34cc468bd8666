"""Claims of symmetry as a table: each changes a network, its batch or its loss in a way whose effect is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gbackprop import layers as L
from gbackprop import losses
from gbackprop.array import array_module, like
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.signals import EXACT, GRADIENT, RESIDUAL
from gbackprop.curvature.data import merge
from gbackprop.layers.norms.affine import Plus, Times
from gbackprop.losses.base import Loss
from gbackprop.plain.reference import reference
from gbackprop.quantities import Quantity
from gbackprop.testing.claims import NotGivenError
from gbackprop.testing.loss_scale import with_reduction
from gbackprop.testing.runs import fits, pairs
from gbackprop.testing.setting import Values
from gbackprop.testing.symmetries_networks import after_each, pointwise, separate, split, units, with_values
from gbackprop.testing.symmetries_posed import Change, Posed, arrays_of, per_sample, rewritten


@dataclass(frozen=True)
class Symmetry:
    """A claim: how results change under a change of what is given."""

    name: str
    make: Callable[[Posed, np.random.Generator], Change]  # raises NotGivenError where it is not for this
    of_batch: bool = False  # whether it is about the samples, so that it is asked of the whole batch, too


# ------------------------------------------------------------------------------------------------------------- samples


def permuted(posed: Posed, rng: np.random.Generator) -> Change:
    """The samples in another order."""
    rows = rng.permutation(len(posed.x))
    return Change(posed.taken(rows), rows=rows)


@dataclass(frozen=True)
class OfBatches(Change):
    """A change after which results are those of batches, merged by the quantities' own rules."""

    batches: tuple[Posed, ...] = ()

    def expected(self, quantity: Quantity, given: Posed) -> Values:
        rule, powers = quantity.stated("merging"), quantity.stated("powers")
        if rule is not None and not isinstance(rule, str):
            return arrays_of(merge(batch.part(quantity) for batch in self.batches))
        if self.rows is None or not powers or not (pairs(quantity) or per_sample(quantity, given) or powers[0] == 1):
            raise NotGivenError(rule or "how results of batches are merged is not stated: give it `merging`")
        if pairs(quantity) or per_sample(quantity, given):
            return super().expected(quantity, given)
        factor = 2 * self.r  # R times a sum over samples; A is a mean
        return {name: v if name.endswith("/A") else v * factor for name, v in given.of(quantity).items()}


def twice(posed: Posed, rng: np.random.Generator) -> Change:
    """Each sample twice."""
    rows, r = np.tile(np.arange(len(posed.x)), 2), 0.5 if posed.loss.reduction == "mean" else 1.0
    return OfBatches(posed.taken(rows), rows=rows, r=r, batches=(posed, posed))


def parts(posed: Posed, rng: np.random.Generator) -> Change:
    """The batch in two parts."""
    n = len(posed.x)
    if n == 1:
        raise NotGivenError("one sample cannot be split")
    return OfBatches(posed, batches=tuple(posed.taken(rows) for rows in np.split(np.arange(n), [1 + n // 3])))


def computed(posed: Posed, rng: np.random.Generator, step: int = 1, call: Any = None, **options: Any) -> Change:
    """The same in another way: in blocks, in another order, by the plain sweep."""
    some = tuple(each for each in posed.asked[::step] if fits(each, options))
    lost = {id(each) for each in posed.asked} - {id(each) for each in some}
    other = replace(posed, asked=some, call=call or posed.call, options={**posed.options, **options})
    return Change(other, lacks=lambda each: "needs the whole batch at each layer" if id(each) in lost else "")


def frozen(posed: Posed, rng: np.random.Generator) -> Change:
    """One layer frozen: the others' values do not move."""
    layers = list({id(leaf.layer): leaf.layer for leaf in posed.leaves if leaf.parameters}.values())
    chosen = layers[int(rng.integers(len(layers)))]
    twin = with_values(chosen, chosen.parameters, frozen=True)
    instead = {leaf.position: (twin,) for leaf in posed.leaves if leaf.layer is chosen and len(layers) > 1}
    return rewritten(posed, instead, "one layer has all parameters")


# -------------------------------------------------------------------------------------------------------------- losses


def times(posed: Posed, rng: np.random.Generator) -> Change:
    """Three times the loss, by weights of samples."""
    weight = array_module(posed.x).full(len(posed.x), 3.0, next(iter(posed.network.parameters.values())).dtype)
    return Change(replace(posed, options={"sample_weight": weight}), c=3.0)


def reduced(posed: Posed, rng: np.random.Generator) -> Change:
    """"sum" and "mean": R = 1/N, or what weights of targets make of it, and c of a mean over outputs."""
    mean = posed.loss.reduction == "mean"
    other = with_reduction(posed.loss, "sum" if mean else "mean")
    shape, n = posed.network.output_shape(posed.x.shape[1:]), len(posed.x)
    r = (posed.loss if mean else other).factor(n, posed.y) if posed.loss.weighted else 1 / n
    c = other.summed_weight(shape) / posed.loss.summed_weight(shape)
    return Change(replace(posed, loss=other), r=1 / r if mean else r, c=c)


FREE = (losses.CrossEntropyLoss, losses.MSELoss, losses.BCEWithLogitsLoss)
"""Losses whose Hessian does not depend on the targets, unless these have weights."""


def relabelled(posed: Posed, rng: np.random.Generator) -> Change:
    """The targets of other samples: what is of the loss's Hessian, and of it alone, does not move."""
    loss, other = posed.loss, posed.y[like(np.roll(np.arange(len(posed.x)), 1), posed.x, int)]
    known = not loss.weighted and (isinstance(loss, FREE) or bool(getattr(loss, "log_input", False)))
    if not known:
        output = posed.network(posed.x)
        known = bool((loss.hessian_sqrt(output, posed.y) == loss.hessian_sqrt(output, other)).all())
    if not known or bool((other == posed.y).all()):
        raise NotGivenError("all targets are the same" if known else "the loss's Hessian depends on the targets")
    return Change(replace(posed, y=other), lacks=_lacks_curvature)


def _signals(quantity: Quantity) -> set[Any]:
    return {statistic.signal for statistic in quantity.statistics()} - {None}


def _lacks_curvature(quantity: Quantity) -> str:
    return "depends on the targets" if _signals(quantity) & {GRADIENT, RESIDUAL} else ""


def _ending(posed: Posed, *ending: Layer, **known: Any) -> Change:
    """Return the change of a network that goes on."""
    last = posed.leaves[-1]
    return rewritten(posed, {last.position: (last.layer, *ending)}, **known)


def shifted(posed: Posed, rng: np.random.Generator) -> Change:
    """A constant added to all logits, beyond which e^z would overflow."""
    if not isinstance(posed.loss, losses.CrossEntropyLoss):
        raise NotGivenError("for cross entropy of logits")
    single = next(iter(posed.network.parameters.values())).dtype == np.float32
    return _ending(posed, Plus(128.0 if single else 1024.0))


Other = tuple[Loss, tuple[Layer, ...], Callable[[Any], Any]]
"""A loss of the outputs of further layers, and its targets from those of the loss that it is another form of."""


def _classes(loss: Any, shape: Shape, p: Any) -> Other:
    """BCE(z) = CE([0, z])."""
    pair = with_values(L.Linear(1, 2, bias=False), {"weight": like(np.array([0.0, 1.0]), p, p.dtype)}, frozen=True)
    last = L.Permute((0, len(shape) + 1, *range(1, len(shape) + 1)))
    ending = (L.Unflatten(len(shape), (shape[-1], 1)), pair, last)
    return losses.CrossEntropyLoss(loss.reduction), ending, lambda y: array_module(y).stack([1 - y, y], 1)


def _normal(loss: Any, shape: Shape, p: Any) -> Other:
    """Squared error = −log of a normal density of variance ½, but for a constant."""
    xp = array_module(p)
    return losses.GaussianNLLLoss(loss.reduction), (), lambda y: xp.stack([y, xp.full_like(y, 0.5)], 1)


def _chosen(loss: Any, shape: Shape, p: Any) -> Other:
    """CE(z) = NLL(log softmax z), whose Hessian is the network's."""
    other = losses.NLLLoss(loss.reduction, weight=loss.weight, ignore_index=loss.ignore_index)
    return other, (L.LogSoftmax(1),), lambda y: y


OTHERS: dict[type[Loss], Callable[[Any, Shape, Any], Other]] = {
    losses.BCEWithLogitsLoss: _classes, losses.CrossEntropyLoss: _chosen, losses.MSELoss: _normal,
}  # fmt: skip
"""Losses that can be written as others."""


def another(posed: Posed, rng: np.random.Generator) -> Change:
    """The loss written as another."""
    loss: Any = posed.loss
    chosen, soft = type(loss) is losses.CrossEntropyLoss, getattr(loss, "label_smoothing", 0) or loss.probabilities
    if type(loss) not in OTHERS or (loss.weighted and not chosen) or (soft and posed.y.dtype.kind == "f"):
        raise NotGivenError("the loss has no other form here")
    if chosen and loss.label_smoothing:
        raise NotGivenError("the other form has no label smoothing")
    shape, p = posed.network.output_shape(posed.x.shape[1:]), next(iter(posed.network.parameters.values()))
    other, ending, targets = OTHERS[type(loss)](loss, shape, p)

    def lacks(quantity: Quantity) -> str:
        signals = _signals(quantity)
        if pairs(quantity) and signals != {GRADIENT}:
            return "its columns are another root of the same Hessian"
        whole = signals <= {GRADIENT} or {EXACT, RESIDUAL} <= signals
        return "" if whole or (not chosen and signals == {EXACT}) else "the loss's part of the curvature differs"

    asked, y = tuple(each for each in posed.asked if not lacks(each)), targets(posed.y)
    change = _ending(posed, *ending, lacks=lacks, without=() if ending else ("loss",))
    return replace(change, posed=replace(change.posed, loss=other, y=y, targets=None, asked=asked))


SYMMETRIES = (
    Symmetry("samples permuted", permuted, True),
    Symmetry("each sample twice", twice, True),
    Symmetry("the batch split and merged", parts, True),
    Symmetry("in blocks of samples", partial(computed, sample_block=2)),
    Symmetry("in blocks of columns", partial(computed, column_block=2)),
    Symmetry("asked for in another order", partial(computed, step=-1)),
    Symmetry("by gb.reference", partial(computed, call=reference)),
    Symmetry("a layer frozen", frozen),
    Symmetry("the loss × 3", times, True),
    Symmetry("sum = N × mean", reduced, True),
    Symmetry("labels changed", relabelled, True),
    Symmetry("logits + constant", shifted),
    Symmetry("the loss written as another", another),
    Symmetry("Identity inserted", partial(after_each, more=(L.Identity(),))),
    Symmetry("doubled and halved", partial(after_each, more=(Times(2.0), Times(0.5)))),
    Symmetry("linear layers split into two", split),
    Symmetry("linear layers as 1×1 convolutions, and back", pointwise),
    Symmetry("groups as separate convolutions", separate),
    Symmetry("hidden units permuted", units),
    Symmetry("W₁ × 2, W₂ / 2", partial(units, scale=2.0)),
)
"""All symmetries."""
