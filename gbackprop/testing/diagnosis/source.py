"""Edits of the source of a function: another operator, number, name, factor or term at one place of it.

Most faults are a slip in one expression, and most of what was meant stands elsewhere in the class: the expressions of
its other methods are tried as factors, as terms, and in place of each other.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product, takewhile
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from gbackprop.calculus.state.classes import is_of_library
from gbackprop.quantities import Quantity
from gbackprop.testing.diagnosis.called import codes_in, names_in
from gbackprop.testing.diagnosis.deadline import Deadline
from gbackprop.testing.diagnosis.slips import (
    HOLDERS,
    REDUCTIONS,
    Instead,
    is_helper,
    is_holder,
    of_expression,
    of_statement,
    parsed,
)

Edited = tuple[float, Callable[[], str], FunctionType]
"""The cost of an edit, what gives its words, and the function so edited."""

CHUNK, CHOICE = 100, "__edit__"
"""The edits at one place that are compiled together, and the name of the number that says which one is run."""

AT_ONCE = 2_000
"""The edits that are spelled out at a time."""

LOCAL = {"super", "locals", "vars", "dir"}
"""Functions of the function that they stand in."""

NO_CHOICE = ast.stmt, ast.keyword, ast.Slice
"""Nodes for which no call can stand."""

WHOLE = ast.Tuple, ast.List, ast.Dict, ast.ListComp, ast.Lambda, ast.Return, ast.Assign, ast.AugAssign
"""Nodes whose expressions are terms: factors and further terms are tried there."""

NO_TERMS = ast.Slice, ast.keyword, ast.Tuple, ast.List, ast.Dict, ast.Constant, ast.Starred
"""Nodes that are no terms themselves."""

LONG, ATOM, MOST = 72, 40, 60
"""The most characters of a statement that is shown whole, and of an expression that is taken from elsewhere; the
number of these."""

UNSAFE = {"open", "exec", "eval", "system", "remove", "unlink", "rmtree", "rename", "write", "Popen", "save", "savez"}
"""Names of functions that do more than compute."""

GROWING = "append", "extend", "insert"
"""Methods of lists that put something into them."""

NO_ATOMS = *HOLDERS, "self.parameters"
"""Expressions that are no arrays or numbers."""

FORMS = {"{}": 0.0, "1 - {}": 0.15, "{} ** 2": 0.15, "np.sqrt({})": 0.2, "{} + 1": 0.2, "1 - {} ** 2": 0.25,
         "np.log({})": 0.25, "np.sign({})": 0.25}  # fmt: skip
"""Factors and terms made of an expression, with their cost beside it."""

OF_ARGUMENTS = {"np.sqrt({})": 1.2, "{} ** 2": 1.2, "np.abs({})": 1.3, "-{}": 1.25, "1 / {}": 1.3}
"""Functions of an argument, in its place wherever it stands, with their cost."""

OF_EXPONENTS = {"({}) - 1": 1.0, "({}) + 1": 1.0, "-({})": 1.0, "2 * ({})": 1.1, "({}) / 2": 1.1}
"""Expressions made of an exponent, with their cost."""

AROUND = {"-{}": 1.0, "2 * {}": 1.2, "{} / 2": 1.2, "1 - {}": 1.1, "1 / {}": 1.2, "{} ** 2": 1.2, "np.sqrt({})": 1.2,
          "np.abs({})": 1.2, "np.minimum(1, {})": 1.2, "np.maximum(0, {})": 1.2, "np.exp({})": 1.3, "np.log({})": 1.3,
          "{} + 1": 1.2, "{} - 1": 1.2, "np.swapaxes({}, -1, -2)": 1.2, "np.swapaxes({}, 0, 1)": 1.3,
          "{0} + np.swapaxes({0}, -1, -2)": 1.25, "np.linalg.inv({})": 1.0,
          "{}[..., ::-1]": 1.3, "{}[::-1]": 1.35, "{}[:, ::-1]": 1.35, "np.roll({}, 1, -1)": 1.4,
          "np.roll({}, -1, -1)": 1.4, "{}.sum(1, keepdims=True)": 1.3, "{}.sum(-1, keepdims=True)": 1.3,
          "{}.mean(1, keepdims=True)": 1.35, "{}.mean(-1, keepdims=True)": 1.35}  # fmt: skip
"""Expressions made of a term alone, with their cost."""

OF_SHAPES = "{}[1:]", "{}[2:]", "{}[:-1]", "{}[:1]"
"""Expressions made of a shape, a tuple: no number is added to it, and no function computes with it."""


MEANS = "", "0", "1", "-1, keepdims=True"
"""Arguments of the means of an array in a term that may be missing from it."""


def edits_of(function: FunctionType, owner: Any, end: Deadline | None = None) -> Iterator[Edited]:
    """Yield a function with each edit of its source, the cheapest first; of those that are found before an end.

    Nothing where there is no source, or where an edited function might not end, or do more than compute.
    """
    with suppress(RecursionError):  # a sum of hundreds of terms is a tree as deep
        yield from _edits_of(function, owner, end or Deadline(np.inf))


def _edits_of(function: FunctionType, owner: Any, end: Deadline) -> Iterator[Edited]:
    tree = _tree(function)
    safe = tree is not None and not any(isinstance(node, ast.While) for node in ast.walk(tree))
    if tree is not None and safe and UNSAFE.isdisjoint(names_in(function.__code__)):
        yield from _Edits(function, tree, _atoms(function, tree, owner), owner).made(end)


@dataclass(frozen=True)
class _Place:
    """A node of the tree: in a field of another one, and at an index if that is a list."""

    parent: ast.AST
    field: str
    index: int | None
    is_term: bool

    @property
    def is_exponent(self) -> bool:
        return isinstance(self.parent, ast.BinOp) and isinstance(self.parent.op, ast.Pow) and self.field == "right"

    @property
    def node(self) -> Any:
        value = getattr(self.parent, self.field)
        return value if self.index is None else value[self.index]

    def put(self, node: Any) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


class _Edits:
    """The edits of a function whose tree is changed at one place at a time."""

    def __init__(self, function: FunctionType, tree: ast.FunctionDef, atoms: Sequence[str], owner: Any) -> None:
        self.function, self.tree = function, tree
        own = [kind for kind in type(owner).__mro__ if not is_of_library(kind.__module__)]
        self.methods = [name for kind in own for name, each in vars(kind).items()
                        if isinstance(each, FunctionType) and not name.startswith("__")
                        and _is_safe(each, owner)]  # fmt: skip
        self.owner, self.functions = owner, _functions(function, owner)
        self.atoms = [(text, 0.01 * len(text)) for text in sorted(atoms, key=len)[:MOST]]
        self.module = ast.parse(f"def outer({', '.join(function.__code__.co_freevars)}): pass")
        itself = [] if tree.name in function.__code__.co_freevars else [ast.Global([tree.name])]  # if it is called
        self.module.body[0].body = [*itself, tree]  # type: ignore[attr-defined]
        ast.fix_missing_locations(self.module)
        self.scope = {"np": np, **function.__globals__}
        named = any(isinstance(node, ast.NamedExpr) for node in ast.walk(tree))  # in a lambda, of that alone
        self.alone = named or bool(LOCAL & set(names_in(function.__code__)))

    def made(self, end: Deadline) -> Iterator[Edited]:
        """Yield the edited functions, a number of edits at a time: most are never asked for."""
        seen: dict[_Place, set[str]] = {}  # what stands, or stood, at each place
        ordered = sorted(takewhile(lambda _: not end.passed, self._found()), key=lambda each: each[0])
        for start in range(0, len(ordered), AT_ONCE):
            several = []
            for cost, place, new, stmt in ordered[start : start + AT_ONCE]:
                others = seen.setdefault(place, {_text(place.node)})
                text = _spelled(new)
                if text and text not in others:
                    others.add(text)
                    several.append((cost, place, new, stmt))
            yield from self._ready(several)

    def _ready(self, several: Sequence[tuple[float, _Place, Any, ast.stmt]]) -> Iterator[Edited]:
        """Yield the functions of some edits, of which those at one place are compiled together."""
        waiting: dict[_Place, list[Any]] = {}
        for _, place, new, _ in several:
            waiting.setdefault(place, []).append(new)
        ready: dict[_Place, list[FunctionType | None]] = {}
        for cost, place, new, stmt in several:
            ready[place] = ready.get(place) or self._several(place, waiting[place])
            made = ready[place].pop(0)
            if made is not None:
                yield cost, partial(self._words, place, new, stmt), made

    def _found(self) -> Iterator[tuple[float, _Place, Any, ast.stmt]]:
        """Yield cost, place and what is put there, and the statement that it is in: of expressions, then statements."""
        for stmt in [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and node is not self.tree]:
            grown = _grown(stmt)
            for place in _places(stmt):
                yield from ((cost, place, new, stmt) for cost, new in self._instead(place, grown))
        for body in [each for node in ast.walk(self.tree) for each in _bodies(node)]:
            for i, stmt in enumerate(getattr(*body)):
                yield from ((cost, _Place(*body, i, False), new, stmt) for cost, new in of_statement(stmt))
        begin = _Place(self.tree, "body", 0, False)
        for name, (form, cost) in product(self._given(), OF_ARGUMENTS.items()):
            new = ast.parse(f"if True:\n    {name} = {form.format(name)}").body[0]
            new.body.append(begin.node)  # type: ignore[attr-defined]
            yield cost, begin, new, begin.node

    def _several(self, place: _Place, waiting: list[Any]) -> list[FunctionType | None]:
        """Return the functions of the next edits at a place, taken out of those that wait; None where there is none."""
        many, waiting[:CHUNK] = waiting[:CHUNK], []
        if not isinstance(place.node, NO_CHOICE) and not self.alone:
            code = self._compiled(place, many)
            if code is not None:
                return [self._function(code, number) for number in range(len(many))]
        codes = [self._compiled(place, new) for new in many]
        return [code and self._function(code, 0) for code in codes]

    def _compiled(self, place: _Place, new: Any) -> CodeType | None:
        """Return the code of the function with another node, or a choice of several, at a place; None of no program."""
        node = place.node
        try:
            new = _choice(new) if isinstance(new, list) else parsed(new) if isinstance(new, str) else new
            place.put(ast.fix_missing_locations(ast.copy_location(new, node)))
            outer = compile(self.module, "<edit>", "exec")
        except (SyntaxError, ValueError, TypeError, RecursionError):
            return None
        finally:
            place.put(node)
        return next(each for each in codes_in(outer) if each.co_name == self.tree.name and each.co_firstlineno)

    def _function(self, code: CodeType, number: int) -> FunctionType:
        """Return the function of a code in which the choice of a number is made."""
        cells = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in code.co_freevars)
        scope = {**self.scope, CHOICE: number}
        made = FunctionType(code, scope, self.function.__name__, self.function.__defaults__, closure)
        made.__kwdefaults__ = self.function.__kwdefaults__
        return made

    def _words(self, place: _Place, new: Any, stmt: ast.stmt) -> str:
        """Return what an edit changes: the statement, or of a long one the node alone."""
        before, node = _text(stmt), place.node
        if isinstance(new, ast.If) and new.body[1:] == [stmt]:  # an argument, from the first statement on
            return f"`{ast.unparse(new.body[0]).replace(' = ', '` were `', 1)}`"
        new = parsed(new) if isinstance(new, str) else new
        place.put(new)
        after = _text(place.node if node is stmt else stmt)
        place.put(node)
        if max(len(before), len(after)) > LONG and node is not stmt:
            before, after = _text(node), _text(new)
        return f"`{before}` were `{after}`" if after != "pass" else f"there were no `{before}`"

    def _calls(self, node: ast.Call) -> Iterator[Instead]:
        """Yield calls of another method of the owner, and sums with weights by an array of the function."""
        func = node.func
        if not isinstance(func, ast.Attribute):
            return
        if isinstance(func.value, ast.Name) and func.value.id == "self":
            others = (ast.Attribute(func.value, name, func.ctx) for name in self.methods if name != func.attr)
            yield from ((1.1, ast.Call(other, node.args, node.keywords)) for other in others)
        if func.attr in ("sum", "mean"):
            given = ", ".join(ast.unparse(each) for each in (*node.args, *node.keywords))
            names = {each.id for each in ast.walk(self.tree) if isinstance(each, ast.Name)}
            arrays = sorted((names | {each.arg for each in self.tree.args.args[1:]}) - {"self", *self.scope})
            arrays += [text for text, _ in self.atoms if _is_option(text) and "self" in names]
            yield from ((1.3, f"({name} * ({ast.unparse(func.value)})).sum({given})") for name in arrays)

    def _functions_of(self, node: ast.expr) -> Iterator[Instead]:
        """Yield the user's own functions of what stands there, alone or with another expression, and methods of it."""
        text = ast.unparse(node)
        for name in self.methods:
            method = getattr(self.owner, name, None)
            if name != self.tree.name and getattr(getattr(method, "__code__", None), "co_argcount", 0) == 2:
                yield 1.2, f"self.{name}({text})"
        for name, count in self.functions.items():
            if count == 1:
                yield 1.2, f"{name}({text})"
            yield from ((1.3 + cost, f"{name}({text}, {atom})") for atom, cost in self.atoms if count == 2)

    def _holds(self, node: ast.AST) -> bool:
        """Return whether a node is the name of an object or a module, of which attributes are read."""
        name = getattr(node, "id", "")
        is_local = name in self.function.__code__.co_varnames
        return is_holder(node) or (not is_local and isinstance(self.scope.get(name), ModuleType))

    @cached_property
    def unread(self) -> list[str]:
        """The names of the function that it gives values to and never reads."""
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and node.id[:1] != "_"]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        return sorted({node.id for node in names} - read)

    def _given(self) -> list[str]:
        """Return the arguments that are read as they are."""
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        return [arg.arg for arg in self.tree.args.args if arg.arg in read and arg.arg != "self"]

    def _instead(self, place: _Place, grown: Set[str]) -> Iterator[Instead]:
        """Yield what may stand at a place, but for the names of lists that would become parts of themselves."""
        node = place.node
        if self._holds(node):
            return
        if _is_shape(node):
            yield from ((0.9, form.format(ast.unparse(node))) for form in OF_SHAPES)
            if isinstance(node, ast.Subscript):
                yield 1.1, node.value
            return
        yield from of_expression(node)
        if isinstance(node, ast.Call):
            yield from self._calls(node)
        if place.is_exponent:
            yield from ((cost, form.format(ast.unparse(node))) for form, cost in OF_EXPONENTS.items())
        is_number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        makes = isinstance(node, ast.Call) and isinstance(self.scope.get(getattr(node.func, "id", "")), type)
        is_call = isinstance(node, ast.Call) and not makes  # what makes an object is taken for no array
        is_name = isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)
        if is_number or is_call or is_name:
            begin = 1.0 if is_number or is_call else 0.9
            plain = lambda text: is_number and (place.is_exponent or not _is_option(text))  # noqa: E731
            atoms = [each for each in self.atoms if each[0] not in grown]
            yield from ((begin + cost + 0.3 * plain(text), text) for text, cost in atoms)
            yield from self._functions_of(node)
        text = f"({ast.unparse(node)})"
        for name, (atom, cost) in product(self.unread if place.is_term or is_name else (), self.atoms):
            yield from ((1.1 + cost, f"({text} {op} {name} * {atom})") for op in "-+")
        if not place.is_term:
            return
        yield from ((cost, form.format(text)) for form, cost in AROUND.items())
        for atom, cost in self.atoms:
            for form, more in FORMS.items():
                factor = f"({form.format(f'({atom})')})"
                yield 1 + cost + more, f"{text} * {factor}"
                yield 1.05 + cost + more, f"{text} / {factor}"
                if more < 0.25 or more == FORMS["np.log({})"]:
                    yield 1.25 + cost + more, f"{text} + {factor}"
                    yield 1.3 + cost + more, f"{text} - {factor}"
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not self._holds(each)}
        for name in sorted(names):
            yield from ((1.45, f"{text} {op} {name}.mean({axes})") for op in "-+" for axes in MEANS)
            for atom, cost in self.atoms:
                other = re.sub(rf"(?<![.\w]){name}\b", lambda _, a=atom: f"({a})", text)  # which may have backslashes
                if other != text:
                    yield 1.5 + cost, f"{text} + {other}"


