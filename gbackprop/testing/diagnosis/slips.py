"""Expressions and statements that one may be taken for, by its kind: the grammar of edits of a source."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, permutations
from typing import Any

LOAD = ast.Load()

Instead = tuple[float, Any]
"""A node, or its text, in place of another one, with the cost."""

REDUCTIONS = "sum", "mean", "max", "min", "prod"
"""Methods of arrays that may be of all axes but the samples'."""

FUNCTIONS = (("sum", "mean"), ("max", "min"), ("maximum", "minimum"), ("exp", "log", "expm1", "log1p"), ("sin", "cos"),
             ("tanh", "sinh", "cosh"), ("sqrt", "square", "abs"), ("zeros", "ones"), ("zeros_like", "ones_like"),
             ("argmax", "argmin"), ("triu", "tril"), ("std", "var"), ("floor", "ceil", "rint"), ("sort", "argsort"),
             ("cumsum", "cumprod"), ("softmax", "log_softmax"), ("erf", "erfc"), ("gammaln", "digamma"),
             ("dot", "outer", "multiply"))  # fmt: skip
"""Functions that are taken for each other."""

HOLDERS = "self", "cls", "np", "xp"
"""Usual names of objects and modules, of which attributes are read: no arrays."""

TRANSPOSED = "({}).T"

SHORT = 4
"""The most axes of a result of which all orders are tried, and not only those with two exchanged."""

AXES = "0", "1", "-1", "-2", "2", "None", "(0, 1)", "(1, 2)", "(-2, -1)"
"""Values of an argument ``axis``."""

SWAPPED: dict[type[ast.AST], tuple[type[Any], ...]] = {
    ast.Add: (ast.Sub, ast.Mult), ast.Sub: (ast.Add,), ast.Mult: (ast.Div, ast.Add, ast.MatMult),
    ast.MatMult: (ast.Mult,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult, ast.Mod), ast.Mod: (ast.FloorDiv,), ast.Pow: (ast.Mult,),
    ast.Lt: (ast.GtE, ast.LtE), ast.LtE: (ast.Gt, ast.Lt), ast.Gt: (ast.LtE, ast.GtE), ast.GtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
}  # fmt: skip
"""Operators and comparisons that are taken for each other."""


