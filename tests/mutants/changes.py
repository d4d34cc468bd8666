"""Small changes of a source file: one operator, constant, condition or statement each."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

PAIRS = (
    (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot), (ast.In, ast.NotIn), (ast.And, ast.Or),
)  # fmt: skip
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    **dict(PAIRS), **{b: a for a, b in PAIRS}, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult
}  # fmt: skip
"""What stands in the place of an operator. `@` and `|` have no neighbour of the same type."""

UNSEEN = {
    *("strict", "copy", "soft_wrap", "highlight", "markup", "figsize", "dpi", "zorder", "lw", "fontsize", "alpha"),
    *("linewidth", "markersize", "markerscale", "shrink", "labelsize", "height_ratios", "width_ratios", "frameon"),
    *("clip_on", "bar_width", "linespacing"),
}
"""Keyword arguments that change no number: `strict` guards `zip` against what no input can bring about, `copy` is about
memory, the others about how text and pictures look."""

LOOKS = {"set_axisbelow", "set_visible", "margins", "axline", "axhline", "grid", "tick_params", "set_bounds"}
"""Methods of matplotlib that draw no data: frames, grids, lines for the eye."""

ROWS = "testing/cases/"
"""Files of tables of cases: numbers and booleans of a row are left as they are, since layers of another size are as
good a case. That rows differ, and that each option is not its default in some row, is what `tests/kit/test_cases.py`
checks. Functions stay in, also those in rows: they are the definitions that results are compared with.

Numbers in Hypothesis's strategies, `st.…(…)` and functions that `draw` from them, are left as they are, too: they
bound the sizes and options that are drawn. That all layers and options are still drawn is what
`tests/kit/test_strategies.py` checks. So are numbers in arguments of NumPy's random numbers, `rng.…(…)`, where checks
draw what a claim is tried at: other samples are as good."""

TRIED = "testing/"
"""Files of checks."""

DROPPED = (ast.Raise, ast.Continue, ast.Break, ast.AugAssign, ast.Delete)


@dataclass(frozen=True)
class Change:
    """One change of one file.

    `line` counts from 1; `source` is that line without its indentation; `what` says what is changed; `inside` whether
    it is in the body of a function, and so runs when that is called; `index` is the place of the changed node in the
    file, and `make` changes it. `near` is the text around it by which tests are found: the smallest expression of
    several lines with it, such as a row of a table, and the name of its function.
    """

    file: str
    line: int
    source: str
    what: str
    inside: bool
    index: int
    make: Callable = field(repr=False, compare=False)
    near: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.what}  in  {self.source}"

    def applied(self, source: str) -> ast.Module:
        """Return the file's tree with this change."""
        tree = ast.parse(source)
        self.make(list(_nodes(tree))[self.index])
        return ast.fix_missing_locations(tree)


def changes(file: str, source: str) -> Iterator[Change]:
    """Yield every change of a file."""
    lines, tree = source.splitlines(), ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(node) for function in functions for part in function.body for node in ast.walk(part)}
    definitions = {id(part) for node in ast.walk(tree) if _is_definition(node) for part in ast.walk(node)}
    drawn = {id(part) for node in ast.walk(tree) if _is_drawn(node, file) for part in ast.walk(node)}
    near = _Near(tree, lines)
    for index, node in enumerate(_nodes(tree)):
        size = id(node) in drawn or (file.startswith(ROWS) and id(node) not in definitions)
        if size and _is_number(node):
            continue
        for what, make in _of_node(node):
            place = (file, node.lineno, lines[node.lineno - 1].strip(), what, id(node) in inside)
            yield Change(*place, index, make, near(node.lineno))


