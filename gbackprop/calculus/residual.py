"""Residuals that a layer factors itself: of several inputs, or cheaper than a matrix, or beyond the dtype's range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import mul
from typing import Any, ClassVar

from gbackprop.array import Array, array_module, channels_first, channels_last
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.calculus.signals import ALL, Columns

Pieces = tuple[tuple[Array, ...], Array]
"""The pieces of columns at each input, (V, N, *in), and the columns' signs, (V, N)."""

Values = tuple[Array, Array] | None
"""The values of the two inputs that a product of pieces stands on; None if both are one input."""


@dataclass(frozen=True)
class Factored:
    """The residual as Σᵥ signᵥ v vᵀ, with v over all inputs of the layer: their number, and columns of a slice.

    Of a sum Σₖ (aₖ bₖᵀ + bₖ aₖᵀ) with aₖ on one input and bₖ on another, `pairs` gives aₖ and bₖ of a slice of k, and
    what aₖ is on the input of bₖ, if it is on both.
    """

    width: int
    columns: Callable[[slice], Pieces]
    pairs: Callable[[slice], tuple[Array, ...]] | None = None


@dataclass(frozen=True)
class DiagonalFactors:
    """The residual diag(r) of one input as the factors of r, each of a shape that broadcasts to (N, *in).

    Their product may be beyond the dtype's range where r times squares of slopes is not: φ'' of √x at 10³² is 10⁻⁴⁸.
    """

    factors: tuple[Array, ...]

    def root(self) -> Array:
        """√|r|, from the roots of the factors."""
        return reduce(mul, [array_module(each).sqrt(abs(each)) for each in self.factors])

    def sign(self) -> Array:
        """The sign of r."""
        return reduce(mul, [array_module(each).sign(each) for each in self.factors])

    def product(self) -> Array:
        """Return r, as far as the dtype has it."""
        return reduce(mul, self.factors)

    def times(self, mat: Array) -> Array:
        """Return r ∘ mat."""
        root = self.root()
        return mat * root * (self.sign() * root)


Residual = Array | Factored | DiagonalFactors


@dataclass(frozen=True)
class Paired:
    """The origin of columns that are pairs, of which the first half are u and the other half w, in the same order.

    They stand for Σ (u wᵀ + w uᵀ). u begins at one input, of a quotient at both, and w at another, and each is carried
    by itself: what has reached one of them alone is exactly 0 in the other, whatever their sizes.
    """

    origin: Any


class FactoredLayer(Layer):
    """A layer that factors its residual itself: because it has several inputs, or more cheaply than as a matrix."""

    curvature = "dense"

    bilinear: ClassVar[bool] = False
    """True if it is linear in each of two inputs, so that it is curved in both together alone."""

    linear_in: ClassVar[tuple[int, ...]] = ()
    """The inputs in which it is linear while others do not change, if it is not bilinear."""

    def residual_width(self, *shapes: Shape) -> int:
        """Return the number of columns of the residual, for inputs of these feature shapes."""
        raise NotImplementedError(f"{type(self).__name__} has no residual_width")

    def residual(self, saved: Any, grad: Array) -> Factored:
        """Factor the residual, ∇²(gᵀ f) over all inputs, with g the gradient at the output, shape (N, *out)."""
        raise NotImplementedError(f"{type(self).__name__} has no residual")


def products(count: int, pairs: Callable[[Array], tuple[Array, ...]], like: Array, at: Values = None) -> Factored:
    """Factor Σₖ (aₖ bₖᵀ + bₖ aₖᵀ), with aₖ on the first input, or on both, and bₖ on the second: two columns each."""
    xp = array_module(like)

    def columns(span: slice) -> Pieces:
        index = xp.arange(2 * count)[span]
        a, b, *also = pairs(index % count)
        return signed(a, b, xp.where(index < count, 1, -1), at, *also)

    return Factored(2 * count, columns, lambda some: evened(at, *pairs(xp.arange(count)[some])))


