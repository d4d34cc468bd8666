"""The first word of each docstring: a verb or a noun, no clause that begins with What, Where, How or Whether."""

import ast
import re
from pathlib import Path

import pytest

import gbackprop as gb

PACKAGE = Path(gb.__file__).parent
CLAUSE = re.compile(r"\s*(what|where|how|whether)\b", re.IGNORECASE)


def clauses(source):
    """Lines of docstrings of modules, classes, functions and attributes that begin with a clause."""
    if not re.search(r"""["']""" + CLAUSE.pattern, source, re.IGNORECASE):  # parsing all files would take a second
        return []
    alone = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    return [each.lineno for each in alone if CLAUSE.match(str(getattr(each.value, "value", "")))]


def test_no_docstring_begins_with_a_clause():
    found = {str(path.relative_to(PACKAGE)): clauses(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("before", ["", "class A:\n    ", "def f():\n    ", "a = 1\n", "class A:\n    a: str\n    "])
@pytest.mark.parametrize("quoted", ['"""{}"""', '"""\n    {}"""', "'{}'"])
def test_docstrings_of_every_kind_are_seen(before, quoted):
    assert clauses(before + quoted.format("What it is.")) != []
    assert clauses(before + quoted.format("Return what it is.")) == []
