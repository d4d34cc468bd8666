"""The Jacobian of a weight, y[t] = W u[t], with every reduction in its fastest form.

`jacobian` has the definitions, and the letters: J, g[v, n], s[v, n], p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from gbackprop.array import Array, array_module, row_blocks
from gbackprop.errors import UnsupportedError
from gbackprop.kernels import outer
from gbackprop.layers.jacobian import Bias, ParameterJacobian, weigh
from gbackprop.layers.overrides import go_together

MIRRORED = 64
"""Rows from which on half of a symmetric product, and its mirror image, cost less than the whole."""


class Outer(ParameterJacobian):
    """A weight applied at every shared position, y[t] = W u[t]: Jᵀ g[v, n] = Σₜ g[v, n, t] u[n, t]ᵀ.

    Linear layers and convolutions, the latter with the unfolded input as u. Groups of channels that do not meet are
    a leading axis G of everything: u is (G, N, T, I), g is (G, V, N, T, O).

    Parameters
    ----------
    inputs : callable
        Gives u. Called once, at first need.
    bias : Bias
        The Jacobian of a bias at the same output: B is its curvature.
    to_parameter, from_parameter : callable
        Sees ``[*lead, G*O, I]`` as ``[*lead, *p]``, and the other way round; views both.
    groups : int
        G.
    product : callable, optional
        Σₙₜ g uᵀ for one column ``[N, T, O] -> [O, I]``, without u, where that is quicker.
    """

    def __init__(
        self,
        inputs: Callable[[], Array],
        bias: Bias,
        to_parameter: Callable[[Array], Array],
        from_parameter: Callable[[Array], Array],
        groups: int = 1,
        product: Callable[[Array], Array] | None = None,
    ) -> None:
        self.inputs, self.bias, self.groups, self.product = inputs, bias, groups, product
        self.to_parameter, self.from_parameter = to_parameter, from_parameter

    @cached_property
    def u(self) -> Array:
        """The inputs, shape (G, N, T, I)."""
        return self.inputs()

    def split(self, mat: Array) -> Array:
        """g: ``[V, N, *out] -> [G, V, N, T, O]``."""
        rows = self.bias.rows(mat)
        return array_module(mat).moveaxis(rows.reshape(*rows.shape[:3], self.groups, -1), 3, 0)

    def joined(self, result: Array) -> Array:
        """``[G, *lead, O, I] -> [*lead, *p]``."""
        groups, *lead, o, i = result.shape
        merged = result[0] if groups == 1 else array_module(result).moveaxis(result, 0, -3)
        return self.to_parameter(merged.reshape(*lead, groups * o, i))

    def parted(self, rows: Array) -> Array:
        """The view that undoes `joined`, of rows that lie in memory as it leaves them: ``[N, *p] -> [G, N, O, I]``."""
        split = self.from_parameter(rows).reshape(rows.shape[0], self.groups, -1, self.u.shape[3])
        return array_module(rows).moveaxis(split, 1, 0)

    def per_sample(self, mat: Array) -> Array:
        return self.joined(_outer(self.split(mat), self.u[:, None]))

    def batch(self, mat: Array, sign: Array | None = None) -> Array:
        xp, n = array_module(mat), mat.shape[1]
        return self.batch_rows(mat, sign, lambda like: xp.empty_like(like, shape=(n, *like.shape[1:])))

    def batch_rows(self, mat: Array, sign: Array | None, room: Callable[[Array], Array]) -> Array:
        """`batch`, written to where it is kept: `room` gives that, (N, *p), and is shown how a row lies in memory.

        These are the largest results of all, and a copy of them takes as long as they do.
        """
        g = self.split(_over_columns(mat, sign))[:, 0]
        row = array_module(g).empty((self.groups, 1, g.shape[3], self.u.shape[3]), dtype=g.dtype)
        place = room(self.joined(row))
        if g.shape[2] == 1:
            outer(g[:, :, 0], self.u[:, :, 0], self.parted(place))
        else:
            _outer(g, self.u, self.parted(place))
        return place

    def sum(self, mat: Array, sign: Array | None = None) -> Array:
        g = self.split(_over_columns(mat, sign))
        if self.product is not None:
            return self.joined(self.product(g[0, 0])[None])
        groups, _, n, t, o = g.shape
        return self.joined(g.reshape(groups, n * t, o).swapaxes(1, 2) @ self.u.reshape(groups, n * t, -1))

    def batch_square(self, mat: Array, sign: Array | None = None) -> Array:
        g, u = self.split(mat), self.u
        if u.shape[2] == 1:  # one position: (g uᵀ)² = g² (u²)ᵀ
            return self.joined(_outer(_signed_square(g, sign).sum(1), u * u))
        groups, _, n, _, o = g.shape
        square = array_module(mat).zeros((groups, n, o, u.shape[3]), dtype=mat.dtype)
        for v, rows, product in self._products(g):
            weights = None if sign is None else sign[v, rows]
            square[:, rows] += _signed_square(product, weights).sum(1)
        return self.joined(square)

    def square(self, mat: Array, sign: Array | None = None) -> Array:
        g, u = self.split(mat), self.u
        groups, _, n, t, o = g.shape
        if t == 1:
            weights = _signed_square(g, sign).sum(1).reshape(groups, n, o)
            return self.joined(weights.swapaxes(1, 2) @ (u * u).reshape(groups, n, -1))
        columns, i = g.shape[1], u.shape[3]
        if _pairs_cost(columns, t, i, o) < _products_cost(columns, t, i):
            return self.joined(self._square_by_positions(g, sign))
        square = array_module(mat).zeros((groups, o * i), dtype=mat.dtype)
        for v, rows, product in self._products(g):
            product *= product
            square += _total(product, None if sign is None else sign[v, rows])
        return self.joined(square.reshape(groups, o, -1))

    def _square_by_positions(self, g: Array, sign: Array | None) -> Array:
        """Σᵥ s (Σₜ gₜₒ uₜᵢ)² = Σₜᵣ kₜᵣₒ uₜᵢ uᵣᵢ with k = Σᵥ s gₜₒ gᵣₒ, and t ≤ r enough, (G, O, I).

        Cheaper for many columns and few positions.
        """
        xp, u = array_module(g), self.u.astype(np.float64)  # positions can cancel, where a square of sums does not
        groups, columns, n, t, o = g.shape
        square = xp.zeros((groups, o, u.shape[3]), dtype=np.float64)
        t_, r, times = _pairs(xp, t)
        for rows in row_blocks(n, groups * o * t * max(t, columns) * 8, g):  # one sample each on the host, as a rule
            each = xp.moveaxis(g[:, :, rows], 1, 4).astype(np.float64, order="C").swapaxes(2, 3)  # [G, n, O, T, V]
            weighted = each if sign is None else each * sign[:, rows].T[:, None, None]
            k = weighted @ each.swapaxes(3, 4)  # [G, n, O, T, T]
            for pairs in row_blocks(len(times), u[:, rows, 0].nbytes, g):
                some = k[..., t_[pairs], r[pairs]] * times[pairs]
                products = u[:, rows, t_[pairs]] * u[:, rows, r[pairs]]
                some = some.transpose(0, 2, 1, 3).reshape(groups, o, -1)
                square += some @ products.reshape(groups, some.shape[2], -1)
        return (xp.maximum(square, 0) if sign is None else square).astype(g.dtype)

    def moments(self, mat: Array, sign: Array | None = None) -> Array:
        g, u, xp = self.split(mat), self.u, array_module(mat)
        groups, columns, n, t, o = g.shape
        if t == 1:
            g, u = g.reshape(groups, columns * n, o).astype(np.float64), u.reshape(groups, n, -1).astype(np.float64)
            u = xp.concatenate([u] * columns, axis=1) if columns > 1 else u
            weighted = g if sign is None else g * sign.reshape(-1, 1)
            first, second = weighted.swapaxes(1, 2) @ u, (weighted * g).swapaxes(1, 2) @ (u * u)
        else:
            first, second = xp.zeros((2, groups, o * u.shape[3]), dtype=np.float64)
            for v, rows, product in self._products(g):
                wide, weights = product.astype(np.float64), None if sign is None else sign[v, rows]
                first += _total(wide, weights)
                wide *= wide
                second += _total(wide, weights)
        both = xp.stack([first.reshape(groups, o, -1), second.reshape(groups, o, -1)], axis=1)
        return self.joined(both)

    def square_norm(self, mat: Array, sign: Array | None = None) -> Array:
        g, u = self.split(mat), self.u
        groups, columns, n, t, o = g.shape
        i = u.shape[3]
        if t == 1:  # ‖g uᵀ‖² = ‖g‖² ‖u‖²
            return (_signed_square(g, sign).sum((1, 3, 4)) * (u * u).sum((2, 3))).sum(0)
        xp = array_module(mat)
        norm = xp.zeros(mat.shape[1], dtype=mat.dtype)
        if t * (i + columns * o) < columns * o * i:  # ‖Σₜ gₜ uₜᵀ‖² = Σₜₛ (gₜᵀ gₛ)(uₜᵀ uₛ): no matrix of p's size
            for rows in row_blocks(n, groups * columns * t * t * g.dtype.itemsize, g):
                some, inputs = g[:, :, rows].astype(np.float64), u[:, None, rows].astype(np.float64)
                gram = (some @ some.swapaxes(-1, -2)) * (inputs @ inputs.swapaxes(-1, -2))
                squares = xp.maximum(gram.sum((0, 3, 4)), 0)  # the sum can cancel: float64, and not below 0
                norm[rows] = _weighted(squares, None if sign is None else sign[:, rows]).sum(0)
            return norm
        for v, rows, product in self._products(g):
            product *= product
            norm[rows] += _weighted(product.sum((0, 3, 4)), None if sign is None else sign[v, rows]).sum(0)
        return norm

    def _products(self, g: Array) -> Iterator[tuple[slice, slice, Array]]:
        """gᵀ u for blocks of columns and samples: (which columns, which samples, (G, v, n, O, I))."""
        groups, columns, n, _, o = g.shape
        size = groups * o * self.u.shape[3] * g.dtype.itemsize
        for rows in row_blocks(n, size, g):
            for v in row_blocks(columns, size * (rows.stop - rows.start), g):
                yield v, rows, _outer(g[:, v, rows], self.u[:, None, rows])

    def kronecker(self, mat: Array, sign: Array | None = None) -> Array:
        return self.bias.kronecker(mat, sign)

    def average_kronecker(self, average: Array, shape: tuple[int, ...]) -> Array:
        return self.bias.average_kronecker(average, shape)

    def input_square(self) -> Array | None:
        if self.groups > 1:
            raise UnsupportedError("the groups of a weight have input factors of their own")
        u, xp = self.u.reshape(-1, self.u.shape[3]), array_module(self.u)
        # NumPy sees that this is symmetric, and mirrors one half: for few rows that takes longer than the other half.
        square = u.T @ (u.copy() if xp is np and len(u) < MIRRORED else u)
        # Rows and columns in the order of the parameter's entries, in one copy; in none where that is theirs already.
        entries = self.to_parameter(xp.moveaxis(self.to_parameter(square), 0, -1))
        axes = range(entries.ndim)
        half = len(axes) // 2
        return entries.transpose(*axes[half:], *axes[:half]).reshape(square.shape)


def square_cost(columns: int, positions: int, inputs: int, outputs: int) -> float:
    """Of `Outer.square`, for each sample and output."""
    pairs = _pairs_cost(columns, positions, inputs, outputs)
    return min(pairs, _products_cost(columns, positions, inputs))


# Multiply-adds, with what walks over memory in the same unit, on the safe side.


def _products_cost(v: int, t: int, i: int) -> float:
    return v * i * (t + 30)


def _pairs_cost(v: int, t: int, i: int, o: int) -> float:
    return t * t * (2.6 * v + 1.3 * i + 60 * i / o) + 180 * t * v


def writes_rows(jacobian: ParameterJacobian) -> TypeGuard[Outer]:
    """Whether there is a `batch_rows` that goes with `batch`: a subclass may have a `batch` of its own."""
    return go_together(jacobian, "batch_rows", "batch")


def _over_columns(mat: Array, sign: Array | None) -> Array:
    """Σᵥ s g[v, n], shape (1, N, *out); no copy of a single column."""
    return mat if mat.shape[0] == 1 and sign is None else weigh(mat, sign).sum(0, keepdims=True)


def _outer(g: Array, u: Array, out: Array | None = None) -> Array:
    """Σₜ gₜ uₜᵀ: ``[..., T, O], [..., T, I] -> [..., O, I]``, into `out` if it is given."""
    xp = array_module(g)
    product = xp.multiply if g.shape[-2] == 1 else xp.matmul  # a product of many 1-column matrices is slow
    return product(g.swapaxes(-1, -2), u, out=out)


def _pairs(xp: Any, t: int) -> tuple[Array, Array, Array]:
    """Pairs of positions of which sums over all of them can be made, and how often each counts."""
    if xp is not np:  # choosing half of them would make the host wait
        return xp.repeat(xp.arange(t), t), xp.tile(xp.arange(t), t), xp.ones(t * t)
    first, second = np.triu_indices(t)
    return first, second, np.where(first == second, 1.0, 2.0)


def _total(products: Array, weights: Array | None) -> Array:
    """Σᵥₙ of ``weights * products``: ``[V, N], [G, V, N, O, I] -> [G, O*I]``, as one product, in one pass."""
    groups, columns, n = products.shape[:3]
    if weights is None:
        weights = array_module(products).ones(columns * n, dtype=products.dtype)
    return weights.reshape(-1).astype(products.dtype) @ products.reshape(groups, columns * n, -1)


def _weighted(values: Array, sign: Array | None) -> Array:
    """``sign * values``, both (V, N)."""
    return values if sign is None else values * sign


def _signed_square(g: Array, sign: Array | None) -> Array:
    """``sign * g²`` for g of shape (G, V, N, ., .)."""
    return g * g if sign is None else g * g * sign[..., None, None]
