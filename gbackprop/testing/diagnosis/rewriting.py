"""Edits of a method's source that make a claim hold: each is run in a copy of the method's owner."""

from __future__ import annotations

import copy
import heapq
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from gbackprop.array import is_array
from gbackprop.calculus.layer import Layer
from gbackprop.calculus.residual import Factored
from gbackprop.calculus.signals import ALL
from gbackprop.calculus.state import digest
from gbackprop.losses.base import Loss
from gbackprop.quantities import Quantity, Statistic
from gbackprop.testing.diagnosis.arguments import Change
from gbackprop.testing.diagnosis.called import CONSTRUCTOR, STATISTIC, callers, expected, functions_of, given_to
from gbackprop.testing.diagnosis.care import wrapped
from gbackprop.testing.diagnosis.deadline import Deadline
from gbackprop.testing.diagnosis.options import with_statistic
from gbackprop.testing.diagnosis.relations import Found
from gbackprop.testing.diagnosis.source import edits_of
from gbackprop.testing.diagnosis.trials import Sides, Trial, holds, largest, parts_of, sides
from gbackprop.testing.probe import is_container

EDITS = 20_000
"""The number of edits of a source that are tried."""

NEARLY = 0.1
"""By how much more than the first one that holds an edit may cost."""

OF_SHARED, OF_CONSTRUCTOR, OF_MAKER = 0.35, 0.5, 0.1
"""By how much more an edit costs of a shared function, of the constructor, and of the method that makes Jacobians."""

NEAR = 1e-3
"""The largest error, beside what is expected, of a result with which a claim is evaluated."""

SLOW = 0.5
"""The seconds of the processor that a claim may take whose method is edited."""

CALLS = 8
"""The calls of a method that are written down."""

INDIRECT = "parameter_jacobians"
"""The method that makes the objects on which claims on Jacobians are; what it returns cannot be compared."""

OF_OPERATORS = "_matmat", "_matvec", "_rmatvec", "_rmatmat", "_adjoint", "_transpose"
"""The methods of a class of SciPy's operators that define its products."""


def rewritten(
    trials: Sequence[Trial], sound: Sequence[Trial], method: str, seconds: float,
    breaking: Callable[[Callable[[Any], Any]], float] = lambda edit: 0.0,
) -> Iterator[Found]:  # fmt: skip
    """Yield edits of the source of a method, or of a function that it calls, with which a claim holds.

    It fails in `trials`, and must go on to hold in those that are `sound`. The cheapest edits of all come first;
    `breaking` says by how much more one costs that makes another subject of the subject, and the search goes on.
    """
    parts = method.split(".")  # "0.y.weight.per_sample", of a layer in a graph
    methods = [".".join(parts[i:]) for i in sorted({0, max(0, len(parts) - 2), len(parts) - 1})]
    methods += [f"_{method}", *OF_OPERATORS] if method in ("matvec", "matmat", "rmatvec") else []
    methods += [INDIRECT] * (len(parts) > 1)
    calls = [(name, call) for name in methods if trials and (call := _called(trials[0], name)) is not None]
    end, left, most = Deadline(seconds), iter(range(EDITS)), np.inf
    edits = map(partial(_of_one, Deadline(seconds / 2)), _sources(calls))  # of a long method not all can be found
    for cost, words, new, place in heapq.merge(*edits, key=lambda each: each[0]):
        if end.passed or next(left, None) is None or cost > most:
            return
        change = partial(_rewritten, place.called, new)
        wanted = place.call.wanted(trials[0].parts)
        if not place.of_formula and not place.call.is_another(change, wanted, place.tried):
            continue
        if mends(trials, sound, wrapped(place.name, change)):
            cost += breaking(partial(place.edited, new))
            most = min(most, cost + NEARLY)
            yield Found(cost, f"right if {words()}" + f", in {place.title}" * (place.title != parts[-1]))


