"""Diagnose a failed claim: try the edits of the grammar, the smallest first, and keep what holds on fresh samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from gbackprop.calculus.layer import INPUT, Layer, Leaf, leaves_of
from gbackprop.calculus.walk import upwards
from gbackprop.testing.diagnosis.calls import Change, of_arrays, of_care, of_leaves, of_options, on_subject, wrapped
from gbackprop.testing.diagnosis.relations import Found, Relations
from gbackprop.testing.diagnosis.terms import scalars_of
from gbackprop.testing.diagnosis.trials import Check, Sides, Trial, holds, met, parts_of, sides, trials_of
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.probe import Probe, is_container
from gbackprop.testing.report import Proposal

TRIALS = 3
"""The number of trials on which a claim fails and an edit must hold."""

MOST, CLOSE = 3, 0.5
"""The number of edits that are proposed, and by how much more than the cheapest they may cost."""

SECONDS = 3.5
"""The time after which no further edit is tried."""

CONDUCT = ("interact", "memory", "float32")
"""Words of claims that compare a method with itself: care comes first."""


def diagnose(check: Check, subject: Any, method: str, claim: str) -> tuple[Proposal, ...]:
    """Return the cheapest edits with which a claim holds on fresh samples, at most three.

    `check` adds the rows of a subject with the random numbers that it is given.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = _Search(check, subject, method, claim)
        found = search.found() if len(search.trials) > 1 else []
    ranked = list({each.words: each for each in sorted(found, key=lambda each: each.cost)}.values())
    batches = tuple(trial.size for trial in search.trials)
    points = sum(want.size for trial in search.trials for _, want in trial.parts.values())
    kept = [each for each in ranked[:MOST] if each.cost <= ranked[0].cost + CLOSE]
    return tuple(Proposal(each.words, each.edit, batches, points) for each in kept)


