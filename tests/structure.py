"""The size and the shape of the package, counted and compared with their limits; ``make lint`` runs it.

A part is a file or folder directly inside ``gbackprop/``, but for ``__init__.py`` and ``__main__.py``. A part stands on
the floor above the highest part that it imports. Lines are all lines of ``.py`` files; code lines are those that are
neither empty, nor comments, nor docstrings.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gbackprop"

LIMITS = {
    "parts": 16,
    "floors": 12,
    "circles": 0,
    "functions of the engine with more than five arguments": 0,
    "functions that are not public with sections": 0,
    "class names twice": 1,
    "module names twice in a part": 0,
    "modules hidden by a name of their package": 0,
    "lines": 62_650,
    "code lines": 40_430,
    "lines of tests": 57_961,
}
"""No figure may grow beyond its limit; whoever brings one down lowers its limit. The aims are 0 functions with more
than five arguments, names twice and hidden modules, 34,000 lines, 20,000 code lines and 25,000 lines of tests."""


SECTIONS = re.compile(r"^(Parameters|Returns|Raises|Attributes)\n---", re.MULTILINE)


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax of each module of the package by its name."""
    return {module_name(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def imported(tree: ast.AST) -> set[str]:
    """Return the modules of the package that a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found & trees().keys()


def part_of(module: str) -> str | None:
    """Return the part that a module is in."""
    name = module.split(".")[1:2]
    return name[0] if name and name[0] != "__main__" else None


def parts() -> dict[str, set[str]]:
    """Return the parts that each part imports."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        if part := part_of(module):
            graph[part] |= {part_of(other) for other in imported(tree)} - {part, None}  # type: ignore[arg-type]
    return graph


def floors(graph: dict[str, set[str]]) -> tuple[dict[str, int], list[str]]:
    """Return the floor of each part, and the parts on circles, which have none."""
    found: dict[str, int] = {}
    while ready := [part for part in graph if part not in found and graph[part] <= found.keys()]:
        found |= {part: 1 + max((found[below] for below in graph[part]), default=0) for part in ready}
    return found, sorted(graph.keys() - found.keys())


def wide(part: str) -> list[str]:
    """Return the functions of a part with more than five arguments, the public ones of the package apart."""
    functions = []
    for module, tree in trees().items():
        for node in ast.walk(tree) if part_of(module) == part else ():
            if isinstance(node, ast.FunctionDef):
                given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                count = len(given) - (bool(given) and given[0].arg in ("self", "cls"))
                if count > 5 and node.name not in ("backward", "prepare"):
                    functions.append(f"{module}.{node.name} ({count})")
    return functions


def public_names() -> set[str]:
    """Return all names that a package of the package lists in ``__all__``, and the bases of classes among them."""
    lists = [node.value for tree in trees().values() for node in tree.body if isinstance(node, ast.Assign)
             and ast.unparse(node.targets[0]) == "__all__"]  # fmt: skip
    found = {ast.literal_eval(name) for names in lists if isinstance(names, ast.List) for name in names.elts}
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while more := {ast.unparse(base) for each in classes if each.name in found for base in each.bases} - found:
        found |= more
    return found


def private_sections() -> list[str]:
    """Return the functions and methods that are not public and have sections in their docstring: one line does."""
    public, found = public_names(), []

    def look(module: str, body: list[ast.stmt], shown: bool) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                look(module, node.body, node.name in public)
            elif isinstance(node, ast.FunctionDef) and SECTIONS.search(ast.get_docstring(node) or ""):
                named = not node.name.startswith("_") or node.name.startswith("__")
                if not (named and (shown or node.name in public)):
                    found.append(f"{module}.{node.name}")

    for module, tree in trees().items():
        look(module, tree.body, False)
    return found


def repeated_classes() -> list[str]:
    """Return the names of classes that stand more than once."""
    names = Counter(node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sorted(name for name, number in names.items() if number > 1)


def repeated_modules() -> list[str]:
    """Return the names of files that stand more than once in a part."""
    names = Counter((part_of(module), module.rpartition(".")[2]) for module in trees() if module.count(".") > 1)
    return sorted(f"{part}: {name}" for (part, name), number in names.items() if number > 1)


def hidden_modules() -> list[str]:
    """Return the modules that a function or class of their package hides, as an import binds the same name."""
    hidden = []
    for module, tree in trees().items():
        for node in tree.body if any(other.startswith(f"{module}.") for other in trees()) else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                hidden += [f"{module}.{n}" for n in names if f"{module}.{n}" in trees() and names[n] not in trees()]
    return hidden


def code_lines(module_text: str) -> int:
    """Return the number of lines that are neither empty, nor comments, nor docstrings."""
    lines = {i for i, line in enumerate(module_text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(module_text)):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def figures() -> dict[str, tuple[int, list[str]]]:
    """Return each figure with what it counts, where that has names."""
    graph = parts()
    floor, circles = floors(graph)
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    tests = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    named = {
        "circles": circles,
        "functions of the engine with more than five arguments": wide("engine"),
        "functions that are not public with sections": private_sections(),
        "class names twice": repeated_classes(),
        "module names twice in a part": repeated_modules(),
        "modules hidden by a name of their package": hidden_modules(),
    }
    numbers = {
        "parts": len(graph),
        "floors": max(floor.values(), default=0),
        "lines": sum(len(text.splitlines()) for text in sources),
        "code lines": sum(map(code_lines, sources)),
        "lines of tests": sum(len(text.splitlines()) for text in tests),
    }
    found = {name: (len(names), names) for name, names in named.items()} | {n: (v, []) for n, v in numbers.items()}
    return {name: found[name] for name in LIMITS}


def main() -> int:
    """Print every figure beside its limit; return whether one is above it."""
    above = 0
    for name, (number, names) in figures().items():
        above += number > LIMITS[name]
        print(f"{number:6} of at most {LIMITS[name]:6}  {name}{': ' if names else ''}{', '.join(names)}")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
