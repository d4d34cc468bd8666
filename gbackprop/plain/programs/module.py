"""The text of a program's module: its first lines, its sections and their comments."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable
from textwrap import fill, indent
from typing import Any

import numpy as np

from gbackprop.base.errors import UnsupportedError
from gbackprop.base.recording.tape import refs
from gbackprop.calculus.signals import AVERAGE
from gbackprop.plain.explanation.steps import AVERAGES, STARTS
from gbackprop.plain.programs.functions import ProgramFunction, ProgramPart, shared
from gbackprop.plain.programs.lines import Expressions
from gbackprop.plain.programs.recording import Section

WIDTH = 100
"""Most columns of a comment."""

MOST = 20_000
"""Most statements of a program."""

WORDS = """Backward, from the last layer to the first: Extract multiplies columns by J_θᵀ (J_θ is the layer's
Jacobian in its parameters) and sums; Carry multiplies by Jᵀ (J is that in the layer's input); Append adds columns of
the layer's own second derivative. Finish puts sums together. In the formulas of layers x and y are the layer's input
and output."""

FORMULAS = {"forward": "forward", "carry": "mjp", "append": "residual"}
SAID = {"carry": "each column g becomes Jᵀ g = ", "append": "columns √|r| with the signs of r = "}
"""The formula of a layer that belongs to each section, and what is said before it."""

HELPERS = '''
def assigned(array, index, value):
    """Return a copy of an array with other numbers at an index."""
    array = np.array(array)
    if hasattr(array, "at"):
        return array.at[index].set(value)
    array[index] = value
    return array

'''


def source_of(program: Any) -> tuple[str, dict[str, np.ndarray], set[int]]:
    """Return the text of the module without its check, the constants that it takes, and what it assigns on copies."""
    recording, same = program.recording, program.same
    names, notes = _letters(program)
    lines = Expressions(program, names)
    parts = _parts(program, lines, notes)
    given = [(*name.partition("/"), number) for name, number in recording.inputs.items() if lines.is_used(number)]
    inputs = [f"{lines.name(number)} = {kind}[{key!r}]" for kind, _, key, number in given if key]
    factor, batch = program.plan.scale.factor, program.plan.scale.batch
    if lines.scaled:
        inputs.append(f"R = {f'1 / {batch}' if factor == 1 / batch else repr(factor)}  # of L = R Σₙ ℓₙ, N = {batch}")
    taken = {*map(lines.name, recording.inputs.values()), *(f"constants[{name!r}]" for name in lines.constants)}
    result = _mapping(program.results, lambda number: _owned(lines, same.get(number, number), taken))
    for quantity, _ in program.plan.needs if program.fold else ():
        entry, scale = f"\n    {quantity.name!r}: {{", " ".join(quantity.scale.split())
        result = result.replace(f"{entry}\n", f"{entry}  # {scale}\n", 1) if scale else result
    functions: list[ProgramFunction] = []
    if program.fold:
        kinds = {"R": None, "constants": None, **_kinds(lines)}
        functions, parts = shared(parts, kinds, set(map(lines.name, lines.wanted)), recording.layers)
    count = sum(len(each.statements) for each in parts) + sum(len(each.statements) for each in functions)
    if count > MOST:
        raise UnsupportedError(f"program: {count} statements, expected at most {MOST}")
    body = [line for part in parts for line in ["", *_comment(part.title), *_written(part.statements)]]
    text = "\n".join([*inputs, *body, "", f"return {result}"])
    head = f'"""{_head(program)}\n"""\n\nimport numpy as np\n' + "".join(f"{each}\n" for each in sorted(lines.imports))
    helper = HELPERS if program.functional else ""
    helper += "".join(f"\n{_function(each)}\n" for each in functions)
    weight = ", sample_weight" * ("sample_weight" in recording.inputs)
    function = f"def program(x, y, parameters, random, constants{weight}):\n{indent(text, '    ')}\n"
    return f"{head}\n{helper}\n{function}", lines.constants, lines.copied


def _letters(program: Any) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names and notes of values; what is only a move of another one's numbers gives that one its own."""
    recording, same = program.recording, program.same
    names, notes = ({same.get(number, number): text for number, text in reversed(each.items())}
                    for each in (recording.names, recording.notes))  # fmt: skip
    names |= {number: recording.names[number] for number in recording.inputs.values()}  # as the function's arguments
    uses = Counter(number for step in program.steps for number in refs((step.args, step.kwargs)))
    made = {number for step in program.steps for number in step.results}
    for step in [*program.steps, *recording.tape.steps] if program.fold else []:
        if step.name not in ("reshape", "transpose") or not refs(step.args[:1]):
            continue
        (given, *_), number = refs(step.args[:1]), step.results[0]
        given = same.get(given, given)
        if (step.section.kind != "forward" and uses[given] > 1) if number in made else given in made:
            for each in (names, notes):
                each.setdefault(given, each.get(same.get(number, number)) or "")
    return {number: name for number, name in names.items() if name}, notes


def _parts(program: Any, lines: Expressions, notes: dict[int, str]) -> list[ProgramPart]:
    """Return the statements with their comments, in sections."""
    parts, by, values = list[ProgramPart](), program.needed_by(), program.recording.tape.values
    statements = list(lines.lines())
    for (section, text, numbers), after in zip(statements, [*statements[1:], None], strict=True):
        title = _title(program, section, by.get(numbers[0], []))
        if not parts or title != parts[-1].title:
            parts.append(ProgramPart(title, section or Section("constants"), []))
        shape, note = str(tuple(values[numbers[0]].shape)), notes.get(numbers[0]) or lines.purpose(numbers[0])
        more = after is not None and after[2] == numbers
        part = "[" in text[: text.index("=")]
        comment = shape if more or not note else note if part else f"{shape}, {note}"
        parts[-1].statements.append((text, comment))
    return parts


def _kinds(lines: Expressions) -> dict[str, tuple[Any, str]]:
    """Return shape and dtype of each value that has a name."""
    named = [(each.id, lines.tape.values[n]) for n, (each, _) in lines.known.items() if isinstance(each, ast.Name)]
    return {name: (tuple(value.shape), value.dtype.name) for name, value in named}


def _function(function: ProgramFunction) -> str:
    lines = [line for comment in function.comments for line in _comment(comment)] + _written(function.statements)
    return "\n".join([*_statement(function.head, ""), indent("\n".join(lines), "    "), ""])


def _written(statements: Iterable[tuple[str, str]]) -> list[str]:
    return [line for text, comment in statements for line in _statement(text, comment)]


def _statement(text: str, comment: str) -> list[str]:
    """Return a statement with its comment, if any, in lines that are not too long."""
    most, above = WIDTH - 4, [f"# {comment}"] if comment else []
    if len(text) + 4 + len(comment) <= most:
        return [f"{text}  # {comment}" if comment else text]
    if len(text) <= most:
        return [*above, text]
    start, value = re.fullmatch(r"(def|return|.+? \S*=) (.*)", text).groups()  # type: ignore[union-attr]
    wrapped = start == "def" or (value.startswith("(") and value.endswith(")"))
    for deep in (1, 2, 3, 99, *[100] * wrapped):  # brackets within which a line may end
        words = _words(text, deep)
        lines, inside = [words[0][0]], True
        for word, depth in words[1:]:
            if len(lines[-1]) + len(word) + 1 <= most - 4:
                lines[-1] += f" {word}"
            else:
                lines.append(f"    {word}")
                inside = inside and depth > 0
        if inside and max(map(len, lines)) <= most:
            return [*above, *lines]
    target, _, sign = start.rpartition(" ")
    if ", " in target and target[0] != "(":  # several results
        return _statement(f"({target}) {sign} {value}", comment)
    return [*above, text] if wrapped else _statement(f"{start} ({value})", comment)


def _words(text: str, deep: int) -> list[tuple[str, int]]:
    """Cut a statement at spaces within so many brackets at most; yield each part and the brackets that it begins in."""
    found, depth, begins, start = [], 0, 0, 0
    whole = r"\((?:-?\d+, )+-?\d+\)|" * (deep < 100)  # numbers in brackets stay together, if they can
    for match in re.finditer(rf"{whole}'(?:\\.|[^'\\])*'|[\[({{]|[\])}}]| ", text):
        if match[0] == " " and (text[0] == "(") <= depth <= deep:  # results in brackets stand before their "="
            found.append((text[start : match.start()], begins))
            start, begins = match.end(), depth
        depth += (match[0] in "[({") - (match[0] in "])}")
    return [*found, (text[start:], begins)]


def _head(program: Any) -> str:
    """Return the first lines: the call, shapes and dtypes, versions, how to run it."""
    plan, recording = program.plan, program.recording
    asked = ", ".join(["the gradient", *[repr(quantity) for quantity, _ in plan.needs]])
    inputs = {name: recording.tape.values[number] for name, number in recording.inputs.items()}
    arrays = [f"    {name}: {value.dtype.name}{list(value.shape)}" for name, value in inputs.items()]
    ours, python = sys.modules["gbackprop"].__version__, sys.version.split()[0]
    versions = f"gbackprop {ours}, NumPy {np.__version__}, Python {python}"
    lines = [
        f"{asked[0].upper()}{asked[1:]} of {type(plan.network).__name__} with {plan.loss!r}"
        f"{', and a weight wₙ for each sample, which ℓₙ contains' if 'sample_weight' in recording.inputs else ''}.",
        "",
        f"Written by {versions}. Run it by `python FILE`, or `python FILE inputs.npz` with these arrays:",
        "",
        *arrays,
        "",
        *fill(WORDS, WIDTH - 4).splitlines(),
    ]
    lines[2:3] = fill(lines[2], WIDTH).splitlines()
    lines[0:1] = fill(lines[0], WIDTH - 3).splitlines()
    return "\n".join(lines).replace('"""', "'''").replace("\\", "\\\\")


def _title(program: Any, section: Section | None, needed_by: list[str]) -> str:
    """Return the comment above the statements of a section."""
    plan, section = program.plan, section or Section("constants")
    kind = section.kind
    if kind == "finish":
        scales = {q.name: ", computed as ".join(filter(None, (q.scale, q.finishes))) for q, _ in plan.needs}
        scales["loss"] = "L = R Σₙ ℓₙ"
        return "Finish " + "; ".join(": ".join(filter(None, (name, scales.get(name)))) for name in needed_by)
    if section == ("loss", "factor"):
        return f"Loss, factor: R_y, which is R of L = R Σₙ ℓₙ for these targets; N = {plan.scale.batch}"
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
    title += f": {SAID.get(kind, '')}{formula}" if formula else ""
    return f"{title}; {AVERAGES}" if kind == "carry" and AVERAGE in plan.signals else title


def _comment(title: str) -> list[str]:
    return [f"# {line}" for line in fill(title, WIDTH - 6).splitlines()]


def _owned(lines: Expressions, number: int, taken: set[str]) -> str:
    """Return the text of a result, which is the caller's: a copy if its memory is an argument's or another result's."""
    text, home = lines.name(number), lines.home(number)
    if home in taken or lines.is_read_only(number):
        return f"{text}.copy()"
    taken.update([home] * home.isidentifier())  # else the line itself makes the array
    return text


def _mapping(value: Any, text: Any, depth: int = 1) -> str:
    if isinstance(value, int):
        return str(text(value))
    pad = "    " * depth
    parts = [f"{pad}{key!r}: {_mapping(each, text, depth + 1)},\n" for key, each in value.items()]
    return "{\n" + "".join(parts) + "    " * (depth - 1) + "}"
