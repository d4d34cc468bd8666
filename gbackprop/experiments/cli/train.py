"""``python -m gbackprop train PROBLEM --optimizer KFAC …``: one run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gbackprop.base.files import OutputError, check_output
from gbackprop.experiments.cli.arguments import INTERRUPTED, above_zero, at_least, users_errors, zero_or_more
from gbackprop.experiments.optimizers import AVERAGES, DEFAULT_MOMENTUM, OPTIMIZERS
from gbackprop.experiments.problems import PROBLEMS, load_problem, problem

if TYPE_CHECKING:
    from rich.console import Console

    from gbackprop.experiments.problems import Split
    from gbackprop.experiments.runs import EpochRow, Outcome
    from gbackprop.experiments.runs import Progress as Event
    from gbackprop.experiments.spec import RunSpec

COLUMNS = ("train_loss", "train_accuracy", "valid_loss", "valid_accuracy", "test_loss", "test_accuracy")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("train", help="train a network on one of the paper's problems")
    parser.set_defaults(run=run)
    parser.add_argument("problem", metavar="PROBLEM", help=", ".join(PROBLEMS))
    parser.add_argument("--optimizer", required=True, help=", ".join(OPTIMIZERS))
    parser.add_argument("--lr", type=above_zero, required=True, help="learning rate")
    parser.add_argument("--damping", type=zero_or_more, help="for those with a curvature")
    parser.add_argument("--momentum", type=zero_or_more, help=f"for Momentum (default: {DEFAULT_MOMENTUM})")
    parser.add_argument("--average", help=f"of the curvature over steps: {', '.join(AVERAGES)} (default: mean)")
    parser.add_argument("--seed", type=at_least(0), default=42, help="same seed, same run (default: %(default)s)")
    parser.add_argument("--epochs", type=at_least(1), help="passes over the training images (default: the paper's)")
    parser.add_argument("--data-dir", metavar="DIR", help="where the images are")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--checkpoint", metavar="FILE.npz", help="written every epoch; if it is there, go on from it")
    parser.add_argument("--output", metavar="FILE", help="write the epochs as a table, .csv or .parquet")


def run(options: argparse.Namespace) -> int:
    """Carry it out."""
    # Imported here, so that other commands need nothing but the core's dependencies.
    from gbackprop.base.extras import MissingExtraError, require

    with users_errors(MissingExtraError):
        require("rich", "training")
    from rich.console import Console

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
    from gbackprop.array import check_device
    from gbackprop.experiments import checkpoint
    from gbackprop.experiments.export import check_format
    from gbackprop.experiments.spec import RunSpec

    names = ("problem", "optimizer", "lr", "damping", "seed", "epochs", "momentum", "average")
    spec = RunSpec(**{name: getattr(options, name) for name in names})
    if options.output:
        with users_errors(ValueError, OutputError, prefix="--output: "):
            check_format(Path(options.output))
    if options.checkpoint:
        path = Path(options.checkpoint)
        with users_errors(OutputError, prefix="--checkpoint: "):
            check_output(path)
        if path.exists():
            checkpoint.load(path, spec.key())
    check_device(options.device)
    return spec, load_problem(problem(spec.problem), options.data_dir)


def _train(spec: RunSpec, split: Split, options: argparse.Namespace, console: Console) -> Outcome:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from gbackprop.experiments.runs import run
    from gbackprop.experiments.view import title

    console.print(title(spec), highlight=False)
    if split.note:
        console.print(split.note, markup=False)
    header = " ".join(["epoch", *(f"{name:>14}" for name in COLUMNS), "  seconds"])
    console.print(header, highlight=False, soft_wrap=True)
    columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(bar_width=20), TextColumn("{task.percentage:.0f} %"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    bar = Progress(*columns, *times, TextColumn("{task.fields[doing]}"), console=console)
    task = bar.add_task("", total=spec.epochs, epoch=f"0 of {spec.epochs}", doing="evaluating")

    def report(event: Event) -> None:
        done = max(event.epoch, 0) + event.step / event.steps
        epoch = f"{min(event.epoch + 1, event.epochs)} of {event.epochs}"
        bar.update(task, completed=done, epoch=epoch, doing=doing(event))
        if event.row is not None:
            console.print(line(event.row), highlight=False, soft_wrap=True)

    with bar, users_errors(ValueError, OSError):
        return run(spec, device=options.device, checkpoint=options.checkpoint, report=report, split=split)


def doing(event: Event) -> str:
    """Return a few words on the state of a run, for the progress bar."""
    if event.evaluated is not None:
        return f"evaluating {event.evaluated:.0%}".replace("%", " %")
    return "" if event.loss is None else f"loss {event.loss:.4f}"


def line(row: EpochRow) -> str:
    """Return an epoch as a line of the table."""
    values = [getattr(row, name) for name in COLUMNS]
    figures = (f"{value:14.6f}" if abs(value) < 1e6 else f"{value:14.6e}" for value in values)  # on the way to diverge
    return " ".join([f"{row.epoch:5d}", *figures, f"{row.seconds:9.2f}"])


def _write(outcome: Outcome, path: Path) -> None:
    from gbackprop.experiments.export import export
    from gbackprop.experiments.stored import StoredRun

    with users_errors(OSError):
        export([StoredRun(outcome.spec, outcome.status, frozenset(), outcome.rows)], path)
