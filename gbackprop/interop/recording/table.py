"""The table of NumPy's functions: how each is read as rows of the table of operations."""

from __future__ import annotations

from collections.abc import Callable
from math import log, prod
from typing import Any

import numpy as np

from gbackprop.interop.recording.arrays import SHAPED, TURNS, _getitem, mapped
from gbackprop.interop.recording.one_hot import OneHot
from gbackprop.interop.recording.reading import ROWS, Call, Value
from gbackprop.interop.recording.refused import MissingFunctionError, MixedSamplesError, NoDerivativeError
from gbackprop.layers import ReLU, Sigmoid, Softplus, Tanh

Reader = Callable[..., Any]


def number(given: Any) -> float | None:
    """Return an operand that is one number, or None."""
    if isinstance(given, Value):
        given = given.constant if given.constant is not None and not given.shape else None
    return None if given is None or isinstance(given, list | tuple) or np.ndim(given) else float(given)


# ---------------------------------------------------------------------------------------------------- elementwise


def curve(*rows: str, **options: Any) -> Reader:
    """Return a reader of a function of each number, by rows one after the other; the last has the options."""

    def read(c: Call, x: Any) -> str:
        c.among(x)
        name = c.operand(x)
        for row in rows:
            name = c.op(row, name, **(options if row == rows[-1] else {}))
        return name

    return read


def layer(make: Any) -> Reader:
    """Return a reader of a function of each number that is a layer."""

    def read(c: Call, x: Any) -> str:
        c.among(x)
        return c.add(make(), c.operand(x))

    return read


def joined(c: Call, row: str, *given: Any) -> str:
    """Append a row of several inputs that are broadcast."""
    values = [c.value(each) for each in given]
    c.among(*values)
    ndim = len(c.out.shape)
    if any(each.batch and len(each.shape) != ndim for each in values):
        c.whole = True
    if c.plain and any(not each.batch and len(each.shape) == ndim and each.shape[0] != 1 for each in values):
        c.refuse(MixedSamplesError, f"np.{c.step.name} broadcasts the batch axis to an array without one")
    return c.op(row, *[c.operand(each, ndim) for each in values])


def join(row: str, with_number: Callable[..., str | None] | None = None) -> Reader:
    """Return a reader of a function of two inputs; `with_number` reads it if one of them is a number."""

    def read(c: Call, a: Any, b: Any) -> str:
        first, second = number(a), number(b)
        x, n = (a, second) if second is not None else (b, first)
        if with_number is not None and n is not None and isinstance(x, Value) and x.constant is None:
            c.among(x)
            if x.shape == c.out.shape:
                found = with_number(c, c.operand(x), n, second is None)
                if found is not None:
                    return found
        return joined(c, row, a, b)

    return read


def _added(c: Call, x: str, n: float, left: bool) -> str:
    return c.op("affine", x, shift=n)


def _subtracted(c: Call, x: str, n: float, left: bool) -> str:
    return c.op("affine", x, factor=-1, shift=n) if left else c.op("affine", x, shift=-n)


def _multiplied(c: Call, x: str, n: float, left: bool) -> str:
    return c.op("affine", x, factor=n)


def _divided(c: Call, x: str, n: float, left: bool) -> str | None:
    if not left:
        return c.op("affine", x, factor=1 / n) if n else None
    inverse = c.op("reciprocal", x)
    return inverse if n == 1 else c.op("affine", inverse, factor=n)


def _powered(c: Call, x: str, n: float, left: bool) -> str | None:
    if not left:
        return c.op("square", x) if n == 2 else c.op("power", x, exponent=int(n) if n == int(n) else n)
    return c.op("exp", c.op("affine", x, factor=log(n))) if n > 0 else None


def _larger(c: Call, x: str, n: float, left: bool) -> str:
    return c.add(ReLU(), x) if n == 0 else c.op("clip", x, least=n)


def _smaller(c: Call, x: str, n: float, left: bool) -> str:
    return c.op("clip", x, most=n)


def _soft(c: Call, a: Any, b: Any) -> str:
    if number(a) == 0 and isinstance(b, Value):
        return layer(Softplus)(c, b)
    difference = joined(c, "subtract", a, b)
    c.reading.shapes[difference]
    return c.op("add", c.add(Softplus(), difference), c.operand(b, len(c.out.shape)))


def compared(sign: int, equal: bool) -> Reader:
    """Return a reader of a comparison: 1 where sign · (a − b) is positive, or also where it is 0."""

    def read(c: Call, a: Any, b: Any) -> str:
        signs = c.op("sign", joined(c, "subtract", a, b))
        if equal:  # 1 − [a − b has the other sign]
            other = c.op("clip", c.op("affine", signs, factor=-sign), least=0.0)
            return c.op("affine", other, factor=-1, shift=1)
        return c.op("clip", c.op("affine", signs, factor=sign), least=0.0)

    return read


