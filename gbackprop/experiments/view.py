"""The display of a study's progress: bars on a terminal, a line for each finished run elsewhere."""

from dataclasses import dataclass
from typing import Self

from gbackprop.base.extras import needed
from gbackprop.experiments.estimate import duration
from gbackprop.experiments.spec import RunSpec
from gbackprop.experiments.stored import StoredRun
from gbackprop.experiments.worker import Note

with needed("rich", "progress bars"):
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskID, TextColumn


@dataclass(frozen=True)
class State:
    """The progress of a study."""

    ended: int  # runs
    total: int
    running: tuple[tuple[RunSpec, Note | None], ...]
    left: float | None  # seconds until all is done, estimated


def title(spec: RunSpec) -> str:
    """Return a run in a few words."""
    damping = "" if spec.damping is None else f" damping {spec.damping:g}"
    return f"{spec.problem} {spec.optimizer} lr {spec.lr:g}{damping} seed {spec.seed}"


def describe(run: StoredRun) -> str:
    """Describe the outcome of a run in a line."""
    if run.status == "failed":
        return f"{title(run.spec)}: failed: {run.error.partition(chr(10))[0]}"
    if run.status == "diverged" or not run.rows:
        return f"{title(run.spec)}: {run.status} after {max(len(run.rows) - 1, 0)} epochs"
    last = run.rows[-1]
    return f"{title(run.spec)}: {run.status}, test accuracy {last.test_accuracy:.4f}, test loss {last.test_loss:.4f}"


class Lines:
    """The display of a study's progress on a console: a line for each run that has come to its end."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, state: State) -> None:
        """Do nothing: only ended runs have a line."""

    def ended(self, run: StoredRun, state: State) -> None:
        """Print the run."""
        left = "" if state.ended == state.total else f"; time left: {duration(state.left)}"
        self.say(f"[{state.ended}/{state.total}] {describe(run)}{left}")

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bars(Lines):
    """A bar for the study and one for each run under way, below the lines; for a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        # Narrow, so that a terminal of 80 columns shows the texts whole.
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=8), TextColumn("{task.fields[text]}"))
        self._progress = Progress(*columns, console=console)
        self._all = self._progress.add_task("[bold]all runs", total=None, text="")
        self._each: dict[RunSpec, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, state: State) -> None:
        """Move the bars."""
        text = f"{state.ended} of {state.total}, time left: {duration(state.left)}"
        parts = sum(note.done / note.epochs for _, note in state.running if note)
        self._progress.update(self._all, total=state.total, completed=state.ended + parts, text=text)
        running = dict(state.running)
        for spec in [spec for spec in self._each if spec not in running]:
            self._progress.remove_task(self._each.pop(spec))
        for spec, note in running.items():
            if spec not in self._each:
                self._each[spec] = self._progress.add_task(escape(title(spec)), total=spec.epochs, text="starting")
            if note:
                text = f"epoch {note.done:.1f}/{note.epochs}"
                self._progress.update(self._each[spec], completed=note.done, text=text)
