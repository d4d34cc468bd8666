"""How a command ends: errors of users, interrupts, and an output that is closed or full."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from gbackprop import __main__ as command
from gbackprop.experiments.cli.arguments import UserError


@pytest.fixture
def output(tmp_path):
    with open(tmp_path / "output", "w") as file:
        yield file


def failing(error):
    def run(options):
        raise error

    return SimpleNamespace(parse_args=lambda arguments: SimpleNamespace(command="demo", run=run))


def ended(context):
    error = SystemExit(3)
    error.__context__ = context
    return error


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (UserError("net: expected it"), 2, "gbackprop demo: net: expected it\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (ended(BrokenPipeError()), 141, ""),
        (OSError(errno.ENOSPC, "No space left"), 2, "gbackprop: standard output: No space left\n"),
    ],
    ids=["user", "interrupt", "closed", "closed as rich says it", "full"],
)
def test_how_a_command_ends(error, status, words, output, monkeypatch, capsys):
    monkeypatch.setattr(command, "_parser", lambda: failing(error))
    monkeypatch.setattr(command.sys, "stdout", output)
    assert command.main([]) == status
    assert capsys.readouterr().err == words
    if not isinstance(error, (UserError, KeyboardInterrupt)):  # what is still to be written goes nowhere
        output.write("lost")
        output.flush()
        assert Path(output.name).read_text() == ""


OTHERS = [OSError(errno.ENOSPC, "full", "a.csv"), OSError(errno.EACCES, "no"), ended(None), ZeroDivisionError()]


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_other_errors_are_not_taken_for_the_output(error, output, monkeypatch):
    monkeypatch.setattr(command, "_parser", lambda: failing(error))
    monkeypatch.setattr(command.sys, "stdout", output)
    with pytest.raises(type(error)):
        command.main([])
    output.write("there")
    output.flush()
    assert Path(output.name).read_text() == "there"
