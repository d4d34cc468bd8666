"""``python -m gbackprop train`` and ``study``: what they print, what they write, what they refuse."""

import csv
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import refused

pytest.importorskip("filelock")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from gbackprop.__main__ import main
from gbackprop.experiments.cli.train import doing
from gbackprop.experiments.cli.train import line as table_line
from gbackprop.experiments.runs import EpochRow, Progress
from gbackprop.experiments.store import Store

TRAIN = ["--optimizer", "DiagGGN-MC", "--lr", "1e-2", "--damping", "1e-2", "--epochs", "2"]
STUDY = """
problem = "mnist_logreg"
epochs = 2
seeds = [42, 43]
[[grids]]
optimizer = "Momentum"
lr = [1e-2, 1e-3]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of MNIST's files with a few made-up images, of which each class has a bright row of its own."""
    folder, rng = tmp_path_factory.mktemp("mnist"), np.random.default_rng(0)
    for part, count in (("train", 780), ("t10k", 130)):
        labels = rng.integers(10, size=count).astype(np.uint8)
        images = rng.integers(100, size=(count, 28, 28)).astype(np.uint8)
        images[np.arange(count), labels * 2] = 250
        head = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28), struct.pack(">4BI", 0, 0, 8, 1, count)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head[0] + images.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(head[1] + labels.tobytes())
    return str(folder)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# --- train ----------------------------------------------------------------------------------------


def table_of(out):
    return [list(map(float, line.split())) for line in out.splitlines() if re.match(r" +\d+ ", line)]


def test_train_prints_a_line_an_epoch(data, capsys):
    assert main(["train", "mnist_logreg", *TRAIN, "--data-dir", data, "--output", "out.csv"]) == 0
    out = capsys.readouterr().out
    rows = table_of(out)
    assert [row[0] for row in rows] == [0, 1, 2]
    assert rows[0][5] == pytest.approx(np.log(10), abs=1e-6)
    assert rows[2][6] > 0.5 > rows[0][6]
    header = next(line for line in out.splitlines() if line.startswith("epoch "))
    names = [f"{part}_{figure}" for part in ("train", "valid", "test") for figure in ("loss", "accuracy")]
    assert header.split() == ["epoch", *names, "seconds"]
    with open("out.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [round(float(line["test_loss"]), 6) for line in lines] == [row[5] for row in rows]
    assert {line["optimizer"] for line in lines} == {"DiagGGN-MC"}


def test_the_bar_says_what_a_run_is_at():
    assert doing(Progress(-1, 3, 0, 5, evaluated=0.4)) == "evaluating 40 %"
    assert doing(Progress(1, 3, 2, 5, loss=0.34123)) == "loss 0.3412"
    assert doing(Progress(1, 3, 5, 5, loss=0.34123, evaluated=1.0)) == "evaluating 100 %"
    assert doing(Progress(0, 3, 0, 5)) == ""


def test_lines_of_a_run_that_diverges_are_aligned():
    size = len(table_line(EpochRow(0, *[0.0] * 6, 0.0)))
    for value in (1.0, -999999.0, 1e6, 1.5e6, -1.5e6, 1e30, -1e300, np.inf, np.nan):
        assert len(table_line(EpochRow(1, *[value] * 6, 0.0))) == size, value


def test_train_goes_on_from_a_checkpoint(data, capsys):
    whole = ["train", "mnist_logreg", *TRAIN[:-1], "3", "--data-dir", data]
    assert main(whole) == 0
    expected = table_of(capsys.readouterr().out)
    part = ["train", "mnist_logreg", *TRAIN[:-1], "1", "--data-dir", data, "--checkpoint", "run.npz"]
    assert main(part) == 0
    capsys.readouterr()
    assert main([*whole, "--checkpoint", "run.npz"]) == 0
    found = table_of(capsys.readouterr().out)
    assert [row[:-1] for row in found] == [row[:-1] for row in expected]  # what was done before is shown too


def test_train_says_that_it_diverged(data, capsys):
    arguments = ["--optimizer", "SGD", "--lr", "1e38", "--epochs", "3", "--data-dir", data]
    assert main(["train", "mnist_logreg", *arguments]) == 0
    assert "diverged: no longer finite after epoch 0" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_train_stops_at_ctrl_c(data):
    arguments = ["train", "mnist_logreg", *TRAIN[:-1], "100000", "--data-dir", data, "--checkpoint", "run.npz"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gbackprop", *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a parent may ignore it
    )
    for line in process.stdout:
        if line.split()[:1] == ["2"]:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "stopped; the same command goes on from run.npz" in out
    assert Path("run.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mnist_logres", *TRAIN], "got 'mnist_logres'; did you mean 'mnist_logreg'?"),
        (["mnist_logreg", "--optimizer", "KFCA", "--lr", "1"], "optimizer: expected one of SGD, Momentum"),
        (["mnist_logreg", "--optimizer", "KFAC", "--lr", "1"], "damping: KFAC needs one"),
        (["mnist_logreg", "--optimizer", "SGD", "--lr", "1", "--damping", "1"], "damping: SGD has none, got 1.0"),
        (["mnist_logreg", "--optimizer", "SGD", "--lr", "1", "--momentum", "0.9"], "momentum: SGD has none, got 0.9"),
        (["mnist_logreg", *TRAIN, "--average", "maen"], "average: expected one of mean, ema, none, got 'maen'"),
        (["mnist_logreg", *TRAIN, "--data-dir", "nowhere"], "nowhere"),
        (["mnist_logreg", *TRAIN], "mnist"),
        (["mnist_logreg", *TRAIN, "--device", "quantum"], "'quantum'"),
        (["mnist_logreg", *TRAIN, "--output", "out.txt"], "a name that ends in .csv or .parquet, got 'out.txt'"),
        (["mnist_logreg", *TRAIN, "--output", "no/out.csv"], "no: no such folder"),
        (["mnist_logreg", *TRAIN, "--checkpoint", "no/run.npz"], "--checkpoint: no: no such folder to write"),
        (["mnist_logreg", *TRAIN, "--checkpoint", "a.csv", "--output", "./a.csv"], "expected another file than that"),
        (["mnist_logreg", *TRAIN, "--checkpoint", "bad.npz"], "bad.npz: not a checkpoint, or a damaged one"),
    ],
)
def test_train_refuses(capsys, arguments, expected):
    Path("bad.npz").write_text("no")
    assert expected in refused(capsys, "train", *arguments)