# ------------------------------------------------------------------------------------------------------------- the tree


def _tree(function: FunctionType) -> ast.FunctionDef | None:
    """Return the tree of a function, a lambda as a function that returns its value; None where there is no source."""
    try:
        module = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    if function.__name__ == "<lambda>":
        found = [node for node in ast.walk(module) if isinstance(node, ast.Lambda)]
        if len(found) != 1:
            return None
        module = ast.parse("def _lambda(): return 0")
        module.body[0].args, module.body[0].body[0].value = found[0].args, found[0].body  # type: ignore[attr-defined]
    tree = next((node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)), None)
    if tree is None or tree.name not in (function.__name__, "_lambda"):
        return None
    tree.decorator_list, tree.returns = [], None
    for each in ast.walk(tree.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    if tree.body and isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant):
        tree.body[:1] = [] if len(tree.body) > 1 else [ast.Pass()]
    return tree


def _places(stmt: ast.stmt) -> Iterator[_Place]:
    """Yield the places of expressions in a statement, but for those of statements in it and of what is assigned to."""
    waiting: list[tuple[ast.AST, str, int | None, bool]] = []

    def children(node: ast.AST, of_term: bool) -> None:
        for field, value in ast.iter_fields(node):
            is_method = isinstance(node, ast.Call) and field == "func" and isinstance(value, ast.Attribute)
            if is_method and value.attr not in GROWING:
                waiting.append((value, "value", None, value.attr in REDUCTIONS))  # a sum has terms, too
            if field in ("targets", "target", "func") or (field == "test" and isinstance(node, ast.While)):
                continue
            for i, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(each, ast.expr | ast.Slice | ast.keyword) and not _is_dtype(node, each):
                    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
                    is_whole = isinstance(node, WHOLE) or field in ("args", "lower", "upper", "step")
                    is_term = (is_sum or is_whole) and not isinstance(each, NO_TERMS)
                    waiting.append((node, field, i, of_term and is_term))

    children(stmt, True)
    while waiting:
        parent, field, index, is_term = waiting.pop()
        place = _Place(parent, field, index, is_term)
        yield place
        children(place.node, True)


