"""An `Explanation` as text."""

from __future__ import annotations

from textwrap import wrap

from gbackprop.base.memory import size
from gbackprop.plain.explanation.letters import meanings
from gbackprop.plain.explanation.steps import AVERAGES, STARTS, Carried, Extracted, Finished, Step

LEGEND = """\
How to read it: signals start at the loss. At each layer, from the output to the input, they arrive at its output;
statistics of its parameters are extracted from them; they are carried to its input; a curved layer appends the columns
of its residual. At the end each quantity finishes with a formula over its statistics. The shape of V columns is
[V, N, *features]. The code of these steps, under the same names, is in gbackprop/plain/reference.py; for networks that
are no chains, in gbackprop/plain/branching.py."""


def write(network: str, loss: str, scale: str, steps: list[Step], finished: list[Finished]) -> str:
    """Write the sweep step by step, from the loss to the lowest layer with parameters, then how quantities finish."""
    lines = []
    for step in steps:
        if step.name == "loss":
            lines.append(f"loss, {step.layer}")
            lines += [_row("starts", c, STARTS[c.signal.split()[0]]) for c in step.appended]
        else:
            lines += _layer(step)
        lines.append("")
    lines += ["finish, for each parameter", *map(_finished, finished)]
    body = "\n".join(lines)
    letters = [line for letter, meaning in meanings(LEGEND + body) for line in _letter(letter, meaning)]
    head = [f"Backward through {network}", f"from {loss}; {scale}"]
    return "\n".join([*head, "", LEGEND, "", body, "", "letters", *letters]) + "\n"


def _layer(step: Step) -> list[str]:
    lines = [f"layer {step.name}, {step.layer}:  {step.forward}"]
    lines += [_row("arrives", c) for c in step.arriving]
    lines += [_extracted(e) for e in step.extracted]
    lines += [f"  shared    {words}" for words in step.shared]
    if not step.carries:
        return [*lines, "  ends      nothing below has parameters"]
    lines.append(f"  carries   Jᵀ g = {step.carries}, all columns at once: now {_leaving(step)}")
    if step.average_shape is not None:
        lines.append(f"  carries   {AVERAGES}: now {_shape(step.average_shape)}")
    return lines + [_row("appends", c, step.residual) for c in step.appended]


def _row(verb: str, carried: Carried, what: str = "") -> str:
    row = f"  {verb:<9} {carried.signal:<11} {_shape(carried.shape):<22} {size(carried.nbytes):>9}  {what}"
    return row.rstrip()


def _extracted(e: Extracted) -> str:
    formula = e.formula
    if e.signal not in (None, "average"):  # the formula of Ḡ has no column
        formula += f", g = {e.signal}"
    name = f"{e.parameter:<10} {e.reduction:<17}"
    return f"  extracts  {name} {formula:<51} {_shape(e.shape):<18} for {', '.join(e.wanted_by)}"


def _finished(f: Finished) -> str:
    return f"  finishes  {f.name:<18} {f.formula:<48} {f'it is {f.scale}' if f.scale else ''}".rstrip()


def _letter(letter: str, meaning: str) -> list[str]:
    first, *more = wrap(meaning, 104)
    return [f"  {letter:<8}  {first}", *(f"  {'':<8}  {line}" for line in more)]


def _leaving(step: Step) -> str:
    """Return the shape of what is carried, with the place that it is carried to unless that is the layer before."""
    shapes = [_shape(shape) for shape in step.leaving_shapes]
    return ", ".join(f"{shape} at {source}" for shape, source in zip(shapes, step.sources)) or shapes[0]


def _shape(shape: tuple[int, ...]) -> str:
    return str(list(shape))