class _Search:
    """A failed claim, its trials, and the kinds of edits that are tried."""

    def __init__(self, check: Check, subject: Any, method: str, claim: str) -> None:
        self.check, self.subject, self.method, self.claim = check, subject, method, claim
        self.deadline = perf_counter() + SECONDS
        self.trials = list(islice(trials_of(check, subject, method, claim), TRIALS))
        self.relations = Relations(self.trials, self.deadline)

    def found(self) -> list[Found]:
        """Return the edits of the first kind that has any."""
        related = self.relations.search
        kinds: list[Callable[[], Any]] = [
            self.careful, lambda: related("multiples", "joined", "changed", "quantities", "added"), self.called,
            self.placed, lambda: related("terms"), self.ignored, self.optional, lambda: related("twice"),
        ]  # fmt: skip
        for kind in kinds:
            found = list(filter(None, kind()))
            if found or perf_counter() > self.deadline:
                return found
        return []

    @property
    def probe(self) -> Any:
        """The probe among the claim's arguments."""
        return next((a for a in self.trials[0].evaluation.arguments if isinstance(a, (Probe, LossProbe))), None)

    def careful(self) -> Iterator[Found]:
        """Edits of the method itself."""
        if self.method == "constant_jacobian":
            yield Found(1, "right if constant_jacobian were False", "declaration")
        judged = self.relations.wrong and not any(word in self.claim for word in CONDUCT)
        if (judged and self.method != "curvature") or self._holds(wrapped(self.method)):
            return  # or the claim is not on that method
        for cost, words, change in of_care(self.method, self.probe):
            if self._holds(change):
                yield Found(cost, f"right if {words}", "care")

    def called(self) -> Iterator[Found | None]:
        """Edits of the arguments: what is got is right for others, or others give what is right."""
        for cost, words, change in of_arrays(self.trials[0].evaluation.arguments) if self.relations.wrong else ():
            if perf_counter() > self.deadline:
                return
            yield from self._either(cost, words, "arguments", _once(lambda t, c=change: parts_of(sides(t.at(c)))))

    def placed(self) -> Iterator[Found | None]:
        """Edits of the layers of a network, whose function is another than it should be."""
        layer = getattr(self.probe, "layer", None)
        if self.method != "forward" or not self.relations.wrong or layer is None or not is_container(layer):
            return
        sizes = [size for size in scalars_of(layer).values() if size > 0]
        numbers = {one / other for one in sizes for other in (1, *sizes)} - {1.0}
        for cost, words, leaves in of_leaves(leaves_of(layer, self.probe.x.shape[1:]), numbers):
            if perf_counter() > self.deadline:
                return
            yield self.relations.held(
                lambda t, n, leaves=leaves: (_output(leaves, t), t.parts[n][1]), f"right if {words}{{and c}}", cost
            )

    def ignored(self) -> Iterator[Found | None]:
        """Parameters that have no effect on the function."""
        layer = getattr(self.probe, "layer", None)
        for name in layer.parameters if isinstance(layer, Layer) and self.method == "forward" else ():
            pairs = [(parts_of(sides(t.at(on_subject(partial(_moved, name))))), t.parts) for t in self.trials]
            if all(a and all(np.array_equal(a[n][0], b[n][0]) for n in a) for a, b in pairs):
                yield Found(2.5, f"the parameter {name} has no effect", "ignored")

    def optional(self) -> Iterator[Found | None]:
        """Edits of the options and parameters of the subject."""
        for cost, words, change in of_options(self.subject):
            if perf_counter() > self.deadline:
                return
            if not self.relations.wrong:
                if self._holds(on_subject(change)):
                    yield Found(cost, f"right if {words}", "option")
                continue
            inside = _once(lambda t, c=change: parts_of(sides(t.at(on_subject(c)))))
            yield self._right(cost, words, "option", inside)
            if self.method != "forward":  # what that should be is not the subject's
                yield self._ignored(cost, words, "option", _once(lambda t, c=change: self._elsewhere(t, c)))

    # ------------------------------------------------------------------------------------------------------ evaluation

    def _holds(self, change: Change) -> bool:
        """Return whether the claim holds in all trials at arguments that are changed."""
        try:
            return all(holds(trial.at(change)) for trial in self.trials)
        except Exception:  # an edit that does not fit
            return False

    def _elsewhere(self, trial: Trial, change: Callable[[Any], Any]) -> Sides:
        """Return both sides in a check of another subject with the same samples."""
        found = met(self.check, change(self.subject), self.method, self.claim, trial.batch, trial.seed)
        return found.parts if found is not None else {}

    def _either(self, cost: float, words: str, edit: str, parts: Callable[[Trial], Sides]) -> Iterator[Found | None]:
        yield self._right(cost, words, edit, parts)
        yield self._ignored(cost, words, edit, parts)

    def _right(self, cost: float, words: str, edit: str, parts: Callable[[Trial], Sides]) -> Found | None:
        """Compare what is got elsewhere with what is expected here."""
        rule = lambda t, n: (parts(t)[n][0], t.parts[n][1])  # noqa: E731
        return self.relations.held(rule, f"right if {words}{{and c}}", cost, True, edit)

    def _ignored(self, cost: float, words: str, edit: str, parts: Callable[[Trial], Sides]) -> Found | None:
        """Compare what is got here with what is expected elsewhere."""
        rule = lambda t, n: (t.parts[n][0], parts(t)[n][1])  # noqa: E731
        return self.relations.held(rule, f"what is got would be right if {words}{{and c}}", cost + 0.1, True, edit)


def _once(find: Callable[[Trial], Sides]) -> Callable[[Trial], Sides]:
    """Return the same function, evaluated once for each trial; nothing where an edit does not fit."""
    made: dict[int, Sides] = {}

    def found(trial: Trial) -> Sides:
        if trial.seed not in made:
            try:
                made[trial.seed] = find(trial)
            except Exception:  # an edit may be nonsense
                made[trial.seed] = {}
        return made[trial.seed]

    return found


def _output(leaves: list[Leaf], trial: Trial) -> np.ndarray:
    """Compute the output of a network's layers at the batch of a trial."""
    (probe,) = (part for part in trial.evaluation.arguments if isinstance(part, Probe))
    at = {INPUT: probe.x}
    for leaf, inputs in upwards(leaves, at):
        at[leaf.position] = leaf.layer.forward(*inputs)[0]
    return at[leaves[-1].position]


def _moved(name: str, layer: Layer) -> Any:
    """Return a copy of a layer with another value of a parameter."""
    import copy

    twin = copy.deepcopy(layer)
    twin.parameters[name][...] = 1.5 * twin.parameters[name] + 0.5
    return twin
