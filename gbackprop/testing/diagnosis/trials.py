"""Trials: a failed claim, evaluated again on fresh samples, with both of its sides and what stands beside them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from gbackprop.array import asnumpy
from gbackprop.testing.claims import Claims, Compared, Evaluation, NotGivenError
from gbackprop.testing.diagnosis.numbers import Sizes
from gbackprop.testing.diagnosis.terms import Terms, arrays_of, quantities_of, sizes_of
from gbackprop.testing.flat import Flat
from gbackprop.testing.loss_probe import LossProbe
from gbackprop.testing.loss_scale import takes_reduction, with_reduction
from gbackprop.testing.probe import Probe
from gbackprop.testing.runs import Runs
from gbackprop.testing.setting import CheckedNetwork

BATCHES = (0, 2, 7, 4)
"""The sizes of the batches of trials; 0 is that of the check. They differ from 3, which is many another size."""

Check = Callable[[Claims, Any, np.random.Generator], None]
"""A check of a subject, that adds all of its rows."""

Sides = dict[str, tuple[np.ndarray, np.ndarray]]
"""The result and the expected one, by the name of a part."""


class _MetError(BaseException):
    """The claim that is looked for is met: no check and no subject stops this on its way."""


class SoughtClaims(Claims):
    """Claims of which one is met and none is judged: the check ends there."""

    watching = True

    def __init__(
        self, method: str, claim: str, batch: int, rng: np.random.Generator, suffix: str = "", other: bool = False
    ) -> None:
        super().__init__("", suffix=suffix)
        self.method, self.claim, self.batch, self.rng, self.other = method, claim, batch, rng, other
        self.size, self.met = [0], list[Evaluation]()

    def part(self, suffix: str) -> SoughtClaims:
        """Return a watch for the same claim."""
        found = SoughtClaims(self.method, self.claim, self.batch, self.rng, suffix, self.other)
        found.size, found.met = self.size, self.met
        return found

    def reduced(self, subject: Any) -> Any:
        """Return a loss, or a setting with one, with the other reduction if that is asked for and an argument of it."""
        loss = getattr(subject, "loss", subject)
        if not self.other or not takes_reduction(loss):
            return subject
        other: Literal["mean", "sum"] = "sum" if loss.reduction == "mean" else "mean"
        return with_reduction(subject, other) if subject is loss else subject.reduced(other)

    def fresh(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return other samples: of the first array numbers between the given ones, of others whole samples."""
        self.size[0] = self.batch or len(arrays[0])
        return (_between(arrays[0], self.batch, self.rng), *(
            other[self.rng.integers(0, len(other), self.batch)] for other in arrays[1:]
        )) if self.batch else arrays  # fmt: skip

    def _row(self, method: str, claim: str, evaluation: Evaluation, needs: Any) -> None:
        if (method, claim + self.suffix) == (self.method, self.claim):
            self.met.append(evaluation)
            raise _MetError


