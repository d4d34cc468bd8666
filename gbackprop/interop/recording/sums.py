"""Readers of NumPy's sums, products and other contractions."""

from __future__ import annotations

from typing import Any

from gbackprop.interop.recording.elementwise import Reader, joined
from gbackprop.interop.recording.steps import StepReader, Value


def reduction(row: str) -> Reader:
    """Return a reader of a reduction over axes."""

    def read(c: StepReader, x: Value, axis: Any = None, *, keepdims: bool = False, **options: Any) -> str:
        c.among(x)
        return c.op(row, c.operand(x), axis=c.axes(x, axis), keepdims=bool(keepdims), **options)

    return read


def _reduced(row: str) -> Reader:
    """Return a reader of a ufunc's `reduce`, whose axis is 0 if none is given."""
    whole = reduction(row)

    def read(c: StepReader, x: Value, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> str:
        if not (dtype is None and out is None):
            raise TypeError("expected neither dtype nor out")
        return whole(c, x, axis, keepdims=keepdims)

    return read


def _norm(c: StepReader, x: Value, ord: Any = None, axis: Any = None, keepdims: bool = False) -> str:
    count = len(c.axes(x, axis))
    if not (ord is None or (ord == 2 and count == 1) or (ord == "fro" and count == 2)):
        raise TypeError(f"ord={ord!r}")
    return reduction("norm")(c, x, axis, keepdims=keepdims)


def _cumsum(c: StepReader, x: Value, axis: Any = None) -> str:
    if axis is None:
        raise TypeError("expected an axis")
    c.among(x)
    return c.op("cumsum", c.operand(x), axis=c.axis(x, axis))


def triangle(row: str) -> Reader:
    """Return a reader of tril or triu."""

    def read(c: StepReader, m: Value, k: int = 0) -> str:
        c.whole = True  # of one sample there may be no matrix
        return c.op(row, c.operand(m), k=int(k))

    return read


def _matmul(c: StepReader, a: Any, b: Any) -> str:
    a, b = c.value(a), c.value(b)
    c.among(a, b)
    wide = max(len(c.out.shape), 3)
    return c.op("matmul", c.operand(a, wide), c.operand(b, wide))


def _dot(c: StepReader, a: Any, b: Any) -> str:
    if min(len(c.value(a).shape), len(c.value(b).shape)) == 0:
        return joined(c, "multiply", a, b)
    if len(c.value(b).shape) > 2:
        raise TypeError("np.dot of such arrays: use np.matmul or np.einsum")
    return _matmul(c, a, b)


def _einsum(c: StepReader, subscripts: str, *operands: Any, optimize: Any = None) -> str:
    if not isinstance(subscripts, str):
        raise TypeError("expected subscripts as text")
    left, arrow, out = subscripts.replace(" ", "").partition("->")
    names, values = left.split(","), [c.value(each) for each in operands]
    if not arrow:
        out = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    if "." in subscripts or len(names) > 2 or any(len(set(each)) < len(each) for each in names):
        raise TypeError(f"{subscripts!r}: expected one or two operands, with a letter for each axis, once in each")
    c.among(*values)
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


def _tensordot(c: StepReader, a: Any, b: Any, axes: Any = 2) -> str:
    n, m = len(c.value(a).shape), len(c.value(b).shape)
    pairs = (range(n - axes, n), range(axes)) if isinstance(axes, int) else axes
    on_a, on_b = [[each] if isinstance(each, int) else list(each) for each in pairs]
    first, second = list("abcdefghij"[:n]), list("klmnopqrst"[:m])
    for i, j in zip(on_a, on_b, strict=True):
        second[j] = first[i]
    out = [letter for letter in first + second if (letter in first) != (letter in second)]
    return _einsum(c, f"{''.join(first)},{''.join(second)}->{''.join(out)}", a, b)


def _outer(c: StepReader, a: Any, b: Any) -> str:
    return _einsum(c, "i,j->ij", a, b)


SUMS: dict[str, Reader] = {
    **{name: reduction(name) for name in ("sum", "mean", "max", "min", "prod", "var", "std")},
    "amax": reduction("max"), "amin": reduction("min"), "linalg.norm": _norm, "cumsum": _cumsum,
    "add.reduce": _reduced("sum"), "multiply.reduce": _reduced("prod"), "maximum.reduce": _reduced("max"),
    "minimum.reduce": _reduced("min"), "tril": triangle("tril"), "triu": triangle("triu"),
    "matmul": _matmul, "dot": _dot, "einsum": _einsum, "tensordot": _tensordot, "outer": _outer,
}  # fmt: skip
"""The readers by the functions' names."""
