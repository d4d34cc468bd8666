"""The first word of each docstring: a verb or a noun, no clause that begins with What, Where, How or Whether."""

import ast
import re
from pathlib import Path

import gbackprop as gb

PACKAGE = Path(gb.__file__).parent
CLAUSE = re.compile(r"\s*(what|where|how|whether)\b", re.IGNORECASE)


def clauses(source):
    """Lines of docstrings of modules, classes, functions and attributes that begin with a clause."""
    return [
        each.lineno
        for node in ast.walk(ast.parse(source))
        for body in [getattr(node, "body", None)]
        if isinstance(body, list)
        for each in body
        if isinstance(each, ast.Expr) and isinstance(text := getattr(each.value, "value", None), str)
        if CLAUSE.match(text)
    ]


def test_no_docstring_begins_with_a_clause():
    found = {str(path.relative_to(PACKAGE)): clauses(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_docstrings_of_every_kind_are_seen():
    kinds = ["{}", "class A:\n    {}", "def f():\n    {}", "a = 1\n{}", "class A:\n    a: int = 1\n    {}"]
    assert [clauses(kind.format("'What it is.'")) != [] for kind in kinds] == [True] * len(kinds)
    assert not any(clauses(kind.format("'Return what it is.'")) for kind in kinds)
