"""The command line itself: its name, what it says of arguments, and what it does where nobody reads what it prints."""

import configparser
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gbackprop.__main__ import _parser, main

ROOT = Path(__file__).parents[2]
TRAIN = ("train", "mnist_logreg", "--optimizer", "Momentum", "--lr", "0.1")


def test_the_command_that_is_installed_is_this_one():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    name, _, target = setup["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = target.partition(":")
    assert name == "gbackprop"
    assert getattr(importlib.import_module(module), function) is main


@pytest.mark.parametrize(("called", "name"), [("/usr/bin/gbackprop", "gbackprop"),
                                              ("/site/gbackprop/__main__.py", "python -m gbackprop")])
def test_usage_names_the_command_as_it_was_called(called, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [called])
    with pytest.raises(SystemExit):
        main(["train"])
    assert capsys.readouterr().err.startswith(f"usage: {name} train [-h]")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([*TRAIN, "--epochs", "1.5"], "argument --epochs: expected a whole number ≥ 1, got 1.5"),
        ([*TRAIN, "--epochs", "0"], "argument --epochs: expected a whole number ≥ 1, got 0"),
        ([*TRAIN, "--seed", "-1"], "argument --seed: expected a whole number ≥ 0, got -1"),
        ([*TRAIN, "--seed", "9" * 5000], "argument --seed: expected a whole number ≥ 0, got 999"),
        ([*TRAIN, "--lr", "fast"], "argument --lr: expected a number > 0, got fast"),
        ([*TRAIN, "--lr", "inf"], "argument --lr: expected a number > 0, got inf"),
        ([*TRAIN, "--damping", "much"], "argument --damping: expected a number ≥ 0, got much"),
        ([*TRAIN, "--momentum", "-0.5"], "argument --momentum: expected a number ≥ 0, got -0.5"),
        (["audit", "--batch", "0"], "argument --batch: expected a whole number ≥ 1, got 0"),
        (["audit", "--seed", "-1"], "argument --seed: expected a whole number ≥ 0, got -1"),
        (["demo", "--seed", "-1"], "argument --seed: expected a whole number ≥ 0, got -1"),
        (["demo", "--epochs", "0"], "argument --epochs: expected a whole number ≥ 1, got 0"),
        (["study", "s.toml", "--workers", "0"], "argument --workers: expected a whole number ≥ 1, got 0"),
        (["study", "s.toml", "--threads", "0"], "argument --threads: expected a whole number ≥ 1, got 0"),
        (["check", ".", "--tolerance", "0"], "argument --tolerance: expected a number > 0, got 0"),
    ],
)
def test_a_number_that_makes_no_sense_is_named_in_plain_words(arguments, expected, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert expected in capsys.readouterr().err


DEFAULTS = {
    ("audit",): {"target": None, "input": None, "loss": None, "batch": 3, "seed": 0, "rows": False, "html": None,
                 "symmetries": False, "device": "cpu", "certificate": False},
    ("demo",): {"data": "digits", "data_dir": None, "device": "cpu", "seed": 0, "epochs": None,
                "output": "gbackprop-demo.png"},
    ("check", "."): {"folder": ".", "tolerance": 1e-8},
    TRAIN: {"problem": "mnist_logreg", "optimizer": "Momentum", "lr": 0.1, "damping": None, "momentum": None,
            "average": None, "seed": 42, "epochs": None, "data_dir": None, "device": "cpu", "checkpoint": None,
            "output": None},
    ("study", "s.toml"): {"file": "s.toml", "data_dir": None, "output": None, "workers": None, "threads": None,
                          "executor": "processes", "device": "cpu", "export": None},
    ("plot", "r.sqlite"): {"file": "r.sqlite", "problem": None, "output": None, "markdown": False},
}  # fmt: skip


@pytest.mark.parametrize("arguments", DEFAULTS, ids=" ".join)
def test_the_options_of_a_command_and_their_defaults(arguments):
    found = vars(_parser().parse_args(arguments))
    assert callable(found.pop("run"))
    assert found == {"command": arguments[0], **DEFAULTS[arguments]}


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [([], "COMMAND"), (["train", "mnist_logreg"], "--optimizer, --lr"), (["train", *TRAIN[2:]], "PROBLEM"),
     (["check"], "DIR"), (["study"], "FILE.toml"), (["plot"], "RESULTS.sqlite")],
)  # fmt: skip
def test_what_a_command_needs_is_named(arguments, missing, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert capsys.readouterr().err.endswith(f": the following arguments are required: {missing}\n")


def run(*arguments, stdout, cwd):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-m", "gbackprop", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, cwd=cwd, env=environment, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="other pipes")
@pytest.mark.parametrize("arguments", [["--help"], ["check", "."], ["plot", "r.sqlite", "--output", "r.png"]])
def test_a_closed_pipe_ends_a_command_quietly(arguments, tmp_path):
    if arguments[0] == "plot":  # which prints by rich
        pytest.importorskip("rich")
        pytest.importorskip("matplotlib")
        shutil.copy(ROOT / "docs/results/mnist_logreg.sqlite", tmp_path / "r.sqlite")
    (tmp_path / "case.npz").write_text("no case, but a line in the table")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(*arguments, stdout=writing, cwd=tmp_path)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_to_a_full_disk_is_named(tmp_path):
    (tmp_path / "case.npz").write_text("no case, but a line in the table")
    with open("/dev/full", "w") as full:
        done = run("check", ".", stdout=full, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"gbackprop: standard output: No space left on device\n")
