"""Recorded steps as the source of a Python function, with NumPy as its only import."""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gbackprop.base.recording.tape import Ref, Tape, TapeStep, refs

WIDTH = 100
"""Most columns of a line."""

DEPTH = 3
"""Most operations in an expression."""

LITERAL = 12
"""Most numbers of an array that is written out; a larger one is in the file of constants."""

INFIX: dict[str, ast.operator] = {
    "add": ast.Add(), "subtract": ast.Sub(), "multiply": ast.Mult(), "divide": ast.Div(), "power": ast.Pow(),
    "matmul": ast.MatMult(), "floor_divide": ast.FloorDiv(), "remainder": ast.Mod(), "bitwise_and": ast.BitAnd(),
    "bitwise_or": ast.BitOr(), "bitwise_xor": ast.BitXor(),
}  # fmt: skip

COMPARED: dict[str, ast.cmpop] = {
    "less": ast.Lt(), "less_equal": ast.LtE(), "greater": ast.Gt(), "greater_equal": ast.GtE(), "equal": ast.Eq(),
    "not_equal": ast.NotEq(),
}  # fmt: skip

PREFIX: dict[str, ast.unaryop] = {"negative": ast.USub(), "invert": ast.Invert()}

METHODS = ("reshape", "transpose", "swapaxes", "sum", "mean", "max", "min", "astype", "argmax", "cumsum", "prod")
"""Functions of NumPy that are written as methods of their first argument."""


