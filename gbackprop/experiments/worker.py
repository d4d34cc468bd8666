"""The computation of one run of a study: in another process, on another machine, or in this one."""

import contextlib
import functools
import json
import platform
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from gbackprop import __version__
from gbackprop.base.files import written
from gbackprop.experiments import runs
from gbackprop.experiments.locks import hold
from gbackprop.experiments.problems import Split, load_problem, problem
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.store import process_name

Runner = Callable[..., runs.Outcome]

NOTE_EVERY = 0.5  # seconds between notes of where a run is, and between looks at whether it shall stop
LOCK_PATIENCE = 120.0  # seconds: what a process that lost its study needs to find out and end


@dataclass(frozen=True)
class Task:
    """A run, and where and how to compute it."""

    spec: RunSpec
    folder: Path  # of its checkpoint and notes; the same for whoever hands out the work
    data_dir: Path | None = None  # of the images
    device: str = "cpu"
    threads: int = 1  # of BLAS, and of the blocks of each backward sweep
    run: Runner | None = None  # what computes it, with the arguments of `runs.run`

    @property
    def name(self) -> str:
        """For its files: readable, and its own, whichever study it belongs to."""
        digest = sha256(self.spec.key().encode()).hexdigest()[:12]
        return f"{self.spec.problem}-{self.spec.optimizer}-{self.spec.seed}-{digest}"

    @property
    def checkpoint(self) -> Path:
        """Its state after the last epoch."""
        return self.folder / f"{self.name}.npz"

    @property
    def note(self) -> Path:
        """The file of the run's progress, for the progress bar."""
        return self.folder / f"{self.name}.json"

    @property
    def lock(self) -> Path:
        """The lock file of the task, locked while it is computed."""
        return self.folder / f"{self.name}.lock"

    def clean(self) -> None:
        """Remove its files, once it is stored."""
        # Whatever a kill left half-written, too.
        for path in self.folder.glob(f"{self.name}.*"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Answer:
    """The answer to a task; exactly one of `outcome`, `error` and `stopped`."""

    outcome: runs.Outcome | None = None  # if it came to its end
    error: str = ""  # if it raised: one line, then the traceback
    stopped: bool = False  # if it was asked to stop
    owner: str = ""  # the process that computed it
    versions: str = ""  # JSON


class _Stopped(Exception):
    """The study is to stop."""


def stop_file(folder: Path) -> Path:
    """Return the path of a file at whose presence runs of the study stop at their next report."""
    return folder / "stop"


def compute(task: Task) -> Answer:
    """Compute a run, from its checkpoint if there is one."""
    versions = {"gbackprop": __version__, "numpy": np.__version__, "python": platform.python_version()}
    answer = Answer(owner=process_name(), versions=json.dumps(versions))
    try:
        # The process that had this run before may live a moment longer than the study that it worked for.
        with hold(task.lock, LOCK_PATIENCE), threadpool_limits(task.threads):
            return replace(answer, outcome=_call(task))
    except _Stopped:
        return replace(answer, stopped=True)
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return replace(answer, error=f"{line}\n{traceback.format_exc()}")


def _call(task: Task) -> runs.Outcome:
    settings: dict[str, Any] = {"device": task.device, "checkpoint": task.checkpoint, "report": _Notes(task)}
    if task.run is not None:
        return task.run(task.spec, task.data_dir, **settings)
    split = _images(task.spec.problem, task.data_dir)
    return runs.run(task.spec, split=split, workers=task.threads, **settings)


@functools.lru_cache(maxsize=1)
def _images(name: str, data_dir: Path | None) -> Split:
    """Load a problem's images, and cache them: a worker mostly gets one problem's runs after another."""
    return load_problem(problem(name), data_dir)


class _Notes:
    """Writes down how far a run is, and ends it if the study is to stop."""

    def __init__(self, task: Task) -> None:
        self.task, self.began, self.written, self.first, self.moving = task, time.monotonic(), -NOTE_EVERY, 0.0, False

    def __call__(self, event: Any) -> None:
        done = max(event.epoch, 0) + event.step / max(event.steps, 1)
        self.moving = self.moving or event.step > 0
        if not self.moving:  # what a checkpoint holds was not computed now
            self.first = done
        now = time.monotonic()
        if now - self.written < NOTE_EVERY:
            return
        self.written = now
        if stop_file(self.task.folder).exists():
            raise _Stopped
        note = Note(done, event.epochs, done - self.first, now - self.began)
        with contextlib.suppress(OSError), written(self.task.note) as part:  # a full disk is for the checkpoint to say
            part.write_text(json.dumps(asdict(note)))


@dataclass(frozen=True)
class Note:
    """The progress of a run, as its process notes it in a file."""

    done: float  # epochs, with the part of the one under way
    epochs: int  # of how many
    recent: float  # epochs since this process took it up
    seconds: float  # since then


def read_note(task: Task) -> Note | None:
    """Read the progress of a run, if its process has noted any."""
    try:
        return Note(**json.loads(task.note.read_text()))
    except (OSError, ValueError, TypeError):
        return None
