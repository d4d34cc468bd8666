"""Selections: maps of images of which each output is one number of its channel times another.

Max pooling is one, and so are elementwise layers, dropout and padding, and each of these after another. Backward, max
pooling sends a number to one place of its window, and most places of the image get none. What parameters below give
can be had from the numbers that are sent, without the image:

    y[n, w, c] = s[n, w, c] x[n, t(n, w, c), c]
    Jᵀ g[v, n] = Σ_w s[n, w, o] g[v, n, w, o] u[n, t(n, w, o)]ᵀ   for each output o of a weight

What is not selected is not looked at: 0 times infinity, where an input overflowed, is left out rather than NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from gbackprop.array import Array, channels_last, row_blocks
from gbackprop.layers.jacobian import ParameterJacobian
from gbackprop.layers.outer import Outer, square_cost
from gbackprop.scratch import empty, matmul

SAMPLE_COST = 3e6
"""What the walk over a sample costs in Python, in multiply-adds: some 40 µs, on the safe side (10 by itself)."""


@dataclass(frozen=True)
class Selection:
    """Which number of an image ``[N, T, C]`` each output ``[N, W, C]`` is, and times what. On the host alone.

    Attributes
    ----------
    places : ndarray of int, shape (N, W, C)
        t, with the places of the image numbered row by row.
    slope : ndarray, shape (N, W, C)
        s, numbers or a mask.
    """

    places: np.ndarray
    slope: np.ndarray

    @staticmethod
    def of(table: np.ndarray) -> Selection:
        """What takes place ``table[n, w, c]``, or 0 where that is −1."""
        inside = table >= 0
        return Selection(table * inside, inside)

    def scaled(self, d: np.ndarray) -> Selection:
        """Of the input of y = d x, the layer below, with d of shape (N, C, *S)."""
        last = channels_last(d)
        return Selection(self.places, self.slope * self._taken_from(last.reshape(len(last), -1, last.shape[-1])))

    def through(self, table: np.ndarray) -> Selection:
        """Of the input of the layer below, whose output t is the input's ``table[n, t, c]``, or 0 where that is −1.

        One n or c may stand for all.
        """
        below = Selection.of(self._taken_from(table))
        return Selection(below.places, self.slope * below.slope)

    def _taken_from(self, table: np.ndarray) -> np.ndarray:
        """``table[n, t, c]`` at the places, (N, W, C)."""
        rows, size, channels = table.shape
        index = self.places * channels
        if channels > 1:
            index += np.arange(channels)
        if rows > 1:
            index += (np.arange(rows) * (size * channels))[:, None, None]
        return table.reshape(-1).take(index)


def numbered(spatial: tuple[int, ...]) -> np.ndarray:
    """The places of an image in their order, (1, *spatial, 1)."""
    return np.arange(prod(spatial)).reshape(1, *spatial, 1)


class SelectedBias(ParameterJacobian):
    """A convolution's bias below a selection: Jᵀ g[v, n] = Σ_w s g[v, n, w]."""

    def __init__(self, selection: Selection) -> None:
        self.slope = selection.slope

    def per_sample(self, mat: Array) -> Array:
        return np.einsum("vnwo,nwo->vno", _rows(mat), self.slope.astype(mat.dtype))


