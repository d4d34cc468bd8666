"""``python -m gbackprop plot RESULTS.sqlite``: pictures and tables."""

import argparse
from pathlib import Path

from rich.console import Console

from gbackprop.base.files import OutputError, check_output
from gbackprop.experiments import curves, plots, tables
from gbackprop.experiments.cli.arguments import PICTURES, UserError, users_errors
from gbackprop.experiments.schema import StoreError
from gbackprop.experiments.store import Store
from gbackprop.experiments.stored import COMPLETE, StoredRun, data_key


def run(options: argparse.Namespace) -> int:
    """Carry it out."""
    with users_errors(StoreError), Store(options.file, reading=True) as store:
        runs = store.runs()
        chosen = _choose(curves.problems(runs), options)
        notes = {name: store.read_note(data_key(name)) for name in chosen}
    _show(runs, notes, options)
    return 0


def _show(runs: list[StoredRun], notes: dict[str, str], options: argparse.Namespace) -> None:
    """Print the table of each problem and the note on its data, and save its picture."""
    console = Console()
    for name, note in notes.items():
        shown = curves.curves(runs, name)
        path = _path(options, name)
        if options.markdown:
            print(f"\n{name}\n\n{tables.markdown(shown)}\n")
        else:
            wide = console if console.is_terminal else Console(width=160)
            wide.print(tables.table(shown, name))
        if note and note != COMPLETE:
            console.print(f"data: {note}", markup=False, highlight=False, soft_wrap=True)
        if drawn := [curve for curve in shown if curve.runs]:
            with users_errors(OutputError):
                plots.draw(drawn, name, path)
            console.print(f"picture: {path}", markup=False, highlight=False, soft_wrap=True)


def _choose(there: list[str], options: argparse.Namespace) -> list[str]:
    if not there:
        raise UserError(f"{options.file}: no run is done yet")
    if options.problem is not None and options.problem not in there:
        raise UserError(f"--problem: expected one of {', '.join(there)}, which are done, got {options.problem!r}")
    chosen = [options.problem] if options.problem is not None else there
    if options.output:
        path = Path(options.output)
        if path.suffix not in PICTURES:
            raise UserError(f"--output: expected a name that ends in {', '.join(PICTURES)}, got {str(path)!r}")
    with users_errors(OutputError, prefix="--output: " if options.output else ""):
        for name in chosen:
            check_output(_path(options, name))
    if options.output and len(chosen) > 1:
        raise UserError(f"--output: a picture shows one problem: name it by --problem {'|'.join(chosen)}")
    return chosen


def _path(options: argparse.Namespace, problem: str) -> Path:
    """Return the path of the picture of a problem."""
    file = Path(options.file)
    return Path(options.output) if options.output else file.with_name(f"{file.stem}-{problem}.png")
