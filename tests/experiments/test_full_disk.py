"""Every command that writes says which file it could not write, and leaves no part of it.

A link to /dev/full is a file whose disk is full.
"""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from command_line import refused
from test_data import write_mnist

pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from gbackprop.experiments.schema import StoreError
from gbackprop.experiments.store import Store

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "mnist_logreg", "--optimizer", "SGD", "--lr", "0.1", "--epochs", "1"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    monkeypatch.chdir(tmp_path)
    for suffix in ("csv", "html", "png"):
        Path(f"full.{suffix}").symlink_to("/dev/full")
    return tmp_path


def test_table_of_a_run(capsys):
    write_mnist(Path("mnist"), np.random.default_rng(0), train=780, test=130, pixels=(28, 28))
    line = refused(capsys, *TRAIN, "--data-dir", ".", "--output", "full.csv", prints=True)
    assert line == "full.csv: cannot be written: No space left on device"


def test_picture_of_a_study(capsys):
    shutil.copy(ROOT / "docs/results/mnist_logreg.sqlite", "r.sqlite")
    line = refused(capsys, "plot", "r.sqlite", "--output", "full.png", prints=True)
    assert line == "full.png: cannot be written: No space left on device"


def test_page_of_an_audit(capsys):
    Path("sound_layer.py").write_text("from gbackprop.layers import Tanh\n")
    line = refused(capsys, "audit", "sound_layer:Tanh", "--input", "2", "--html", "full.html", prints=True)
    assert line == "--html: full.html: cannot be written: No space left on device"


def test_a_file_of_results_that_could_not_be_made_is_not_left_empty(monkeypatch):
    def full(*_, **__):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr("gbackprop.experiments.store.prepare", full)
    with pytest.raises(StoreError, match=r"^r\.sqlite: the disk is full"):
        Store("r.sqlite")
    assert not Path("r.sqlite").exists()


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        (["audit", "--html", "folder"], "--html: folder"),
        (["demo", "--output", "folder.png"], "folder.png"),
        ([*TRAIN, "--output", "folder.csv"], "--output: folder.csv"),
        ([*TRAIN, "--checkpoint", "folder"], "--checkpoint: folder"),
    ],
)
def test_an_output_is_checked_before_anything_is_done(capsys, command, argument):
    for name in ("folder", "folder.png", "folder.csv"):
        Path(name).mkdir()
    assert refused(capsys, *command) == f"{argument}: expected a file to write to, got a folder"
