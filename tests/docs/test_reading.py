"""docs/reading.md: its example prints what it says, it names every file, and the plain engine stays short.

Docstrings begin with a verb or a noun, with no clause that begins with What, Where, How or Whether.
"""

import ast
import contextlib
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import structure

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop import quantities as q

PACKAGE = Path(gb.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "reading.md").read_text()
LAYERS = "linear windows/conv elementwise/activation windows/pooling moves/reshape elementwise/dropout"
READ = ["array.py", "plain/plan.py", "plain/reference.py", *[f"layers/{name}.py" for name in LAYERS.split()]]
READ += [f"calculus/{name}.py" for name in ("layer", "jacobian", "moments", "window", "signals")]
READ += [f"losses/{name}.py" for name in ("base", "cross_entropy", "elementwise", "mse", "bce")]
READ += [f"quantities/{name}.py" for name in ("__init__", "base", "first_order", "diagonal", "kronecker")]
"""What a student reads: the engine, the paper's layers, losses and quantities. Further ones are more of their kind."""


def test_the_example_prints_what_the_page_says():
    code, printed = re.search(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", PAGE, re.DOTALL).groups()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == printed


FAMILIES = [f"layers/{family}" for family in ("elementwise", "windows", "norms", "moves")]


@pytest.mark.parametrize(
    "folder", [".", "calculus", "plain", "layers", *FAMILIES, "losses", "quantities", "engine", "engine/kernels"]
)
def test_every_file_of_the_engine_is_on_the_page(folder):
    paths = [path for path in (PACKAGE / folder).glob("*.py") if not path.stem.startswith("__")]
    assert paths
    for path in paths:
        assert re.search(rf"[`/]{path.name}`", PAGE), path


def test_the_plain_engine_stays_short():
    lines = {file: structure.code_lines((PACKAGE / file).read_text()) for file in READ}
    assert lines["plain/reference.py"] <= 90
    assert sum(lines.values()) <= 1870


def test_the_protocol_of_layers_stays_small():
    methods = [value for value in vars(layers.Layer).values() if callable(value) or isinstance(value, property)]
    assert len(methods) <= 18


def visited(call):
    """Files and functions of the package that a call goes through, without comprehensions and lambdas."""
    files, functions = set(), set()

    def profile(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            files.add(code.co_filename)
            if not code.co_name.startswith("<"):
                functions.add((code.co_filename, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return len(files), len(functions)


def test_a_reader_meets_few_files_and_functions():
    net = gb.Sequential(
        layers.Conv2d(1, 3, 3), layers.ReLU(), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(12, 4), rng=0
    )
    x, y = np.random.default_rng(0).standard_normal((8, 1, 6, 6), dtype=np.float32), np.arange(8) % 4
    files, functions = visited(lambda: gb.reference(net, losses.CrossEntropyLoss(), x, y, q.DiagGGN(), q.KFAC(), rng=0))
    assert files <= 22
    assert functions <= 124


# ------------------------------------------------------------------------------------------ first words of docstrings

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
