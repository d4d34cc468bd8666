"""Runs: their settings, their curves, their checkpoints; on a problem of four pixels."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop.experiments import checkpoint as checkpoints
from gbackprop.experiments import problems, runs
from gbackprop.experiments.optimizers import OPTIMIZERS
from gbackprop.experiments.problems import Split
from gbackprop.experiments.runs import RunSpec, run

ROOT = str(Path(gb.__file__).parents[1])
CURVED = [name for name in OPTIMIZERS if name not in ("SGD", "Momentum", "Adam")]


def make_split(images=3 * 128 + 40, held_out=128 + 5):
    """Images of 784 pixels whose class can be learnt, in sizes that leave partial batches."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((10, 784)).astype("float32")

    def draw(count):
        y = rng.integers(0, 10, count)
        return centres[y] * 0.1 + 0.3 * rng.standard_normal((count, 784)).astype("float32"), y

    return Split(*draw(images), *draw(held_out), *draw(held_out))


SPLIT = make_split()


def spec(optimizer="SGD", **settings):
    if optimizer in CURVED:
        settings = {"damping": 0.1} | settings
    return RunSpec("mnist_logreg", optimizer, **({"lr": 0.1, "epochs": 3} | settings))


def numbers(outcome):
    """All of an outcome but the times."""
    return outcome.status, [dataclasses.replace(row, seconds=0) for row in outcome.rows]


# ------------------------------------------------------------------------------------------------------------ settings


def test_defaults_are_filled_in_where_they_apply():
    assert dataclasses.asdict(RunSpec("fmnist_2c2d", "Momentum", 0.1)) == {
        **{"problem": "fmnist_2c2d", "optimizer": "Momentum", "lr": 0.1, "damping": None, "seed": 42},
        **{"epochs": 100, "momentum": 0.9, "average": None},
    }
    curved = RunSpec("mnist_logreg", "KFAC", 1, damping=0)
    assert (curved.average, curved.damping, curved.momentum, curved.epochs) == ("mean", 0.0, None, 50)