def of_expression(node: Any) -> Iterator[Instead]:
    """Yield what a node may be taken for, by its kind."""
    if is_holder(node):
        return
    if isinstance(node, ast.Name | ast.Attribute | ast.Call) and isinstance(getattr(node, "ctx", LOAD), ast.Load):
        yield from ((1.15, f"({ast.unparse(node)}){index}") for index in ("[:, None]", "[..., None]"))
    if isinstance(node, ast.BinOp):
        yield from ((1.0, ast.BinOp(node.left, other(), node.right)) for other in SWAPPED.get(type(node.op), ()))
        if isinstance(node.left, ast.Constant) and node.left.value == 2 and isinstance(node.op, ast.Mult):
            right = f"({ast.unparse(node.right)})"
            yield 1.15, f"({right} + {right}.swapaxes(-1, -2))"  # a matrix is no symmetric one
        yield from ((0.9, each) for each in (node.left, node.right))
        if not isinstance(node.op, ast.Add | ast.Mult):
            yield 1.0, ast.BinOp(node.right, node.op, node.left)
        if isinstance(node.op, ast.MatMult):
            for cost, form in ((1.0, TRANSPOSED), (1.05, "({}).swapaxes(-1, -2)"), (1.3, "np.linalg.inv({})")):
                yield cost, ast.BinOp(_changed(node.left, form), node.op, node.right)
                yield cost, ast.BinOp(node.left, node.op, _changed(node.right, form))
        if isinstance(node.left, ast.BinOp):
            inner = node.left
            yield 1.0, ast.BinOp(inner.left, inner.op, ast.BinOp(inner.right, node.op, node.right))
        if isinstance(node.right, ast.BinOp):
            inner = node.right
            yield 1.0, ast.BinOp(ast.BinOp(node.left, node.op, inner.left), inner.op, inner.right)
        yield from ((1.0, each) for each in _powers(node))
        for array in (node.left, node.right):
            if isinstance(array, ast.Subscript):
                sides = [each.value if each is array else each for each in (node.left, node.right)]
                yield 1.0, ast.Subscript(ast.BinOp(sides[0], node.op, sides[1]), array.slice, LOAD)
                if isinstance(node.op, ast.Mult):  # n times one of them is no sum
                    yield from ((cost + 0.15, each) for cost, each in _summed(array))
        yield from ((1.1, each) for each in _names_exchanged(node))
        if isinstance(node.right, ast.Call):
            yield from ((1.0, each) for each in _into(node.right, lambda inner: ast.BinOp(node.left, node.op, inner)))
        if isinstance(node.left, ast.Call):
            yield from ((1.0, each) for each in _into(node.left, lambda inner: ast.BinOp(inner, node.op, node.right)))
            if isinstance(node.op, ast.Pow):
                yield from ((1.05, each) for i in (0, 1) for each in _into(node.left, partial(_raised, node.right, i)))
            if isinstance(node.right, ast.Call):
                yield from ((1.0, each) for each in _joined(node.left, node.op, node.right))
    elif isinstance(node, ast.UnaryOp):
        yield 0.9, node.operand
    elif isinstance(node, ast.Constant):
        yield from ((0.95, text) for text in _constants(node.value))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        others = SWAPPED.get(type(node.ops[0]), ())
        yield from ((1.0, ast.Compare(node.left, [other()], node.comparators)) for other in others)
    elif isinstance(node, ast.IfExp):
        yield 1.0, ast.IfExp(node.test, node.orelse, node.body)
        yield from ((1.0, each) for each in (node.body, node.orelse))
    elif isinstance(node, ast.Tuple | ast.List):
        yield from ((1.0, type(node)(each, node.ctx)) for each in _exchanged(node.elts))
        if any(isinstance(each, ast.Slice) for each in node.elts):  # an index
            whole = ast.Slice(None, None, None)
            for i in range(len(node.elts) + 1):
                yield 1.15, ast.Tuple([*node.elts[:i], whole, *node.elts[i:]], node.ctx)
                yield 1.15, ast.Tuple([*node.elts[:i], *node.elts[i + 1 :]], node.ctx)
    elif isinstance(node, ast.Dict):
        yield from ((1.0, ast.Dict(node.keys, each)) for each in _exchanged(node.values))
    elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield 1.0, node.value
        yield 1.1, _changed(node.value, "np.linalg.inv({})")
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield 1.1, ast.BinOp(node, ast.Pow(), ast.Constant(2))
    elif isinstance(node, ast.Slice):
        yield 1.1, ast.Slice(None, None, None)
        if (node.lower is None) != (node.upper is None) and node.step is None:  # all but the first, or but the last
            end: Any = node.lower or node.upper
            end = end.operand if isinstance(end, ast.UnaryOp) else ast.UnaryOp(ast.USub(), end)
            yield 1.1, ast.Slice(end, None) if node.lower is None else ast.Slice(None, end)
        if node.lower is not None and node.upper is not None:
            for op in (ast.Sub(), ast.Add()):
                lower, upper = (ast.BinOp(each, op, ast.Constant(1)) for each in (node.lower, node.upper))
                yield 1.1, ast.Slice(lower, upper, node.step)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield 1.1, node.value
        yield from _summed(node)
        if isinstance(of := node.value, ast.BinOp):
            yield 1.0, ast.BinOp(ast.Subscript(of.left, node.slice, LOAD), of.op, of.right)
            yield 1.0, ast.BinOp(of.left, of.op, ast.Subscript(of.right, node.slice, LOAD))
    elif isinstance(node, ast.keyword) and node.arg == "axis":
        yield from ((1.05, ast.keyword("axis", parsed(axis))) for axis in AXES)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def is_holder(node: ast.AST) -> bool:
    """Return whether a node is the name of what holds functions and attributes."""
    return isinstance(node, ast.Name) and node.id in HOLDERS


def is_helper(node: ast.Call) -> bool:
    """Return whether a call is that of a method of the object itself, of one name."""
    return ast.unparse(node.func).startswith("self.") and [*map(type, node.args)] == [ast.Name] and not node.keywords