def _equal(c: Call, a: Any, b: Any) -> str:
    signs = c.op("sign", joined(c, "subtract", a, b))
    return c.op("affine", c.op("square", signs), factor=-1, shift=1)


def _unequal(c: Call, a: Any, b: Any) -> str:
    return c.op("square", c.op("sign", joined(c, "subtract", a, b)))


def _truth(row: str) -> Reader:
    def read(c: Call, a: Any, b: Any) -> str:
        if c.value(a).kind != "b" or c.value(b).kind != "b":
            c.refuse(NoDerivativeError, f"np.{c.step.name} of numbers has no derivative; compare them first")
        return joined(c, row, a, b)

    return read


def _inverted(c: Call, x: Value) -> str:
    if x.kind != "b":
        c.refuse(NoDerivativeError, f"np.{c.step.name} of numbers has no derivative; compare them first")
    return curve("affine", factor=-1, shift=1)(c, x)


def _same(c: Call, x: Value, *args: Any, **kwargs: Any) -> Value:
    c.out.pieces, c.out.places, c.out.constant = x.pieces, x.places, x.constant
    return c.out


def _cast(c: Call, x: Value, dtype: Any) -> Value:
    if dtype.kind in "iu" and x.kind == "f" and x.data:
        c.refuse(NoDerivativeError, f"astype({dtype}) has no derivative")
    return _same(c, x)


def _where(c: Call, condition: Any, a: Any, b: Any) -> str:
    return joined(c, "where", condition, a, b)


def _clipped(c: Call, x: Value, a_min: Any = None, a_max: Any = None, **more: Any) -> str:
    low, high = more.pop("min", a_min), more.pop("max", a_max)
    if more:
        raise TypeError(f"unexpected {list(more)}")
    bounds = {"least": low, "most": high}
    given = {key: value for key, value in bounds.items() if value is not None}
    if all(number(value) is not None for value in given.values()):
        return curve("clip", **{key: number(value) for key, value in given.items()})(c, x)
    raise TypeError("bounds that are arrays: use np.maximum and np.minimum")


# ---------------------------------------------------------------------------------------------------- reductions


def reduction(row: str) -> Reader:
    """Return a reader of a reduction over axes."""

    def read(c: Call, x: Value, axis: Any = None, *, dtype: Any = None, keepdims: bool = False, **options: Any) -> str:
        c.among(x)
        return c.op(row, c.operand(x), axis=c.axes(x, axis), keepdims=bool(keepdims), **options)

    return read


def _reduced(row: str) -> Reader:
    read = reduction(row)
    return lambda c, x, axis=0, dtype=None, out=None, keepdims=False: read(c, x, axis, keepdims=keepdims)


def _norm(c: Call, x: Value, ord: Any = None, axis: Any = None, keepdims: bool = False) -> str:
    count = len(c.axes(x, axis))
    if not (ord is None or (ord == 2 and count == 1) or (ord == "fro" and count == 2)):
        raise TypeError(f"ord={ord!r}")
    return reduction("norm")(c, x, axis, keepdims=keepdims)


def _cumsum(c: Call, x: Value, axis: Any = None) -> str:
    if axis is None:
        raise TypeError("expected an axis")
    c.among(x)
    return c.op("cumsum", c.operand(x), axis=c.axis(x, axis))


def triangle(row: str) -> Reader:
    """Return a reader of tril or triu."""

    def read(c: Call, m: Value, k: int = 0) -> str:
        c.whole = not m.plain or len(m.shape) < 3
        return c.op(row, c.operand(m), k=int(k))

    return read


# ------------------------------------------------------------------------------------------------------ products


def _matmul(c: Call, a: Any, b: Any) -> str:
    a, b = c.value(a), c.value(b)
    c.among(a, b)
    least = 2 if b.batch is None and len(b.shape) <= 2 else 3
    if (a.batch and len(a.shape) < least) or (b.batch and len(b.shape) < 3):
        c.whole = True
    if any(not each.batch and len(each.shape) == len(c.out.shape) and each.shape[0] != 1 and len(each.shape) > 2
           for each in (a, b)):  # fmt: skip
        c.whole = True
    wide = max(len(c.out.shape), 3)
    return c.op("matmul", c.operand(a, wide), c.operand(b, wide))


