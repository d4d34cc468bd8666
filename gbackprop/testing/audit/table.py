"""Findings on the terminal: a table of rows, or a line for each subject. With rich in color, if it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from gbackprop.testing import Report
from gbackprop.testing.audit.findings import Finding
from gbackprop.testing.audit.summary import Count, cells, error_of, finding_of, unchecked, verdict_of
from gbackprop.testing.report import COLUMNS, FAILED, NOT_JUDGED, OK

STYLES = {OK: "green", FAILED: "bold red", NOT_JUDGED: "yellow"}
NUMBERS = ("points", "error", "allowed")


class Terminal:
    """Writes findings.

    Parameters
    ----------
    out : text stream
        If it is a terminal and rich is installed, tables are rich's. Else they are plain, and as wide as they must be.
    """

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.console = _console(out)

    def rows(self, finding: Finding) -> None:
        """Print all rows of a subject, then the failures."""
        if self.console is None:
            print(plain_table(finding.report), file=self.out)
        else:
            self.console.print(_rich_table(finding.report))
        self._failures(finding)
        self._print("")

    def head(self) -> None:
        """Print the head of the columns of `line`."""
        self._print(f"{'':<10}  {'claims':>6}  {'error':>7}  subject")

    def line(self, finding: Finding) -> None:
        """Print a subject in a line, and its failures."""
        report = finding.report
        verdict, note = verdict_of(report)
        words = f"  {len(report.rows):>6}  {error_of(report):>7}  {finding.kind:<7}  {finding.title}"
        self._print(f"{verdict:<10}", words + (f" ({note})" if note else ""), STYLES[verdict])
        self._failures(finding)

    def total(self, findings: Sequence[Finding]) -> None:
        """Print the counts of claims over all findings."""
        count = Count.of(findings)
        words = f"{count.claims} claims: {count}"
        names = unchecked(findings)
        if names:
            words += f"; not checked against anything: the formula of {', '.join(names)} (give it a definition)"
        self._print(words, style=STYLES[FAILED if count.failed else OK])

    def _failures(self, finding: Finding) -> None:
        """Print each failure in words, with what would make it hold, and the place where its method is written."""
        for row in finding.report.diagnose().failures:
            self._print(f"  {row.method}: ", f"{row.claim}: {finding_of(row)}", STYLES[FAILED])
            for proposal in row.known:
                self._print("    diagnosis: ", str(proposal), "yellow")
            if row.method in finding.places:
                self._print("    look at ", str(finding.places[row.method]), "")

    def _print(self, styled: str, plain: str = "", style: str = "bold") -> None:
        if self.console is None:
            print(f"{styled}{plain}", file=self.out)
            return
        from rich.text import Text

        self.console.print(Text(styled, style=style) + Text(plain), soft_wrap=True)


def plain_table(report: Report) -> str:
    """Format the rows of a report in columns."""
    table = [COLUMNS, *map(cells, report.rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    ways = [str.rjust if name in NUMBERS else str.ljust for name in COLUMNS]
    lines = ["  ".join(way(cell, w) for way, cell, w in zip(ways, line, widths, strict=True)) for line in table]
    return "\n".join([report.subject, *(f"  {line}".rstrip() for line in lines)])


def _console(out: TextIO) -> Any:
    """Return a rich console if the stream is a terminal and there is rich, else None."""
    if not out.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=out, highlight=False)


def _rich_table(report: Report) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(report.subject, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in NUMBERS else "left")
    for row in report.rows:
        *first, verdict = map(Text, cells(row))  # Text: square brackets in strings are markup to rich
        verdict.stylize(STYLES.get(row.verdict, "dim"))
        table.add_row(*first, verdict)
    return table
