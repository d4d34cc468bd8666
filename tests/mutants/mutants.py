"""Draw small changes of the package and run the tests that reach each: `make mutants`.

A change that no test notices is printed, and the exit status is 1 if fewer than 95 % are noticed. Changes that cannot
be noticed, since the program computes the same, are named with the reason in `equivalent.toml`.
"""

import argparse
import ast
import importlib.machinery
import importlib.util
import os
import re
import signal
import sys
import time
import tomllib
from collections import Counter
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from changes import Change, changes
from reach import COMPILED, ROOT, Reach, measure

TESTS = ["tests", "--ignore=tests/docs"]
LEAST = 95
"""Percent of the changes that tests have to notice."""
BROKEN = 99
"""Exit status of a process in which the tests could not be run at all."""

SIZE = re.compile(r"(Add|Sub|Mult|Div|FloorDiv|Pow|Lt|LtE|Gt|GtE|-?\d\S*) → ")
"""Changes of a number, of arithmetic and of a comparison's end: what a line with a choice may have without a test."""


def drawn(count: int, seed: int) -> list[Change]:
    """Draw changes from the whole package, each equally likely; an edit elsewhere does not change which are drawn."""
    package = ROOT / "gbackprop"
    files = sorted(package.rglob("*.py"))
    every = [change for path in files for change in changes(str(path.relative_to(package)), path.read_text())]
    return sorted(every, key=keys_of(every, seed).__getitem__)[:count]


def keys_of(every: list[Change], seed: int) -> dict[Change, bytes]:
    """Return a random number for each change, by what it is and how often that stands above it in its file."""
    above: Counter[tuple[str, str, str]] = Counter()
    keys = {}
    for change in every:
        place = change.file, change.source, change.what
        keys[change] = blake2b(repr((seed, *place, above[place])).encode()).digest()
        above[place] += 1
    return keys


def equivalent() -> dict[tuple[str, str, str], str]:
    """Return the changes that leave every result as it is: (file, line of source, what or "any") and the reason."""
    return {(entry["file"], entry["source"], entry["what"]): entry["why"] for entry in _named()["change"]}


def choices() -> dict[str, list[float]]:
    """Return the constants, and functions, on which time and memory alone depend, with values to compare results."""
    return _named()["choices"]


@cache
def _choices() -> dict[tuple[str, str], range]:
    """Return the lines of each of them, by its file and name: none of a constant."""
    found = {}
    for module, _, name in [name.rpartition(".") for name in choices()]:
        file = f"{module.replace('.', '/')}.py"
        tree = ast.parse((ROOT / "gbackprop" / file).read_text())
        places = [range(node.lineno, node.end_lineno + 1) for node in tree.body if getattr(node, "name", None) == name]
        found[file, name] = places[0] if places else range(0)
    return found


def _named() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())


def reason(change: Change, known: dict[tuple[str, str, str], str]) -> str | None:
    """Return why a change leaves every result as it is, or None if it may not."""
    words = {word for word in re.findall(r"\w+", change.source) if word.isupper()}  # constants
    for name, lines in _choices().items():
        if (name[1] in words and SIZE.match(change.what)) or (name[0] == change.file and change.line in lines):
            return f"time and memory alone depend on {name[1]}"
    whats = (change.what, "any")
    return next((known[key] for what in whats if (key := (change.file, change.source, what)) in known), None)


def within(tests: list[str], seconds: dict[str, float], limit: float) -> list[str]:
    """Return the first tests that together take no longer than a limit, without those too slow for it; at least one."""
    total, some = 0.0, []
    for test in tests:
        if not some or total + seconds[test] <= limit:
            total += seconds[test]
            some.append(test)
    return some


def start(change: Change | None, tests: list[str], log: Path, limit: float) -> int:
    """Start a process that imports the changed package and runs tests; return its number."""
    if child := os.fork():
        return child
    try:
        os.setsid()
        signal.alarm(int(limit))
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        if change is not None:
            _serve(change)
            if change.file in COMPILED:  # what was compiled before is not the changed code
                import numba

                numba.config.CACHE_DIR = str(log.with_suffix(".numba"))
        status = _run(tests)
    except BaseException as error:
        print(repr(error))
        status = BROKEN
    sys.stdout.flush()
    os._exit(status)