def test_a_key_is_equal_for_equal_runs_alone():
    specs = [
        *(spec(), spec(seed=1), spec(epochs=4), spec(lr=0.2), spec("Momentum"), spec("Momentum", momentum=0.8)),
        *(spec("KFAC"), spec("KFLR"), spec("KFAC", damping=0.2), spec("KFAC", average="ema")),
        spec("KFAC", average="none"),
    ]
    assert len({one.key() for one in specs}) == len(specs)
    assert spec(lr=1).key() == spec(lr=1.0).key()
    assert RunSpec.from_mapping(json.loads(spec("KFAC").key())) == spec("KFAC")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "KFACC"}, r"optimizer: expected one of SGD, .*KFRA, got 'KFACC'; did you mean 'KFAC'\?"),
        ({"problem": "mnist_logref"}, r"problem: expected one of .* got 'mnist_logref'; did you mean 'mnist_logreg'\?"),
        ({"lr": 0}, r"lr: expected a finite number above 0, got 0"),
        ({"lr": "1e-3"}, r"lr: expected"),
        ({"seed": -1}, r"seed: expected an integer of at least 0, got -1"),
        ({"seed": 1.5}, r"seed: expected an integer"),
        ({"epochs": 0}, r"epochs: expected an integer of at least 1, got 0"),
        ({"damping": 0.1}, r"damping: SGD has none, got 0.1"),
        ({"momentum": 0.9}, r"momentum: SGD has none, got 0.9"),
        ({"average": "mean"}, r"average: SGD has none, got 'mean'"),
        ({"optimizer": "KFAC"}, r"damping: KFAC needs one"),
        ({"optimizer": "KFAC", "damping": -1}, r"damping: expected a finite number of at least 0, got -1"),
        ({"optimizer": "KFAC", "damping": 1, "average": "men"}, r"average: expected one of mean, ema, none, got 'men'"),
        ({"optimizer": "KFAC", "damping": 1, "average": False}, r"average: expected one of mean, .* got False"),
        ({"optimizer": "KFAC", "damping": 1, "average": ""}, r"average: expected one of mean, .* got ''"),
        ({"optimizer": "KFAC", "damping": 1, "average": ["x"]}, r"average: expected one of mean, .* got \['x'\]"),
        ({"optimizer": "Momentum", "momentum": 1}, r"momentum: expected .* below 1, got 1"),
        ({"learning_rate": 1}, r"learning_rate: no such setting of a run.*; there are problem, optimizer, lr"),
        ({"sead": 1}, r"sead: no such setting of a run; did you mean 'seed'\?"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RunSpec.from_mapping({"problem": "mnist_logreg", "optimizer": "SGD", "lr": 0.1} | settings)


def test_what_a_run_needs_is_named():
    with pytest.raises(ValueError, match="a run needs optimizer, lr"):
        RunSpec.from_mapping({"problem": "mnist_logreg"})


# -------------------------------------------------------------------------------------------------------------- curves


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_learns(optimizer):
    outcome = run(spec(optimizer), split=SPLIT)
    assert outcome.status == "done"
    assert [row.epoch for row in outcome.rows] == [0, 1, 2, 3]
    first, last = outcome.rows[0], outcome.rows[-1]
    assert first.test_loss == pytest.approx(np.log(10), rel=1e-6)
    assert last.test_loss < 0.8 * first.test_loss
    assert last.valid_accuracy > first.valid_accuracy + 0.2


def test_a_run_is_the_plain_loop_over_its_batches():
    """Two epochs by hand: whole batches alone, in the order that the epoch's generator gives."""
    problem = problems.problem("mnist_logreg")
    weight, bias = np.zeros((10, 784)), np.zeros(10)

    def forward(x, y):
        z = x @ weight.T + bias
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return p, -np.log(p[np.arange(len(y)), y]).mean(), (z.argmax(1) == y).mean()

    rows = run(spec(epochs=2, seed=7), split=SPLIT).rows
    for epoch in range(3):
        if epoch:
            for x, y in problems.batches(SPLIT, problem, np.random.default_rng([7, runs.ORDER, epoch])):
                assert len(x) == 128
                g = (forward(x, y)[0] - np.eye(10)[y]) / 128
                weight, bias = weight - 0.1 * g.T @ x, bias - 0.1 * g.sum(0)
        for part, count in (("train", 133), ("valid", 133), ("test", 133)):
            whole = count // 128 * 128
            x, y = getattr(SPLIT, f"{part}_x")[:whole], getattr(SPLIT, f"{part}_y")[:whole]
            _, loss, accuracy = forward(x, y)
            assert getattr(rows[epoch], f"{part}_loss") == pytest.approx(loss, rel=1e-5)
            assert getattr(rows[epoch], f"{part}_accuracy") == accuracy


def test_reported_losses_include_the_l2_term():
    problem = dataclasses.replace(problems.problem("mnist_logreg"), l2=0.5)
    state = runs._State(spec(), "cpu", SPLIT, lambda _: None, None)
    state.problem = problem
    state.network.parameters["0.weight"] = np.full((10, 784), 0.01, "float32")
    state.network.parameters["0.bias"] = np.full(10, 0.7, "float32")
    figures, output = state._evaluate(), state.network(SPLIT.test_x[:128])
    plain = float(losses.CrossEntropyLoss()(output, SPLIT.test_y[:128]))
    assert figures["test_loss"] == pytest.approx(plain + 0.5 * 0.5 * 7840 * 0.01**2, rel=1e-5)


def test_a_seed_decides_the_numbers():
    one, again, other = (run(spec(seed=seed, epochs=1), split=SPLIT) for seed in (1, 1, 2))
    assert numbers(one) == numbers(again)
    assert one.rows[1].test_loss != other.rows[1].test_loss


def test_monte_carlo_samples_follow_the_seed():
    one, again, other = (run(spec("KFAC", seed=seed, epochs=1), split=SPLIT) for seed in (1, 1, 2))
    assert numbers(one) == numbers(again)
    assert one.rows[1].test_loss != other.rows[1].test_loss


def test_progress_is_reported_step_by_step():
    events = []
    outcome = run(spec(epochs=2), split=SPLIT, report=events.append)
    expected = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    assert [(event.epoch, event.step) for event in events] == expected
    assert [event.row for event in events if event.row] == list(outcome.rows)
    assert {(event.epochs, event.steps) for event in events} == {(2, 3)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_size_that_is_too_large_ends_as_diverged(optimizer, recwarn):
    outcome = run(spec(optimizer, lr=1e39, epochs=5), split=SPLIT)  # beyond float32
    assert outcome.status == "diverged"
    assert 1 <= len(outcome.rows) < 6
    assert all(np.isfinite(list(dataclasses.astuple(row))).all() for row in outcome.rows)
    assert not recwarn.list


def test_an_unknown_device_is_refused_before_data_are_read():
    with pytest.raises(ValueError, match="device: expected 'cpu'"):
        run(spec(), "/nowhere", device="gpu")


# --------------------------------------------------------------------------------------------------------- checkpoints


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
    from test_runs import SPLIT, numbers, spec
    def report(event):
        print("step", flush=True)
    print(numbers(run(spec("Adam", epochs=40), checkpoint={path!r}, split=SPLIT, report=report)))
"""


def script(path):
    program = SCRIPT.format(path=str(path), paths=[os.path.dirname(__file__), ROOT])
    return [sys.executable, "-c", textwrap.dedent(program)]


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
    with pytest.raises(OSError, match="No space left"):
        run(spec(epochs=2), checkpoint=path, split=SPLIT)
    assert path.read_bytes() == before


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


def damage(path, how):
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:-200])
    elif how == "text":
        path.write_text("weights")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "an array":
        np.save(open(path, "wb"), np.zeros(3))  # noqa: SIM115
    elif how == "no header":
        np.savez(path, weight=np.zeros(3))


@pytest.mark.parametrize("how", ["truncated", "text", "empty", "an array", "no header"])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_checkpoint_is_refused(how, tmp_path):
    path = tmp_path / "run.npz"
    run(spec(epochs=1), checkpoint=path, split=SPLIT)
    damage(path, how)
    with pytest.raises(ValueError, match=r"run.npz: not a checkpoint, or a damaged one"):
        run(spec(epochs=1), checkpoint=path, split=SPLIT)


def test_a_checkpoint_with_a_strange_header_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    for run_, rows in (([], []), ({}, 3)):
        np.savez(path, header=np.array(json.dumps({"format": 1, "run": run_, "rows": rows})))
        with pytest.raises(ValueError, match=r"run.npz: not a checkpoint, or a damaged one"):
            run(spec(epochs=1), checkpoint=path, split=SPLIT)
    run(spec(epochs=1), checkpoint=tmp_path / "other.npz", split=SPLIT)
    key = spec(epochs=1).key()
    _, parameters, optimizer = checkpoints.load(tmp_path / "other.npz", key)
    checkpoints.save(path, key, [{"epoch": 0}], parameters, optimizer)
    with pytest.raises(ValueError, match=r"run.npz: a checkpoint of another"):
        run(spec(epochs=1), checkpoint=path, split=SPLIT)


def test_a_checkpoint_of_another_network_or_version_is_refused(tmp_path, monkeypatch):
    path, key = tmp_path / "run.npz", spec(epochs=1).key()
    run(spec(epochs=1), checkpoint=path, split=SPLIT)
    rows, parameters, optimizer = checkpoints.load(path, key)
    checkpoints.save(path, key, rows, parameters | {"0.weight": np.zeros((3, 784), "float32")}, optimizer)
    with pytest.raises(ValueError, match=r"run.npz: a checkpoint of another network or optimizer: .*\(3, 784\)"):
        run(spec(epochs=1), checkpoint=path, split=SPLIT)
    monkeypatch.setattr(checkpoints, "FORMAT", 2)
    checkpoints.save(path, key, rows, parameters, optimizer)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"run.npz: expected a checkpoint of format 1, got format 2"):
        run(spec(epochs=1), checkpoint=path, split=SPLIT)


def test_evaluation_leaves_the_partial_batch_out():
    net = problems.problem("mnist_logreg").network(0)
    x, y = np.zeros((300, 784), "float32"), np.r_[np.zeros(200, int), np.ones(100, int)]
    loss, accuracy = runs.evaluate(net, x, y, 128)
    assert accuracy == 200 / 256
    assert loss == pytest.approx(np.log(10), rel=1e-6)
    assert gb.asnumpy(net(x)).argmax(1).max() == 0
