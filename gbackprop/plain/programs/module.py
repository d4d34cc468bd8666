"""The text of a program's module: its first lines, its sections and their comments, and a check of its own."""

from __future__ import annotations

import re
import sys
from collections import Counter
from math import prod
from textwrap import fill, indent
from typing import Any

import numpy as np

from gbackprop.base.recording.tape import refs
from gbackprop.calculus.wrt import InputRows
from gbackprop.plain.explanation.steps import STARTS
from gbackprop.plain.programs.lines import Expressions
from gbackprop.plain.programs.recording import Section

WIDTH = 100
"""Most columns of a comment."""

FORMULAS = {"forward": "forward", "carry": "mjp", "append": "residual"}
SAID = {"carry": "each column g becomes Jᵀ g = ", "append": "columns √|r| with the signs of r = "}
"""The formula of a layer that belongs to each section, and what is said before it."""

HELPERS = '''
def assigned(array, index, value):
    """Return a copy of an array with other numbers at an index."""
    if hasattr(array, "at"):
        return array.at[index].set(value)
    array = np.array(array)
    array[index] = value
    return array

'''


def source_of(program: Any) -> tuple[str, dict[str, np.ndarray], set[int]]:
    """Return the text of the module without its check, the constants that it takes, and what it assigns on copies."""
    recording, same = program.recording, program.same
    names, notes = ({same.get(number, number): text for number, text in reversed(each.items())}
                    for each in (recording.names, recording.notes))  # fmt: skip
    names |= {number: recording.names[number] for number in recording.inputs.values()}  # as the function's arguments
    uses = Counter(number for step in program.steps for number in refs((step.args, step.kwargs)))
    for step in program.steps if program.fold else []:
        if step.name in ("reshape", "transpose") and step.section.kind != "forward" and uses[step.args[0].number] > 1:
            for each in (names, notes):
                each.setdefault(step.args[0].number, each.get(step.results[0]) or "")
    names = {number: name for number, name in names.items() if name}
    wanted = [same.get(number, number) for number in program.paths]
    factor = program.plan.scale.factor
    factors = {factor: "R", factor**0.5: "R ** 0.5"} if type(factor) is float and factor != 1 and program.fold else {}
    lines = Expressions(recording.tape, program.steps, names, wanted, program.fold, program.functional, factors)
    lines.listed = program.device == "cpu"  # elsewhere a list of numbers is a transfer
    body, last, by = [], None, program.needed_by()
    statements = list(lines.lines())
    inputs = [
        f"{lines.name(number)} = {kind}[{key!r}]"
        for name, number in recording.inputs.items()
        for kind, _, key in [name.partition("/")]
        if key and lines.is_used(number)
    ]
    if factors:
        batch = program.plan.scale.batch
        inputs.append(f"R = {f'1 / {batch}' if factor == 1 / batch else repr(factor)}  # of L = R Σₙ ℓₙ")
    for (section, text, numbers), after in zip(statements, [*statements[1:], None], strict=True):
        title = _title(program, section, by.get(numbers[0], []))
        if title != last:
            body += ["", *_comment(title)]
            last = title
        shape, note = _shape(recording.tape.values[numbers[0]]), notes.get(numbers[0]) or lines.purpose(numbers[0])
        more = after is not None and after[2] == numbers
        part = "[" in text[: text.index("=")]
        body += _statement(text, shape if more or not note else note if part else f"{shape}, {note}")
    result = _mapping(program.results, lambda number: _owned(lines.name(same.get(number, number))))
    text = "\n".join([*inputs, *body, "", f"return {result}"])
    head = f'"""{_head(program)}\n"""\n\nimport numpy as np\n' + "".join(f"{each}\n" for each in sorted(lines.imports))
    helper = HELPERS if program.functional else ""
    weight = ", sample_weight" * ("sample_weight" in recording.inputs)
    function = f"def program(x, y, parameters, random, constants{weight}):\n{indent(text, '    ')}\n"
    return f"{head}\n{helper}\n{function}", lines.constants, lines.copied


def _statement(text: str, comment: str) -> list[str]:
    """Return a statement with its comment, in lines that are not too long."""
    most = WIDTH - 4
    if len(text) + 4 + len(comment) <= most:
        return [f"{text}  # {comment}"]
    if len(text) <= most:
        return [f"# {comment}", text]
    for deep in (1, 2, 3, 99):  # brackets within which a line may end
        words = _words(text, deep)
        lines, inside = [words[0][0]], True
        for word, depth in words[1:]:
            if len(lines[-1]) + len(word) + 1 <= most - 4:
                lines[-1] += f" {word}"
            else:
                lines.append(f"    {word}")
                inside = inside and depth > 0
        if inside and max(map(len, lines)) <= most:
            return [f"# {comment}", *lines]
    target, sign, value = re.fullmatch(r"(.+?) (\S*=) (.*)", text).groups()  # type: ignore[union-attr]
    wrapped = value.startswith("(") and value.endswith(")")
    return [f"# {comment}", text] if wrapped else _statement(f"{target} {sign} ({value})", comment)


