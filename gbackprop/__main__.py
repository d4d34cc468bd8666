"""The command line, ``gbackprop`` or ``python -m gbackprop``: audit, demo, check, train, study and plot."""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from gbackprop import __version__
from gbackprop.base.extras import MissingExtraError, require
from gbackprop.experiments import data
from gbackprop.experiments.cli.arguments import (
    CLOSED,
    INTERRUPTED,
    PICTURES,
    USAGE,
    UserError,
    above_zero,
    at_least,
    users_errors,
    zero_or_more,
)
from gbackprop.experiments.optimizers import AVERAGES, DEFAULT_MOMENTUM, OPTIMIZERS
from gbackprop.experiments.problems import PROBLEMS

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a device that takes no more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand."""
    try:
        try:
            return _carry_out(_parser().parse_args(arguments))
        finally:
            sys.stdout.flush()  # here, and not when Python ends, where an error could not be handled
    except BrokenPipeError:
        _give_up_output()
        return CLOSED
    except OSError as error:
        if error.filename is not None or error.errno not in FULL:
            raise
        _give_up_output()
        print(f"gbackprop: standard output: {error.strerror}", file=sys.stderr)
        return USAGE


def _carry_out(options: argparse.Namespace) -> int:
    try:
        return int(options.run(options))
    except UserError as error:
        print(f"gbackprop {options.command}: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # raised by rich if the reader has closed the pipe
            raise BrokenPipeError from ended
        raise


def _give_up_output() -> None:
    """Send what is still to be written nowhere, so that Python does not try it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _runs(module: str, purpose: str, *packages: str) -> Callable[[argparse.Namespace], int]:
    """Return the function `run` of a module, imported when it is called: no command needs another's packages."""

    def run(options: argparse.Namespace) -> int:
        with users_errors(MissingExtraError):
            for package in packages:
                require(package, purpose)
        return int(import_module(f"gbackprop.{module}").run(options))

    return run


def _audit(options: argparse.Namespace) -> int:
    from gbackprop.testing.audit.command import run
    from gbackprop.testing.audit.target import TargetError

    with users_errors(TargetError, MissingExtraError, MemoryError):
        return run(options)


def _check(options: argparse.Namespace) -> int:
    from gbackprop.testing.golden import check_folder

    with users_errors(OSError):
        report = check_folder(options.folder, options.tolerance)
    for line in report.lines():
        print(line)
    print(f"{report.passed} of {report.total}")
    return 0 if report.passed == report.total else 1


