"""Runs a study to its end: hands out the runs, stores what comes back, and can be killed at any moment.

One process hands out and stores; others compute, see `worker.compute`. Where they run is the executor's business.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

from gbackprop.curvature.data.executors import Pool, interrupts_blocked
from gbackprop.experiments.estimate import Forecast, weight
from gbackprop.experiments.folder import alone, folder_of
from gbackprop.experiments.interruptions import interruptions
from gbackprop.experiments.protocol import Grid, Protocol
from gbackprop.experiments.schema import StoreError
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.store import Store, process_name
from gbackprop.experiments.stored import FINISHED, StoredRun
from gbackprop.experiments.view import Lines, State
from gbackprop.experiments.worker import Answer, Runner, Task, compute, read_note, stop_file

LOOK_EVERY = 0.5  # seconds between looks at where the runs are


@dataclass(frozen=True)
class Settings:
    """The settings with which runs are computed."""

    data_dir: Path | None = None  # of the images; the same for every worker
    device: str = "cpu"
    threads: int = 1  # of each run
    run: Runner | None = None  # computes a run, with the arguments of `runs.run`, which is the default
    data: Mapping[str, str] = field(default_factory=dict)  # lines on the data of the problems, stored by their keys


@dataclass(frozen=True)
class Summary:
    """The counts of runs at the end of a study."""

    done: int  # in this study or before
    diverged: int
    failed: tuple[StoredRun, ...]  # the next start tries them again
    hopeless: tuple[Grid, ...]  # every point diverged, so that there is no best
    stopped: bool  # by Ctrl-C


def run_study(protocol: Protocol, path: str | Path, pool: Pool, settings: Settings, view: Lines) -> Summary:
    """Run everything that is not yet stored."""
    path = Path(path)
    with alone(path), Store(path) as store:
        store.write_note("owner", process_name())
        _hold_data(store, settings.data)
        return _Study(protocol, store, pool, settings, view).run()


def _hold_data(store: Store, data: Mapping[str, str]) -> None:
    """Runs of one file are on the same data: complete, or incomplete in the same way, and image by image."""
    for key, now in data.items():
        before = store.read_note(key) or now
        if before != now:
            raise StoreError(f"{store.path}: its runs are on other {key}: {before}; now: {now}")
        store.write_note(key, now)


class _Study:
    """A study under way."""

    def __init__(self, protocol: Protocol, store: Store, pool: Pool, settings: Settings, view: Lines) -> None:
        self.protocol, self.store, self.pool, self.settings, self.view = protocol, store, pool, settings, view
        self.folder = folder_of(store.path)
        self.results: dict[RunSpec, StoredRun] = {}
        self.flying: dict[Future[Answer], tuple[Task, Executor]] = {}
        self.suspects: set[RunSpec] = set()
        self.forecast = Forecast()

    def run(self) -> Summary:
        stop_file(self.folder).unlink(missing_ok=True)
        self._load()
        try:
            with interruptions() as interrupted:
                while not interrupted.is_set() and self._hand_out():
                    self._collect()
                if interrupted.is_set():
                    self.view.say("stopping at the next step; Ctrl-C again leaves at once")
                    self._stop()
        except BaseException:
            with contextlib.suppress(OSError):
                stop_file(self.folder).touch()
            raise
        return self._summary(interrupted.is_set())

    def _load(self) -> None:
        """Take up what earlier starts left."""
        self.results = {run.spec: run for run in self.store.runs()}
        self.store.take_up(self.protocol.specs(self.results))
        self.results = {run.spec: run for run in self.store.runs()}
        for run in self.results.values():
            if run.status in FINISHED:
                # Killed between storing it and cleaning up, perhaps.
                self._task(run.spec).clean()
                self._learn(run)

    # ------------------------------------------------------------------------------------------------------ handing out

    def _hand_out(self) -> bool:
        """Start as many runs as there are free workers, the longest first; return whether any is under way."""
        members = list(self.protocol.members(self.results))
        known = self.results
        new = [(spec, phase) for spec, phase in members if spec not in known or phase not in known[spec].phases]
        if new:
            self.store.add(new)
        for spec, phase in new:
            run = self.results.get(spec) or StoredRun(spec, "pending", frozenset())
            self.results[spec] = replace(run, phases=run.phases | {phase})
        waiting = [spec for spec in dict(members) if self.results[spec].status == "pending"]
        for spec in self._next(waiting):
            self.store.start(spec)
            self._note(spec, "running")
            task = self._task(spec)
            try:
                with interrupts_blocked():  # a pool may start its processes now
                    self.flying[self.pool.executor.submit(compute, task)] = task, self.pool.executor
            except BrokenExecutor as error:
                self._died(task, self.pool.executor, error)
        return bool(self.flying or waiting)

    def _next(self, waiting: list[RunSpec]) -> list[RunSpec]:
        """Return the runs to start now. A run whose process died is repeated alone: no other can then be the cause."""
        suspects = [spec for spec in waiting if spec in self.suspects]
        if suspects:
            return [] if self.flying else suspects[:1]
        if any(task.spec in self.suspects for task, _ in self.flying.values()):
            return []
        return sorted(waiting, key=weight, reverse=True)[: self.pool.slots - len(self.flying)]

    def _task(self, spec: RunSpec) -> Task:
        s = self.settings
        return Task(spec, self.folder, s.data_dir, s.device, s.threads, s.run)

    def _note(self, spec: RunSpec, status: str, error: str = "") -> None:
        self.results[spec] = replace(self.results[spec], status=status, error=error)

    # ------------------------------------------------------------------------------------------------------- collecting

    def _collect(self) -> None:
        """Store what has come to its end; show the rest."""
        ended, _ = wait(self.flying, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
        for future in ended:
            self._record(future)
        self.view.update(self._state())

    def _record(self, future: Future[Answer]) -> None:
        task, executor = self.flying.pop(future)
        try:
            answer = future.result()
        except BrokenExecutor as error:
            return self._died(task, executor, error)
        except (Exception, CancelledError) as error:
            answer = Answer(error=f"{type(error).__name__}: {error}")
        if answer.stopped:
            self.store.release(task.spec)
            return self._note(task.spec, "pending")
        self._store(task, answer)

    def _store(self, task: Task, answer: Answer) -> None:
        spec, outcome = task.spec, answer.outcome
        if outcome is None:
            self.store.fail(spec, answer.error)
            self._note(spec, "failed", answer.error)
        else:
            self.store.finish(outcome, answer.owner, answer.versions)
            self.results[spec] = replace(self.results[spec], status=outcome.status, rows=outcome.rows)
            self._learn(self.results[spec], task)
            task.clean()
        self.view.ended(self.results[spec], self._state())

    def _died(self, task: Task, executor: Executor, error: BrokenExecutor) -> None:
        """Replace a pool of which a process died; the run is repeated, or fails if that is the second time."""
        if executor is self.pool.executor and not self.pool.replace():
            raise error
        if task.spec in self.suspects:
            return self._store(task, Answer(error="the process that computed it died, twice"))
        self.suspects.add(task.spec)
        self.store.release(task.spec)
        self._note(task.spec, "pending")

    def _stop(self) -> None:
        """Let the runs under way end where they can be resumed, and store those that had come to their end."""
        stop_file(self.folder).touch()
        wait(self.flying)
        for future in list(self.flying):
            self._record(future)
        stop_file(self.folder).unlink(missing_ok=True)

    # -------------------------------------------------------------------------------------------------------- reporting

    def _learn(self, run: StoredRun, task: Task | None = None) -> None:
        note = read_note(task) if task else None
        if note and note.recent:
            return self.forecast.learn(run.spec, note.recent, note.seconds)
        # The first row is before training.
        self.forecast.learn(run.spec, len(run.rows) - 1, sum(row.seconds for row in run.rows))

    def _state(self) -> State:
        forecast = deepcopy(self.forecast)
        work: list[tuple[RunSpec, float]] = []
        notes = [(task.spec, read_note(task)) for task, _ in self.flying.values()]
        for spec, note in notes:
            if note:
                forecast.learn(spec, note.recent, note.seconds)
            done = note.done if note else 0
            work.append((spec, (spec.epochs or 0) - done))
        specs = self.protocol.specs(self.results)
        statuses = Counter(self.results[spec].status if spec in self.results else "pending" for spec in specs)
        for spec in specs:
            if spec not in self.results or self.results[spec].status == "pending":
                work.append((spec, spec.epochs or 0))
        for grid in self.protocol.grids:
            if not grid.ended(self.results):
                repeats = grid.total() - len(grid.points)
                work += [(grid.points[0], grid.points[0].epochs or 0)] * repeats
        ended = sum(statuses[status] for status in (*FINISHED, "failed"))
        left = forecast.left(work, self.pool.slots)
        return State(ended, self.protocol.total(self.results), tuple(notes), left)

    def _summary(self, stopped: bool) -> Summary:
        runs = [self.results[spec] for spec in self.protocol.specs(self.results) if spec in self.results]
        statuses = Counter(run.status for run in runs)
        failed = tuple(run for run in runs if run.status == "failed")
        grids = self.protocol.grids
        hopeless = tuple(grid for grid in grids if grid.ended(self.results) and not grid.best(self.results))
        return Summary(statuses["done"], statuses["diverged"], failed, hopeless, stopped)
