"""The demo's table: what was computed, how it is scaled, what it cost, and whether it is right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

import gbackprop as gb
from gbackprop.experiments.demo.verification import LOOP_TOLERANCE, NOISE, ORACLE_TOLERANCE, SAMPLES


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
        Over the gradient's.
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
    tolerance: float = ORACLE_TOLERANCE

    @property
    def passed(self) -> bool:
        """True if the error is within the tolerance; a NaN is not."""
        return self.error is None or self.error <= self.tolerance

    @property
    def verdict(self) -> str:
        """In rich's markup."""
        if self.error is None:
            return ""
        return "[green]ok[/]" if self.passed else "[bold red]WRONG[/]"


def make_sections(
    result: gb.Result, times: Mapping[str, float], errors: Mapping[str, float], loop: tuple[float, float]
) -> list[list[Row]]:
    """Return the lines of the table."""

    def row(name: str, values: Mapping[str, Any], scale: str) -> Row:
        return Row(name, _shape(next(iter(values.values()))), scale, relative[name], errors[name])

    relative = {key: seconds / times["gradient"] for key, seconds in times.items()}
    batch_grad = row("batch_grad", result["batch_grad"], "one pass per sample")
    return [
        [row("gradient", result.gradient, "R Σₙ ∇ℓₙ")],
        [row(quantity.name, result[quantity], quantity.scale) for quantity in result.quantities],
        [
            Row("all of these", "", "one sweep", relative["all"]),
            replace(batch_grad, time=loop[0] / times["gradient"], error=loop[1], tolerance=LOOP_TOLERANCE),
        ],
    ]


def make_table(sections: Sequence[Sequence[Row]], result: gb.Result, times: Mapping[str, float]) -> Table:
    """Lay out the rows."""
    samples, parameter = len(result.output), next(iter(result.gradient))
    alone, together = (_duration(times[key]) for key in ("gradient", "all"))
    table = Table(
        title=f"Gradient of {samples} images: {alone}, with all ten quantities in the same sweep: {together}",
        title_style="bold",
        caption=_caption(samples),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("quantity")
    table.add_column(f"shape for {parameter}")
    table.add_column("scale")
    table.add_column("time / gradient", justify="right")
    table.add_column("largest error", justify="right")
    table.add_column("verdict")
    for section in sections:
        for row in section:
            # Square brackets are markup to rich, and mathematics here.
            error = "" if row.error is None else f"{row.error:.1e}"
            table.add_row(
                row.name, escape(row.shape), escape(row.scale), f"{row.time:.1f}", error, row.verdict
            )
        table.add_section()
    return table


def _duration(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def _caption(samples: int) -> str:
    return (
        f"R = 1/N, N = {samples}. Every sweep computes the gradient too, which its time includes. "
        f"Errors are relative to the largest entry of each parameter's result. "
        f"All but the last: {SAMPLES} images with noise of {NOISE:g}, in float64, against brute force by "
        f"complex steps, tolerance {ORACLE_TOLERANCE:g}. The last: the sweep over all {samples} images, in "
        f"float32, against {samples} passes over one image each, tolerance {LOOP_TOLERANCE:g}."
    )


def _shape(value: Any) -> str:
    if hasattr(value, "B"):
        return f"A {_shape(value.A)}, B {_shape(value.B)}"
    return f"[{', '.join(map(str, value.shape))}]"