def _serve(change: Change) -> None:
    """Make imports of the changed file give the changed code."""
    path = str(ROOT / "gbackprop" / change.file)
    code = compile(change.applied(Path(path).read_text()), path, "exec")
    if importlib.util.find_spec("gbackprop").origin != str(ROOT / "gbackprop" / "__init__.py"):
        raise ImportError(f"expected the package in {ROOT}")
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, name):
        return code if self.path == path else original(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _run(tests: list[str]) -> int:
    import pytest
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants", max_examples=30, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    imported = "ignore::pytest.PytestAssertRewriteWarning"  # of Hypothesis, before pytest starts
    options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-W", imported]
    skipped = _Skipped()
    return int(pytest.main([*options, *tests], plugins=[skipped])) or int(skipped.any)


class _Skipped:
    """Tells that a test was skipped which ran without the change: a missing package that is no longer told, say."""

    any = False

    def pytest_runtest_logreport(self, report) -> None:
        self.any |= report.skipped and not hasattr(report, "wasxfail")


def run(todo: list[tuple[Change | None, list[str], float]], workers: int, folder: Path):
    """Run each change's tests in a process of its own; yield (position, status), 0 where no test noticed it."""
    running: dict[int, int] = {}
    waiting = list(enumerate(todo))[::-1]
    while waiting or running:
        while waiting and len(running) < workers:
            position, (change, tests, limit) = waiting.pop()
            running[start(change, tests, folder / f"{position}.log", limit)] = position
        child, status = os.wait()
        yield running.pop(child), os.waitstatus_to_exitcode(status)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many changes are drawn (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one a processor)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for each change at most (default: 60)")
    parser.add_argument("--only", default="", help="changes of lines that contain this text alone")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants", help="for coverage and logs")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if not (given.folder / "seconds.json").exists():
        print("running the tests under coverage, once …", flush=True)
        measure(given.folder, TESTS, given.workers)
    reach, known = Reach(given.folder), equivalent()
    draw = [change for change in drawn(given.count, given.seed) if given.only in str(change)]
    named = {change: why for change in draw if (why := reason(change, known))}
    todo = []
    unnoticed = []
    for change in draw:
        if change in named:
            continue
        tests = within(reach.tests(change), reach.seconds, given.seconds)
        if tests:
            todo.append((change, tests, 60 + 5 * sum(reach.seconds[test] for test in tests)))
        else:
            unnoticed.append((change, "no test reaches it"))
    _import_libraries()
    unchanged = [(None, sorted({test for _, tests, _ in todo for test in tests[:3]}), 3600.0)]
    if [status for _, status in run(unchanged, 1, given.folder)] != [0]:
        parser.error(f"tests fail without any change: see {given.folder / '0.log'}")
    started = time.perf_counter()
    for done, (position, status) in enumerate(run(todo, given.workers, given.folder), 1):
        if status == BROKEN:
            parser.error(f"{todo[position][0]}: see {given.folder / f'{position}.log'}")
        if status == 0:
            unnoticed.append((todo[position][0], f"{len(todo[position][1])} tests, log {position}"))
            print(f"unnoticed: {todo[position][0]}  ({len(todo[position][1])} tests)", flush=True)
        if done % 25 == 0:
            print(f"{done} of {len(todo)}, {time.perf_counter() - started:.0f} s", flush=True)
    return _report(len(draw), named, unnoticed)


def _import_libraries() -> None:
    """Import what the tests need once, before the processes are started: all but the package itself."""
    import hypothesis  # noqa: F401
    import numba  # noqa: F401
    import pytest  # noqa: F401
    import scipy.linalg
    import scipy.special  # noqa: F401


def _report(count: int, named: dict[Change, str], unnoticed: list[tuple[Change, str]]) -> int:
    print(f"\n{count} changes drawn, {len(named)} of them equivalent")
    for change, why in named.items():
        print(f"  equivalent: {change}: {why}")
    for change, why in unnoticed:
        print(f"  unnoticed: {change}  ({why})")
    judged = count - len(named)
    score = 100 * (judged - len(unnoticed)) / max(1, judged)
    print(f"noticed: {judged - len(unnoticed)} of {judged}, {score:.1f} % (at least {LEAST} % are asked for)")
    return 0 if score >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
