"""Where the tests compute, and how Hypothesis draws.

``--device cuda`` puts the golden cases, the kit, the quantities and the kernels on a GPU; ``--device double`` on the
strict double. Hypothesis draws a few examples, the same each time; or many, with HYPOTHESIS_PROFILE=long, which also
runs the tests that are marked `long`.
"""

import gc
import importlib.util
import os
from contextlib import nullcontext, suppress

import pytest
from device_cupy import installed
from hypothesis import HealthCheck, settings

settings.register_profile("ci", max_examples=30, derandomize=True, deadline=None)
settings.register_profile(
    "long", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

with suppress(ImportError):
    from gbackprop.engine.kernels.compiler import NOTICE

    NOTICE.written = True  # on a new machine, the line would be in what tests capture


def pytest_addoption(parser):
    words = "where golden cases, kit, quantities and kernels are computed: the strict double is no GPU (default: cpu)"
    parser.addoption("--device", choices=["cpu", "double", "cuda"], default="cpu", help=words)


def pytest_collection_modifyitems(config, items):
    if os.environ.get("HYPOTHESIS_PROFILE") != "long" and not config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish(session):
    """Leave thousands of collected tests, which live to the end, out of every search for garbage: it takes a second."""
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    if config.getoption("--device") == "cuda":
        try:
            _use_gpu()
        except Exception as error:
            raise pytest.UsageError(f"--device cuda: no test was run, there is no GPU to run it on: {error}") from None


def _use_gpu():
    """Compute something there: CuPy can find a GPU that it has no code for."""
    from gbackprop import asarray, asnumpy

    assert asnumpy(asarray([1.0, 2.0], "cuda") @ asarray([3.0, 4.0], "cuda")) == 11


@pytest.fixture
def apart(monkeypatch):
    """Let `check_network` leave out what other tests check: each layer and the loss alone; estimates by many runs."""
    from gbackprop.testing import estimates, networks

    monkeypatch.setattr(networks, "_parts", lambda *given: [])
    monkeypatch.setattr(estimates, "RUNS", 2)


@pytest.fixture(scope="session")
def device(request):
    """The device to compute on: "cpu" unless --device says otherwise."""
    chosen = request.config.getoption("--device")
    with installed() if chosen == "double" else nullcontext():
        yield "cpu" if chosen == "cpu" else "cuda"


@pytest.fixture
def gpu(request):
    """A device called "cuda": the real one with --device cuda, else the strict double."""
    with nullcontext() if request.config.getoption("--device") == "cuda" else installed():
        yield "cuda"


@pytest.fixture
def nothing_idle():
    """No memory of calls before, and none left behind."""
    from gbackprop import free_memory

    free_memory()
    yield
    free_memory()


@pytest.fixture
def double():
    """The strict double, installed as `cupy`."""
    with installed() as cupy:
        yield cupy


# ----------------------------------------------------------------------------------------------------- missing packages

OPTIONAL = {"distributed", "filelock", "matplotlib", "mpi4py", "numba", "pyarrow", "rich", "sklearn", "threadpoolctl"}
"""Packages that a GPU machine may lack, where nothing can be installed."""


def missing_package(error):
    """The optional package that is not installed, if that is what an error comes from."""
    while error is not None:
        name = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ImportError) and name in OPTIONAL and importlib.util.find_spec(name) is None:
            return name
        error = error.__cause__ or error.__context__
    return None


def skipped_for_want_of(report, call, path):
    name = missing_package(call.excinfo.value) if report.failed and call.excinfo is not None else None
    if name is not None:
        reason = f"Skipped: needs {name}, which is not installed"
        report.outcome, report.longrepr = "skipped", (str(path), 0, reason)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    call = getattr(report, "call", None)
    return report if call is None else skipped_for_want_of(report, call, collector.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return skipped_for_want_of(report, call, item.path)


def pytest_terminal_summary(terminalreporter):
    line = not_run(terminalreporter.stats.get("skipped", []))
    if line:
        terminalreporter.write_line(line)


def not_run(reports):
    """Return what was skipped, and which commands run it, in one line: empty if nothing was."""
    needs_torch = [report for report in reports if "could not import 'torch'" in str(report.longrepr)]
    files = len({report.nodeid for report in needs_torch})
    parts = [f"what needs torch, in files of tests: {files} (make test-torch)"] if needs_torch else []
    others = len(reports) - len(needs_torch)
    parts += [f"further tests: {others} (make test ARGS=-rs says why)"] if others else []
    return f"Not run: {'; '.join(parts)}" if parts else ""
