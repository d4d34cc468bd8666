"""The run of all problems, relations and symmetries on one adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from gbackprop.testing.referee.formulas import DEFINITIONS, Brute, Definition
from gbackprop.testing.referee.posed import BATCHES, FAMILIES, Problem, problems
from gbackprop.testing.referee.verdicts import VERDICTS, Judged, Verdict, checked, verdict

Adapter = Mapping[str, Callable[[Problem], Any]]
Found = tuple[str, str]
Row = tuple[str, str, Problem, Found]
HALVES = (slice(0, len(BATCHES)), slice(len(BATCHES), None))
"""The problems with "mean", and those with "sum"."""


def judge(
    adapter: Adapter, families: Iterable[str] = FAMILIES, definitions: Mapping[str, Definition] = DEFINITIONS,
    brute: Callable[[Problem], Any] = Brute,
) -> list[Verdict]:  # fmt: skip
    """Judge all that an adapter has.

    Parameters
    ----------
    adapter : mapping of str to callable
        By names of `definitions`; each takes a `Problem` and returns arrays by parameter, or one array where the
        definition is of all parameters. An exception is the verdict "refused", a missing array "silent".
    families : iterable of str, optional
    definitions : mapping of str to Definition, optional
    brute : callable, optional
        Makes of a `Problem` what the definitions are computed from.

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
    if wrong := [name for name, function in adapter.items() if not callable(function)]:
        raise TypeError(f"adapter: expected a function for {wrong[0]!r}, got {type(adapter[wrong[0]]).__name__}")
    cells: dict[tuple[str, str], list[tuple[Problem, Found]]] = {}
    for group in (group for family in families for group in problems(family)):
        for name, claim, problem, found in _Group(adapter, definitions, group).rows(list(map(brute, group))):
            related = claim not in FAMILIES and found[0] == "factor"  # right up to one, as conventions differ
            cells.setdefault((name, claim), []).append((problem, ("right", "") if related else found))
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
            yield name, first.family, first, failed or self.by_convention(definition, half, got, wanted, own)
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
                yield name, "relations", self.problems[half.start], found
            found = self.compare(HALVES[0], got[HALVES[1]], got[HALVES[0]])
            yield name, "sum and mean", self.problems[0], found

    def by_convention(self, definition: Definition, half: slice, got: Any, want: Any, brutes: Any) -> Found:
        """Return the verdict by the definition, or by the first of its other conventions that holds."""
        found = self.compare(half, got, want, definition.drawn)
        for words, values in definition.others.items() if found[0] == "wrong" else ():
            word, factor = self.compare(half, got, list(map(values, brutes)), definition.drawn)
            if word != "wrong":
                return "factor", f"{words} {factor}".strip()
        return found

    def compare(self, half: slice, got: list[Any], want: list[Any], drawn: bool = False) -> Found:
        """Return the verdict on the results for several batch sizes."""
        each = zip(self.problems[half], got, want, strict=True)
        return verdict([Judged(g, w, {name: problem.sizes(name) for name in w}, drawn) for problem, g, w in each])

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
        n, (*_, bias) = len(first.x), first.parameters
        same, rolled, twice = np.arange(n), np.roll(np.arange(n), 2), np.tile(np.arange(n), 2)
        moves = {"permuted": (rolled, rolled, 0.0), "repeated": (twice, twice, 0.0)}
        moves |= {} if self.definitions[name].labels else {"labels": (same, rolled, 0.0)}
        moves |= {"shifted": (same, same, 1.5)} if first.loss == "CrossEntropyLoss" else {}  # all logits, by a constant
        for claim, (rows, labels, shift) in moves.items():
            expected = got
            for axis in range(self.definitions[name].samples):
                expected = {key: np.take(value, rows, axis) for key, value in expected.items()}
            moved = {**first.parameters, bias: first.parameters[bias] + shift}
            word, after = self.ask(name, replace(first, x=first.x[rows], y=first.y[labels], parameters=moved), expected)
            pair = Judged(after, expected, {key: {"k": len(rows) / n} for key in expected})
            yield name, claim, first, (word, after) if word else verdict([pair], {1.0: 0.0})


def _merged(key: tuple[str, str], pieces: Sequence[tuple[Problem, Found]]) -> Verdict:
    """Return the worst verdict of a cell, with the reasons for it and where each was found."""
    worst = max((word for _, (word, _) in pieces), key=VERDICTS.index)
    places, shown = [f"{problem.loss} {problem.reduction}" for problem, _ in pieces], []
    for why in dict.fromkeys(why for _, (word, why) in pieces if word == worst and why):
        where = [place for place, (_, found) in zip(places, pieces, strict=True) if found == (worst, why)]
        parts = ("", "mean", "sum", "MSELoss", "CrossEntropyLoss")  # "" is in all
        fitting = (part for part in parts if where == [each for each in places if part in each])
        words = next(fitting, ", ".join(dict.fromkeys(where)))
        shown.append(f"{why} ({words})" if words else why)
    return Verdict(*key, worst, "; ".join(shown[:4]))
