"""Statements that NumPy runs faster, for the same results: most of a small call is what NumPy does besides arithmetic.

Half a microsecond is saved where

- an operand is not repeated along axes of length 1: one that is a number has no axes, and one as large as the result
  gets the axes of length 1 that it lacks;
- truth values are made numbers before they are multiplied, not by the multiplication;
- one number is neither summed nor multiplied by 1;
- a product of two matrices that lie in memory without gaps is one of `ndarray.dot`, from NumPy 2.3 on. Of others
  `matmul` computes it in another way, of a single number `dot` does.

Views of views become views of the first array, and a function that fills an empty array makes it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import inf, prod
from typing import Any

import numpy as np

from gbackprop.engine.calls.reused import EMPTY
from gbackprop.engine.calls.statements import VIEWS, Named, Statement, Statements

PRODUCTS = np.matmul, np.dot, np.vdot, np.ndarray.dot, np.tensordot
"""Functions that BLAS computes."""

TERMS = 9216
"""A product of fewer terms OpenBLAS computes in one thread, whatever its limit."""

ARITHMETIC = np.add, np.subtract, np.multiply
"""Functions that compute with truth values as numbers, and leave what is not finite not finite."""


class Faster:
    """Faster statements.

    Attributes
    ----------
    lines : list of Statement
        They give the same results, sums of squares included, under the same names.
    """

    def __init__(self, lines: Sequence[Statement], writer: Statements, results: Sequence[str]) -> None:
        self.writer = writer
        self.first = dict[str, Named]()  # the array of which one is a view, with all its numbers in their order
        owned = {each.memory for line in lines for each in line.made if each.name in results}
        self.fixed, used = owned.union(*[line.writes for line in lines]), {*results}
        self.lines = list[Statement]()
        new = [self._direct(each) for line in _filling(lines) for each in self._instead(line)]
        for line in reversed(new):
            if not _is_view(line) or line.made[0].name in used:
                used |= {each.name for each in line.given}
                self.lines.insert(0, line)

    def _direct(self, line: Statement) -> Statement:
        """Return a statement, in place of a view of a view one of the first array."""
        of = line.args[0] if _is_view(line) else None
        if of is not None and of.shape and of.flat and line.made[0].flat and of.size == line.made[0].size:
            first = self.first[line.made[0].name] = self.first.get(of.name, of)
            line = replace(line, function=operator.getitem, args=[first, ()], named={})
            if (index := _index(first.shape, line.made[0].shape)) is not None:
                line.args[1] = index
            else:
                line.function, line.args[1] = np.ndarray.reshape, line.made[0].shape
        return line

    def _instead(self, line: Statement) -> Iterator[Statement]:
        """Yield the statements in place of one, which make the same array."""
        arrays: list[Any] = [each for each in line.args if isinstance(each, Named | np.ndarray)]
        is_function = isinstance(line.function, np.ufunc) and line.function.signature is None
        is_product = line.function is np.matmul and not line.named and all(map(_is_dense, arrays))
        if is_product and len(arrays[1].shape) == 2 and prod(arrays[0].shape[:-2]) == 1 < len(arrays[0].shape):
            yield from self._product(line, *arrays) if dot_reports() else [line]
        elif line.function == np.add.reduce and _is_one_number(line):
            yield replace(line, function=operator.getitem, args=[arrays[0], (0,) * len(arrays[0].shape)], named={})
        elif self._is_as_before(line):
            made = replace(line.made[0], memory=arrays[0].memory)
            yield replace(line, function=operator.getitem, args=[arrays[0], ()], made=[made])
        elif is_function and 2 == len(arrays) == len(line.args):
            yield from self._function(line)
        else:
            yield line

    def _function(self, line: Statement) -> Iterator[Statement]:
        """Yield a function of operands that NumPy neither repeats nor converts."""
        shape, args = np.broadcast_shapes(*[each.shape for each in line.args]), [*line.args]
        floats = [each.dtype for each in args if each.dtype.kind == "f"]
        for i, each in enumerate(args):
            axes = () if each.size == 1 < prod(shape) else (1,) * (len(shape) - len(each.shape)) + each.shape
            if each.dtype.kind == "b" and floats and line.function in ARITHMETIC:
                args[i] = yield from self._of(np.ndarray.astype, each, floats[0], line)
            if axes != each.shape and (axes == () or each.size == prod(shape)):
                args[i] = yield from self._of(operator.getitem, args[i], _index(each.shape, axes), line)
        yield replace(line, args=args)

    def _product(self, line: Statement, a: Any, b: Any) -> Iterator[Statement]:
        """Yield a product by `ndarray.dot` of a matrix, or a stack of a single one."""
        (made,), lead = line.made, (0,) * (len(a.shape) - 2)
        if lead:
            a = yield from self._of(operator.getitem, a, lead, line)
        name = f"t{next(self.writer.made)}"
        product = replace(made, name=name, memory=name, shape=made.shape[-2:]) if lead else made
        yield replace(line, function=np.ndarray.dot, args=[a, b], made=[product])
        if lead:
            yield replace(line, function=operator.getitem, args=[product, (None,) * len(lead)])

    def _of(self, function: Any, array: Any, argument: Any, line: Statement) -> Any:
        """Yield the statement of a view or a copy, before another one; return the array, or that of a constant."""
        if not isinstance(array, Named):
            return self.writer.shared(function(array, argument))
        found = function(np.broadcast_to(np.zeros((), array.dtype), array.shape), argument)
        name = f"t{next(self.writer.made)}"
        memory = array.memory if function is operator.getitem else name
        made = replace(array, name=name, memory=memory, shape=found.shape, dtype=found.dtype)
        yield replace(line, function=function, args=[array, argument], named={}, made=[made], writes=set())
        return made

    def _is_as_before(self, line: Statement) -> bool:
        """Return whether a statement multiplies by 1 what may be the same array afterwards."""
        if line.function is not np.multiply or line.named or len(line.given) != 1 or line.made[0].dtype.kind != "f":
            return False
        (given,), (made,) = line.given, line.made
        is_one = any(type(each) in (int, float) and each == 1 for each in line.args)
        if not (is_one and given.flat and given.dtype == made.dtype):
            return False
        return made.shape == () or self.fixed.isdisjoint((given.memory, made.memory))


@cache
def dot_reports() -> bool:
    """Return whether `ndarray.dot` reports numbers beyond the range, as `matmul` does: from NumPy 2.3 on."""
    errors: list[str] = []
    with np.errstate(over="call", call=lambda kind, flag: errors.append(kind)):
        np.ndarray.dot(*[np.full((2, 2), 1e300)] * 2)
    return bool(errors)


def _is_one_number(line: Statement) -> bool:
    """Return whether a sum over all axes is one of a single number, and gives it."""
    array, (made,) = line.args[0], line.made
    is_total = line.named == {"axis": None} and line.args == [*line.given]
    return is_total and array.size == 1 and array.dtype == made.dtype


def may_take_threads(lines: Sequence[Statement]) -> bool:
    """Return whether BLAS may compute one of the products in several threads."""
    return any(_terms(line) >= TERMS for line in lines if line.function in PRODUCTS)


def _terms(line: Statement) -> float:
    a, *others = [each for each in line.args if isinstance(each, Named | np.ndarray)]
    if line.function is np.vdot:
        return a.size
    return inf if line.function is np.tensordot or not others else a.size * prod(others[0].shape[1:][-1:])


def _filling(lines: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements of which a function makes its result, where it would fill an empty array in C order."""
    filled = dict[int, Named]()
    for line in lines:
        (made,) = line.made if line.function in EMPTY else [None]
        first = next((i for i, each in enumerate(lines) if made in each.given), -1) if made is not None else -1
        if made is not None and first >= 0 and _fills(lines[first], made):
            filled[first] = made
    empty = {each.name for each in filled.values()}
    for i, line in enumerate(lines):
        if i in filled:
            yield replace(line, named={}, made=[filled[i]], writes=set())
        elif line.function not in EMPTY or line.made[0].name not in empty:
            yield line


