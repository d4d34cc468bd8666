"""Studies from beginning to end, without kills: what is run, what is said, where it is computed, what is exported."""

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import fake_runs
import pytest
from test_study_kills import PATIENCE, Place

pytest.importorskip("filelock")
pytest.importorskip("rich")

from rich.console import Console

from gbackprop.base.files import OutputError
from gbackprop.base.threads import cpu_count
from gbackprop.curvature.data.executors import Pool, open_pool
from gbackprop.experiments import study, worker
from gbackprop.experiments.estimate import Forecast, duration, weight
from gbackprop.experiments.export import HEADER, export
from gbackprop.experiments.folder import alone, folder_of
from gbackprop.experiments.interruptions import interruptions
from gbackprop.experiments.runs import EpochRow, Progress
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.store import Store, StoreError
from gbackprop.experiments.stored import StoredRun
from gbackprop.experiments.study import Settings, run_study
from gbackprop.experiments.study_file import read
from gbackprop.experiments.view import Bars, Lines, State
from gbackprop.experiments.worker import Note, Task, compute, stop_file

ROOT = Path(__file__).parents[2]

SMALL = """
problem = "mnist_logreg"
epochs = 3
seeds = [42, 43]
[[runs]]
optimizer = "Momentum"
lr = 0.3
[[grids]]
optimizer = "KFAC"
lr = [1e-2, 1]
damping = [1e-2, 1e-1]
"""


def run(folder, toml=SMALL, pool=None, view=Lines, terminal=False):
    """A study of fake runs in this process; what it came to and what it said."""
    (folder / "study.toml").write_text(toml)
    console = Console(file=io.StringIO(), width=200, force_terminal=terminal)
    with ThreadPoolExecutor(2) as executor, view(console) as shown:
        settings = Settings(folder, run=fake_runs.run)
        pool = pool or Pool(executor, 2)
        summary = run_study(read(folder / "study.toml"), folder / "r.sqlite", pool, settings, shown)
    return summary, console.file.getvalue()


def stored(folder):
    with Store(folder / "r.sqlite", reading=True) as store:
        return store.runs()


def test_grid_then_repeats_of_the_best(tmp_path):
    summary, said = run(tmp_path)
    assert (summary.done, summary.diverged, summary.failed, summary.hopeless, summary.stopped) == (5, 2, (), (), False)
    by_phase = {phase: [r for r in stored(tmp_path) if phase in r.phases] for phase in ("fixed", "grid", "repeat")}
    assert [r.spec.seed for r in by_phase["fixed"]] == [42, 43]
    assert {(r.spec.lr, r.spec.damping, r.status) for r in by_phase["grid"]} == {
        *((0.01, 0.01, "done"), (0.01, 0.1, "done"), (1.0, 0.01, "diverged"), (1.0, 0.1, "diverged")),
    }
    # 1e-2 and 1e-1 is what the fake runs do best with; seed 42 is the grid's own run.
    assert [(r.spec.lr, r.spec.damping, r.spec.seed) for r in by_phase["repeat"]] == [(0.01, 0.1, 42), (0.01, 0.1, 43)]
    starts = [line for line in fake_runs.read(tmp_path) if line[2:] == ("start", 0)]
    assert len(starts) == len(stored(tmp_path)) == 7
    lines = said.splitlines()
    assert len(lines) == 7
    assert lines[-1].startswith("[7/7] mnist_logreg ")
    assert sum("seed 42: diverged after 1 epochs" in line for line in lines) == 2
    assert not folder_of(tmp_path / "r.sqlite").exists()
    assert {len(r.rows) for r in stored(tmp_path) if r.status == "diverged"} == {2}
    assert {len(r.rows) for r in stored(tmp_path) if r.status == "done"} == {4}


def test_the_longest_first(tmp_path):
    with ThreadPoolExecutor(1) as executor:
        run(tmp_path, pool=Pool(executor, 1))
    order = [line[0] for line in fake_runs.read(tmp_path) if line[2:] == ("start", 0)]
    assert ["Momentum" in key for key in order] == [False] * 5 + [True] * 2


class Broken(ThreadPoolExecutor):
    """An executor of which a process has died before it is given anything."""

    def submit(self, *args):
        raise BrokenExecutor


