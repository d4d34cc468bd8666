"""Small changes of a source file: each is what it says, and those that are named as equivalent exist."""

import ast
from functools import cache

import pytest
from changes import changes
from mutants import ROOT, equivalent, keys_of

SOURCE = '''
LIMIT = 3

def f(x: int = 2) -> int:
    """Two: 1 + 1."""
    if x <= LIMIT and not x == -1:
        g(x)
    x.y = [a for a in x if a]
    return x * 2 + a * 1.0
'''

EXPECTED = [
    ("3 → 4", "LIMIT = 4", False),
    ("2 → 3", "x: int=3", False),
    ("condition of if inverted", "if not (x <= LIMIT and (not x == -1)):", True),
    ("And → Or", "if x <= LIMIT or not x == -1:", True),
    ("LtE → Lt", "if x < LIMIT and", True),
    ("Not dropped", "and (not not x == -1)", True),
    ("Eq → NotEq", "not x != -1", True),
    ("-1 → 1", "x == +1", True),
    ("-1 → 0", "x == +0", True),
    ("statement dropped", "        pass\n    x.y", True),
    ("statement dropped", "        g(x)\n    pass", True),
    ("condition of comprehension inverted", "for a in x if not a]", True),
    ("Mult → Div", "x / 2", True),
    ("2 → 3", "x * 3", True),
    ("Add → Sub", "x * 2 - a * 1.0", True),
    ("1.0 → 3.0", "a * 3.0", True),
]


def test_changes_are_what_they_say():
    found = sorted(changes("f.py", SOURCE), key=lambda change: (change.line, change.what))
    assert len(found) == len(EXPECTED)
    for what, text, inside in EXPECTED:
        changed = [ast.unparse(c.applied(SOURCE)) for c in found if (c.what, c.inside) == (what, inside)]
        assert any(text in source for source in changed), (what, changed)


def test_each_change_is_another_program():
    programs = [ast.unparse(change.applied(SOURCE)) for change in changes("f.py", SOURCE)]
    assert len({ast.unparse(ast.parse(SOURCE)), *programs}) == len(programs) + 1


def test_an_edit_elsewhere_does_not_change_what_is_drawn():
    whole, edited = ({*keys_of(list(changes("f.py", text)), 0).values()} for text in (SOURCE, f"first = 7\n{SOURCE}"))
    assert len(whole) == len(EXPECTED)
    assert len(edited - whole) == 1
    assert whole < edited
    assert not whole & {*keys_of(list(changes("f.py", SOURCE)), 1).values()}


@cache
def changes_of(file):
    return list(changes(file, (ROOT / "gbackprop" / file).read_text()))


@pytest.mark.parametrize("entry", equivalent(), ids=lambda entry: f"{entry[0]}: {entry[2]}")
def test_what_is_named_as_equivalent_exists(entry):
    file, source, what = entry
    assert [change for change in changes_of(file) if change.source == source and what in (change.what, "any")]
