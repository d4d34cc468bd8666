"""A run as a file of results has it."""

from dataclasses import dataclass
from typing import Literal

from gbackprop.experiments.runs import EpochRow
from gbackprop.experiments.spec import RunSpec

Phase = Literal["grid", "repeat", "fixed"]
FINISHED = ("done", "diverged")


@dataclass(frozen=True)
class StoredRun:
    """A run as the file has it."""

    spec: RunSpec  # all that decides its numbers
    status: str  # pending, running (or its process died), done, diverged or failed
    phases: frozenset[str]  # "grid", "repeat" and "fixed": what it is for
    rows: tuple[EpochRow, ...] = ()  # if it is done or diverged
    error: str = ""  # why it failed; the first line says it


COMPLETE = "complete"
"""The note that is stored for data that need none."""


def data_key(problem: str) -> str:
    """Return the key, in the table `meta`, of the note on a problem's data."""
    return f"data of {problem}"
