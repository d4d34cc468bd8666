"""The command line, ``gbackprop`` or ``python -m gbackprop``: audit, demo, check, train, study and plot."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gbackprop import __version__
from gbackprop.base.files import OutputError
from gbackprop.experiments import data
from gbackprop.experiments.cli import plot, train
from gbackprop.experiments.cli import studies as study
from gbackprop.experiments.cli.arguments import (
    CLOSED,
    INTERRUPTED,
    USAGE,
    UserError,
    above_zero,
    at_least,
    users_errors,
)

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


def _demo(options: argparse.Namespace) -> int:
    # Imported here, so that `check` needs nothing but the core's dependencies.
    from gbackprop.base.extras import MissingExtraError, require

    try:
        for package in ("rich", "matplotlib"):
            require(package, "the demo")
        from gbackprop.experiments import demo

        setup = demo.prepare(options.data, options.data_dir, options.device, options.epochs, options.output)
    except (ValueError, OSError, RuntimeError, MissingExtraError) as error:
        raise UserError(str(error).replace("\n", " ")) from error
    with users_errors(OutputError):
        return 0 if demo.run(setup, options.seed, options.output) else 1


def _check(options: argparse.Namespace) -> int:
    from gbackprop.testing.golden import check_folder

    try:
        report = check_folder(options.folder, options.tolerance)
    except OSError as error:
        raise UserError(str(error)) from error
    for line in report.lines():
        print(line)
    print(f"{report.passed} of {report.total}")
    return 0 if report.passed == report.total else 1


def _audit(options: argparse.Namespace) -> int:
    from gbackprop.testing.audit.command import run
    from gbackprop.testing.audit.target import TargetError

    try:
        return run(options)
    except TargetError as error:
        raise UserError(str(error)) from error


def _program() -> str:
    """Return the command as the user called it, for the usage line."""
    return "python -m gbackprop" if Path(sys.argv[0]).name == "__main__.py" else "gbackprop"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_program(), description="More than the gradient in one backward sweep."
    )
    parser.add_argument("--version", action="version", version=f"gbackprop {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    audit = commands.add_parser("audit", help="hold layers, losses, quantities or a network against their definitions")
    audit.set_defaults(run=_audit)
    audit.add_argument(
        "target", nargs="?", metavar="MODULE:NAME", help="your own, as in my_layers:Swish (default: all that ships)"
    )
    audit.add_argument("--input", metavar="SHAPE", help="of one sample, as in 3,8,8")
    audit.add_argument("--loss", help="for a network: CrossEntropyLoss, MSELoss, BCEWithLogitsLoss or MODULE:NAME")
    audit.add_argument("--batch", type=at_least(1), default=3, help="samples (default: %(default)s)")
    audit.add_argument("--seed", type=at_least(0), default=0, help="same seed, same audit (default: %(default)s)")
    audit.add_argument("--rows", action="store_true", help="show every claim of every subject")
    audit.add_argument("--html", metavar="FILE", help="write a page with pictures of the errors")

    demo = commands.add_parser("demo", help="train a small network on images and show all ten quantities")
    demo.set_defaults(run=_demo)
    demo.add_argument(
        "--data", default="digits", metavar="SET", help=f"{', '.join(data.NAMES)} (default: %(default)s)"
    )
    demo.add_argument(
        "--data-dir", metavar="DIR", help="where the files of the set are; the digits need none"
    )
    demo.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    demo.add_argument(
        "--seed", type=at_least(0), default=0, help="same seed, same run (default: %(default)s)"
    )
    demo.add_argument("--epochs", type=at_least(1), help="passes over the training images")
    demo.add_argument(
        "--output", default="gbackprop-demo.png", metavar="FILE", help="picture (default: %(default)s)"
    )

    check = commands.add_parser("check", help="hold the engine against a folder of reference files (.npz)")
    check.set_defaults(run=_check)
    check.add_argument("folder", metavar="DIR", help="the folder")
    check.add_argument("--tolerance", type=above_zero, default=1e-8, help="relative (default: %(default)s)")

    for command in (train, study, plot):
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
