"""The run of all problems, relations and symmetries on one adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from gbackprop.testing.referee.formulas import DEFINITIONS, Brute, Definition
from gbackprop.testing.referee.posed import BATCHES, FAMILIES, Problem, problems
from gbackprop.testing.referee.verdicts import VERDICTS, Answer, Verdict, checked, verdict

Adapter = Mapping[str, Callable[[Problem], Any]]
Found = tuple[str, str]
Row = tuple[str, str, Problem, Found]
HALVES = (slice(0, len(BATCHES)), slice(len(BATCHES), None))
"""The problems with "mean", and those with "sum"."""


_ROLLED = lambda n: np.roll(np.arange(n), 2)  # noqa: E731
_TWICE = lambda n: np.tile(np.arange(n), 2)  # noqa: E731
MOVES: dict[str, tuple[Callable[[int], np.ndarray], Callable[[int], np.ndarray], float]] = {
    "permuted": (_ROLLED, _ROLLED, 0.0),
    "repeated": (_TWICE, _TWICE, 0.0),
    "labels": (np.arange, _ROLLED, 0.0),
    "shifted": (np.arange, np.arange, 1.5),
}
"""Symmetries by name: the samples and labels that are taken of N, and a constant that is added to all logits."""


def judge(
    adapter: Adapter,
    families: Iterable[str] = FAMILIES,
    definitions: Mapping[str, Definition] = DEFINITIONS,
    brute: Callable[[Problem], Any] = Brute,
) -> list[Verdict]:
    """Judge all that an adapter has.

    Parameters
    ----------
    adapter : mapping of str to callable
        By names of `definitions`; each takes a `Problem` and returns arrays by parameter, or one array where the
        definition is of all parameters. An exception is the verdict "refused", a missing array "silent".
    families : iterable of str, optional
        The kinds of networks.
    definitions : mapping of str to Definition, optional
        The formulas.
    brute : callable, optional
        Makes of a `Problem` what the formulas are computed from.

    Returns
    -------
    list of Verdict
        One for each quantity and claim: a family's name for the definition, "relations", and symmetries.

    Raises
    ------
    TypeError, ValueError
        If there is no definition or no family of such a name, or an adapter's function is none or gives no numbers.
    """
    families = list(families)
    for what, names, known in (("adapter", adapter, definitions), ("families", families, FAMILIES)):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"{what}: expected names in {', '.join(known)}, got {', '.join(map(repr, unknown))}")
    for name, function in adapter.items():
        if not callable(function):
            raise TypeError(f"adapter: expected a function for {name!r}, got {type(function).__name__}")
    cells: dict[tuple[str, str], list[tuple[Problem, Found]]] = {}
    for group in (group for family in families for group in problems(family)):
        for name, claim, problem, found in _Group(adapter, definitions, group).rows(list(map(brute, group))):
            cells.setdefault((name, claim), []).append((problem, found))
    order = product(adapter, dict.fromkeys(claim for _, claim in cells))
    return [_merged(key, cells[key]) for key in order if key in cells]


class _Group:
    """The problems of one network and loss."""

    def __init__(self, adapter: Adapter, definitions: Mapping[str, Definition], group: list[Problem]) -> None:
        self.adapter, self.definitions, self.problems = adapter, definitions, group

    def rows(self, brutes: list[Any]) -> Iterator[Row]:
        """Yield quantity, claim, the first problem, and the verdict with its reason."""
        answers: dict[str, list[Any]] = {}
        for name, half in product(self.adapter, HALVES):
            definition, own, first = self.definitions[name], brutes[half], self.problems[half.start]
            wanted = list(map(definition.values, own))
            if not wanted[0]:  # not defined for this family
                continue
            asked = [self.ask(name, *each) for each in zip(self.problems[half], wanted, strict=True)]
            failed = next(((word, why) for word, why in asked if word), None)
            got = [arrays for _, arrays in asked]
            yield name, first.family, first, failed or self.by_convention(definition, half, got, own)
            if not failed:
                answers.setdefault(name, []).extend(got)
                if not definition.drawn:
                    yield from self.symmetries(name, first, got[0])
        for name, got in answers.items():
            if len(got) < len(self.problems) or self.definitions[name].drawn:
                continue
            other, relation = self.definitions[name].relation or ("", dict)
            for half in HALVES if len(answers.get(other, ())) == len(got) else ():
                found = self.compare(half, got[half], list(map(relation, answers[other][half])))
                yield name, "relations", self.problems[half.start], _proportional(found)
            found = self.compare(HALVES[0], got[HALVES[1]], got[HALVES[0]])
            yield name, "sum and mean", self.problems[0], _proportional(found)

    def by_convention(self, definition: Definition, half: slice, got: list[Any], brutes: list[Any]) -> Found:
        """Return the verdict by the definition, or by the first of its other conventions that holds."""
        found = self.compare(half, got, list(map(definition.values, brutes)), definition.drawn)
        for words, values in definition.others.items() if found[0] == "wrong" else ():
            word, factor = self.compare(half, got, list(map(values, brutes)), definition.drawn)
            if word != "wrong":
                return "factor", f"{words} {factor}".strip()
        return found

    def compare(self, half: slice, got: list[Any], want: list[Any], drawn: bool = False) -> Found:
        """Return the verdict on the results for several batch sizes."""
        each = zip(self.problems[half], got, want, strict=True)
        return verdict([Answer(g, w, {name: problem.sizes(name) for name in w}, drawn) for problem, g, w in each])

    def ask(self, name: str, problem: Problem, want: Mapping[str, np.ndarray]) -> tuple[str, Any]:
        """Return "" and the arrays of an adapter, or a verdict and the reason."""
        try:
            answer = self.adapter[name](problem)
        except Exception as error:  # whatever a library raises is its verdict
            return "refused", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        try:
            return checked(answer, want, self.definitions[name].drawn)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None

    def symmetries(self, name: str, first: Problem, got: Mapping[str, np.ndarray]) -> Iterator[Row]:
        """Yield what must not change, or by one number for the whole network, when batch or network do."""
        definition, n = self.definitions[name], len(first.x)
        bias = list(first.parameters)[-1]
        for claim, (take, relabel, shift) in MOVES.items():
            if (claim == "labels" and definition.labels) or (shift and first.loss != "CrossEntropyLoss"):
                continue
            rows, expected = take(n), got
            for axis in range(definition.samples):
                expected = {key: np.take(value, rows, axis) for key, value in expected.items()}
            moved = {**first.parameters, bias: first.parameters[bias] + shift}
            changed = replace(first, x=first.x[rows], y=first.y[relabel(n)], parameters=moved)
            word, after = self.ask(name, changed, expected)
            pair = Answer(after, expected, {key: {"k": len(rows) / n} for key in expected})
            yield name, claim, first, (word, after) if word else _proportional(verdict([pair], {1.0: 0.0}))


def _proportional(found: Found) -> Found:
    """Return the verdict on a relation or symmetry, which holds up to powers of the sizes: conventions differ."""
    return ("right", "") if found[0] == "factor" else found


def _merged(key: tuple[str, str], pieces: Sequence[tuple[Problem, Found]]) -> Verdict:
    """Return the worst verdict of a cell, with the reasons for it and where each was found."""
    worst = max((word for _, (word, _) in pieces), key=VERDICTS.index)
    reasons: dict[str, list[str]] = {}
    for problem, (word, why) in pieces:
        if word == worst and why:
            reasons.setdefault(why, []).append(f"{problem.loss} {problem.reduction}")
    every, shown = [f"{problem.loss} {problem.reduction}" for problem, _ in pieces], []
    for why, where in reasons.items():
        parts = ("mean", "sum", "MSELoss", "CrossEntropyLoss")
        words = next((part for part in parts if where == [w for w in every if part in w]), "")
        words = words or ", ".join(dict.fromkeys(where))
        shown.append(why if where == every else f"{why} ({words})")
    return Verdict(*key, worst, "; ".join(shown[:4]))
