"""Edits of a result: both sides of a claim are arrays, and one becomes the other by a change that has a name.

A relation is a rule that makes two arrays a and b of both sides, of which one is a multiple of the other: a · c = b. It
holds if it does so for every part of the result that is wrong, in every trial, and if the constant c has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, combinations_with_replacement

import numpy as np

from gbackprop.testing.diagnosis.arrays import ENTRIES, ArrayOperation, operations
from gbackprop.testing.diagnosis.deadline import Deadline
from gbackprop.testing.diagnosis.numbers import OPPOSITE, UNNAMED, factor, recognized
from gbackprop.testing.diagnosis.screening import Two, compounds, screened
from gbackprop.testing.diagnosis.terms import Terms, basic, library, plain
from gbackprop.testing.diagnosis.trials import Trial, largest

ALIKE = 0.25
"""The further cost of a function of entries that shows in their signs alone: of these, many a function is the same."""

Rule = Callable[[Trial, str], Two]
"""A function that makes a and b of a part in a trial."""

MOST_PARTS = 12
"""The number of wrong parts among which exchanged ones are looked for."""

JOINED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"·": np.multiply, "+": np.add, "−": np.subtract}

NOTHING = 1e-10
"""The size, beside both sides of a claim, of arrays made of these that say nothing."""

ZERO = "left out: what is got is 0 everywhere"
"""The words of a result of zeros, that say nothing of what is left out."""


@dataclass(frozen=True)
class Found:
    """An edit that holds."""

    cost: float
    words: str


class Relations:
    """Both sides of a claim in all trials, and what they are related by."""

    def __init__(self, trials: Sequence[Trial], deadline: Deadline, sound: Sequence[Trial] = ()) -> None:
        self.trials, self.deadline, self.sound = trials, deadline, sound  # where the claim holds, and must go on to
        self.wrong = list(dict.fromkeys(name for trial in trials for name in trial.wrong()))
        self.views: dict[tuple[int, str], Terms] = {}

    def search(self, *kinds: str) -> list[Found]:
        """Return the edits of the first of some kinds that has any: for all that is wrong, else for each part."""
        if all(trial.compared is not None and trial.compared.draws for trial in self.trials):
            return list(filter(None, [self.drawn()])) if "multiples" in kinds else []
        exchanged = list(self.exchanged()) if "multiples" in kinds else []
        if exchanged or not self.wrong:
            return exchanged or (list(filter(None, self.shaped())) if "multiples" in kinds else [])
        if any(name not in trial.parts for trial in self.trials for name in self.wrong):
            return []
        if not any(largest(trial.parts[name][1]) for trial in self.trials for name in self.wrong):
            kinds = ("zeros",)  # any multiple of what is got would do
        for kind in kinds:
            found = list(filter(None, getattr(self, kind)())) or self._apart(kind)
            if found or self.deadline.passed:
                return found
        return []

    def _apart(self, kind: str) -> list[Found]:
        """Return an edit for each of a few parts, if there is one for each."""
        wrong, found = self.wrong, []
        for name in wrong if 1 < len(wrong) <= 8 and kind in ("multiples", "quantities", "changed", "added") else ():
            self.wrong = [name]
            found.append(min(filter(None, getattr(self, kind)()), key=lambda each: each.cost, default=None))
            if found[-1] is None:
                break
        self.wrong, each = wrong, [one for one in found if one is not None]
        if len(each) < len(wrong):
            return []
        return [Found(sum(one.cost for one in each), "; ".join(one.words for one in each))]

    def changes(self) -> Iterator[ArrayOperation]:
        """Yield the changes of an array of the shape of what is wrong, until there is no time left."""
        for change in operations(self.trials[0].parts[self.wrong[0]][0].shape):
            if self.deadline.passed:
                return
            yield change

    # ------------------------------------------------------------------------------------------------------- the rules

    def zeros(self) -> Iterator[Found | None]:
        """Yield relations of parts of which 0 is expected: a constant too much, or what a mean was of."""
        yield self.held(lambda t, n: (np.ones_like(t.parts[n][0]), -t.parts[n][0]), "right if {k} were added", 2, True)
        every = [trial.parts[name][0] for trial in self.trials for name in self.wrong]
        for axis in range(min(got.ndim for got in every)):
            if all(largest(got.sum(axis)) < 1e-9 * largest(got) for got in every):
                yield Found(2, f"right if the mean over axis {axis} were not subtracted")

    def shaped(self) -> Iterator[Found | None]:
        """Yield relations of a result of another shape, that lacks an axis of what is expected."""
        misfits = [trial.misfits for trial in self.trials]
        reduce: dict[str, Callable[..., np.ndarray]] = {
            "summed over": np.sum, "the mean over": np.mean, "the first along": lambda a, i: a.take(0, i)
        }
        for (words, take), axis in ((each, axis) for each in reduce.items() for axis in range(4)):
            try:
                near = [np.allclose(take(want, axis), got, 1e-8, 1e-12) and got.shape == take(want, axis).shape
                        for each in misfits for got, want in each.values()]  # fmt: skip
            except (ValueError, IndexError):
                continue
            if near and all(near):
                yield Found(2, f"right without this: {words} axis {axis}")

    def exchanged(self) -> Iterator[Found]:
        """Yield the pairs of parts of which each is what is expected of the other, if these are all that is wrong."""
        every = [trial.parts | trial.misfits for trial in self.trials]
        left, words = [*self.wrong, *(name for name in self.trials[0].misfits if name not in self.wrong)], list[str]()
        for one, other in combinations(left[:MOST_PARTS], 2):
            cross = [(parts.get(a), parts.get(b)) for parts in every for a, b in ((one, other), (other, one))]
            if {one, other} <= set(left) and all(a and b and _alike((a[0], b[1])) for a, b in cross):
                left = [name for name in left if name not in (one, other)]
                words.append(f"{one} and {other}")
        if words and not left:
            yield Found(1, f"right if {', '.join(words)} were exchanged")

    def multiples(self) -> Iterator[Found | None]:
        """A factor."""
        if not any(np.any(trial.parts[name][0]) for trial in self.trials for name in self.wrong):  # NaN is not 0
            yield Found(1.5, ZERO + self._where())
        yield self.held(lambda t, n: t.parts[n], "right if {c}", 0)

    def drawn(self) -> Found | None:
        """Return the factor of means of draws, by least squares: by its name, or with twice its standard error."""
        fits = []
        for trial in self.trials:
            mean, want, errors = (np.asarray(each) for each in trial.compared.draws)  # type: ignore[union-attr]
            precision = float(((want / errors) ** 2).sum())
            if not precision:
                return None
            number = float((mean * want / errors**2).sum()) / precision
            if not (np.abs(mean - number * want) <= trial.tolerance * errors).all():  # NaN is no number
                return None
            fits.append((number, precision))
        numbers, weights = np.array(fits).T
        found, error, allowed = np.average(numbers, weights=weights), weights.sum() ** -0.5, weights**-0.5
        if len(fits) < 2 or found <= 2 * error:
            return None
        for words, values in self._powers().items():
            if (np.abs(numbers - values) <= np.minimum(4 * allowed, 0.1 * values)).all():
                return Found(1, f"right if {words}")
        same = (np.abs(numbers - found) <= self.trials[0].tolerance * allowed).all()
        return Found(1, f"right if divided by {found:.4g} ± {2 * error:.1g}") if same else None

    def _powers(self) -> dict[str, np.ndarray]:
        """Return powers of N, M and R, those that are not 1, in each trial."""
        drawn = [{**t.sizes, **(t.compared.sizes.get("", {}) if t.compared else {})} for t in self.trials]
        sizes = {name: np.array([each[name] for each in drawn], float) for name in ("N", "M", "R")
                 if all(each.get(name, 1) not in (0, 1) for each in drawn)}  # fmt: skip
        powers: dict[str, float] = {"divided by {}": 1, "divided by √{}": 0.5, "divided by {}²": 2,
                                    "multiplied by {}": -1, "multiplied by √{}": -0.5, "multiplied by {}²": -2}
        return {words.format(name): size**power for name, size in sizes.items() for words, power in powers.items()
                if name != "M" or abs(power) == 1}  # fmt: skip  # M is the same in all trials, and √M many a constant

    def changed(self) -> Iterator[Found | None]:
        """A change that is missing, or superfluous; or a factor in a region."""
        yield from self.regions()
        for op in self.changes():
            if not self._trivial(op, 0):
                yield self.held(lambda t, n, f=op.change: (f(t.parts[n][0]), t.parts[n][1]),
                                f"right with this: {op.words}{{and c}}", op.cost)  # fmt: skip
            if not op.closed and not self._trivial(op, 1):
                yield self.held(lambda t, n, f=op.change: (t.parts[n][0], f(t.parts[n][1])),
                                f"right without this: {op.words}{{and c}}",
                                op.cost + ALIKE * self._in_signs_alone(op.words))  # fmt: skip

    def _in_signs_alone(self, words: str) -> bool:
        """Return whether a change is one of signs: an absolute value, or any function of entries of one size or 0."""
        if words not in ENTRIES or words == "its absolute value":
            return words in ENTRIES
        wanted = np.concatenate([abs(t.parts[name][1]).ravel() for t in self.trials for name in self.wrong])
        return not np.ptp(wanted[wanted > 0]) > 1e-9 * largest(wanted) if wanted.any() else False

    def moved(self) -> Iterator[Found | None]:
        """A move by one along an axis, of which the entry that comes in is not known."""
        every = [trial.parts[name] for trial in self.trials for name in self.wrong]
        for axis in range(min(got.ndim for got, _ in every)):
            first, last = ((slice(None),) * axis + (part,) for part in (slice(None, -1), slice(1, None)))
            varied = all(got.shape[axis] > 2 and not _alike((got[first], got[last])) for got, _ in every)
            for words, own, other in (("on", first, last), ("back", last, first)) if varied else ():
                yield self.held(lambda t, n, own=own, other=other: (t.parts[n][0][own], t.parts[n][1][other]),
                                f"right if axis {axis} were moved {words} by one{{and c}}", 1.6)  # fmt: skip

    def regions(self) -> Iterator[Found]:
        """Yield factors where a named condition holds, and where it does not."""
        last, name, seen = self.trials[-1], self.wrong[0], list[np.ndarray]()
        views = [(title, view) for title, view in self.library(last, name).items() if title[0] == "["]
        for title, view in sorted(views, key=lambda each: " > 0]" not in each[0]):
            if not (self.deadline.passed or any(np.array_equal(view, other) for other in seen)):
                seen.append(view)
                yield from self._of_region(title)

    def _of_region(self, title: str) -> Iterator[Found]:
        """Yield the factors where a condition holds, and where it does not, if there are any."""
        there, elsewhere = (self.held(partial(self._region, title, at), "{and c}", 1.1, True) for at in (True, False))
        if there is not None and elsewhere is not None:
            inside, outside = (each.words.removeprefix(", ") for each in (there, elsewhere))
            words = f"{inside} where {title}" if inside else f"{outside} except where {title}"
            words += f", and {outside} elsewhere" if inside and outside else ""
            words = f"right if {words}".replace("if with the other", "if it had the other")
            yield Found((there.cost + elsewhere.cost) / 2, words)

    def _region(self, title: str, at: bool, trial: Trial, name: str) -> Two:
        """Return both sides where a condition holds, or does not, and 0 elsewhere."""
        there = (self.library(trial, name)[title] != 0) == at
        got, want = trial.parts[name]
        return np.where(there, got, 0), np.where(there, want, 0)

    def at_places(self) -> Iterator[Found | None]:
        """A factor at some places along an axis, where all that is wrong stands in every trial."""
        pairs = [(trial, name) for trial in self.trials for name in self.wrong]
        for axis in range(min(trial.parts[name][0].ndim for trial, name in pairs)):
            each = [_places(trial.differing(name, *trial.parts[name]), axis) for trial, name in pairs]
            at = sorted(set().union(*each))
            row = len(at) > 2 and at == list(range(at[0], at[-1] + 1))
            where = f"{at[0]} to {at[-1]}" if row else " and ".join(map(str, at))
            yield self.held(lambda t, n, at=at, i=axis: tuple(side.take(at, i) for side in t.parts[n]),
                            f"right if {{c}}, at {where} along axis {axis} alone", 1.1)  # fmt: skip

    def added(self) -> Iterator[Found | None]:
        """A constant, or a multiple of a changed result, that is missing or too much."""
        yield self.held(lambda t, n: (np.ones_like(t.parts[n][0]), _missing(t.parts[n])), "right if {k} were added", 2)
        yield self.held(lambda t, n: (np.eye(t.parts[n][0].shape[-1]) + 0 * t.parts[n][0], _missing(t.parts[n])),
                        "right if {k} were added on the diagonal", 2, True)  # fmt: skip
        yield self.held(lambda t, n: (((t.parts[n][0] != 0) | (t.parts[n][1] != 0)) * 1.0, _missing(t.parts[n])),
                        "right if {k} were added where it is not 0", 2, True)  # fmt: skip
        for op in self.changes():
            for side, title in enumerate(("got", "expected")):
                if not self._trivial(op, side):
                    yield self.held(lambda t, n, f=op.change, s=side: (f(t.parts[n][s]), _missing(t.parts[n])),
                                    f"right if {{k}} times what is {title}, {op.words}, were added",
                                    op.cost + 1.5 + op.words.endswith("mirrored"), True)  # fmt: skip

    def quantities(self) -> Iterator[Found | None]:
        """Yield relations of a result that is another quantity, or differs by a part of one."""
        others = [] if not self.trials[0].others else list(self.trials[0].others[self.wrong[0]])
        yield self._another({other: lambda t, n, other=other: t.others[n][other] for other in others}, 2, alone=True)
        for other in others:
            if not np.ndim(self.trials[0].others[self.wrong[0]][other]):
                yield self.held(lambda t, n, other=other: (t.parts[n][0] / t.others[n][other], t.parts[n][1]),
                                f"right if divided by {other}{{and c}}", 1.5, True)  # fmt: skip
                yield self.held(lambda t, n, other=other: (t.parts[n][0] * t.others[n][other], t.parts[n][1]),
                                f"right if multiplied by {other}{{and c}}", 1.5, True)  # fmt: skip

            def of(t: Trial, n: str, other: str = other) -> np.ndarray:
                return np.broadcast_to(t.others[n][other], t.parts[n][0].shape)

            yield self.held(lambda t, n, of=of: (of(t, n), _missing(t.parts[n])),
                            f"right if {{k}} times {other} were added", 3, True)  # fmt: skip
            yield self.held(lambda t, n, of=of: (t.parts[n][1] - of(t, n), _missing(t.parts[n])),
                            f"right if {{k}} times what is expected beyond {other} were added", 3, True)  # fmt: skip

    def joined(self) -> Iterator[Found | None]:
        """Yield relations of a sum, difference or product of two named arrays where another is expected."""
        names = [name for name in self.trials[0].terms if name != "y"][:14]  # y is what is got
        both = combinations_with_replacement(names, 2)
        pairs = [(a, b, way) for a, b in both for way in JOINED if a != b or way == "·"]

        yield self._another({f"{a} {way} {b}": lambda t, n, a=a, b=b, way=way: JOINED[way](t.terms[a], t.terms[b])
                             for a, b, way in pairs}, 2.5)  # fmt: skip

    def _another(self, arrays: Mapping[str, Callable[[Trial, str], np.ndarray]], cost: float,
                 alone: bool = False) -> Found | None:
        """Return the names of both sides, as multiples of named arrays; or what is got `alone`."""
        where, names = self._where(), list[str]()
        for side in (0, 1):
            each = [self.held(lambda t, n, make=make, side=side: (
                _fitted(make(t, n), t.parts[n][side]), t.parts[n][side]
            ), words + "{and c}", cost) for words, make in arrays.items() if not self.deadline.passed]  # fmt: skip
            found = min(filter(None, each), key=lambda one: one.cost, default=None)
            if found is None:
                break
            words = found.words.removesuffix(where)
            one, turned, other = words.removesuffix(", with the other sign").partition(" − ")
            names.append(f"{other} − {one}" if turned and words.endswith("the other sign") else words)
        if len(names) == 2:
            return Found(cost, f"right if it were {names[1]}: it is {names[0]}{where}")
        return Found(cost, f"what is got is {names[0]}, and not what is expected{where}") if names and alone else None

    def terms(self) -> Iterator[Found | None]:
        """Factors and terms that are products of named arrays, and of functions of them."""
        first, name = self.trials[-1], self.wrong[0]  # of fresh samples: those given may equal a parameter by chance
        if len(self.wrong) > 6:
            return
        for term in first.terms or basic(first.others[name]):
            if term in self.library(first, name):
                yield self.held(lambda t, n, term=term: (
                    t.parts[n][0] - self.library(t, n)[term], t.parts[n][1] - self.library(t, n)[term]
                ), f"right if what it has beyond {term} were {{c}}", 2, True)  # fmt: skip
        for side, names, cost in screened(first.parts[name], self.library(first, name), self.deadline):
            product = " · ".join(each for each in names if each != "1")
            if not product and side >= 0:
                continue
            if side < 0:
                lost = names[0] == "1" and (self.library(first, name)[names[1]] == 0).any()
                by = ("multiplied by", "it were not multiplied by" if lost else "divided by")
                ways = [f"{way} {each}" for way, each in zip(by, names, strict=True) if each != "1"]
                words, sure = f"right if {' and '.join(ways)}{{and c}}", False
            else:
                of = ("", " times what is got", " times what is expected")[side]
                words, sure = f"right if {{k}} · {product}{of} were added", True
            yield self.held(lambda t, n, s=side, names=names: _applied(s, names, *t.parts[n], self.library(t, n)),  # type: ignore[call-arg]
                            words, 1 + cost + (side >= 0) * (0.5 + side), sure)  # fmt: skip

    def compounds(self) -> Iterator[Found | None]:
        """Terms that are products of four named arrays, or of some and a sum or difference of two."""
        first, name = self.trials[-1], self.wrong[0]
        if len(self.wrong) > 6 or self.deadline.passed:
            return
        views = plain(self.library(first, name), first.terms)
        same = {key: size for key, size in first.sizes.items() if all(t.sizes.get(key) == size for t in self.trials)}
        for factors, a, b, ratio, cost in compounds(first.parts[name], views):
            if self.deadline.passed:
                return
            words = " · ".join(each for each in factors if each != "1")
            if b:
                known = recognized([ratio], [same], first.precision)
                if known is None or known[0] >= UNNAMED:
                    continue
                more = known[1].partition(" = ")[0].removeprefix("-")
                joined = f"({a} {'−' if ratio < 0 else '+'} {more.removeprefix('1')}{' · ' * (more != '1')}{b})"
                words = f"{words} · {joined}" if words else joined
            yield self.held(partial(self._compound, factors, a, b, ratio), f"right if {{k}} · {words} were added",
                            2 + cost, True)  # fmt: skip

    def _compound(self, factors: Sequence[str], a: str, b: str, ratio: float, trial: Trial, name: str) -> Two:
        """Return a product of named arrays, times a + ratio b, and what is missing."""
        views, (got, want) = self.library(trial, name), trial.parts[name]
        last = views[a] + ratio * views[b] if b else np.ones_like(got)
        each = np.broadcast_arrays((got != 0) | (want != 0), last, *(views[factor] for factor in factors))
        return np.prod(each, 0), want - got

    def library(self, trial: Trial, name: str) -> Terms:
        """Return the terms at the entries of a part, the parts beside it among them."""
        key = trial.seed, name
        if key not in self.views:
            case, _, _ = name.rpartition("/")
            beside = {part.rpartition("/")[2]: want for part, (_, want) in trial.parts.items()
                      if case and part != name and part.rpartition("/")[0] == case}  # fmt: skip
            terms = trial.terms or basic(trial.others[name])
            self.views[key] = library(terms | beside, trial.parts[name][0].shape)
        return self.views[key]

    # -------------------------------------------------------------------------------------------------------- verified

    def _trivial(self, op: ArrayOperation, side: int) -> bool:
        """Return whether a change only multiplies one side by a number in all trials, or does not apply."""
        factors = []
        for trial, name in ((trial, name) for trial in self.trials for name in self.wrong):
            array = trial.parts[name][side]
            try:
                changed = op.change(array)
            except (ValueError, IndexError, TypeError):
                return True
            if changed.shape != array.shape:
                return True
            if largest(array):
                factors.append(np.nansum(changed * array) / np.nansum(array * array))
                if largest(changed - factors[-1] * array) > 1e-9 * max(largest(array), largest(changed)):
                    return False
        return np.ptp(factors or [0]) <= 1e-9 * max(map(abs, factors or [1]))

    def held(self, rule: Rule, words: str, cost: float, named: bool = False) -> Found | None:
        """Return a relation if it holds in all trials, with a constant that has a name if it must be `named`."""
        each: dict[str, list[tuple[Trial, float]]] = {}
        for trial in (*self.trials, *self.sound):
            for name in self.wrong:
                constant = self._constant(trial, name, rule)
                if constant is None:
                    return None
                if constant:
                    each.setdefault(name, []).append((trial, constant))
        tolerance = max(trial.precision for trial in self.trials)
        say = recognized if "{k}" in words else factor
        said = {}
        for name, found in each.items():
            own = [trial.compared.sizes.get(name.partition("/")[0], {}) if trial.compared else {} for trial, _ in found]
            sizes = [{**first, **trial.sizes, **first} for first, (trial, _) in zip(own, found, strict=True)]
            for named_sizes in sizes if say is recognized else ():  # the number of draws is a factor, and in no term
                named_sizes.pop("M", None)
            known = say([constant for _, constant in found], sizes, tolerance)
            if known is None or (known[0] >= UNNAMED and (named or len(found) < 2)):
                return None
            said[name] = known
        if not said:
            return None
        kinds = {text.partition(" = ")[0]: text for _, text in said.values()}
        ones = all(abs(constant - 1) < 1e-9 for found in each.values() for _, constant in found)
        apart = ", ".join(f"{text} in {name}" for name, (_, text) in said.items())
        text = kinds.popitem()[1] if len(kinds) == 1 else apart
        joined = "" if ones else ", with the other sign" if text == OPPOSITE else f", {text}"
        much = 0.0 if ones and "{k}" not in words else sum(known for known, _ in said.values()) / len(said)
        if (ones and "{c}" in words) or (len(kinds) > 1 and "{k}" in words):  # a term is the same everywhere
            return None
        words = words.format_map({"c": text, "k": text, "and c": joined})
        words += "" if text == apart and len(said) > 1 else self._where()  # each part is named already
        words = words.replace("if 1 · ", "if ").replace("if 1 times ", "if ")
        return Found(cost + much + 0.5 * (len(kinds) > 1), words)

    def _constant(self, trial: Trial, name: str, rule: Rule) -> float | None:
        """Return c with a · c = b for a part, 0 where there is nothing to compare, or None."""
        if name not in trial.parts:  # its sides have different shapes there
            return None
        if not largest(trial.parts[name][0]) and not largest(trial.parts[name][1]):
            return 0.0
        try:
            a, b = rule(trial, name)
            constant = float(np.nansum(a * b) / np.nansum(a * a)) if a.shape == b.shape else np.nan
        except (ValueError, IndexError, KeyError, TypeError):
            return None
        if not largest(a) and not largest(b):
            return 0.0
        if min(largest(a), largest(b)) <= NOTHING * max(map(largest, trial.parts[name])):
            return None  # what rounding leaves, of a mean that is 0
        fits = np.isfinite(constant) and constant and trial.near(name, constant * a, b)
        return constant if fits else None

    def _where(self) -> str:
        """Say which parts are wrong, if not all are."""
        if len(self.wrong) == len(self.trials[0].parts):
            return ""
        return f", in {', '.join(self.wrong[:3])}" + " …" * (len(self.wrong) > 3)


def _places(where: np.ndarray, axis: int) -> list[int]:
    """Return the places along an axis at which anything is true."""
    return np.flatnonzero(np.moveaxis(where, axis, 0).reshape(where.shape[axis], -1).any(1)).tolist()


def _alike(pair: Two) -> bool:
    return pair[0].shape == pair[1].shape and largest(pair[0] - pair[1]) <= 1e-8 * largest(pair[1])


def _fitted(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return an array of as many numbers in another's shape, one of less broadcast to it."""
    return array.reshape(like.shape) if array.size == like.size else np.broadcast_to(array, like.shape)


def _missing(pair: Two) -> np.ndarray:
    return pair[1] - pair[0]


def _applied(side: int, names: Sequence[str], got: np.ndarray, want: np.ndarray, views: Terms) -> Two:
    """Return got · a and expected · b of a factor; of a term its product, if there is any, and what is missing."""
    some = (got != 0) | (want != 0)
    if side >= 0:
        factors = np.broadcast_arrays((some.astype(float), got, want)[side], *(views[name] for name in names))
        return np.prod(factors, 0), want - got
    a, b = (views[name] for name in names)
    if names[0] != "1" and ((b == 0) & some).any():
        raise ValueError("nothing is divided by 0")
    return got * a, want * b
