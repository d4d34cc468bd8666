"""The pages in docs/derivations: their checks run, their quotes are code, and their checks see that code."""

import ast
import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from common import one_in

import gbackprop
from gbackprop.calculus.gram import GRAM
from gbackprop.calculus.jacobian import REDUCTIONS
from gbackprop.engine.forms import FORMS
from gbackprop.engine.registry import JacobianForms

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "derivations"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})

QUOTE = re.compile(r"^`(gbackprop/[\w/]+\.py)`, `([\w.]+)`:\n\n```py\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
CHECK = re.compile(r"^## Check\n\n.+?^```python\n(.*?)^```$(.*)", re.MULTILINE | re.DOTALL)
PRINTS = re.compile(r"\n\nprints\n\n```text\n(.*?)```\n", re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)")


class Quote(NamedTuple):
    """A line that a page quotes, and where it says that it stands."""

    page: Path
    file: str
    function: str
    line: str

    def __str__(self):
        return f"{self.page.stem}: {self.function}"


def quotes_of(page):
    return [Quote(page, *found) for found in QUOTE.findall(page.read_text())]


QUOTES = [quote for page in PAGES for quote in quotes_of(page)]
FUNCTIONS = list({(quote.page, quote.file, quote.function): quote for quote in QUOTES}.values())


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@functools.cache
def check_of(page):
    """The compiled check, and what the page says that it prints."""
    code, rest = CHECK.search(page.read_text()).groups()
    said = PRINTS.fullmatch(rest)
    assert said or not rest.strip(), "the check is the end of the page"
    return compile(code, page.name, "exec"), said[1] if said else ""


def run(page):
    """Return what the check prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(check_of(page)[0], {"__name__": "check"})
    return printed.getvalue()


# ------------------------------------------------------------------------------------------------------------ the pages


@each_page
def test_the_check_holds_and_prints_what_the_page_says(page):
    assert traced(page)[0] == check_of(page)[1]


@pytest.mark.parametrize("page", [page for page in PAGES if "gb.reference(" in page.read_text()], ids=lambda p: p.stem)
def test_the_check_holds_for_the_fast_engine(page, monkeypatch):
    monkeypatch.setattr(gbackprop, "reference", gbackprop.backward)
    assert run(page) == check_of(page)[1]


@each_page
def test_the_check_stands_alone(page):
    code = CHECK.search(page.read_text())[1]
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    roots = {name.split(".")[0] for name in names}
    assert {"numpy", "gbackprop"} <= roots <= {"numpy", "gbackprop"} | sys.stdlib_module_names
    assert "assert" in code
    assert not [name for name in names if name.startswith("gbackprop.testing")]  # the oracle is the page's own


@each_page
def test_the_page_is_in_order(page):
    text = page.read_text()
    assert len(text.splitlines()) <= 300
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120
    fences = re.findall(r"^```(\w*)$", text, re.MULTILINE)
    assert fences.count("python") == 1
    assert fences.count("py") == len(quotes_of(page)) > 0  # every quote names its place
    for target in LINK.findall(text):
        assert (FOLDER / target).exists(), target


@each_page
def test_fast_forms_come_after_what_they_are_held_against(page):
    """In sections of their own, which say so."""
    fast = [quote.file.startswith(("gbackprop/engine/", "gbackprop/engine/kernels/")) for quote in quotes_of(page)]
    assert not fast[0]
    for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE):
        if re.search("^`gbackprop/(engine|kernels)/", section, re.MULTILINE):
            assert "fast" in section.splitlines()[0].lower()


def test_the_index_names_every_page():
    text = INDEX.read_text()
    assert {FOLDER / target for target in LINK.findall(text) if not target.startswith("../")} == set(PAGES)


PAPERS = ["batch_grad", "batch_l2_grad", "second_moment", "variance", "diag_ggn", "diag_ggn_mc", "diag_hessian"]
PAPERS += ["kfac", "kflr", "kfra"]
"""The paper's ten quantities."""


def test_every_layer_loss_and_quantity_has_its_page():
    text = {page.stem: page.read_text() for page in PAGES}
    every = "\n".join([*text.values(), INDEX.read_text()])
    layers = gbackprop.layers
    activations = {name for name in layers.__all__ if issubclass(getattr(layers, name), layers.Elementwise)}
    general = {"Layer", "Loss", "ParameterJacobian"} | (activations - {"Elementwise"})  # one page for all activations
    for name in [*layers.__all__, *gbackprop.losses.__all__, "Sequential"]:
        if name not in general:
            assert f"`{name}" in every, name
    for name in PAPERS:
        assert f'`result["{name}"]`' in text[name]


# ----------------------------------------------------------------------------------------------------------- the quotes


@functools.cache
def lines_of(file, function):
    """The lines of a function, or of a class's method, by number and without indentation."""
    source = (ROOT / file).read_text()
    node = ast.parse(source)
    for name in function.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        node = next(child for child in node.body if isinstance(child, kinds) and child.name == name)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return {i: source.splitlines()[i - 1].strip() for i in range(first, node.end_lineno + 1)}


@functools.cache
def traced(page):
    """Return what the check prints, and (file, line number) of each line of the quoted functions that it runs."""
    seen, before, spans = set(), sys.gettrace(), {}
    for quote in quotes_of(page):
        spans.setdefault(file_of(quote), []).append(lines_of(quote.file, quote.function))

    def trace(frame, event, _):
        file, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
        if event == "line":
            seen.add((file, frame.f_lineno))
        return trace if file in spans and any(first in lines for lines in spans[file]) else None

    sys.settrace(trace)
    try:
        return run(page), seen
    finally:
        sys.settrace(before)


def file_of(quote):
    return importlib.import_module(quote.file.removesuffix(".py").replace("/", ".")).__file__


@pytest.mark.parametrize("quote", QUOTES, ids=str)
def test_the_quoted_line_is_in_the_named_function_and_the_check_runs_it(quote):
    lines = lines_of(quote.file, quote.function)
    assert quote.line in lines.values()
    seen = traced(quote.page)[1]
    assert any((file_of(quote), i) in seen for i, line in lines.items() if line == quote.line)


def spoiled(value):
    """The same, with every array of numbers one percent larger and every mask turned round."""
    if isinstance(value, np.ndarray):
        return ~value if value.dtype == bool else value + 1 if value.dtype.kind in "iu" else value * 1.01
    if isinstance(value, float):
        return value * 1.01
    if isinstance(value, Iterator):
        return map(spoiled, value)
    if isinstance(value, tuple | list):
        return type(value)(map(spoiled, value))
    if isinstance(value, dict):
        return {key: spoiled(part) for key, part in value.items()}
    if dataclasses.is_dataclass(value):
        fields = {field.name: spoiled(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def replace_everywhere(function, wrong, monkeypatch):
    """Put another function wherever the package holds one; returns in how many places.

    Classes share functions and modules import them; reductions hold their formulas, the registry its fast forms.
    """
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "gbackprop"]
    owners = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, type)}
    places = 0
    for owner in [*modules, *owners.values()]:
        for name, value in list(vars(owner).items()):
            getter = isinstance(value, property) and value.fget is function
            if value is function or getter:
                monkeypatch.setattr(owner, name, property(wrong) if getter else wrong)
                places += 1
    reduce = [row.reduce for row in FORMS.values() if isinstance(row, JacobianForms)]
    for table in [*map(vars, FORMS.values()), *reduce, *map(vars, [*REDUCTIONS.values(), GRAM])]:
        for key in [key for key, value in table.items() if value is function]:
            monkeypatch.setitem(table, key, wrong)
            places += 1
    return places


@pytest.mark.parametrize("quote", one_in(2, [(quote,) for quote in FUNCTIONS]), ids=str)
def test_the_check_fails_when_a_quoted_function_is_spoiled(quote, monkeypatch):
    value = importlib.import_module(quote.file.removesuffix(".py").replace("/", "."))
    for name in quote.function.split("."):
        value = vars(value)[name]
    function = value.fget if isinstance(value, property) else value

    @functools.wraps(function)
    def wrong(*args, **kwargs):
        if inspect.signature(function).return_annotation == "None":  # what it writes comes from what it gets
            return function(*map(spoiled, args), **kwargs)
        result = function(*args, **kwargs)
        if isinstance(result, tuple) and {type(part) for part in result} == {int}:  # a shape
            return tuple(part + 1 for part in result)
        return result + 1 if type(result) is int else spoiled(result)

    assert replace_everywhere(function, wrong, monkeypatch)
    with pytest.raises((AssertionError, IndexError)):  # an index can end up beyond its array
        assert run(quote.page) == check_of(quote.page)[1]