def test_a_study_goes_on_where_no_run_is_under_way_as_the_executor_broke(tmp_path):
    with ThreadPoolExecutor(1) as executor:
        summary, _ = run(tmp_path, pool=Pool(Broken(), 1, lambda: executor))
    assert (summary.done, summary.diverged, summary.failed) == (5, 2, ())


def test_done_means_done_and_a_study_that_grows_runs_what_is_new(tmp_path):
    run(tmp_path)
    before = fake_runs.read(tmp_path)
    summary, said = run(tmp_path)
    assert (summary.done, said) == (5, "")
    assert fake_runs.read(tmp_path) == before
    run(tmp_path, SMALL.replace("[42, 43]", "[42, 43, 44]"))
    new = fake_runs.read(tmp_path)[len(before) :]
    assert len({key for key, *_ in new}) == 2
    assert all('"seed": 44' in key for key, *_ in new)


def test_a_run_that_raises_is_tried_again_next_time(tmp_path):
    (tmp_path / "raise").touch()
    summary, said = run(tmp_path)
    assert (summary.done, summary.diverged, len(summary.failed)) == (3, 2, 2)
    assert "Momentum lr 0.3 seed 42: failed: ValueError: too hot today" in said
    (failed,) = (r for r in stored(tmp_path) if r.status == "failed" and r.spec.seed == 42)
    assert failed.error.startswith("ValueError: too hot today\nTraceback")
    assert 'raise ValueError("too hot' in failed.error
    (tmp_path / "raise").unlink()
    summary, _ = run(tmp_path)
    assert (summary.done, summary.diverged, summary.failed) == (5, 2, ())
    # Its first epochs came from the checkpoint.
    assert sum(line[2:] == ("start", 0) for line in fake_runs.read(tmp_path)) == 7


def test_no_best_while_a_point_has_failed(tmp_path):
    (tmp_path / "raise").touch()
    toml = SMALL.replace("lr = [1e-2, 1]", "lr = [1e-2, 0.3]")
    summary, _ = run(tmp_path, toml)
    assert len(summary.failed) == 4
    assert not any("repeat" in r.phases for r in stored(tmp_path))
    (tmp_path / "raise").unlink()
    run(tmp_path, toml)
    assert sum("repeat" in r.phases for r in stored(tmp_path)) == 2


def test_a_grid_that_diverges_everywhere(tmp_path):
    summary, said = run(tmp_path, SMALL.replace("lr = [1e-2, 1]", "lr = [1]"))
    assert [len(grid.points) for grid in summary.hopeless] == [2]
    assert said.splitlines()[-1].startswith("[4/4]")


def test_bars_on_a_terminal(tmp_path):
    _, said = run(tmp_path, view=Bars, terminal=True)
    assert "7 of 7" in said
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    spec = RunSpec("mnist_logreg", "KFAC", 1e-2, 1e-2)
    with Bars(console) as bars:
        bars.update(State(3, 49, ((spec, Note(12.5, 50, 12.5, 100.0)),), 3700.0))
        bars.update(State(3, 49, ((spec, Note(13.5, 50, 12.5, 100.0)),), 3700.0))
        whole, one = bars._progress.tasks
        assert (whole.total, whole.completed) == (49, 3 + 13.5 / 50)
        assert (one.total, one.completed) == (spec.epochs, 13.5)
    last = console.file.getvalue()
    assert "3 of 49, time left: 1 h 02 min" in last
    assert "mnist_logreg KFAC lr 0.01 damping 0.01 seed 42" in last
    assert "epoch 13.5/50" in last
    bars.update(State(4, 49, (), 3700.0))
    assert bars._progress.tasks == [whole]  # the other run has ended


def test_threads_of_blas_are_held(tmp_path):
    pools = pytest.importorskip("threadpoolctl").threadpool_info
    seen = []

    def count(spec, data_dir, **settings):
        seen.append({pool["num_threads"] for pool in pools() if pool["user_api"] == "blas"})
        return fake_runs.run(spec, data_dir, **settings)

    before = [pool["num_threads"] for pool in pools()]
    task = Task(RunSpec("mnist_logreg", "SGD", 0.1, epochs=1), tmp_path, tmp_path, threads=1, run=count)
    assert compute(task).outcome.status == "done"
    assert seen == [{1}]
    assert [pool["num_threads"] for pool in pools()] == before