@dataclass(frozen=True)
class _Source:
    """A function that is edited, of an object, as a method calls it; and a call of that method."""

    name: str
    call: _Call
    called: str
    function: FunctionType
    of: Any
    tried: set[Any] = field(default_factory=set)  # the results of its edits

    @property
    def of_formula(self) -> bool:
        """True of the formula of a statistic, of which the method only has the values."""
        return self.called.startswith(STATISTIC)

    @property
    def title(self) -> str:
        """Its name alone."""
        return self.function.__name__ if self.of_formula else (self.called or self.name).rpartition(".")[2]

    @property
    def more(self) -> float:
        """By how much more an edit of it costs than one of a function that the method alone calls."""
        if self.called == CONSTRUCTOR:
            return OF_CONSTRUCTOR
        return OF_SHARED if self.called and callers(self.title, self.of) > 1 else OF_MAKER * (self.name == INDIRECT)

    def edited(self, new: FunctionType, subject: Any) -> Any:
        """Return a copy of a subject whose class has the edited method; itself if the function is no method."""
        inside, dot, _ = self.called.rpartition(".")
        parameter = self.name.rpartition(".")[0]
        if (self.called and not dot) or (isinstance(subject, Layer) and is_container(subject)):
            return subject
        if parameter:
            sound = type(subject).parameter_jacobians

            def jacobians(owner: Any, saved: Any) -> dict[str, Any]:
                found = sound(owner, saved)
                return {**found, parameter: _of_class(found[parameter], self.function, new)}

            return _of_class(subject, sound, jacobians)
        if inside:
            twin = copy.copy(subject)
            twin.layer = _of_class(subject.layer, self.function, new)
            return twin
        return _of_class(subject, self.function, new)


class _Unannounced:
    """A base of edited classes, of which no hook of the user's class is told: it may keep a table of its subclasses."""

    def __init_subclass__(cls) -> None:
        """Do nothing."""


def _of_class(owner: Any, old: Any, new: Any) -> Any:
    """Return a copy of an object of a class in which a function is another, by all of its names."""
    twin, kind = copy.copy(owner), type(owner)
    names = {name for each in kind.__mro__ for name in vars(each) if inspect.getattr_static(kind, name) is old}
    content = {"__module__": kind.__module__, **dict.fromkeys(sorted(names), new)}
    twin.__class__ = type(kind.__name__, (_Unannounced, kind), content)
    return twin


def _sources(calls: Sequence[tuple[str, _Call]]) -> Iterator[_Source]:
    """Yield the functions of some calls, each once."""
    seen = set[FunctionType]()
    for name, call in calls:
        for called, function, of in functions_of(call.owner, call.name):
            if function not in seen:
                seen.add(function)
                yield _Source(name, call, called, function, of)


def _of_one(end: Deadline, place: _Source) -> Iterator[tuple[float, Callable[[], str], FunctionType, _Source]]:
    """Yield the edits of a function, which cost more where other methods call it, too."""
    more = place.more
    for cost, words, new in edits_of(place.function, place.of, end):
        yield cost + more, words, new, place


