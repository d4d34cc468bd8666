"""The text of a program's module: its first lines, its sections and their comments, and a check of its own."""

from __future__ import annotations

import sys
from importlib.metadata import version
from textwrap import fill, indent
from typing import Any

import numpy as np

from gbackprop.plain.programs.lines import Expressions
from gbackprop.plain.programs.recording import Section

WIDTH = 100
"""Most columns of a comment."""

FORMULAS = {"forward": "forward", "carry": "mjp", "append": "residual"}
"""The formula of a layer that belongs to each section."""

ASSIGNED = '''
def assigned(array, index, value):
    """Return a copy of an array with other numbers at an index."""
    if hasattr(array, "at"):
        return array.at[index].set(value)
    array = array.copy()
    array[index] = value
    return array

'''


def source_of(program: Any) -> tuple[str, dict[str, np.ndarray]]:
    """Return the text of the module without its check, and the constants that it takes."""
    recording, same = program.recording, program.same
    names = {same.get(number, number): name for number, name in reversed(recording.names.items())}
    wanted = [same.get(number, number) for number in program.paths]
    lines = Expressions(recording.tape, program.steps, names, wanted, program.fold, program.functional)
    body, last, by = [], None, program.needed_by()
    statements = list(lines.lines())
    inputs = [
        f"{lines.name(number)} = {kind}[{key!r}]"
        for name, number in recording.inputs.items()
        for kind, _, key in [name.partition("/")]
        if key and lines.is_used(number)
    ]
    for section, text, numbers in statements:
        title = _title(program, section, by.get(numbers[0], []))
        if title != last:
            body += ["", *_comment(title)]
            last = title
        body.append(text + _shape(recording.tape.values[numbers[0]]))
    result = _mapping(program.results, lambda number: lines.name(same.get(number, number)))
    text = "\n".join([*inputs, *body, "", f"return {result}"])
    head = f'"""{_head(program)}\n"""\n\nimport numpy as np\n' + "".join(f"{each}\n" for each in sorted(lines.imports))
    helper = ASSIGNED if program.functional else ""
    function = f"def program(x, y, parameters, random, constants):\n{indent(text, '    ')}\n"
    return f"{head}\n{helper}\n{function}", lines.constants


def _head(program: Any) -> str:
    """Return the first lines: the call, shapes and dtypes, versions, how to run it."""
    plan, tape = program.plan, program.recording.tape
    asked = ", ".join(["the gradient", *[repr(quantity) for quantity, _ in plan.needs]])
    arrays = [f"    {name}: {_kind(tape.values[number])}" for name, number in program.recording.inputs.items()]
    versions = f"gbackprop {version('gbackprop')}, NumPy {np.__version__}, Python {sys.version.split()[0]}"
    lines = [
        f"{asked[0].upper()}{asked[1:]} of {type(plan.network).__name__} with {plan.loss!r}.",
        "",
        f"Written by {versions}. Run it by `python FILE`, or `python FILE inputs.npz` with these arrays:",
        "",
        *arrays,
    ]
    return "\n".join(lines).replace('"""', "'''").replace("\\", "\\\\")


def _kind(value: np.ndarray) -> str:
    return f"{value.dtype.name}{list(value.shape)}"


def _shape(value: np.ndarray) -> str:
    return f"  # {tuple(value.shape)}"


def _title(program: Any, section: Section | None, needed_by: list[str]) -> str:
    """Return the comment above the statements of a section."""
    if section is None:
        return "Constants"
    if section.kind == "finish":
        return "Finish " + ", ".join(needed_by)
    layer = program.recording.layers.get(section.layer)
    if layer is None:
        return "Loss"
    formula = layer.formulas.get(FORMULAS.get(section.kind, ""), "")
    title = f"{section.kind.capitalize()}, layer {section.layer or '(alone)'}, {layer!r}"
    return f"{title}: {formula}" if formula else title


def _comment(title: str) -> list[str]:
    return [f"# {line}" for line in fill(title, WIDTH - 6).splitlines()]


def _mapping(value: Any, text: Any, depth: int = 1) -> str:
    if isinstance(value, int):
        return str(text(value))
    pad = "    " * depth
    parts = [f"{pad}{key!r}: {_mapping(each, text, depth + 1)},\n" for key, each in value.items()]
    return "{\n" + "".join(parts) + "    " * (depth - 1) + "}"


CHECK = '''def made_up(rng):
    """Return inputs of the right shapes."""
    return {
{inputs}
    }


def check(inputs):
    """Return by how much the gradient differs from differences of the loss along a direction, relatively."""
    groups = {"parameters": {}, "random": {}}
    for name, array in inputs.items():
        kind, _, key = name.partition("/")
        if key:
            groups[kind][key] = array
    x, y, parameters, random = inputs["x"], inputs["y"], *groups.values()
    rng = np.random.default_rng(1)
    gradient = program(x, y, parameters, random, constants)["gradient"]
    direction = {name: rng.standard_normal(np.shape(g)) for name, g in gradient.items()}
    slope = sum((g * direction[name]).sum() for name, g in gradient.items())
    size = {size}
    losses = []
    for step in (size, -size):
        moved = {name: (a + step * direction.get(name, 0)).astype(a.dtype) for name, a in parameters.items()}
        at = (x + step * direction["x"]).astype(x.dtype) if "x" in direction else x
        losses.append(float(program(at, y, moved, random, constants)["loss"]))
    return abs((losses[0] - losses[1]) / (2 * size) - slope) / max(abs(slope), 1e-8)


if __name__ == "__main__":
    import pathlib
    import sys

    beside = pathlib.Path(__file__).with_suffix(".npz")
    constants = dict(np.load(beside)) if beside.exists() else {}
    given = dict(np.load(sys.argv[1])) if len(sys.argv) > 1 else made_up(np.random.default_rng(0))
    error = check(given)
    print(f"gradient against differences of the loss: relative error {error:.1e}, at most {bound}")
    sys.exit(not error < {bound})
'''


def check_of(program: Any) -> str:
    """Return the part of a saved file that makes inputs, runs the program, and checks its gradient."""
    recording = program.recording
    lines = [f"        {name!r}: {_made_up(recording.tape.values[i])}," for name, i in recording.inputs.items()]
    single = recording.tape.values[recording.result.loss.number].dtype == np.float32
    text = CHECK.replace("{inputs}", "\n".join(lines)).replace("{size}", "1e-2" if single else "1e-5")
    return text.replace("{bound}", "0.1" if single else "1e-5")


def _made_up(value: np.ndarray) -> str:
    """Return an expression of numbers like those of an input: labels that occur, parts that add up to 1."""
    shape, dtype = tuple(value.shape), value.dtype.name
    if value.dtype.kind != "f":
        found = np.unique(value)
        if found.size > 50:
            return f"rng.integers({found[0]}, {found[-1]} + 1, {shape}).astype({dtype!r})"
        return f"rng.choice({found.tolist()}, {shape}).astype({dtype!r})"
    if value.ndim > 1 and value.size and (value >= 0).all() and np.allclose(value.sum(1), 1):
        return f"(lambda a: a / a.sum(1, keepdims=True))(rng.uniform(0.1, 1, {shape})).astype({dtype!r})"
    low, high = ((value.min(), value.max()) if value.size else (0.0, 1.0))
    return f"rng.uniform({float(low):.3g}, {float(high):.3g}, {shape}).astype({dtype!r})"
