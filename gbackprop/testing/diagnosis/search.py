"""Diagnose a failed claim: try the edits of the grammar, the smallest first, and keep what holds on fresh samples."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from gbackprop.calculus.layer import Layer
from gbackprop.testing.diagnosis.calls import Arguments, of_arrays, of_care, of_options, untouched, with_subject
from gbackprop.testing.diagnosis.relations import Found, Relations
from gbackprop.testing.diagnosis.terms import arrays_of, quantities_of, sizes_of
from gbackprop.testing.diagnosis.trials import TRIALS, Check, Trial, holds, met, parts_of, trials_of
from gbackprop.testing.probe import Probe, is_container
from gbackprop.testing.report import Proposal

MOST = 3
"""The number of edits that are proposed."""

NEAR = 0.5
"""By how much more than the cheapest an edit may cost that is proposed beside it."""

SECONDS = 4.0
"""The time after which no further edit is tried."""


def diagnose(check: Check, subject: Any, method: str, claim: str) -> tuple[Proposal, ...]:
    """Return the cheapest edits with which a claim holds on fresh samples, at most three.

    `check` adds the rows of a subject with the samples and random numbers that it is given.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = Search(check, subject, method, claim)
        if len(search.trials) < 2:
            return ()
        stages = (search.related, search.called, search.termed, search.ignored, search.optional)
        if is_container(subject) if isinstance(subject, Layer) else False:
            stages = (*stages[:2], search.ignored, search.optional, search.termed)
        for stage in (search.declared, search.careful, *stages):
            found = [each for each in stage() if each is not None]
            if found or perf_counter() > search.deadline:
                break
    kept = list({each.words: each for each in sorted(found, key=lambda each: each.cost)}.values())
    kept = [each for each in kept if each.cost <= kept[0].cost + NEAR]
    return tuple(Proposal(each.words, each.edit, *_evidence(search.trials)) for each in kept[:MOST])