def test_notes_count_what_was_computed_now(tmp_path, monkeypatch):
    """A run that begins at its third epoch, from a checkpoint, has computed nothing until its first step."""
    clock = iter([100.0, 101.0, 101.25, 103.0, 105.0])
    monkeypatch.setattr(worker.time, "monotonic", lambda: next(clock))
    task = Task(RunSpec("mnist_logreg", "SGD", 0.1, epochs=8), tmp_path, tmp_path)
    notes, found = worker._Notes(task), []
    for epoch, step in ((-1, 0), (1, 0), (2, 0), (3, 1)):
        notes(Progress(epoch, 8, step, 10))
        found.append(worker.read_note(task))
    first, third = Note(0.0, 8, 0.0, 1.0), Note(2.0, 8, 0.0, 3.0)
    assert found == [first, first, third, Note(3.1, 8, pytest.approx(1.1), 5.0)]  # the second came within half a second
    stop_file(tmp_path).touch()
    clock = iter([106.0])
    with pytest.raises(worker._Stopped):
        notes(Progress(4, 8, 0, 10))


def test_an_epoch_of_one_step_is_done_after_it(tmp_path):
    task = Task(RunSpec("mnist_logreg", "SGD", 0.1, epochs=8), tmp_path, tmp_path)
    worker._Notes(task)(Progress(3, 8, 1, 1))
    assert worker.read_note(task).done == 4


def test_runs_under_way_end_at_an_interruption_where_they_can_be_resumed(tmp_path, monkeypatch):
    """They would have 300 epochs."""
    monkeypatch.setattr(worker, "NOTE_EVERY", 0.0)
    monkeypatch.setattr(study, "LOOK_EVERY", 0.001)

    class Interrupting(Lines):
        def update(self, state):
            if any(note and note.done > 1 for _, note in state.running):
                signal.raise_signal(signal.SIGINT)

    few = SMALL.partition("[[grids]]")[0]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        summary, said = run(tmp_path, few.replace("epochs = 3", "epochs = 300"), view=Interrupting)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (summary.stopped, summary.done) == (True, 0)
    assert "stopping at the next step" in said
    assert {each.status for each in stored(tmp_path)} == {"pending"}
    assert {path.name for path in folder_of(tmp_path / "r.sqlite").iterdir()}.isdisjoint({"stop"})
    assert 2 < len([line for line in fake_runs.read(tmp_path) if line[2] == "end"]) < 200


# --- how long it takes ----------------------------------------------------------------------------


def test_the_time_left_is_that_of_all_epochs_to_come(tmp_path, monkeypatch):
    """Those of runs under way, of runs to come, and of the repeats of a grid whose best is not known yet."""
    monkeypatch.setattr(Forecast, "left", lambda self, work, slots: sum(epochs for _, epochs in work))
    monkeypatch.setattr(worker, "NOTE_EVERY", 0.0)
    monkeypatch.setattr(study, "LOOK_EVERY", 0.001)
    states = []

    class Watching(Lines):
        def update(self, state):
            states.append(state)

    run(tmp_path, view=Watching)
    assert (states[-1].ended, states[-1].left) == (7, 0)
    assert any(note.done for state in states for _, note in state.running if note)
    for state in states:
        done = sum(note.done for _, note in state.running if note)
        assert state.left == pytest.approx(3 * (state.total - state.ended) - done)


