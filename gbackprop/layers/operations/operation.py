"""`Operation`, the layer of any row of the table."""

from __future__ import annotations

from collections import Counter
from functools import partial, reduce
from math import inf, prod
from operator import mul
from typing import Any, Self, cast

from gbackprop.array import Array, is_array
from gbackprop.base.checks import signature_of
from gbackprop.base.names import inside, near_miss
from gbackprop.calculus.layer import INPUT, Layer, Nodes, Shape
from gbackprop.calculus.residual import DiagonalFactors, Factored, FactoredLayer, products, units
from gbackprop.calculus.walk import Unexpanded
from gbackprop.layers.elementwise.activation import Elementwise
from gbackprop.layers.operations.axes import aligned, summed_to
from gbackprop.layers.operations.composed import COMPOSED
from gbackprop.layers.operations.copies import MOVES
from gbackprop.layers.operations.curves import CURVES
from gbackprop.layers.operations.linears import LINEARS
from gbackprop.layers.operations.products import BILINEARS
from gbackprop.layers.operations.row import (
    BilinearRow,
    Bound,
    ComposedRow,
    CurveRow,
    LinearRow,
    OperationRow,
    QuotientRow,
    taken,
)

ROWS: dict[str, OperationRow] = {**CURVES, **MOVES, **LINEARS, **BILINEARS, **COMPOSED}
"""The table of operations: all rows, by name."""


class Operation(Layer):
    """A function of the table of operations as a layer of one or several inputs.

    Each sample is mapped by itself. Features of several inputs are broadcast as NumPy broadcasts arrays, without the
    batch axis; a parameter or a constant has no batch axis.

    Parameters
    ----------
    name : str
        The row's name.
    **options
        Those of the row. Axes are counted with the batch as axis 0, which they may not be.

    Raises
    ------
    TypeError
        If the row has no such option, or lacks one.
    ValueError
        If there is no such row.

    Examples
    --------
    >>> Graph({"total": (Operation("sum", axis=1), "input"), "y": (Operation("exp"), "total")})
    """

    broadcasts = True
    name: str
    options: dict[str, Any]

    def __new__(cls, *given: Any, **named: Any) -> Self:
        if cls is not Operation or not (given or "name" in named):  # a copy is made without arguments
            return super().__new__(cls, *given, **named)
        row = row_of(given[0] if given else named["name"])
        return super().__new__(cast("type[Self]", CLASSES[type(row)]), *given, **named)

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options = name, options
        try:
            signature_of(self.row.bind).bind(*[()] * taken(self.row.bind)[0], **options)
        except TypeError as error:
            takes = [each for each in signature_of(self.row.bind).parameters.values() if each.kind == each.KEYWORD_ONLY]
            words = ", ".join(str(each.replace(annotation=each.empty)) for each in takes)
            raise TypeError(f"Operation {name!r}: {error}; its options are {words or 'none'}") from None

    @property
    def row(self) -> Any:
        """The row of the table."""
        return row_of(self.name)

    def bound(self, *shapes: Shape) -> Bound:
        """Return the operation at features of these shapes."""
        count, more = taken(self.row.bind)
        if len(shapes) < count or (len(shapes) > count and not more):
            words = {1: "one input", 2: "two inputs"}.get(count, f"{count} inputs")
            raise ValueError(f"expected {'at least ' * more}{words}, got {len(shapes)}")
        o = self.row.bind(*shapes, **self.options)
        o.shapes = shapes
        return o

    def at(self, *arrays: Array) -> Bound:
        """Return the operation at the features of arrays ``[N, *in]``."""
        return self.bound(*[x.shape[1:] for x in arrays])

    def output_shape(self, *shapes: Shape) -> Shape:
        return self.bound(*shapes).shape

    def cost(self, *shapes: Shape) -> int:
        """Return the number of operations on numbers for one sample of features of these shapes."""
        return int(self.row.cost(self.bound(*shapes)))

    def text(self, *names: str, shapes: tuple[Shape, ...]) -> str:
        """Return the function of one sample in NumPy, for inputs of these names and shapes."""
        options = {key: _written(value) for key, value in vars(self.bound(*shapes)).items()}
        return self.row.text.format(*names, all=", ".join(names), **options)

    def __repr__(self) -> str:
        return f"Operation({self.describe()})"

    def describe(self) -> str:
        return ", ".join([repr(self.name), *[f"{key}={_short(value)}" for key, value in self.options.items()]])


