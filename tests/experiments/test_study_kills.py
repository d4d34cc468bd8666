"""A study that is killed at random moments ends with what one left alone ends with: nothing lost, nothing run twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import fake_runs
import numpy as np
import pytest

pytest.importorskip("filelock")
pytest.importorskip("rich")

from gbackprop.experiments.folder import folder_of
from gbackprop.experiments.locks import HeldError, LockError, hold
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.store import Store
from gbackprop.experiments.worker import Task, compute

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE = 120.0  # seconds: far beyond what anything here takes, so that a slow machine fails nothing

FAKE = """
problem = "mnist_logreg"
epochs = 2
seeds = [42, 43, 44]
[[runs]]
optimizer = ["Momentum", "Adam"]
lr = 1e-2
[[grids]]
optimizer = "KFAC"
lr = [1e-3, 1e-2, 1]
damping = [1e-2, 1e-1]
"""
MORTAL = """
problem = "mnist_logreg"
epochs = 3
seeds = [42]
[[runs]]
optimizer = "KFAC"
lr = 0.7
damping = 1
[[runs]]
optimizer = "Adam"
lr = 1e-2
"""
TINY = """
problem = "mnist_logreg"
epochs = 3
seeds = [42, 43]
[[runs]]
optimizer = "Momentum"
lr = 1e-2
[[runs]]
optimizer = "DiagGGN-MC"
lr = 1e-2
damping = 1e-2
"""


@pytest.fixture
def place(tmp_path):
    """Starts studies in a folder of their own; what is still alive at the end is killed, with its workers."""
    place = Place(tmp_path)
    yield place
    for process in place.started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Place:
    """A study's files, and its processes."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.folder, self.database, self.started = folder, folder / "results.sqlite", []

    def start(self, run, toml, executor, launcher=(sys.executable,)):
        (self.folder / "study.toml").write_text(toml)
        command = [*launcher, HERE / "study_process.py", executor, run, "study.toml", self.database, "."]
        paths = os.pathsep.join([str(ROOT), str(HERE)])
        with open(self.folder / "err", "a") as err, open(self.folder / "out", "a") as out:
            own = {"cwd": self.folder, "env": os.environ | {"PYTHONPATH": paths}, "start_new_session": True}
            process = subprocess.Popen(command, stdout=out, stderr=err, **own)
        self.started.append(process)
        return process

    def wait_for(self, process, happened):
        end = time.monotonic() + PATIENCE
        while process.poll() is None and not happened():
            assert time.monotonic() < end, (self.folder / "err").read_text()
            time.sleep(0.002)

    def finish(self, process):
        assert process.wait(PATIENCE) == 0, (self.folder / "err").read_text()

    def lines(self):
        return len(fake_runs.read(self.folder))

    def owners(self):
        """The processes that have computed something, in the order of their first."""
        return list(dict.fromkeys(process for _, process, _, _ in fake_runs.read(self.folder)))

    def ended(self):
        """Runs that have computed their last epoch."""
        return sum(what == "end" and epoch == 2 for _, _, what, epoch in fake_runs.read(self.folder))

    def content(self, seconds=True):
        """All that is stored but for who computed it when."""
        with Store(self.database, reading=True) as store:
            return {
                run.spec: (run.status, run.phases, run.error, [_figures(row, seconds) for row in run.rows])
                for run in store.runs()
            }


def _figures(row, seconds):
    return tuple(value for name, value in vars(row).items() if seconds or name != "seconds")


def kill(process, whole_group):
    """Without mercy: the process that hands out the work, or all of them."""
    if process.poll() is None:
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL, no process groups")
@pytest.mark.parametrize("most", [1, pytest.param(20, marks=pytest.mark.long)])
def test_killed_again_and_again(tmp_path, most):
    rng = np.random.default_rng(5)
    alone = Place(tmp_path / "alone")
    alone.finish(alone.start("fake", FAKE, "serial"))
    kills, rounds = 0, 0
    # On a fast machine a study may come to its end between kills: then the next one begins.
    while kills < most:
        place, rounds, before = Place(tmp_path / str(rounds)), rounds + 1, kills
        while kills < most and (killed := start_and_kill(place, rng)):
            kills += killed
        place.finish(place.start("fake", FAKE, "processes,2"))
        assert place.content() == alone.content()
        assert not folder_of(place.database).exists(), "checkpoints are left behind"
        judge_log(fake_runs.read(place.folder), fake_runs.read(alone.folder), kills - before)
    assert {status for status, *_ in alone.content().values()} == {"done", "diverged"}


def start_and_kill(place, rng):
    """Go on with a study for a moment; whether it was killed before its end."""
    process = place.start("fake", FAKE, "processes,2" if rng.random() < 0.6 else "serial")
    try:
        if rng.random() < 0.5:
            wanted = place.lines() + int(rng.integers(0, 12))
            place.wait_for(process, lambda: place.lines() >= wanted)
            time.sleep(rng.uniform(0, 0.02))
        else:  # when a run is about to be stored
            ended = place.ended()
            place.wait_for(process, lambda: place.ended() > ended)
            time.sleep(rng.uniform(0, 0.01))
        alive = process.poll() is None
    finally:
        kill(process, whole_group=rng.random() < 0.5)
    return alive


def judge_log(log, undisturbed, kills):
    """Assert that each epoch was computed once, but for those that a kill cut short."""
    starts = Counter((key, epoch) for key, _, what, epoch in log if what == "start")
    assert set(starts) == {(key, epoch) for key, _, what, epoch in undisturbed if what == "start"}
    # A kill cuts short at most an epoch of each of the two processes.
    assert sum(starts.values()) - len(starts) <= 2 * kills
    ended = set()
    for key, _, what, epoch in log:
        assert what == "end" or (key, epoch) not in ended, "an epoch that was complete was computed again"
        if what == "end":
            ended.add((key, epoch))
    owners = {}
    for key, process, _, _ in log:
        if owners.setdefault(key, [process])[-1] != process:
            assert process not in owners[key], "two processes computed a run at the same time"
            owners[key].append(process)


