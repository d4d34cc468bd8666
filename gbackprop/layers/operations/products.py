"""Rows of products of two inputs."""

from __future__ import annotations

from math import prod

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.axes import aligned, broadcast, summed_to
from gbackprop.layers.operations.row import BilinearRow, Bound, bound, numbers, only, table

NONE = "none: bilinear"


def _pair(shapes: tuple[Shape, ...]) -> Bound:
    only(shapes, 2)
    return bound(shapes, broadcast(shapes))


def _times(o: Bound, a: Array, b: Array) -> Array:
    return aligned(a, o.shapes[0], len(o.shape)) * aligned(b, o.shapes[1], len(o.shape))


def _multiplied(shapes: tuple[Shape, ...]) -> Bound:
    only(shapes, 2)
    a, b = shapes
    if not a or not b:
        raise ValueError(f"expected vectors or matrices, got features {a} and {b}")
    wide = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    if wide[0][-1] != wide[1][-2]:
        raise ValueError(f"expected features (…, T, K) and (…, K, S), got {a} and {b}")
    lead = broadcast([wide[0][:-2], wide[1][:-2]])
    whole = (*lead, wide[0][-2], wide[1][-1])
    shape = (*lead, *(wide[0][-2:-1] if len(a) > 1 else ()), *(wide[1][-1:] if len(b) > 1 else ()))
    return bound(shapes, shape, wide=wide, whole=whole)


def _matrices(o: Bound, x: Array, i: int) -> Array:
    """Return an input as matrices with as many axes as the product has."""
    lead = x.shape[: x.ndim - len(o.shapes[i])]
    return aligned(x.reshape(*lead, *o.wide[i]), o.wide[i], len(o.whole))


def _wide(o: Bound, g: Array) -> Array:
    return g.reshape(*g.shape[: g.ndim - len(o.shape)], *o.whole)


def _matmul(o: Bound, a: Array, b: Array) -> Array:
    y = _matrices(o, a, 0) @ _matrices(o, b, 1)
    return y.reshape(*y.shape[: y.ndim - len(o.whole)], *o.shape)


def _back(o: Bound, g: Array, i: int) -> Array:
    return summed_to(g, o.wide[i], len(o.whole)).reshape(*g.shape[: g.ndim - len(o.whole)], *o.shapes[i])


def _summed(shapes: tuple[Shape, ...], subscripts: str) -> Bound:
    only(shapes, 2)
    left, arrow, out = subscripts.replace(" ", "").partition("->")
    names = left.split(",")
    letters = "".join(names) + out
    if not arrow or len(names) != 2 or not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise ValueError(f"subscripts: expected 'a,b->c' with letters for all axes of features, got {subscripts!r}")
    if any(len(set(each)) < len(each) for each in (*names, out)) or not set(out) <= set(left):
        raise ValueError(f"subscripts: expected each letter once in an input, and those of the output in one, "
                         f"got {subscripts!r}")  # fmt: skip
    sizes: dict[str, int] = {}
    a, b = shapes
    for name, shape in zip(names, shapes, strict=True):
        if len(name) != len(shape) or any(sizes.setdefault(axis, n) != n for axis, n in zip(name, shape, strict=True)):
            raise ValueError(f"subscripts: expected letters for features {a} and {b}, got {subscripts!r}")
    return bound(shapes, tuple(sizes[a] for a in out), subscripts=f"{left}->{out}", names=(*names, out), sizes=sizes)


def _einsum(o: Bound, x: Array, y: Array, order: tuple[int, int, int]) -> Array:
    """Sum products of two of the three arrays a, b and y over the letters that the third lacks."""
    first, second, out = (o.names[i] for i in order)
    alone = "".join(letter for letter in out if letter not in first + second)  # the result is the same along these
    xp = array_module(x)
    if alone:
        ones = xp.ones([o.sizes[letter] for letter in alone], dtype=x.dtype)
        return xp.einsum(f"...{first},...{second},{alone}->...{out}", x, y, ones)
    return xp.einsum(f"...{first},...{second}->...{out}", x, y)


def _products(o: Bound) -> int:
    return prod(o.sizes.values())


BILINEARS = table(
    BilinearRow(
        "multiply", "{0} * {1}", NONE, numbers(), _pair, _times,
        lambda o, g, b: summed_to(g * aligned(b, o.shapes[1], len(o.shape)), o.shapes[0], len(o.shape)),
        lambda o, a, g: summed_to(g * aligned(a, o.shapes[0], len(o.shape)), o.shapes[1], len(o.shape)),
    ),
    BilinearRow(
        "matmul", "np.matmul({0}, {1})", NONE, lambda o: prod(o.whole) * o.wide[0][-1], _multiplied, _matmul,
        lambda o, g, b: _back(o, _wide(o, g) @ _matrices(o, b, 1).swapaxes(-1, -2), 0),
        lambda o, a, g: _back(o, _matrices(o, a, 0).swapaxes(-1, -2) @ _wide(o, g), 1),
    ),
    BilinearRow(
        "einsum", "np.einsum({subscripts!r}, {0}, {1})", NONE, _products, _summed,
        lambda o, a, b: _einsum(o, a, b, (0, 1, 2)),
        lambda o, g, b: _einsum(o, g, b, (2, 1, 0)),
        lambda o, a, g: _einsum(o, a, g, (0, 2, 1)),
    ),
)  # fmt: skip
"""The bilinear rows, by name."""
