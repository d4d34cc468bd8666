"""One training run, from its settings to its curves."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import gbackprop as gb
from gbackprop import losses
from gbackprop.array import check_device, device_of
from gbackprop.experiments import checkpoint as checkpoints
from gbackprop.experiments.problems import Split, batches, load_problem, problem, regularization
from gbackprop.experiments.spec import RunSpec, make_optimizer

LOSS = losses.CrossEntropyLoss()

# What a random number is for: the first entry beside the seed, so that the streams do not meet.
INITIAL_VALUES, ORDER, NOISE = range(3)


@dataclass(frozen=True)
class EpochRow:
    """The losses and accuracies of a network after an epoch; losses include the L2 term."""

    epoch: int  # 0 is before training
    train_loss: float  # on the first training images, as many as there are test images, not augmented
    train_accuracy: float
    valid_loss: float
    valid_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float  # that the epoch's training took


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    spec: RunSpec
    status: str  # "done", or "diverged": a loss or parameter is no longer finite; the rows end before that
    rows: tuple[EpochRow, ...]  # one before training and one after each epoch


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    epoch: int  # epochs done
    epochs: int
    step: int  # steps done in the epoch under way
    steps: int
    row: EpochRow | None = None  # at the end of an epoch, and before the first
    loss: float | None = None  # mean over the batches of this epoch, each before its step, without the L2 term
    evaluated: float | None = None  # during an evaluation, the part of the images that is done


Report = Callable[[Progress], None]


def identity(spec: RunSpec, split: Split) -> str:
    """Return the settings of a run and the digest of its images as text: the run that a checkpoint is of."""
    return json.dumps(json.loads(spec.key()) | {"images": split.digest})


class _Diverged(Exception):
    """A number is no longer finite."""


def run(
    spec: RunSpec, data_dir: str | Path | None = None, device: str = "cpu", checkpoint: str | Path | None = None,
    report: Report | None = None, split: Split | None = None, workers: int | None = None,
) -> Outcome:  # fmt: skip
    """Train a network from its initial values, or from a checkpoint, to the end."""
    check_device(device)
    split = split or load_problem(problem(spec.problem), data_dir)
    state = _State(spec, device, split, report or (lambda _: None), workers)
    if checkpoint is not None and Path(checkpoint).exists():
        state.restore(Path(checkpoint))
        state.replay()
    # Overflow and what follows from it are looked for after every step: no warnings on the way.
    with np.errstate(all="ignore"):
        try:
            while len(state.rows) <= state.epochs:
                state.advance()
                if checkpoint is not None:
                    state.save(Path(checkpoint))
        except (_Diverged, gb.NotFiniteError, np.linalg.LinAlgError):
            return Outcome(spec, "diverged", tuple(state.rows))
    return Outcome(spec, "done", tuple(state.rows))


class _State:
    """A run under way."""

    def __init__(self, spec: RunSpec, device: str, split: Split, report: Report, workers: int | None) -> None:
        self.spec, self.device, self.split, self.report = spec, device, split, report
        self.problem = problem(spec.problem)
        assert spec.epochs is not None  # it has the problem's own in its place
        self.epochs = spec.epochs
        self.network = self.problem.network(self._rng(INITIAL_VALUES)).to(device)
        self.optimizer = make_optimizer(self.network, self.problem.l2, spec)
        # KFRA averages over the whole batch, which no worker has.
        self.workers = None if spec.optimizer == "KFRA" else workers
        self.steps = len(split.train_x) // self.problem.batch
        self.rows: list[EpochRow] = []
        self.loss: float | None = None  # of the epoch under way

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.spec.seed, *purpose])

    def advance(self) -> None:
        """Train for an epoch (but not the first time), then evaluate."""
        start = time.perf_counter()
        if self.rows:
            self._train(len(self.rows))
        seconds = time.perf_counter() - start if self.rows else 0.0
        row = EpochRow(epoch=len(self.rows), seconds=seconds, **self._evaluate())
        self.rows.append(row)
        self.loss = None
        self._report(0, row)

    def _train(self, epoch: int) -> None:
        """Train for one epoch; its random numbers depend on the seed and its number alone: it can be repeated."""
        noise, total = self._rng(NOISE, epoch), 0.0
        for step, (x, y) in enumerate(batches(self.split, self.problem, self._rng(ORDER, epoch)), 1):
            x, y = gb.asarray(x, self.device), gb.asarray(y, self.device)
            asked = self.optimizer.quantities
            result = gb.backward(self.network, LOSS, x, y, *asked, rng=noise, training=True, workers=self.workers)
            total += float(result.loss)
            if not math.isfinite(total):
                raise _Diverged
            self.optimizer.step(result)
            self.loss = total / step
            self._report(step)

    def replay(self) -> None:
        """Report what was done before."""
        for row in self.rows:
            self.report(Progress(row.epoch, self.epochs, 0, self.steps, row))

    def _report(self, step: int, row: EpochRow | None = None, evaluated: float | None = None) -> None:
        self.report(Progress(len(self.rows) - 1, self.epochs, step, self.steps, row, self.loss, evaluated))

    def _evaluate(self) -> dict[str, float]:
        s = self.split
        rows = len(s.test_x)
        train = s.train_x[:rows], s.train_y[:rows]
        parts = {"train": train, "valid": (s.valid_x, s.valid_y), "test": (s.test_x, s.test_y)}
        penalty = regularization(self.network, self.problem.l2)
        batch = self.problem.batch
        done, batches = itertools.count(1), sum(len(x) // batch for x, _ in parts.values())
        step = self.steps if self.rows else 0

        def report() -> None:
            self._report(step, evaluated=next(done) / batches)

        figures = {}
        for part, (x, y) in parts.items():
            loss, figures[f"{part}_accuracy"] = evaluate(self.network, x, y, batch, report)
            figures[f"{part}_loss"] = loss + penalty
            if not math.isfinite(loss + penalty):
                raise _Diverged
        return figures

    # ------------------------------------------------------------------------------------------------------ checkpoint

    def save(self, path: Path) -> None:
        rows, state = [asdict(row) for row in self.rows], self.network.state_dict()
        parameters = {name: gb.asnumpy(value) for name, value in state.items()}
        checkpoints.save(path, identity(self.spec, self.split), rows, parameters, self.optimizer.state_dict())

    def restore(self, path: Path) -> None:
        rows, parameters, optimizer = checkpoints.load(path, identity(self.spec, self.split))
        try:
            self.network.load_state_dict(parameters)
            self.optimizer.load_state_dict(optimizer)
            self.rows = [EpochRow(**row) for row in rows]
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: a checkpoint of another network or optimizer: {error}") from error


def evaluate(
    network: gb.Sequential, x: np.ndarray, y: np.ndarray, batch: int, report: Callable[[], None] = lambda: None
) -> tuple[float, float]:
    """Return the mean loss without the L2 term, and the accuracy; the last partial batch is dropped."""
    device = device_of(next(iter(network.parameters.values())))
    loss, right, used = 0.0, 0, len(x) // batch * batch
    for start in range(0, used, batch):
        output = network(gb.asarray(x[start : start + batch], device))
        labels = gb.asarray(y[start : start + batch], device)
        loss += float(LOSS(output, labels)) * batch
        right += int((output.argmax(1) == labels).sum())
        report()
    return loss / used, right / used