def _words(text: str, deep: int) -> list[tuple[str, int]]:
    """Cut a statement at spaces within so many brackets at most; yield each part and the brackets that it begins in."""
    found, depth, begins, start = [], 0, 0, 0
    for match in re.finditer(r"'(?:\\.|[^'\\])*'|[\[({]|[\])}]| ", text):
        if match[0] == " " and depth <= deep:
            found.append((text[start : match.start()], begins))
            start, begins = match.end(), depth
        depth += {"[": 1, "(": 1, "{": 1, "]": -1, ")": -1, "}": -1}.get(match[0], 0)
    return [*found, (text[start:], begins)]


def _head(program: Any) -> str:
    """Return the first lines: the call, shapes and dtypes, versions, how to run it."""
    plan, recording = program.plan, program.recording
    asked = ", ".join(["the gradient", *[repr(quantity) for quantity, _ in plan.needs]])
    arrays = [f"    {name}: {_kind(recording.tape.values[number])}" for name, number in recording.inputs.items()]
    ours, python = sys.modules["gbackprop"].__version__, sys.version.split()[0]
    versions = f"gbackprop {ours}, NumPy {np.__version__}, Python {python}"
    lines = [
        f"{asked[0].upper()}{asked[1:]} of {type(plan.network).__name__} with {plan.loss!r}"
        f"{', and a weight for each sample' if 'sample_weight' in recording.inputs else ''}.",
        "",
        f"Written by {versions}. Run it by `python FILE`, or `python FILE inputs.npz` with these arrays:",
        "",
        *arrays,
    ]
    lines[2:3] = fill(lines[2], WIDTH).splitlines()
    lines[0:1] = fill(lines[0], WIDTH - 3).splitlines()
    return "\n".join(lines).replace('"""', "'''").replace("\\", "\\\\")


def _kind(value: np.ndarray) -> str:
    return f"{value.dtype.name}{list(value.shape)}"


def _shape(value: np.ndarray) -> str:
    return f"{tuple(value.shape)}"


def _title(program: Any, section: Section | None, needed_by: list[str]) -> str:
    """Return the comment above the statements of a section."""
    plan, section = program.plan, section or Section("constants")
    kind = section.kind
    scales = {quantity.name: quantity.scale for quantity, _ in plan.needs}
    if kind == "finish":
        scales["loss"] = "L = R Σₙ ℓₙ"
        return "Finish " + "; ".join(": ".join(filter(None, (name, scales.get(name)))) for name in needed_by)
    if kind == "loss":
        formula = plan.loss.formulas.get({"value": "values", "gradient": "gradients"}.get(section.layer, ""), "")
        parts = [STARTS.get(section.layer), f"∇ℓₙ = {formula}" if section.layer == "gradient" and formula else formula]
        return f"Loss, {section.layer}: {', '.join(filter(None, parts))}"
    layer = program.recording.layers.get(section.layer)
    if layer is None:
        return kind.capitalize()
    if kind == "columns":
        return f"Columns at the output of layer {section.layer or '(alone)'}"
    formula = layer.formulas.get(FORMULAS.get(kind, ""), "")
    title = f"{kind.capitalize()}, layer {section.layer or '(alone)'}, {layer!r}"
    return f"{title}: {SAID.get(kind, '')}{formula}" if formula else title


def _comment(title: str) -> list[str]:
    return [f"# {line}" for line in fill(title, WIDTH - 6).splitlines()]


def _owned(text: str) -> str:
    """Return the text of a result, which is the caller's: a copy of a constant."""
    return f"{text}.copy()" if text.startswith("constants[") else text


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
        at = x.reshape(len(x), -1).copy()
        for name, start, stop in {columns}:
            at[:, start:stop] += step * direction[name].reshape(len(x), -1)
        losses.append(float(program(at.reshape(x.shape), y, moved, random, constants)["loss"]))
    return abs((losses[0] - losses[1]) / (2 * size) - slope) / max(abs(slope), size * abs(losses[0]), 1e-300)


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
    weight = ", inputs['sample_weight']" * ("sample_weight" in recording.inputs)
    text = CHECK.replace("constants)", f"constants{weight})")
    text = text.replace("{inputs}", "\n".join(lines)).replace("{size}", "1e-2" if single else "1e-5")
    inputs = [leaf for leaf in program.plan.leaves if isinstance(leaf.layer, InputRows)]
    columns = [(name, at := getattr(leaf.layer, "start", 0), at + prod(leaf.output_shape))
               for leaf in inputs for name in leaf.parameters.values()]  # fmt: skip
    text = text.replace("{columns}", repr(columns))
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