def _program() -> str:
    """Return the command as the user called it, for the usage line."""
    return "python -m gbackprop" if Path(sys.argv[0]).name == "__main__.py" else "gbackprop"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_program(), description="More than the gradient in one backward sweep.")
    parser.add_argument("--version", action="version", version=f"gbackprop {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_add_audit, _add_demo, _add_check, _add_train, _add_study, _add_plot):
        add(commands)
    return parser


def _add_audit(commands: Commands) -> None:
    audit = commands.add_parser("audit", help="compare layers, losses, quantities or a network with their definitions")
    audit.set_defaults(run=_audit)
    audit.add_argument(
        "target", nargs="?", metavar="MODULE:NAME", help="your own, as in my_layers:Swish (default: all that ships)"
    )
    audit.add_argument("--input", metavar="SHAPE", help="of one sample, as in 3,8,8; of several inputs, 4+3,8,8")
    audit.add_argument("--loss", help="for a network: a loss that ships, as HuberLoss, or MODULE:NAME")
    audit.add_argument("--batch", type=at_least(1), default=3, help="samples (default: %(default)s)")
    audit.add_argument("--seed", type=at_least(0), default=0, help="same seed, same audit (default: %(default)s)")
    audit.add_argument("--symmetries", action="store_true", help="of a network of any size: claims without an oracle")
    audit.add_argument("--device", default="cpu", help="of --symmetries: cpu or cuda (default: %(default)s)")
    audit.add_argument(
        "--certificate", action="store_true", help="prove formulas and code of elementwise functions, losses"
    )
    audit.add_argument("--rows", action="store_true", help="show every claim of every subject")
    audit.add_argument("--html", metavar="FILE", help="write a page with pictures of the errors")


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser("demo", help="train a small network on images and show the paper's ten quantities")
    demo.set_defaults(run=_runs("experiments.demo", "the demo", "rich", "matplotlib"))
    demo.add_argument("--data", default="digits", metavar="SET", help=f"{', '.join(data.NAMES)} (default: %(default)s)")
    demo.add_argument("--data-dir", metavar="DIR", help="where the files of the set are; the digits need none")
    demo.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    demo.add_argument("--seed", type=at_least(0), default=0, help="same seed, same run (default: %(default)s)")
    demo.add_argument("--epochs", type=at_least(1), help="passes over the training images")
    demo.add_argument("--output", default="gbackprop-demo.png", metavar="FILE", help="picture (default: %(default)s)")


def _add_check(commands: Commands) -> None:
    check = commands.add_parser("check", help="compare the engine with a folder of reference files (.npz)")
    check.set_defaults(run=_check)
    check.add_argument("folder", metavar="DIR", help="the folder")
    check.add_argument("--tolerance", type=above_zero, default=1e-8, help="relative (default: %(default)s)")


def _add_train(commands: Commands) -> None:
    train = commands.add_parser("train", help="train a network on one of the paper's problems")
    train.set_defaults(run=_runs("experiments.cli.train", "training", "rich"))
    train.add_argument("problem", metavar="PROBLEM", help=", ".join(PROBLEMS))
    train.add_argument("--optimizer", required=True, help=", ".join(OPTIMIZERS))
    train.add_argument("--lr", type=above_zero, required=True, help="learning rate")
    train.add_argument("--damping", type=zero_or_more, help="for those with a curvature")
    train.add_argument("--momentum", type=zero_or_more, help=f"for Momentum (default: {DEFAULT_MOMENTUM})")
    train.add_argument("--average", help=f"of the curvature over steps: {', '.join(AVERAGES)} (default: mean)")
    train.add_argument("--seed", type=at_least(0), default=42, help="same seed, same run (default: %(default)s)")
    train.add_argument("--epochs", type=at_least(1), help="passes over the training images (default: the paper's)")
    train.add_argument("--data-dir", metavar="DIR", help="where the images are")
    train.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    train.add_argument("--checkpoint", metavar="FILE.npz", help="written every epoch; if it is there, go on from it")
    train.add_argument("--output", metavar="FILE", help="write the epochs as a table, .csv or .parquet")


def _add_study(commands: Commands) -> None:
    study = commands.add_parser("study", help="run grids and seeds of several optimizers and problems")
    study.set_defaults(run=_runs("experiments.cli.studies", "studies", "rich", "filelock"))
    study.add_argument("file", metavar="FILE.toml", help="what to run; see docs/experiments.md")
    study.add_argument("--data-dir", metavar="DIR", help="where the images are")
    study.add_argument("--output", metavar="FILE.sqlite", help="results (default: FILE.sqlite in this folder)")
    study.add_argument("--workers", type=at_least(1), metavar="N", help="runs at a time (default: one a core)")
    study.add_argument(
        "--threads", type=at_least(1), metavar="N", help="of each run (default: cores over runs at a time)"
    )
    study.add_argument(
        "--executor",
        default="processes",
        metavar="WHERE",
        help="processes, serial, mpi, dask:// or dask://HOST:PORT (default: %(default)s)",
    )
    study.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    study.add_argument("--export", choices=("csv", "parquet"), help="write all epochs as one table afterwards")


def _add_plot(commands: Commands) -> None:
    plot = commands.add_parser("plot", help="draw the curves of a study, and print its table")
    plot.set_defaults(run=_runs("experiments.cli.plot", "pictures", "rich", "matplotlib"))
    plot.add_argument("file", metavar="RESULTS.sqlite", help="from a study, which may be under way")
    plot.add_argument("--problem", help="(default: each)")
    plot.add_argument(
        "--output",
        metavar="FILE",
        help=f"picture, {', '.join(PICTURES)} (default: RESULTS-PROBLEM.png beside RESULTS.sqlite)",
    )
    plot.add_argument("--markdown", action="store_true", help="print the table as Markdown")


if __name__ == "__main__":
    sys.exit(main())
