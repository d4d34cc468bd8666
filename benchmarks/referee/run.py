"""Judge libraries, each in a process of its own, and write docs/referee.md: ``benchmarks/referee/run.py [NAME …]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from referee_page import page, read

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
RESULTS, RED = FOLDER / "results", FOLDER / "red"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def process(arguments: list[str], seconds: int) -> tuple[str, str]:
    """Run Python; return what it printed, and the last line of its errors if it failed."""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *arguments],
            capture_output=True, text=True, timeout=seconds, env=ENVIRONMENT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", f"took longer than {seconds} seconds"
    lines = done.stderr.strip().splitlines()
    return done.stdout, "" if done.returncode == 0 else lines[-1] if lines else f"exit status {done.returncode}"


def main() -> int:
    """Run adapters and red programs, write results and the page; a library that fails stops nothing."""
    known = sorted(path.stem.removesuffix("_adapter") for path in FOLDER.glob("*_adapter.py"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(known)}")
    parser.add_argument("--seconds", type=int, default=1800, help="limit of each library (default: %(default)s)")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "referee.md", help="default: %(default)s")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"names: expected some of {', '.join(known)}, got {', '.join(unknown)}")
    RESULTS.mkdir(exist_ok=True)

    def run(name: str) -> None:
        file = RESULTS / f"{name}.json"
        _, problem = process([str(FOLDER / "run_one.py"), name, str(file)], options.seconds)
        if problem:
            file.write_text(json.dumps({"problem": problem}) + "\n")
        print(f"{name}: {problem or 'ran'}", flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, options.names or known))
    red = {}
    for path in sorted(RED.glob("*.py")):
        output, problem = process([str(path)], options.seconds)
        red[path.name] = output + (f"did not run: {problem}\n" if problem else "")
    run = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version(), "red": red}
    (RESULTS / "run.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    options.page.write_text(page(read(RESULTS), RED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
