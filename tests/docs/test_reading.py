"""docs/reading.md: its example prints what it says, it names every file, and the plain engine stays short."""

import ast
import contextlib
import io
import re
import sys
import tokenize
from pathlib import Path

import numpy as np
import pytest

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


def code_lines(file):
    """Lines of code, without docstrings, comments and blank lines."""
    source, lines, strings = (PACKAGE / file).read_text(), set(), set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else []:
            if isinstance(each, ast.Expr) and isinstance(getattr(each.value, "value", None), str):
                strings.update(range(each.lineno, each.end_lineno + 1))
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in nothing:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def test_the_plain_engine_stays_short():
    assert code_lines("plain/reference.py") <= 90
    assert sum(map(code_lines, READ)) <= 1830


def test_the_protocol_of_layers_stays_small():
    methods = [value for value in vars(layers.Layer).values() if callable(value) or isinstance(value, property)]
    assert len(methods) <= 18


def test_the_package_has_few_files_on_its_first_floor():
    assert len(list(PACKAGE.glob("*.py"))) <= 12


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
    assert functions <= 122