class Expressions:
    """The values of steps as expressions: names, and what is used once as part of the line that uses it.

    Parameters
    ----------
    tape : Tape
    steps : sequence of TapeStep
    names : mapping of int to str
        The names of values that have one.
    wanted : iterable of int
        Results, which are used by whoever calls the program.
    inline : bool
        Whether values that are used once are written where they are used.
    functional : bool
        Whether assignments to parts of an array are functions of whole arrays.

    Attributes
    ----------
    constants : dict of str to ndarray
        The arrays that the program takes beside its inputs.
    imports : set of str
        Modules besides NumPy.
    """

    def __init__(
        self, tape: Tape, steps: Sequence[TapeStep], names: Mapping[int, str], wanted: Iterable[int], inline: bool,
        functional: bool = False,
    ) -> None:  # fmt: skip
        self.tape, self.steps, self.inline = tape, steps, inline
        self.constants: dict[str, np.ndarray] = {}
        self.imports: set[str] = set()
        self.wanted, self.functional = frozenset(wanted), functional
        self.makers = {number: step for step in steps for number in step.results}
        self.users: dict[int, list[TapeStep]] = defaultdict(list)
        for step in steps:
            for number in refs((step.args, step.kwargs)):
                self.users[number].append(step)
        self.named, self.taken = dict(names), Counter[str]()
        self.known: dict[int, tuple[ast.expr, int]] = {}  # the expression of each value, and its operations
        self.count = 0

    def lines(self) -> Iterator[tuple[Any, str, tuple[int, ...]]]:
        """Yield the section of each statement, its text, and the numbers of its results."""
        for step in self.steps:
            if step.name == "leaf":
                number = step.results[0]
                self._name(number)
                continue
            if step.name == "setitem" and not self.functional:
                for text in self._assignment(step):
                    yield step.section, text, tuple(step.results)
                continue
            value, depth = self._expression(step)
            number = step.results[0]
            if len(step.results) == 1 and self._goes_inside(step, value, depth):
                self.known[number] = value, depth
                continue
            targets = ", ".join(self._name(each) for each in step.results)
            yield step.section, f"{targets} = {ast.unparse(value)}", tuple(step.results)

    def is_used(self, number: int) -> bool:
        """Return whether a value is an argument of a step, or a result."""
        return bool(self.users[number]) or number in self.wanted

    def name(self, number: int) -> str:
        """Return the text of a value."""
        return ast.unparse(self.known[number][0])

    # ------------------------------------------------------------------------------------------------------- names

    def _name(self, number: int) -> str:
        """Give a value its name, which no other has."""
        name = self.named.get(number)
        if name is None:
            self.count += 1
            name = f"t{self.count}"
        name = identifier(name)
        self.taken[name] += 1
        if self.taken[name] > 1:
            name = f"{name}_{self.taken[name]}"
            self.taken[name] += 1
        self.known[number] = ast.Name(name), 0
        return name

    def _goes_inside(self, step: TapeStep, value: ast.expr, depth: int) -> bool:
        """Return whether a value is written where it is used: it is, if it is used once, nearby, and short."""
        number = step.results[0]
        if step.name == "constant" or (not refs((step.args, step.kwargs)) and depth <= 1):
            return len(ast.unparse(value)) < WIDTH // 2
        users = self.users[number]
        if not self.inline or number in self.named or number in self.wanted or len(users) != 1 or depth > DEPTH:
            return False
        return users[0].section == step.section and len(ast.unparse(value)) < WIDTH * 2 // 3

    # ------------------------------------------------------------------------------------------------- expressions

    def _expression(self, step: TapeStep) -> tuple[ast.expr, int]:
        """Return a step's value as an expression, and the number of its operations."""
        if step.name == "constant":
            return self._constant(self.tape.values[step.results[0]]), 0
        inner = sum(self.known[number][1] for number in refs((step.args, step.kwargs)))
        return self._operation(step), inner + (step.name not in ("getitem", "reshape"))

    def _operation(self, step: TapeStep) -> ast.expr:
        args = [self._value(each) for each in step.args] if step.name not in ("getitem", "setitem") else []
        if step.name == "getitem":
            return ast.Subscript(self._value(step.args[0]), self._index(step.args[1]))
        if step.name in INFIX and not step.kwargs:
            return ast.BinOp(args[0], INFIX[step.name], args[1])
        if step.name in COMPARED and not step.kwargs:
            return ast.Compare(args[0], [COMPARED[step.name]], [args[1]])
        if step.name in PREFIX and not step.kwargs:
            return ast.UnaryOp(PREFIX[step.name], args[0])
        keywords = [ast.keyword(key, self._value(each)) for key, each in step.kwargs.items()]
        if step.name in METHODS and isinstance(step.args[0], Ref):
            if step.name == "transpose" and len(args) == 1:
                return ast.Attribute(args[0], "T")
            return ast.Call(ast.Attribute(args[0], step.name), args[1:], keywords)
        if step.name == "setitem":
            index = ast.Subscript(ast.Attribute(ast.Name("np"), "s_"), self._index(step.args[1]))
            return ast.Call(ast.Name("assigned"), [self._value(step.args[0]), index, self._value(step.args[2])], [])
        return ast.Call(self._function(step), args, keywords)

    def _function(self, step: TapeStep) -> ast.expr:
        """Return the name of a step's function: of NumPy, or else of SciPy."""
        path = {"sliding_window_view": "lib.stride_tricks.sliding_window_view", "as_strided":
                "lib.stride_tricks.as_strided"}.get(step.name, step.name)  # fmt: skip
        module: Any = np
        for part in path.split("."):
            module = getattr(module, part, None)
        if module is None:
            self.imports.add("from scipy import special")
            return expression(f"special.{path}")
        return expression(f"np.{path}")

    def _value(self, value: Any) -> ast.expr:
        """Return an argument as an expression."""
        if isinstance(value, Ref):
            return self.known[value.number][0]
        if isinstance(value, tuple | list):
            return (ast.Tuple if isinstance(value, tuple) else ast.List)([self._value(each) for each in value])
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return ast.Call(ast.Name("slice"), [self._value(each) for each in parts], [])
        if isinstance(value, np.dtype):
            return ast.Constant(value.name)
        if isinstance(value, type):
            return expression(f"np.{value.__name__}" if issubclass(value, np.generic) else value.__name__)
        if value is Ellipsis:
            return ast.Constant(...)
        text = repr(value)
        if isinstance(value, float | np.floating) and not np.isfinite(value):
            text = f"{'-' if value < 0 else ''}np.{'nan' if value != value else 'inf'}"
        return expression(text)

    def _index(self, index: Any) -> ast.expr:
        """Return what stands between brackets."""
        if isinstance(index, Ref) or not isinstance(index, tuple):
            return self._part(index)
        return ast.Tuple([self._part(each) for each in index])

    def _part(self, part: Any) -> ast.expr:
        if isinstance(part, slice):
            parts = (part.start or None, part.stop, part.step)
            return ast.Slice(*[None if each is None else self._value(each) for each in parts])
        return self._value(part)

    def _assignment(self, step: TapeStep) -> list[str]:
        """Return the statements of `a[index] = value`, on a copy of a if its numbers are needed elsewhere."""
        base, index, value = step.args
        made, ends = self.known[base.number][0], self._ends_in(base.number, step)
        if ends and isinstance(made, ast.Name):
            self.known[step.results[0]] = made, 0
            return [self._assigned(made, made, index, value)]
        name = self._name(step.results[0])
        whole = ast.unparse(made) if ends else f"np.copy({ast.unparse(made)})"
        return [f"{name} = {whole}", self._assigned(ast.Name(name), made, index, value)]

    def _assigned(self, array: ast.expr, base: ast.expr, index: Any, value: Any) -> str:
        """Return `a[index] = value`, or `a[index] += more`."""
        target, given = ast.Subscript(array, self._index(index)), self._value(value)
        if isinstance(given, ast.BinOp) and ast.unparse(given.left) == ast.unparse(ast.Subscript(base, target.slice)):
            return ast.unparse(ast.AugAssign(target, given.op, given.right))
        return f"{ast.unparse(target)} = {ast.unparse(given)}"

    def _ends_in(self, number: int, last: TapeStep) -> bool:
        """Return whether an array of its own is needed by no step after one, and by no line that is still to come."""
        if self.makers[number].name in (*VIEWS, "leaf", "constant") or number in self.wanted:
            return False
        for user in self.users[number]:
            if user is not last and ((user.name in VIEWS and not _copies(user)) or not self._is_done(user, last)):
                return False
        return True

    def _is_done(self, step: TapeStep, last: TapeStep) -> bool:
        """Return whether a step's line is written, or is part of that of the last."""
        while step is not last:
            known = self.known.get(step.results[0])
            if known is None or len(step.results) > 1:
                return False
            if isinstance(known[0], ast.Name):
                return True
            (step,) = self.users[step.results[0]]
        return True

    def _constant(self, value: np.ndarray) -> ast.expr:
        """Return an array as an expression, or as the name of one that is given."""
        if (text := written(value)) is not None:
            return expression(text)
        for name, other in self.constants.items():
            if other is value:
                return expression(f"constants['{name}']")
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return expression(f"constants['{name}']")


