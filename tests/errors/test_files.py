"""Files that are written whole or not at all, and archives of arrays that are something else."""

import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gbackprop.base.files import OutputError, check_output, written
from gbackprop.base.npz import read_arrays

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- files that are written -----------------------------------------------------------------------


def half_write(error):
    with written("out.csv") as part:
        part.write_text("half")
        raise error


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(here):
    (here / "out.csv").write_text("old")
    with pytest.raises(OutputError, match=r"^out\.csv: cannot be written: No space left on device$"):
        half_write(OSError(28, "No space left on device"))
    assert [(path.name, path.read_text()) for path in here.iterdir()] == [("out.csv", "old")]


def test_an_interrupted_write_leaves_nothing(here):
    with pytest.raises(KeyboardInterrupt):
        half_write(KeyboardInterrupt())
    assert list(here.iterdir()) == []


def test_a_link_stays_one_and_a_device_is_no_file(here):
    (here / "folder").mkdir()
    (here / "link").symlink_to(here / "folder" / "file")
    with written("link") as part:
        part.write_text("new")
    assert (here / "link").is_symlink()
    assert (here / "folder" / "file").read_text() == "new"
    with written(os.devnull) as part:
        assert str(part) == os.devnull


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/out.csv", "no: no such folder to write out.csv to"),
        (".", ".: expected a file to write to, got a folder"),
        ("file/out.csv", "file: no such folder to write out.csv to"),
    ],
)
def test_what_cannot_be_written_is_named_before(here, path, message):
    (here / "file").write_text("")
    with pytest.raises(OutputError, match=f"^{re.escape(message)}$"):
        check_output(path)


def test_a_folder_that_cannot_be_written_is_named_before(monkeypatch):
    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    check_output("out.csv")
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OutputError, match=r"^out\.csv: the folder cannot be written: Permission denied$"):
        check_output("out.csv")


# --- archives that are read -----------------------------------------------------------------------


def archive(**entries):
    def write(path):
        with zipfile.ZipFile(path, "w") as file:
            for name, content in entries.items():
                file.writestr(name, content)

    return write


NO_ARCHIVES = {
    "text": (
        lambda path: path.write_text("epoch,loss\n0,1\n"),
        "expected an archive of arrays (.npz), got a text file, which begins with 'epoch,loss'",
    ),
    "no letters": (lambda path: path.write_bytes(b"ab" + 4 * b"\xff"), "got another kind of file, which begins with "),
    "cut letter": (lambda path: path.write_text("ß" * 400), "got a text file, which begins with 'ß"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps([1])), "got a pickled Python object, which is never loaded"),
    "bytes": (lambda path: path.write_bytes(bytes(range(9))), "which begins with the bytes 00 01 02 03 04 05 06 07"),
    "other entry": (archive(letter="Dear"), "its 'letter': expected an array (.npy), got a text file"),
    "objects": (
        lambda path: np.savez(path, a=np.array([{}], object)),
        "its 'a': expected an array of numbers or text, got Python objects or damage",
    ),
}


@pytest.mark.parametrize("kind", NO_ARCHIVES)
def test_what_is_no_archive_of_arrays_is_named(here, kind):
    write, message = NO_ARCHIVES[kind]
    write(here / "file.npz")
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_arrays("file.npz")
    assert "allow_pickle" not in str(caught.value)


def test_an_archive_of_arrays_is_read(here):
    np.savez("file.npz", a=np.arange(3), b=np.array("text"))
    assert {name: value.tolist() for name, value in read_arrays("file.npz").items()} == {"a": [0, 1, 2], "b": "text"}


def test_a_pipe_is_written_as_it_is():
    code = (
        "from gbackprop.base.files import written\n"
        "with written('/dev/stdout') as part:\n"
        "    part.write_text('whole')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "whole"


def test_a_file_that_is_replaced_keeps_who_may_read_it(tmp_path):
    path = tmp_path / "result.txt"
    path.write_text("before")
    path.chmod(0o600)
    with written(path) as part:
        part.write_text("after")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("after", 0o600)