def _grown(stmt: ast.stmt) -> set[str]:
    """Return the names of what a statement puts something into: of a list in itself NumPy makes endless arrays."""
    targets = [*getattr(stmt, "targets", []), getattr(stmt, "target", None)]
    into = [each.value for each in targets if isinstance(each, ast.Subscript)]
    into += [each for each in targets if isinstance(stmt, ast.AugAssign)]
    into += [each.value for each in ast.walk(stmt) if isinstance(each, ast.Attribute) and each.attr in GROWING]
    return {ast.unparse(each) for each in into}


def _is_shape(node: ast.AST) -> bool:
    """Return whether a node is the shape of an array, or a part of it that is a tuple."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _is_dtype(parent: ast.AST, node: ast.AST) -> bool:
    """Return whether an expression says of which dtype an array is made."""
    of_method = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "astype"
    return (of_method and node in parent.args) or (isinstance(node, ast.keyword) and node.arg == "dtype")  # type: ignore


def _bodies(node: ast.AST) -> list[tuple[ast.AST, str]]:
    return [(node, field) for field in ("body", "orelse") if isinstance(getattr(node, field, None), list)]


def _choice(nodes: Sequence[Any]) -> ast.expr:
    """Return the expression that has the value of one of some nodes, or texts: that of the number `CHOICE`."""
    chosen = parsed(f"({''.join(f'lambda: {each if isinstance(each, str) else 0}, ' for each in nodes)})[{CHOICE}]()")
    for one, node in zip(chosen.func.value.elts, nodes, strict=True):
        one.body = one.body if isinstance(node, str) else node
    return chosen


def _spelled(new: Any) -> str:
    """Return the text of what may stand at a place."""
    try:
        return new if isinstance(new, str) else ast.unparse(ast.fix_missing_locations(new))
    except (ValueError, TypeError, AttributeError):
        return ""


def _text(node: ast.AST) -> str:
    return ast.unparse(node).split("\n")[0]


# ------------------------------------------------------------------------------------------------------------ the atoms


def _atoms(function: FunctionType, tree: ast.FunctionDef, owner: Any) -> list[str]:
    """Return expressions that may be meant: names in a function, what methods of the class use, and attributes."""
    given = [arg.arg for arg in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]
    own = [name for name, value in vars(owner).items() if _is_number(value) and not name.startswith("_")]
    found = dict.fromkeys([*(f"self.{name}" for name in own if given[:1] == ["self"])])
    found.update(dict.fromkeys(f"self.parameters[{name!r}]" for name in getattr(owner, "parameters", {})))
    local = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known = {*given, *local, *function.__globals__, *vars(builtins)}

    @cache
    def safe(name: str) -> bool:
        values = function.__globals__.get(name), getattr(owner, name, None)
        called = [getattr(value, "__func__", value) for value in values]
        ours = [each for each in called if isinstance(each, FunctionType) and not is_of_library(each.__module__)]
        return all(_is_safe(each, owner) for each in ours)

    trees = [tree]
    for kind in type(owner).__mro__:
        if kind.__module__ == function.__module__:
            methods = [getattr(each, "fget", each) for each in vars(kind).values()]
            trees += [each for f in methods if isinstance(f, FunctionType) and (each := _tree(f)) is not None]
    for each in trees:
        called = {id(node.func) for node in ast.walk(each) if isinstance(node, ast.Call)}
        for node in ast.walk(each):
            is_value = isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp | ast.Compare)
            if is_value and id(node) not in called and UNSAFE.isdisjoint(_names(node)):
                names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                text = ast.unparse(node)
                if _is_shape(node) or not all(safe(name) for name in _names(node)):
                    continue
                if isinstance(node, ast.Call) and is_helper(node) and not names <= known:  # of another method
                    found.update(dict.fromkeys(f"{ast.unparse(node.func)}({name})" for name in given[1:]))
                if names <= known and names - set(function.__globals__) - set(vars(builtins)) and len(text) <= ATOM:
                    found.setdefault(text)
    if isinstance(owner, Quantity):
        found.update(dict.fromkeys(f"scale.{name}" for name in ("batch", "factor") if "scale" in given))
    unpacked = {ast.unparse(node.value) for node in ast.walk(tree)
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)}  # fmt: skip
    found.update(dict.fromkeys(f"len({name})" for name in given[1:] if name not in unpacked))
    found.update(dict.fromkeys(f"{name}.shape[-1]" for name in given[1:]))
    return [text for text in found if text not in NO_ATOMS and not text.endswith("dtype")]


def _is_safe(function: FunctionType, owner: Any) -> bool:
    """Return whether a function, and all of the user's that it calls, ends and does no more than compute."""
    waiting = [function]
    for each in waiting:  # which grows
        names, tree = set(names_in(each.__code__)), _tree(each)
        if tree is None or not UNSAFE.isdisjoint(names) or any(isinstance(node, ast.While) for node in ast.walk(tree)):
            return False
        found = [value for name in sorted(names) for value in (each.__globals__.get(name), getattr(owner, name, None))]
        called = [getattr(value, "__func__", value) for value in found]
        waiting += [new for new in dict.fromkeys(value for value in called if isinstance(value, FunctionType))
                    if new not in waiting and not is_of_library(new.__module__)]  # fmt: skip
    return True


def _functions(function: FunctionType, owner: Any) -> dict[str, int]:
    """Return the functions of a module that methods of its classes call, and it does not, with their arguments."""
    scope = function.__globals__
    kinds = [each for each in scope.values() if isinstance(each, type) and each.__module__ == function.__module__]
    methods = [each for kind in kinds for each in vars(kind).values() if isinstance(each, FunctionType)]
    found = {name for each in methods for name in names_in(each.__code__)} - {*names_in(function.__code__)}
    made = {name: each for name in sorted(found) if isinstance(each := scope.get(name), FunctionType)}
    ours = {name: each for name, each in made.items() if each.__module__ == function.__module__}
    return {name: each.__code__.co_argcount for name, each in ours.items() if _is_safe(each, owner)}


def _names(node: ast.AST) -> set[str]:
    """Return the names of what an expression reads and calls, attributes among them."""
    return {name for part in ast.walk(node) for name in (getattr(part, "id", ""), getattr(part, "attr", ""))}


def _is_option(text: str) -> bool:
    """Return whether an expression is an attribute."""
    owner, _, name = text.partition(".")
    return owner == "self" and name.isidentifier()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.ndarray) and not isinstance(value, bool)
