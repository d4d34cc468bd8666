"""The tests' own options: a device that is not there, and packages that are not there."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import conftest
import pytest

ROOT = Path(__file__).parent.parent


def pytest_run(*options, **variables):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


def test_no_gpu_is_one_message(request):
    if request.config.getoption("--device") == "cuda":
        pytest.skip("there is a GPU here")
    done = pytest_run("--device", "cuda", "tests/quantities/test_golden.py")
    assert done.returncode != 0
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert len(lines) == 1
    assert lines[0].startswith("ERROR: --device cuda: no test was run, there is no GPU to run it on: device 'cuda'")


@pytest.mark.long
def test_golden_cases_run_on_the_double():
    done = pytest_run("--device", "double", "tests/quantities/test_golden.py", "-k", "every_cell and conv3d")
    assert done.returncode == 0, done.stdout


def missing(module):
    try:
        __import__(module)
    except ImportError as error:
        return error
    raise AssertionError(module)


def test_what_needs_a_missing_package_is_skipped_and_nothing_else(monkeypatch):
    monkeypatch.setattr(conftest, "OPTIONAL", {"no_such_package", "numpy"})
    error = missing("no_such_package.part")
    wrapped = RuntimeError("cannot")
    wrapped.__cause__ = error
    assert conftest.missing_package(error) == conftest.missing_package(wrapped) == "no_such_package"
    assert conftest.missing_package(missing("another_package")) is None  # nobody said that it may be missing
    assert conftest.missing_package(ImportError("broken", name="numpy")) is None  # it is there: a fault of its own
    assert conftest.missing_package(AssertionError()) is None


def test_what_was_not_run_is_one_line_with_the_commands_that_run_it():
    reasons = {"a.py": "could not import 'torch': No", "b.py": "could not import 'torch': No", "c.py::d": "no GPU"}
    reports = [SimpleNamespace(nodeid=name, longrepr=(name, 1, f"Skipped: {why}")) for name, why in reasons.items()]
    lines = []
    for given in (reports, reports[:1], reports[2:], []):
        terminal = SimpleNamespace(stats={"skipped": given} if given else {}, write_line=lines.append)
        conftest.pytest_terminal_summary(terminal)
    needs_torch, others = "what needs torch, in files of tests:", "further tests: 1 (make test ARGS=-rs says why)"
    assert lines == [
        f"Not run: {needs_torch} 2 (make test-torch); {others}",
        f"Not run: {needs_torch} 1 (make test-torch)",
        f"Not run: {others}",
    ]