class CurveOperation(Operation, Elementwise):
    """An elementwise row."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.curvature = "zero" if self.row.second is None else "diagonal"  # type: ignore[misc]
        self.formulas = dict(zip(("forward", "mjp", "residual", "where"), self.row.formulas.split("; "), strict=False))

    def output_shape(self, *shapes: Shape) -> Shape:
        return self.bound(*shapes).shape

    def value(self, x: Array) -> Array:
        return self.row.value(x, self.at(x))

    def slopes(self, x: Array, y: Array) -> tuple[Array, ...]:
        """Return factors of φ'(x): columns are multiplied by one after the other, as φ' may be beyond the dtype."""
        found = self.row.first(x, y, self.at(x))
        return found if isinstance(found, tuple) else (found,)

    def first(self, x: Array, y: Array) -> Array:
        return reduce(mul, self.slopes(x, y))

    def jmp(self, saved: Any, mat: Array) -> Array:
        return reduce(mul, self.slopes(*saved), mat)

    mjp = jmp

    def bends(self, x: Array, y: Array) -> tuple[Array, ...]:
        """Return factors of φ''(x), as `slopes` does of φ'(x)."""
        found = self.row.second(x, y, self.at(x))
        return found if isinstance(found, tuple) else (found,)

    def second(self, x: Array, y: Array) -> Array:
        return reduce(mul, self.bends(x, y))

    def residual(self, saved: Any, grad: Array) -> DiagonalFactors:  # type: ignore[override]
        return DiagonalFactors((grad, *self.bends(*saved)))  # in this order the roots of quotients stay in the range


class LinearOperation(Operation):
    """A linear row, or one that is linear in pieces."""

    formulas = {"forward": "y = A x", "mjp": "Aᵀ g"}

    def forward(self, *inputs: Array) -> tuple[Array, Any]:
        o = self.at(*inputs)
        y, chosen = self.row.forward(o, *inputs)
        return y, (o, chosen)

    def jmp(self, saved: Any, *mats: Array) -> Array:
        return self.row.jmp(*saved, *mats)

    def mjp(self, saved: Any, mat: Array) -> Any:
        return self.row.mjp(*saved, mat)


class BilinearOperation(Operation, FactoredLayer):
    """A bilinear row y = f(a, b): the residual is that of a and b together, Σₖ over the smaller of the two."""

    bilinear = True
    formulas = {
        "forward": "y = f(a, b)", "mjp": "f(·, b)ᵀ g, f(a, ·)ᵀ g", "residual": "Σₖ aₖ (f(eₖ, ·)ᵀ g) b",
    }  # fmt: skip

    def forward(self, a: Array, b: Array) -> tuple[Array, Any]:  # type: ignore[override]
        o = self.at(a, b)
        return self.row.function(o, a, b), (o, a, b)

    def jmp(self, saved: Any, of_a: Array, of_b: Array) -> Array:  # type: ignore[override]
        o, a, b = saved
        return self.row.function(o, of_a, b) + self.row.function(o, a, of_b)

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, Array]:  # type: ignore[override]
        o, a, b = saved
        return self.row.on_first(o, mat, b), self.row.on_second(o, a, mat)

    def residual_width(self, *shapes: Shape) -> int:
        return 2 * min(map(prod, shapes))

    def residual(self, saved: Any, grad: Array) -> Factored:
        o, *at = saved
        first = prod(o.shapes[0]) <= prod(o.shapes[1])
        return products(min(map(prod, o.shapes)), partial(self.pairs, o, grad, first), grad, at)

    def pairs(self, o: Bound, grad: Array, first: bool, k: Array) -> tuple[Array, Array]:
        """e_k on the smaller input, and what it multiplies there on the other: each (V, N, *in)."""
        unit = units(k, len(grad), o.shapes[0 if first else 1], grad.dtype)
        return (unit, self.row.on_second(o, unit, grad)) if first else (self.row.on_first(o, grad, unit), unit)


