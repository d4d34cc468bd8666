"""The demo's table: what was computed, how it is scaled, what it cost, and whether it is right."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    name : str
        The quantity.
    shape : str
        Of its result for one parameter.
    scale : str
        Its formula.
    time : float
        Seconds over the gradient's.
    error : float, optional
        The largest relative error; None where there is nothing to compare.
    tolerance : float
        What the error may be.
    """

    name: str
    shape: str
    scale: str
    time: float
    error: float | None = None
    tolerance: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the error is within tolerance; a NaN is not."""
        return self.error is None or self.error <= self.tolerance


def make_table(title: str, caption: str, parameter: str, sections: Iterable[Iterable[Row]]) -> Table:
    """Lay out the rows.

    Parameters
    ----------
    title, caption : str
        Above and below.
    parameter : str
        The parameter whose shapes are shown.
    sections : iterable of iterable of Row
        Rows, with a line between sections.

    Returns
    -------
    Table
        To be printed by a rich console.
    """
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_style="bold", caption_justify="left")
    for header, justify in (
        ("quantity", "left"),
        (f"shape for {parameter}", "left"),
        ("scale", "left"),
        ("time / gradient", "right"),
        ("largest error", "right"),
        ("verdict", "left"),
    ):
        table.add_column(header, justify=justify)
    for section in sections:
        for row in section:
            error = "" if row.error is None else f"{row.error:.1e}"
            verdict = "" if row.error is None else "[green]ok[/]" if row.passed else "[bold red]WRONG[/]"
            # Square brackets are markup to rich, and mathematics here.
            table.add_row(row.name, escape(row.shape), escape(row.scale), f"{row.time:.1f}", error, verdict)
        table.add_section()
    return table