def paired(residual: Factored, origin: Any, span: slice) -> list[Columns]:
    """Return pairs of a residual as columns: those of each input are zero where the other's are not.

    Columns 2 k and 2 k + 1 are a pair; it belongs to the span of the first, so that none is cut.
    """
    assert residual.pairs is not None
    start, stop, _ = span.indices(residual.width)
    a, b, *also = residual.pairs(slice((start + 1) // 2, (stop + 1) // 2))
    xp, origins = array_module(a), ((Paired(origin), 2 * len(a)),)
    sign = xp.ones((2 * len(a), a.shape[1]), dtype=a.dtype)
    values = xp.concatenate([a, xp.zeros_like(a)]), xp.concatenate([*(also or [xp.zeros_like(b)]), b])
    return [Columns(each, sign, origins) for each in values]


def balanced(columns: Columns) -> Columns:
    """Return columns with each pair as s u ± w / s in float64, with s for the sizes of u and w here; others come first.

    Their squares cancel, where what u and w are multiplied with is of other sizes, down to 2 u w.
    """
    if not any(isinstance(origin, Paired) for origin, _ in columns.origins):
        return columns
    xp, start, others, of_u, of_w = array_module(columns.values), 0, [], [], []
    for origin, width in columns.origins:
        half, end = start + width // 2, start + width
        if isinstance(origin, Paired):
            of_u.append(columns.values[start:half])
            of_w.append(columns.values[half:end])
        else:
            others.append((columns.values[start:end], columns.sign[start:end]))  # type: ignore[index]
        start = end
    u, w = (xp.concatenate(each).astype("float64", copy=False) for each in (of_u, of_w))
    (u, w), sign = signed(u, w, xp.ones(len(u), dtype=u.dtype), None)
    parts = [*others, (u + w, sign), (u - w, -sign)]
    del u, w
    values, signs = zip(*parts, strict=True)
    return Columns(xp.concatenate(values), xp.concatenate(signs), columns.origins)


def signed(a: Array, b: Array, sign: Array, at: Values, also: Array | None = None) -> Pieces:
    """Return (s a, s also ± b / s) / √2, with s² = max|b y| / max|a x| so that no piece is lost beside the other.

    The sum of both signs is a bᵀ + b aᵀ. The sign is 0 where a or b is zero. With the inputs' values x and y, a and b
    are compared by what relative changes of these do, as the columns below do not depend on the units of x and y.
    """
    s, curved = _scale(a, b, at)
    sign = sign.astype(a.dtype)[:, None] * curved
    first, second = _times(a, abs(sign) * s / 2**0.5), _times(b, sign / s / 2**0.5)
    return (first, second if also is None else second + _times(also, abs(sign) * s / 2**0.5)), sign


def evened(at: Values, a: Array, b: Array, *also: Array) -> tuple[Array, ...]:
    """Return (s a, b / s), with s as in `signed`: the values of y = f(x) may be as large as their slopes are small."""
    s, _ = _scale(a, b, at)
    return _times(a, s), _times(b, 1 / s), *[_times(each, s) for each in also]


def _scale(a: Array, b: Array, at: Values) -> tuple[Array, Array]:
    """Return s, 1 where a or b is zero, and whether neither is: each of shape (V, N)."""
    xp, values = array_module(a), (None, None) if at is None else at
    (of_a, wide_a), (of_b, wide_b) = (_sizes(each, value) for each, value in zip((a, b), values, strict=True))
    curved = (of_a > 0) & (of_b > 0)
    right = (wide_a > 0) & (wide_b > 0) & xp.isfinite(wide_a) & xp.isfinite(wide_b)
    of_a, of_b = xp.where(right, wide_a, of_a), xp.where(right, wide_b, of_b)
    s = xp.sqrt(xp.where(curved, of_b, 1)) / xp.sqrt(xp.where(curved, of_a, 1))  # a quotient could overflow
    return s, curved


def together(count: int, first: Callable[[Array], tuple[Array, Array]], rest: Factored, like: Array) -> Factored:
    """Return a residual of one input with `count` columns of its own, then those of another."""
    xp = array_module(like)

    def columns(span: slice) -> Pieces:
        start, stop, _ = span.indices(count + rest.width)
        parts = []
        if start < count:
            parts.append(first(xp.arange(start, min(stop, count))))
        if stop > count:
            (a, b), sign = rest.columns(slice(max(start - count, 0), stop - count))
            parts.append((a + b, sign))
        values, signs = zip(*parts, strict=True)
        return (xp.concatenate(values),), xp.concatenate(signs)

    return Factored(count + rest.width, columns)


def _sizes(mat: Array, value: Array | None) -> tuple[Array, Array]:
    """max |mat[v, n]| and max |mat[v, n] ∘ value[n]|, each of shape (V, N); the first twice if there is no value.

    No squares, which would be 0 in float32 for gradients of 1e-23, as of a sample that is classified surely. The same
    bits in each column, so that ± cancel.
    """
    (v, n, *features), sizes = mat.shape, abs(mat)
    size = sizes.reshape(v, n, prod(features)).max(2)
    if value is None:
        return size, size
    return size, (sizes * abs(value)).reshape(v, n, prod(features)).max(2)


def _times(mat: Array, factor: Array) -> Array:
    """``factor[v, n] * mat[v, n]``."""
    return mat * factor.reshape(factor.shape + (1,) * (mat.ndim - 2))


def units(index: Array, batch: int, features: tuple[int, ...], dtype: Any) -> Array:
    """Return unit vectors e_k for numbers k of entries, the same for each sample: (V, N, *features)."""
    xp, size = array_module(index), prod(features)
    rows = (index[:, None] == xp.arange(size)).astype(dtype)  # not of all entries: few of many may be asked for
    return xp.broadcast_to(rows[:, None], (len(index), batch, size)).reshape(len(index), batch, *features)


def residual_columns(residual: Residual, features: tuple[int, ...], span: slice = ALL) -> Columns:
    """Factor the residual r of a curved layer: Σᵥ signᵥ v vᵀ = diag(r), or = r where it is dense."""
    if isinstance(residual, Factored):
        (values,), sign = residual.columns(span)
        return Columns(values, sign)
    if isinstance(residual, DiagonalFactors):
        return _diagonal_columns(residual, span)
    if residual.shape[1:] == features:
        return _diagonal_columns(DiagonalFactors((residual,)), span)
    return _dense_columns(residual, features, span)


def _diagonal_columns(residual: DiagonalFactors, span: slice) -> Columns:
    # The columns are numbered in the memory order of r: channels last, if there are channels.
    last, sign = channels_last(residual.root()), channels_last(residual.sign())
    xp, n, d = array_module(last), len(last), prod(last.shape[1:])
    some = last.reshape(n, d)[:, span]
    width, start = some.shape[1], span.start or 0
    values = xp.zeros((width, n, d), dtype=some.dtype)
    each = xp.arange(width)
    values[each, :, each + start] = some.T
    values = channels_first(values.reshape(width, *last.shape), 2)
    return Columns(values, sign.reshape(n, d)[:, span].T)


def _dense_columns(residual: Array, features: tuple[int, ...], span: slice) -> Columns:
    xp = array_module(residual)
    eigenvalues, vectors = xp.linalg.eigh(residual)  # [N, D], [N, D, D]
    factors = vectors * xp.sqrt(xp.abs(eigenvalues))[:, None, :]
    values = xp.moveaxis(factors, 2, 0)[span]
    return Columns(values.reshape(*values.shape[:2], *features), xp.sign(eigenvalues).T[span])
