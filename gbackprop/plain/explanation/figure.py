"""An `Explanation` as a figure: a lane for each signal, a dot where it is reduced; in rows, so that it fits a page.

All positions are in inches from the lower left corner, before everything is scaled to the page.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any

from gbackprop.base.extras import require
from gbackprop.plain.explanation.letters import meanings
from gbackprop.plain.explanation.steps import AVERAGES, STARTS, Step

COLORS = {
    "gradient": "#1f77b4",
    "exact": "#2ca02c",
    "mc": "#9467bd",
    "residual": "#ff7f0e",
    "average": "#7f7f7f",
    "samples": "#17becf",
}

WIDTH, HEIGHT = 8.0, 11.0
"""The largest figure: a page (A4 or letter) in inches."""

LEFT, PITCH = 1.0, 1.15
"""Widths of the lanes' names, and of a layer where they are many."""

TITLE, HEAD, LANE, FOOT, LINE = 0.4, 0.5, 0.32, 0.3, 0.16
"""Heights of the title; of a row's head, of its lanes and of its foot; of a line of the legend."""


def draw(loss: str, scale: str, steps: list[Step]) -> Any:
    """Draw a recorded sweep."""
    page = _Page(steps)
    page.text(page.width / 2, page.height - 0.1, f"Backward from {loss}; {scale}", 10, ha="center")
    for at, step in enumerate(steps):
        page.stop(at, step)
        for lane, signal in enumerate(page.signals):
            page.lane(at, lane, step, signal)
    page.legend()
    return page.figure


def lanes(steps: list[Step]) -> list[str]:
    """Return the signals in the order in which they start."""
    return list(dict.fromkeys(c.signal for step in steps for c in (*step.arriving, *step.appended)))


def legend(steps: list[Step], width: float = WIDTH) -> list[tuple[str, str]]:
    """Return the lines of the legend with their colors: the signs, the signals, and the letters in these."""
    signals = lanes(steps)
    texts = ["◆ a signal starts    ● a layer's parameters reduce it    ← Jᵀ times its V columns"]
    texts[0] += f"    ← {AVERAGES}, D² numbers" if "average" in signals else ""
    found = [(texts[0], "black")]
    for signal in (*signals, None):
        extracted = [e for step in steps for e in step.extracted if e.signal == signal]
        names = ", ".join(dict.fromkeys(name for e in extracted for name in e.wanted_by))
        what = f"{signal}: {STARTS[signal.split()[0]]}" if signal else "inputs: Σₙₜ u uᵀ"
        if signal or names:
            found.append((f"{what}, for {names}" if names else what, _color(signal)))
            texts.append(what)
    letters = fill("; ".join(f"{letter}: {meaning}" for letter, meaning in meanings("\n".join(texts))), int(18 * width))
    return found + [(line, "0.35") for line in letters.splitlines()]


def _color(signal: str | None) -> str:
    return COLORS[signal.split()[0]] if signal else "black"


class _Page:
    """The figure: where each layer and each lane is, and what is drawn there."""

    def __init__(self, steps: list[Step]) -> None:
        Figure = require("matplotlib.figure", "figures").Figure

        self.signals = lanes(steps)
        self.row = HEAD + LANE * len(self.signals) + FOOT
        self.scale, self.across = max(self._scale(steps, across) for across in range(1, max(4, len(steps)) + 1))
        self.across = min(self.across, len(steps))
        self.width, self.height, self.lines = self._sizes(steps, self.across)
        self.pitch = (self.width - LEFT) / max(self.across, 4)
        self.figure = Figure(figsize=(self.width * self.scale, self.height * self.scale))
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, self.width)
        self.axes.set_ylim(0, self.height)

    def _sizes(self, steps: list[Step], across: int) -> tuple[float, float, list[tuple[str, str]]]:
        """Return width and height of a page with so many layers in a row, and the lines of its legend."""
        width = max(WIDTH, LEFT + PITCH * across)
        lines = legend(steps, width)
        return width, TITLE + -(-len(steps) // across) * self.row + LINE * (len(lines) + 1), lines

    def _scale(self, steps: list[Step], across: int) -> tuple[float, int]:
        width, height, _ = self._sizes(steps, across)
        return min(1.0, WIDTH / width, HEIGHT / height), across

    def text(self, x: float, y: float, text: str, size: float, **style: Any) -> None:
        """Write a text whose top is at y."""
        self.axes.text(x, y, text, fontsize=size * self.scale, **{"va": "top"} | style)

    def place(self, at: int) -> tuple[float, float]:
        """Return the middle of a layer and the top of its row."""
        row, column = divmod(at, self.across)
        return self.width - self.pitch * (column + 0.5), self.height - TITLE - row * self.row

    def stop(self, at: int, step: Step) -> None:
        """Draw a layer: a column with its name and its formula above, and its parameters below."""
        x, top = self.place(at)
        title = "loss" if step.name == "loss" else f"{step.name}: {step.layer.split('(')[0]}"
        self.axes.fill_between([x - 0.1, x + 0.1], top - self.row + 0.1, top, color="0.94", lw=0, zorder=0)
        self.text(x, top, title, min(8.0, 112 * self.pitch / len(title)), ha="center", weight="bold")
        formula = fill(step.forward, int(self.pitch / 0.06), break_long_words=False)
        self.text(x, top - 0.17, formula, 6.4, ha="center", color="0.35", linespacing=1.0)
        parameters = dict.fromkeys(extracted.parameter for extracted in step.extracted)
        self.text(x, top - self.row + FOOT, fill(", ".join(parameters), 24), 6.4, ha="center", linespacing=1.0)

    def lane(self, at: int, lane: int, step: Step, signal: str) -> None:
        """Draw what a signal does at a layer: it arrives from the right, is reduced, or starts."""
        (x, top), color = self.place(at), _color(signal)
        y, size = top - HEAD - LANE * (lane + 0.5), 6 * self.scale
        if at % self.across == 0:
            self.text(0.05, y, signal, 8, va="center", color=color)
        for carried in step.arriving:
            if carried.signal == signal:
                right = min(x + self.pitch - 0.12, self.width - 0.03)  # the right edge, where a row goes on
                style = {"arrowstyle": "-|>", "color": color, "lw": 1.4 * self.scale, "shrinkA": 0, "shrinkB": 0}
                style["mutation_scale"] = 9 * self.scale
                self.axes.annotate("", (x + 0.08, y), (right, y), arrowprops=style)
                label = f"{carried.shape[0]}²" if signal == "average" else f"V = {carried.shape[0]}"
                self.text((x + 0.12 + right) / 2, y + 0.03, label, 6.5, ha="center", va="bottom", color=color)
        marks = "o" * any(extracted.signal == signal for extracted in step.extracted)
        marks += "D" * any(carried.signal == signal for carried in step.appended)
        for mark in marks:
            self.axes.plot(x, y, marker=mark, color=color, markersize=size, zorder=3)

    def legend(self) -> None:
        """Write the legend at the foot of the page."""
        for i, (line, color) in enumerate(self.lines):
            self.text(0.05, LINE * (len(self.lines) - i + 0.5), line, 7, color=color)