@pytest.mark.parametrize("log", [
    [("a", 1, "start", 0), ("a", 1, "end", 0), ("a", 2, "start", 0), ("a", 2, "end", 0)],
    [("a", 1, "start", 0), ("a", 2, "start", 0), ("a", 1, "end", 0)],
    [("a", 1, "start", 0), ("a", 2, "start", 0), ("a", 3, "start", 0), ("a", 4, "start", 0), ("a", 4, "end", 0)],
    [],
])  # fmt: skip
def test_the_log_is_judged(log):
    undisturbed = [("a", 1, "start", 0), ("a", 1, "end", 0)]
    judge_log(undisturbed, undisturbed, 1)
    with pytest.raises(AssertionError):
        judge_log(log, undisturbed, 1)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL, no process groups")
@pytest.mark.long
@pytest.mark.parametrize("most", [1, 20])
def test_real_runs_killed(place, tmp_path, most):
    rng = np.random.default_rng(6)
    alone = Place(tmp_path / "alone")
    alone.finish(alone.start("tiny", TINY, "serial"))
    folder = folder_of(place.database)
    for _ in range(most):
        process = place.start("tiny", TINY, "processes,2")
        place.wait_for(process, lambda: any(folder.glob("*.npz*")))
        time.sleep(rng.uniform(0, 0.03))
        if process.poll() is not None:
            break
        kill(process, whole_group=rng.random() < 0.5)
    place.finish(place.start("tiny", TINY, "processes,2"))
    assert place.content(seconds=False) == alone.content(seconds=False)
    assert len(place.content()) == 4


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_workers_end_with_the_study_that_they_work_for(place):
    long = FAKE.replace("epochs = 2", "epochs = 1000")
    first = place.start("fake", long, "processes,2")
    place.wait_for(first, lambda: len(place.owners()) == 2)
    orphans = place.owners()
    kill(first, whole_group=False)
    second = place.start("fake", long, "processes,2")
    place.wait_for(second, lambda: len(place.owners()) == 4)
    place.wait_for(second, lambda: not any(map(alive, orphans)))
    count = place.lines()
    place.wait_for(second, lambda: place.lines() > count + 20)
    kill(second, whole_group=True)
    assert not any(map(alive, orphans))
    log = fake_runs.read(place.folder)
    judge_log(log, log, 2)


def alive(process):
    """Return whether a process is there; one that has ended and was not fetched counts as gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        if Path("/proc").is_dir():
            return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_run_waits_for_the_process_that_had_it(tmp_path):
    task = Task(RunSpec("mnist_logreg", "SGD", 0.1, epochs=1), tmp_path, tmp_path, run=fake_runs.run)
    with ThreadPoolExecutor(1) as executor:
        with hold(task.lock, timeout=0):
            answer = executor.submit(compute, task)
            with pytest.raises(TimeoutError):
                answer.result(timeout=0.3)
            assert fake_runs.read(tmp_path) == []
            with pytest.raises(HeldError), hold(task.lock, timeout=0.05):
                pass
        assert answer.result(timeout=PATIENCE).outcome.status == "done"


def test_a_file_that_cannot_be_locked_is_told(tmp_path):
    (tmp_path / "file").touch()
    held = hold(tmp_path / "file" / "lock", timeout=0)
    with pytest.raises(LockError, match="file/lock: cannot be locked: "), held:
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
@pytest.mark.parametrize("interrupted", [[25], pytest.param([6, 25], marks=pytest.mark.long)])
def test_interrupted_cleanly(place, interrupted):
    for lines in interrupted:
        process = place.start("fake", FAKE, "processes,2")
        place.wait_for(process, lambda least=lines: place.lines() > least)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        place.finish(process)
        assert (place.folder / "err").read_text() == ""
        assert {run[0] for run in place.content().values()} <= {"pending", "done", "diverged"}
    assert "stopping at the next step" in (place.folder / "out").read_text()
    place.finish(place.start("fake", FAKE, "serial"))
    assert {status for status, *_ in place.content().values()} == {"done", "diverged"}
    starts = Counter(line for line in fake_runs.read(place.folder) if line[2] == "end")
    assert set(starts.values()) == {1}


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_a_second_study_is_refused_while_the_first_lives(place):
    first = place.start("fake", FAKE.replace("epochs = 2", "epochs = 500"), "serial")
    place.wait_for(first, lambda: place.lines() > 2)
    assert place.start("fake", FAKE, "serial").wait(PATIENCE) == 1
    last = (place.folder / "err").read_text().splitlines()[-1]
    assert "results.sqlite: another study works on it (process " in last
    assert f"process {first.pid} on" in last
    kill(first, whole_group=False)
    place.finish(place.start("fake", FAKE, "serial"))


@pytest.mark.long
def test_a_worker_that_dies_takes_nothing_with_it(place):
    (place.folder / "kill").touch()
    place.finish(place.start("fake", MORTAL, "processes,2"))
    by_optimizer = {spec.optimizer: run for spec, run in place.content().items()}
    assert by_optimizer["KFAC"][0] == "failed"
    assert by_optimizer["KFAC"][2] == "the process that computed it died, twice"
    assert by_optimizer["Adam"][0] == "done"
    (place.folder / "kill").unlink()
    place.finish(place.start("fake", MORTAL, "serial"))
    assert [status for status, *_ in place.content().values()] == ["done", "done"]
