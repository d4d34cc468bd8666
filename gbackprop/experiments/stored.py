"""A run as a file of results has it."""

from dataclasses import dataclass
from typing import Literal

from gbackprop.experiments.runs import EpochRow
from gbackprop.experiments.spec import RunSpec

Phase = Literal["grid", "repeat", "fixed"]
FINISHED = ("done", "diverged")


@dataclass(frozen=True)
class StoredRun:
    """A run as the file has it.

    Attributes
    ----------
    spec : RunSpec
        What decides its numbers.
    status : {"pending", "running", "done", "diverged", "failed"}
        Where it stands; "running" may also be one whose process has died.
    phases : frozenset of {"grid", "repeat", "fixed"}
        What it is for.
    rows : tuple of EpochRow
        Its epochs, if it is done or diverged.
    error : str
        Why it failed; the first line says it.
    """

    spec: RunSpec
    status: str
    phases: frozenset[str]
    rows: tuple[EpochRow, ...] = ()
    error: str = ""


COMPLETE = "complete"
"""The note that is stored for data that need none."""


def data_key(problem: str) -> str:
    """Return the key, in the table `meta`, of the note on a problem's data."""
    return f"data of {problem}"
