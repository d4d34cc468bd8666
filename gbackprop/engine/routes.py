"""Columns routed through max pooling: statistics of parameters below are computed from the pooled columns.

Backward, max pooling routes each number to one place of its window, and most places of the image receive none; the
places are the same for every column. An elementwise layer, dropout or padding below it multiplies each number by a
factor, or moves it. A `Route` gives the place of each number in an image, and its factor:

    y[n, w, c] = s[n, w, c] x[n, t(n, w, c), c]
    Jᵀ g[v, n] = Σ_w s[n, w, o] g[v, n, w, o] u[n, t(n, w, o)]ᵀ   for each output o of a convolution's weight below

Numbers routed to no place are left out: where an input overflowed, 0 times infinity is omitted and does not give NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from gbackprop.array import Array, channels_last
from gbackprop.calculus.jacobian import Outer, ParameterJacobian
from gbackprop.engine import costs
from gbackprop.engine.memory import Allocator
from gbackprop.engine.scratch import row_blocks


@dataclass(frozen=True)
class Route:
    """The place in an image ``[N, T, C]`` of each output ``[N, W, C]``, and its factor. On the host only."""

    places: np.ndarray  # t, with the places of the image numbered row by row, shape (N, W, C)
    slope: np.ndarray  # s, factors or a mask, likewise

    @staticmethod
    def of(table: np.ndarray) -> Route:
        """Return the route to place ``table[n, w, c]``, or to no place where that is −1."""
        inside = table >= 0
        return Route(table * inside, inside)

    def scaled(self, d: np.ndarray) -> Route:
        """Return the route to the input of y = d x, the layer below, with d of shape (N, C, *S)."""
        last = channels_last(d)
        return Route(self.places, self.slope * self._taken_from(last.reshape(len(last), -1, last.shape[-1])))

    def through(self, table: np.ndarray) -> Route:
        """Return the route to the input of the layer below, whose output t is input ``table[n, t, c]``, or 0 for −1.

        The axes n and c of `table` may have length 1.
        """
        below = Route.of(self._taken_from(table))
        return Route(below.places, self.slope * below.slope)

    def _taken_from(self, table: np.ndarray) -> np.ndarray:
        """Return ``table[n, t, c]`` at the places, shape (N, W, C)."""
        rows, size, channels = table.shape
        index = self.places * channels
        if channels > 1:
            index += np.arange(channels)
        if rows > 1:
            index += (np.arange(rows) * (size * channels))[:, None, None]
        return table.reshape(-1).take(index)


def numbered(spatial: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of an image's places, shape (1, *spatial, 1)."""
    return np.arange(prod(spatial)).reshape(1, *spatial, 1)


class RoutedBias(ParameterJacobian):
    """The Jacobian of a convolution's bias below a route: Jᵀ g[v, n] = Σ_w s g[v, n, w]."""

    def __init__(self, route: Route) -> None:
        self.slope = route.slope

    def per_sample(self, mat: Array) -> Array:
        return np.einsum("vnwo,nwo->vno", _rows(mat), self.slope.astype(mat.dtype))


class RoutedOuter(ParameterJacobian):
    """The Jacobian of a convolution's weight below a route: Jᵀ g[v, n] = Σ_w s g[v, n, w] u[n, t(w)]ᵀ."""

    def __init__(self, outer: Outer, route: Route, memory: Allocator) -> None:  # `outer` is at the route's end
        self.outer, self.route, self.memory = outer, route, memory

    def per_sample(self, mat: Array) -> Array:
        u = self.outer.u
        each = np.empty((len(mat), u.shape[1], mat.shape[2], u.shape[3]), mat.dtype)
        for n, some, g, inputs in self._samples(mat, mat.dtype):
            each[:, n, some] = (g @ inputs).swapaxes(0, 1)
        grouped = each.reshape(*each.shape[:2], len(u), -1, each.shape[3])
        return self.outer.joined(np.moveaxis(grouped, 2, 0))

    def square(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ σ p² with p = gᵀ u; or, for few windows, Σ_wr k_wr u_w u_r with k = Σᵥ σ g_w g_r, without any p.

        Here σ is the columns' sign, and s is the slope.
        """
        windows, i, o = self._sizes()
        pairs = costs.routed_by_windows(len(mat), windows, i) < costs.routed_by_products(len(mat), windows, i)
        square, products = np.zeros((o, i)), mat[:0]
        # sums over pairs can cancel where a square of sums does not: float64, and a lower bound of 0
        for n, some, g, inputs in self._samples(mat, np.float64 if pairs else mat.dtype):
            weights = np.ones(len(mat), g.dtype) if sign is None else sign[:, n].astype(g.dtype)
            left = self.memory.matmul((g * weights[:, None]).swapaxes(1, 2), g) if pairs else g
            if not len(products):  # the first block is the largest
                products = self.memory.empty(g, (*left.shape[:2], i))
            product = np.matmul(left, inputs, out=products[: len(g)])
            product *= inputs if pairs else product
            square[some] += product.sum(1) if pairs else weights @ product
        if pairs and sign is None:
            np.maximum(square, 0, out=square)
        return self.outer.joined(square.reshape(len(self.outer.u), -1, i).astype(mat.dtype))

    def _sizes(self) -> tuple[int, int, int]:
        """Return W, I, and O of all groups."""
        _, windows, outputs = self.route.places.shape
        return windows, self.outer.u.shape[3], outputs

    def _samples(self, mat: Array, dtype: np.dtype | type) -> Iterator[tuple[int, slice, Array, Array]]:
        """Yield for each sample and some of its outputs (sample, outputs, s g (o, V, W), u at the places (o, W, I))."""
        u, places, slope = self.outer.u, self.route.places, self.route.slope.astype(mat.dtype)
        columns, (windows, i, o) = len(mat), self._sizes()
        rows, share = _rows(mat), o // len(u)
        g = self.memory.empty(mat, (columns, o, windows), dtype)
        # four times the usual size: with fewer outputs at a time the steps become too short
        blocks = list(row_blocks(share, (windows + columns) * i * g.itemsize // 4, mat))
        taken = self.memory.empty(mat, (blocks[0].stop, windows, i), dtype)
        for n in range(mat.shape[1]):
            np.multiply(rows[:, n], slope[n], out=g.swapaxes(1, 2))
            at = places[n].T.copy()
            for group, inputs in enumerate(u[:, n].astype(dtype, copy=False)):
                for block in blocks:
                    some = slice(block.start + group * share, block.stop + group * share)
                    seen = inputs.take(at[some], axis=0, out=taken[: block.stop - block.start], mode="clip")
                    yield n, some, g[:, some].swapaxes(0, 1), seen


def _rows(mat: Array) -> Array:
    """``[V, N, C, *out] -> [V, N, W, C]``."""
    return channels_last(mat, 2).reshape(*mat.shape[:2], prod(mat.shape[3:]), mat.shape[2])