def _calls(node: ast.Call) -> Iterator[Instead]:
    """Yield other calls: of another function, with other arguments, and what is given."""
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    for other in sorted({other for group in FUNCTIONS if name in group for other in group} - {name}):
        load = ast.Load()
        new = ast.Attribute(func.value, other, load) if isinstance(func, ast.Attribute) else ast.Name(other, load)
        yield 1.0, ast.Call(new, node.args, node.keywords)
    if isinstance(func, ast.Attribute) and name in REDUCTIONS:
        others = (ast.Attribute(func.value, other, ast.Load()) for other in REDUCTIONS)
        yield from ((1.25, ast.Call(other, node.args, node.keywords)) for other in others)
    if name == "range":
        yield 1.0, ast.Call(ast.Name("reversed", ast.Load()), [node], [])
        if len(node.args) == 1:
            yield 1.1, ast.Call(func, [ast.Constant(1), *node.args], [])
    if name in ("cumsum", "cumprod") and len(node.args) == 1 and is_holder(getattr(func, "value", func)):
        axis = next((ast.unparse(each.value) for each in node.keywords if each.arg == "axis"), "None")
        turned = ast.Call(func, [parsed(f"np.flip({ast.unparse(node.args[0])}, {axis})")], node.keywords)
        yield 1.1, f"np.flip({ast.unparse(turned)}, {axis})"  # from the other end
    if name in ("triu", "tril") and len(node.args) == 1:
        yield from ((1.1, ast.Call(func, [*node.args, ast.Constant(k)], [])) for k in (1, -1))
    if isinstance(func, ast.Attribute) and name in REDUCTIONS and (node.args or not is_holder(func.value)):
        array, *given = node.args if is_holder(func.value) else [func.value, *node.args]
        text = ast.unparse(array)
        yield 1.1, f"({text}).{name}(tuple(range(1, ({text}).ndim)))"
        of_axes = ast.Attribute(array, name, LOAD)
        yield from ((1.1, ast.Call(of_axes, [parsed(axis)], node.keywords)) for axis in AXES if len(given) == 1)
        if not given and not any(each.arg == "axis" for each in node.keywords):  # it is over all
            yield from ((1.1, ast.Call(of_axes, [parsed(axis)], node.keywords)) for axis in AXES[:4])
        yield from ((1.15, each) for each in _reshaped(node))
        if all(each.arg != "keepdims" for each in node.keywords):
            keep = ast.keyword("keepdims", ast.Constant(True))
            yield 1.1, ast.Call(func, node.args, [*node.keywords, keep])
    yield from ((0.95, each) for each in node.args[:1] if name != "astype")
    if isinstance(func, ast.Attribute) and not is_holder(func.value):
        yield 0.95, func.value
    yield from ((1.0, each) for each in _out_of(node))
    some = len(node.args) if _numbers(node.args) else 4
    yield from ((1.0, ast.Call(func, each, node.keywords)) for each in _exchanged(node.args[:some], node.args[some:]))
    if name == "transpose" and sorted(axes := _numbers(node.args)) == [*range(len(node.args))]:
        inverse = sorted(axes, key=lambda axis: axes[axis])
        yield 1.05, ast.Call(func, [ast.Constant(axis) for axis in inverse], [])
    if name == "reshape" and isinstance(func, ast.Attribute) and not is_holder(func.value):
        yield 1.1, _changed(func.value, "({}).swapaxes(-1, -2)")
    if isinstance(func, ast.Attribute) and ast.unparse(func.value) == "self" and not node.keywords:  # one is forgotten
        yield from ((1.1, ast.Call(func, [*node.args, ast.Constant(k)], [])) for k in (1, 0, 2, -1))
    for i in range(len(node.keywords)):
        yield 1.1, ast.Call(func, node.args, node.keywords[:i] + node.keywords[i + 1 :])


def _numbers(nodes: Sequence[ast.expr]) -> list[int]:
    """Return the integers of some nodes, if all of them are."""
    found = [each.value for each in nodes if isinstance(each, ast.Constant) and type(each.value) is int]
    return found if len(found) == len(nodes) else []


def _summed(node: ast.Subscript) -> Iterator[Instead]:
    """Yield the sum and the mean over an axis of which a node is one entry."""
    index, axis = node.slice, 0
    if isinstance(index, ast.Tuple) and len(index.elts) == 2 and ast.unparse(index.elts[0]) == "...":
        index, axis = index.elts[1], -1
    if _numbers([index]):
        yield from ((1.15, f"({ast.unparse(node.value)}).{name}({axis})") for name in ("sum", "mean"))