def test_train_refuses_a_checkpoint_of_another_run(data, capsys):
    arguments = ["mnist_logreg", "--lr", "1e-2", "--epochs", "1", "--data-dir", data, "--checkpoint", "run.npz"]
    assert main(["train", *arguments, "--optimizer", "SGD"]) == 0
    capsys.readouterr()
    line = refused(capsys, "train", *arguments, "--optimizer", "Adam")
    assert line == "run.npz: a checkpoint of another run: optimizer 'SGD' instead of 'Adam'"


def test_train_refuses_a_checkpoint_of_other_images(data, capsys):
    """The table would be of two sets of images: its first epochs of the one, those that follow of the other."""
    arguments = ["mnist_logreg", *TRAIN, "--data-dir", "mnist", "--checkpoint", "run.npz"]
    shutil.copytree(data, "mnist")
    assert main(["train", *arguments]) == 0
    capsys.readouterr()
    labels = Path("mnist", "t10k-labels-idx1-ubyte")
    labels.write_bytes(labels.read_bytes()[:8] + labels.read_bytes()[:7:-1])
    line = refused(capsys, "train", *arguments)
    assert re.fullmatch(r"run\.npz: a checkpoint of another run: images '\w{32}' instead of '\w{32}'", line)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--lr", "1"], ["--optimizer", "SGD"], ["--optimizer", "SGD", "--lr", "0"]),
        *(["--optimizer", "SGD", "--lr", "nan"], [*TRAIN, "--epochs", "0"], [*TRAIN, "--seed", "-1"]),
    ],
)
def test_train_arguments_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "mnist_logreg", *arguments])
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


# --- study ----------------------------------------------------------------------------------------


