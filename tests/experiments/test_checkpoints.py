"""Checkpoints: a run that was interrupted goes on as if it had not been, or says why it cannot."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from logreg_runs import SPLIT, numbers, spec

import gbackprop as gb
from gbackprop.base.files import OutputError
from gbackprop.base.npz import write_checkpoint
from gbackprop.experiments import checkpoint as checkpoints
from gbackprop.experiments.optimizers import OPTIMIZERS
from gbackprop.experiments.runs import identity, run

ROOT = str(Path(gb.__file__).parents[1])


class Killed(Exception):
    pass


def stop_after(epoch, step):
    def report(event):
        if (event.epoch, event.step) == (epoch, step):
            raise Killed

    return report


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_interrupted_run_ends_with_the_numbers_of_one_left_alone(optimizer, tmp_path):
    path = tmp_path / "run.npz"
    for epoch, step in ((0, 2), (0, 3), (1, 1), (2, 3)):
        with pytest.raises(Killed):
            run(spec(optimizer), checkpoint=path, split=SPLIT, report=stop_after(epoch, step))
    resumed = run(spec(optimizer), checkpoint=path, split=SPLIT)
    assert numbers(resumed) == numbers(run(spec(optimizer), split=SPLIT))
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_a_finished_run_is_not_done_again(tmp_path):
    path, events = tmp_path / "run.npz", []
    first = run(spec(), checkpoint=path, split=SPLIT)
    assert run(spec(), checkpoint=path, split=SPLIT, report=events.append) == first
    assert [event.row for event in events] == list(first.rows)  # as it was then
    assert all(event.step == 0 for event in events)


def test_a_run_can_be_made_longer_but_not_shorter(tmp_path):
    path = tmp_path / "run.npz"
    run(spec(epochs=2), checkpoint=path, split=SPLIT)
    assert numbers(run(spec(epochs=4), checkpoint=path, split=SPLIT)) == numbers(run(spec(epochs=4), split=SPLIT))
    with pytest.raises(ValueError, match=r"run.npz: the checkpoint is at epoch 4, beyond the 3 asked for"):
        run(spec(epochs=3), checkpoint=path, split=SPLIT)


SCRIPT = """
    import sys
    sys.path[:0] = {paths!r}
    from gbackprop.experiments.runs import run
    from logreg_runs import SPLIT, numbers, spec
    def report(event):
        if event.evaluated is None:
            print("step", flush=True)
    print(numbers(run(spec("Adam", epochs=40), checkpoint={path!r}, split=SPLIT, report=report)))
"""


def script(path):
    program = SCRIPT.format(path=str(path), paths=[os.path.dirname(__file__), ROOT])
    return [sys.executable, "-c", textwrap.dedent(program)]


@pytest.mark.long
def test_sigkill_at_any_moment_changes_nothing(tmp_path):
    path, rng, command = tmp_path / "run.npz", np.random.default_rng(0), script(tmp_path / "run.npz")
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(rng.integers(3, 40)):  # then the next instruction, whichever it is
                assert process.stdout.readline() == "step\n"
            process.send_signal(signal.SIGKILL)
    assert 2 < len(checkpoints.load(path, spec("Adam", epochs=40).key())[0]) < 41
    resumed, alone = (
        subprocess.run(one, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        for one in (command, script(tmp_path / "alone.npz"))
    )
    assert resumed == alone
    assert resumed.startswith("('done', [EpochRow(epoch=0, ")


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    run(spec(epochs=1), checkpoint=path, split=SPLIT)
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OutputError, match=r"run\.npz: cannot be written: No space left on device"):
        run(spec(epochs=2), checkpoint=path, split=SPLIT)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, r"a checkpoint of another run: seed 42 instead of 1"),
        ({"lr": 0.2}, r"lr 0.1 instead of 0.2"),
        ({"optimizer": "Adam"}, r"optimizer 'SGD' instead of 'Adam'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other, message, tmp_path):
    run(spec(epochs=1), checkpoint=tmp_path / "run.npz", split=SPLIT)
    with pytest.raises(ValueError, match=r"run.npz: .*" + message):
        run(spec(**other), checkpoint=tmp_path / "run.npz", split=SPLIT)


def a_single_array(path):
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-200]), "the archive is damaged, or was not written to its"),
        (lambda path: path.write_text("weights"), "got a text file, which begins with 'weights'"),
        (lambda path: path.write_bytes(b""), "expected an archive of arrays (.npz), got an empty file"),
        (a_single_array, "expected an archive of arrays (.npz), got a single array (.npy)"),
        (lambda path: np.savez(path, weight=np.zeros(3)), "expected an entry 'header', got weight"),
    ],
)
def test_a_damaged_checkpoint_is_refused(damage, message, tmp_path):
    path = tmp_path / "run.npz"
    run(spec(epochs=1), checkpoint=path, split=SPLIT)
    damage(path)
    with pytest.raises(ValueError, match=r"run.npz: not a checkpoint, or a damaged one: .*" + re.escape(message)):
        run(spec(epochs=1), checkpoint=path, split=SPLIT)


def test_a_checkpoint_with_a_strange_header_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    for run_, rows in (([], []), ({}, 3)):
        write_checkpoint(path, {"format": checkpoints.FORMAT, "run": run_, "rows": rows}, {})
        with pytest.raises(ValueError, match=r"run.npz: not a checkpoint, or a damaged one: its header: expected 'r"):
            run(spec(epochs=1), checkpoint=path, split=SPLIT)
    run(spec(epochs=1), checkpoint=tmp_path / "other.npz", split=SPLIT)
    key = identity(spec(epochs=1), SPLIT)
    _, parameters, optimizer = checkpoints.load(tmp_path / "other.npz", key)
    checkpoints.save(path, key, [{"epoch": 0}], parameters, optimizer)
    with pytest.raises(ValueError, match=r"run.npz: a checkpoint of another"):
        run(spec(epochs=1), checkpoint=path, split=SPLIT)


def test_a_checkpoint_of_another_network_or_version_is_refused(tmp_path, monkeypatch):
    path, key = tmp_path / "run.npz", identity(spec(epochs=1), SPLIT)
    run(spec(epochs=1), checkpoint=path, split=SPLIT)
    rows, parameters, optimizer = checkpoints.load(path, key)
    checkpoints.save(path, key, rows, parameters | {"0.weight": np.zeros((3, 784), "float32")}, optimizer)
    with pytest.raises(ValueError, match=r"run.npz: a checkpoint of another network or optimizer: .*\(3, 784\)"):
        run(spec(epochs=1), checkpoint=path, split=SPLIT)
    for other, saved in ((2, spec(epochs=1).key()), (4, key)):  # 2 says nothing of the images
        monkeypatch.setattr(checkpoints, "FORMAT", other)
        checkpoints.save(path, saved, rows, parameters, optimizer)
        monkeypatch.undo()
        with pytest.raises(ValueError, match=rf"run.npz: .*expected a checkpoint of format 3, got format {other}"):
            run(spec(epochs=1), checkpoint=path, split=SPLIT)
