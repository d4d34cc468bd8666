"""Diagnose a failed claim: try the edits of the grammar, the smallest first, and keep what holds on fresh samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np

from gbackprop.base.threads import one_blas_thread
from gbackprop.calculus.layer import Leaf, leaves_of
from gbackprop.quantities import Quantity
from gbackprop.testing.claims import Claims
from gbackprop.testing.complex_steps import passes
from gbackprop.testing.diagnosis.arguments import Change, of_arrays, of_definitions, on_probe, on_subject
from gbackprop.testing.diagnosis.arrays import ENTRIES
from gbackprop.testing.diagnosis.care import inherited, of_care, of_methods, wrapped
from gbackprop.testing.diagnosis.deadline import Deadline, limited_memory
from gbackprop.testing.diagnosis.options import of_defaults, of_leaves, of_options, with_option, with_parameter
from gbackprop.testing.diagnosis.relations import ZERO, Found, Relations
from gbackprop.testing.diagnosis.rewriting import mends, rewritten
from gbackprop.testing.diagnosis.terms import scalars_of
from gbackprop.testing.diagnosis.trials import (
    BATCHES,
    Check,
    Sides,
    Trial,
    holds,
    largest,
    met,
    parts_of,
    sides,
    trials_of,
)
from gbackprop.testing.likelihood import COVARIES, FOLLOWS
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.probe import Probe, is_container
from gbackprop.testing.report import Proposal, Report

TRIALS = 3
"""The number of trials on which a claim fails and an edit must hold."""

MOST, CLOSE = 3, 0.5
"""The number of edits that are proposed, and by how much more than the cheapest they may cost."""

SECONDS = 2.5
"""The seconds of the processor after which no further edit is tried, of arrays and of the source each."""

BREAKING, LEFT = 0.4, 0.1
"""By how much more an edit costs with which another claim fails, and with which one still does that failed before."""

ROUNDABOUT = 0.45
"""By how much more it costs to say what would have to be given for a result to be right."""

NAMED = 1.2
"""The cost of edits up to which the source is not looked at."""

AXES = 0.25
"""The cost that is added to that of other axes of the whole, which may be a slip in an index."""

ALONE = "samples do not interact"
"""The claim of a method that is looked at if another one of it has no better diagnosis."""

SMALL = 0.01
"""The largest option that may be 0 so that a factor has a name."""

SYMMETRIC = "is symmetric"
"""The claim that compares a result with its own transpose: that their axes are exchanged says nothing."""

MERGED = "merged results"
"""The first words of claims on a quantity's rule of merging, which say nothing of its formula."""

CONDUCT = ("interact", "memory", "float32", "pure", MERGED)
"""Words of claims that compare a method with itself: care comes first."""


