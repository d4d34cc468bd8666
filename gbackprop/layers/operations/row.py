"""Rows of the table of operations: all that is known of a function, by its kind.

Each sample is mapped by itself, and features are broadcast among inputs as NumPy broadcasts arrays, without the batch
axis. A row is written for arrays with any leading axes, ``[*lead, *features]``: one for values, ``[N, *features]``, two
for columns, ``[V, N, *features]``. The leading axis of a value that is the same for all samples has length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from types import SimpleNamespace
from typing import Any

from gbackprop.calculus.layer import Shape

Bound = SimpleNamespace
"""An operation at shapes: `shapes` of the inputs, `shape` of the output, and the options, with axes counted from the
end."""


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
        Checks shapes and options, ``(shapes, **options) -> Bound``; raises a ValueError that says what it expected.
    """

    name: str
    text: str
    ties: str
    cost: Callable[[Bound], int]
    bind: Callable[..., Bound]


@dataclass(frozen=True)
class CurveRow(OperationRow):
    """An elementwise function φ of one input, with φ' and φ'' from (x, y, bound); `second` is None if φ'' is 0.

    `formulas` has its formulas in the notation of certificates, between semicolons: y, φ'(x) g, φ''(x) g if that is not
    0, then a condition for where it is certified.
    """

    formulas: str
    value: Callable[[Any, Bound], Any]
    first: Callable[[Any, Any, Bound], Any]
    second: Callable[[Any, Any, Bound], Any] | None = None
    ties: str = field(default="none: smooth where it is finite", kw_only=True)
    cost: Callable[[Bound], int] = field(default=lambda o: 10 * prod(o.shape), kw_only=True)
    bind: Callable[..., Bound] = field(default=lambda shapes: _plain(shapes), kw_only=True)


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


@dataclass(frozen=True)
class BilinearRow(OperationRow):
    """A function of two inputs that is linear in each: its second derivative is in both together.

    `function` gives y from (bound, a, b), `on_first` Jᵀ g in a from (bound, g, b), `on_second` Jᵀ g in b from
    (bound, a, g).
    """

    function: Callable[..., Any]
    on_first: Callable[..., Any]
    on_second: Callable[..., Any]


@dataclass(frozen=True)
class ComposedRow(OperationRow):
    """A function that is composed of other layers: all of its derivatives are those of its parts.

    `parts` returns from (bound, op), with op the layer of a row by its name, the parts in their order, the last being
    the output: a name, a layer, and what it takes, numbers of inputs or names of parts before it.
    """

    parts: Callable[[Bound, Any], list[tuple[Any, ...]]]


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


KINDS: Mapping[type[OperationRow], str] = {
    CurveRow: "elementwise", LinearRow: "linear", BilinearRow: "bilinear", ComposedRow: "composed",
}  # fmt: skip
"""The kinds: what the second derivative follows from."""


def bound(shapes: tuple[Shape, ...], shape: Shape, **options: Any) -> Bound:
    """Return an operation at shapes."""
    return Bound(shapes=shapes, shape=shape, **options)


def numbers(each: int = 1) -> Callable[[Bound], int]:
    """Return a cost: some operations for each number of the output."""
    return lambda o: each * prod(o.shape)


def inputs(each: int = 1) -> Callable[[Bound], int]:
    """Return a cost: some operations for each number of all inputs."""
    return lambda o: each * sum(map(prod, o.shapes))


def _plain(shapes: tuple[Shape, ...]) -> Bound:
    only(shapes)
    return bound(shapes, shapes[0])


def only(shapes: tuple[Shape, ...], count: int = 1) -> None:
    """Check the number of inputs."""
    if len(shapes) != count:
        words = {1: "one input", 2: "two inputs"}.get(count, f"{count} inputs")
        raise ValueError(f"expected {words}, got {len(shapes)}")


def strict(apply: Callable[[Bound, Any], Any], adjoint: Callable[[Bound, Any], Any]) -> Any:
    """Return the rules of a linear function y = A x of one input, from A and its transpose."""
    return (
        lambda o, x: (apply(o, x), None),
        lambda o, chosen, mat: apply(o, mat),
        lambda o, chosen, mat: adjoint(o, mat),
    )
