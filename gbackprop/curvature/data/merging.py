"""Results of batches merged into that of one call with all their samples.

A quantity is not in general the mean of the batches' values: each states a `Rule` as its attribute `merging`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from gbackprop.array import Array, device_of, on_device_of
from gbackprop.base.errors import UnsupportedError
from gbackprop.calculus.state import digest
from gbackprop.quantities import Quantity, Scale
from gbackprop.quantities.merging_rules import Rows, Rule, Summed
from gbackprop.quantities.result import Result


def rule_of(quantity: Quantity) -> Rule:
    """Return the rule of a quantity; a subclass of a shipped one needs a rule of its own."""
    rule = quantity.stated("merging") or "it has no rule: give it one, `merging = gb.data.Summed()`, …"
    if isinstance(rule, str):
        raise UnsupportedError(f"{quantity!r} cannot be merged: {rule}")
    return rule


def merge(results: Iterable[Result]) -> Result:
    """Merge results of batches into the result of one call with all their samples, in their order.

    They are taken one by one, so a generator needs no more memory for many than for a few, besides rows of samples::

        gb.data.merge(gb.backward(net, loss, *batch, q.Variance()) for batch in gb.data.batches(x, y, 128))

    Parameters
    ----------
    results : iterable of Result
        Of `gb.backward` for one network and one loss, each with the same quantities. Batches may differ in size.

    Returns
    -------
    Result
        That of one call, up to rounding. Monte-Carlo quantities have only the same distribution, if each call drew
        for itself: pass a Generator as `rng`, for an integer draws the same numbers in each.

    Raises
    ------
    TypeError
        If something is not a `Result`, or dtypes or devices differ.
    ValueError
        If there are none, or they are of different losses or quantities, by class or by any attribute, or of networks
        whose parameters have other names or shapes.
    UnsupportedError
        If a quantity has no rule, as KFRA, derivatives are in the entries of the input, or samples of a batch met, as
        in batch normalization in training mode.

    Notes
    -----
    A result does not have its network: nothing shows that two are of networks with equal shapes but other parameters
    or options, as those before and after a training step. Nor does it show a loss that changed between two calls,
    unless the first result was merged before, as those of a generator are.

    Sums are in float64, and rounded once: a result that was merged is rounded again where it is merged with others.
    Variances are merged with the batches' mean gradients, as far as their dtype gives these.
    Source: Chan, Golub, LeVeque 1979.
    """
    if isinstance(results, Result):
        raise TypeError("results: expected an iterable of Results, got a Result (of one: merge([result]))")
    if not isinstance(results, Iterable):
        raise TypeError(f"results: expected an iterable of Results, got {type(results).__name__}")
    merged: Merged | None = None
    for i, result in enumerate(results):
        if not isinstance(result, Result):
            raise TypeError(f"result {i}: expected a Result, got {type(result).__name__}")
        merged = joined(merged, i, result)
    if merged is None:
        raise ValueError("results: expected at least one, got none")
    with on_device_of(merged.first.output):
        return merged.finish()


def joined(merged: Merged | None, i: int, result: Result) -> Merged:
    """Add the result of batch i to the sums of those before, which are None at the first; return the sums."""
    with on_device_of(result.output):
        if merged is None:
            merged = Merged(result)
        else:
            merged.check(i, result)
        if result.scale is not None and result.scale.meets:
            raise UnsupportedError(
                f"result {i} cannot be merged: samples of a batch met in the network, so results of batches do not "
                "determine that of all samples (use training=False)"
            )
        merged.add(result)
    return merged


@dataclass(frozen=True)
class Totals:
    """The number of results in the sums, N, 1/R, and each sum with the number of its entries that count, if a list."""

    results: int
    count: int
    divisor: float
    sums: dict[Any, tuple[Any, int]]


class Merged:
    """The sums over the results so far; `first` says what the others must be like."""

    def __init__(self, first: Result) -> None:
        if first.scale is not None and first.scale.rows:
            names = ", ".join(sorted(first.scale.rows))
            raise UnsupportedError(f"result 0 cannot be merged: {names} has rows of its own samples alone")
        if first.objective is None or first.scale is None:
            raise ValueError("result 0: expected a result of gb.backward, got one that does not say of which loss")
        self.first, self.objective = first, first.objective
        self.rules = [rule_of(quantity) for quantity in first.quantities]
        self.common = _common(first)
        self.state = Totals(0, 0, 0.0, {})

    @property
    def sums(self) -> dict[Any, Any]:
        """The sum of each part; of lists what counts."""
        return {key: total[:n] if isinstance(total, list) else total for key, (total, n) in self.state.sums.items()}

    def parts(self, result: Result) -> dict[Any, tuple[Rule, Any, Array]]:
        """Return each value of a result with its rule and the gradient of its parameter."""
        found: dict[Any, tuple[Rule, Any, Array]] = {
            "loss": (Summed(), result.loss, result.loss),
            "output": (Rows(power=0), result.output, result.loss),
        }
        groups: list[tuple[Rule, Mapping[str, Any]]] = [(Summed(), result.gradient)]
        groups += zip(self.rules, result.values, strict=True)
        for i, (rule, values) in enumerate(groups):
            found |= {(i, name): (rule, value, result.gradient[name]) for name, value in values.items()}
        return found

    def add(self, result: Result) -> None:
        """Add a result as a whole: what an error or Ctrl-C ends before that has added nothing."""
        scale, before = result.scale, self.state
        assert scale is not None  # see `_loss`
        sums = dict(before.sums)
        for key, (rule, value, gradient) in self.parts(result).items():
            share, (total, n) = rule.take(value, gradient, scale), before.sums.get(key, (None, 0))
            if isinstance(total, list):
                total[n:] = share  # a list for each sum would take time quadratic in the batches
            else:
                total = share if total is None else total + share
            sums[key] = total, len(total) if isinstance(total, list) else 0
        divisor = before.divisor + 1 / scale.factor
        self.state = Totals(before.results + 1, before.count + scale.batch, divisor, sums)

    def finish(self) -> Result:
        state, sums = self.state, self.sums
        factor = 1 / state.divisor if self.objective.reduction == "mean" else 1.0  # 1/R adds up: it is N, or Σ w
        scale = Scale(state.count, factor, self.first.output.dtype.name)
        values = {key: rule.give(sums[key], scale) for key, (rule, *_) in self.parts(self.first).items()}
        gradient, *quantities = (
            {name: values[i, name] for name in self.first.gradient if (i, name) in values}
            for i in range(1 + len(self.rules))
        )
        asked, loss, output = self.first.quantities, values["loss"], values["output"]
        return Result(loss, output, gradient, asked, quantities, self.objective, scale)

    def name(self, key: Any) -> str:
        """Return how messages name a sum."""
        if not isinstance(key, tuple):
            return str(key)
        i, parameter = key
        return f"{self.first.quantities[i - 1] if i else 'gradient'} of {parameter}"

    def check(self, i: int, result: Result) -> None:
        """Check that a result is of the same loss, quantities and parameters as the first."""
        for what, (state, got) in _common(result).items():
            before, want = self.common[what]
            if state != before:
                got = "other attributes, which its text does not show" if got == want else got
                raise ValueError(f"result {i}: expected {what} {want} as in result 0, got {got}")
        where = [(result.output.dtype.name, device_of(result.output)) for result in (self.first, result)]
        if where[0] != where[1]:
            raise TypeError(f"result {i}: expected {' on '.join(where[0])} as in result 0, got {' on '.join(where[1])}")


def _common(result: Result) -> dict[str, tuple[str, str]]:
    """Return what merged results must share: for each part its state, which is compared, and its text in messages."""
    loss, state = result.objective, ""
    if result.scale is not None:  # a loss that was read from a file has the digest of the class that it stands for
        state = getattr(loss, "stored", None) or digest(loss)
    quantities = [_without(quantity, quantity.of_batch) for quantity in result.quantities]
    outputs = str(("N", *result.output.shape[1:]))
    shapes = str({name: value.shape for name, value in result.gradient.items()})
    return {
        "the loss": (state, "that it does not state" if result.scale is None else repr(loss)),
        "quantities": (digest(quantities), repr(list(result.quantities))),
        "outputs": (outputs, outputs),
        "parameters": (shapes, shapes),
    }


def _without(quantity: Quantity, names: tuple[str, ...]) -> Quantity:
    """Return a quantity without what belongs to a batch."""
    shared = copy(quantity) if names else quantity
    for name in names:
        vars(shared).pop(name, None)
    return shared