def _dot(c: Call, a: Any, b: Any) -> str:
    if min(len(c.value(a).shape), len(c.value(b).shape)) == 0:
        return TABLE["multiply"](c, a, b)
    if len(c.value(b).shape) > 2:
        raise TypeError("np.dot of such arrays: use np.matmul or np.einsum")
    return _matmul(c, a, b)


def _einsum(c: Call, subscripts: str, *operands: Any, optimize: Any = None) -> str:
    left, arrow, out = subscripts.replace(" ", "").partition("->")
    names, values = left.split(","), [c.value(each) for each in operands]
    if not arrow:
        out = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    if "." in subscripts or len(names) > 2 or any(len(set(each)) < len(each) for each in names):
        raise TypeError(f"{subscripts!r}: expected one or two operands, with a letter for each axis, once in each")
    c.among(*values)
    batches = {name[value.batch[0]] for name, value in zip(names, values, strict=True) if value.batch}
    c.whole = c.whole or batches != {out[:1]} or any(
        out[:1] in name and not value.batch for name, value in zip(names, values, strict=True)
    )  # fmt: skip
    taken = [c.operand(each) for each in values]
    if c.plain:
        drop = out[0]
        names = [name[1:] if value.batch else name for name, value in zip(names, values, strict=True)]
        out = out.replace(drop, "")
    if len(names) == 2:
        return c.op("einsum", *taken, subscripts=f"{','.join(names)}->{out}")
    (name,) = names
    gone = tuple(i - len(name) for i, letter in enumerate(name) if letter not in out)
    node = c.op("sum", taken[0], axis=gone) if gone else taken[0]
    rest = [letter for letter in name if letter in out]
    axes = tuple(rest.index(letter) - len(out) for letter in out)
    return node if axes == tuple(range(-len(out), 0)) else c.op("transpose", node, axes=axes)


def _tensordot(c: Call, a: Any, b: Any, axes: Any = 2) -> str:
    n, m = len(c.value(a).shape), len(c.value(b).shape)
    pairs = (range(n - axes, n), range(axes)) if isinstance(axes, int) else axes
    on_a, on_b = [[each] if isinstance(each, int) else list(each) for each in pairs]
    first, second = list("abcdefghij"[:n]), list("klmnopqrst"[:m])
    for i, j in zip(on_a, on_b, strict=True):
        second[j] = first[i]
    out = [letter for letter in first + second if (letter in first) != (letter in second)]
    return _einsum(c, f"{''.join(first)},{''.join(second)}->{''.join(out)}", a, b)


def _outer(c: Call, a: Any, b: Any) -> str:
    return _einsum(c, "i,j->ij", a, b)


# --------------------------------------------------------------------------------------------------------- moves


def places_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return the number of each place of an array."""
    return np.arange(prod(shape)).reshape(shape)


def fixed(value: Any) -> Any:
    """Return an argument with plain arrays; one that was computed is an error."""
    if not isinstance(value, Value):
        return mapped(fixed, value)
    if value.constant is None:
        raise TypeError("an array that was computed is an index or a size")
    return value.constant


def move(c: Call, x: Value, *args: Any, **kwargs: Any) -> Any:
    """Read any function that only moves numbers, by what it does to the numbers of places."""
    function = c.step.function
    given, named = fixed(args), fixed(kwargs)
    if c.step.name in SHAPED:
        places = places_of(c.out.shape)
    else:
        found = function(places_of(x.shape), *given, **named)
        places = found[c.k] if isinstance(found, list | tuple) else found
    if x.places is not None:
        return placed(c, x, x.places[places.ravel()])
    if c.step.name in TURNS:
        order = function(np.empty(range(len(x.shape))), *given, **named).shape
        c.among(x)
        c.whole = c.whole or order[:1] != (0,) or not x.batch
        ndim = len(order)
        return c.op("transpose", c.operand(x), axes=tuple(i - ndim for i in (order[1:] if c.plain else order)))
    c.among(x)
    name = c.reading.node(x, x.features)
    if c.step.name == "getitem":
        index = _basic(given[0], len(x.shape))
        if index is not None and not np.array_equal(places.ravel(), np.arange(prod(x.shape))):
            plain = c.plain and x.batch == (0, 1) and isinstance(index[0], slice)
            whole = c.reading.shaped(name, x.features if plain else x.shape)
            return c.op("getitem", whole, index=index[1:] if plain else index)
    return c.reading.gathered(name, places, c.shape)


def _basic(index: Any, ndim: int) -> tuple[Any, ...] | None:
    """Return an index of integers, slices and None with its … written out, or None."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(p is None or p is Ellipsis or isinstance(p, int | np.integer | slice) for p in parts):
        return None
    if any(isinstance(p, bool) for p in parts):
        return None
    parts = [int(p) if isinstance(p, np.integer) else p for p in parts]
    count = ndim - sum(p is not None and p is not Ellipsis for p in parts)
    at = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
    return (*parts[:at], *[slice(None)] * count, *parts[at + 1 :])