VIEWS = ("getitem", "reshape", "transpose", "swapaxes", "moveaxis", "broadcast_to", "ravel", "squeeze", "expand_dims",
         "sliding_window_view", "as_strided", "real", "imag", "diagonal", "split", "array_split", "atleast_1d",
         "atleast_2d", "rollaxis", "flip", "rot90", "matrix_transpose", "permute_dims", "ascontiguousarray",
         "asarray")  # fmt: skip
"""Functions whose result may be a view of their argument."""


def _copies(step: TapeStep) -> bool:
    """Return whether an index takes numbers out into an array of its own: one with an array in it does."""
    return step.name == "getitem" and bool(refs((step.args[1:],)))


def expression(text: str) -> ast.expr:
    """Parse an expression."""
    return ast.parse(text, mode="eval").body


def written(value: np.ndarray) -> str | None:
    """Return an array as text, None if that is long."""
    dtype = f", dtype={value.dtype.name!r}"
    if value.ndim == 1 and value.dtype == np.int64 and value.size > 1 and (value == np.arange(value.size)).all():
        return f"np.arange({value.size})"
    if value.size and (value == value.flat[0]).all() and value.size > 1:
        first = value.flat[0].item()
        name = {0: "zeros", 1: "ones"}.get(first)
        return f"np.{name}({value.shape}{dtype})" if name else f"np.full({value.shape}, {first!r}{dtype})"
    if value.ndim == 2 and value.shape[0] == value.shape[1] > 1 and (value == np.eye(len(value))).all():
        return f"np.eye({len(value)}{dtype})"
    if value.size <= LITERAL and value.dtype.kind in "fiub" and (value.dtype.kind != "f" or np.isfinite(value).all()):
        return f"np.array({value.tolist()}{dtype})"
    return None


def identifier(name: str) -> str:
    """Return a name that Python takes."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not name or name[0].isdigit() or keyword.iskeyword(name) or name in RESERVED:
        name = f"{name}_" if name and not name[0].isdigit() else f"_{name}"
    return name


RESERVED = frozenset({"np", "special", "parameters", "random", "constants", "assigned", "slice"})