class SelectedOuter(ParameterJacobian):
    """A convolution's weight below a selection: Jᵀ g[v, n] = Σ_w s g[v, n, w] u[n, t(w)]ᵀ.

    Parameters
    ----------
    outer : Outer
        The weight's Jacobian at the convolution's output.
    selection : Selection
        Of that output.
    """

    def __init__(self, outer: Outer, selection: Selection) -> None:
        self.outer, self.selection = outer, selection

    def per_sample(self, mat: Array) -> Array:
        u = self.outer.u
        each = np.empty((len(mat), u.shape[1], mat.shape[2], u.shape[3]), mat.dtype)
        for n, some, g, inputs in self._samples(mat, mat.dtype):
            each[:, n, some] = (g @ inputs).swapaxes(0, 1)
        grouped = each.reshape(*each.shape[:2], len(u), -1, each.shape[3])
        return self.outer.joined(np.moveaxis(grouped, 2, 0))

    def square(self, mat: Array, sign: Array | None = None) -> Array:
        """Σᵥ σ p² with p = gᵀ u; or, for few windows, Σ_wr k_wr u_w u_r with k = Σᵥ σ g_w g_r, without any p.

        σ is the columns' sign, for s is the slope here.
        """
        windows, i, o = self._sizes()
        pairs = _pairs_cost(len(mat), windows, i) < _products_cost(len(mat), windows, i)
        square, room = np.zeros((o, i)), mat[:0]
        # sums over pairs can cancel where a square of sums does not: float64, and not below 0
        for n, some, g, inputs in self._samples(mat, np.float64 if pairs else mat.dtype):
            weights = np.ones(len(mat), g.dtype) if sign is None else sign[:, n].astype(g.dtype)
            left = matmul((g * weights[:, None]).swapaxes(1, 2), g) if pairs else g
            if not len(room):  # the first block is the largest
                room = empty(g, (*left.shape[:2], i))
            product = np.matmul(left, inputs, out=room[: len(g)])
            product *= inputs if pairs else product
            square[some] += product.sum(1) if pairs else weights @ product
        if pairs and sign is None:
            np.maximum(square, 0, out=square)
        return self.outer.joined(square.reshape(len(self.outer.u), -1, i).astype(mat.dtype))

    def _sizes(self) -> tuple[int, int, int]:
        """W, I, and O of all groups."""
        _, windows, outputs = self.selection.places.shape
        return windows, self.outer.u.shape[3], outputs

    def _samples(self, mat: Array, dtype: np.dtype | type) -> Iterator[tuple[int, slice, Array, Array]]:
        """For each sample and some of its outputs: (which, which, s g (o, V, W), u at the places (o, W, I))."""
        u, places, slope = self.outer.u, self.selection.places, self.selection.slope.astype(mat.dtype)
        columns, (windows, i, o) = len(mat), self._sizes()
        rows, share = _rows(mat), o // len(u)
        g = empty(mat, (columns, o, windows), dtype)
        # four times what others take: with fewer outputs at a time the steps get short
        blocks = list(row_blocks(share, (windows + columns) * i * g.itemsize // 4, mat))
        room = empty(mat, (blocks[0].stop, windows, i), dtype)
        for n in range(mat.shape[1]):
            np.multiply(rows[:, n], slope[n], out=g.swapaxes(1, 2))
            at = places[n].T.copy()
            for group, inputs in enumerate(u[:, n].astype(dtype, copy=False)):
                for block in blocks:
                    some = slice(block.start + group * share, block.stop + group * share)
                    seen = inputs.take(at[some], axis=0, out=room[: block.stop - block.start], mode="clip")
                    yield n, some, g[:, some].swapaxes(0, 1), seen


def pays(columns: int, windows: int, positions: int, inputs: int, outputs: int) -> bool:
    """Whether `SelectedOuter.square` is quicker for so many columns than `Outer.square` at all positions."""
    here = min(_products_cost(columns, windows, inputs), _pairs_cost(columns, windows, inputs))
    return outputs * (square_cost(columns, positions, inputs, outputs) - here) > SAMPLE_COST


# Multiply-adds of a square for each sample and output, with what walks over memory in the same unit.


def _products_cost(v: int, w: int, i: int) -> float:
    return v * i * (w + 30) + 15 * w * i + 20 * v * w


def _pairs_cost(v: int, w: int, i: int) -> float:
    return 2 * w * w * (v + i) + 150 * w * i + 40 * v * w


def _rows(mat: Array) -> Array:
    """``[V, N, C, *out] -> [V, N, W, C]``."""
    return channels_last(mat, 2).reshape(*mat.shape[:2], prod(mat.shape[3:]), mat.shape[2])