def _indexed(c: Call, x: Value, index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    computed = [i for i, p in enumerate(parts) if isinstance(p, Value) and p.constant is None]
    if not computed:
        return move(c, x, index)
    if len(computed) == 1 and parts[computed[0]].kind in "iu":
        (i,) = computed
        if i == 0 and len(parts) == 1 and not x.batch:  # a table of vectors
            flat = c.reading.node(x, (x.shape[0], prod(x.shape[1:])))
            c.among(parts[0])
            return c.op("matmul", one_hot(c, parts[0], x.shape[0]), flat)
        own = isinstance(parts[0], Value) and parts[0].kind == ROWS
        if own and i == 1 and len(parts) == 2 and len(x.shape) == 2 and parts[1].batch == (0, 1):
            return _chosen(c, x, parts[1], -1)
    c.refuse(MissingFunctionError, "an index that was computed is not in the table: multiply by `i[..., None] == "
             "np.arange(size)`, or choose by np.where")  # fmt: skip


def _taken(c: Call, x: Value, indices: Any, axis: Any = None) -> Any:
    if isinstance(indices, Value) and indices.constant is None and axis in (0, -len(x.shape)):
        return _indexed(c, x, indices)
    return move(c, x, indices, axis)


def one_hot(c: Call, index: Value, size: int) -> str:
    """Append nodes that are 1 at an index and 0 elsewhere; not a number where it is none of -size to size − 1."""
    if index.pieces == ["input"] and index.kind in "iu":
        return c.add(OneHot(size), "input")
    name = c.operand(index)
    wide = c.reading.shaped(name, (*c.reading.shapes[name], 1))
    found = []
    for first in (0, -size):
        numbers = c.operand(np.arange(first, first + size, dtype="float64"))
        signs = c.op("square", c.op("sign", c.op("subtract", wide, numbers)))
        found.append(c.op("affine", signs, factor=-1, shift=1))
    both = c.op("add", *found)
    return c.op("divide", both, c.op("sum", both, axis=-1, keepdims=True))


def _chosen(c: Call, x: Value, index: Value, axis: int) -> str:
    c.among(x, index)
    hot = one_hot(c, index, x.shape[axis])
    return c.op("sum", c.op("multiply", c.operand(x), hot), axis=axis)


def _along(c: Call, x: Value, indices: Any, axis: Any = -1) -> Any:
    if c.value(indices).constant is not None:
        return move(c, x, indices, axis)
    if c.axis(x, axis) != -1 or indices.shape[-1] != 1 or not x.batch:
        raise TypeError("expected one index along the last axis, of each sample")
    squeezed = Value(indices.shape[:-1], indices.batch, True, indices.kind)
    squeezed.pieces = [c.reading.node(indices, squeezed.features)]
    found = _chosen(c, x, squeezed, -1)
    return c.reading.shaped(found, c.shape)


def placed(c: Call, like: Value, places: np.ndarray) -> Value:
    """Return the result as the numbers at places of the pieces of another value."""
    sizes = [prod(c.reading.shapes[name]) for name in like.pieces]
    ends = np.cumsum(sizes)
    owner = np.searchsorted(ends, places, side="right")
    used = np.unique(owner)
    pieces, shift = [], np.zeros(len(sizes), int)
    start = 0
    for i in used.tolist():
        shift[i] = start - (ends[i] - sizes[i])
        start += sizes[i]
        pieces.append(like.pieces[i])
    new = c.out
    new.pieces, new.places = pieces, places + shift[owner]
    if len(pieces) == 1 and np.array_equal(new.places, np.arange(start)):
        new.places = None
    return new


def _assigned(c: Call, x: Value, index: Any, value: Any) -> Value:
    """Read `x[index] = value`: the result has the numbers of x, and those of the value at the index."""
    target = _getitem(places_of(x.shape), fixed(index))
    b = c.value(value)
    source = np.broadcast_to(places_of(b.shape), target.shape)
    for each in (x, b):
        if not each.pieces:
            c.reading.node(each, each.features)
    before = np.arange(prod(x.shape)) if x.places is None else x.places
    given = np.arange(prod(b.shape)) if b.places is None else b.places
    both = Value(x.shape, x.batch, True, "f", pieces=x.pieces + b.pieces)
    places = before.copy()
    places[target.ravel()] = sum(prod(c.reading.shapes[name]) for name in x.pieces) + given[source.ravel()]
    return placed(c, both, places)


def _padded(c: Call, x: Value, pad_width: Any, mode: str = "constant", constant_values: float = 0) -> str:
    widths = [tuple(map(int, pair)) for pair in np.broadcast_to(pad_width, (len(x.shape), 2))]
    c.among(x)
    if x.batch and widths[x.batch[0]] != (0, 0):
        c.refuse(MixedSamplesError, "np.pad of the batch axis adds samples")
    more = {"value": float(constant_values)} if mode == "constant" else {}
    return c.op("pad", c.operand(x), widths=tuple(widths[1:] if c.plain else widths), mode=mode, **more)


def beside(row: str) -> Reader:
    """Return a reader of concatenate or stack."""

    def read(c: Call, arrays: Any, axis: Any = 0) -> str:
        values = [c.value(each) for each in arrays]
        c.among(*values)
        c.whole = c.whole or any(not each.batch for each in values)
        at = c.axes(c.out, axis)[0] if row == "concatenate" else int(axis) - len(c.out.shape) * (axis >= 0)
        if c.plain and at == -len(c.out.shape):
            c.refuse(MixedSamplesError, f"np.{c.step.name} along the batch axis: use axis 1")
        taken = [c.operand(each) for each in values]
        return taken[0] if row == "concatenate" and len(taken) == 1 else c.op(row, *taken, axis=at)

    return read


def _hstack(c: Call, arrays: Any) -> str:
    return beside("concatenate")(c, arrays, 0 if len(c.out.shape) == 1 else 1)


TABLE: dict[str, Reader] = {
    **{name: curve(name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "arctan", "sinh",
                                      "cosh", "erf", "negative", "absolute", "sign", "square", "reciprocal")},
    **dict.fromkeys(("abs", "fabs"), curve("absolute")), "atan": curve("arctan"),
    "log2": curve("log", "affine", factor=1 / log(2)), "log10": curve("log", "affine", factor=1 / log(10)),
    "exp2": lambda c, x: _powered(c, c.operand(x), 2.0, True),
    "tanh": layer(Tanh), "expit": layer(Sigmoid), "logaddexp": _soft,
    "add": join("add", _added), "subtract": join("subtract", _subtracted), "multiply": join("multiply", _multiplied),
    **dict.fromkeys(("divide", "true_divide"), join("divide", _divided)),
    **dict.fromkeys(("power", "pow", "float_power"), join("pow", _powered)),
    **dict.fromkeys(("maximum", "fmax"), join("maximum", _larger)),
    **dict.fromkeys(("minimum", "fmin"), join("minimum", _smaller)),
    "greater": compared(1, False), "greater_equal": compared(1, True), "less": compared(-1, False),
    "less_equal": compared(-1, True), "equal": _equal, "not_equal": _unequal,
    **dict.fromkeys(("logical_and", "bitwise_and"), _truth("multiply")),
    **dict.fromkeys(("logical_or", "bitwise_or"), _truth("maximum")),
    **dict.fromkeys(("logical_not", "invert", "bitwise_not"), _inverted),
    **dict.fromkeys(("positive", "conjugate", "conj", "real", "copy", "ascontiguousarray", "labels"), _same), "astype": _cast,
    "where": _where, "clip": _clipped,
    **{name: reduction(name) for name in ("sum", "mean", "max", "min", "prod", "var", "std")},
    "amax": reduction("max"), "amin": reduction("min"), "linalg.norm": _norm, "cumsum": _cumsum,
    "add.reduce": _reduced("sum"), "multiply.reduce": _reduced("prod"), "maximum.reduce": _reduced("max"),
    "minimum.reduce": _reduced("min"), "tril": triangle("tril"), "triu": triangle("triu"),
    "matmul": _matmul, "dot": _dot, "einsum": _einsum, "tensordot": _tensordot, "outer": _outer,
    **dict.fromkeys((*SHAPED, *TURNS, "broadcast_to", "flip", "fliplr", "flipud", "roll", "rot90", "repeat", "tile",
                     "diagonal", "linalg.diagonal", "rollaxis", "sliding_window_view", "split", "array_split",
                     "hsplit", "vsplit", "dsplit", "unstack"), move),
    "getitem": _indexed, "setitem": _assigned, "take": _taken, "take_along_axis": _along, "pad": _padded,
    **dict.fromkeys(("concatenate", "concat"), beside("concatenate")), "stack": beside("stack"), "hstack": _hstack,
}  # fmt: skip
"""The readers by the functions' names: from a `Call` and the arguments, the result's node."""
