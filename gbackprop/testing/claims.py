"""Claims in the making: run a comparison, and turn what it finds or raises into a row of a report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import add
from typing import Any, NoReturn

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.base.errors import TooLargeError
from gbackprop.testing.report import FAILED, NOT_GIVEN, NOT_JUDGED, OK, Proposal, Report, Row

ROUNDING = 1e-10
"""Error allowed between two ways to the same float64 number, relative to the largest entry."""


Why = Callable[[str, str], tuple[Proposal, ...]]
"""A search for what would make the claim on a method hold."""


class NotGivenError(Exception):
    """There is nothing to judge; the message says why."""


class FoundError(Exception):
    """The claim is false; the message says how."""


FLOAT32_TOLERANCE = 1e-3
"""Error to allow in float32."""

TINY = float(np.finfo(np.float32).tiny) / FLOAT32_TOLERANCE
"""The size of entries that still count in float32: smaller ones have fewer digits."""

UNIT = 2.0**-53
"""A single rounding in float64, relative to the number that is rounded."""

UNIT32 = 2.0**-24
"""A single rounding in float32."""

LEAST_SEEN = 5e-4
"""Nothing is judged where rounding hides a larger part than this, of the largest entry that is expected."""

ROUNDINGS = 256
"""A result may be off by so often what a single rounding moves it by, wherever that is measured."""


@dataclass(frozen=True)
class Compared:
    """The result of a method, and the expected one: arrays, or mappings of names to arrays."""

    got: Any
    want: Any
    oracle: str  # where `want` comes from
    tolerance: float = ROUNDING
    floor: float = 0.0  # errors are relative to the largest entry of `want`, but never to less than this
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # of each name, for a diagnosis
    rounding: Callable[[], Any] | None = None  # the errors by rounding alone, asked for where the comparison fails
    draws: tuple[Any, Any, Any] | None = None  # of a result in standard errors: the mean, the expected one, the errors


@dataclass(frozen=True)
class Evaluation:
    """A function that gives both sides of a claim or describes what is wrong, and its arguments."""

    function: Callable[..., Compared | str]
    arguments: tuple[Any, ...]

    def fields(self, rounding: Callable[[], Any] | None = None) -> dict[str, Any]:
        """Return what a row says of it; `rounding` is that of a comparison that has none of its own."""
        found = self.function(*self.arguments)
        return _compared(found, found.rounding or rounding) if isinstance(found, Compared) else _verdict(found)

    def holds(self) -> bool:
        """Return whether it holds without what rounding is measured to make, which takes many evaluations."""
        found = self.function(*self.arguments)
        return bool((_compared(found, None) if isinstance(found, Compared) else _verdict(found))["verdict"] == OK)


class Claims:
    """Collects rows: no exception of the subject leaves it.

    Every subject must have the `required` methods, any other may be "not given"; `suffix` is put after each claim;
    `why` searches the causes of a failure by its method and claim.
    """

    watching = False
    """True if a single claim is looked for, so that parts of the subject need not be checked."""

    def __init__(self, subject: str, required: Collection[str] = (), suffix: str = "", why: Why | None = None) -> None:
        self.report = Report(subject)
        self.required, self.suffix, self.why = required, suffix, why
        self.rounding: Callable[[str], Any] | None = None  # the errors of a method by rounding alone
        self.doubtful: set[str] = set()  # methods that failed, or rest on one that did
        self.missing: set[str] = set()

    def equal(
        self, method: str, claim: str, pair: Callable[..., Compared], *arguments: Any, needs: Collection[str] = ()
    ) -> None:
        """Add a row for: the two of ``pair(*arguments)`` are equal; not judged if what `method` `needs` has failed."""
        self._row(method, claim, Evaluation(pair, arguments), needs)

    def hold(
        self, method: str, claim: str, problem: Callable[..., str], *arguments: Any, needs: Collection[str] = ()
    ) -> None:
        """Add a row for: ``problem(*arguments)`` is the empty string."""
        self._row(method, claim, Evaluation(problem, arguments), needs)

    def attempt(self, method: str, claim: str, action: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``action(*arguments)``; None, after adding a row with the reason, if it raises."""
        made: list[Any] = []

        def find() -> dict[str, Any]:
            made.append(action(*arguments))
            return _verdict("")

        fields = self._guarded(method, find)
        if made:
            return made[0]
        if method not in self.missing:  # or its first row says so
            self._add(method, claim, fields)
        return None

    def fresh(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the arrays of a batch as they are; other samples where a failed claim is looked at again."""
        return arrays

    def reduced(self, subject: Any) -> Any:
        """Return a loss, or a setting with one, as it is; reduced otherwise where a failed claim is tried again."""
        return subject

    def part(self, suffix: str) -> Claims:
        """Return claims of the same subject with a suffix, whose failures are apart."""
        return Claims("", self.required, suffix, self.why)

    def _row(self, method: str, claim: str, evaluation: Evaluation, needs: Collection[str]) -> None:
        broken = [name for name in needs if name in self.doubtful]
        absent = [name for name in (method, *needs) if name in self.missing]
        if absent:  # its first row says so
            return
        fields: dict[str, Any]
        if broken:
            fields = {"verdict": NOT_JUDGED, "problem": f"rests on {', '.join(broken)}, which failed"}
        else:
            rounding = None if self.rounding is None else partial(self.rounding, method)
            fields = self._guarded(method, partial(evaluation.fields, rounding))
        self._add(method, claim, fields)

    def _add(self, method: str, claim: str, fields: dict[str, Any]) -> None:
        if fields["verdict"] in (FAILED, NOT_JUDGED):
            self.doubtful.add(method)
        claim += self.suffix
        why = partial(self.why, method, claim) if self.why is not None and fields["verdict"] == FAILED else None
        self.report.rows.append(Row(claim, method, **fields, why=why))

    def _guarded(self, method: str, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            with np.errstate(all="ignore"):  # numbers are judged, not warnings about them
                return find()
        except NotGivenError as reason:
            return {"verdict": NOT_GIVEN, "problem": str(reason)}
        except FoundError as problem:
            return _verdict(str(problem))
        except (NotImplementedError, TooLargeError) as error:
            if method in self.required:
                return {"verdict": FAILED, "problem": f"not given, but required: {error}"}
            self.missing.add(method)
            return {"verdict": NOT_GIVEN, "problem": str(error)}
        except Exception as error:  # whatever a subject raises is a finding, not a failure of the check
            return {"verdict": FAILED, "problem": f"raised {type(error).__name__}: {error}"}


def not_given(reason: str) -> NoReturn:
    """Raise the error that there is nothing to judge, in place of a comparison."""
    raise NotGivenError(reason)


def expect_shape(got: Any, shape: tuple[int, ...]) -> None:
    """Raise the error that a result has another shape."""
    if np.shape(got) != shape:
        raise FoundError(f"expected shape {shape}, got {np.shape(got)}")


def _verdict(problem: str) -> dict[str, Any]:
    return {"verdict": FAILED if problem else OK, "problem": problem}


def rounding_of(single: Any, double: Any, times: float = ROUNDINGS * 2.0**-29) -> Any:
    """Return the errors to allow in float64, by name: ROUNDINGS · 2⁻²⁹ times those of the same in float32.

    They show how terms that cancel are rounded, wherever in the computation they do. Where float32 holds to 1e-3, that
    is less than 1e-9 of the largest entry.
    """
    if isinstance(double, Mapping):
        return {name: rounding_of(single[name], double[name], times) for name in double if name in single}
    if single is None or double is None:
        return 0.0
    error = np.abs(asnumpy(single).astype(float) - asnumpy(double))
    return times * float(np.max(error, initial=0, where=np.isfinite(error)))


MOVED = 32
"""Inputs and parameters move by up to so many roundings where it is measured what results move by."""


def moved(a: Any, rng: np.random.Generator, unit: float = 0.0) -> Any:
    """Return an array of floats that is off by up to MOVED roundings of a unit (its own); any other one as it is."""
    if a.dtype.kind not in "fc":
        return a
    size = MOVED * (unit or float(np.finfo(a.dtype).eps) / 2)
    return (a * (1 + size * rng.uniform(-1, 1, a.shape))).astype(a.dtype)


def both(first: Any, second: Any, join: Callable[[float, float], float] = add) -> Any:
    """Return the errors to allow on two sides of a comparison, by name, as sums or `join`ed otherwise."""
    if not isinstance(first, Mapping):
        return join(first, second)
    shared = {name: both(first[name], second[name], join) for name in first if name in second}
    return {**first, **second, **shared}  # a side may lack a name: no column carries zeros to a layer


def _beyond(got: Any, want: Any, rounding: Any) -> Any:
    """Return what was got, but what is expected where the difference is no more than rounding."""
    if isinstance(got, Mapping) and isinstance(want, Mapping):
        of = rounding if isinstance(rounding, Mapping) else dict.fromkeys(want, rounding)
        return {name: _beyond(got[name], want[name], of.get(name, 0.0)) for name in want}
    if want is None:  # and so is what was got: the sides have the same shapes
        return None
    got, want = asnumpy(got), asnumpy(want)
    return np.where(np.abs(got - want) <= rounding, want, got)


def _compared(pair: Compared, rounding: Callable[[], Any] | None) -> dict[str, Any]:
    found = _worst(pair.got, pair.want, pair.floor)
    if rounding is not None and not found.get("problem") and not found["error"] <= pair.tolerance:
        errors: Any = 0.0
        with suppress(Exception):  # what it raises in float32 is another claim's finding
            errors = rounding()
        found = _worst(_beyond(pair.got, pair.want, errors), pair.want, pair.floor)
        hidden = largest_of(errors) / (max(largest_of(pair.want), pair.floor) or 1.0)
        if found["error"] <= pair.tolerance and hidden > max(LEAST_SEEN, pair.tolerance):
            raise NotGivenError(f"rounding alone moves what is expected by {hidden:.0e} of it")
    tight = not found.get("problem") and found["error"] <= pair.tolerance  # false for NaN
    fields = {"verdict": OK if tight else FAILED, "oracle": pair.oracle, "tolerance": pair.tolerance} | found
    return fields if not tight else fields | {"worst": (), "got": None, "want": None}


def defined(got: Any, want: Any) -> tuple[Any, Any]:
    """Return both sides with 0 where both are NaN, or the same infinity; raise a NotGivenError if no number is left."""
    pair = _without_equal(got, want)
    if pair is None:
        raise NotGivenError("it is NaN or infinite everywhere, and so is what is expected")
    return pair


def _without_equal(got: Any, want: Any) -> tuple[Any, Any] | None:
    if isinstance(want, Mapping) and isinstance(got, Mapping) and got.keys() == want.keys():
        pairs = {name: _without_equal(got[name], each) for name, each in want.items()}
        if want and all(pair is None for pair in pairs.values()):
            return None
        kept = {name: pair or (np.zeros(()), np.zeros(())) for name, pair in pairs.items()}
        return tuple({name: pair[side] for name, pair in kept.items()} for side in (0, 1))  # type: ignore[return-value]
    if isinstance(want, Mapping) or got is None or want is None or np.shape(got) != np.shape(want):
        return got, want
    one, other = asnumpy(got), asnumpy(want)
    if one.dtype.kind not in "fc" or other.dtype.kind not in "fc":
        return got, want
    equal = ~np.isfinite(other) & ((one == other) | (np.isnan(one) & np.isnan(other)))
    if not equal.any():
        return got, want
    return None if equal.all() else (np.where(equal, 0, one), np.where(equal, 0, other))


def largest_of(value: Any) -> float:
    """Return the largest entry in an array, or in arrays by name."""
    if isinstance(value, Mapping):
        return max(map(largest_of, value.values()), default=0.0)
    return 0.0 if value is None else float(np.max(np.abs(asnumpy(value)), initial=0.0))


def _worst(got: Any, want: Any, floor: float) -> dict[str, Any]:
    """Return the fields of a row that say how far `got` is from `want`, and where most."""
    if not isinstance(want, Mapping):
        return _worst_entry(got, want, floor)
    if not isinstance(got, Mapping) or set(got) != set(want):
        names = sorted(got) if isinstance(got, Mapping) else type(got).__name__
        return {"problem": f"expected {sorted(want)}, got {names}"}
    found = {name: _worst(got[name], want[name], floor) for name in want}
    for name, fields in found.items():
        if "problem" in fields:
            return {"problem": f"{name}: {fields['problem']}"}
    if not found:
        return {"points": 0, "error": 0.0}
    name = max(found, key=lambda name: np.nan_to_num(found[name]["error"], nan=np.inf))
    points = sum(fields["points"] for fields in found.values())
    return found[name] | {"points": points, "worst": (name, *found[name]["worst"])}


def _worst_entry(got: Any, want: Any, floor: float) -> dict[str, Any]:
    if got is None or want is None:
        return {"points": 0, "error": 0.0, "worst": ()} if got is want else {"problem": f"expected {want}, got {got}"}
    got, want = asnumpy(got), asnumpy(want)
    if got.shape != want.shape:
        return {"problem": f"expected shape {want.shape}, got {got.shape}"}
    if not want.size:
        return {"points": 0, "error": 0.0, "worst": ()}
    difference = np.abs(got - want)
    scale = max(float(np.max(np.abs(want))), floor) or 1.0
    ranked = np.where(np.isnan(difference), np.inf, difference)
    worst = np.unravel_index(int(np.argmax(ranked)), want.shape)
    return {
        "points": want.size,
        "error": float(difference[worst]) / scale,
        "worst": tuple(map(int, worst)),
        "got": got[worst].item(),
        "want": want[worst].item(),
    }
