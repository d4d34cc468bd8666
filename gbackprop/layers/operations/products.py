"""Rows of products of two inputs."""

from __future__ import annotations

from math import prod

from gbackprop.array import Array, array_module
from gbackprop.calculus.layer import Shape
from gbackprop.layers.operations.axes import aligned, broadcast, lead_of, summed_to
from gbackprop.layers.operations.row import BilinearRow, Bound, QuotientRow, numbers, table


def _pair(a: Shape, b: Shape) -> Bound:
    return Bound(shape=broadcast(a, b))


def _entries(o: Bound, x: Array, i: int, y: Array, k: int) -> Array:
    """Multiply arrays of the features of two of: the inputs, the output."""
    shapes, ndim = (*o.shapes, o.shape), len(o.shape)
    return aligned(x, shapes[i], ndim) * aligned(y, shapes[k], ndim)


def _multiplied(a: Shape, b: Shape) -> Bound:
    if not a or not b:
        raise ValueError(f"expected vectors or matrices, got features {a} and {b}")
    wide = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    if wide[0][-1] != wide[1][-2]:
        raise ValueError(f"expected features (…, T, K) and (…, K, S), got {a} and {b}")
    lead = broadcast(wide[0][:-2], wide[1][:-2])
    whole = (*lead, wide[0][-2], wide[1][-1])
    shape = (*lead, *(wide[0][-2:-1] if len(a) > 1 else ()), *(wide[1][-1:] if len(b) > 1 else ()))
    return Bound(shape=shape, wide=(*wide, whole))


def _matrices(o: Bound, x: Array, i: int) -> Array:
    """Return an input, or the output, as matrices with as many axes as the product has."""
    shape, wide = (*o.shapes, o.shape)[i], o.wide[i]
    x = x if shape == wide else x.reshape(*lead_of(x, shape), *wide)
    return aligned(x, wide, len(o.wide[2]))


def times(a: Array, b: Array) -> Array:
    """Multiply matrices; the second can be the same for all, as a parameter is, which is one product."""
    if b.size == b.shape[-2] * b.shape[-1] and b.ndim <= a.ndim:
        return (a.reshape(-1, a.shape[-1]) @ b.reshape(b.shape[-2:])).reshape(*a.shape[:-1], b.shape[-1])
    return a @ b


def _product(o: Bound, a: Array, b: Array, i: int) -> Array:
    """Multiply matrices, and sum over those that were repeated, if it is for an input and not the output."""
    y = times(a, b)
    shape, wide = (*o.shapes, o.shape)[i], o.wide[i]
    y = y if i == 2 else summed_to(y, wide, len(o.wide[2]))
    return y if shape == wide else y.reshape(*lead_of(y, wide), *shape)


def _turned(x: Array) -> Array:
    return x.swapaxes(-1, -2)


def _summed(a: Shape, b: Shape, *, subscripts: str) -> Bound:
    left, arrow, out = subscripts.replace(" ", "").partition("->")
    names = left.split(",")
    letters = "".join(names) + out
    if not arrow or len(names) != 2 or not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise ValueError(f"subscripts: expected 'a,b->c' with letters for all axes of features, got {subscripts!r}")
    if any(len(set(each)) < len(each) for each in (*names, out)) or not set(out) <= set(left):
        raise ValueError(f"subscripts: expected each letter once in an input, and those of the output in one, "
                         f"got {subscripts!r}")  # fmt: skip
    sizes: dict[str, int] = {}
    for name, shape in zip(names, (a, b), strict=True):
        if len(name) != len(shape) or any(sizes.setdefault(axis, n) != n for axis, n in zip(name, shape, strict=True)):
            raise ValueError(f"subscripts: expected letters for features {a} and {b}, got {subscripts!r}")
    shape = tuple(sizes[axis] for axis in out)
    return Bound(shape=shape, subscripts=f"{left}->{out}", names=(*names, out), sizes=sizes)


def _einsum(o: Bound, x: Array, y: Array, order: tuple[int, int, int]) -> Array:
    """Sum products of two of the three arrays a, b and y over the letters that the third lacks, by one of matrices."""
    first, second, out = (o.names[i] for i in order)
    both = [letter for letter in first if letter in second and letter in out]
    inner = [letter for letter in first if letter in second and letter not in out]
    left = [letter for letter in first if letter not in second and letter in out]
    right = [letter for letter in second if letter not in first and letter in out]
    z = times(_laid(o, x, first, both, left, inner), _laid(o, y, second, both, inner, right))
    alone = [letter for letter in out if letter not in both + left + right]  # the result is the same along these
    found, lead = both + left + right + alone, z.shape[: z.ndim - len(both) - 2]
    z = z.reshape(*lead, *(o.sizes[letter] for letter in both + left + right), *(1,) * len(alone))
    z = z.transpose(*range(len(lead)), *(len(lead) + found.index(letter) for letter in out))
    return array_module(z).broadcast_to(z, (*lead, *(o.sizes[letter] for letter in out)))


def _laid(o: Bound, x: Array, names: str, both: list[str], rows: list[str], columns: list[str]) -> Array:
    """Return an array as matrices, summed over the letters that are in neither rows nor columns."""
    kept, lead = both + rows + columns, x.ndim - len(names)
    gone = tuple(i - len(names) for i, letter in enumerate(names) if letter not in kept)
    x = x.sum(gone) if gone else x
    left = [letter for letter in names if letter in kept]
    x = x.transpose(*range(lead), *(lead + left.index(letter) for letter in kept))
    shape = [prod(o.sizes[letter] for letter in part) for part in (rows, columns)]
    return x.reshape(*x.shape[: lead + len(both)], *shape)


BILINEARS = table(
    BilinearRow("multiply", "{0} * {1}", lambda o, a, b: _entries(o, a, 0, b, 1),
                lambda o, g, b: summed_to(_entries(o, g, 2, b, 1), o.shapes[0], len(o.shape)),
                lambda o, a, g: summed_to(_entries(o, a, 0, g, 2), o.shapes[1], len(o.shape)), bind=_pair),
    BilinearRow("matmul", "np.matmul({0}, {1})",
                lambda o, a, b: _product(o, _matrices(o, a, 0), _matrices(o, b, 1), 2),
                lambda o, g, b: _product(o, _matrices(o, g, 2), _turned(_matrices(o, b, 1)), 0),
                lambda o, a, g: _product(o, _turned(_matrices(o, a, 0)), _matrices(o, g, 2), 1),
                cost=lambda o: prod(o.wide[2]) * o.wide[0][-1], bind=_multiplied),
    BilinearRow("einsum", "np.einsum({subscripts!r}, {0}, {1})",
                lambda o, a, b: _einsum(o, a, b, (0, 1, 2)),
                lambda o, g, b: _einsum(o, g, b, (2, 1, 0)),
                lambda o, a, g: _einsum(o, a, g, (0, 2, 1)), cost=lambda o: prod(o.sizes.values()), bind=_summed),
    QuotientRow("divide", "{0} / {1}", cost=numbers(2), bind=_pair),
)  # fmt: skip
"""The bilinear rows, and quotients, by name."""
