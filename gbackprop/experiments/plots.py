"""Curves of a problem in the manner of the paper's figures: medians over the seeds, quartiles shaded."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gbackprop.base.extras import needed
from gbackprop.base.files import written
from gbackprop.experiments import published
from gbackprop.experiments.curves import METRICS, Curve, labels

with needed("matplotlib", "pictures"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

Style = Literal["-", "--", ":", "-."]

# Okabe and Ito's palette, which people with any of the common colour blindnesses can tell apart; its yellow is too
# light for lines. First-order methods are dashed or dotted besides, and each optimizer keeps its colour everywhere.
COLORS = {
    "SGD": "#999999", "Momentum": "#000000", "Adam": "#777777",
    "DiagGGN": "#E69F00", "DiagGGN-MC": "#56B4E9", "DiagHessian": "#D55E00",
    "KFAC": "#009E73", "KFLR": "#0072B2", "KFRA": "#CC79A7",
}  # fmt: skip
DASHES: dict[str, Style] = {"SGD": ":", "Momentum": "--", "Adam": "-."}
# Exact and sampled curvatures often lead to the same curve: drawn later and narrower, it leaves the others a rim.
WIDTHS = {"DiagGGN": 4.0, "KFAC": 4.0, "DiagGGN-MC": 2.6, "KFLR": 2.6, "DiagHessian": 1.3, "KFRA": 1.3}
# Where one optimizer has several curves.
STYLES: tuple[Style, ...] = ("-", "--", ":", "-.")
GUTTER = 0.03  # of the axis of epochs, for each mark on its right
NAMES = {
    "test_loss": "test loss", "test_accuracy": "test accuracy",
    "train_loss": "training loss", "train_accuracy": "training accuracy",
}  # fmt: skip


def draw(shown: Sequence[Curve], problem: str, path: str | Path) -> None:
    """Draw the curves of a problem and write them to a file."""
    title = f"{problem}: {_seeds(shown)}, median and quartiles"
    with written_figure(path, title, figsize=(11, 8), dpi=150) as figure:
        _fill(figure, shown)


@contextmanager
def written_figure(path: str | Path, title: str, **options: Any) -> Iterator[Figure]:
    """Make a figure, and write it to a file when it is drawn."""
    # The canvas is chosen here and pyplot stays out: no window system, no global figure.
    figure = Figure(layout="constrained", **options)
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=14, fontweight="bold")
    yield figure
    with mpl.rc_context({"svg.hashsalt": "gbackprop"}), written(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:])


def _fill(figure: Figure, shown: Sequence[Curve]) -> None:
    """Draw a panel for each metric, and the legend below them, where it covers nothing."""
    panels = list(zip(figure.subplots(2, 2).flat, METRICS, strict=True))
    aside = max(_mark_published(axes, shown, metric) for axes, metric in panels)
    for axes, metric in panels:
        for curve, style in zip(shown, _styles(shown), strict=True):
            _draw(axes, curve, metric, style)
        _finish(axes, shown, metric, 1 + GUTTER * (aside + 1))
    handles = [_line(*each) for each in zip(shown, _styles(shown), labels(shown), strict=True)]
    if any(_published(shown, metric) for metric in METRICS):
        note = " (last epoch: on the right)" if aside else ""
        handles.append(_mark("#555555", label=f"published median{note}"))
    columns = len(handles) if len(handles) < 6 else -(-len(handles) // 2)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def _draw(axes: Axes, curve: Curve, metric: str, style: Style) -> None:
    color = COLORS[curve.spec.optimizer]
    epochs, (lower, median, upper) = curve.quartiles(metric)
    axes.fill_between(epochs, lower, upper, color=color, alpha=0.25, linewidth=0)
    axes.plot(epochs, median, color=color, linestyle=style, linewidth=WIDTHS.get(curve.spec.optimizer, 1.6))


def _mark_published(axes: Axes, shown: Sequence[Curve], metric: str) -> int:
    """Mark the published figures; how many of them stand aside.

    Those of the last epoch are often so near to each other that they would cover each other: they stand side by side,
    on the right of the panel.
    """
    last, aside = _last(shown), 0
    for figure in _published(shown, metric):
        at = float(figure.epoch)
        if figure.epoch == last:
            aside += 1
            at = last * (1 + GUTTER * aside)
        axes.add_line(_mark(COLORS[figure.optimizer], [at], [figure.value]))
    return aside


def _published(shown: Sequence[Curve], metric: str) -> list[published.Figure]:
    """Return the published figures of the optimizers in a panel, each optimizer's once."""
    names = dict.fromkeys((curve.spec.problem, curve.spec.optimizer) for curve in shown)
    found = [figure for problem, name in names for figure in published.published(problem, name, metric)]
    return [figure for figure in found if figure.epoch <= _last(shown)]


def _last(shown: Sequence[Curve]) -> int:
    return max(len(curve.runs[0].rows) - 1 for curve in shown)


def _line(curve: Curve, style: Style, label: str) -> Line2D:
    name = curve.spec.optimizer
    return Line2D([], [], color=COLORS[name], linestyle=style, linewidth=WIDTHS.get(name, 1.6), label=label)


def _mark(color: str, x: Sequence[float] = (), y: Sequence[float] = (), label: str = "") -> Line2D:
    line = Line2D(x, y, linestyle="none", clip_on=False, zorder=5, label=label)
    line.set(marker="D", markersize=6, markerfacecolor=color, markeredgecolor="white")
    return line


def _finish(axes: Axes, shown: Sequence[Curve], metric: str, end: float) -> None:
    last = max(_last(shown), 1)
    axes.set_title(NAMES[metric], fontsize=11)
    axes.set_xlabel("epoch")
    axes.set_ylim(*_range(shown, metric))
    axes.set_xlim(-0.02 * last, end * last)
    # No epochs where the marks stand aside.
    axes.set_xticks([tick for tick in MaxNLocator(integer=True).tick_values(0, last) if 0 <= tick <= last])
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines["bottom"].set_bounds(-0.02 * last, last)


def _range(shown: Sequence[Curve], metric: str) -> tuple[float, float]:
    """Return the range of an axis, from the epochs after the first fifth: before training every curve is far away."""
    values = [np.array([figure.value for figure in _published(shown, metric)])]
    for curve in shown:
        epochs, quartiles = curve.quartiles(metric)
        values.append(quartiles[:, epochs >= epochs[-1] / 5].ravel())
    together = np.concatenate(values)
    low, high = float(together.min()), float(together.max())
    room = 0.06 * (high - low) or 0.01
    return low - room, high + room


def _styles(shown: Sequence[Curve]) -> list[Style]:
    seen: dict[str, int] = {}
    result: list[Style] = []
    for curve in shown:
        name = curve.spec.optimizer
        number = seen[name] = seen.get(name, -1) + 1
        result.append(DASHES.get(name, "-") if number == 0 else STYLES[number % len(STYLES)])
    return result


def _seeds(shown: Sequence[Curve]) -> str:
    counts = sorted({len(curve.runs) for curve in shown})
    text = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} seed{'' if text == '1' else 's'}"