def test_a_run_that_has_noted_nothing_has_all_its_epochs_to_come(tmp_path, monkeypatch):
    monkeypatch.setattr(Forecast, "left", lambda self, work, slots: sum(epochs for _, epochs in work))
    monkeypatch.setattr(study, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(study, "read_note", lambda task: None)
    states = []

    class Watching(Lines):
        def update(self, state):
            states.append(state)

    run(tmp_path, view=Watching)
    assert any(state.running for state in states)
    assert all(state.left == 3 * (state.total - state.ended) for state in states)


def idle_study(folder):
    """A study that computes nothing."""
    return study._Study(None, SimpleNamespace(path=folder / "r.sqlite"), SimpleNamespace(slots=3), None, None)


def test_a_run_whose_process_died_is_repeated_alone(tmp_path):
    one, two, three = (RunSpec("mnist_logreg", "SGD", 0.1, epochs=epochs) for epochs in (1, 2, 3))
    new, under_way = idle_study(tmp_path), {object(): (Task(one, tmp_path), None)}
    new.flying = under_way
    assert new._next([two, three]) == [three, two]  # the longest first
    new.suspects = {one}
    assert new._next([two, three]) == []
    new.suspects = {two}
    assert new._next([two, three]) == []
    new.flying = {}
    assert new._next([three, two]) == [two]


def test_the_time_of_an_epoch_is_that_of_the_rows_after_the_first_which_is_before_training(tmp_path):
    new, spec = idle_study(tmp_path), RunSpec("mnist_logreg", "SGD", 0.1, epochs=3)
    rows = tuple(EpochRow(epoch, *[0.5] * 6, 6.0 * (epoch > 0)) for epoch in range(4))
    new._learn(StoredRun(spec, "done", frozenset(), rows))
    assert new.forecast.seconds(spec) == 6


def test_time_left():
    kfac, adam = RunSpec("mnist_logreg", "KFAC", 1.0, 1.0), RunSpec("mnist_logreg", "Adam", 1.0)
    other = RunSpec("fmnist_2c2d", "Adam", 1.0)
    estimate = Forecast()
    assert estimate.left([(kfac, 50)], 2) is None
    estimate.learn(kfac, 10, 20.0)
    assert estimate.left([(kfac, 50), (kfac, 25)], 1) == pytest.approx(150)
    assert estimate.left([(kfac, 50), (kfac, 25)], 2) == pytest.approx(100)  # the longest bounds it
    assert estimate.left([(kfac, 50)] * 4, 2) == pytest.approx(200)
    assert estimate.left([(adam, 50)], 1) == pytest.approx(100 * weight(adam) / weight(kfac))
    assert estimate.left([(kfac, 50), (other, 1)], 1) is None
    assert estimate.left([], 2) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "unknown"), (0.4, "0 s"), (89, "89 s"), (91, "2 min"), (3599, "1 h 00 min"), (3900, "1 h 05 min")],
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


# --- where it is computed -------------------------------------------------------------------------

REAL = """
problem = "mnist_logreg"
epochs = 2
seeds = [42, 43]
[[grids]]
optimizer = ["KFAC", "Adam"]
lr = [1e-3, 1e-2]
damping = [1e-2]
"""


def elsewhere(folder, executor, launcher=(sys.executable,)):
    """Real runs on made-up images in a process of its own; all that they came to but for times."""
    place = Place(folder)
    place.finish(place.start("tiny", REAL, executor, launcher))
    assert (folder / "out").read_text().splitlines()[-1] == "6 0 0"
    return place.content(seconds=False)


def owners(folder):
    """Return the number of processes that computed something."""
    import sqlite3

    connection = sqlite3.connect(folder / "results.sqlite")
    try:
        return len(connection.execute("SELECT DISTINCT owner FROM runs").fetchall())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def by_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes") / "study"
    return elsewhere(folder, "processes,2")


@pytest.mark.long
def test_serial_gives_the_numbers_of_processes(tmp_path, by_processes):
    assert elsewhere(tmp_path / "serial", "serial") == by_processes


def test_two_dask_workers_give_the_numbers_of_processes(tmp_path, by_processes):
    pytest.importorskip("distributed", reason="needs distributed")
    assert elsewhere(tmp_path / "dask", "dask://,2") == by_processes
    assert owners(tmp_path / "dask") == 2


def test_two_mpi_ranks_give_the_numbers_of_processes(tmp_path, by_processes):
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpiexec is None:
        pytest.skip("needs mpiexec")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    extra = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else []
    launcher = [mpiexec, *extra, "-n", "3", sys.executable, "-m", "mpi4py.futures"]
    assert elsewhere(tmp_path / "mpi", "mpi", launcher) == by_processes
    assert owners(tmp_path / "mpi") == 2


