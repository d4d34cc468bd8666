"""Search for an edit of a result: both sides of a claim are arrays, and one becomes the other by a change that has a name.

Each relation is a rule that makes two arrays a and b of both sides, of which one is a multiple of the other: a · c = b.
It holds if it does so for every part of the result that is wrong, in every trial, and if the constant has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement
from time import perf_counter

import numpy as np

from gbackprop.testing.diagnosis.arrays import Operation, operations
from gbackprop.testing.diagnosis.embedding import library
from gbackprop.testing.diagnosis.numbers import Sizes, factor_words, recognized
from gbackprop.testing.diagnosis.terms import Terms
from gbackprop.testing.diagnosis.trials import Trial, largest

Two = tuple[np.ndarray, np.ndarray]
Rule = Callable[[Trial, str], Two]
"""What makes a and b of a part in a trial."""

LARGE = 200_000
"""Entries of a result up to which two changes in turn are tried."""

SCREENED = 96
"""Entries of a result that terms are first compared at."""


@dataclass(frozen=True)
class Found:
    """A relation that holds."""

    cost: float
    words: str
    edit: str


@dataclass
class Relations:
    """The trials of a claim, and what its arrays are related to."""

    trials: Sequence[Trial]
    sizes: Sequence[Sizes]
    terms: Sequence[Terms]
    others: Sequence[dict[str, Terms]]  # for each part
    deadline: float
    wrong: list[str] = field(init=False)

    def __post_init__(self) -> None:
        names = [name for trial in self.trials for name in trial.wrong()]
        self.wrong = list(dict.fromkeys(names))

    # ------------------------------------------------------------------------------------------------------ the search

    def search(self, kinds: Sequence[str]) -> list[Found]:
        """Return what holds, of the first kinds of relations of which any does."""
        shaped = all(name in trial.parts for trial in self.trials for name in self.wrong)
        if not self.wrong or not shaped:
            return []
        first = self.trials[0].parts[self.wrong[0]][0]
        if all(largest(trial.parts[name][1]) == 0 for trial in self.trials for name in self.wrong):
            zero = all(largest(t.parts[n][0].sum(0)) < 1e-9 * t.scale[n] for t in self.trials for n in self.wrong)
            return [Found(2, "right if the mean over axis 0 were not subtracted", "centered")] * zero
        changes = operations(first.shape)
        for kind in kinds:
            found = [each for each in getattr(self, kind)(changes) if each is not None]
            found = found or self._apart(kind)
            if found:
                return sorted(found, key=lambda each: each.cost)
            if perf_counter() > self.deadline:
                break
        return []

    def _apart(self, kind: str) -> list[Found]:
        """Return an edit for each of a few parts, if there is one for each."""
        wrong, found = self.wrong, []
        if not 1 < len(wrong) <= 8 or kind not in ("_multiples", "_others", "_changed", "_added"):
            return []
        for name in wrong:
            self.wrong = [name]
            changes = operations(self.trials[0].parts[name][0].shape)
            own = [each for each in getattr(self, kind)(changes) if each is not None]
            found += [min(own, key=lambda each: each.cost)] if own else []
        self.wrong = wrong
        if len(found) < len(wrong):
            return []
        return [Found(sum(each.cost for each in found), "; ".join(each.words for each in found), found[0].edit)]

    def _identified(self, changes: list[Operation]) -> Iterator[Found | None]:
        """What is got is a sum, difference or product of two arrays that have a name, and what is expected another."""
        ways: dict[str, Callable[..., np.ndarray]] = {"·": np.multiply, "+": np.add, "−": np.subtract}
        known = [dict(list(terms.items())[:14]) for terms in self.terms]
        pairs = [(a, b, way) for a, b in combinations_with_replacement(known[0], 2) for way in ways]
        index = {id(trial): i for i, trial in enumerate(self.trials)}

        def said(side: int) -> Found | None:
            for a, b, way in pairs:
                def rule(trial: Trial, name: str, a: str = a, b: str = b, way: str = way) -> Two:
                    given, result = known[index[id(trial)]], trial.parts[name][side]
                    made = ways[way](given[a], given[b])
                    return made.reshape(result.shape), result

                found = self.held(rule, f"{a} {way} {b}{{and c}}", "identified", 2.5)
                if found is not None:
                    return found
            return None

        got = said(0)
        want = said(1) if got is not None else None
        if got is not None and want is not None:
            yield Found(2.5, f"right if it were {want.words}: it is {got.words}", "identified")

    def _multiples(self, changes: list[Operation]) -> Iterator[Found | None]:
        if all(largest(t.parts[name][0]) == 0 for t in self.trials for name in self.wrong if name in t.wrong()):
            yield Found(1.5, "left out: what is got is 0 everywhere" + self._where(), "left out")
            return
        yield self.held(lambda t, n: t.parts[n], "right if {c}", "factor", 0.0)
        yield self._each_its_own()

    def _changed(self, changes: list[Operation]) -> Iterator[Found | None]:
        for op in changes:
            yield self._missing(op)
            yield self._superfluous(op)

    def _same(self, op: Operation, side: int) -> bool:
        """Return whether a change does nothing but multiply by a number, or nothing at all."""
        for trial in self.trials:
            for name in self.wrong:
                array = trial.parts[name][side]
                try:
                    changed = op.change(array)
                    factor = (changed * array).sum() / ((array * array).sum() or 1.0)
                except (ValueError, IndexError, np.exceptions.AxisError):
                    return True
                if changed.shape != array.shape or largest(changed - factor * array) > 1e-9 * largest(array):
                    return False
        return True

    def _missing(self, op: Operation) -> Found | None:
        if self._same(op, 0):
            return None

        def rule(trial: Trial, name: str) -> Two:
            got, want = trial.parts[name]
            return op.change(got), want

        return self.held(rule, f"right with this: {op.words}{{and c}}", op.name, op.cost)

    def _superfluous(self, op: Operation) -> Found | None:
        if op.bijective or self._same(op, 1):
            return None

        def rule(trial: Trial, name: str) -> Two:
            got, want = trial.parts[name]
            return got, op.change(want)

        return self.held(rule, f"right without this: {op.words}{{and c}}", op.name, op.cost)

    def _added(self, changes: list[Operation]) -> Iterator[Found | None]:
        """A multiple of a change of the result is missing or too much."""
        same = Operation("one", "1", 0.5, np.ones_like)
        for op in [same, *changes]:
            for side, title in ((0, "got"), (1, "expected")):
                if (op is same and side) or (op is not same and self._same(op, side)):
                    continue

                def rule(trial: Trial, name: str, side: int = side, op: Operation = op) -> Two:
                    got, want = trial.parts[name]
                    return op.change(trial.parts[name][side]), want - got

                what = "" if op is same else f" what is {title}: {op.words}"
                yield self.held(rule, f"right if {{c}}{what} were added", "term", op.cost + 1.5, nice=op is not same)

    def _twice(self, changes: list[Operation]) -> Iterator[Found | None]:
        """Two changes in turn."""
        first = self.trials[0].parts[self.wrong[0]][0]
        cheap = [op for op in changes if op.cost <= 1.5]
        if first.size > LARGE:
            return
        for one in cheap:
            for other in cheap:
                if perf_counter() > self.deadline:
                    return

                def rule(trial: Trial, name: str, one: Operation = one, other: Operation = other) -> Two:
                    got, want = trial.parts[name]
                    return other.change(one.change(got)), want

                def back(trial: Trial, name: str, one: Operation = one, other: Operation = other) -> Two:
                    got, want = trial.parts[name]
                    return one.change(got), other.change(want)

                words = f"{one.words}, then {other.words}"
                yield self.held(rule, f"right with this: {words}{{and c}}", one.name, one.cost + other.cost)
                if not other.bijective and other.name != "another order":
                    continue
                yield self.held(back, f"right with this: {one.words}, and without this: {other.words}{{and c}}",
                                one.name, one.cost + other.cost)  # fmt: skip

    # -------------------------------------------------------------------------------------------------------- verified

    def held(self, rule: Rule, words: str, edit: str, cost: float, nice: bool = True) -> Found | None:
        """Return a relation if it holds in all trials with a constant that has a name; `nice`, if it must."""
        constants = []
        for trial in self.trials:
            each = self._constants(trial, rule)
            if each is None:
                return None
            if each:
                constants.append(each)
        if not constants or any(np.ptp(list(each.values())) > 1e-6 * abs(next(iter(each.values()))) for each in constants):
            return None
        values = [float(next(iter(each.values()))) for each in constants]
        added = "{c}" in words and "added" in words
        known = (recognized if added else factor_words)(values, self.sizes, self._tolerance)
        if known is None or (known[0] >= 8 and nice and edit != "factor"):
            return None
        much, said = known
        if all(abs(value - 1) < 1e-9 for value in values) and not added:
            much, said, joined = 0.0, "", ""
        else:
            joined = f", {said}"
        return Found(cost + much, words.format_map({"c": said, "and c": joined}) + self._where(), edit)

    @property
    def _tolerance(self) -> float:
        return max(1e-9, 10 * max(trial.tolerance for trial in self.trials))

    def _constants(self, trial: Trial, rule: Rule) -> dict[str, float] | None:
        """Return c of each part that is wrong, or None if a · c is not b in one of them."""
        found = {}
        for name in self.wrong:
            got, want = trial.parts[name]
            if largest(got) == largest(want) == 0:
                continue
            try:
                with np.errstate(all="ignore"):
                    a, b = rule(trial, name)
                    if a.shape != b.shape:
                        return None
                    constant = float((a * b).sum() / (a * a).sum())
            except (ValueError, IndexError, KeyError, np.exceptions.AxisError):
                return None
            if not np.isfinite(constant) or constant == 0 or not trial.near(name, constant * a, b):
                return None
            found[name] = constant
        return found

    def _each_its_own(self) -> Found | None:
        """Multiples that differ between parts, each with a name."""
        rule: Rule = lambda t, n: t.parts[n]  # noqa: E731
        each = [self._constants(trial, rule) for trial in self.trials]
        if any(constants is None or set(constants) != set(self.wrong) for constants in each):
            return None
        words, cost = [], 2.0
        for name in self.wrong:
            own = [trial.compared.sizes.get(name.partition("/")[0], {}) if trial.compared else {} for trial in self.trials]
            sizes = [{**first, **rest} for first, rest in zip(own, self.sizes, strict=True)]
            known = factor_words([constants[name] for constants in each if constants], sizes, self._tolerance)
            if known is None or known[0] >= 8:
                return None
            words.append((name, known[1]))
            cost += known[0] / len(self.wrong)
        alike = {said.partition(" = ")[0] for _, said in words}
        if len(alike) == 1:
            return Found(cost - 1, f"right if {alike.pop()}{self._where()}", "factor")
        return Found(cost, "right if " + ", ".join(f"{name} {said}" for name, said in words), "factor")

    def _where(self) -> str:
        """Say which parts are wrong, if not all are."""
        if len(self.wrong) == len(self.trials[0].parts) or not any(self.wrong):
            return ""
        return f", in {', '.join(self.wrong[:3])}" + (" …" if len(self.wrong) > 3 else "")

    # ----------------------------------------------------------------------------------------------------------- terms

    def _others(self, changes: list[Operation]) -> Iterator[Found | None]:
        """What is got is another quantity, or differs by one."""
        names = {name: list(self.others[0].get(name, {})) for name in self.wrong}
        common = [term for term in names[self.wrong[0]] if all(term in terms for terms in names.values())]
        index = {id(trial): i for i, trial in enumerate(self.trials)}

        def of(trial: Trial, name: str, term: str) -> np.ndarray:
            return np.broadcast_to(self.others[index[id(trial)]][name][term], trial.parts[name][0].shape)

        for term in common:
            yield self.held(lambda t, n, term=term: (t.parts[n][0], of(t, n, term)),
                            f"what is got is {term}{{and c}}, and not what is expected", "another quantity", 2)  # fmt: skip
            yield self.held(lambda t, n, term=term: (of(t, n, term), t.parts[n][1] - t.parts[n][0]),
                            f"right if {{c}} times {term} were added", "term", 3)  # fmt: skip
            yield self.held(lambda t, n, term=term: (t.parts[n][1] - of(t, n, term), t.parts[n][1] - t.parts[n][0]),
                            f"right if {{c}} times what is expected beyond {term} were added", "term", 3)  # fmt: skip

    def _terms(self, changes: list[Operation]) -> Iterator[Found | None]:
        """Factors and terms that are products of arrays that have a name, and of functions of them."""
        if len(self.wrong) > 6:
            return
        name = self.wrong[0]
        views = [library(terms, trial.parts[name][0].shape) for terms, trial in zip(self.terms, self.trials)]
        for edit, words, cost, rule in screened(self.trials[0].parts[name], views[0]):
            index = {id(trial): i for i, trial in enumerate(self.trials)}

            def made(trial: Trial, part: str, rule: Callable[..., Two] = rule) -> Two:
                got, want = trial.parts[part]
                own = views[index[id(trial)]] if got.shape == trial.parts[name][0].shape else {}
                return rule(got, want, own)

            yield self.held(made, words, edit, cost, nice=edit == "term")


def screened(sides: Two, views: Terms) -> Iterator[tuple[str, str, float, Callable[..., Two]]]:
    """Yield rules that hold at some entries: a factor for another, a term that is a product of two or three."""
    got, want = sides
    where = np.flatnonzero((got != 0) | (want != 0))
    where = where[np.linspace(0, len(where) - 1, min(SCREENED, len(where))).astype(int)]
    if len(where) < 3:
        return
    g, w = got.ravel()[where], want.ravel()[where]
    names = [name for name, view in views.items() if np.isfinite(view).all()]
    rows = np.stack([np.broadcast_to(views[name], got.shape).ravel()[where] for name in names])
    alike = _firsts(rows)
    names, rows = [names[i] for i in alike], rows[alike]
    costs = np.array([_cost(name) for name in names])
    yield from _ranked(_factors(g, w, rows), costs, names)
    yield from _ranked(_products(g, w, rows, names), costs, names)


def _firsts(rows: np.ndarray) -> list[int]:
    """Return the indices of rows that no earlier one is a multiple of."""
    size = np.linalg.norm(rows, axis=1)
    units = rows / np.where(size > 0, size, 1)[:, None]
    near = np.abs(units @ units.T) > 1 - 1e-12
    return [i for i in range(len(rows)) if size[i] > 0 and not near[i, :i].any()]


def _cost(name: str) -> float:
    return 0.0 if name == "1" else 0.5 + 0.1 * sum(name.count(sign) for sign in "(²|√") + 0.02 * len(name)


def _cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the squares of sines between rows, small where they are multiples of each other."""
    with np.errstate(all="ignore"):
        return 1 - (left @ right.T) ** 2 / ((left**2).sum(1)[:, None] * (right**2).sum(1))