def _names_exchanged(node: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression with two names exchanged, each of which it has once."""
    every = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id not in HOLDERS]
    for one, other in combinations([name for name in dict.fromkeys(every) if every.count(name) == 1], 2):
        new, names = copy.deepcopy(node), {one: other, other: one}
        for each in ast.walk(new):
            if isinstance(each, ast.Name):
                each.id = names.get(each.id, each.id)
        yield new


def _reshaped(call: ast.Call) -> Iterator[ast.Call]:
    """Yield a reduction of an array that is reshaped to the same axes in another order, over those that it was over."""
    inner, over = call.func.value, call.args[:1]  # type: ignore[attr-defined]
    is_reshape = isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "reshape"
    if not is_reshape or is_holder(inner.func.value) or not inner.args or not over:
        return
    sizes = inner.args[0].elts if isinstance(inner.args[0], ast.Tuple) else inner.args
    numbers = over[0].elts if isinstance(over[0], ast.Tuple) else over
    axes = [each.value for each in numbers if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    if len(sizes) > SHORT or len(axes) < len(numbers) or not all(0 <= axis < len(sizes) for axis in axes):
        return
    for order in list(permutations(range(len(sizes))))[1:]:
        array = ast.Call(inner.func, [sizes[i] for i in order], inner.keywords)
        places = sorted(order.index(axis) for axis in axes)
        new = parsed(str(places[0] if len(places) == 1 else tuple(places)))
        yield ast.Call(ast.Attribute(array, call.func.attr, LOAD), [new, *call.args[1:]], call.keywords)  # type: ignore


def _is_function(node: ast.expr) -> bool:
    """Return whether what is called is a function, and no method of an array or object."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and is_holder(node.value)
                                          and ast.unparse(node.value) not in ("self", "cls"))  # fmt: skip


def _powers(node: ast.BinOp) -> Iterator[ast.BinOp]:
    """Yield the power of a sum or product for that of its first or last part alone, and the reverse."""
    for i, part in enumerate((node.left, node.right)):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow) and not isinstance(node.op, ast.Pow):
            sides = (part.left, node.right) if i == 0 else (node.left, part.left)
            yield ast.BinOp(ast.BinOp(sides[0], node.op, sides[1]), part.op, part.right)
    if isinstance(node.op, ast.Pow) and isinstance(of := node.left, ast.BinOp):
        one, other = (ast.BinOp(each, node.op, node.right) for each in (of.left, of.right))
        yield from (ast.BinOp(*each) for each in ((one, of.op, of.right), (one, of.op, other)))


def _raised(power: ast.expr, i: int, of: ast.expr) -> ast.expr:
    """Return a product with its first or last factor raised to a power; what is none with its whole."""
    if not isinstance(of, ast.BinOp) or not isinstance(of.op, ast.Mult):
        return ast.BinOp(of, ast.Pow(), power)
    sides = [ast.BinOp(each, ast.Pow(), power) if k == i else each for k, each in enumerate((of.left, of.right))]
    return ast.BinOp(sides[0], of.op, sides[1])


