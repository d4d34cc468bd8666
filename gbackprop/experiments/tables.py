"""The table of hyperparameters and what they lead to, for a terminal and as Markdown."""

from collections.abc import Sequence

from gbackprop.base.extras import needed
from gbackprop.experiments.curves import Curve, labels
from gbackprop.experiments.published import published

with needed("rich", "tables"):
    from rich import box
    from rich.table import Table

HEADER = ("optimizer", "lr", "damping", "in the grid", "seeds", "test accuracy", "published", "test loss", "published")


def rows(shown: Sequence[Curve]) -> list[tuple[str, ...]]:
    """Return the table's cells."""
    return [_row(curve, label) for curve, label in zip(shown, labels(shown), strict=True)]


def _row(curve: Curve, label: str) -> tuple[str, ...]:
    spec = curve.spec
    seeds = f"{len(curve.runs)}" + (f" ({curve.diverged} diverged)" if curve.diverged else "")
    damping = "–" if spec.damping is None else f"{spec.damping:g}"
    figures = [cell(curve, metric) for metric in ("test_accuracy", "test_loss") for cell in (_final, _published)]
    return label, f"{spec.lr:g}", damping, _places(curve), seeds, *figures


def _places(curve: Curve) -> str:
    named = {"lr": curve.lr_place, "damping": curve.damping_place}
    given = {name: place for name, place in named.items() if place != "none"}
    if not given:
        return "–"
    same = len(given) == 2 and len(set(given.values())) == 1
    places = curve.lr_place if same else ", ".join(f"{name}: {place}" for name, place in given.items())
    return places + (f" ({curve.missing} points to come)" if curve.missing else "")


def _final(curve: Curve, metric: str) -> str:
    if not curve.runs:
        return "–"
    lower, median, upper = curve.final(metric)
    return f"{median:.4f}" + (f" ({lower:.4f}–{upper:.4f})" if len(curve.runs) > 1 else "")


def _published(curve: Curve, metric: str) -> str:
    found = published(curve.spec.problem, curve.spec.optimizer, metric)
    return ", ".join(f"{figure.value:.4f}" for figure in found if figure.epoch == curve.spec.epochs) or "–"


def markdown(shown: Sequence[Curve]) -> str:
    """Return the table in Markdown."""
    lines = [HEADER, tuple("---" for _ in HEADER), *rows(shown)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def table(shown: Sequence[Curve], problem: str) -> Table:
    """Return the table for a terminal."""
    result = Table(title=problem, title_style="bold", box=box.SIMPLE_HEAD)
    for name in HEADER:
        result.add_column(name, justify="left" if name == "optimizer" else "right")
    for cells in rows(shown):
        result.add_row(*cells)
    return result