def test_study_to_picture(data, capsys):
    Path("mine.toml").write_text(STUDY)
    command = ["study", "mine.toml", "--data-dir", data, "--executor", "serial", "--export", "csv"]
    assert main(command) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("mnist_logreg: trained on ")  # what a reader must know of the data
    assert out[1].startswith("[1/3] mnist_logreg Momentum lr 0.01 seed 42: done, test accuracy ")
    assert out[-2:] == ["mine.sqlite: 3 runs done", "table: mine.csv"]
    assert len(Path("mine.csv").read_text().splitlines()) == 1 + 3 * 3
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [out[0], *out[-2:]]
    assert main(["plot", "mine.sqlite"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "picture: mine-mnist_logreg.png"
    assert "lr: edge" in out
    assert Path("mine-mnist_logreg.png").read_bytes().startswith(b"\x89PNG")


def test_study_numbers_are_those_of_train(data, capsys):
    Path("mine.toml").write_text(STUDY)
    assert main(["study", "mine.toml", "--data-dir", data, "--workers", "1", "--output", "r.sqlite"]) == 0
    capsys.readouterr()
    run = ["--optimizer", "Momentum", "--lr", "1e-2", "--seed", "43", "--epochs", "2", "--data-dir", data]
    assert main(["train", "mnist_logreg", *run]) == 0
    expected = [row[1:-1] for row in table_of(capsys.readouterr().out)]
    with Store("r.sqlite", reading=True) as store:
        (rows,) = (r.rows for r in store.runs() if (r.spec.lr, r.spec.seed) == (1e-2, 43))
    figures = [[round(value, 6) for value in list(vars(row).values())[1:-1]] for row in rows]
    assert figures == expected


def test_study_that_fails_in_part(data, capsys, monkeypatch):
    from gbackprop.experiments import runs

    Path("mine.toml").write_text(STUDY)
    true_run = runs.run

    def run(spec, **settings):
        if spec.lr == 1e-2:
            raise MemoryError("no room")
        return true_run(spec, **settings)

    monkeypatch.setattr(runs, "run", run)
    command = ["study", "mine.toml", "--data-dir", data, "--executor", "serial"]
    assert main(command) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-2] == "mnist_logreg Momentum lr 0.01 seed 42: failed: MemoryError: no room"
    assert out[-1] == "mine.sqlite: 1 runs done, 1 failed (the same command tries them again)"
    monkeypatch.setattr(runs, "run", true_run)
    assert main(command) == 0


def test_study_without_a_best(data, capsys):
    Path("mine.toml").write_text(STUDY.replace("[1e-2, 1e-3]", "[1e37, 1e38]"))
    assert main(["study", "mine.toml", "--data-dir", data, "--executor", "serial"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert "and all other points of the grid diverged: there is no best to repeat" in out[-2]
    assert out[-1] == "mine.sqlite: 0 runs done, 2 diverged"


def test_study_refuses(data, capsys, monkeypatch):
    Path("mine.toml").write_text(STUDY)
    good = ["study", "mine.toml", "--data-dir", data]
    assert "none.toml: No such file" in refused(capsys, "study", "none.toml")
    assert "mnist" in refused(capsys, "study", "mine.toml")
    assert "nowhere" in refused(capsys, "study", "mine.toml", "--data-dir", "nowhere")
    assert "'quantum'" in refused(capsys, *good, "--device", "quantum")
    assert "did you mean 'serial'?" in refused(capsys, *good, "--executor", "seriel", prints=True)
    assert "--output: expected a file of results" in refused(capsys, *good, "--output", "mine.toml")
    for table in ("r.csv", "r.parquet"):  # --export would write over it
        assert "--output: expected a file of results" in refused(capsys, *good, "--output", table)
    assert "--export: no: no such folder" in refused(capsys, *good, "--output", "no/r.sqlite", "--export", "csv")
    Path("text.sqlite").write_text("not a database, but long enough to be taken for one " * 20)
    for output, expected in (("text.sqlite", "is not a file of results"), ("no/r.sqlite", "cannot be made")):
        assert expected in refused(capsys, *good, "--output", output, "--executor", "serial", prints=True)
    monkeypatch.setitem(sys.modules, "filelock", None)
    assert "'filelock' is not installed; pip install \"gbackprop[experiments]\"" in refused(capsys, *good)
    assert not list(Path().glob("*.checkpoints"))


def test_study_export_without_the_package(data, capsys, monkeypatch):
    Path("mine.toml").write_text(STUDY)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    line = refused(capsys, "study", "mine.toml", "--data-dir", data, "--export", "parquet")
    assert line == "parquet files: the package 'pyarrow' is not installed; pip install \"gbackprop[parquet]\""
    assert not Path("mine.sqlite").exists()


def test_a_file_of_results_is_of_one_set_of_data(data, capsys):
    Path("mine.toml").write_text(STUDY)
    command = ["study", "mine.toml", "--data-dir", data, "--executor", "serial"]
    assert main(command) == 0
    note = "mnist_logreg: trained on "
    assert any(line.startswith(note) for line in capsys.readouterr().out.splitlines())
    with Store("mine.sqlite") as store:
        assert f"mnist_logreg: {store.read_note('data of mnist_logreg')}".startswith(note)
        store.write_note("data of mnist_logreg", "complete")
    message = "mine.sqlite: its runs are on other data of mnist_logreg: complete; now: trained on"
    assert message in refused(capsys, *command, prints=True)
    with Store("mine.sqlite") as store:
        store.write_note("data of mnist_logreg", "half of it")
    assert main(["plot", "mine.sqlite"]) == 0
    assert "data: half of it" in capsys.readouterr().out.splitlines()


def test_a_file_of_results_is_of_the_same_images(data, capsys):
    """As many images, but others: the medians over the seeds would be of two sets."""
    Path("mine.toml").write_text(STUDY)
    shutil.copytree(data, "mnist")
    command = ["study", "mine.toml", "--data-dir", "mnist", "--executor", "serial"]
    assert main(command) == 0
    capsys.readouterr()
    images = Path("mnist", "train-images-idx3-ubyte")
    images.write_bytes(images.read_bytes()[:-1] + b"\x07")
    message = r"mine\.sqlite: its runs are on other images of mnist_logreg: \w{32}; now: \w{32}"
    assert re.fullmatch(message, refused(capsys, *command, prints=True))
