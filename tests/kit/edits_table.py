"""The edits of some expressions, statements and methods: what may be meant where each stands, with its cost.

``python tests/kit/edits_table.py`` prints tests/kit/edits.txt.
"""

import ast
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np

from gbackprop.testing.diagnosis.slips import of_expression, of_statement
from gbackprop.testing.diagnosis.source import edits_of

EXPRESSIONS = (
    "a", "a.b", "a()", "a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** b", "a @ b", "a.T @ b", "2 * a",
    "a - b + c", "a * (b - c)", "(a - b)[0]", "f(a) - g(b)", "f(a, c) - f(b, d)", "a.astype(b) * c", "-a", "not a",
    "2", "0.5", "1", "True", "'ni,nj->nij'", "'nabcd->n'", "'word'",
    "a < b", "a <= b", "a > b", "a >= b", "a == b", "a != b", "a < b < c", "a in b",
    "a if b else c", "(a, b, c)", "[a, b]", "a.T", "a.mT", "a[0]", "a[1:, ::2]", "a[1:2]", "a[1:]", "a[:-1]",
    "a.sum()", "a.sum(0, keepdims=True)", "a.mean(axis=1)", "np.max(a, axis=0)", "np.exp(a - b)", "exp(a)",
    "(a * b).sum(1)", "range(a)", "range(a, b)", "np.triu(a)", "np.tril(a, 2)", "f(a, b, c, d, e)", "a.astype(b)",
    "a.reshape(b, c).sum(1)", "a.reshape(b, c, b, c).mean((1, 3))", "self.f(a)", "a.reshape(b).sum(0)",
    "a.reshape(shape=b).sum(0)", "np.reshape(a, (b, c)).sum(0)",
    "a ** p + b", "a - b ** p", "(a + b) ** p", "(a * b).sum(0) ** 2", "a + f(b)", "f(np.exp(a))", "{'a': b, 'c': d}",
    "np.cumsum(a, axis=1)", "a.mean() * b.mean(0)", "sum(a) * b.mean(0)",
)  # fmt: skip
"""An expression for each rule of the grammar."""

STATEMENTS = "a += b", "a *= b", "a /= b", "a -= b", "a, b = c", "a[0] = b", "a = b", "a()", "if a: b()", "return a"


class Factor:
    """An object with options, an array and a parameter."""

    def __init__(self) -> None:
        self.beta, self.on, self.table = 2.5, True, np.ones(2)
        self.parameters = {"w": np.ones(2)}

    def product(self, x):
        return x * self.beta


class Power:
    def cube(self, x):
        y = x**3
        return y


class Sum:
    def summed(self, g):
        return self.other(g).sum()

    def other(self, g):
        return -g


class Several:
    """An argument that is changed, one that is only handed on, one that is not read, and a dtype."""

    def whole(self, v, k, scale=1):
        if k:
            v += k
        return v.astype(v.dtype)


class Unsafe:
    """A method that might not end, one that writes a file, and one whose name a third one does not take over."""

    def endless(self, x):
        while x.sum() > 1:
            x = x / 2
        return x

    def stored(self, x):
        np.save("x", x)
        return x

    def constant(self):
        return 1


OWNERS = Factor(), Power(), Sum(), Several(), Unsafe()


def title(node: Any) -> str:
    """Return the text of an edit's node."""
    return node if isinstance(node, str) else ast.unparse(ast.fix_missing_locations(node)).replace("\n", " ")


def lines(edits: Iterable[tuple[float, str]]) -> Iterator[str]:
    """Yield a line for the edits of each cost, in the order in which they come."""
    for cost, some in groupby(sorted(edits, key=lambda each: round(each[0], 4)), lambda each: round(each[0], 4)):
        yield f"  {cost:g}: {' | '.join(text for _, text in some)}"


def of_kinds() -> Iterator[str]:
    """Yield the edits of each expression and statement."""
    for text in EXPRESSIONS:
        node = ast.parse(text, mode="eval").body
        parts = [node, *getattr(node, "keywords", []), *([node.slice] if isinstance(node, ast.Subscript) else [])]
        yield f"--- {text}"
        yield from lines((cost, title(new)) for part in parts for cost, new in of_expression(part))
    for text in STATEMENTS:
        yield f"--- {text}"
        yield from lines((cost, title(new)) for cost, new in of_statement(ast.parse(text).body[0]))


def of_methods() -> Iterator[str]:
    """Yield the edits of each method, in words; those of one statement as what it becomes."""
    for owner in OWNERS:
        for name in [name for name in vars(type(owner)) if not name.startswith("_")]:
            yield f"--- {type(owner).__name__}.{name}"
            edits = [(cost, words()) for cost, words, _ in edits_of(getattr(type(owner), name), owner)]
            yield from lines((cost, words.replace("return ", "").rpartition(" were ")[2]) for cost, words in edits)


if __name__ == "__main__":
    print(*of_kinds(), *of_methods(), sep="\n")
