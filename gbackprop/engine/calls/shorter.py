"""Fewer statements for the same results: those left out whose values are there, and sums of squares that bound others.

A look for NaN and infinity at large arrays takes a tenth of a small call. It can do with the factors of products:

    |Σₙ aₙ bₙ| ≤ ‖a‖ ‖b‖ ≤ ‖a‖² + ‖b‖²,

so that no entry of a product is infinite or NaN where the squares of both factors have a sum well within the range; and
where a product of a given array with another one is finite, so is that array, as each of its entries is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from gbackprop.engine.calls.statements import Named, Statement, Statements

PRODUCTS = "matmul", "multiply", "outer"
"""Functions, NumPy's and compiled ones, of two arrays whose results are products, or sums of these over an axis."""

SHOWING = (*PRODUCTS, "add")
"""Functions of two arrays whose result is not finite where an entry of one of them is not."""

FEW = 256
"""So many numbers are looked at as fast as a single one."""


def without_repeats(lines: Sequence[Statement], writer: Statements, results: set[str]) -> list[Statement]:
    """Return statements without those of constants, and those whose values an equal one has made before.

    Neither may be written to, nor belong to the results, whose memory is nobody else's.
    """
    last = {memory: i for i, line in enumerate(lines) for memory in line.writes}
    same: dict[str, Any] = {}
    seen: dict[Any, tuple[int, Named]] = {}
    left = []
    for i, before in enumerate(lines):
        line = before.renamed(same)
        left.append(line)
        if line.writes or line.several or len(line.made) != 1:
            continue
        (made,), given = line.made, {each.memory for each in line.given}
        if made.memory in results or (made.memory in last and made.memory not in given):
            continue
        key = (writer.call(line), str(line.errors))
        at, equal = seen.setdefault(key, (i, made))
        if line.value is not None and made.size <= FEW:
            same[made.name] = writer.shared(line.value)
            left.pop()
        elif at < i and all(last.get(memory, -1) < at for memory in given):
            same[made.name] = equal
            left.pop()
    return left


class Squares:
    """The sums of squares that bound given arrays and results of statements.

    Attributes
    ----------
    lines : list of Statement
        With those that compute the sums.
    names : list of str
        Of the sums: where their total is well within the range, nothing is NaN or infinite.
    """

    def __init__(self, lines: Sequence[Statement], given: Sequence[Named], results: Sequence[Named]) -> None:
        self.before, self.names = [*lines], list[str]()
        self.after: dict[int, dict[str, list[Statement]]] = {}
        self.base = {each.name: each for each in given}
        self.start = {each.name: i for i, line in enumerate(lines) for each in line.made}
        self.base.update((each.name, each) for line in lines for each in line.made)
        for array in given:
            self._add(*self._shown(array))
        for array in results:
            self._bound(array, len(lines) - 1)
        after = {at: [*chain(*place.values())] for at, place in self.after.items()}
        self.lines = [*after.get(-1, []), *chain(*[[line, *after.get(i, [])] for i, line in enumerate(lines)])]

    def _shown(self, array: Named) -> tuple[Named, int]:
        """Return an array that is not finite if a given one is not, and the statement after which it is.

        It is the last of those that follow from the given one, none of them larger.
        """
        found, at = array, -1
        if not any(array.memory in line.writes for line in self.before):
            for i, line in enumerate(self.before):
                target = _target(line) if _name(line) in SHOWING else None
                given = [each for each in line.args if isinstance(each, Named)]
                is_given = any(each.memory == found.memory and each.whole for each in given)
                if is_given and target is not None and 0 < target.size <= max(found.size, FEW):
                    found, at = target, i
                if found.memory in line.writes and at < i:
                    break
        return found, at

    def _bound(self, array: Named, by: int, as_product: bool = True) -> None:
        """Add the squares of an array, as it is after a statement, or of those by which it is bounded.

        The sum of the squares of a product's entries may be beyond the range where each entry is not: factors of it are
        products of others no further.
        """
        changes = [i for i in range(by + 1) if array.memory in self.before[i].writes]
        at = max([self.start.get(array.memory, -1), *changes])
        is_whole = at >= 0 and _target(self.before[at]) == self.base.get(array.memory)
        others = _bounding(self.before[at]) if is_whole else []
        if len(others) == 1 or (as_product and 0 < sum(each.size for each in others) < array.size):
            for each in others:
                self._bound(each, at - 1, as_product and len(others) == 1)
        else:
            self._add(array, at)

    def _add(self, array: Named, at: int) -> None:
        """Add the squares of an array after a statement that changes it."""
        of = self.base.get(array.memory, array) if array.whole else array
        place = self.after.setdefault(max(at, self.start.get(of.name, -1)), {})
        if of.name in place:
            return
        number = len(self.names)
        row = of if of.flat else replace(of, name=f"r{number}")
        total = Named(f"s{number}", f"s{number}", True, True, (), of.dtype)
        place[of.name] = [Statement(np.vdot, [row, row], {}, [total], False, set(), {})]
        if row is not of:
            place[of.name].insert(0, Statement(np.ndarray.ravel, [of, "K"], {}, [row], False, set(), {}))
        self.names.append(total.name)


def _name(line: Statement) -> str:
    """Return the name of a function that is called as it is; "" of one with options, or of another (`power.outer`)."""
    is_plain = line.named.keys() <= {"out"} and not hasattr(line.function, "__self__")
    return str(getattr(line.function, "__name__", "")) if is_plain else ""


def _target(line: Statement) -> Named | None:
    """Return the array that a statement makes or writes to, if that is all of its memory."""
    written = [each for each in (line.named.get("out"), *line.args[-1:]) if isinstance(each, Named)]
    targets = [*line.made, *[each for each in written[:1] if each.memory in line.writes]]
    return targets[0] if len(targets) == 1 and targets[0].name == targets[0].memory else None


def _bounding(line: Statement) -> list[Named]:
    """Return the arrays whose squares bound those that a statement computes: factors of a product, what is copied."""
    floats = [each for each in line.args if isinstance(each, Named) and each.dtype.kind == "f"]
    name = _name(line)
    if name in PRODUCTS and len(floats) >= 2 and isinstance(line.args[1], Named):
        return floats[:2]
    is_positive_part = name == "maximum" and type(line.args[1]) is int and line.args[1] == 0
    return floats[:1] if floats and (name == "copy" or is_positive_part) else []
