"""``python -m gbackprop study FILE.toml``: many runs, into one file of results."""

import argparse
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gbackprop.array import check_device
from gbackprop.base.extras import MissingExtraError, require
from gbackprop.base.files import OutputError, check_output
from gbackprop.base.threads import cpu_count
from gbackprop.curvature.data.executors import open_pool
from gbackprop.experiments.cli.arguments import FAILED, INTERRUPTED, UserError, users_errors
from gbackprop.experiments.export import export
from gbackprop.experiments.problems import load_problem, problem
from gbackprop.experiments.protocol import Protocol
from gbackprop.experiments.schema import StoreError
from gbackprop.experiments.store import Store
from gbackprop.experiments.stored import COMPLETE, data_key
from gbackprop.experiments.study import Settings, Summary, run_study
from gbackprop.experiments.study_file import read
from gbackprop.experiments.view import Bars, Lines, describe, title


def run(options: argparse.Namespace) -> int:
    """Carry it out."""
    if options.export == "parquet":
        with users_errors(MissingExtraError):
            require("pyarrow.parquet", "parquet files", "parquet")
    data_dir = None if options.data_dir is None else Path(options.data_dir).absolute()
    with users_errors(ValueError, OSError, RuntimeError, MissingExtraError):
        protocol, output, data = _prepare(options, data_dir)
    console = Console()
    for name in protocol.problems():
        if (note := data[data_key(name)]) != COMPLETE:
            console.print(f"{name}: {note}", markup=False, highlight=False, soft_wrap=True)
    settings = Settings(data_dir, options.device, data=data)
    return _conclude(_run_study(protocol, output, options, settings, console), output, options.export, console)


def _run_study(
    protocol: Protocol, output: Path, options: argparse.Namespace, settings: Settings, console: Console
) -> Summary:
    with ExitStack() as stack:
        with users_errors(ValueError, RuntimeError, MissingExtraError):
            pool = stack.enter_context(open_pool(options.executor, options.workers))
        settings = replace(settings, threads=options.threads or max(1, cpu_count() // pool.slots))
        view = stack.enter_context(Bars(console) if console.is_terminal else Lines(console))
        with users_errors(StoreError):
            return run_study(protocol, output, pool, settings, view)


def _prepare(options: argparse.Namespace, data_dir: Path | None) -> tuple[Protocol, Path, dict[str, str]]:
    """Look at everything that may be missing or wrong: better one line now than a failure of every run.

    Also the lines on the data of each problem.
    """
    protocol = read(options.file)
    output = Path(options.output or f"{Path(options.file).stem}.sqlite")
    if output.suffix in (".toml", ".checkpoints", ".csv", ".parquet"):
        raise UserError(f"--output: expected a file of results, as in results.sqlite, got {output}")
    if options.export:
        with users_errors(OutputError, prefix="--export: "):
            check_output(_table(output, options.export))
    check_device(options.device)
    return protocol, output, {key: line for name in protocol.problems() for key, line in _data(name, data_dir)}


def _data(name: str, data_dir: Path | None) -> list[tuple[str, str]]:
    """Return the lines on the data of a problem, each with its key: the note, and the digest of all images."""
    split = load_problem(problem(name), data_dir)
    return [(data_key(name), split.note or COMPLETE), (f"images of {name}", split.digest)]


def _conclude(summary: Summary, output: Path, table: str | None, console: Console) -> int:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if summary.stopped:
        say(f"stopped with {summary.done + summary.diverged} runs stored: the same command goes on from here")
        return INTERRUPTED
    for run in summary.failed:
        say(describe(run))
    for grid in summary.hopeless:
        say(f"{title(grid.points[0])} and all other points of the grid diverged: there is no best to repeat")
    diverged = f", {summary.diverged} diverged" if summary.diverged else ""
    failed = f", {len(summary.failed)} failed (the same command tries them again)" if summary.failed else ""
    say(f"{output}: {summary.done} runs done{diverged}{failed}")
    if table:
        path = _table(output, table)
        with users_errors(OSError, ValueError), Store(output, reading=True) as store:
            export(store.runs(), path)
        say(f"table: {path}")
    return FAILED if summary.failed or summary.hopeless else 0


def _table(output: Path, kind: str) -> Path:
    """Return the path of the table of all epochs: beside the file of results."""
    return output.with_suffix(f".{kind}")
