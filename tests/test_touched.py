"""The choice of tests for what a branch changed: which commit it goes by, which folders, and what comes too late."""

import subprocess
from pathlib import Path

import pytest
import touched

PACKAGE = touched.ROOT / "gbackprop"


@pytest.mark.parametrize("file", sorted({*PACKAGE.glob("*.py"), *PACKAGE.glob("*/__init__.py")}), ids=str)
def test_each_part_has_folders_of_tests(file):
    folders = touched.folders_of([str(file.relative_to(touched.ROOT))])
    assert folders
    for folder in folders:
        assert list((touched.ROOT / "tests" / folder).glob("test_*.py"))


def test_tests_that_changed_are_run_and_other_files_are_not():
    files = ["README.md", "docs/gpu.md", "tests/conftest.py", "tests/optim/test_optim.py"]
    assert touched.folders_of([*files, "gbackprop/kronecker/any.py"]) == ["kronecker", "optim"]
    assert "tests/kronecker/test_algebra.py" in touched.drawn_in(["kronecker"])
    files = [f"tests/docs/test_{name}.py" for name in ("benchmarks", "derivations", "examples", "testing")]
    assert touched.drawn_in(["docs"]) == files


def commit(folder: Path, name: str) -> None:
    (folder / name).write_text("")
    user = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for command in (["add", name], [*user, "commit", "-q", "-m", name]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


def test_a_branch_is_compared_with_where_it_began(tmp_path):
    assert touched.changed(tmp_path) is None  # no repository
    touched.git("init", "-q", root=tmp_path)
    commit(tmp_path, "a")
    assert touched.changed(tmp_path) is None
    for name in "bc":
        commit(tmp_path, name)
    assert touched.changed(tmp_path) == ["c"]
    touched.git("update-ref", "refs/remotes/origin/main", "HEAD~2", root=tmp_path)
    assert touched.changed(tmp_path) == ["b", "c"]
    touched.git("update-ref", "refs/remotes/origin/main", "HEAD", root=tmp_path)
    assert touched.changed(tmp_path) == ["c"]


@pytest.mark.parametrize(
    ("marked", "kinds", "profile"), [(False, "long or hypothesis", "long"), (True, "long and not page", "ci")]
)
def test_what_is_run_of_a_file(marked, kinds, profile, monkeypatch):
    def ran(command, env, **options):
        assert (command[4], env["HYPOTHESIS_PROFILE"]) == (kinds, profile)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(touched.subprocess, "run", ran)
    assert [*touched.run(["a"], 60, 1, marked)] == [("a", 0)]


def test_what_fails_and_what_comes_too_late_is_named(monkeypatch, capsys):
    monkeypatch.setattr(touched, "changed", lambda: ["gbackprop/optim/sgd.py"])
    monkeypatch.setattr(touched, "drawn_in", lambda folders: ["tests/no_such_file.py"])
    assert touched.main(["--workers", "1"]) == 1
    assert "\nfailed: tests/no_such_file.py\n" in capsys.readouterr().out
    assert touched.main(["--minutes", "-1"]) == 0
    assert "not run, as -1 minutes were over: tests/no_such_file.py\n" in capsys.readouterr().out
    monkeypatch.setattr(touched, "changed", lambda: None)
    assert touched.main([]) == 0
    assert "no commit before the last one" in capsys.readouterr().out
