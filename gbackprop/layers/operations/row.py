"""Rows of the table of operations: all that is known of a function, by its kind.

Each sample is mapped by itself, and features are broadcast among inputs as NumPy broadcasts arrays, without the batch
axis. A row is written for arrays with any leading axes, ``[*lead, *features]``: one for values, ``[N, *features]``, two
for columns, ``[V, N, *features]``. The leading axis of a value that is the same for all samples has length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from inspect import Parameter, signature
from math import prod
from types import SimpleNamespace
from typing import Any

Bound = SimpleNamespace
"""An operation at shapes: `shape` of the output, and the options, with axes counted from the end; then `shapes` of the
inputs."""


def same(of: Any) -> Bound:
    """Bind a function that keeps the shape and has no options."""
    return Bound(shape=of)


def numbers(each: int = 1) -> Callable[[Bound], int]:
    """Return a cost: some operations for each number of the output."""
    return lambda o: each * prod(o.shape)


def inputs(each: int = 1) -> Callable[[Bound], int]:
    """Return a cost: some operations for each number of all inputs."""
    return lambda o: each * sum(map(prod, o.shapes))


@dataclass(frozen=True)
class OperationRow:
    """A function with its derivatives.

    Attributes
    ----------
    name : str
    text : str
        The function of one sample in NumPy: "{0}" and so on are the inputs, other names the bound options.
    ties : str
        Which derivative it takes where there are several, or that there are none.
    cost : callable
        Number of operations on numbers for one sample, from a `Bound`.
    bind : callable
        Checks shapes and options, ``(shape, …, *, option, …) -> Bound``, with as many shapes as there are inputs;
        raises a ValueError that says what it expected.
    """

    name: str
    text: str
    ties: str = field(default="none: smooth where it is finite", kw_only=True)
    cost: Callable[[Bound], int] = field(default=numbers(), kw_only=True)
    bind: Callable[..., Bound] = field(default=same, kw_only=True)


@dataclass(frozen=True)
class CurveRow(OperationRow):
    """An elementwise function φ of one input, with φ' and φ'' from (x, y, bound); `second` is None if φ'' is 0.

    Where φ' or φ'' may be beyond the dtype's range, but what it multiplies makes up for it, a tuple of factors is
    returned in its place.

    `formulas` has its formulas in the notation of certificates, between semicolons: y, φ'(x) g, φ''(x) g if that is not
    0, then a condition for where it is certified.
    """

    formulas: str
    value: Callable[[Any, Bound], Any]
    first: Callable[[Any, Any, Bound], Any]
    second: Callable[[Any, Any, Bound], Any] | None = None


@dataclass(frozen=True)
class LinearRow(OperationRow):
    """A function that is linear, or affine, or that in pieces: its second derivative is 0.

    `forward` gives (y, chosen) from (bound, *inputs), `chosen` being what piecewise functions choose by the values.
    `jmp` maps (bound, chosen, *columns) to columns, `mjp` maps (bound, chosen, columns) to those of the input, or to a
    tuple of those of several inputs.
    """

    forward: Callable[..., tuple[Any, Any]]
    jmp: Callable[..., Any]
    mjp: Callable[..., Any]
    ties: str = field(default="none: linear", kw_only=True)


@dataclass(frozen=True)
class BilinearRow(OperationRow):
    """A function of two inputs that is linear in each: its second derivative is in both together.

    `function` gives y from (bound, a, b), `on_first` Jᵀ g in a from (bound, g, b), `on_second` Jᵀ g in b from
    (bound, a, g).
    """

    function: Callable[..., Any]
    on_first: Callable[..., Any]
    on_second: Callable[..., Any]
    ties: str = field(default="none: bilinear", kw_only=True)


@dataclass(frozen=True)
class QuotientRow(OperationRow):
    """A quotient a / b of each number, as one division: it is rounded as NumPy rounds it, which a · (1/b) is not."""


@dataclass(frozen=True)
class ComposedRow(OperationRow):
    """A function that is composed of other layers: all of its derivatives are those of its parts.

    `parts` makes the output from (bound, op, *inputs): ``op(row or layer, *inputs, **options)`` applies each part.
    """

    parts: Callable[..., Any]


KINDS: Mapping[type[OperationRow], str] = {
    CurveRow: "elementwise", LinearRow: "linear", BilinearRow: "bilinear", QuotientRow: "quotient",
    ComposedRow: "composed",
}  # fmt: skip
"""The kinds: what the second derivative follows from."""


def table(*rows: OperationRow) -> dict[str, OperationRow]:
    """Return rows by name; a row that lacks something is an error."""
    found: dict[str, OperationRow] = {}
    for row in rows:
        for each in fields(row):
            value = getattr(row, each.name)
            written = isinstance(value, str) and bool(value.strip())
            absent = value is None and each.name == "second"
            if not (written if each.type == "str" else absent or callable(value)):
                raise ValueError(f"row {row.name!r} of operations: expected its {each.name}, got {value!r}")
        if type(row) not in KINDS:
            raise ValueError(f"row {row.name!r} of operations: expected one of the kinds, got {type(row).__name__}")
        if row.name in found:
            raise ValueError(f"row {row.name!r} of operations: expected one row of a name, got two")
        found[row.name] = row
    return found


@cache
def taken(bind: Callable[..., Bound]) -> tuple[int, bool]:
    """Return the number of inputs that a row takes, and whether it takes more."""
    kinds = [each.kind for each in signature(bind).parameters.values()]
    return kinds.count(Parameter.POSITIONAL_OR_KEYWORD), Parameter.VAR_POSITIONAL in kinds


def strict(apply: Callable[[Bound, Any], Any], adjoint: Callable[[Bound, Any], Any]) -> Any:
    """Return the rules of a linear function y = A x of one input, from A and its transpose."""
    return (
        lambda o, x: (apply(o, x), None),
        lambda o, chosen, mat: apply(o, mat),
        lambda o, chosen, mat: adjoint(o, mat),
    )