def _between(x: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Return numbers between those that samples have in a place, so that they stay in any range; of integers, one."""
    shape = (batch, *x.shape[1:])
    one, other = (np.take_along_axis(x, rng.integers(0, len(x), shape), 0) for _ in range(2))
    return one + rng.random(shape) * (other - one) if x.dtype.kind == "f" else one


@dataclass(frozen=True)
class Trial:
    """An evaluation of the claim on a batch of `size` samples, drawn by `batch` and `seed`."""

    evaluation: Evaluation
    batch: int
    seed: int
    size: int
    whole: bool = False  # what is for several inputs of a join is not taken apart

    @cached_property
    def compared(self) -> Compared | None:
        """Both sides as they are, if there are two."""
        return sides(self.at(_copied))

    @cached_property
    def parts(self) -> Sides:
        """Both sides by name, of arrays of the same shape alone; of a join those of each input."""
        parts = parts_of(self.compared)
        return parts if self.whole else _by_input(parts, self.evaluation.arguments)

    @cached_property
    def misfits(self) -> Sides:
        """Both sides where their shapes differ."""
        return {} if self.compared is None else dict(_parts(self.compared.got, self.compared.want, "", fitting=False))

    @cached_property
    def sizes(self) -> Sizes:
        """Named sizes and options."""
        found = {"N": float(self.size), **sizes_of(self.evaluation.arguments)}
        if not any(isinstance(part, str) for part in self.evaluation.arguments):  # the method of a reduction of columns
            found.pop("V", None)
        return found

    @cached_property
    def terms(self) -> Terms:
        """Named arrays."""
        return arrays_of(self.evaluation.arguments)

    @cached_property
    def others(self) -> dict[str, Terms]:
        """Return other quantities, by the name of a part."""
        return {name: quantities_of(self.evaluation.arguments, name) for name in self.parts}

    @property
    def precision(self) -> float:
        """Error to allow in a constant, by which its name must be confirmed."""
        return 10 * max(self.compared.tolerance if self.compared is not None else 0.0, 1e-11)

    @property
    def tolerance(self) -> float:
        """Error to allow beside the largest expected entry."""
        return max(self.compared.tolerance if self.compared is not None else 0.0, 1e-9)

    def near(self, name: str, a: np.ndarray, b: np.ndarray) -> bool:
        """Return whether two arrays are equal up to the tolerance of the claim; what is no number in both is."""
        return not self.differing(name, a, b).any()

    def differing(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return where two arrays are not equal up to the tolerance of the claim."""
        floor = self.compared.floor if self.compared is not None else 0.0
        relative = self.tolerance < 1  # or it is in standard errors, as what is compared
        scale = max(largest(b), largest(self.parts[name][1]), floor) if relative else 1.0
        difference = np.where(np.isnan(a) & np.isnan(b), 0, np.abs(a - b))
        return ~(difference <= 4 * self.tolerance * scale)

    def wrong(self) -> list[str]:
        """Return the names of the parts that are not equal."""
        return [name for name, (got, want) in self.parts.items() if not self.near(name, got, want)]

    def with_other_reduction(self, check: Check, subject: Any, method: str, claim: str) -> Trial | None:
        """Return a trial with the other reduction of the loss, of a claim on the same parts; or None without a loss.

        A plain definition of `values` is that of the reduction with which it was given.
        """
        kinds = (CheckedNetwork, Runs, LossProbe)
        if method == "values" or not any(isinstance(part, kinds) for part in self.evaluation.arguments):
            return None
        found = met(check, subject, method, claim, BATCHES[-1], len(BATCHES), other=True)
        return found if found is not None and set(found.parts) == set(self.parts) else None

    def at(self, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Evaluation:
        """Return the evaluation at arguments that are changed."""
        return replace(self.evaluation, arguments=change(self.evaluation.arguments))


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments with copies of layers and losses, which a call may change."""
    kinds: dict[type, str] = {Probe: "layer", LossProbe: "loss"}
    names = [kinds.get(type(part)) for part in arguments]
    return tuple(replace(part, **{name: copy.deepcopy(getattr(part, name))}) if name else part
                 for part, name in zip(arguments, names, strict=True))  # fmt: skip


def sides(evaluation: Evaluation) -> Compared | None:
    """Evaluate both sides of a claim; None if it has none there."""
    try:
        found = evaluation.function(*evaluation.arguments)
    except Exception:  # an edit may be nonsense
        return None
    return found if isinstance(found, Compared) else None


def holds(evaluation: Evaluation, if_not_given: bool = True) -> bool:
    """Return whether a claim holds, and `if_not_given` of one that is not given, which does not fail either."""
    try:
        return evaluation.holds()
    except NotGivenError:
        return if_not_given
    except Exception:  # whatever an edit leads to
        return False


def parts_of(pair: Compared | None) -> Sides:
    """Return both sides by name, of arrays of the same shape alone."""
    return {} if pair is None else dict(_parts(pair.got, pair.want, ""))


def _by_input(sides: Sides, arguments: tuple[Any, ...]) -> Sides:
    """Return both sides of derivatives in several inputs side by side as those in each, or in each two of them."""
    joins = [(part.layer, part) for part in arguments if isinstance(part, Probe) and isinstance(part.layer, Flat)]
    if not joins or list(sides) != [""] or sides[""][0].ndim < 3:
        return sides
    join, probe = joins[0]
    ends = np.cumsum([prod(shape) for shape in join.shapes])
    twice = sides[""][0].shape[1] == ends[-1] != probe.output[0].size
    for axis in (-1, 1) if twice else (-1,):
        if sides and next(iter(sides.values()))[0].shape[axis] == ends[-1]:
            cut = {name: zip(*(np.split(side, ends[:-1], axis) for side in pair), strict=True)
                   for name, pair in sides.items()}  # fmt: skip
            sides = {f"{name} and {i}" if name else f"input {i}": pair
                     for name, pairs in cut.items() for i, pair in enumerate(pairs)}  # fmt: skip
    return sides


def _parts(
    got: Any, want: Any, name: str, fitting: bool = True
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    if isinstance(want, Mapping) and isinstance(got, Mapping):
        for key in (key for key in want if key in got):
            yield from _parts(got[key], want[key], f"{name}/{key}" if name else str(key), fitting)
    elif not (got is None or want is None or isinstance(want, Mapping) or isinstance(got, Mapping)):
        got, want = np.asarray(asnumpy(got)), np.asarray(asnumpy(want))
        numbers = got.dtype.kind in "fiub" and want.dtype.kind in "fiub"
        if (got.shape == want.shape) is fitting and want.size and numbers:
            yield name, (got.astype(float), want.astype(float))


def largest(x: np.ndarray) -> float:
    """Return the largest finite entry without its sign."""
    size = float(np.max(np.abs(x), initial=0))
    return size if np.isfinite(size) else float(np.max(np.nan_to_num(np.abs(x), posinf=np.finfo(float).max), initial=0))


def met(
    check: Check, subject: Any, method: str, claim: str, batch: int, seed: int, other: bool = False
) -> Trial | None:
    """Return the evaluation of a claim in a check of a subject, or None if the check does not come to it.

    It is that with the `other` reduction of the loss, if asked for.
    """
    rng = np.random.default_rng([seed, batch])
    watch = SoughtClaims(method, claim, batch, rng, other=other)
    try:
        check(watch, subject, rng)
    except _MetError:
        return Trial(watch.met[0], batch, seed, watch.size[0])
    except Exception:  # an edit may be nonsense
        return None
    return None


def trials_of(check: Check, subject: Any, method: str, claim: str) -> Iterator[Trial]:
    """Yield evaluations of a claim that fails, on batches of different sizes, with the same names of parts in all."""
    names: list[str] = []
    for seed, batch in enumerate(BATCHES):
        trial = met(check, subject, method, claim, batch, seed)
        if trial is not None and not holds(trial.at(_copied)):
            names = names or list(trial.parts)
            if len(names) == len(trial.parts) and set(names) != set(trial.parts):  # with a size in them
                vars(trial)["parts"] = dict(zip(names, trial.parts.values(), strict=True))
            yield trial