class _Call:
    """A call of a method that a claim makes."""

    def __init__(self, owner: Any, name: str, given: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        self.owner, self.name, self.given, self.named = owner, name, given, named
        self.array, self.result = result, _numbers(result)
        self.is_linear = not isinstance(owner, Loss | Quantity) and _is_linear(getattr(owner, name), given)
        self.invalid: Any = "ignore" if self._is_invalid() else "raise"  # NaN is no way to leave out a branch

    def _is_invalid(self) -> bool:
        """Return whether the method itself makes NaN on its way."""
        try:
            with np.errstate(invalid="raise"):
                getattr(self.owner, self.name)(*copy.deepcopy(self.given), **self.named)
        except Exception:  # it makes some, or is no method that can be called again
            return True
        return False

    def wanted(self, parts: Sides) -> list[np.ndarray]:
        """Return what a claim expects where it compares the result itself: of the parts that have its numbers."""
        array = np.asarray(self.array) if is_array(self.array) else None
        return [want for got, want in parts.values() if array is not None and np.array_equal(got, array)]

    def is_another(self, change: Any, wanted: Sequence[np.ndarray], tried: set[Any]) -> bool:
        """Return whether an edited method gives a result of the same kind that none gave, and is linear if it was.

        It must be near one of those that are `wanted`, if there are any; else the results so far are in `tried`.
        """
        try:
            twin = copy.deepcopy(self.owner)
            edited = change(getattr(twin, self.name), twin, self.name)
            with np.errstate(invalid=self.invalid):
                result = edited(*copy.deepcopy(self.given), **self.named)
            if wanted and not any(_near(np.asarray(result), want) for want in wanted):
                return False
            got = _numbers(result)
        except Exception:  # an edit may be nonsense
            return False
        known = set() if wanted else tried  # those that are near are few, and may differ elsewhere
        if self.name != INDIRECT and (got == self.result or got in known or _kinds(got) != _kinds(self.result)):
            return False
        if self.is_linear and not _is_linear(edited, self.given):
            return False
        tried.add(got)
        return True


def _called(trial: Trial, method: str) -> _Call | None:
    """Return the first call of a method, of those whose result is compared and wrong if there are any.

    None if there is none, it is no method of a class, or the claim is slow.
    """
    seen: list[_Call] = []
    end = Deadline(SLOW)
    with suppress(Exception):  # there is no such method of the subject
        holds(trial.at(wrapped(method, partial(_noted, seen))))
    wrong = {name: trial.parts[name] for name in trial.wrong()}
    told = [call for call in seen if call.wanted(wrong)]
    return [*told, *seen][0] if seen and not end.passed else None


def mends(trials: Sequence[Trial], sound: Sequence[Trial], change: Change) -> bool:
    """Return whether a claim holds with a change, and what is expected remains."""
    for trial in (*trials, *sound):
        if not holds(after := trial.at(change), if_not_given=False):
            return False
        new, before = parts_of(sides(after)), parts_of(trial.compared)
        if not set(before) <= set(new):  # there is nothing to compare any more
            return False
        pairs = [(want, before[name][1]) for name, (_, want) in new.items() if name in before]
        if any(a.shape != b.shape or not np.allclose(a, b, 1e-9, 1e-12) for a, b in pairs):
            return False
    return True


def _noted(seen: list[_Call], sound: Any, owner: Any, name: str) -> Any:
    """Return a method that writes down its first calls."""

    def noted(*given: Any, **named: Any) -> Any:
        arguments = copy.deepcopy((given, named))
        result = sound(*given, **named)
        if len(seen) < CALLS and hasattr(sound, "__func__"):
            plain = copy.copy(owner)
            vars(plain).pop(name, None)  # this wrapper
            seen.append(_Call(plain, name, *arguments, result))
        return result

    return noted


def _is_linear(method: Any, given: tuple[Any, ...]) -> bool:
    """Return whether three times the last argument gives three times the result: columns of 0 and 1 do not tell x²."""
    try:
        *others, last = copy.deepcopy(given)
        return bool(np.allclose(method(*others, 3 * last), 3 * np.asarray(method(*others, last)), 1e-9, 0))
    except Exception:  # there is no argument, or what is no array
        return False


def _rewritten(called: str, new: Any, sound: Any, owner: Any, name: str) -> Any:
    """Return a method by its edited function; `called` names the one that is edited if it is another."""
    if not called:
        return partial(new, owner)
    if called == CONSTRUCTOR:
        before = dict(vars(owner))
        new(owner, **(given_to(owner) or {}))
        others = {each for each, value in vars(owner).items() if digest(value) != digest(before.get(each))}
        if others & expected(owner, name):
            raise ValueError("what is expected would be another, too")
        return sound
    if called.startswith(STATISTIC):
        i = int(called.removeprefix(STATISTIC))
        old = owner.statistics()[i]
        other = Statistic(replace(old.reduction, formula=new), old.signal, None, old.only, old.mean)
        vars(owner)["statistics"] = with_statistic(i, other, owner).statistics
        return sound
    inside, dot, method = called.rpartition(".")
    if dot:
        target = copy.copy(owner.layer) if inside else owner
        setattr(target, method, partial(new, target))
        if inside:
            owner.layer = target
        return sound
    plain = sound.__func__
    scope = {**plain.__globals__, called: new}
    function = FunctionType(plain.__code__, scope, name, plain.__defaults__, plain.__closure__)
    function.__kwdefaults__ = plain.__kwdefaults__
    return partial(function, owner)


def _near(result: np.ndarray, want: np.ndarray) -> bool:
    """Return whether a result is nearly what is expected: much less near than a claim asks for."""
    return result.shape == want.shape and largest(result - want) <= NEAR * largest(want)


def _numbers(value: Any) -> Any:
    """Return the arrays in a result, and what is around them, as something that can be compared."""
    if isinstance(value, (list, tuple, dict)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return tuple((key, _numbers(each)) for key, each in parts)
    if isinstance(value, Factored):  # its function is the same code for all edits at one place
        with suppress(Exception):  # it is a user's, and may be wrong
            return _numbers(value.columns(ALL))
    array = np.asarray(value)
    return (array.shape, array.dtype.str, array.tobytes()) if array.dtype != object else bytes.fromhex(digest(value))


def _kinds(numbers: Any) -> Any:
    """Return shapes and dtypes of what `_numbers` returns, without the numbers."""
    if isinstance(numbers, tuple):
        return tuple(map(_kinds, numbers))
    return None if isinstance(numbers, bytes) else numbers
