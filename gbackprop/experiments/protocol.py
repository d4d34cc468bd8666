"""The runs of a study: those with given hyperparameters, and grids whose best point is repeated.

The paper's protocol: every point of a grid of learning rates and dampings with one seed; the best by final validation
accuracy; ten seeds of the best.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.stored import FINISHED, Phase, StoredRun

Results = Mapping[RunSpec, StoredRun]


@dataclass(frozen=True)
class Grid:
    """A grid of one optimizer on one problem, and what follows from it."""

    points: tuple[RunSpec, ...]  # one for each combination of hyperparameters, all with the same seed
    seeds: tuple[int, ...]  # with which the best point is run again; the grid's own is not run twice

    def total(self) -> int:
        """Return the number of runs: all points, and the repeats of the best with further seeds."""
        return len(self.points) + sum(seed != self.points[0].seed for seed in self.seeds)

    def best(self, results: Results) -> RunSpec | None:
        """Return the best point, once every point has come to its end."""
        return best([results[point] for point in self.points]) if self.ended(results) else None

    def ended(self, results: Results) -> bool:
        """Return whether every point is done or has diverged."""
        found = (results.get(point) for point in self.points)
        return all(run is not None and run.status in FINISHED for run in found)

    def repeats(self, results: Results) -> tuple[RunSpec, ...]:
        """Return the best point with each seed; empty while the best is not known."""
        point = self.best(results)
        return tuple(replace(point, seed=seed) for seed in self.seeds) if point else ()


@dataclass(frozen=True)
class Protocol:
    """Everything that a study is to run."""

    fixed: tuple[RunSpec, ...]  # runs with given hyperparameters
    grids: tuple[Grid, ...]

    def members(self, results: Results) -> Iterator[tuple[RunSpec, Phase]]:
        """Yield the runs that are known so far, each with its phase."""
        for spec in self.fixed:
            yield spec, "fixed"
        for grid in self.grids:
            for spec in grid.points:
                yield spec, "grid"
            for spec in grid.repeats(results):
                yield spec, "repeat"

    def problems(self) -> tuple[str, ...]:
        """Return the problems, each once."""
        specs = [*self.fixed, *(point for grid in self.grids for point in grid.points)]
        return tuple(dict.fromkeys(spec.problem for spec in specs))

    def specs(self, results: Results) -> tuple[RunSpec, ...]:
        """Return the same runs, each once."""
        return tuple(dict.fromkeys(spec for spec, _ in self.members(results)))

    def total(self, results: Results) -> int:
        """Return the number of runs of the study, if no grid diverges as a whole."""
        undecided = [grid for grid in self.grids if not grid.ended(results)]
        return len(self.specs(results)) + sum(grid.total() - len(grid.points) for grid in undecided)


def best(runs: list[StoredRun]) -> RunSpec | None:
    """Return the run that generalizes best."""
    done = [run for run in runs if run.status == "done" and run.rows and not math.isnan(run.rows[-1].valid_accuracy)]
    return min(done, key=_rank).spec if done else None


def _rank(run: StoredRun) -> tuple[float, float, float, float]:
    last = run.rows[-1]
    loss = math.inf if math.isnan(last.valid_loss) else last.valid_loss
    return -last.valid_accuracy, loss, run.spec.lr, -(run.spec.damping or 0.0)
