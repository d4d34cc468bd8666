"""Equal sections of a program printed once, as a function of what they take from elsewhere.

    # Forward, layer 1, Sigmoid(): y = σ(x)           def sigmoid_forward(x):
    low_1 = np.minimum(z_0, 0)                            # Forward, Sigmoid(): y = σ(x)
    t1 = np.exp(2 * low_1 - z_0)               becomes    low = np.minimum(x, 0)
    z_1 = np.exp(low_1) / (1 + t1)                        t1 = np.exp(2 * low - x)
                                                          y = np.exp(low) / (1 + t1)
                                                          return y

and z_1 = sigmoid_forward(z_0). Sections are equal if their layers are equal but for names, and if their statements,
shapes and dtypes are, when values are numbered in the order in which they are met. A function is made where fewer lines
remain: n statements that stand there k times become k calls, and n + 4 lines with `def`, two comments and `return`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gbackprop.plain.programs.sections import Section
from gbackprop.plain.programs.words import RESERVED, identifier

KINDS = ("forward", "extract", "carry", "append")
"""The sections of layers."""

PURPOSE = re.compile(r"(^|, )for (\w+)$")
"""The end of a comment that says for which value one without a letter is computed."""


class ProgramPart(NamedTuple):
    """Statements, each with its comment, under a title: a section, or as much of it as stands together."""

    title: str
    section: Section
    statements: list[tuple[str, str]]


class ProgramFunction(NamedTuple):
    """A function: its first line, the comments below it, and its statements with comments."""

    head: str
    comments: tuple[str, str]
    statements: list[tuple[str, str]]


def shared(
    parts: Sequence[ProgramPart], kinds: Mapping[str, Any], wanted: Collection[str], layers: Mapping[str, Any]
) -> tuple[list[ProgramFunction], list[ProgramPart]]:
    """Return functions, and the parts with calls of them.

    `kinds` are shape and dtype of each value by its name, `wanted` names of results, `layers` layers by their paths.
    """
    units = [_Unit(each, kinds) for each in _together(parts)]
    uses = Counter(name for unit in units for name in unit.names)
    made = {"x"}.union(*(unit.bound for unit in units))
    groups: dict[str, list[_Unit]] = defaultdict(list)
    for unit in units:
        unit.results = sorted((n for n in unit.bound if n in wanted or uses[n] > 1), key=_unnamed)
        unit.given = sorted((n for n in unit.names if n not in unit.bound), key=lambda n: n not in made)
        if unit.alone and len(unit.statements) > 1:
            groups[unit.key(kinds)].append(unit)
    functions, taken, calls = list[ProgramFunction](), {*kinds}, dict[int, list[ProgramPart]]()
    numbers: dict[str, int] = {}  # of each layer among those of its class that differ
    for group in groups.values():
        times, many = len(group), len(group[0].statements)
        if times * many > times + many + 4:
            best = min(group, key=lambda unit: sum(map(_unnamed, unit.names)))
            kind, path = best.section
            known = [numbers[each] for each in numbers if type(layers[each]) is type(layers[path])]
            paths = [unit.section.layer for unit in group]
            number = next((numbers[each] for each in paths if each in numbers), max(known, default=0) + 1)
            numbers = dict.fromkeys(paths, number) | numbers
            name = _unique(identifier(f"{type(layers[path]).__name__.lower()}_{kind}"), taken, number)
            functions.append(best.function(name, kinds, layers))
            calls |= {id(unit): unit.call(name, kinds) for unit in group}
    return functions, [part for unit in units for part in calls.get(id(unit), unit.parts)]


def _together(parts: Sequence[ProgramPart]) -> list[list[ProgramPart]]:
    """Return the parts; the columns at the output of a layer are together with what is extracted from them."""
    found: list[list[ProgramPart]] = []
    for part in parts:
        columns = Section("columns", part.section.layer)
        if part.section.kind == "extract" and found and found[-1][-1].section == columns:
            found[-1].append(part)
        else:
            found.append([part])
    return found


class _Unit:
    """Statements that may become a function: their parts, the names of values in order, and those that they make.

    They are `alone` if they are of a layer and write into no array but their own; `given` are values made elsewhere,
    `results` those used elsewhere.
    """

    def __init__(self, parts: list[ProgramPart], values: Collection[str]) -> None:
        self.parts, self.section = parts, parts[-1].section
        self.title = parts[-1].title.replace(f"layer {self.section.layer}, ", "", 1)
        self.statements = [statement for part in parts for statement in part.statements]
        self.names, self.bound = dict[str, None](), dict[str, None]()
        self.given, self.results = list[str](), list[str]()
        self.alone = self.section.kind in KINDS
        for text, _ in self.statements:
            statement: Any = ast.parse(text).body[0]
            self.names |= dict.fromkeys(each.id for each in _names(statement) if each.id in values)
            (target,) = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if isinstance(target, ast.Subscript):
                self.alone &= ast.unparse(target.value) in self.bound
            else:
                self.bound |= dict.fromkeys(each.id for each in _names(target))

    def key(self, kinds: Mapping[str, Any]) -> str:
        """Return what equal sections have in common."""
        numbers = {name: f"_{i}" for i, name in enumerate(self.names)}
        statements = [(text, PURPOSE.sub("", comment)) for text, comment in self.renamed(numbers)]
        outside = [[numbers[name] for name in names] for names in (self.given, self.results)]
        return repr((self.section.kind, self.title, statements, outside, [kinds[name] for name in self.names]))

    def renamed(self, names: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the statements and comments with other names; a comment does not speak of what is elsewhere."""

        def purpose(found: re.Match[str]) -> str:
            return f"{found[1]}for {names[found[2]]}" if found[2] in names else ""

        trees = [(ast.parse(text), comment) for text, comment in self.statements]
        for tree, _ in trees:
            for each in _names(tree):
                each.id = names.get(each.id, each.id)
        return [(ast.unparse(tree), PURPOSE.sub(purpose, comment)) for tree, comment in trees]

    def function(self, name: str, kinds: Mapping[str, Any], layers: Collection[str]) -> ProgramFunction:
        """Return the section as a function, in which values have the letters of the layer's formulas."""
        paths = {path[: dot.start()] for path in layers for dot in re.finditer(r"\.|$", path)}
        letters = self._letters({_joined(path) for path in paths})
        shapes = ", ".join(f"{letters[each]} {kinds[each][0]}" for each in self.given if kinds[each])
        last = f"return {', '.join(letters[each] for each in self.results)}", ""
        head = f"def {name}({', '.join(letters[each] for each in self.given)}):"
        return ProgramFunction(head, (self.title, shapes), [*self.renamed(letters), last])

    def call(self, name: str, kinds: Mapping[str, Any]) -> list[ProgramPart]:
        """Return the part that calls a function instead."""
        text = f"{', '.join(self.results)} = {name}({', '.join(self.given)})"
        shape = str(kinds[self.results[0]][0]) if len(self.results) == 1 else ""
        return [ProgramPart(self.parts[-1].title, self.section, [(text, shape)])]

    def _letters(self, paths: Collection[str]) -> dict[str, str]:
        """Return the names without layers: x and y for the layer's input and output, `carried` for columns made."""
        found, taken, count = dict[str, str](), set[str](), 0
        ending = re.compile(rf"(.+?)_({'|'.join(sorted(paths))})[b-z]?")  # a name that was taken has a letter more
        for name in (*self.given, *self.bound):
            letter, path = parts.groups() if (parts := ending.fullmatch(name)) else (name, "")
            carry = self.section.kind == "carry" and name in self.results
            if letter == "z":
                letter = "y" if path == _joined(self.section.layer) else "x"
            elif letter in ("columns", "carried") or (carry and (letter == "g" or _unnamed(name))):
                letter = "carried" if name in self.bound else "columns"
            elif _unnamed(name):
                count += 1
                letter = f"t{count}"
            found[name] = _unique(letter if name in RESERVED else identifier(letter), taken)
        return found


def _unnamed(name: str) -> bool:
    return re.fullmatch(r"t\d+", name) is not None


def _joined(path: str) -> str:
    """Return a layer's path as it stands in names."""
    return re.sub(r"\W", "_", path, flags=re.ASCII)


def _unique(name: str, taken: set[str], number: int = 1) -> str:
    """Return a name that is not taken, with a number if that is not 1, and take it."""
    new = name if number == 1 else f"{name}{number}"
    while new in taken:
        number += 1
        new = f"{name}{number}"
    taken.add(new)
    return new


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    """Yield the names in a statement in the order of its text."""
    if isinstance(tree, ast.Name):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _names(child)
