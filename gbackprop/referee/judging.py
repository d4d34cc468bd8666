"""The run of all problems, relations and symmetries on one adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from gbackprop.referee.definitions import DEFINITIONS, RELATIONS, Brute
from gbackprop.referee.problems import BATCHES, FAMILIES, Problem, problems
from gbackprop.referee.verdicts import VERDICTS, Case, Finding, checked, verdict

Adapter = Mapping[str, Callable[[Problem], Any]]


def judge(adapter: Adapter, families: Iterable[str] = FAMILIES) -> list[Finding]:
    """Judge all that an adapter has.

    Parameters
    ----------
    adapter : mapping of str to callable
        Names of `DEFINITIONS`; each callable takes a `Problem` and returns arrays by parameter, or one array where the
        definition is of all parameters. An exception is the verdict "refused", None or a missing parameter "silent".
    families : iterable of str, optional
        The kinds of networks.

    Returns
    -------
    list of Finding
        One for each quantity and claim: a family's name for the definition, then relations and symmetries.

    Raises
    ------
    ValueError
        If there is no definition or no family of such a name.
    """
    families = list(families)
    for what, names, known in (("adapter", adapter, DEFINITIONS), ("families", families, FAMILIES)):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"{what}: expected names in {', '.join(known)}, got {', '.join(map(repr, unknown))}")
    cells: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for family in families:
        for group in problems(family):
            for name, claim, where, word, detail in _Group(adapter, group).findings():
                cells.setdefault((name, claim), []).append((word, detail, where))
    order = product(adapter, dict.fromkeys(claim for _, claim in cells))
    return [_merged(*key, cells[key]) for key in order if key in cells]


class _Group:
    """The problems of one network and loss, with what an adapter returns for them: "mean" first, then "sum"."""

    def __init__(self, adapter: Adapter, group: list[Problem]) -> None:
        self.adapter, self.problems, self.brutes = adapter, group, list(map(Brute, group))
        self.halves = [slice(0, len(BATCHES)), slice(len(BATCHES), None)]

    def findings(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield quantity, claim, where, verdict and detail."""
        answers: dict[str, list[Any]] = {}
        for name, half in product(self.adapter, self.halves):
            definition, at, first = DEFINITIONS[name], self.problems[half], self.problems[half.start]
            wanted = list(map(definition.values, self.brutes[half]))
            found = [self.ask(name, *pair) for pair in zip(at, wanted, strict=True)]
            bad = next(((word, why) for word, why in found if word), None)
            got = [arrays for _, arrays in found]
            yield name, first.family, str(first), *(bad or self.compare(name, at, got, wanted))
            if bad:
                continue
            answers.setdefault(name, []).extend(got)
            for claim, moved, expected, size in () if definition.drawn else self.moves(name, first, got[0]):
                word, after = self.ask(name, moved, expected)
                case = Case(after, expected, dict.fromkeys(expected, (1, 1, 1, size)))
                yield name, claim, str(first), *((word, after) if word else _proportional(verdict([case])))
        for (name, other), (claim, relation) in RELATIONS.items():
            for half in self.halves if len(answers.get(name, ())) == len(answers.get(other, ())) > 0 else ():
                pairs = self.problems[half], answers[name][half], [relation(got) for got in answers[other][half]]
                yield name, "relations", f"{claim}; {pairs[0][0]}", *self.compare(name, *pairs)
        for name, got in answers.items():
            if len(got) == len(self.problems) and not DEFINITIONS[name].drawn:
                pairs = self.problems[self.halves[0]], got[self.halves[1]], got[self.halves[0]]
                yield name, "sum and mean", str(self.problems[0]), *_proportional(self.compare(name, *pairs))

    def ask(self, name: str, problem: Problem, want: Mapping[str, np.ndarray]) -> tuple[str, Any]:
        """Return "" and the arrays of an adapter, or a verdict and the reason."""
        try:
            return checked(self.adapter[name](problem), want, DEFINITIONS[name].drawn)
        except Exception as error:  # whatever a library raises is its verdict
            return "refused", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"

    def compare(self, name: str, at: list[Problem], got: list[Any], want: list[Any]) -> tuple[str, str]:
        """Return the verdict on results for several batch sizes."""
        pairs = zip(at, got, want, strict=True)
        drawn = DEFINITIONS[name].drawn
        return verdict([Case(g, w, {key: problem.sizes(key) for key in w}, drawn) for problem, g, w in pairs])

    def moves(self, name: str, first: Problem, got: Any) -> Iterator[tuple[str, Problem, Any, float]]:
        """Yield the symmetries: the claim, the problem, what is expected up to powers of a number, and this number."""
        x, y, definition = first.x, first.y, DEFINITIONS[name]
        order, twice = np.roll(np.arange(len(x)), 2), np.tile(np.arange(len(x)), 2)
        for claim, rows, size in (("permuted", order, 1.0), ("repeated", twice, 2.0)):
            expected = got
            for axis in range(definition.samples):
                expected = {key: np.take(value, rows, axis) for key, value in expected.items()}
            yield claim, replace(first, x=x[rows], y=y[rows]), expected, size
        if not definition.labels:
            yield "labels", replace(first, y=y[order]), got, 1.0


def _proportional(found: tuple[str, str]) -> tuple[str, str]:
    """Return a verdict on a symmetry, which holds up to powers of the sizes: a convention has its own."""
    return ("right", "") if found[0] == "factor" else found


def _merged(quantity: str, claim: str, pieces: list[tuple[str, str, str]]) -> Finding:
    """Return the worst verdict of a cell, with the reasons for it and where each was found."""
    word = max((piece[0] for piece in pieces), key=VERDICTS.index)
    reasons: dict[str, list[str]] = {}
    for other, detail, where in pieces:
        if other == word and detail:
            reasons.setdefault(detail, []).append(where)
    shown = []
    for detail, where in reasons.items():
        every = [place for _, _, place in pieces]
        for part in ("mean", "sum", "MSELoss", "CrossEntropyLoss"):
            if where == [place for place in every if part in place]:
                where = [part]
        shown.append(detail if where == every else f"{detail} ({where[0]}{', …' * (len(where) > 1)})")
    return Finding(quantity, claim, word, "; ".join(shown[:4]))