class _Near:
    """The text around a line: of the smallest expression of several lines, and the names of its functions."""

    def __init__(self, tree: ast.AST, lines: list[str]) -> None:
        self.lines, nodes = lines, list(ast.walk(tree))
        self.long = [node for node in nodes if isinstance(node, ast.expr) and node.lineno < node.end_lineno]
        self.functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]

    def __call__(self, line: int) -> str:
        around = [node for node in self.long if node.lineno <= line <= node.end_lineno]
        least = min(around, key=lambda node: node.end_lineno - node.lineno, default=None)
        text = self.lines[least.lineno - 1 : least.end_lineno] if least else [self.lines[line - 1]]
        names = [node.name for node in self.functions if node.lineno <= line <= node.end_lineno]
        return " ".join([*(text if len(text) < 9 else [self.lines[line - 1]]), *names])


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions and statements that run when the program does: no annotations, no decorators.

    Arguments in `UNSEEN` and of calls in `LOOKS` are left as they are.
    """
    if isinstance(tree, ast.keyword) and tree.arg in UNSEEN:
        return
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute) and tree.func.attr in LOOKS:
        return
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            negative = isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.USub)
            if isinstance(child, ast.AST) and not (negative and isinstance(child.operand, ast.Constant)):
                yield from _nodes(child)


def _is_definition(node: ast.AST) -> bool:
    """Return whether a node is a function of something: `lambda: Linear(3, 2)` is not."""
    return isinstance(node, ast.FunctionDef | ast.Lambda) and ast.unparse(node.args) != ""


def _is_drawn(node: ast.AST, file: str) -> bool:
    """Return whether a node is a strategy, a function that makes one, or a draw of random numbers of a check."""
    if isinstance(node, ast.FunctionDef):
        made = ast.unparse(node.returns) if node.returns else ""
        return "SearchStrategy" in made or "draw" in [each.arg for each in node.args.args]
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return called.startswith("st.") or (file.startswith(TRIED) and called.startswith(("rng.", "self.rng.")))


def _is_number(node: ast.AST) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _of_node(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """Yield the changes of one node: what each is, and the function that makes it."""
    match node:
        case ast.BinOp(op=ast.Mult() | ast.Div(), right=ast.Constant(value=1)):
            pass  # times 1.0, which makes floats of booleans, is divided by 1.0
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            other = SWAPPED[type(op)]()
            yield f"{_name(op)} → {_name(other)}", lambda node: setattr(node, "op", other)
        case ast.Compare(ops=[op, *rest]) if type(op) in SWAPPED:
            other = SWAPPED[type(op)]()
            yield f"{_name(op)} → {_name(other)}", lambda node: setattr(node, "ops", [other, *rest])
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            yield f"-{value} → {value}", lambda node: setattr(node, "op", ast.UAdd())
            if _other(-value) != -value:
                yield f"-{value} → {_other(-value)}", lambda node: _positive(node, _other(-value))
        case ast.UnaryOp(op=ast.USub() as op):
            yield f"{_name(op)} dropped", lambda node: setattr(node, "op", ast.UAdd())
        case ast.UnaryOp(op=ast.Not() as op):  # `not x` becomes `bool(x)`: not (not x)
            yield f"{_name(op)} dropped", lambda node: setattr(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        case ast.Constant(value=bool() | int() | float() as value):
            yield f"{value} → {_other(value)}", lambda node: setattr(node, "value", _other(value))
        case ast.If() | ast.While() | ast.IfExp():
            yield f"condition of {type(node).__name__.lower()} inverted", _invert
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name in LOOKS:
            return
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement dropped", _drop
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            pass  # the body of a method that every class has for itself
        case ast.stmt() if isinstance(node, DROPPED):
            yield "statement dropped", _drop
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) and node.generators[0].ifs:
        yield "condition of comprehension inverted", _invert_filter


def _name(op: ast.AST) -> str:
    return type(op).__name__


def _other(value: bool | int | float) -> bool | int | float:
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value + 1


def _positive(node, value) -> None:
    node.op, node.operand = ast.UAdd(), ast.Constant(value)


def _invert(node) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _invert_filter(node) -> None:
    node.generators[0].ifs[0] = ast.UnaryOp(ast.Not(), node.generators[0].ifs[0])


def _drop(node) -> None:
    """Make a statement one that does nothing, where it stands."""
    place = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    node.__class__ = ast.Pass
    node.__dict__.clear()
    node.__dict__.update(place)
