"""``python -m gbackprop train PROBLEM --optimizer KFAC …``: one run."""

import argparse
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gbackprop.array import check_device
from gbackprop.base.extras import MissingExtraError
from gbackprop.base.files import OutputError, check_output
from gbackprop.experiments import checkpoint, runs
from gbackprop.experiments.cli.arguments import INTERRUPTED, users_errors
from gbackprop.experiments.export import check_format, export
from gbackprop.experiments.problems import Split, load_problem, problem
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.stored import StoredRun
from gbackprop.experiments.view import title

COLUMNS = tuple(field.name for field in fields(runs.EpochRow))[1:-1]  # without the epoch and its seconds


def run(options: argparse.Namespace) -> int:
    """Carry it out."""
    with users_errors(ValueError, OSError, RuntimeError, MissingExtraError):
        spec, split = _prepare(options)
    console = Console()
    try:
        outcome = _train(spec, split, options, console)
    except KeyboardInterrupt:
        hint = f"; the same command goes on from {options.checkpoint}" if options.checkpoint else ""
        console.print(f"stopped{hint}", markup=False, highlight=False, soft_wrap=True)
        return INTERRUPTED
    if outcome.status == "diverged":
        console.print(f"diverged: no longer finite after epoch {len(outcome.rows) - 1}")
    if options.output:
        _write(outcome, Path(options.output))
    return 0


def _prepare(options: argparse.Namespace) -> tuple[RunSpec, Split]:
    """Look at everything that may be missing or wrong before any work is done."""
    spec = RunSpec(**{field.name: getattr(options, field.name) for field in fields(RunSpec)})
    if options.output:
        with users_errors(ValueError, OutputError, prefix="--output: "):
            check_format(Path(options.output))
    check_device(options.device)
    if options.checkpoint:
        with users_errors(OutputError, prefix="--checkpoint: "):
            check_output(options.checkpoint)
            if options.output and Path(options.output).resolve() == Path(options.checkpoint).resolve():
                raise OutputError(f"expected another file than that of --output, got {options.checkpoint}")
        _read_checkpoint(options.checkpoint, spec.key())
    split = load_problem(problem(spec.problem), options.data_dir)
    if options.checkpoint:
        _read_checkpoint(options.checkpoint, runs.identity(spec, split))
    return spec, split


def _read_checkpoint(file: str, key: str) -> None:
    """Check that a checkpoint, if it is there, is of a run."""
    if Path(file).exists():
        checkpoint.load(Path(file), key)


def _train(spec: RunSpec, split: Split, options: argparse.Namespace, console: Console) -> runs.Outcome:
    console.print(title(spec), highlight=False)
    if split.note:
        console.print(split.note, markup=False)
    header = " ".join(["epoch", *(f"{name:>14}" for name in COLUMNS), "  seconds"])
    console.print(header, highlight=False, soft_wrap=True)
    columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(bar_width=20), TextColumn("{task.percentage:.0f} %"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    bar = Progress(*columns, *times, TextColumn("{task.fields[doing]}"), console=console)
    task = bar.add_task("", total=spec.epochs, epoch=f"0 of {spec.epochs}", doing="evaluating")

    def report(event: runs.Progress) -> None:
        done = max(event.epoch, 0) + event.step / event.steps
        epoch = f"{min(event.epoch + 1, event.epochs)} of {event.epochs}"
        bar.update(task, completed=done, epoch=epoch, doing=doing(event))
        if event.row is not None:
            console.print(line(event.row), highlight=False, soft_wrap=True)

    with bar, users_errors(ValueError, OSError):
        return runs.run(spec, device=options.device, checkpoint=options.checkpoint, report=report, split=split)


def doing(event: runs.Progress) -> str:
    """Return a few words on the state of a run, for the progress bar."""
    if event.evaluated is not None:
        return f"evaluating {event.evaluated:.0%}".replace("%", " %")
    return "" if event.loss is None else f"loss {event.loss:.4f}"


def line(row: runs.EpochRow) -> str:
    """Return an epoch as a line of the table."""
    values = [getattr(row, name) for name in COLUMNS]
    figures = (f"{value:14.6f}" if abs(value) < 1e6 else f"{value:14.6e}" for value in values)  # on the way to diverge
    return " ".join([f"{row.epoch:5d}", *figures, f"{row.seconds:9.2f}"])


def _write(outcome: runs.Outcome, path: Path) -> None:
    with users_errors(OSError):
        export([StoredRun(outcome.spec, outcome.status, frozenset(), outcome.rows)], path)
