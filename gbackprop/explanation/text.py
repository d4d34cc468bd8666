"""An `Explanation` as text."""

from __future__ import annotations

from gbackprop.checks import size
from gbackprop.explanation.steps import STARTS, Carried, Extracted, Step


def write(network: str, loss: str, scale: str, steps: list[Step]) -> str:
    """Write the sweep step by step, from the loss to the lowest layer with parameters."""
    lines = [f"Backward through {network}", f"from {loss}; {scale}", ""]
    passes = 1 + max(step.number for step in steps)
    for step in steps:
        if step.name == "loss":
            lines += [f"pass {step.number + 1} of {passes}", ""] if passes > 1 else []
            lines.append(f"loss, {step.layer}")
            lines += [_row("starts", c, STARTS[c.signal.split()[0]]) for c in step.appended]
        else:
            lines += _layer(step)
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _layer(step: Step) -> list[str]:
    lines = [f"layer {step.name}, {step.layer}:  {step.forward}"]
    lines += [_row("arrives", c) for c in step.arriving]
    lines += [_extracted(e) for e in step.extracted]
    if not step.carries:
        return [*lines, "  ends      nothing below has parameters"]
    lines.append(f"  carries   Jᵀ g = {step.carries}, all columns at once: now {_shape(step.leaving_shape)}")
    return lines + [_row("appends", c, STARTS[c.signal]) for c in step.appended]


def _row(verb: str, carried: Carried, what: str = "") -> str:
    row = f"  {verb:<9} {carried.signal:<11} {_shape(carried.shape):<22} {size(carried.nbytes):>9}  {what}"
    return row.rstrip()


def _extracted(e: Extracted) -> str:
    formula = e.formula
    if e.signal:
        formula += f", g = {e.signal}"
    return f"  extracts  {e.parameter:<10} {formula:<44} {_shape(e.shape):<18} for {', '.join(e.wanted_by)}"


def _shape(shape: tuple[int, ...] | None) -> str:
    return str(list(shape or ()))
