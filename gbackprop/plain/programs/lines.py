"""Recorded steps as the source of a Python function, with NumPy as its only import."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gbackprop.base.recording.tape import Ref, Tape, TapeStep, refs
from gbackprop.plain.programs.sections import NamedFactor
from gbackprop.plain.programs.words import COMPARED, INFIX, METHODS, PREFIX, VIEWS, expression, identifier, written

READ_ONLY = "broadcast_to", "broadcast_arrays", "diagonal", "sliding_window_view"
"""Functions whose view NumPy lets nobody write to."""

WIDTH = 100
"""Most columns of a line."""

DEPTH = 3
"""Most operations in an expression."""

FREE = ("getitem", "setitem", "reshape", "transpose", "swapaxes")
"""Steps that move numbers, and are not counted."""


class Expressions:
    """The values of a program's steps as expressions: names, and what is used once as part of the line that uses it.

    `names` are letters of values; `wanted` are results, which whoever calls the program uses; `inline` says whether
    what is used once is written where it is used, and `scaled` whether the number R is written by its name.

    `constants` are the arrays that the program takes beside its inputs, few numbers among them if these are not
    `listed` in its text; `imports` modules besides NumPy, `copied` the results of assignments that begin with a copy.
    """

    def __init__(self, program: Any, names: Mapping[int, str]) -> None:
        self.tape: Tape = program.recording.tape
        self.steps: Sequence[TapeStep] = program.steps
        self.inline, self.functional, self.scaled = program.fold, program.functional, False
        self.wanted = frozenset(program.same.get(number, number) for number in program.paths)
        self.listed = program.device == "cpu"  # elsewhere a list of numbers is a transfer
        self.section: Any = None
        self.constants: dict[str, np.ndarray] = {}
        self.imports: set[str] = set()
        self.copied: set[int] = set()
        self.makers = {number: step for step in self.steps for number in step.results}
        self.users: dict[int, list[TapeStep]] = defaultdict(list)
        for step in self.steps:
            for number in refs((step.args, step.kwargs)):
                self.users[number].append(step)
        self.named, self.taken = dict(names), set[str]()
        self.known: dict[int, tuple[ast.expr, int]] = {}  # the expression of each value, and its operations
        self.count = 0

    def lines(self) -> Iterator[tuple[Any, str, tuple[int, ...]]]:
        """Yield the section of each statement, its text, and the numbers of its results."""
        for step in self.steps:
            if step.name == "leaf":
                self._name(step.results[0])
                continue
            self.copied.update(step.results if step.name == "setitem" and self.functional else ())
            self.section = step.section
            yield from self._shortened(step)
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

    def _shortened(self, step: TapeStep) -> Iterator[tuple[Any, str, tuple[int, ...]]]:
        """Yield statements of values that a line would have inside, while it has too many operations."""
        given = set(refs((step.args, step.kwargs)))
        inside = sorted((n for n in given if self.known[n][1]), key=lambda n: (-self.known[n][1], n))
        total = (step.name not in FREE) + sum(self.known[number][1] for number in inside)
        for number in inside:
            if total > DEPTH:
                value, depth = self.known[number]
                total -= depth
                yield step.section, f"{self._name(number)} = {ast.unparse(value)}", (number,)

    def is_used(self, number: int) -> bool:
        """Return whether a value is an argument of a step, or a result."""
        return bool(self.users[number]) or number in self.wanted

    def name(self, number: int) -> str:
        """Return the text of a value."""
        return ast.unparse(self.known[number][0])

    def home(self, number: int) -> str:
        """Return the name of the memory in which a value may be, or its own text."""
        of = self._viewed(self.makers[number])
        above = "" if of is None else self.home(of)
        return above if above.isidentifier() or above.startswith("constants[") else self.name(number)

    def is_read_only(self, number: int) -> bool:
        """Return whether a value may be a view that NumPy lets nobody write to."""
        step = self.makers[number]
        of = self._viewed(step)
        return of is not None and (step.name in READ_ONLY or self.is_read_only(of))

    def _viewed(self, step: TapeStep) -> int | None:
        """Return the array of which a step's result may be a view, or None."""
        given = refs(step.args)
        is_view = step.name in VIEWS or (step.name == "einsum" and len(given) == 1) or step.kwargs.get("copy") is False
        return given[0] if is_view and not self._copies(step) else None

    # ------------------------------------------------------------------------------------------------------- names

    def _name(self, number: int) -> str:
        """Give a value its name, which no other has."""
        name = next((self.named[each] for each in self._written_to(number) if each in self.named), None)
        if name is None:
            self.count += 1
            name = f"t{self.count}"
        name = identifier(name)
        first, more = name, iter("bcdefghijklmnopqrstuvwxyz")
        while name in self.taken:
            name = f"{first}{next(more, None) or len(self.taken)}"
        self.taken.add(name)
        self.known[number] = ast.Name(name), 0
        return name

    def _written_to(self, number: int) -> Iterator[int]:
        """Yield a value, and what it is after each assignment to parts of it."""
        yield number
        for user in self.users[number]:
            if user.name == "setitem" and not self.functional and user.args[0] == Ref(number):
                yield from self._written_to(user.results[0])

    def purpose(self, number: int) -> str:
        """Return for which value with a name one without is computed."""
        if not self.inline or any(each in self.named for each in self._written_to(number)):
            return ""
        while number not in self.named and self.users[number]:
            number = self.users[number][0].results[0]
        known = self.known.get(number)
        return f"for {known[0].id}" if known is not None and isinstance(known[0], ast.Name) else ""

    def _goes_inside(self, step: TapeStep, value: ast.expr, depth: int) -> bool:
        """Return whether a value is written where it is used: it is, if it is used once, nearby, and short."""
        number = step.results[0]
        move = self.inline and step.name in ("reshape", "transpose") and depth == 0 and number not in self.wanted
        if move and (number not in self.named or self._units(step)) and _width(value) < WIDTH // 2:
            return True
        if step.name == "constant" or (not refs((step.args, step.kwargs)) and depth <= 1):
            return len(ast.unparse(value)) < WIDTH // 2
        users = self.users[number]
        if not self.inline or number in self.named or number in self.wanted or len(users) != 1 or depth > DEPTH:
            return False
        adds = users[0].name == "setitem" and isinstance(value, ast.BinOp) and isinstance(value.left, ast.Subscript)
        width = _width(value.right if adds else value)  # type: ignore[attr-defined]
        return users[0].section == step.section and width < WIDTH * 3 // 4

    # ------------------------------------------------------------------------------------------------- expressions

    def _expression(self, step: TapeStep) -> tuple[ast.expr, int]:
        """Return a step's value as an expression, and the number of its operations."""
        if step.name == "constant":
            return self._constant(self.tape.values[step.results[0]]), 0
        given = refs((step.args, step.kwargs))
        inner = sum(self.known[number][1] for number in given)
        return self._operation(step), inner + (step.name not in FREE and bool(given))

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
        if step.name in ("reshape", "transpose", "swapaxes") and isinstance(step.args[0], Ref) and not step.kwargs:
            return self._move(step, args)
        keywords = [ast.keyword(key, self._value(each)) for key, each in step.kwargs.items()]
        if step.name == "copy" and step.kwargs == {"order": "C"}:  # the method, which has that order, and jax.numpy too
            return ast.Call(ast.Attribute(args[0], "copy"), [], [])
        if step.name in METHODS and isinstance(step.args[0], Ref):
            return ast.Call(ast.Attribute(args[0], step.name), args[1:], keywords)
        if step.name == "setitem":
            index = ast.Subscript(ast.Attribute(ast.Name("np"), "s_"), self._index(step.args[1]))
            return ast.Call(ast.Name("assigned"), [self._value(step.args[0]), index, self._value(step.args[2])], [])
        return ast.Call(self._function(step), args, keywords)

    def _units(self, step: TapeStep) -> ast.expr | None:
        """Return the index of a reshape that adds and leaves out axes of size 1 alone."""
        if step.name != "reshape":
            return None
        old, new = (list(self.tape.values[n].shape) for n in (step.args[0].number, step.results[0]))
        parts: list[str] = []
        while old or new:
            if old and new and old[0] == new[0]:
                old, new = old[1:], new[1:]
                parts.append(":")
            elif new and new[0] == 1:
                new = new[1:]
                parts.append("None")
            elif old and old[0] == 1:
                old = old[1:]
                parts.append("0")
            else:
                return None
        while parts and parts[-1] == ":":
            parts.pop()
        return expression(f"_[{', '.join(parts)}]").slice if parts else None  # type: ignore[attr-defined]

    def _move(self, step: TapeStep, args: list[ast.expr]) -> ast.expr:
        """Return numbers in other places: by an index, `.T`, `.swapaxes(i, j)`, `.transpose(…)` or `.reshape(…)`."""
        if (index := self._units(step)) is not None and self.inline:
            return ast.Subscript(args[0], index)
        first, *others = step.args[1:] or [None]
        axes = [first, *others] if others or type(first) is int else first
        order = [axis % len(axes) for axis in axes] if isinstance(axes, tuple | list) else axes
        if step.name == "transpose" and order in (None, [1, 0]):
            return ast.Attribute(args[0], "T")
        if step.name == "transpose" and type(order) is list:
            moved = [i for i, axis in enumerate(order) if i != axis]
            if len(moved) == 2:
                return ast.Call(ast.Attribute(args[0], "swapaxes"), [self._value(each) for each in moved], [])
        if len(args) == 2 and isinstance(args[1], ast.Tuple) and args[1].elts:
            args = [args[0], *args[1].elts]
        return ast.Call(ast.Attribute(args[0], step.name), args[1:], [])

    def _function(self, step: TapeStep) -> ast.expr:
        """Return the name of a step's function: of NumPy, or else of SciPy."""
        path = {"sliding_window_view": "lib.stride_tricks.sliding_window_view", "as_strided":
                "lib.stride_tricks.as_strided", "absolute": "abs"}.get(step.name, step.name)  # fmt: skip
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
        if isinstance(value, NamedFactor) and value != 1 and self.inline:
            self.scaled = True
            return expression(value.text)
        text = repr(getattr(value, "_value_", value))  # that of an enum
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
            parts = (part.start or None, part.stop, None if part.step == 1 else part.step)
            return ast.Slice(*[None if each is None else self._value(each) for each in parts])
        return self._value(part)

    def _assignment(self, step: TapeStep) -> list[str]:
        """Return the statements of `a[index] = value`, on a copy of a if its numbers are needed elsewhere."""
        base, index, value = step.args
        made, ends = self.known[base.number][0], self._ends_in(base.number, step)
        if self.makers[base.number].name == "constant" and isinstance(made, ast.Call):
            ends = True
        elif ends and isinstance(made, ast.Name):
            self.known[step.results[0]] = made, 0
            return [self._assigned(made, made, index, value)]
        name = self._name(step.results[0])
        self.copied.update(() if ends else step.results)
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
        if self.makers[number].name in (*VIEWS, "leaf", "constant") or number in self.wanted or number in self.named:
            return False
        if not self.tape.values[number].ndim:  # it may be a number of NumPy, which takes no assignment
            return False
        return all(self._is_done(user, last) for user in self.users[number])

    def _is_done(self, step: TapeStep, last: TapeStep) -> bool:
        """Return whether what a step computes from an array is written, or is part of the last step's line."""
        if step is last:
            return True
        known = self.known.get(step.results[0])
        if known is None or len(step.results) > 1:
            return False
        if isinstance(known[0], ast.Name):
            return step.name not in VIEWS or self._copies(step)
        return all(self._is_done(user, last) for user in self.users[step.results[0]])

    def _copies(self, step: TapeStep) -> bool:
        """Return whether an index makes an array of its own: one with an array in it does, one with a number a view."""
        return step.name == "getitem" and any(self.tape.values[each].ndim for each in refs(step.args[1:]))

    def _constant(self, value: np.ndarray) -> ast.expr:
        """Return an array as an expression, or as the name of one that is given."""
        if (text := written(value, self.listed)) is not None:
            return expression(text)
        for name, other in self.constants.items():
            if other is value:
                return expression(f"constants['{name}']")
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return expression(f"constants['{name}']")


def _width(value: ast.expr) -> int:
    """Return the length of an expression in which each name has that of x_10: equal layers are written alike."""
    return len(re.sub(r"\b(t\d+|[A-Za-z]\w*_\w+)\b", "x_10", ast.unparse(value)))