def diagnose(check: Check, subject: Any, method: str, claim: str) -> tuple[Proposal, ...]:
    """Return the cheapest edits with which a claim holds on fresh samples, at most three.

    `check` adds the rows of a subject with the random numbers that it is given.
    """
    with one_blas_thread(), limited_memory(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = _Search(check, subject, method, claim)
        found = search.found() if len(search.trials) > 1 else []
        if not found and any(name.startswith("input ") for trial in search.trials for name in trial.parts):
            search.take([replace(trial, whole=True) for trial in search.trials])
            found = search.found()
        if all(each.words.startswith(ZERO) for each in found):  # columns that are the same for all may hide what it is
            other = _Search(check, subject, method, ALONE)
            better = other.relations.search("multiples", "changed") if len(other.trials) > 1 else []
            search, found = (other, better) if better else (search, found)
    ranked = list({each.words: each for each in sorted(found, key=lambda each: each.cost)}.values())
    batches = tuple(trial.size for trial in search.trials if trial.size and trial.evaluation.arguments)
    counted = search.trials if batches else search.trials[:1]  # without samples it may be the same thrice
    points = sum(want.size for trial in counted for _, want in trial.parts.values())
    kept = [each for each in ranked[:MOST] if each.cost <= ranked[0].cost + CLOSE]
    return tuple(Proposal(each.words, batches, points) for each in kept)


def diagnosed(title: str, required: Collection[str], check: Check, subject: Any, rng: Any) -> Report:
    """Return the report of a check of a subject, whose failures can be diagnosed."""
    claims = Claims(title, required, why=partial(diagnose, check, subject))
    check(claims, subject, np.random.default_rng(rng))
    return claims.report


CHANCE = "its sign alone", "clipped to"
"""Words of edits that hold for columns of zeros and ones whatever positive numbers these are multiplied by."""


class _Search:
    """A failed claim, its trials, and the kinds of edits that are tried."""

    def __init__(self, check: Check, subject: Any, method: str, claim: str) -> None:
        self.check, self.subject, self.method, self.claim = check, subject, method, claim
        self.deadline = Deadline(SECONDS)
        trials = list(islice(trials_of(check, subject, method, claim), TRIALS))
        other = trials[0].with_other_reduction(check, subject, method, claim) if trials else None
        if trials and (both := claim.removesuffix(", of the sum").removesuffix(", of the mean")) != claim:
            other = met(check, subject, method, both, BATCHES[-1], len(BATCHES))
        others = [] if other is None else [other]
        self.sound = [trial for trial in others if holds(trial.evaluation)]
        self.take(trials if self.sound else trials + others)

    def take(self, trials: list[Trial]) -> None:
        """Go on with these trials."""
        self.trials, self.relations = trials, Relations(trials, self.deadline, self.sound)

    def found(self) -> list[Found]:
        """Return the edits of the first kind that has any; and where they may hold by `CHANCE`, those of the next."""
        if self.claim == SYMMETRIC or self.method in getattr(getattr(self.probe, "layer", None), "parameters", {}):
            return []  # the latter's claim is on the function: that it is linear in a parameter
        if self.claim.startswith(MERGED):
            return [*filter(None, self.optional())]
        related = self.relations.search
        simple = partial(related, "multiples", "joined", "at_places", "changed", "moved", "quantities", "added")
        of_source = lambda: self.rewrites  # noqa: E731
        kinds: list[Callable[[], Any]] = [
            self.careful, self.nonlinear, simple,
            self.called, self.redefined, self.apart, self.inherited, self.placed,
            of_source, lambda: related("terms"),
            self.simplified, self.ignored, self.optional, lambda: related("compounds"),
        ]  # fmt: skip
        found = list[Found]()
        is_subject = self.trials[0].evaluation.arguments and not hasattr(self.subject, "__matmul__")
        if not is_subject:
            kinds = [simple, of_source]  # others need a layer, loss or quantity
        if self.claim == FOLLOWS:
            kinds = [of_source, self.careful]  # others need both sides of a comparison
        for kind in kinds:
            found += list(filter(None, kind()))
            if not all(any(word in each.words for word in CHANCE) for each in found) or self.deadline.passed:
                break
        if min((each.cost + AXES * ("right with this: axes" in each.words) for each in found), default=np.inf) <= NAMED:
            return found
        others = self.optional() if isinstance(self.subject, Quantity) else ()  # its statistics
        return [*found, *self.rewrites, *filter(None, others)]

    @property
    def probe(self) -> Any:
        """The probe among the claim's arguments."""
        return next((a for a in self.trials[0].evaluation.arguments if isinstance(a, (Probe, LossProbe))), None)

    def careful(self) -> Iterator[Found]:
        """Edits of the method itself."""
        if self.method == "constant_jacobian":
            yield Found(1, "right if constant_jacobian were False")
        conduct = any(word in self.claim for word in CONDUCT)
        judged = self.relations.wrong and not conduct
        if (judged and self.method != "curvature") or self._holds(wrapped(self.method)):
            return  # or the claim is not on that method
        for cost, words, change in of_care(self.method, self.probe, conduct):
            if self.deadline.passed:
                return
            if self._holds(change) and ("float32" not in self.claim or mends(self.trials, self.sound, change)):
                yield Found(cost, f"right if {words}")

    def nonlinear(self) -> Iterator[Found]:
        """Yield functions that a method that should be linear takes of the columns, or of its result."""
        calls = [trial.evaluation.arguments for trial in self.trials] if self.claim == "is linear" else []
        of: dict[str, Callable[..., Any]] = {
            "the columns": lambda change, f, m: ((f(change(m)), f(m)), (change(m), m)),
            "what it gives": lambda change, f, m: ((change(f(m)), f(m)), (change(-2 * f(m)), -2 * f(m))),
        }
        for name, words in ((name, words) for name in of for words in ENTRIES if calls):
            pairs = [of[name](ENTRIES[words], *each) for each in calls]
            if all(np.array_equal(*same) and not np.array_equal(*other) for same, other in pairs):
                yield Found(1.5, f"right without this, of {name}: {words}")

    def called(self) -> Iterator[Found | None]:
        """Edits of the arguments: what is got is right for others, or others give what is right."""
        arguments = self.trials[0].evaluation.arguments
        edits = chain(of_arrays(arguments), of_methods(self.method, arguments)) if self.relations.wrong else ()
        for cost, words, change in edits:
            if self.deadline.passed:
                return
            there = _once(lambda t, c=change: parts_of(sides(t.at(c))))
            yield from (self._right(cost, words, there), self._ignored(cost, words, there))

    def apart(self) -> Iterator[Found | None]:
        """Yield sums over columns, samples or positions of what is got, or expected, of each alone."""
        columns = getattr(self.probe, "columns", None)
        several = range(0 if columns is None else columns.ndim)
        kinds = {(0,): "column", (1,): "sample", tuple(several[3:]): "position", tuple(several[2:-1]): "position"}
        for axes, kind in kinds.items() if self.relations.wrong and several else ():
            words = f"it were asked for of each {kind} alone, and summed"
            if axes and not self.deadline.passed:
                summed = _once(lambda t, axes=axes: _summed_apart(t, axes))
                yield from (self._ignored(1.5, words, summed), self._right(1.5, words, summed))

    @cached_property
    def rewrites(self) -> list[Found]:
        """Edits of the source; the time for others starts again where these end."""
        begun = Deadline(0)
        drawn = any(trial.compared is not None and trial.compared.draws for trial in self.trials)
        wanted = [want for trial in self.trials for _, want in trial.parts.values()]
        judged = self.relations.wrong and not drawn and any(map(largest, wanted))  # where many an edit holds by chance
        judged = judged and not any(word in self.claim for word in (*CONDUCT, "form"))
        of_draws = self.claim in (FOLLOWS, COVARIES[1])
        trials = [*self.quicker, *self.trials] if judged or of_draws else []
        seconds = SECONDS * (1 + (self.claim == FOLLOWS))  # of draws nothing else is searched
        method = "draw" if of_draws else self.method
        found = [*rewritten(trials, self.sound, method, seconds, self._breaking)]
        self.deadline.put_off(begun)
        return found

    @property
    def quicker(self) -> list[Trial]:
        """Trials of a claim on draws that is evaluated more quickly; none if targets are listed."""
        trial = met(self.check, self.subject, "hessian_sqrt_mc", COVARIES[1], 0, 0) if self.claim == FOLLOWS else None
        return [] if trial is None else [trial]

    def inherited(self) -> Iterator[Found | None]:
        """Yield the definition in place of a Jacobian's own method."""
        if "." in self.method and self.relations.wrong:
            there = _once(lambda t: parts_of(sides(t.at(wrapped(self.method, inherited)))))
            yield self._right(1.6, "it were the inherited one", there)

    def redefined(self) -> Iterator[Found | None]:
        """Yield other definitions of a reduction of Jᵀg."""
        for cost, words, change in of_definitions(self.trials[0].evaluation.arguments) if self.relations.wrong else ():
            yield self._ignored(cost, words, _once(lambda t, c=change: parts_of(sides(t.at(c)))))

    def placed(self) -> Iterator[Found | None]:
        """Edits of the layers of a network, whose function is another than it should be."""
        layer = getattr(self.probe, "layer", None)
        if self.method != "forward" or not self.relations.wrong or layer is None or not is_container(layer):
            return
        sizes = [size for size in scalars_of(layer).values() if size > 0]
        numbers = {one / other for one in sizes for other in (1, *sizes)} - {1.0}
        for cost, words, leaves in of_leaves(leaves_of(layer, self.probe.x.shape[1:]), numbers):
            if self.deadline.passed:
                return
            yield self.relations.held(
                lambda t, n, leaves=leaves: (_output(leaves, t), t.parts[n][1]), f"right if {words}{{and c}}", cost
            )

    def simplified(self) -> Iterator[Found]:
        """Yield edits that hold where a small constant, such as ε, is 0."""
        small = [name for name, size in scalars_of(self.subject).items() if 0 < size <= SMALL and name.isidentifier()]
        for name in small:
            change = partial(with_option, name, 0.0)
            found = [met(self.check, change(self.subject), self.method, self.claim, trial.batch, trial.seed)
                     for trial in self.trials]  # fmt: skip
            trials = [trial for trial in found if trial is not None and not holds(trial.evaluation)]
            if len(trials) > 1 and len(trials) == len(self.trials):
                related = Relations(trials, self.deadline).search("multiples", "joined", "terms")
                yield from (Found(each.cost + 1, f"with {name} = 0, {each.words}") for each in related)

    def ignored(self) -> Iterator[Found | None]:
        """Yield parameters, and options that have not their default, that have no effect on the function."""
        layer = getattr(self.probe, "layer", None)
        name, _, method = self.method.rpartition(".")
        if method == "per_sample" and not any(largest(t.parts[n][1]) for t in self.trials for n in t.parts):
            yield Found(2.5, f"the parameter {name} has no effect on forward")
        if self.method not in ("forward", "values"):
            return
        own = getattr(layer, "parameters", {})
        changes = {f"parameter {name}": partial(with_parameter, name, lambda v: 1.5 * v + 0.5) for name in own}
        for words, change in (changes | dict(of_defaults(self.subject))).items():
            changed = _once(lambda t, c=change: parts_of(sides(t.at(on_subject(c)))))
            pairs = [(changed(t), t.parts) for t in self.trials]
            if all(a and all(np.array_equal(a[n][0], b[n][0]) for n in a) for a, b in pairs):
                yield Found(2.5, f"the {words} has no effect")

    def optional(self) -> Iterator[Found | None]:
        """Edits of the options and parameters of the subject."""
        for cost, words, change in of_options(self.subject) if self.method != "draw" else ():  # as is the density
            if self.deadline.passed:
                return
            if not self.relations.wrong:
                if self._holds(on_subject(change)):
                    yield Found(cost, f"right if {words}")
                continue
            inside = _once(lambda t, c=change: parts_of(sides(t.at(on_subject(c)))))
            yield self._right(cost, words, inside)
            if self.method != "forward":  # what that should be is not the subject's
                yield self._ignored(cost, words, _once(lambda t, c=change: self._elsewhere(t, c)))

    # ------------------------------------------------------------------------------------------------------ evaluation

    def _holds(self, change: Change) -> bool:
        """Return whether the claim holds in all trials at arguments that are changed."""
        try:
            return all(holds(trial.at(change), if_not_given=False) for trial in self.trials)
        except Exception:  # an edit that does not fit
            return False

    def _breaking(self, edit: Callable[[Any], Any]) -> float:
        """Return by how much more an edit costs for claims that fail of the subject with it: others, or as before."""
        try:
            edited = edit(self.subject)
        except Exception:  # of which there are no copies of another class
            return 0.0
        if edited is self.subject:
            return 0.0
        left = self._failures(edited)
        return BREAKING if not left <= self.failures else LEFT * bool(left)

    @cached_property
    def failures(self) -> set[tuple[str, str]]:
        """The claims that fail."""
        return self._failures(self.subject)

    def _failures(self, subject: Any) -> set[tuple[str, str]]:
        rows = diagnosed("", [], self.check, subject, 0).failures
        return {(row.method, row.claim) for row in rows}

    def _elsewhere(self, trial: Trial, change: Callable[[Any], Any]) -> Sides:
        """Return both sides in a check of another subject with the same samples."""
        found = met(self.check, change(self.subject), self.method, self.claim, trial.batch, trial.seed)
        return found.parts if found is not None else {}

    def _right(self, cost: float, words: str, parts: Callable[[Trial], Sides]) -> Found | None:
        """Compare what is got elsewhere with what is expected here."""
        rule = lambda t, n: (parts(t)[n][0], t.parts[n][1])  # noqa: E731
        return self.relations.held(rule, f"right if {words}{{and c}}", cost, True)

    def _ignored(self, cost: float, words: str, parts: Callable[[Trial], Sides]) -> Found | None:
        """Compare what is got here with what is expected elsewhere."""
        rule = lambda t, n: (t.parts[n][0], parts(t)[n][1])  # noqa: E731
        return self.relations.held(rule, f"what is got would be right if {words}{{and c}}", cost + ROUNDABOUT, True)


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


def _summed_apart(trial: Trial, axes: tuple[int, ...]) -> Sides:
    """Return both sides for the columns at each place along some axes alone, summed."""
    shape = next(part.columns.shape for part in trial.evaluation.arguments if isinstance(part, Probe))
    own = [size if axis in axes else 1 for axis, size in enumerate(shape)]
    places = np.arange(prod(own)).reshape(own)
    changes = (on_probe("columns", lambda mat, i=i: mat * (places == i)) for i in range(places.size))
    each = [parts_of(sides(trial.at(change))) for change in changes]
    return {name: tuple(sum(part[name][side] for part in each) for side in (0, 1)) for name in each[0]}


def _output(leaves: list[Leaf], trial: Trial) -> np.ndarray:
    """Compute the output of a network's layers at the batch of a trial."""
    (probe,) = (part for part in trial.evaluation.arguments if isinstance(part, Probe))
    return list(passes(leaves, probe.x))[-1].output
