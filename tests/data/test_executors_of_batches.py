"""Results over data sets are the same on any executor, after deaths of processes, too."""

import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import mortal
import numpy as np
import pytest
from accumulating import N, assert_close, assert_same_bits, network, numbers, once, parts, samples, serial

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q
from gbackprop.curvature.data import executors
from gbackprop.curvature.data.flights import Flights

ROOT = Path(__file__).parents[2]


def test_an_executor_of_ones_own_stays_open():
    with ThreadPoolExecutor(2) as own:
        assert_same_bits(once(executor=own), serial())
        assert own.submit(int, 3).result() == 3


def test_processes_change_no_bit():
    assert_same_bits(once(executor="processes", workers=2), serial())


def test_a_process_of_a_pool_ends_when_its_parent_has(monkeypatch):
    ended = []
    parent = SimpleNamespace(join=lambda: ended.append("parent"))
    monkeypatch.setattr(executors, "parent_process", lambda: parent)
    monkeypatch.setattr(os, "_exit", ended.append)
    executors._end_with_parent()
    assert ended == ["parent", 1]
    monkeypatch.setattr(executors, "parent_process", lambda: None)
    executors._end_with_parent()
    assert len(ended) == 2


class Copies:
    """An executor that computes with a copy, as another process would."""

    def submit(self, *task):
        future, (call, *batch) = Future(), pickle.loads(pickle.dumps(task))
        future.set_result(call(*batch))
        return future


class Plain:
    """An executor whose futures have a result alone."""

    def submit(self, *task):
        return SimpleNamespace(result=partial(*task))


def test_the_error_of_a_batch_is_raised_where_futures_cannot_be_cancelled():
    net, (x, y) = gb.Sequential(layers.Flatten(), layers.Linear(9, 3), rng=0, dtype="float64"), samples()
    with pytest.raises(ValueError, match=r"batch 0: y of CrossEntropyLoss.* expected labels 0 to 2"):
        gb.accumulate(net, losses.CrossEntropyLoss(), parts(x, y + 3), executor=Plain())


def test_parameters_that_nobody_drew_are_those_of_the_network():
    net = gb.Sequential(layers.Flatten(), layers.Linear(9, 3), dtype="float64")
    result = gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor=Copies())
    assert_close(result, gb.backward(net, losses.CrossEntropyLoss(), *samples()))


def test_two_dask_workers_change_no_bit():
    pytest.importorskip("distributed", reason="needs distributed")
    assert_same_bits(once(executor="dask://", workers=2), serial())


def test_two_mpi_ranks_change_no_bit(tmp_path):
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpiexec is None:
        pytest.skip("needs mpiexec")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    extra = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else []
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport numpy as np\nfrom accumulating import numbers, once\n"
        "if __name__ == '__main__':\n    np.savez(sys.argv[1], **numbers(once(executor='mpi')))\n"
    )
    paths = [ROOT, ROOT / "tests" / "helpers"]
    subprocess.run(
        [mpiexec, *extra, "-n", "3", sys.executable, "-m", "mpi4py.futures", script, tmp_path / "out.npz"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        timeout=120,
        check=True,
    )
    with np.load(tmp_path / "out.npz") as found:
        assert {n: v.tobytes() for n, v in found.items()} == {n: v.tobytes() for n, v in numbers(serial()).items()}


def test_what_cannot_be_sent_is_told():
    net = network()
    net.note = lambda: None
    with pytest.raises(TypeError, match="executor: network, loss and quantities cannot be sent to a process"):
        gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor="processes", workers=1)


# --------------------------------------------------------------------------------------------------------------- deaths


@pytest.mark.long
def test_the_batches_of_a_killed_process_are_counted_once(tmp_path):
    net = gb.Sequential(mortal.Mortal(tmp_path / "died", 7), *network(), rng=0, dtype="float64")
    asked = [q.SecondMoment(), q.DiagGGN()]
    result = gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), *asked, executor="processes", workers=2)
    assert (tmp_path / "died").exists()
    assert_close(result, gb.backward(net, losses.CrossEntropyLoss(), *samples(), *asked))
    assert result.scale.batch == N


class Dying:
    """A pool whose processes die as they compute what is submitted before its first replacement, and note the order."""

    def __init__(self, result):
        self.executor, self.alive, self.order, self.result = self, False, [], result

    def submit(self, call, number, *batch):
        future = Future()
        self.order.append(number)
        future.set_result(self.result) if self.alive else future.set_exception(BrokenExecutor())
        return future

    def replace(self):
        self.alive = True
        return True


def test_after_a_death_the_first_batch_is_computed_alone():
    net = gb.Sequential(*network(), rng=0, dtype="float64")
    pool = Dying(gb.backward(net, losses.CrossEntropyLoss(), *samples()))
    for number, _ in Flights(pool, None, 3).results((i, *samples()) for i in range(5)):
        pool.order.append(f"done {number}")
    assert pool.order == [0, 1, 2, 0, "done 0", 1, 2, 3, "done 1", 4, "done 2", "done 3", "done 4"]


def test_a_batch_whose_process_always_dies_is_named(tmp_path):
    net = gb.Sequential(mortal.Mortal(None, 7), *network(), rng=0, dtype="float64")
    with pytest.raises(RuntimeError, match="batch 2: the process that computed it died, 3 times"):
        gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor="processes", workers=1)


def test_an_executor_of_ones_own_that_breaks_is_an_error():
    net = gb.Sequential(mortal.Mortal(None, 3), *network(), rng=0, dtype="float64")
    message = r"batch 0: the executor is broken .*executor='processes' starts new processes"
    with ProcessPoolExecutor(1, get_context("spawn")) as own, pytest.raises(RuntimeError, match=message):
        gb.accumulate(net, losses.CrossEntropyLoss(), parts(*samples()), executor=own)