def _out_of(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the operation on what is given, or on the array whose method it is, as one on the call's result."""
    func = call.func
    if call.args and isinstance(given := call.args[0], ast.BinOp):
        one, other = (ast.Call(func, [each, *call.args[1:]], call.keywords) for each in (given.left, given.right))
        pairs = (one, given.right), (one, other), (given.left, other)
        yield from (ast.BinOp(left, given.op, right) for left, right in pairs)
    inner = call.args[0] if len(call.args) == 1 else None
    if isinstance(inner, ast.Call) and len(inner.args) == 1 and all(map(_is_function, (func, inner.func))):
        yield ast.Call(inner.func, [ast.Call(func, inner.args, [])], [])  # f(g(x)) for g(f(x))
    if isinstance(func, ast.Attribute) and isinstance(of := func.value, ast.BinOp):
        new = ast.Call(ast.Attribute(of.left, func.attr, ast.Load()), call.args, call.keywords)
        yield ast.BinOp(new, of.op, of.right)


def _into(call: ast.Call, change: Callable[[Any], ast.expr]) -> Iterator[ast.Call]:
    """Yield a call of what is changed: of its first argument, and of the array whose method it is."""
    if call.args and getattr(call.func, "attr", "") != "astype":
        yield ast.Call(call.func, [change(call.args[0]), *call.args[1:]], call.keywords)
    if isinstance(call.func, ast.Attribute):
        inner = ast.Attribute(change(call.func.value), call.func.attr, ast.Load())
        yield ast.Call(inner, call.args, call.keywords)


def _joined(one: ast.Call, op: ast.operator, other: ast.Call) -> Iterator[ast.Call]:
    """Yield a function of what an operation makes of two things, for the operation on the function of each."""
    same = ast.unparse(one.func) == ast.unparse(other.func) and len(one.args) == len(other.args)
    if same and one.args:
        yield ast.Call(one.func, [ast.BinOp(one.args[0], op, other.args[0]), *one.args[1:]], one.keywords)
    arrays = {id(each): func.value for each in (one, other) if isinstance(func := each.func, ast.Attribute)
              and func.attr in ("sum", "mean") and not is_holder(func.value)}  # fmt: skip
    if len({getattr(each.func, "attr", "") for each in (one, other)}) == 1 and len(arrays) == 2:
        few, many = (one, other) if len(one.args) <= len(other.args) else (other, one)
        name = getattr(many.func, "attr", "")
        for index in ("", "[:, None]"):  # a mean of products for a product of means
            array = ast.BinOp(parsed(f"({ast.unparse(arrays[id(few)])}){index}"), op, arrays[id(many)])
            yield ast.Call(ast.Attribute(array, name, LOAD), many.args, many.keywords)


def of_statement(stmt: ast.stmt) -> Iterator[Instead]:
    """Yield statements in place of another one."""
    if isinstance(stmt, ast.AugAssign):
        yield from ((1.0, ast.AugAssign(stmt.target, op(), stmt.value)) for op in SWAPPED.get(type(stmt.op), ()))
        yield 1.0, ast.Assign([stmt.target], stmt.value)
    elif isinstance(stmt, ast.Assign) and isinstance(names := stmt.targets[0], ast.Tuple):
        yield from ((1.0, ast.Assign([ast.Tuple(each, names.ctx)], stmt.value)) for each in _exchanged(names.elts))
    elif isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Subscript):
        yield 1.0, ast.AugAssign(stmt.targets[0], ast.Add(), stmt.value)
    if isinstance(stmt, ast.AugAssign | ast.Assign | ast.Expr | ast.If):
        yield 1.1, ast.Pass()


def _constants(value: Any) -> Iterator[str]:
    """Yield other numbers, truth values, and letters of `numpy.einsum`."""
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int | float):
        yield from (f"({other})" for other in dict.fromkeys([-value, value + 1, value - 1, 2 * value, value / 2, 0, 1]))
    elif isinstance(value, str) and "->" in value:
        parts = value.replace("->", ",").split(",")
        for k, part in enumerate(parts):
            several = permutations(part) if k == len(parts) - 1 and len(part) <= SHORT else _exchanged(list(part))
            exchanged = ("".join(each) for each in several)
            letters = sorted(set("".join(parts)))
            others = [part[:i] + letter + part[i + 1 :] for i in range(len(part)) for letter in letters]
            for new in (*exchanged, *others):
                *given, result = [*parts[:k], new, *parts[k + 1 :]]
                yield repr(f"{','.join(given)}->{result}")


def _changed(node: ast.expr, form: str) -> ast.expr:
    """Return the expression that a form makes of another one."""
    if form == TRANSPOSED and isinstance(node, ast.Attribute) and node.attr == "T":
        return node.value
    return parsed(form.format(ast.unparse(node)))


def parsed(text: str) -> Any:
    """Return the node of an expression."""
    return ast.parse(text, mode="eval").body


def _exchanged(nodes: list[Any], rest: Sequence[Any] = ()) -> Iterator[list[Any]]:
    """Yield lists with two nodes exchanged."""
    for i, j in combinations(range(len(nodes)), 2):
        new = list(nodes)
        new[i], new[j] = new[j], new[i]
        yield [*new, *rest]
