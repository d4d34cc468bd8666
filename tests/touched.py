"""Run the tests of the long profile that belong to what a branch changed: ``make test-touched``.

Changed are the files that differ from the commit where the branch left ``origin/main``; without such a branch, from the
commit before the last one. Their folders' tests are those that are marked ``long`` and those that Hypothesis draws for;
with ``--marked``, as CI asks, the marked ones alone, but those that compute whole pages, with as many examples as in
``make test``. After the time limit no further file of tests is started, and those that were not run are named.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "__init__.py": ["errors"],
    "__main__.py": ["errors"],
    "array.py": ["device"],
    "base": ["errors", "storage"],
    "calculus": ["layers", "state"],
    "curvature": ["data", "influence", "laplace", "spectra"],
    "interop": ["interop", "storage", "trace"],
    "network": ["layers"],
    "plain": ["engine", "explanation"],
    "testing": ["audit", "kit"],
}
"""The folders of tests for a part of the package, where they do not have the part's name."""
NONE_COLLECTED = 5
"""The exit status of pytest where no test was selected."""


def git(*arguments: str, root: Path = ROOT) -> list[str]:
    """Return the lines that git prints, none if it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed(root: Path = ROOT) -> list[str] | None:
    """Return the files that differ from the commit before the branch, or None without such a commit."""
    head = git("rev-parse", "HEAD", root=root)
    before = git("merge-base", "HEAD", "origin/main", root=root)
    if before in ([], head):
        before = git("rev-parse", "--verify", "HEAD~1", root=root)
    return git("diff", "--name-only", *before, root=root) if before else None


def folders_of(files: list[str]) -> list[str]:
    """Return the folders of tests for changed files of the package and of the tests."""
    found = set()
    for top, part, *_ in (file.split("/") for file in files if "/" in file):
        if top == "gbackprop":
            found |= set(FOLDERS.get(part, [part]))
        elif top == "tests" and (ROOT / "tests" / part).is_dir():
            found.add(part)
    return sorted(found)


def drawn_in(folders: list[str]) -> list[str]:
    """Return the files of tests in folders that have a test which is drawn, or marked."""
    files = [path for folder in folders for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))]
    words = ("from hypothesis import", "mark.long", "in_turn", "one_in", "one_of_each_kind")
    return [str(path.relative_to(ROOT)) for path in files if any(word in path.read_text() for word in words)]


def run(files: list[str], seconds: float, workers: int, marked: bool = False) -> Iterator[tuple[str, int | None]]:
    """Run files of tests in processes of their own; yield each with its exit status, None if it was not started."""
    end = time.monotonic() + seconds
    drawn = "--hypothesis-seed=0"  # the same examples each time: what lands does not depend on luck
    kinds, profile = ("long and not page", "ci") if marked else ("long or hypothesis", "long")
    command = [sys.executable, "-m", "pytest", "-m", kinds, "-p", "no:cacheprovider", drawn]
    environment = os.environ | {"HYPOTHESIS_PROFILE": profile, "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def of_file(file: str) -> int | None:
        if time.monotonic() > end:
            return None
        done = subprocess.run([*command, file], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, NONE_COLLECTED):
            print(done.stdout, done.stderr, flush=True)
        return done.returncode

    with ThreadPoolExecutor(workers) as pool:
        yield from zip(files, pool.map(of_file, files), strict=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the tests, and return 1 if some failed; those that were not started in time are no failure."""
    parser = argparse.ArgumentParser(prog="make test-touched", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="after which no file is started (default: 20)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--marked", action="store_true", help="only what is marked, with the examples of make test")
    given = parser.parse_args(arguments)
    files = changed()
    if files is None:
        print("nothing to compare with: this clone has no commit before the last one, so nothing is run")
        return 0
    tests = drawn_in(folders_of(files))
    print(f"{len(files)} files changed, {len(tests)} files of tests are run", flush=True)
    failed, late = [], []
    for file, status in run(tests, 60 * given.minutes, given.workers, given.marked):
        if status is None:
            late.append(file)
        elif status not in (0, NONE_COLLECTED):
            failed.append(file)
    for said, names in (("failed", failed), (f"not run, as {given.minutes:g} minutes were over", late)):
        if names:
            print(f"{said}: {' '.join(names)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
