"""Forms of the mean and the squared deviations of `Outer`, from sums over samples where these keep their digits.

Letters as in `calculus.jacobian`: u is (G, N, T, I), g is (G, V, N, T, O).
"""

from __future__ import annotations

import numpy as np

from gbackprop.array import Array, array_module
from gbackprop.calculus.jacobian import REDUCTIONS, Outer
from gbackprop.calculus.moments import TIGHT, Moments
from gbackprop.engine.forms.products import products, total_of
from gbackprop.engine.registry import SUM, Context


def moments(outer: Outer, mat: Array, sign: Array | None, context: Context) -> Moments:
    """Σᵥₙ Jᵀ g[v, n], and the squares of what differs from the mean, in float64."""
    if sign is not None:
        return REDUCTIONS["moments"].define(outer, mat, sign)
    g, u, xp = outer.split(mat), outer.u, array_module(mat)
    groups, columns, n, t, o = g.shape
    if t == 1:
        u = xp.concatenate([u] * columns, axis=1) if columns > 1 else u
        g, u = g.reshape(groups, columns * n, o), u.reshape(groups, columns * n, -1)
        return _moments_of_sums(outer, g, u) or _moments_of_rows(outer, g, u)
    jacobian, of, total = context.total
    if jacobian is not outer or of is not mat:
        total = context.reduce(outer, SUM, mat, None)
    mean = total / (columns * n)
    shift = xp.ascontiguousarray(outer.from_parameter(mean)).reshape(groups, 1, 1, o, -1)
    first, second = xp.zeros((2, groups, o * u.shape[3]), dtype=np.float64)
    for _, _, product in products(outer, g):
        product -= shift
        wide = product.astype(np.float64, copy=False)
        first += total_of(wide, None)
        wide *= wide
        second += total_of(wide, None)
    first, second = (outer.joined(part.reshape(groups, o, -1)) for part in (first, second))
    return Moments.about(mean.astype(np.float64), first, second, columns * n)


def _moments_of_sums(outer: Outer, g: Array, u: Array) -> Moments | None:
    """Compute the moments of x = g uᵀ from Σ x and Σ x²; None where that would lose digits, or cannot be known."""
    if not isinstance(g, np.ndarray):
        return None  # a GPU would have to be waited for
    g, u = g.astype(np.float64), u.astype(np.float64)
    first = outer.joined(g.swapaxes(1, 2) @ u)
    g *= g
    u *= u
    return Moments.of_sums(first, outer.joined(g.swapaxes(1, 2) @ u), g.shape[1])


def _moments_of_rows(outer: Outer, g: Array, u: Array) -> Moments:
    """Compute the moments of x = g uᵀ for rows g (G, n, O) and u (G, n, I), about K = ḡ ūᵀ.

    With dg = g − ḡ and du = u − ū, x − K = ḡ du + dg u, so

        Σ (x − K)² = Σ dg² u² + 2 ḡ Σ dg (du u) + ḡ² Σ du²   and   Σ (x − K) = Σ dg du

    where no term is large but for a reason: the squares are one product of matrices with 2n + 1 rows.
    """
    xp, (groups, count, i) = array_module(g), u.shape
    rows = xp.empty((groups, 2 * count + 1, i), dtype=np.float64)  # of u², of du u, and Σ du²
    wide, du, last = rows[:, :count], rows[:, count:-1], rows[:, -1:]
    wide[...] = u
    mean_u = wide.mean(1, keepdims=True)
    xp.subtract(wide, mean_u, out=du)
    g = g.astype(np.float64)
    mean_g = g.mean(1, keepdims=True)
    dg = g - mean_g
    square_g = dg * dg
    first = dg.swapaxes(1, 2) @ du
    last[...] = xp.einsum("gni,gni->gi", du, du)[:, None]
    both = ((last, mean_u), (square_g, mean_g))
    tight = xp is np and all((d.sum(1) < TIGHT * count * m[:, 0] ** 2).any() for d, m in both)  # a GPU would wait
    if tight:  # both factors vary so little that the rounding of their means counts
        first += mean_g.swapaxes(1, 2) * du.sum(1, keepdims=True) + dg.sum(1)[..., None] * mean_u
    du *= wide
    wide *= wide
    dg *= 2 * mean_g
    second = xp.concatenate([square_g, dg, mean_g * mean_g], axis=1).swapaxes(1, 2) @ rows
    mean_g = mean_g.swapaxes(1, 2)
    shift = mean_g * mean_u
    error = outer.joined(_product_error(mean_g, mean_u, shift)) if tight else None
    shift, first, second = (outer.joined(part) for part in (shift, first, second))
    return Moments.about(shift, first, second, count, error, tight)


def _product_error(a: Array, b: Array, product: Array) -> Array:
    """Compute a b − fl(a b) exactly, from halves of the factors (Dekker 1971)."""
    (high_a, low_a), (high_b, low_b) = _halves(a), _halves(b)
    return ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


def _halves(a: Array) -> tuple[Array, Array]:
    """Split float64 numbers into a sum of two with half of the digits each."""
    big = a * (2.0**27 + 1)
    high = big - (big - a)
    return high, a - high