def _factors(g: np.ndarray, w: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Yield pairs of terms a, b with got · a proportional to expected · b."""
    for a, b in zip(*np.nonzero(_cosines(g * rows, w * rows) < 1e-11), strict=True):
        yield -1, int(a), int(b)


def _products(g: np.ndarray, w: np.ndarray, rows: np.ndarray, names: list[str]) -> Iterator[tuple[int, ...]]:
    """Yield terms a, b, c whose product, times 1, got, or expected, is proportional to what is missing."""
    missing = w - g
    for side, m in enumerate((np.ones_like(g), g, w)):
        few = len(rows) if side == 0 else min(len(rows), 400)
        for c in [-1, *range(few if len(rows) < 200 else 40)]:
            weight = m if c < 0 else m * rows[c]
            left, right = weight * rows, rows
            dots = (left * missing) @ right.T
            norms = (left**2) @ (right**2).T * (missing**2).sum()
            with np.errstate(all="ignore"):
                sines = 1 - dots**2 / norms
            for a, b in zip(*np.nonzero(sines < 1e-11), strict=True):
                if a <= b and (c < 0 or b <= c):
                    yield (side, int(a), int(b)) if c < 0 else (side, int(a), int(b), c)


def _ranked(
    found: Iterator[tuple[int, ...]], costs: np.ndarray, names: list[str]
) -> Iterator[tuple[str, str, float, Callable[..., Two]]]:
    """Yield the cheapest dozen of what was screened, as rules in words."""
    every = sorted(found, key=lambda each: sum(costs[i] for i in each[1:]))[:12]
    for side, *which in every:
        terms, cost = [names[i] for i in which], float(sum(costs[i] for i in which))
        product = " · ".join(term for term in terms if term != "1") or "1"
        if side < 0:
            a, b = terms
            ways = [f"multiplied by {a}"] * (a != "1") + [f"divided by {b}"] * (b != "1")
            if not ways:
                continue
            yield "factor", f"right if {' and '.join(ways)}{{and c}}", 1 + cost, _factor(a, b)
        else:
            times = ("", " times what is got", " times what is expected")[side]
            yield "term", f"right if {{c}} · {product}{times} were added", 1.5 + cost + side, _term(side, terms)


def _factor(a: str, b: str) -> Callable[..., Two]:
    def rule(got: np.ndarray, want: np.ndarray, views: Terms) -> Two:
        if ((views[b] == 0) & ((got != 0) | (want != 0))).any():
            raise ValueError("nothing is divided by 0")
        return got * views[a], want * views[b]

    return rule


def _term(side: int, terms: list[str]) -> Callable[..., Two]:
    def rule(got: np.ndarray, want: np.ndarray, views: Terms) -> Two:
        product = (np.ones_like(got), got, want)[side]
        for term in terms:
            product = product * views[term]
        return product, want - got

    return rule
