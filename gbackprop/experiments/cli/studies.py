"""``python -m gbackprop study FILE.toml``: many runs, into one file of results."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from gbackprop.base.files import OutputError, check_output
from gbackprop.experiments.cli.arguments import FAILED, INTERRUPTED, UserError, at_least, users_errors

if TYPE_CHECKING:
    from rich.console import Console

    from gbackprop.experiments.protocol import Protocol
    from gbackprop.experiments.study import Summary


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("study", help="run grids and seeds of several optimizers and problems")
    parser.set_defaults(run=run)
    parser.add_argument("file", metavar="FILE.toml", help="what to run; see docs/experiments.md")
    parser.add_argument("--data-dir", metavar="DIR", help="where the images are")
    parser.add_argument("--output", metavar="FILE.sqlite", help="results (default: FILE.sqlite in this folder)")
    parser.add_argument("--workers", type=at_least(1), metavar="N", help="runs at a time (default: one a core)")
    parser.add_argument(
        "--threads", type=at_least(1), metavar="N", help="of each run (default: cores over runs at a time)"
    )
    parser.add_argument(
        "--executor",
        default="processes",
        metavar="WHERE",
        help="processes, serial, mpi, dask:// or dask://HOST:PORT (default: %(default)s)",
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--export", choices=("csv", "parquet"), help="write all epochs as one table afterwards")


def run(options: argparse.Namespace) -> int:
    """Carry it out."""
    # Imported here, so that other commands need nothing but the core's dependencies.
    from gbackprop.base.extras import MissingExtraError, require

    with users_errors(MissingExtraError):
        for package in ("rich", "filelock"):
            require(package, "studies")
        if options.export == "parquet":
            require("pyarrow.parquet", "parquet files", "parquet")
    from rich.console import Console

    data_dir = None if options.data_dir is None else Path(options.data_dir).absolute()
    with users_errors(ValueError, OSError, RuntimeError, MissingExtraError):
        protocol, output, notes = _prepare(options, data_dir)
    console = Console()
    for name, note in notes.items():
        if note:
            console.print(f"{name}: {note}", markup=False, highlight=False, soft_wrap=True)
    return _conclude(_run_study(protocol, output, options, notes, console), output, options.export, console)


def _run_study(
    protocol: Protocol, output: Path, options: argparse.Namespace, notes: dict[str, str], console: Console
) -> Summary:
    from gbackprop.base.extras import MissingExtraError
    from gbackprop.base.threads import cpu_count
    from gbackprop.curvature.data.executors import open_pool
    from gbackprop.experiments.schema import StoreError
    from gbackprop.experiments.study import Settings, run_study
    from gbackprop.experiments.view import Bars, Lines

    with ExitStack() as stack:
        with users_errors(ValueError, RuntimeError, MissingExtraError):
            pool = stack.enter_context(open_pool(options.executor, options.workers))
        data_dir = None if options.data_dir is None else Path(options.data_dir).absolute()
        threads = options.threads or max(1, cpu_count() // pool.slots)
        settings = Settings(data_dir, options.device, threads, notes=notes)
        view = stack.enter_context(Bars(console) if console.is_terminal else Lines(console))
        with users_errors(StoreError):
            return run_study(protocol, output, pool, settings, view)


def _prepare(options: argparse.Namespace, data_dir: Path | None) -> tuple[Protocol, Path, dict[str, str]]:
    """Look at everything that may be missing or wrong: better one line now than a failure of every run.

    Also the note on the data of each problem.
    """
    from gbackprop.array import check_device
    from gbackprop.experiments.problems import load_problem, problem
    from gbackprop.experiments.study_file import read

    protocol = read(options.file)
    output = Path(options.output or f"{Path(options.file).stem}.sqlite")
    if output.suffix in (".toml", ".checkpoints", ".csv", ".parquet"):
        raise UserError(f"--output: expected a file of results, as in results.sqlite, got {output}")
    if options.export:
        with users_errors(OutputError, prefix="--export: "):
            check_output(_table(output, options.export))
    check_device(options.device)
    notes = {name: load_problem(problem(name), data_dir).note for name in protocol.problems()}
    return protocol, output, notes


def _conclude(summary: Summary, output: Path, table: str | None, console: Console) -> int:
    from gbackprop.experiments.export import export
    from gbackprop.experiments.store import Store
    from gbackprop.experiments.view import describe, title

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
