"""Which tests reach a line, and how long each takes: one run of the tests under coverage.

Also a plugin of pytest, which `measure` starts: it tells coverage which test is running.
"""

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from changes import Change

ROOT = Path(__file__).parents[2]
COMPILED = {
    "engine/kernels/compiled.py": "engine/kernels/host.py",
    "engine/kernels/compiled_steps.py": "engine/forms/recurrent.py",
    "engine/kernels/compiled_tiles.py": "engine/kernels/tiles.py",
}
"""Files that run as machine code, which coverage does not see, and the file whose functions call them. Tests in a file
that is named after one of them may call it themselves."""

DEFAULTS = "tests/test_public_names.py::test_every_public_default_is_the_one_that_is_written_down"
"""It reads the defaults of arguments without running a line of their functions."""

FIT = 100
"""By how much a test that alone has a word of a change's source counts as a quicker one."""


def measure(folder: Path, tests: list[str], workers: int) -> None:
    """Run tests under coverage in several processes; write which lines each reaches, and its seconds, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = _parts(tests, 4 * workers)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda part: _measure(folder, *part), enumerate(parts)))
    data = [str(folder / f"coverage.{i}") for i in range(len(parts))]
    combine = [sys.executable, "-m", "coverage", "combine", "-q", f"--data-file={folder / 'coverage'}", *data]
    subprocess.run(combine, cwd=ROOT, check=True)
    seconds = {}
    for i in range(len(parts)):
        seconds |= json.loads((folder / f"seconds.{i}.json").read_text())
    (folder / "seconds.json").write_text(json.dumps(seconds))


def _parts(tests: list[str], count: int) -> list[list[str]]:
    """Return the files of some folders of tests in parts of about as many each."""
    ignored = [ROOT / test.removeprefix("--ignore=") for test in tests if test.startswith("--ignore=")]
    folders = [ROOT / test for test in tests if not test.startswith("--")]
    files = sorted(path for folder in folders for path in folder.rglob("test_*.py"))
    taken = [str(path) for path in files if not any(folder in path.parents for folder in ignored)]
    return [part for start in range(count) if (part := taken[start::count])]


def _measure(folder: Path, position: int, files: list[str]) -> None:
    """Run some files of tests under coverage."""
    data = ["--source=gbackprop", f"--data-file={folder / f'coverage.{position}'}"]
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "REACH": str(folder / f"seconds.{position}.json")}
    options = ["-p", "reach", "-p", "no:cacheprovider", "-q", *files]
    command = [sys.executable, "-m", "coverage", "run", *data, "-m", "pytest", *options]
    with open(folder / f"tests.{position}.log", "w") as log:
        subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


class Reach:
    """The tests that reach each line, as `measure` found them."""

    def __init__(self, folder: Path) -> None:
        from coverage import CoverageData

        self.data = CoverageData(str(folder / "coverage"))
        self.data.read()
        self.seconds = json.loads((folder / "seconds.json").read_text())

    def tests(self, change: Change) -> list[str]:
        """Return the tests that reach the line of a change, in the order in which to run them.

        A line outside of functions runs when the module is imported: every test that reaches the file reaches it, or,
        of a file without functions, every test that names what it declares, or reaches a line that does. Of a test's
        cases, those come first whose names have words of the line, and of what is near it.
        """
        lines = self.data.contexts_by_lineno(str(ROOT / "gbackprop" / COMPILED.get(change.file, change.file)))
        at_import = [*lines.get(change.line, ())] == [""]  # inside a function, which modules call as they are imported
        whole = change.file in COMPILED or not change.inside or at_import
        contexts = [context for some in lines.values() for context in some] if whole else lines.get(change.line, [])
        contexts = self._naming(change) if whole and not any(contexts) else contexts
        if change.file in COMPILED:
            contexts = [*contexts, *[test for test in self.seconds if f"/test_{Path(change.file).stem}.py::" in test]]
        reading = [] if change.inside else [DEFAULTS]
        near = f"{change.near} compiled" if change.file in COMPILED else change.near
        return self._ordered({context for context in [*contexts, *reading] if context in self.seconds}, near)

    def _naming(self, change: Change) -> set[str]:
        """Return the tests in files that name a class or what is assigned, and those that reach a line that does."""
        names = [each.name for each in ast.parse((ROOT / "gbackprop" / change.file).read_text()).body
                 if isinstance(each, ast.ClassDef)]  # fmt: skip
        names += re.findall(r"\w+", change.source.partition("=")[0]) if "=" in change.source else []
        named = re.compile(rf"\b({'|'.join(names) or '$^'})\b")
        files = {test.partition("::")[0] for test in self.seconds}
        naming = {each for each in files if (ROOT / each).exists() and named.search((ROOT / each).read_text())}
        found = {test for test in self.seconds if test.partition("::")[0] in naming}
        for path in self.data.measured_files():
            text = Path(path).read_text().splitlines() if Path(path).exists() else []
            lines = self.data.contexts_by_lineno(path) if any(map(named.search, text)) else {}
            found |= {each for i, line in enumerate(text, 1) if named.search(line) for each in lines.get(i, ())}
        return found

    def _ordered(self, tests: set[str], source: str) -> list[str]:
        """Return one case of each test function first; then more, each function as many seconds; quick ones earlier.

        A test whose name has words of the source, and few other tests have these, counts as a quicker one.
        """
        words = _words(source)
        shared = {test: words & _words(test.rpartition("/")[2]) for test in tests}
        having = Counter(word for some in shared.values() for word in some)
        fit = {test: sum(1 / having[word] for word in some) for test, some in shared.items()}
        spent = defaultdict(float)
        first, turns = {}, {}
        for test in sorted(tests, key=lambda test: (-fit[test], self.seconds[test], test)):
            function = test.partition("[")[0]
            first[test] = function not in spent
            spent[function] += self.seconds[test]
            turns[test] = spent[function] / (1 + FIT * fit[test])
        return sorted(tests, key=lambda test: (not first[test], turns[test], test))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower()))


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
