"""The demo's table: what was computed, how it is scaled, what it cost, and whether it is right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

import gbackprop as gb
from gbackprop.experiments.demo.measurement import LOOP_TOLERANCE, NOISE, ORACLE_TOLERANCE, SAMPLES


@dataclass(frozen=True)
class Figures:
    """The seconds and errors of a sweep's quantities by name; `loop` is the seconds and the error of single passes."""

    times: Mapping[str, float]
    errors: Mapping[str, float]
    loop: tuple[float, float]

    @property
    def right(self) -> bool:
        """True if every error is within its tolerance; a NaN is not."""
        return all(error <= ORACLE_TOLERANCE for error in self.errors.values()) and self.loop[1] <= LOOP_TOLERANCE


def make_table(result: gb.Result, figures: Figures) -> Table:
    """Lay out the lines: the gradient, the quantities, all in one sweep, and single passes."""
    parameter, (alone, together) = next(iter(result.gradient)), (figures.times[key] for key in ("gradient", "all"))
    title = f"with all ten quantities in the same sweep: {_duration(together)}"
    title = f"Gradient of {len(result.output)} images: {_duration(alone)}, {title}"
    caption = _caption(len(result.output))
    table = Table(title=title, title_style="bold", caption=caption, caption_justify="left", box=box.SIMPLE_HEAD)
    for name in ("quantity", f"shape for {parameter}", "scale"):
        table.add_column(name)
    for name in ("time / gradient", "largest error"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for name, shape, scale, seconds, *error in _lines(result, figures):
        # Square brackets are markup to rich, and mathematics here.
        table.add_row(name, escape(shape), escape(scale), f"{seconds / alone:.1f}", *error)
        if name in ("gradient", result.quantities[-1].name):
            table.add_section()
    return table


def _lines(result: gb.Result, figures: Figures) -> Iterator[tuple[Any, ...]]:
    """Yield name, shape, scale, seconds, and where there is something to compare, error and verdict."""
    shapes = {"gradient": result.gradient} | {each.name: result[each] for each in result.quantities}
    scales = {"gradient": "R Σₙ ∇ℓₙ"} | {each.name: each.scale for each in result.quantities}
    for name, values in shapes.items():
        judged = _judged(figures.errors[name], ORACLE_TOLERANCE)
        yield name, _shape(next(iter(values.values()))), scales[name], figures.times[name], *judged
    yield "all of these", "", "one sweep", figures.times["all"]
    seconds, error = figures.loop
    shape = _shape(next(iter(shapes["batch_grad"].values())))
    yield "batch_grad", shape, "one pass per sample", seconds, *_judged(error, LOOP_TOLERANCE)


def _judged(error: float, tolerance: float) -> tuple[str, str]:
    return f"{error:.1e}", "[green]ok[/]" if error <= tolerance else "[bold red]WRONG[/]"


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
