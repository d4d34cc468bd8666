"""Trials: a failed claim, evaluated again on fresh samples, with both of its sides, or with what is said to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.testing.claims import Claims, Compared, Evaluation, FoundError, NotGivenError

BATCHES = (0, 2, 7, 4)
"""The sizes of the batches of trials; 0 is that of the check. They differ from 3, which is many another size."""

TRIALS = 3
"""The number of trials on which a claim fails and an edit must hold."""

Check = Callable[[Claims, Any, np.random.Generator], None]
"""A check of a subject, that adds all of its rows."""


class _FoundIt(BaseException):
    """The claim that is looked for is met: no check or subject stops this on its way."""


class Watch(Claims):
    """Claims of which one is met and none is judged: it is remembered, and the check ends there."""

    watching = True

    def __init__(self, method: str, claim: str, batch: int, rng: np.random.Generator, suffix: str = "") -> None:
        super().__init__("", suffix=suffix)
        self.method, self.claim, self.batch, self.rng = method, claim, batch, rng
        self.met: list[Evaluation] = []
        self.size = [0]

    def part(self, suffix: str) -> Watch:
        """Return a watch of the same claim."""
        found = Watch(self.method, self.claim, self.batch, self.rng, suffix)
        found.met, found.size = self.met, self.size
        return found

    def fresh(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return other samples: the first array between the given ones, entry by entry, of others whole samples."""
        self.size[0] = self.batch or len(arrays[0])
        if not self.batch:
            return arrays
        first, *others = arrays
        return _between(first, self.batch, self.rng), *(
            other[self.rng.integers(0, len(other), self.batch)] for other in others
        )

    def _row(self, method: str, claim: str, evaluation: Evaluation, needs: Collection[str]) -> None:
        if method == self.method and (claim + self.suffix == self.claim or self.claim == ""):
            self.met.append(evaluation)
            raise _FoundIt


def _between(x: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers between those that some samples have in the same place, so that they stay in any range; of integers, one.

    A little beyond in either direction where all samples have the same.
    """
    shape = (batch, *x.shape[1:])
    one, other = (np.take_along_axis(x, rng.integers(0, len(x), shape), 0) for _ in range(2))
    return one + rng.random(shape) * (other - one) if x.dtype.kind == "f" else one


@dataclass(frozen=True)
class Trial:
    """An evaluation of the claim, on a batch of some size."""

    evaluation: Evaluation
    batch: int
    seed: int
    size: int  # N

    @cached_property
    def compared(self) -> Compared | None:
        """Both sides, if there are two."""
        return sides(self.evaluation)

    @cached_property
    def parts(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Both sides by name, of arrays of the same shape alone."""
        return parts_of(self.compared.got, self.compared.want) if self.compared is not None else {}

    @cached_property
    def scale(self) -> dict[str, float]:
        """The number that errors are relative to, for each part."""
        floor = self.compared.floor if self.compared is not None else 0.0
        return {name: max(largest(want), floor) or 1.0 for name, (_, want) in self.parts.items()}

    @property
    def tolerance(self) -> float:
        """Error to allow beside the oracle."""
        return max(self.compared.tolerance if self.compared is not None else 0.0, 1e-9)

    def wrong(self) -> list[str]:
        """Return the names of the parts that are not equal."""
        return [name for name, (got, want) in self.parts.items() if not self.near(name, got, want)]

    def near(self, name: str, got: np.ndarray, want: np.ndarray) -> bool:
        """Return whether two arrays are equal up to the tolerance of the claim."""
        return bool(largest(got - want) <= 4 * self.tolerance * max(self.scale[name], largest(want)))

    def edited(self, arguments: tuple[Any, ...]) -> Compared | None:
        """Return both sides at other arguments, or None if there are none."""
        return sides(replace(self.evaluation, arguments=arguments))


def sides(evaluation: Evaluation) -> Compared | None:
    """Evaluate both sides of a claim; None if it has none there."""
    try:
        with np.errstate(all="ignore"):
            found = evaluation.function(*evaluation.arguments)
    except Exception:  # an edit may be nonsense
        return None
    return found if isinstance(found, Compared) else None


def holds(evaluation: Evaluation) -> bool:
    """Return whether a claim holds; one that is not given does not fail."""
    try:
        with np.errstate(all="ignore"):
            return evaluation.fields()["verdict"] == "ok"
    except NotGivenError:
        return True
    except Exception:
        return False


def problem(evaluation: Evaluation) -> str:
    """Return what a claim without two sides says is wrong."""
    try:
        with np.errstate(all="ignore"):
            return str(evaluation.fields()["problem"] if "problem" in evaluation.fields() else "")
    except FoundError as error:
        return str(error)
    except Exception as error:
        return f"raised {type(error).__name__}"


def parts_of(got: Any, want: Any, name: str = "") -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return both sides by name, of floats of the same shape alone."""
    if isinstance(want, Mapping) and isinstance(got, Mapping):
        found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for key in want:
            if key in got:
                found |= parts_of(got[key], want[key], f"{name}/{key}" if name else str(key))
        return found
    if got is None or want is None or isinstance(want, Mapping) or isinstance(got, Mapping):
        return {}
    got, want = np.asarray(asnumpy(got)), np.asarray(asnumpy(want))
    fits = got.shape == want.shape and want.size and got.dtype.kind in "fiub" and want.dtype.kind in "fiub"
    return {name: (got.astype(float), want.astype(float))} if fits else {}


def largest(x: np.ndarray) -> float:
    """Return the largest entry without its sign: inf if one is no number."""
    return float(np.max(np.nan_to_num(np.abs(x), nan=np.inf), initial=0))


def met(check: Check, subject: Any, method: str, claim: str, batch: int, seed: int) -> Trial | None:
    """Return the evaluation of a claim in a check of a subject, or None if the check does not come to it."""
    rng = np.random.default_rng([seed, batch])
    watch = Watch(method, claim, batch, rng)
    try:
        with np.errstate(all="ignore"):
            check(watch, subject, rng)
    except _FoundIt:
        return Trial(watch.met[0], batch, seed, watch.size[0])
    except Exception:
        return None
    return None


def trials_of(check: Check, subject: Any, method: str, claim: str) -> Iterator[Trial]:
    """Yield evaluations of a claim that fails, on batches of different sizes."""
    for seed, batch in enumerate(BATCHES):
        trial = met(check, subject, method, claim, batch, seed)
        if trial is not None and not holds(trial.evaluation):
            yield trial
