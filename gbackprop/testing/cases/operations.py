"""Rows of the table of operations as cases; each definition is the row's own text in NumPy, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from gbackprop.calculus.layer import Layer, Shape
from gbackprop.layers import Linear, Softplus
from gbackprop.layers.operations.operation import ComposedOperation, Operation
from gbackprop.network import Graph, Sequential
from gbackprop.testing.cases.rows import LayerRow
from gbackprop.testing.flat import apart

MATRIX = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
PLACES = np.array([[4, 0], [4, 4], [1, 2]])

CASES: tuple[tuple[str, dict[str, Any], tuple[Shape, ...]], ...] = (
    ("exp", {}, ((2, 3),)), ("expm1", {}, ((3,),)), ("log", {}, ((3,),)), ("log1p", {}, ((3,),)),
    ("log2", {}, ((3,),)), ("log10", {}, ((3,),)), ("raised", {"base": 2.5}, ((3,),)),
    ("divided_by", {"number": -2.5}, ((3,),)), ("reciprocal", {"numerator": -1.7}, ((3,),)),
    ("sqrt", {}, ((3,),)), ("root", {}, ((3,),)), ("rsqrt", {}, ((3,),)), ("reciprocal", {}, ((3,),)),
    ("square", {}, ((2, 2),)), ("power", {"exponent": 3}, ((3,),)), ("power", {"exponent": -1.5}, ((3,),)),
    ("power", {"exponent": 1}, ((3,),)), ("power", {"exponent": 0}, ((3,),)),
    ("power", {"exponent": np.array([2.0, -0.5, 0.0])}, ((2, 3),)),
    ("sin", {}, ((3,),)), ("cos", {}, ((3,),)), ("tan", {}, ((3,),)), ("arctan", {}, ((3,),)), ("sinh", {}, ((3,),)),
    ("cosh", {}, ((3,),)), ("erf", {}, ((3,),)), ("negative", {}, ((3,),)), ("absolute", {}, ((4,),)),
    ("sign", {}, ((4,),)), ("affine", {"factor": -2.5, "shift": 0.3}, ((3,),)), ("clip", {"least": 0.6}, ((5,),)),
    ("clip", {"least": 0.6, "most": 1.0}, ((5,),)),
    ("sum", {}, ((2, 3),)), ("sum", {"axis": 1}, ((2, 3),)), ("sum", {"axis": (1, -1), "keepdims": True}, ((2, 3, 2),)),
    ("mean", {"axis": -1}, ((2, 3),)), ("mean", {"axis": (2, 3)}, ((2, 2, 3),)), ("max", {"axis": 1}, ((3, 2),)),
    ("max", {}, ((2, 2),)), ("min", {"axis": -1, "keepdims": True}, ((2, 3),)),
    ("reshape", {"shape": (3, -1)}, ((2, 3),)), ("reshape", {"shape": ()}, ((1,),)),
    ("transpose", {}, ((2, 3),)), ("transpose", {"axes": (2, 3, 1)}, ((1, 2, 3),)),
    ("broadcast_to", {"shape": (2, 3, 2)}, ((3, 1),)), ("broadcast_to", {"shape": (2,)}, ((1,),)),
    ("getitem", {"index": (slice(1, None), None, 0)}, ((3, 2),)),
    ("getitem", {"index": (..., slice(0, 3, 2))}, ((2, 3),)),
    ("gather", {"places": PLACES}, ((5,),)), ("take", {"indices": np.array([1, -1, 1]), "axis": 2}, ((2, 3),)),
    ("flip", {}, ((2, 3),)), ("flip", {"axis": 1}, ((2, 3),)), ("roll", {"shift": 2, "axis": -1}, ((2, 3),)),
    ("roll", {"shift": (1, -1), "axis": (2, 1)}, ((2, 3),)), ("repeat", {"repeats": 2, "axis": 1}, ((2, 2),)),
    ("scatter_add", {"places": PLACES, "shape": (2, 3)}, ((3, 2),)),
    ("pad", {"widths": ((1, 0), (0, 2)), "value": 1.5}, ((2, 2),)),
    ("pad", {"widths": ((2, 1),), "mode": "reflect"}, ((3,),)), ("pad", {"widths": ((2, 1),), "mode": "edge"}, ((3,),)),
    ("pad", {"widths": ((0, 0), (1, 2)), "mode": "wrap"}, ((2, 2),)),
    ("along", {"matrix": MATRIX, "axis": 1}, ((3, 2),)), ("along", {"matrix": MATRIX, "axis": -1}, ((3,),)),
    ("cumsum", {"axis": 1}, ((3, 2),)), ("tril", {}, ((3, 3),)), ("triu", {"k": 1}, ((2, 2, 3),)),
    ("add", {}, ((2, 3), (2, 3))), ("add", {}, ((3,), (2, 1))), ("add", {}, ((), (2, 3))),
    ("subtract", {}, ((2, 1), (3,))),
    ("maximum", {}, ((2, 3), (3,))), ("minimum", {}, ((2, 1), (1, 2))), ("where", {}, ((3,), (2, 3), (2, 1))),
    ("concatenate", {"axis": 1}, ((2,), (3,))), ("concatenate", {"axis": -1}, ((2, 1), (2, 2))),
    ("multiply", {}, ((2, 2), (2, 2))), ("multiply", {}, ((2, 1), (3,))), ("multiply", {}, ((2,), ())),
    ("matmul", {}, ((2, 3), (3, 2))), ("matmul", {}, ((3,), (3, 2))), ("matmul", {}, ((2, 3), (3,))),
    ("matmul", {}, ((3,), (3,))), ("matmul", {}, ((2, 1, 2, 2), (3, 2, 1))),
    ("einsum", {"subscripts": "td,sd->ts"}, ((2, 3), (1, 3))), ("einsum", {"subscripts": "ab,c->b"}, ((2, 3), (2,))),
    ("einsum", {"subscripts": "hqd,khd->hqk"}, ((2, 1, 3), (2, 2, 3))),
    ("einsum", {"subscripts": "ab,bc->"}, ((2, 2),) * 2),
    ("divide", {}, ((2, 1), (3,))), ("divide", {}, ((2, 2), (2, 2))), ("divide", {}, ((3,), ())),
    ("divide", {}, ((), (2, 3))), ("pow", {}, ((3,), (2, 1))), ("var", {"axis": 1}, ((3,),)),
    ("var", {"axis": -1, "ddof": 1, "keepdims": True}, ((2, 3),)),
    ("std", {}, ((2, 2),)), ("norm", {"axis": 1}, ((3, 2),)),
    ("logsumexp", {"axis": -1}, ((2, 3),)), ("prod", {"axis": 1}, ((5, 2),)), ("prod", {}, ((2, 2),)),
    ("cosine_similarity", {"axis": -1}, ((2, 3), (3,))), ("glu", {"axis": 1}, ((4, 2),)),
    *[(name, {}, ((2, 3), (3,))) for name in ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")],
    ("softmax", {"axis": 1}, ((3, 2),)), ("log_softmax", {}, ((2, 3),)),
    ("index_add", {"indices": [2, 0, 2], "axis": 1}, ((3, 2), (3, 2))),
    ("unfold", {"kernel": 2}, ((2, 3, 3),)),
    ("unfold", {"kernel": (2, 1), "dilation": (2, 1), "padding": (1, 0), "stride": (2, 1)}, ((1, 3, 2),)),
    ("fold", {"size": (3, 2), "kernel": 2, "padding": 1, "stride": 2}, ((4, 4),)),
    ("interpolate", {"size": (4, 2)}, ((1, 3, 2),)), ("interpolate", {"size": 5, "mode": "linear"}, ((2, 3),)),
    ("interpolate", {"size": (5, 3), "mode": "linear", "corners": True}, ((1, 3, 2),)),
    ("interpolate", {"size": (2, 6), "mode": "cubic", "factors": (0.7, 1.5)}, ((1, 3, 4),)),
    ("stack", {"axis": 1}, ((3,), (3,))), ("stack", {"axis": -1}, ((2, 2), (2, 2), (2, 2))),
)  # fmt: skip
"""Names, options and shapes of inputs, each row at least once."""

POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "root", "rsqrt", "power", "pow", "reciprocal", "divide")
"""Rows that are tried at positive numbers."""


def evaluated(operation: Operation, shapes: Sequence[Shape], *arrays: np.ndarray) -> np.ndarray:
    """Compute an operation by its text in NumPy, one sample after the other."""
    names = [f"x{i}" for i in range(len(shapes))]
    text = operation.text(*names, shapes=tuple(shapes))
    known = {"np": np, "math": math, "scipy": scipy}
    return np.array([eval(text, known | dict(zip(names, sample, strict=True))) for sample in zip(*arrays, strict=True)])


def split(operation: Operation, shapes: Sequence[Shape]) -> Graph:
    """Return a network that applies an operation to parts of its input, which has all inputs flat and side by side."""
    nodes: dict[str, tuple[Any, ...]] = {}
    start = 0
    for i, shape in enumerate(shapes):
        part = slice(start, start + math.prod(shape))
        nodes[f"flat{i}"] = (Operation("getitem", index=part), "input")
        nodes[f"x{i}"] = (Operation("reshape", shape=shape), f"flat{i}")
        start = part.stop
    return Graph({**nodes, "y": (operation, *[f"x{i}" for i in range(len(shapes))])})


def around(name: str, options: dict[str, Any], shapes: Sequence[Shape]) -> tuple[Sequential, np.ndarray]:
    """Return a network with an operation on what a linear layer and an activation make positive, and a batch for it."""
    size = sum(math.prod(shape) for shape in shapes)
    parts = split(Operation(name, **options), shapes)
    chain = Linear(size, size), Softplus(), parts, Operation("reshape", shape=(-1,))
    return Sequential(*chain, rng=0, dtype="float64"), np.random.default_rng(1).standard_normal((2, size))


class OperationCase(LayerRow):
    """A row of an operation, at numbers at which it is defined."""

    @property
    def kind(self) -> type[Layer]:
        """The class that makes it."""
        return Operation

    def x(self, batch: int = 3, rng: Any = 0) -> np.ndarray:
        """Return a batch for it."""
        x = super().x(batch, rng)
        return abs(x) + 0.5 if any(repr(name) in repr(self.make()) for name in POSITIVE) else x


def row_of(name: str, options: dict[str, Any], shapes: tuple[Shape, ...]) -> LayerRow:
    """Return the case of an operation."""

    def make() -> Layer:
        operation = Operation(name, **options)
        return split(operation, shapes) if isinstance(operation, ComposedOperation) else operation

    def definition(*inputs: np.ndarray) -> np.ndarray:
        return evaluated(Operation(name, **options), shapes, *inputs)

    if not isinstance(make(), Operation):
        return OperationCase(make, (sum(map(math.prod, shapes)),), lambda x: definition(*apart(x, shapes)))
    if len(shapes) > 1:
        return OperationCase.of_several(make, shapes, definition)
    return OperationCase(make, shapes[0], definition)


OPERATIONS = tuple(row_of(*case) for case in CASES)
"""The cases of all rows of the table of operations."""
