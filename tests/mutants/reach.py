"""Which tests reach a line, and how long each takes: one run of the tests under coverage.

Also a plugin of pytest, which `measure` starts: it tells coverage which test is running.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = {
    "engine/kernels/compiled.py": "engine/kernels/host.py",
    "engine/kernels/compiled_tiles.py": "engine/kernels/tiles.py",
}
"""Files that run as machine code, which coverage does not see, and the file whose functions call them."""


def measure(folder: Path, tests: list[str]) -> None:
    """Run tests under coverage; write which lines each reaches, and its seconds, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-p", "reach", "-p", "no:cacheprovider", "-q", *tests]
    data = ["--source=gbackprop", f"--data-file={folder / 'coverage'}"]
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "REACH": str(folder / "seconds.json")}
    command = [sys.executable, "-m", "coverage", "run", *data, "-m", "pytest", *options]
    subprocess.run(command, cwd=ROOT, env=environment)


class Reach:
    """The tests that reach each line, as `measure` found them."""

    def __init__(self, folder: Path) -> None:
        from coverage import CoverageData

        self.data = CoverageData(str(folder / "coverage"))
        self.data.read()
        self.seconds = json.loads((folder / "seconds.json").read_text())

    def tests(self, file: str, line: int, inside: bool) -> list[str]:
        """Return the tests that reach a line of a file, in the order in which to run them.

        A line outside of functions runs when the module is imported: every test that reaches the file reaches it.
        """
        lines = self.data.contexts_by_lineno(str(ROOT / "gbackprop" / COMPILED.get(file, file)))
        whole = file in COMPILED or not inside
        contexts = [context for some in lines.values() for context in some] if whole else lines.get(line, [])
        return self._ordered({context for context in contexts if context in self.seconds})

    def _ordered(self, tests: set[str]) -> list[str]:
        """Return one case of each test function first, then a second one of each, …; quick ones first."""
        cases = defaultdict(int)
        turns = {}
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            function = test.partition("[")[0]
            turns[test] = cases[function]
            cases[function] += 1
        return sorted(tests, key=lambda test: (turns[test], self.seconds[test], test))


# ------------------------------------------------------------------------------------------------- the plugin of pytest

seconds: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    from coverage import Coverage

    running = Coverage.current()
    running.switch_context(item.nodeid)
    start = time.perf_counter()
    result = yield
    seconds.setdefault(item.nodeid, time.perf_counter() - start)
    running.switch_context("")
    return result


def pytest_runtest_logreport(report):
    if not report.passed:
        seconds[report.nodeid] = -1.0


def pytest_sessionfinish():
    passed = {test: some for test, some in seconds.items() if some >= 0}
    Path(os.environ["REACH"]).write_text(json.dumps(passed))