class Search:
    """A failed claim, its trials, and the kinds of edits that are tried."""

    def __init__(self, check: Check, subject: Any, method: str, claim: str) -> None:
        self.check, self.subject, self.method, self.claim = check, subject, method, claim
        self.deadline = perf_counter() + SECONDS
        self.trials = list(islice(trials_of(check, subject, method, claim), TRIALS))
        for trial in self.trials[1:]:  # of which a size may be in the name
            if set(trial.parts) != set(self.trials[0].parts) and len(trial.parts) == len(self.trials[0].parts):
                vars(trial)["parts"] = dict(zip(self.trials[0].parts, trial.parts.values(), strict=True))
        arguments = [trial.evaluation.arguments for trial in self.trials]
        sizes = [{"N": trial.size, **sizes_of(trial.evaluation.arguments)} for trial in self.trials]
        terms = [arrays_of(given) for given in arguments]
        others = [quantities_of(trial.evaluation.arguments, trial.parts) for trial in self.trials]
        self.relations = Relations(self.trials, sizes, terms, others, self.deadline)

    @property
    def conduct(self) -> bool:
        """Whether the claim has not two sides, or two of the same method."""
        return not self.relations.wrong or "interact" in self.claim or "memory" in self.claim or "float32" in self.claim

    def related(self) -> list[Found]:
        """Edits of the result."""
        return self.relations.search(("_multiples", "_identified", "_others", "_changed", "_added"))

    def called(self) -> Iterator[Found | None]:
        """Edits of the arguments: what is got is right for others, or others give what is right."""
        if self.relations.wrong:
            for edit in of_arrays(self.trials[0].evaluation.arguments):
                yield from self._at(edit.words, edit.name, edit.cost, edit.change)

    def termed(self) -> list[Found]:
        """Edits by terms, and two edits in turn."""
        return self.relations.search(("_terms", "_twice"))

    def careful(self) -> Iterator[Found | None]:
        """Edits of the method."""
        arguments = self.trials[0].evaluation.arguments
        if not self.conduct or self._holds(untouched(self.method)):
            return
        for edit in of_care(arguments, self.method):
            if self._holds(edit.change):
                yield Found(edit.cost, f"right if {edit.words}", edit.name)

    def optional(self) -> Iterator[Found | None]:
        """Edits of options and parts."""
        for words, cost, change in of_options(self.subject):
            if perf_counter() > self.deadline:
                return
            inside = with_subject(change)
            if not self.relations.wrong:
                if self._holds(inside):
                    yield Found(cost, f"right if {words}", "option")
                continue
            yield from self._at(words, "option", cost, inside, given=False)
            if self.method != "forward":  # that of a reference does not change
                yield from self._elsewhere(words, cost, change)

    def ignored(self) -> Iterator[Found | None]:
        """Parameters that have no effect."""
        if self.method != "forward" or not self.relations.wrong:
            return
        layer = next((part.layer for part in self.trials[0].evaluation.arguments if isinstance(part, Probe)), None)
        for name in layer.parameters if layer is not None else ():
            same = True
            for trial in self.trials:
                found = trial.edited(with_subject(partial(moved, name))(trial.evaluation.arguments))
                same = same and found is not None and all(
                    np.array_equal(found_got, trial.parts[part][0])
                    for part, (found_got, _) in parts_of(found.got, found.want).items()
                )  # fmt: skip
            if same:
                yield Found(2.5, f"the parameter {name} has no effect", "ignored")

    def declared(self) -> Iterator[Found | None]:
        """Edits of what a layer says of itself."""
        for name, values in {"curvature": ("zero", "diagonal", "dense"), "constant_jacobian": (False,)}.items():
            if name == self.method:
                for value in values:
                    def change(arguments: Arguments, name: str = name, value: Any = value) -> Arguments:
                        return with_subject(lambda layer: _declaring(layer, name, value))(arguments)

                    gone = name == "constant_jacobian"
                    if gone or self._holds(change):
                        yield Found(1, f"right if {name} = {value!r}", "declaration")

    # ------------------------------------------------------------------------------------------------------ evaluation

    def _holds(self, change: Callable[[Arguments], Arguments]) -> bool:
        for trial in self.trials:
            try:
                arguments = change(trial.evaluation.arguments)
            except Exception:  # an edit that does not fit
                return False
            if not holds(replace(trial.evaluation, arguments=arguments)):
                return False
        return True

    def _at(
        self, words: str, name: str, cost: float, change: Callable[[Arguments], Arguments], given: bool = True
    ) -> Iterator[Found | None]:
        """Compare what is got with what is expected for other arguments, and the other way round."""
        made: dict[int, dict[str, Any]] = {}

        def parts(trial: Trial) -> dict[str, Any]:
            if id(trial) not in made:
                try:
                    found = trial.edited(change(trial.evaluation.arguments))
                    made[id(trial)] = parts_of(found.got, found.want) if found is not None else {}
                except Exception:  # an edit that does not fit
                    made[id(trial)] = {}
            return made[id(trial)]

        if not parts(self.trials[0]):
            return
        yield self.relations.held(lambda t, n: (parts(t)[n][0], t.parts[n][1]), f"right if {words}{{and c}}", name, cost)
        if given:
            ignored = f"what is got is right for {words}{{and c}}"
            yield self.relations.held(lambda t, n: (t.parts[n][0], parts(t)[n][1]), ignored, name, cost + 0.1)

    def _elsewhere(self, words: str, cost: float, change: Callable[[Any], Any]) -> Iterator[Found | None]:
        """Compare what is got with what is expected of another subject, in a check of its own."""
        made: dict[int, dict[str, Any]] = {}

        def parts(trial: Trial) -> dict[str, Any]:
            if id(trial) not in made:
                made[id(trial)] = {}
                try:
                    found = met(self.check, change(self.subject), self.method, self.claim, trial.batch, trial.seed)
                except Exception:
                    return {}
                made[id(trial)] = found.parts if found is not None else {}
            return made[id(trial)]

        ignored = f"what is got is right for {words}{{and c}}"
        yield self.relations.held(lambda t, n: (t.parts[n][0], parts(t)[n][1]), ignored, "option", cost + 0.1)


def moved(name: str, layer: Any) -> Any:
    twin = copy.deepcopy(layer)
    value = twin.parameters[name]
    twin.parameters.put(name, value * 1.5 + 0.5) if is_container(twin) else twin.parameters.__setitem__(name, value * 1.5 + 0.5)
    return twin


def _declaring(layer: Any, name: str, value: Any) -> Any:
    twin = copy.copy(layer)
    setattr(twin, name, value)
    return twin


def _evidence(trials: list[Trial]) -> tuple[tuple[int, ...], int]:
    """Return the sizes of the batches, and how many numbers were compared."""
    return tuple(trial.size for trial in trials), sum(want.size for trial in trials for _, want in trial.parts.values())