class QuotientOperation(Operation, FactoredLayer):
    """The quotient y = a / b: the residual is −(gᵢ / bᵢ²) β (α − yᵢ β), twice, for α of a and β of b at each number."""

    linear_in = (0,)
    formulas = {
        "forward": "y = a / b", "mjp": "g / b, −y g / b",
        "residual": "−Σₖ (Σᵢ gᵢ/bₖ (eᵢ on a, −yᵢ eₖ on b)) (eₖ/bₖ on b), both ways",
    }  # fmt: skip

    def forward(self, a: Array, b: Array) -> tuple[Array, Any]:  # type: ignore[override]
        o = self.at(a, b)
        y = self._aligned(o, a, 0) / self._aligned(o, b, 1)
        return y, (o, a, b, y)

    def jmp(self, saved: Any, of_a: Array, of_b: Array) -> Array:  # type: ignore[override]
        o, _, b, y = saved
        b = self._aligned(o, b, 1)
        return self._aligned(o, of_a, 0) / b - y * (self._aligned(o, of_b, 1) / b)

    def mjp(self, saved: Any, mat: Array) -> tuple[Array, Array]:  # type: ignore[override]
        o, _, b, y = saved
        on_a = mat / self._aligned(o, b, 1)
        return summed_to(on_a, o.shapes[0], len(o.shape)), summed_to(-y * on_a, o.shapes[1], len(o.shape))

    def _aligned(self, o: Bound, x: Array, i: int) -> Array:
        return aligned(x, o.shapes[i], len(o.shape))

    def residual_width(self, *shapes: Shape) -> int:
        return 2 * prod(shapes[1])

    def residual(self, saved: Any, grad: Array) -> Factored:
        return products(prod(saved[0].shapes[1]), partial(self.pairs, saved, grad), grad, saved[1:3])

    def pairs(self, saved: Any, grad: Array, k: Array) -> tuple[Array, ...]:
        """Jᵀ of the part of g at e_k of b, on a; −e_k / b; and that on b: each (V, N, *in)."""
        o, _, b, _ = saved
        unit = units(k, len(grad), o.shapes[1], grad.dtype)
        on_a, on_b = self.mjp(saved, grad * self._aligned(o, unit, 1))
        return on_a, -unit / b, on_b


class ComposedOperation(Operation):
    """A row that is composed of layers: in a network these stand in its place, with names below its own."""

    def output_shape(self, *shapes: Shape) -> Shape:
        nodes = Nodes((), None, False)
        sources = [nodes.add(f"input {i}", Given(shape)) for i, shape in enumerate(shapes)]
        return nodes.leaves[self.place(nodes, "", *sources)].output_shape

    def place(self, nodes: Nodes, name: str, *sources: int) -> int:
        if isinstance(nodes, Unexpanded):
            return nodes.add(name, self, *sources)
        shapes = tuple([nodes.input_shape if i == INPUT else nodes.leaves[i].output_shape for i in sources])
        try:
            o = self.bound(*shapes)
        except ValueError as error:
            raise ValueError(f"layer {name or '(alone)'}, {self!r}: {error}") from None
        used: Counter[str] = Counter()

        def op(row: Any, *inputs: int, **options: Any) -> int:
            layer = row if isinstance(row, Layer) else Operation(row, **options)
            part = getattr(layer, "name", type(layer).__name__.lower())
            used[part] += 1
            part += str(used[part]) * (used[part] > 1)
            return layer.place(nodes, inside(name, part), *inputs)

        return self.row.parts(o, op, *sources)


class Given(Layer):
    """A place for an input of a composed operation."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def output_shape(self, *shapes: Shape) -> Shape:
        return self.shape


CLASSES: dict[type[OperationRow], type[Operation]] = {
    CurveRow: CurveOperation, LinearRow: LinearOperation,
    BilinearRow: BilinearOperation, QuotientRow: QuotientOperation, ComposedRow: ComposedOperation,
}  # fmt: skip
"""The class of each kind."""


def row_of(name: Any) -> OperationRow:
    """Return a row of the table by its name."""
    row = ROWS.get(name) if isinstance(name, str) else None
    if row is None:
        raise ValueError(f"name: expected one of the operations {sorted(ROWS)}, got {name!r}{near_miss(name, ROWS)}")
    return row


def _written(value: Any) -> str:
    """Return a bound option as it is written in a program that has `np`."""
    if isinstance(value, float) and value in (inf, -inf):
        return "np.inf" if value > 0 else "-np.inf"
    if is_array(value):
        return f"np.array({value.tolist()!r})"
    if isinstance(value, tuple) and any(is_array(each) for each in value):
        return ", ".join(map(_written, value))
    if isinstance(value, tuple) and any(isinstance(each, slice) or each is Ellipsis for each in value):
        return ", ".join(_sliced(each) for each in value)
    return str(value)


def _sliced(part: Any) -> str:
    if not isinstance(part, slice):
        return "..." if part is Ellipsis else str(part)
    words = ["" if number is None else str(number) for number in (part.start, part.stop, part.step)]
    return ":".join(words if words[2] else words[:2])


def _short(value: Any) -> str:
    return f"array of shape {value.shape}" if is_array(value) else repr(value)
