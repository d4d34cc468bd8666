"""The curves of stored runs that a picture and a table show: one for each optimizer, over its seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gbackprop.experiments.optimizers import OPTIMIZERS
from gbackprop.experiments.protocol import best
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.stored import FINISHED, StoredRun

METRICS = ("test_loss", "test_accuracy", "train_loss", "train_accuracy")
Place = Literal["interior", "edge", "only value", "none"]


@dataclass(frozen=True)
class Curve:
    """Runs that differ in their seeds alone."""

    spec: RunSpec  # with the first seed
    runs: tuple[StoredRun, ...]  # those that are done: none if all diverged
    diverged: int  # how many more diverged
    missing: int = 0  # unfinished points of the grid: another may turn out to be the best
    lr_place: Place = "none"  # at the edge of its grid, a better value may lie outside
    damping_place: Place = "none"  # "none": no damping, or from no grid

    def quartiles(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the quartiles over the seeds, epoch by epoch."""
        values = np.array([[getattr(row, metric) for row in run.rows] for run in self.runs])
        return np.array([row.epoch for row in self.runs[0].rows]), np.quantile(values, (0.25, 0.5, 0.75), axis=0)

    def final(self, metric: str) -> tuple[float, float, float]:
        """Return the quartiles after the last epoch."""
        lower, median, upper = self.quartiles(metric)[1][:, -1]
        return float(lower), float(median), float(upper)


def curves(runs: Iterable[StoredRun], problem: str) -> list[Curve]:
    """Return the curves of a problem."""
    families: dict[RunSpec, list[StoredRun]] = {}
    for run in runs:
        if run.spec.problem == problem:
            families.setdefault(_family(run.spec), []).append(run)
    found = [curve for family in families.values() for curve in _of_family(family)]
    return sorted(found, key=lambda curve: OPTIMIZERS.index(curve.spec.optimizer))


def problems(runs: Iterable[StoredRun]) -> list[str]:
    """Return the problems of which something is done, each once."""
    return list(dict.fromkeys(run.spec.problem for run in runs if run.status == "done"))


def labels(shown: Sequence[Curve]) -> list[str]:
    """Return a name for each curve: the optimizer, and as many settings as distinguish the curves."""
    names = [curve.spec.optimizer for curve in shown]
    result = []
    for curve, name in zip(shown, names, strict=True):
        others = [other.spec for other, same in zip(shown, names, strict=True) if same == name]
        keys = ("lr", "damping", "momentum", "average", "epochs")
        differing = [key for key in keys if len({getattr(other, key) for other in others}) > 1]
        result.append(" ".join([name, *(f"{key} {_short(getattr(curve.spec, key))}" for key in differing)]))
    return result


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _family(spec: RunSpec) -> RunSpec:
    """Return a run's settings without point and seed: the same for all runs of a grid and its repeats."""
    return replace(spec, lr=1.0, damping=None if spec.damping is None else 1.0, seed=0)


def _of_family(family: list[StoredRun]) -> list[Curve]:
    grid = [run for run in family if "grid" in run.phases]
    chosen = best([run for run in grid if run.status in FINISHED])
    points = {replace(run.spec, seed=0) for run in family if "fixed" in run.phases}
    if chosen:
        points.add(replace(chosen, seed=0))
    # The order of the settings, not that of a set.
    ordered = sorted(points, key=lambda spec: (spec.lr, spec.damping or 0.0))
    made = [_curve(point, family, grid) for point in ordered]
    return [curve for curve in made if curve.runs or curve.diverged]


def _curve(point: RunSpec, family: list[StoredRun], grid: list[StoredRun]) -> Curve:
    at_point = [run for run in family if replace(run.spec, seed=0) == point]
    # The seed that the grid was searched with is one of the study's seeds only if the study says so.
    members = [run for run in at_point if run.phases != {"grid"} and run.status in FINISHED] or at_point
    done = sorted((run for run in members if run.status == "done"), key=lambda run: run.spec.seed)
    rates, dampings = {run.spec.lr for run in grid}, {run.spec.damping for run in grid if run.spec.damping is not None}
    first = done[0].spec if done else point
    places = _place(point.lr, rates), _place(point.damping, dampings)
    missing = sum(run.status not in FINISHED for run in grid) if "none" not in places[:1] else 0
    return Curve(first, tuple(done), sum(run.status == "diverged" for run in members), missing, *places)


def _place(value: float | None, values: set[float]) -> Place:
    if value is None or value not in values:
        return "none"
    if len(values) == 1:
        return "only value"
    return "edge" if math.isclose(value, min(values)) or math.isclose(value, max(values)) else "interior"
