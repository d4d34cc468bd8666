"""An `Explanation` as a figure: layers from input to loss, a lane for each signal, a dot where it is reduced."""

from __future__ import annotations

from typing import Any

from gbackprop.explanation.steps import Step
from gbackprop.system.extras import require

COLORS = {
    "gradient": "#1f77b4",
    "exact": "#2ca02c",
    "mc": "#9467bd",
    "residual": "#ff7f0e",
    "average": "#7f7f7f",
}


def draw(loss: str, scale: str, steps: list[Step]) -> Any:
    """Draw the first pass of a recorded sweep.

    Parameters
    ----------
    loss, scale : str
        Text of the title.
    steps : list of Step

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    Figure = require("matplotlib.figure", "figures").Figure

    steps = [step for step in steps if step.number == 0][::-1]  # input on the left, loss on the right
    signals = lanes(steps)
    listed = max((len(_wanted(step)) for step in steps), default=0)
    figure = Figure(figsize=(2.2 * len(steps) + 1.2, 0.62 * len(signals) + 0.2 * listed + 1.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-0.75, len(steps) - 0.4)
    axes.set_ylim(-len(signals) - 0.3 - 0.36 * listed, 1.1)
    for at, step in enumerate(steps):
        _stop(axes, at, step, len(signals))
    for lane, signal in enumerate(signals):
        _lane(axes, -lane, signal, steps)
    figure.suptitle(f"Backward from {loss}; {scale}", fontsize=11)
    return figure


def lanes(steps: list[Step]) -> list[str]:
    """Return the signals of a pass in the order in which they start."""
    return list(dict.fromkeys(c.signal for step in reversed(steps) for c in (*step.arriving, *step.appended)))


def _color(signal: str) -> str:
    return COLORS[signal.split()[0]]


def _stop(axes: Any, at: int, step: Step, depth: int) -> None:
    """Draw a layer: a column with its name above and the extracted quantities below."""
    title = "loss" if step.name == "loss" else f"{step.name}: {step.layer.split('(')[0]}"
    axes.text(at, 1.0, title, ha="center", va="top", fontsize=9, weight="bold")
    axes.text(at, 0.68, step.forward or step.layer, ha="center", va="top", fontsize=7, color="0.35")
    axes.axvspan(at - 0.13, at + 0.13, ymin=0, ymax=1, color="0.94", zorder=0)
    for row, text in enumerate(_wanted(step)):
        axes.text(at, -depth - 0.05 - 0.36 * row, text, ha="center", va="top", fontsize=7)


def _wanted(step: Step) -> list[str]:
    """Return lines of text with the layer's parameters and the quantities extracted from them."""
    names = dict.fromkeys(name for extracted in step.extracted for name in extracted.wanted_by)
    parameters = dict.fromkeys(extracted.parameter for extracted in step.extracted)
    return [", ".join(parameters), *names] if names else []


def _lane(axes: Any, y: float, signal: str, steps: list[Step]) -> None:
    """Draw a signal from its start, on the right, to its end."""
    color = _color(signal)
    axes.text(-0.72, y, signal, ha="left", va="center", fontsize=9, color=color)
    for at, step in enumerate(steps):
        arriving = {c.signal: c.shape for c in step.arriving}
        if signal in {c.signal for c in step.appended}:
            axes.plot(at, y, marker="D", color=color, markersize=7, zorder=3)
        if signal not in arriving:
            continue
        axes.annotate("", (at + 0.06, y), (at + 0.94, y), arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.6})
        shape = arriving[signal]
        label = f"{shape[0]}²" if signal == "average" else f"V = {shape[0]}"
        axes.text(at + 0.5, y + 0.1, label, ha="center", va="bottom", fontsize=7, color=color)
        if any(extracted.signal == signal for extracted in step.extracted):
            axes.plot(at, y, marker="o", color=color, markersize=7, zorder=3)