@pytest.mark.parametrize(
    ("name", "workers", "expected"),
    [
        ("proceses", None, "executor: expected one of processes, serial, mpi, dask://, dask://HOST:PORT, got"),
        ("", None, "executor: expected one of processes"),
        ("serial", 2, "workers: the executor serial has its own, got 2"),
        ("dask://there:1", 2, "workers: the executor dask://there:1 has its own, got 2"),
    ],
)
def test_executors_that_make_no_sense(name, workers, expected):
    with pytest.raises(ValueError, match=expected), open_pool(name, workers):
        pass


def test_as_many_processes_as_are_asked_for_or_one_a_core():
    with open_pool("processes", cpu_count() + 1) as more, open_pool("processes") as each:
        assert (more.slots, each.slots) == (cpu_count() + 1, cpu_count())


def test_mpi_without_ranks():
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    code = "from gbackprop.curvature.data.executors import open_pool\nwith open_pool('mpi'): pass"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert "mpi wants two ranks or more" in last
    assert "mpiexec -n 3 python -m mpi4py.futures SCRIPT (or -m gbackprop study FILE --executor mpi); got 1" in last


@pytest.mark.parametrize(
    ("executor", "package", "extra"), [("dask://", "distributed", "dask"), ("mpi", "mpi4py", "mpi")]
)
def test_a_missing_package_is_named(monkeypatch, executor, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.futures", None)
    expected = rf"the executor {executor}: the package '{package}' is not installed; pip install gbackprop\[{extra}\]"
    with pytest.raises(ImportError, match=expected), open_pool(executor):
        pass


# --- tables ---------------------------------------------------------------------------------------


def test_export(tmp_path):
    run(tmp_path)
    path = tmp_path / "r.csv"
    export(stored(tmp_path), path)
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == HEADER
    assert len(lines) == 5 * 4 + 2 * 2
    (line,) = (ln for ln in lines if ln["damping"] == "0.1" and ln["seed"] == "42" and ln["epoch"] == "3")
    (row,) = (r.rows[3] for r in stored(tmp_path) if r.spec.damping == 0.1 and r.spec.seed == 42 and len(r.rows) > 3)
    assert float(line["test_loss"]) == row.test_loss
    assert (line["phases"], line["status"], line["momentum"]) == ("grid repeat", "done", "")
    assert [p.name for p in tmp_path.glob("*.part")] == []
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    export(stored(tmp_path), tmp_path / "r.parquet")
    table = parquet.read_table(tmp_path / "r.parquet")
    assert tuple(table.column_names) == HEADER
    assert [{k: "" if v is None else str(v) for k, v in line.items()} for line in table.to_pylist()] == lines
    assert str(table.schema.field("average").type) == "string"


@pytest.mark.parametrize("owner", ["process 7 on tau", ""])
def test_a_study_at_work_is_no_other_process_s_to_take_up(owner, tmp_path):
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        if owner:
            store.write_note("owner", owner)
    words = rf"another study works on it \({owner or 'another process'}\): wait"
    with alone(path), pytest.raises(StoreError, match=words):
        run(tmp_path)
    assert run(tmp_path)[0].done == 5


def test_an_output_whose_folder_another_study_works_in(tmp_path):
    message = r"r\.checkpoints: another study works in this folder: expected an output of another name"
    with alone(tmp_path / "r.old"), pytest.raises(StoreError, match=message):
        run(tmp_path)
    assert not (tmp_path / "r.sqlite").exists()


def test_an_error_in_a_study_ends_it_and_stops_the_runs(tmp_path, monkeypatch):
    class Full(RuntimeError):
        pass

    def collect(self):
        raise Full("no space left")

    monkeypatch.setattr(study._Study, "_collect", collect)
    with pytest.raises(Full, match="no space left"):
        run(tmp_path)
    assert stop_file(folder_of(tmp_path / "r.sqlite")).exists()


def test_export_to_nowhere(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"expected a name that ends in \.csv or \.parquet, got '.*r\.txt'"):
        export([], tmp_path / "r.txt")
    with pytest.raises(OutputError, match="no such folder"):
        export([], tmp_path / "no" / "r.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'is not installed; pip install "gbackprop\[parquet\]"'):
        export([], tmp_path / "r.parquet")


def test_the_first_interruption_is_an_event_and_the_second_an_exception():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    try:
        with interruptions() as interrupted:
            signal.raise_signal(signal.SIGINT)
            assert interrupted.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
