"""What the JSON files say, as Markdown and as plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BARS = {
    "gradient": 1.0,
    "BatchGrad": 0.5,
    "BatchL2Grad": 0.9,
    "SecondMoment": 0.4,
    "Variance": 0.25,
    "DiagGGN-MC": 0.7,
    "KFAC": 0.7,
    "DiagGGN": 0.5,
    "KFLR": 0.6,
    "these eight in one call": 0.25,
    "DiagHessian, one sigmoid, N = 8": 0.12,
}
"""Ratios that we want to stay below."""

GPU_BARS = {"gradient": 1.2, "these eight in one call": 0.35}
"""The same on a GPU, and 1 for each quantity alone."""

COLORS = {"ours": "#1f77b4", "theirs": "#ff7f0e", "our loop": "#9ecae1", "their loop": "#fdd0a2"}
COLORS |= {"torch": "#ff7f0e", "JAX": "#2ca02c", "BackPACK": "#d62728", "curvlinops": "#9467bd"}
COLORS |= {"loop in torch": "#fdd0a2"}


def write_report(folder: Path) -> None:
    """Write ``README.md`` and a plot for each section whose JSON is there."""
    sections = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    lines = ["# Measured", "", "Milliseconds, forward and backward: median [lower, upper quartile]."]
    lines += ["`theirs` is BackPACK on torch, or plain torch where the row is the gradient.", ""]
    for name, found in sections.items():
        lines += [f"## {name}", "", ", ".join(f"{k} {v}" for k, v in found["machine"].items()), ""]
        lines += _peaks(found["rows"]) if name == "memory" else _times(found["rows"], name == "gpu")
        if name != "memory" and _plot(name, found["rows"], folder / f"{name}.png"):
            lines += ["", f"![{name}]({name}.png)"]
        lines.append("")
    (folder / "README.md").write_text("\n".join(lines).rstrip() + "\n")


def _times(rows: dict[str, Any], gpu: bool) -> list[str]:
    sides = list(dict.fromkeys(side for row in rows.values() for side in row))
    lines = [f"| | {' | '.join(sides)} | ratio | wanted |", f"|---|{'---|' * (len(sides) + 2)}"]
    for label, row in rows.items():
        cells = [_time(row[side]) if side in row else "" for side in sides]
        bar = GPU_BARS.get(label.split(": ")[-1], 1.0) if gpu else BARS.get(label)
        wanted = "" if bar is None else f"≤ {bar:g}"
        lines.append(f"| {label} | {' | '.join(cells)} | {_ratio(row)} | {wanted} |")
    return lines


def _ratio(row: dict[str, Any]) -> str:
    if {"ours", "theirs"} <= set(row):
        return f"{row['ours']['median'] / row['theirs']['median']:.2f}"
    others = [side for side in row if side not in ("ours", "theirs", "our loop", "their loop")]
    if others:
        return ", ".join(f"{row['ours']['median'] / row[side]['median']:.2f} ({side})" for side in others)
    loops = [side for side in ("our loop", "their loop") if side in row]
    return ", ".join(f"{row[loop]['median'] / row['ours']['median']:.1f} ({loop} / ours)" for loop in loops)


def _time(values: dict[str, float]) -> str:
    return f"{values['median']:.3g} [{values['lower']:.3g}, {values['upper']:.3g}]"


def _peaks(rows: dict[str, Any]) -> list[str]:
    lines = ["| MiB | before | peak | estimate of what is between |", "|---|---|---|---|"]
    return lines + [f"| {k} | {v['before']:.0f} | {v['peak']:.0f} | {v['estimate']:.0f} |" for k, v in rows.items()]


def _plot(name: str, rows: dict[str, Any], file: Path) -> bool:
    """Horizontal bars side by side, on a logarithmic axis; False where there is no matplotlib to draw them with."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sides = list(dict.fromkeys(side for row in rows.values() for side in row))
    height = 0.8 / len(sides)
    width = 5 + max(map(len, rows)) / 12  # beside the labels
    figure, axes = plt.subplots(figsize=(width, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes.margins(y=0.01)
    for place, side in enumerate(sides):
        at = [i + place * height for i, row in enumerate(rows.values()) if side in row]
        shown = [row[side] for row in rows.values() if side in row]
        medians = [values["median"] for values in shown]
        spread = [[v["median"] - v["lower"] for v in shown], [v["upper"] - v["median"] for v in shown]]
        axes.barh(at, medians, height, xerr=spread, label=side, color=COLORS[side], error_kw={"lw": 0.8})
    axes.set_yticks([i + 0.4 - height / 2 for i in range(len(rows))], list(rows))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds (median, quartiles)")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)
    plt.close(figure)
    return True
