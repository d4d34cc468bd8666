"""The report of a check: one row for each claim, with the method that it judges and the worst entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

OK, FAILED, NOT_GIVEN, NOT_JUDGED = "ok", "FAILED", "not given", "not judged"
"""Verdicts. A method that a subject need not have is "not given"; what rests on a failed method is "not judged"."""


@dataclass(frozen=True)
class Proposal:
    """An edit with which a claim that failed holds.

    Attributes
    ----------
    words : str
        What to change, as "right if divided by N = 7".
    samples : tuple of int
        The sizes of the batches on which it was verified.
    points : int
        How many numbers agreed there.
    """

    words: str
    samples: tuple[int, ...] = ()
    points: int = 0

    @property
    def evidence(self) -> str:
        """On what it was verified."""
        *others, last = map(str, self.samples or [""])
        batches = f"batches of {', '.join(others)} and {last} samples" if self.samples else ""
        return "verified on " + " of ".join(filter(None, [f"{self.points} numbers" * bool(self.points), batches]))

    def __str__(self) -> str:
        return f"{self.words} ({self.evidence})"


@dataclass(frozen=True)
class Row:
    """One claim and what became of it.

    Attributes
    ----------
    claim : str
        What should be so.
    method : str
        The method under test: where to look if the claim does not hold.
    oracle : str
        What the method was compared with.
    points : int
        How many numbers were compared.
    error : float
        Largest difference over the largest expected entry (the difference itself where nothing but zero is expected).
    tolerance : float
        Largest error allowed.
    verdict : {"ok", "FAILED", "not given", "not judged"}
    worst : tuple
        Where the largest error is: an index, after the name of an array, or of a case, if there were several.
    got, want : scalar, optional
        Both values there.
    problem : str
        What is wrong if it is not a number, or why there is no verdict.
    why : callable, optional
        Searches for edits with which a claim that failed holds: see `diagnosis`.
    """

    claim: str
    method: str
    oracle: str = ""
    points: int = 0
    error: float = 0.0
    tolerance: float = 0.0
    verdict: str = OK
    worst: tuple[Any, ...] = ()
    got: Any = None
    want: Any = None
    problem: str = ""
    why: Callable[[], tuple[Proposal, ...]] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def diagnosis(self) -> tuple[Proposal, ...]:
        """The smallest edits with which a claim that failed holds, searched for when they are first asked for.

        Each was verified on fresh samples. None where nothing fits, or the claim did not fail.
        """
        return self.why() if self.why is not None else ()

    @property
    def failed(self) -> bool:
        """True if the claim was found false."""
        return self.verdict == FAILED

    def explain(self) -> str:
        """Return the row in words, with the worst entry if there is one."""
        text = f"{self.method}: {self.claim}: {self.verdict}"
        if self.problem:
            text += f": {self.problem}"
        if self.points:
            text += f": error {self.error:.1e}, allowed {self.tolerance:.0e}, against {self.oracle}"
        text = f"{text}; {self.worst_entry()}" if self.worst or self.got is not None else text
        return "; or ".join([f"{text}; diagnosis: {self.known[0]}", *map(str, self.known[1:])]) if self.known else text

    @property
    def known(self) -> tuple[Proposal, ...]:
        """`diagnosis`, if it was asked for before."""
        return vars(self).get("diagnosis", ())

    def worst_entry(self) -> str:
        """Return the place of the largest error, and both values there."""
        where = f"worst entry {entry(self.worst)}: " if self.worst else ""
        return f"{where}got {self.got:.8g}, expected {self.want:.8g}"


def entry(worst: tuple[Any, ...]) -> str:
    """Return an index as ``weight[1, 0, 2] (many columns)``: with the name of its array and the case, if there are any.

    Cases are phrases of several words, names of arrays are not.
    """
    words = [part for part in worst if isinstance(part, str)]
    names, cases = ([word for word in words if (" " in word) == several] for several in (False, True))
    index = [str(int(part)) for part in worst if not isinstance(part, str)]
    place = "/".join(names) + (f"[{', '.join(index)}]" if index else "")
    return " ".join([*([place] if place else []), *([f"({', '.join(cases)})"] if cases else [])])


@dataclass
class Report:
    """The rows of one subject.

    Attributes
    ----------
    subject : str
        What was checked.
    rows : list of Row
        From what is most basic to what rests on it, so that the first failure is the one to look at.
    """

    subject: str
    rows: list[Row] = field(default_factory=list)

    @property
    def failures(self) -> list[Row]:
        """The rows that failed."""
        return [row for row in self.rows if row.failed]

    @property
    def ok(self) -> bool:
        """True if no row failed."""
        return not self.failures

    def diagnose(self, most: int = 3) -> Report:
        """Search for what would make the first failures hold, as `Row.diagnosis` says; return the report.

        Parameters
        ----------
        most : int
            How many methods are looked at, of each the first claim that failed: others mostly fail for its reason.

        Returns
        -------
        Report
            The same; `str` and `Row.explain` show what was found.
        """
        first = {row.method: row for row in reversed(self.failures)}
        for row in [row for row in self.failures if first[row.method] is row][:most]:
            _ = row.diagnosis
        return self

    def assert_ok(self) -> None:
        """Raise an error that names each failed method, its worst entry, and what would make it hold.

        Raises
        ------
        AssertionError
            If a row failed. What would make it hold is searched for when the message is first read.
        """
        if not self.ok:
            raise _FailedClaimsError(self)

    def __str__(self) -> str:
        table = [COLUMNS, *map(cells_of, self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [self.subject]
        for cells, row in zip(table, [None, *self.rows], strict=True):
            line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            lines.append(f"  {line}")
            if row is not None and row.verdict != OK:
                lines.append(f"    {row.explain() if row.failed else row.problem}")
        return "\n".join(lines)


class _FailedClaimsError(AssertionError):
    """Claims that fail; who only counts errors, as a search for a smaller example does, waits for no diagnosis."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        lines = [f"  {row.explain()}" for row in self.report.diagnose().failures]
        return "\n".join([f"{self.report.subject}: {len(lines)} of {len(self.report.rows)} claims fail", *lines])


COLUMNS = ("method", "claim", "oracle", "points", "error", "allowed", "verdict")


def cells_of(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, by `COLUMNS`."""
    numbers = (str(row.points), f"{row.error:.1e}", f"{row.tolerance:.0e}") if row.points else ("", "", "")
    return row.method, row.claim, row.oracle, *numbers, row.verdict