def _fills(line: Statement, out: Named) -> bool:
    parts = [each for each in line.args if isinstance(each, Named | np.ndarray)]
    if not isinstance(line.function, np.ufunc) or line.function.signature is not None or line.named != {"out": out}:
        return False
    letter = out.dtype.char
    is_such = f"{letter * line.function.nin}->{letter}" in line.function.types
    is_in_order = all(each.dtype == out.dtype and _is_in_order(each) for each in (out, *parts))
    return is_such and is_in_order and np.broadcast_shapes(*[each.shape for each in parts]) == out.shape


def _is_in_order(array: Named | np.ndarray) -> bool:
    return array.flat if isinstance(array, Named) else array.flags.c_contiguous


def _is_dense(array: Named | np.ndarray) -> bool:
    """Return whether an array has several numbers, which lie in memory without gaps."""
    return array.size > 1 and (array.dense if isinstance(array, Named) else array.flags.forc)


def _is_view(line: Statement) -> bool:
    """Return whether a statement only looks at an array."""
    of = line.args[0] if line.args and len(line.made) == 1 and not line.several else None
    named = getattr(line.function, "__name__", "") in VIEWS
    return named and isinstance(of, Named) and of.memory == line.made[0].memory


def _index(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[Any, ...] | None:
    """Return an index after which an array has the target's axes of length 1, and no others; None if there is none."""
    if [n for n in shape if n != 1] != [n for n in target if n != 1]:
        return None
    alike = next((i for i, (n, m) in enumerate(zip(shape[::-1], target[::-1], strict=False)) if n != m), None)
    same = min(len(shape), len(target)) if alike is None else alike  # the last axes, which need no index
    index, axes = list[Any](), iter(shape[: len(shape) - same])
    for n in target[: len(target) - same]:
        while n != 1 and next(axes) == 1:
            index.append(0)
        index.append(None if n == 1 else slice(None))
    index += [0 for _ in axes]
    return (*index, ...) if target == () else tuple(index)
