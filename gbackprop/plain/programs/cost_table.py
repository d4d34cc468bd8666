"""A `Cost` as a table and as a figure."""

from __future__ import annotations

from typing import Any

from gbackprop.base.extras import require
from gbackprop.base.memory import size


def table(cost: Any) -> str:
    """Write the cost by section, by layer, and by the result that alone needs it."""
    counted = f"{cost.operations:,} operations, {size(cost.read)} read, {size(cost.written)} written"
    lines = [cost.title, f"{counted}, at most {size(cost.largest)} live"]
    if cost.rates:
        lines.append("The machine: {:.2e} operations and {:.2e} bytes per second".format(*cost.rates))
    for head in ("section", "layer", "quantity"):
        times = f"{'time':>11} {'arithmetic':>11} {'bandwidth':>10}" if cost.rates else ""
        lines += ["", f"by {head:<21} {'operations':>15} {'share':>6} {'read':>11} {'written':>11}{times}"]
        for name, (operations, read, written, seconds) in getattr(cost, f"by_{head}")().items():
            share = operations / max(cost.operations, 1)
            line = f"{name:<24} {operations:>15,} {share:>6.1%} {size(read):>11} {size(written):>11}"
            if cost.rates:
                done = zip((operations, read + written), cost.rates, strict=True)
                parts = [amount / (rate * (seconds or 1)) for amount, rate in done]
                line += f"{1e6 * seconds:>8,.0f} µs {parts[0]:>11.1%} {parts[1]:>10.1%}"
            lines.append(line)
    return "\n".join(lines)


def draw(cost: Any) -> Any:
    """Draw a bar for each layer, with its sections as parts: operations, bytes, and seconds if they were measured."""
    figure = require("matplotlib.figure", "figures").Figure(layout="constrained")
    titles = ("operations", "bytes read and written", "seconds")[: 3 if cost.rates else 2]
    layers, sections = list(cost.by_layer()), list(cost.by_section())
    figure.set_size_inches(8, 1.6 + 0.25 * len(layers))
    for at, axes in enumerate(figure.subplots(1, len(titles), sharey=True)):
        widths = {section: dict.fromkeys(layers, 0.0) for section in sections}
        for row in cost.rows:
            operations, read, written, seconds = row.amounts
            widths[row.section][row.layer] += (operations, read + written, seconds)[at]
        left = [0.0] * len(layers)
        for section, each in widths.items():
            axes.barh(layers, list(each.values()), left=left, label=section)
            left = [a + b for a, b in zip(left, each.values(), strict=True)]
        axes.set_title(titles[at], fontsize=9)
    figure.axes[0].invert_yaxis()
    figure.suptitle(cost.title, fontsize=9, wrap=True)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    return figure
