"""A study in a process of its own: ``study_process.py EXECUTOR RUN FILE.toml FILE.sqlite FOLDER``.

RUN is "fake", see `fake_runs.py`, or "tiny": real runs on a few made-up images.
"""

import sys
from pathlib import Path

import fake_runs
import tiny_runs
from rich.console import Console

from gbackprop.curvature.data.executors import open_pool
from gbackprop.experiments.study import Settings, run_study
from gbackprop.experiments.study_file import read
from gbackprop.experiments.view import Lines


def main(executor, run, toml, database, folder):
    """Run it, and print what is left to do."""
    runner = {"fake": fake_runs.run, "tiny": tiny_runs.run}[run]
    name, _, workers = executor.partition(",")
    with open_pool(name, int(workers) if workers else None) as pool, Lines(Console()) as view:
        summary = run_study(read(toml), database, pool, Settings(Path(folder), run=runner), view)
    print(summary.done, summary.diverged, len(summary.failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
